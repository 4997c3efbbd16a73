"""Writes the reference of the configuration from its classes: to the terminal, or with `--write` into README.md."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from mt.config import Builtin, Config, FromTrain, HubDataset, PairFiles, TableFile
from mt.config.problems import section_class
from mt.config.section import Section, as_tuple

README = Path(__file__).resolve().parent.parent / "README.md"
BEGIN = "<!-- configuration reference: begin -->"
END = "<!-- configuration reference: end -->"

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


def reference_markdown() -> str:
    """The whole reference: one table for the top level, each section, and each kind of source."""
    parts = ["#### Top level\n\n" + _table(Config)]
    sections = {name: section_class(name) for name in Config.model_fields}
    parts += [f"#### `{name}`\n\n{_table(section)}" for name, section in sections.items() if section]
    parts += [f"#### A source: {title[0].lower()}{title[1:]}\n\n{_table(kind)}" for title, kind in _SOURCES.items()]
    return "\n\n".join(parts) + "\n"


def with_reference(readme: str) -> str:
    """Put the current reference between the markers of a README.

    Raises:
        ValueError: the markers are not there, once each and in order.
    """
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"README.md lacks the lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{reference_markdown()}\n{END}{after}"


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
    """Print the reference, or write it into the README."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put it between the markers of README.md")
    if parser.parse_args().write:
        README.write_text(with_reference(README.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(reference_markdown(), end="")


if __name__ == "__main__":
    main()
