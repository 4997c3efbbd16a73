"""Export of models to other software: checks of the request, and the folder itself."""

import math
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from mt.bundle.load_translator import read_config
from mt.bundle.model_folder import load_model
from mt.config import Config
from mt.config.schema import EXPORT_FORMATS, ExportFormat, export_rules
from mt.console import log
from mt.data.eval_texts import EvalText, read_texts
from mt.errors import InputError, MtError, require_package
from mt.extras.export.common import ExportJob, export_card
from mt.model.transformer import Transformer
from mt.storage import atomic
from mt.storage.manifest import is_done, read_manifest, stage_key
from mt.storage.output_path import require_model_output
from mt.storage.run_dir import ModelDir, RunDir

MAX_LOSS = 0.5
NUMBER_FORMATS = ("float32", "float16", "int8")
_VERSION = 3  # of the exported files; increasing it makes `write_exports` write them again

_PACKAGES: dict[ExportFormat, tuple[str, ...]] = {
    "ctranslate2": ("ctranslate2",),
    "huggingface": ("transformers",),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "argos": ("ctranslate2", "sentencepiece", "onnx"),
}
_QUANTIZED: tuple[ExportFormat, ...] = ("ctranslate2", "argos")


def is_quantized(config: Config, export_format: str, number_format: str | None) -> bool:
    """Return True if an export rounds weights, so that a validation set must measure the loss."""
    number_format = number_format or config.decoding.compute_type
    return export_format == "argos" or (export_format == "ctranslate2" and number_format != "float32")


def check_request(name: str, number_format: str | None, max_loss: float | None) -> ExportFormat:
    """Return a format by its name.

    Raises:
        InputError: there is no such format, an option does not apply to it or is out of range, or it needs a package
            that is not installed.
    """
    export_format = next((known for known in EXPORT_FORMATS if known == name), None)
    if export_format is None:
        raise InputError(f"'{name}' is not an export format", f"use one of {', '.join(EXPORT_FORMATS)}")
    if export_format not in _QUANTIZED:
        for option, value in ("--quantization", number_format), ("--max-loss", max_loss):
            if value is not None:
                raise InputError(f"{option} is for {' and '.join(_QUANTIZED)}, not for {export_format}", "leave it out")
    if number_format is not None and number_format not in NUMBER_FORMATS:
        raise InputError(f"--quantization: '{number_format}' is not one of {', '.join(NUMBER_FORMATS)}")
    if max_loss is not None and not (math.isfinite(max_loss) and max_loss >= 0):
        raise InputError(f"--max-loss {max_loss} must be a number of BLEU points, 0 or more")
    require_packages(export_format)
    return export_format


def require_packages(*export_formats: ExportFormat) -> None:
    """Refuse formats with a package that is not installed (an InputError), without importing any."""
    for export_format in export_formats:
        for package in _PACKAGES[export_format]:
            require_package(package, f"exporting as {export_format}", "pip install 'mt-train[export]'")


def export(
    folder: ModelDir,
    export_format: ExportFormat,
    output: Path,
    texts: Sequence[EvalText],
    number_format: str | None = None,
    max_loss: float | None = None,
    check: Callable[[], None] = lambda: None,
    **facts: Any,
) -> str:
    """Export a model folder or checkpoint atomically, replacing `output`, and return lines for the user.

    Args:
        texts: the validation set that measures what quantization costs; may be empty if nothing is quantized.
        number_format: of CTranslate2's weights; None: the model's compute_type, or for argos int8, in which Argos
            Translate computes anyway.
        max_loss: the most BLEU that quantization may cost; None: MAX_LOSS.
        check: as in `atomic.new_folder`.
        facts: recorded in the output's manifest.

    Raises:
        InputError: the format cannot represent this model, or the export loses more BLEU than allowed.
    """
    require_model_output(output, folder.root)
    config = read_config(folder)
    for rule in export_rules(config, export_format):
        raise InputError(f"{rule.keys[0]}: {rule.reason}")
    number_format = number_format or ("int8" if export_format == "argos" else config.decoding.compute_type)
    if is_quantized(config, export_format, number_format) and not texts:
        raise InputError(
            f"{folder.root}: no validation set beside this model to measure its {export_format} export on",
            "give --source FILE --reference FILE",
        )
    loaded, limit = load_model(folder, torch.device("cpu")), MAX_LOSS if max_loss is None else max_loss
    assert isinstance(loaded.model, Transformer), "the rules admit no other architecture"
    job = ExportJob(folder, loaded.config, loaded.model, loaded.tokenizers, texts, number_format, limit)
    writer = import_module(f"mt.extras.export.{export_format}")  # only this one's libraries are needed
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    about = {"export": export_format, "name": config.name, "created": created, **facts}
    with atomic.new_folder(output, about, check) as partial:
        comparison = getattr(writer, f"write_{export_format}")(job, partial, export_card(job, export_format))
    return "\n".join(filter(None, [comparison, f"{export_format}: {output}"]))


def write_exports(config: Config, run_dir: RunDir) -> str:
    """Write the configured exports of a finished run, except those that are up to date.

    A failing export is reported and leaves no folder, but does not fail the run. The folders belong to the run and are
    replaced as its model folder is. Returns lines for the user.
    """
    lines = []
    files = read_manifest(run_dir.model.root)["files"]
    for export_format in config.exports:
        output, key = run_dir.export(export_format), stage_key("export", _VERSION, export_format, files)
        if is_done(output, key):
            lines.append(f"{export_format}: {output}")
            continue
        log.info("exporting the model as %s", export_format)
        texts = read_texts(run_dir, "valid", config.data)
        try:
            lines.append(export(run_dir.model, export_format, output, texts, key=key))
        except Exception as error:  # from any of the libraries; the model and its scores are complete without it
            atomic.remove(output)
            reason = error.message if isinstance(error, MtError) else f"{type(error).__name__}: {error}"
            lines.append(f"{export_format}: not exported: {reason}")
            log.warning("exports: %s", lines[-1])
    return "\n".join(lines)
