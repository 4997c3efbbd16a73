"""`mt export`."""

from pathlib import Path
from typing import Any

import click

from mt.cli.completion import languages, one_of
from mt.cli.options import debug_option, model_option, path_type, runs_option
from mt.cli.text import print_result


@click.command(name="export")
@click.argument("format_", metavar="FORMAT", shell_complete=one_of("ctranslate2", "huggingface", "onnx", "argos"))
@model_option
@click.option("--output", type=path_type, required=True, help="The folder to write.")
@click.option("--quantization", help="Weights of ctranslate2 and argos: float32, float16 or int8.")
@click.option("--max-loss", type=float, help="BLEU that quantization may cost on the validation set. [0.5]")
@click.option("--source", type=path_type, help="Text to measure that on; default: the run's validation set.")
@click.option("--reference", type=path_type, help="Its translation, aligned by line.")
@click.option("--force", is_flag=True, help="Replace an earlier export.")
@click.option("--to", metavar="LANG", shell_complete=languages, help="Language of --reference, if there are several.")
@click.option("--from", "source_lang", metavar="LANG", help="Language of --source, where a tag names it.")
@runs_option
@debug_option
def export_command(format_: str, model: Path | None, output: Path, **options: Any) -> None:
    """Write a model for other software.

    FORMAT is ctranslate2, huggingface (transformers), onnx (ONNX Runtime) or argos (Argos Translate).
    Before the export appears, that software loads it, and its output is compared with the model's.

    Example: mt export huggingface --model runs/demo --output demo-en-it
    """
    from mt.api.exporting import export

    print_result(export(format_, output, model, **options))
