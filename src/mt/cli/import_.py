"""`mt import`."""

from pathlib import Path
from typing import Any

import click

from mt.cli.options import debug_option, path_type
from mt.cli.text import print_result


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
def import_command(model: str, output: Path, **options: Any) -> None:
    """Make a model folder of a model of other software.

    MODEL is a Hugging Face folder of MarianMT (OPUS-MT), M2M-100, NLLB, mBART or `mt export huggingface`, or its name
    on the hub; a folder with Marian's .npz; or one of CTranslate2. With --prune, a model folder of mt, too.

    Example: mt import Helsinki-NLP/opus-mt-en-de --output opus-en-de
    """
    from mt.api.importing import import_model

    print_result(import_model(model, output, **options))
