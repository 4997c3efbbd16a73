"""`mt init`."""

import sys
from collections.abc import Sequence
from functools import cache
from itertools import chain, combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mt.cli.init_input import InitCommand, as_texts, ask_minutes, ask_texts, ask_value, files_of, refuse_unused_style
from mt.cli.options import debug_option, number_option, path_type
from mt.cli.text import print_result
from mt.console import quoted
from mt.errors import InputError, contradict
from mt.storage import atomic
from mt.storage.output_path import refuse_inputs, require_writable

if TYPE_CHECKING:
    from mt.extras.planning.init_options import Source
    from mt.extras.planning.inspection import Found

_SCHEMA = "mt.schema.json"
_KEYS = ("source_lang", "target_lang", "delimiter", "quoting", "header", "columns")


@click.command(cls=InitCommand)
@click.option("--name", help="Name of the run; default: the languages, as in en-de.")
@click.option("--source-lang", metavar="LANG", help="Language to translate from; default: what the files say.")
@click.option("--target-lang", metavar="LANG", help="Language to translate to; default: what the files say.")
@click.option(
    "--train",
    callback=as_texts,
    multiple=True,
    metavar="SRC TGT|FILE",
    help="Text and translation; or a table, .tmx, .xliff, .po, .zip, .tar.gz or folder of both; repeatable.",
)
@click.option("--valid", callback=as_texts, metavar="SRC TGT|FILE", help="Validation text; default: split off --train.")
@click.option("--test", callback=as_texts, metavar="SRC TGT|FILE", help="Test text; default: split off --train.")
@click.option("--from", "start", type=path_type, metavar="MODEL", help="Fine-tune this run or model folder.")
@click.option("--general", callback=as_texts, metavar="SRC TGT|FILE", help="With --from: text against forgetting.")
@number_option("--general-share", type=click.FloatRange(0, 0.9, True), help="Share of an epoch; default: 0.2.")
@click.option("--like", type=path_type, metavar="FILE", help="Convert a file of JoeyNMT, OpenNMT-py, Eole or fairseq.")
@click.option("--opus", nargs=3, multiple=True, metavar="CORPUS SRC TGT", help="A corpus of OPUS, as Books en it.")
@click.option("--columns", metavar="SRC:TGT", help="Columns of a table, by name or number.")
@click.option("--header/--no-header", default=None, help="Whether the first row of a table names the columns.")
@click.option("--delimiter", metavar="CHAR", help="Character between the columns of a .csv or .tsv.")
@click.option(
    "--quoting/--no-quoting", default=None, help="Whether cells may be in double quotes, as Excel writes them."
)
@number_option("--minutes", type=click.FloatRange(1, 10_000_000), help="Time limit for the whole training.")
@click.option("--pipeline", type=click.Choice(["student"]), help="Write a pipeline, too: teacher and fast student.")
@click.option("--device", default="auto", help="auto, cpu, cuda or mps.")
@click.option("--output", type=path_type, help="The file to write; default: NAME.yaml.")
@click.option("--force", is_flag=True, help="Overwrite it.")
@click.option("--schema", is_flag=True, help="Only print the JSON schema of configurations, for editors.")
@debug_option
def init(output: Path | None, force: bool, schema: bool, like: Path | None, **options: Any) -> None:
    """Write a configuration for your own text, fitted to its size and to this machine; on a terminal it asks.

    Trains a few steps to estimate the time and memory of the whole training. With --from it fine-tunes a model, whose
    scores on the text it reports; with --like it converts another toolkit's configuration.

    Example: mt init --train corpus.en corpus.de --minutes 60
    """
    from mt.config.schema import json_schema

    if schema:
        print_result(json_schema().rstrip("\n"))
        return
    _refuse_contradictions(like, options)
    given = {key: options.pop(key) for key in _KEYS}
    if like is not None:
        _convert(like, output, force, options, given)
        return
    pipeline = options.pop("pipeline")
    asks = _is_terminal() and not (options["train"] or options["opus"])
    paths = _find_texts(options, given, asks)
    from mt.extras.planning.finetuning import draft_finetuning
    from mt.extras.planning.first_config import draft_config
    from mt.extras.planning.init_options import InitOptions, validated_data

    unread = dict.fromkeys(("valid", "test", "general"), ())
    validated_data(InitOptions(**{key: value for key, value in (options | unread).items() if key != "held_out"}))
    path = output or Path(f"{options['name']}.yaml")
    student = None if pipeline is None else path.parent / f"{path.stem}-{pipeline}.yaml"
    for written in filter(None, (path, student)):
        _check_outputs(written, force)
    paths += _inspect_held_out(options, given, asks)
    refuse_unused_style(given, paths)
    options["minutes"] = options["minutes"] or (ask_minutes() if asks else None)
    refuse_inputs([path, path.with_name(_SCHEMA), student], files_of(paths))
    draft = draft_config if options["start"] is None else draft_finetuning
    if student is None:
        _write(path, *draft(InitOptions(**options)))
        return
    from mt.extras.pipelines.template import draft_pipeline  # imports torch

    teacher, steps, summary = draft_pipeline(InitOptions(**options), draft, path)
    atomic.write_text(student, steps)
    _write(path, teacher, f"teacher: {summary}\nwritten: {student}", run=student)


