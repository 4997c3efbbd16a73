"""`mt init`."""

import re
import sys
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import click

from mt.cli.options import debug_option, path_type
from mt.cli.text import print_result
from mt.errors import InputError
from mt.storage.output_path import refuse_inputs, require_writable

Files = tuple[str, str]

_SCHEMA = "mt.schema.json"
_COMPRESSED = (".gz", ".xz", ".zst")
# File name endings that look like language codes; some are, as tok and src, but are rarely meant so.
_NO_LANGUAGE = frozenset("bpe csv hyp lc out raw ref sp spm src tc tgt tok trg tsv txt".split())


@click.command()
@click.option("--name", help="Name of the run; default: the languages, as in en-de.")
@click.option("--source-lang", metavar="LANG", help="Language to translate from; default: the first file's ending.")
@click.option("--target-lang", metavar="LANG", help="Language to translate to; default: the second file's ending.")
@click.option(
    "--train", nargs=2, multiple=True, metavar="SRC TGT", help="Training text and its translation, repeatable."
)
@click.option("--valid", nargs=2, metavar="SRC TGT", help="Validation text; default: split off the training text.")
@click.option("--test", nargs=2, metavar="SRC TGT", help="Test text; default: split off the training text.")
@click.option("--minutes", type=click.FloatRange(1, 10_000_000), help="Limit of the time for the whole training.")
@click.option("--device", default="auto", help="auto, cpu, cuda or mps.")
@click.option("--output", type=path_type, help="The file to write; default: NAME.yaml.")
@click.option("--force", is_flag=True, help="Overwrite it.")
@click.option("--schema", is_flag=True, help="Only print the JSON schema of configurations, for editors.")
@debug_option
def init(output: Path | None, force: bool, schema: bool, **options: Any) -> None:
    """Write a configuration for your own text, fitted to its size and to this machine; on a terminal it asks.

    Trains a few steps to estimate the time and memory of the whole training.

    Example: mt init --train corpus.en corpus.de --minutes 60
    """
    from mt.config.json_schema import json_schema

    if schema:
        print_result(json_schema().rstrip("\n"))
        return
    asks = sys.stdin.isatty() and sys.stderr.isatty() and not options["train"]
    _complete_names(options, asks)
    from mt.extras.planning.first_config import draft_config
    from mt.extras.planning.init_options import InitOptions, validated_data
    from mt.storage import atomic

    validated_data(InitOptions(**{**options, "valid": None, "test": None}))
    path = output or Path(f"{options['name']}.yaml")
    schema_path = path.with_name(_SCHEMA)
    _check_outputs(path, schema_path, force)
    if asks:
        for split, title in (("valid", "Validation"), ("test", "Test")):
            options[split] = options[split] or _ask_pair(f"{title} text, {{}} (no answer: split off)", optional=True)
        options["minutes"] = options["minutes"] or _ask_minutes()
    splits = [options["valid"] or (), options["test"] or ()]
    refuse_inputs([path, schema_path], map(Path, filter(None, chain(*options["train"], *splits))))
    text, summary = draft_config(InitOptions(**options), f"./{_SCHEMA}")
    atomic.write_text(schema_path, json_schema())
    atomic.write_text(path, text)
    print_result(f"{summary}\nwritten: {path}, and {schema_path} for editors\nnext: mt train --config {path}")


def _complete_names(options: dict[str, Any], asks: bool) -> None:
    """Ask for the training text, languages and name where options lack them, or derive them from file names."""
    if not options["train"]:
        if not asks:
            hint = "give the training text and its translation: --train corpus.en corpus.de"
            raise InputError("--train is missing", hint)
        options["train"] = (_ask_pair("Training text, {}"),)
    for key, file, direction in zip(("source_lang", "target_lang"), options["train"][0], ("from", "to"), strict=True):
        options[key] = options[key] or _language(file, key, f"Language to translate {direction}", asks)
    default = f"{options['source_lang']}-{options['target_lang']}"
    options["name"] = options["name"] or (_ask_value("name", "Name of the run", default) if asks else default)


def _language(file: str, key: str, question: str, asks: bool) -> str:
    """Return a language code by the ending of a file's name, or as the user answers."""
    code = _ending(file)
    if asks:
        return _ask_value(key, question, code)
    if code is None:
        option = f"--{key.replace('_', '-')}"
        message = f"{option} is missing, and the name of {file} does not end in a language code"
        raise InputError(message, f"add {option} CODE, such as en")
    return code


def _ending(file: str) -> str | None:
    """Return en of corpus.en and of corpus.en.gz."""
    path = Path(file)
    ending = (path.with_suffix("") if path.suffix.lower() in _COMPRESSED else path).suffix.removeprefix(".")
    return ending if re.fullmatch("[a-z]{2,3}([-_][A-Za-z0-9]+)?", ending) and ending not in _NO_LANGUAGE else None


def _ask_minutes() -> float | None:
    question = "Minutes that training may take (at least 1; 0: no limit)"
    while 0 < (minutes := float(click.prompt(question, 0, type=click.FloatRange(0, 10_000_000), err=True))) < 1:
        pass
    return minutes or None


def _ask_pair(question: str, optional: bool = False) -> Files | None:
    """Ask for two files until they exist; without an answer to an optional question, return None."""
    first = _ask_file(question.format("in the source language"), optional)
    return (first, _ask_file(question.format("its translation"), other=first)) if first else None


def _ask_file(question: str, optional: bool = False, other: str = "") -> str:
    def existing(answer: str) -> str:
        if answer and not Path(answer).is_file():
            raise click.UsageError(f"{answer}: no such file")
        if answer and answer == other:
            raise click.UsageError(f"{answer}: that is the file in the source language")
        return answer

    return str(click.prompt(question, "" if optional else None, value_proc=existing, show_default=False, err=True))


def _ask_value(key: str, question: str, default: str | None) -> str:
    """Ask until the answer is valid for a key of the configuration."""

    def valid(answer: str) -> str:
        from mt.extras.planning.init_options import option_error

        if problem := option_error(key, answer):
            raise click.UsageError(f"{answer}: {problem}")
        return answer

    return str(click.prompt(question, default, value_proc=valid, err=True))


def _check_outputs(path: Path, schema_path: Path, force: bool) -> None:
    """Refuse, before the user is asked more, outputs that could not be written at the end.

    A schema that `mt` wrote is replaced; any other existing file only with `force`.
    """
    require_writable(path, "--output")
    if path.exists() and not force:
        raise InputError(f"{path} already exists", "give another --output, or --force to overwrite it")
    if schema_path.is_dir():
        raise InputError(f"{schema_path} is a folder, where a file is to be written", "move it, or change --output")
    if schema_path.is_file() and not force:
        from mt.config.json_schema import TITLE

        if f'"title": "{TITLE}"' not in schema_path.read_text(encoding="utf-8", errors="replace"):
            raise InputError(f"{schema_path} already exists and is not a schema of mt's", "move it, or give --force")
    from mt.storage import atomic

    with atomic.explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=path.parent).close()
