"""`mt init`."""

import re
import sys
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile

import click

from mt.cli.options import debug_option, path_type
from mt.cli.text import print_result
from mt.console import set_up_logging
from mt.errors import InputError
from mt.storage.output_path import refuse_inputs, require_writable

_SCHEMA = "mt.schema.json"
_COMPRESSED = (".gz", ".xz", ".zst")
# What files end in that look like codes of languages; some are, as tok and src, but rarely meant so.
_NO_LANGUAGE = frozenset("bpe csv hyp lc out raw ref sp spm src tc tgt tok trg tsv txt".split())


@click.command()
@click.option("--name", help="Name of the run; default: the languages, as in en-de.")
@click.option("--source-lang", metavar="LANG", help="Language to translate from; default: how the first file ends.")
@click.option("--target-lang", metavar="LANG", help="Language to translate to; default: how the second file ends.")
@click.option(
    "--train", nargs=2, multiple=True, metavar="SRC TGT", help="Training text and its translation, repeatable."
)
@click.option("--valid", nargs=2, metavar="SRC TGT", help="Validation text; default: split off the training text.")
@click.option("--test", nargs=2, metavar="SRC TGT", help="Test text; default: split off the training text.")
@click.option(
    "--minutes", type=click.FloatRange(1, 10_000_000), help="How long training may take, with all before and after it."
)
@click.option("--device", default="auto", help="auto, cpu, cuda or mps.")
@click.option("--output", type=path_type, help="The file to write; default: NAME.yaml.")
@click.option("--force", is_flag=True, help="Overwrite it.")
@click.option("--schema", is_flag=True, help="Only print the schema of configurations, for editors.")
@debug_option
def init(
    name: str | None,
    source_lang: str | None,
    target_lang: str | None,
    train: tuple[tuple[str, str], ...],
    valid: tuple[str, str] | None,
    test: tuple[str, str] | None,
    minutes: float | None,
    device: str,
    output: Path | None,
    force: bool,
    schema: bool,
    debug: bool,
) -> None:
    """Write a configuration for your own text, fitted to its size and to this machine; on a terminal it asks.

    Trains a few steps to tell how long all of it will take, and how much memory.

    Example: mt init --train corpus.en corpus.de --minutes 60
    """
    set_up_logging()
    if schema:
        from mt.config.json_schema import json_schema

        print_result(json_schema().rstrip("\n"))
        return
    asks = sys.stdin.isatty() and sys.stderr.isatty() and not train
    train = train or _asked_files(asks)
    source_lang = _language(source_lang, train[0][0], "source_lang", "Language to translate from", asks)
    target_lang = _language(target_lang, train[0][1], "target_lang", "Language to translate to", asks)
    usual_name = f"{source_lang}-{target_lang}"
    name = name or (_asked_word("name", "Name of the run", usual_name) if asks else usual_name)

    from mt.extras.planning.options import InitOptions, validated_data

    validated_data(InitOptions(name, source_lang, target_lang, train, None, None, minutes, device))
    path = output or Path(f"{name}.yaml")
    beside = path.with_name(_SCHEMA)
    _make_sure_of(path, beside, force)
    if asks:
        valid = valid or _asked_pair("Validation text, {} (no answer: split off)", optional=True)
        test = test or _asked_pair("Test text, {} (no answer: split off)", optional=True)
        minutes = minutes or _asked_minutes()

    refuse_inputs([path, beside], map(Path, filter(None, (*chain(*train), *(valid or ()), *(test or ())))))
    from mt.config.json_schema import json_schema
    from mt.extras.planning.init import draft_config
    from mt.storage import atomic

    options = InitOptions(name, source_lang, target_lang, train, _or_none(valid), _or_none(test), minutes, device)
    draft = draft_config(options, f"./{_SCHEMA}")
    atomic.write_text(beside, json_schema())
    atomic.write_text(path, draft.text)
    print_result(f"{draft.summary}\nwritten: {path}, and {beside} for editors\nnext: mt train --config {path}")


def _asked_minutes() -> float | None:
    question = "Minutes that training may take (at least 1; 0: as many as it needs)"
    while 0 < (minutes := float(click.prompt(question, 0, type=click.FloatRange(0, 10_000_000), err=True))) < 1:
        pass
    return minutes or None


def _or_none(files: tuple[str, str] | None) -> tuple[str, str] | None:
    return files if files and files[0] else None


def _asked_files(asks: bool) -> tuple[tuple[str, str], ...]:
    if not asks:
        raise InputError(
            "--train is missing", "give the training text and its translation: --train corpus.en corpus.de"
        )
    return (_asked_pair("Training text, {}"),)


def _asked_pair(question: str, optional: bool = False) -> tuple[str, str]:
    """Asks for two files until they are there; no answer to the first means none, where that is allowed."""
    first = _asked_file(question.format("in the source language"), optional)
    return (first, _asked_file(question.format("its translation"), other=first) if first else "")


def _asked_file(question: str, optional: bool = False, other: str = "") -> str:
    def existing(answer: str) -> str:
        if answer and not Path(answer).is_file():
            raise click.UsageError(f"{answer}: no such file")
        if answer and answer == other:
            raise click.UsageError(f"{answer}: that is the file in the source language")
        return answer

    return str(click.prompt(question, "" if optional else None, value_proc=existing, show_default=False, err=True))


def _asked_word(key: str, question: str, guess: str | None) -> str:
    """Asks until the answer is one that a configuration may have for the key."""

    def suitable(answer: str) -> str:
        from mt.extras.planning.options import option_error

        wrong = option_error(key, answer)
        if wrong:
            raise click.UsageError(f"{answer}: {wrong}")
        return answer

    return str(click.prompt(question, guess, value_proc=suitable, err=True))


def _language(given: str | None, file: str, key: str, question: str, asks: bool) -> str:
    """The code of a language: as given, as asked for, or as a file's name ends."""
    if given:
        return given
    guess = _ending(file)
    if asks:
        return _asked_word(key, question, guess)
    if guess is None:
        option = f"--{key.replace('_', '-')}"
        raise InputError(
            f"{option} is missing, and the name of {file} does not tell it", f"add {option} CODE, such as en"
        )
    return guess


def _ending(file: str) -> str | None:
    """en of corpus.en and of corpus.en.gz."""
    path = Path(file)
    ending = (path.with_suffix("") if path.suffix.lower() in _COMPRESSED else path).suffix.removeprefix(".")
    return ending if re.fullmatch("[a-z]{2,3}([-_][A-Za-z0-9]+)?", ending) and ending not in _NO_LANGUAGE else None


def _make_sure_of(path: Path, beside: Path, force: bool) -> None:
    """Refuses, before more is asked and tried, what could not be written at the end.

    The configuration is the user's; a schema is ours to write anew, and anything else of its name is not.
    """
    require_writable(path, "--output")
    if path.exists() and not force:
        raise InputError(f"{path} is there already", "give another --output, or --force to overwrite it")
    if beside.is_dir():
        raise InputError(f"{beside} is a folder, where a file is to be written", "move it, or give another --output")
    if beside.is_file() and not force:
        from mt.config.json_schema import TITLE

        if f'"title": "{TITLE}"' not in beside.read_text(encoding="utf-8", errors="replace"):
            raise InputError(f"{beside} is there already and not a schema of mt's", "move it, or give --force")
    from mt.storage import atomic

    with atomic.explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=path.parent).close()