def _write(path: Path, text: str, summary: str, option: str = "", run: Path | None = None) -> None:
    """Write a configuration and its schema; `run` is the file to train with next, if not this one."""
    from mt.config.schema import json_schema

    schema_path = path.with_name(_SCHEMA)
    atomic.write_text(schema_path, json_schema())
    atomic.write_text(path, f"# yaml-language-server: $schema=./{_SCHEMA}\n#\n{text}")
    following = f"next: mt train --config {quoted(str(run or path))}{option}"
    print_result(f"{summary}\nwritten: {path}, and {schema_path} for editors\n{following}")


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _refuse_contradictions(like: Path | None, options: dict[str, Any]) -> None:
    exclusive = {"--like": like, "--from": options["start"], "--pipeline": options["pipeline"]}
    for one, other in combinations(exclusive, 2):
        contradict(None not in (exclusive[one], exclusive[other]), one, other)
    contradict(None not in (like, options["minutes"]), "--like, which takes the other file's steps,", "--minutes")
    if options["general"] and options["start"] is None:
        raise InputError("--general is for fine-tuning", "add --from MODEL, or give the text with --train")
    if options["general_share"] is None:
        del options["general_share"]
    elif not options["general"]:
        raise InputError("--general-share is the share of the text of --general, which is missing", "add it")


def _convert(like: Path, output: Path | None, force: bool, options: dict[str, Any], given: dict[str, Any]) -> None:
    """Write a configuration like another toolkit's file."""
    from mt.extras.planning.like_config import convert_config

    options |= {"held_out": {"valid": [], "test": []}, **_languages(given)}
    opus, texts = options.pop("opus"), options["train"]
    if opus or texts:
        options |= _inspect_training([*opus, *texts], given)
    paths = [*chain.from_iterable(texts), *_inspect_held_out(options, given, asks=False)]
    refuse_unused_style(given, paths)
    device = None if options["device"] == "auto" else options["device"]
    decided = {"name": options["name"], "training.device": device, "data.train": options["train"]}
    decided |= {f"data.{key}": options[key] for key in (*_KEYS[:2], "valid", "test")}
    name, text, summary = convert_config(like, {k: v for k, v in decided.items() if v})
    path = output or Path(f"{name}.yaml")
    _check_outputs(path, force)
    refuse_inputs([path, path.with_name(_SCHEMA)], [like, *files_of(paths)])
    _write(path, text, summary, " --dry-run")


def _languages(options: dict[str, Any]) -> dict[str, Any]:
    return {key: options[key] for key in _KEYS[:2]}


def _find_texts(options: dict[str, Any], given: dict[str, Any], asks: bool) -> list[str]:
    """Replace the training texts by sources, complete the languages and the name, and return the names of files."""
    opus, texts = options.pop("opus"), [ask_texts("Training text, {}")] if asks else options["train"]
    if not texts and not opus:
        hint = "give the training text and its translation: --train corpus.en corpus.de"
        raise InputError("--train is missing", hint)
    options |= _inspect_training([*opus, *texts], given)
    of_files = _languages(options)
    _complete_names(options, given, asks)
    chosen = _languages(options)
    if chosen != of_files:  # they decide which column or file is the source
        try:
            options |= _inspect_training([*opus, *texts], given | chosen)
        except InputError:  # the answer is another language than a file's name says, as `sh` for a text named `.hr`
            if not asks or list(chosen.values()) == [*reversed(of_files.values())]:
                raise
    return list(chain.from_iterable(texts))


