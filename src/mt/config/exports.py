"""For which other software a model can be written, and which models cannot."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, get_args

from mt.config.base import Rule

if TYPE_CHECKING:
    from mt.config.schema import Config

ExportFormat = Literal["ctranslate2", "huggingface", "onnx", "argos"]
EXPORT_FORMATS: tuple[ExportFormat, ...] = get_args(ExportFormat)

# What each kind of model can become.
_FORMATS_OF: dict[str, tuple[ExportFormat, ...]] = {
    "encoder_decoder": EXPORT_FORMATS,
    "decoder_only": (),
}


def export_rules(config: "Config", export_format: ExportFormat) -> Iterator[Rule]:
    """What of a configuration a format has no place for."""
    shape = config.model
    yield Rule(
        export_format not in _FORMATS_OF[shape.architecture],
        ("model.architecture", "exports"),
        f"a model that is {shape.architecture} cannot be exported as {export_format}",
    )
    yield Rule(
        export_format == "huggingface" and shape.activation == "swiglu",
        ("model.activation", "exports"),
        "swiglu cannot be exported as huggingface: transformers has no such translation model",
    )
    yield Rule(
        export_format == "argos" and len(config.data.target_lang) > 1,
        ("data.target_lang", "exports"),
        "a model of several target languages cannot be exported as argos: a package there has one, and no way to ask "
        "for it",
    )
