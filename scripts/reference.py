"""Writes the reference pages of docs/: the configuration from its classes, the commands from their options."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click
from pydantic.fields import FieldInfo

from mt.cli import app
from mt.config import Builtin, Config, FromTrain, HubDataset, PairFiles, TableFile
from mt.config.base import Section, as_tuple
from mt.config.problems import section_class

DOCS = Path(__file__).resolve().parent.parent / "docs"

_SOURCES: dict[str, type[Section]] = {
    "Two text files": PairFiles,
    "A table": TableFile,
    "The Hugging Face hub": HubDataset,
    "Text of this package": Builtin,
    "Pairs of the training text (only for `data.valid` and `data.test`)": FromTrain,
}
_NAMES = {int: "whole number", float: "number", str: "text", bool: "true, false", type(None): "null"}
# The upper limits (`le`) only catch slips of the finger, and would be noise here.
_BOUNDS = {"ge": "≥", "gt": ">", "lt": "<"}


def pages() -> dict[str, str]:
    """The generated pages, by the names of their files."""
    return {"configuration.md": configuration_page(), "commands.md": commands_page()}


def configuration_page() -> str:
    """One table for the top level, each section, and each kind of source."""
    parts = [
        "# Configuration",
        "Generated from the schema by `python scripts/reference.py`; only `name` and `data` are required.",
        "## Top level\n\n" + _table(Config),
    ]
    sections = {name: section_class(name) for name in Config.model_fields}
    parts += [f"## {name}\n\n{_table(section)}" for name, section in sections.items() if section]
    parts += [f"## A source: {title[0].lower()}{title[1:]}\n\n{_table(kind)}" for title, kind in _SOURCES.items()]
    return "\n\n".join(parts) + "\n"


def commands_page() -> str:
    """Each command with its arguments and options."""
    parts = [
        "# Commands",
        "Generated from the command line by `python scripts/reference.py`; `mt COMMAND --help` says the same.",
    ]
    for name, command in _commands("mt", app):
        context = click.Context(command, info_name=name)
        usage = " ".join([name, *command.collect_usage_pieces(context)])
        parts.append(f"## {name}\n\n```text\n{usage}\n```\n\n{_paragraphs(command.help or '')}")
        rows = [record for option in command.params if (record := option.get_help_record(context)) and record[1]]
        if rows:
            parts.append(
                "| option | meaning |\n|---|---|\n" + "\n".join(f"| `{_cell(a)}` | {_cell(b)} |" for a, b in rows)
            )
    return "\n\n".join(parts) + "\n"


def _commands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for child in command.commands.values():
            yield from _commands(f"{name} {child.name}", child)
    else:
        yield name, command


def _paragraphs(text: str) -> str:
    """Help as Markdown: the line that begins with `Example:` is a command."""
    paragraphs = inspect.cleandoc(text).replace("\x08", "").split("\n\n")
    return "\n\n".join(re.sub(r"^Examples?:\s+(.*)", r"Example: `\1`", part, flags=re.DOTALL) for part in paragraphs)


def _table(section: type[Section]) -> str:
    rows = ["| key | value | default | meaning |", "|---|---|---|---|"]
    rows += [
        f"| `{key}` | {_kind(field)} | {_default(field)} | {_cell(field.description or '')} |"
        for key, field in section.model_fields.items()
        if section is not Config or section_class(key) is None
    ]
    return "\n".join(rows)


def _kind(field: FieldInfo) -> str:
    kind = _type_name(field.annotation)
    if kind.startswith("list of ") and any(getattr(rule, "func", None) is as_tuple for rule in field.metadata):
        kind = f"{kind.removeprefix('list of ')}, {kind}"
    bounds = ", ".join(_bounds(field))
    return f"{kind}, {bounds}" if bounds else kind


def _type_name(annotation: Any) -> str:
    if annotation in _NAMES:
        return _NAMES[annotation]
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(annotation))
    arguments = [argument for argument in get_args(annotation) if argument is not Ellipsis]
    if "FromTrain" in repr(annotation) or "PairFiles" in repr(annotation):
        return "source, list of sources" + (", null" if type(None) in map(_bare, arguments) else "")
    if get_origin(annotation) is tuple:
        size = "" if Ellipsis in get_args(annotation) else f"{len(arguments)} × "
        return f"list of {size}{_type_name(_bare(arguments[0]))}"
    return ", ".join(_type_name(_bare(argument)) for argument in arguments)


def _bare(annotation: Any) -> Any:
    """The type inside `Annotated`."""
    return get_args(annotation)[0] if hasattr(annotation, "__metadata__") else annotation


def _bounds(field: FieldInfo) -> Iterator[str]:
    for limit in field.metadata:
        for name, sign in _BOUNDS.items():
            value = getattr(limit, name, None)
            if isinstance(value, int | float):
                yield f"{sign} {value:,}" if isinstance(value, int) else f"{sign} {value:g}"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if isinstance(value, FromTrain):
        return f"`{{from_train: {value.from_train}}}`"
    if isinstance(value, tuple):
        return f"`[{', '.join(map(str, value))}]`"
    words = {None: "null", True: "true", False: "false"}
    return f"`{words[value] if value is None or isinstance(value, bool) else value}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    """Writes the pages."""
    for name, content in pages().items():
        (DOCS / name).write_text(content, encoding="utf-8")
        print(DOCS / name)


if __name__ == "__main__":
    main()
