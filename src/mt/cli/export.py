"""`mt export`."""

from pathlib import Path

import click

from mt.cli.completing import languages
from mt.cli.options import debug_option, path_type, runs_option
from mt.cli.text import print_result
from mt.console import set_up_logging
from mt.errors import InputError


@click.command()
@click.argument("format_", metavar="FORMAT")
@click.option("--model", type=path_type, help="A run folder, a model folder or a checkpoint. Default: the newest run.")
@click.option("--output", type=path_type, required=True, help="The folder to make.")
@click.option("--quantization", help="Weights of ctranslate2 and argos: float32, float16 or int8.")
@click.option("--max-loss", type=float, help="BLEU that rounding the weights may cost on the validation set. [0.5]")
@click.option("--source", type=path_type, help="Text to measure that on; default: the run's validation set.")
@click.option("--reference", type=path_type, help="Its translation, aligned by line.")
@click.option("--force", is_flag=True, help="Replace an earlier export.")
@click.option(
    "--to",
    metavar="LANG",
    shell_complete=languages,
    help="The language of --reference, where the model translates into several.",
)
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
    debug: bool,
) -> None:
    """Write a model for other software.

    FORMAT is ctranslate2, huggingface (transformers), onnx (ONNX Runtime) or argos (Argos Translate).
    What was written is loaded with that software and compared with the model before it takes its place.

    Example: mt export huggingface --model runs/demo --output demo-en-it
    """
    set_up_logging()
    if (source is None) != (reference is None):
        raise InputError("--source and --reference go together", "give both, or neither for the run's validation set")
    if to is not None and source is None:
        raise InputError("--to says which language --reference is in", "give both, or leave it out")
    from mt.bundle.load_translator import read_config
    from mt.data.eval_texts import read_pair, read_texts
    from mt.extras.export.common import parse_format
    from mt.extras.export.exporting import ExportOptions, check_options, export, require_packages
    from mt.storage.find_model import find_model, run_of, run_of_checkpoint
    from mt.storage.output_path import require_replaceable
    from mt.text.languages import chosen_language

    wanted, options = parse_format(format_), ExportOptions(quantization, max_loss)
    check_options(wanted, options)
    require_packages(wanted)
    folder = find_model(model, runs)
    run = run_of(folder) or run_of_checkpoint(folder)
    inputs = [path for path in (folder.root, run.root if run else None, source, reference) if path]
    require_replaceable(output, "mt export", "export", inputs, force)
    languages = read_config(folder).data.target_lang
    if source is not None and reference is not None:
        texts = [read_pair(source, reference, chosen_language(languages, to))]
    else:
        there = run is not None and run.text_file("valid", "source").is_file()
        texts = read_texts(run, "valid", languages) if run is not None and there else []
    print_result(export(folder, wanted, output, texts, options))
