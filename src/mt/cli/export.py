"""`mt export`."""

from pathlib import Path

import click

from mt.cli.completion import languages
from mt.cli.options import debug_option, model_option, path_type, require_both, runs_option
from mt.cli.text import print_result
from mt.errors import InputError


@click.command()
@click.argument("format_", metavar="FORMAT")
@model_option
@click.option("--output", type=path_type, required=True, help="The folder to write.")
@click.option("--quantization", help="Weights of ctranslate2 and argos: float32, float16 or int8.")
@click.option("--max-loss", type=float, help="BLEU that quantization may cost on the validation set. [0.5]")
@click.option("--source", type=path_type, help="Text to measure that on; default: the run's validation set.")
@click.option("--reference", type=path_type, help="Its translation, aligned by line.")
@click.option("--force", is_flag=True, help="Replace an earlier export.")
@click.option("--to", metavar="LANG", shell_complete=languages, help="Language of --reference, if there are several.")
@runs_option
@debug_option
def export(
    format_: str,
    model: Path | None,
    output: Path,
    quantization: str | None,
    max_loss: float | None,
    source: Path | None,
    reference: Path | None,
    force: bool,
    to: str | None,
    runs: Path,
) -> None:
    """Write a model for other software.

    FORMAT is ctranslate2, huggingface (transformers), onnx (ONNX Runtime) or argos (Argos Translate).
    Before the export appears, that software loads it, and its output is compared with the model's.

    Example: mt export huggingface --model runs/demo --output demo-en-it
    """
    require_both(source, reference, "the run's validation set")
    if to is not None and source is None:
        raise InputError("--to says which language --reference is in", "give both, or leave it out")
    from mt.bundle.load_translator import read_config
    from mt.data.eval_texts import read_texts
    from mt.evaluation.texts import has_split, owner, pair_text
    from mt.extras.export.common import parse_format
    from mt.extras.export.exporting import ExportOptions, check_options, export, require_packages
    from mt.storage.find_model import find_model
    from mt.storage.output_path import require_replaceable

    known_format, options = parse_format(format_), ExportOptions(quantization, max_loss)
    check_options(known_format, options)
    require_packages(known_format)
    folder = find_model(model, runs)
    run = owner(folder)
    inputs = [path for path in (folder.root, run.root if run else None, source, reference) if path]
    require_replaceable(output, "mt export", "export", inputs, force)
    target_langs = read_config(folder).data.target_lang
    if source is not None and reference is not None:
        texts = [pair_text(source, reference, target_langs, to)]
    else:
        texts = read_texts(run, "valid", target_langs) if run is not None and has_split(run, "valid") else []
    print_result(export(folder, known_format, output, texts, options))