def _inspect_training(texts: Sequence[Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the sources of `train`, the `valid` and `test` texts that folders have, and the languages."""
    inspected: list[Found] = []
    for names in texts:
        first = inspected[0].languages if inspected else (None, None)
        known = {key: given[key] or code for key, code in zip(_KEYS, first, strict=False)}
        inspected.append(_inspect(names, given | known))
    splits = ("valid", "test")
    languages = zip(_KEYS, inspected[0].languages, strict=False)
    return {
        "train": list(chain.from_iterable(text.sources for text in inspected)),
        "held_out": {split: [text.held_out[split] for text in inspected if split in text.held_out] for split in splits},
        **{key: given[key] or language for key, language in languages},
    }


def _inspect_held_out(options: dict[str, Any], given: dict[str, Any], asks: bool) -> list[str]:
    """Replace the names of `valid`, `test` and `general` by sources, or take a folder's; return the names of files."""
    paths: list[str] = []
    held_out, languages = options.pop("held_out"), _languages(options)
    for split, title in (("valid", "Validation"), ("test", "Test")):
        names = options[split]
        if asks and not names and not held_out[split]:
            names = ask_texts(f"{title} text, {{}} (no answer: split off)", optional=True)
        options[split] = [_one_text(split, names, given | languages)] if names else held_out[split]
        paths += names or ()
    general = options["general"] or ()
    options["general"] = _inspect(general, given | languages).sources if general else ()
    return [*paths, *general]


def _one_text(split: str, names: Sequence[str], given: dict[str, Any]) -> "Source":
    found = _inspect(names, given | {"split": split})
    if len(found.sources) > 1:
        raise InputError(f"--{split} {names[0]}: several texts by their names", "name the two files of one")
    return found.sources[0]


def _inspect(names: Sequence[str], given: dict[str, Any]) -> "Found":
    from mt.extras.planning.init_options import Given
    from mt.extras.planning.inspection import inspect, inspect_opus

    if len(names) == 3:
        return inspect_opus(names[0], (names[1], names[2]), Given(**given))
    return inspect(names, Given(**given), lambda question, option, choices: _decide(question, option, tuple(choices)))


@cache  # texts may be inspected twice
def _decide(question: str, option: str, choices: tuple[str, ...]) -> str:
    if _is_terminal():
        return str(click.prompt(question, type=click.Choice(choices), err=True))
    raise InputError(question.rstrip("?"), f"decide with {option}")


def _complete_names(options: dict[str, Any], given: dict[str, Any], asks: bool) -> None:
    """Ask for the languages and the name that nothing says, and in a dialogue for all that no option gives."""
    default = None
    if options["start"] is not None:
        from mt.extras.planning.finetuning import Start

        start, (source, target) = Start(options["start"]), _languages(options).values()
        has_order = any(given[key] for key in (*_KEYS[:2], "columns"))
        options |= zip(_KEYS[:2], start.languages(source, target, has_order), strict=True)
        default = f"{start.config.name}-tuned"
    for key, side, direction in zip(_KEYS[:2], ("source", "target"), ("from", "to"), strict=True):
        if options["start"] is None and not given[key] and (asks or (options[key] is None and _is_terminal())):
            options[key] = ask_value(key, f"Language to translate {direction}", options[key])
        elif options[key] is None:
            text, option = options["train"][0], f"--{key.replace('_', '-')}"
            file = f"the name of {text[side]} does not end in a language code" if side in text else ""
            file = file or f"{next(iter(text.values()))} does not name the language"
            raise InputError(f"{option} is missing, and {file}", f"add {option} CODE, such as en")
    default = default or f"{options['source_lang']}-{options['target_lang']}"
    options["name"] = options["name"] or (ask_value("name", "Name of the run", default) if asks else default)


def _check_outputs(path: Path, force: bool) -> None:
    """Refuse, before the user is asked more, outputs that could not be written at the end.

    A schema that `mt` wrote is replaced; any other existing file only with `force`.
    """
    require_writable(path, "--output")
    schema_path = path.with_name(_SCHEMA)
    if path == schema_path:
        raise InputError(f"--output {path}: the schema for editors is written there", "name another file")
    if path.exists() and not force:
        raise InputError(f"{path} already exists", "give another --output, or --force to overwrite it")
    if schema_path.is_dir():
        raise InputError(f"{schema_path} is a folder, where a file is to be written", "move it, or change --output")
    if schema_path.is_file() and not force:
        from mt.config.schema import SCHEMA_TITLE

        if f'"title": "{SCHEMA_TITLE}"' not in schema_path.read_text(encoding="utf-8", errors="replace"):
            raise InputError(f"{schema_path} already exists and is not a schema of mt's", "move it, or give --force")
