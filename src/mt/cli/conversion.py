"""`mt export` and `mt import`: models in the form of other software."""

from typing import Any

import click

from mt.cli.completion import languages, one_of
from mt.cli.options import common_options, debug_option, model_option, path_type
from mt.cli.text import print_result


@click.command(name="export")
@click.argument("format_", metavar="FORMAT", shell_complete=one_of("ctranslate2", "huggingface", "onnx", "argos"))
@model_option
@click.option("--output", type=path_type, required=True, help="The folder to write.")
@click.option("--quantization", help="Weights of ctranslate2 and argos: float32, float16 or int8.")
@click.option("--max-loss", type=float, help="BLEU that quantization may cost on the validation set; default: 0.5.")
@click.option("--source", type=path_type, help="Text to measure that on; default: the run's validation set.")
@click.option("--reference", type=path_type, help="Its translation, aligned by line.")
@click.option("--force", is_flag=True, help="Replace an earlier export.")
@click.option("--to", metavar="LANG", shell_complete=languages, help="Language of --reference, if there are several.")
@click.option("--from", "source_lang", metavar="LANG", help="Language of --source, where a tag names it.")
@common_options
def export_command(**given: Any) -> None:
    """Write a model for other software.

    FORMAT is ctranslate2, huggingface (transformers), onnx (ONNX Runtime) or argos (Argos Translate).
    Before the export appears, that software loads it, and its output is compared with the model's.

    Example: mt export huggingface --model runs/demo --output demo-en-it
    """
    from mt.api.conversion import export

    print_result(export(**given))


@click.command(name="import")
@click.argument("model")
@click.option("--output", type=path_type, required=True, help="The model folder to write.")
@click.option("--from", "source_lang", metavar="LANG", multiple=True, help="Source language; may be repeated.")
@click.option("--to", "target_langs", metavar="LANG", multiple=True, help="Target language; may be repeated.")
@click.option(
    "--prune",
    type=path_type,
    metavar="CORPUS",
    multiple=True,
    help="Keep only the pieces of the vocabulary that these text files need; may be repeated.",
)
@click.option("--force", is_flag=True, help="Replace an earlier import.")
@debug_option
def import_command(**given: Any) -> None:
    """Turn a model of other software into a model folder.

    MODEL is a Hugging Face folder of MarianMT (OPUS-MT), M2M-100, NLLB, mBART or `mt export huggingface`, or its name
    on the hub; a folder with Marian's .npz; or one of CTranslate2. With --prune, also a model folder of mt.

    Example: mt import Helsinki-NLP/opus-mt-en-de --output opus-en-de
    """
    from mt.api.conversion import import_model

    print_result(import_model(**given))
