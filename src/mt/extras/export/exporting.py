"""Exports a model: the checks before, the folder, and what there is to say about it."""

import importlib.util
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mt.bundle.load_translator import open_model, read_config
from mt.config.exports import ExportFormat
from mt.data.eval_texts import EvalText
from mt.decoding.engine import EngineChoice
from mt.errors import InputError
from mt.extras.export.cards import export_card
from mt.extras.export.loss import Yardstick
from mt.extras.export.subject import Subject, load_subject, require_exportable
from mt.storage import atomic
from mt.storage.run_dir import ModelDir

MAX_LOSS = 0.5
NUMBER_FORMATS = ("float32", "float16", "int8")

_PACKAGES: dict[ExportFormat, tuple[str, ...]] = {
    "ctranslate2": ("ctranslate2",),
    "huggingface": ("transformers",),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "argos": ("ctranslate2", "sentencepiece", "onnx"),
}
_MEASURED: tuple[ExportFormat, ...] = ("ctranslate2", "argos")


@dataclass(frozen=True)
class ExportOptions:
    """What a user can choose.

    Attributes:
        number_format: float32, float16 or int8, for CTranslate2's weights; None takes the model's compute_type, or
            int8 for Argos Translate, which computes in it anyway.
        max_loss: the most BLEU it may cost; None is MAX_LOSS.
    """

    number_format: str | None = None
    max_loss: float | None = None


def check_options(wanted: ExportFormat, options: ExportOptions) -> None:
    """Refuses options that make no sense.

    Raises:
        InputError: the message names the option.
    """
    if wanted not in _MEASURED:
        for option, value in ("--quantization", options.number_format), ("--max-loss", options.max_loss):
            if value is not None:
                raise InputError(f"{option} is for {' and '.join(_MEASURED)}, not for {wanted}", "leave it out")
    if options.number_format is not None and options.number_format not in NUMBER_FORMATS:
        raise InputError(f"--quantization: '{options.number_format}' is none of {', '.join(NUMBER_FORMATS)}")
    if options.max_loss is not None and not (math.isfinite(options.max_loss) and options.max_loss >= 0):
        raise InputError(f"--max-loss {options.max_loss} is not a number of BLEU points from 0 on")


def require_packages(wanted: ExportFormat) -> None:
    """Refuses a format whose packages are not installed; none of them is imported.

    Raises:
        InputError: one is missing.
    """
    for package in _PACKAGES[wanted]:
        if importlib.util.find_spec(package) is None:
            raise InputError(
                f"exporting as {wanted} needs a package that is not installed ({package})",
                "pip install '.[export]' in mt's own folder",
            )


def export(
    folder: ModelDir,
    wanted: ExportFormat,
    output: Path,
    texts: Sequence[EvalText],
    options: ExportOptions,
    **facts: Any,
) -> str:
    """Writes a model for other software, whole or not at all.

    Args:
        folder: a model folder or a checkpoint.
        wanted: the format.
        output: the folder to make; what is there is replaced.
        texts: a validation set to measure on; may be empty where no numbers are rounded.
        options: what the user chose.
        facts: to record in the folder's manifest.

    Returns:
        what to show.

    Raises:
        InputError: the format has no place for this model, or the export loses more than it may.
    """
    if output.resolve().is_relative_to(folder.root.resolve()):
        raise InputError(f"--output {output}: this is inside the model's own folder", "name another")
    config = read_config(folder)
    require_exportable(config, wanted)
    usual = "int8" if wanted == "argos" else config.decoding.compute_type
    number_format = options.number_format or usual
    rounds = wanted == "argos" or (wanted == "ctranslate2" and number_format != "float32")
    if rounds and not texts:
        raise InputError(
            f"{folder.root}: no validation set beside this model to measure its {wanted} export on",
            "give --source FILE --reference FILE",
        )
    subject = load_subject(folder, wanted, texts)
    about = {"export": wanted, "name": config.name, "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    with atomic.new_folder(output, {**about, **facts}) as partial:
        said = _write(subject, wanted, partial, number_format, options.max_loss)
    return "\n".join(line for line in (said, f"{wanted}: {output}") if line)


def _write(subject: Subject, wanted: ExportFormat, folder: Path, number_format: str, max_loss: float | None) -> str:
    card = export_card(subject, wanted, number_format)
    if wanted == "huggingface":
        from mt.extras.export.huggingface import write_huggingface

        return write_huggingface(subject, folder, card)
    if wanted == "onnx":
        from mt.extras.export.onnx import write_onnx

        return write_onnx(subject, folder, card)
    yardstick = _yardstick(subject, MAX_LOSS if max_loss is None else max_loss)
    if wanted == "ctranslate2":
        from mt.extras.export.converted import write_ctranslate2

        return write_ctranslate2(subject, folder, card, number_format, yardstick)
    from mt.extras.export.argos import write_argos

    return write_argos(subject, folder, card, number_format, yardstick)


def _yardstick(subject: Subject, max_loss: float) -> Yardstick | None:
    """The model as it translates in float32, with the fast engine where it can."""
    if not subject.texts:
        return None
    exact = open_model(subject.folder, EngineChoice(device="cpu", compute_type="float32", shortlist=False))
    return Yardstick(exact.translator, subject.texts, subject.config, max_loss)
