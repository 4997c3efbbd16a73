"""Generator of reference pages in docs/: configuration from classes, commands from options, Python from docstrings."""

import inspect
import re
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click
from pydantic.fields import FieldInfo

import mt
from mt.api.search import Search
from mt.cli import app
from mt.config import (
    Builtin,
    Config,
    FromTrain,
    HubDataset,
    OpusCorpus,
    PairFiles,
    SacrebleuSet,
    TableFile,
    TextFolder,
)
from mt.config.base import OneOrList, Section
from mt.config.problems import SECTIONS
from mt.extras.pipelines.schema import COMMANDS, KINDS, PipelineFile, Place, Train

DOCS = Path(__file__).resolve().parent.parent / "docs"
WIDTH = 100  # columns of a page's lines
_SHARED = 3  # lists with the same item, from which on it is in a section of its own

_SOURCES: dict[str, type[Section]] = {
    "Two text files": PairFiles,
    "One file": TableFile,
    "A folder of texts": TextFolder,
    "A corpus of OPUS": OpusCorpus,
    "A test set of sacreBLEU": SacrebleuSet,
    "The Hugging Face hub": HubDataset,
    "Text of this package": Builtin,
    "Pairs of the training text (only for `data.valid` and `data.test`)": FromTrain,
}
_PIPELINES: dict[str, type[Section]] = {
    "A pipeline": PipelineFile,
    "A pipeline: a step of kind train": Train,
    "A pipeline: the output of a step": Place,
}
_NAMES = {int: "whole number", float: "number", str: "text", bool: "true, false", type(None): "null"}
# Upper limits (`le`) only catch typing errors, and would be noise here.
_BOUNDS = {"ge": "≥", "gt": ">", "lt": "<"}


def pages() -> dict[str, str]:
    """Return the generated pages by file name."""
    return {"configuration.md": configuration_page(), "commands.md": commands_page(), "api.md": api_page()}


def configuration_page() -> str:
    """List the keys of the top level, of each section, and of each kind of source."""
    parts = [
        "# Configuration",
        _wrapped(
            "Generated from the schema by `python scripts/reference.py`. Only `name` and `data` are required. Each key "
            "is followed by its values and its default."
        ),
        "## Top level\n\n" + _keys(Config),
    ]
    sections = {name: SECTIONS.get(name) for name in Config.model_fields}
    parts += [f"## {name}\n\n{_keys(section)}" for name, section in sections.items() if section]
    sources, shared = _with_shared({title: _items(kind) for title, kind in _SOURCES.items()}, "A source: shared keys")
    parts += [f"## A source: {title[0].lower()}{title[1:]}\n\n{text}" for title, text in sources.items()]
    parts.append(shared)
    parts += [f"## {title}\n\n{_keys(kind)}" for title, kind in _PIPELINES.items()]
    parts += [_step_options(kind) for kind in KINDS if kind != "train"]
    return "\n\n".join(parts) + "\n"


def _step_options(kind: str) -> str:
    """List the keys of a kind of step, which are options of a command."""
    fields = [(field.alias or key, field) for key, field in KINDS[kind].model_fields.items()]
    keys = ", ".join(f"`{key}`" + " (required)" * field.is_required() for key, field in fields)
    command = " ".join(COMMANDS[kind])
    return f"## A pipeline: a step of kind {kind}\n\n" + _wrapped(f"As the options of `mt {command}`: {keys}.")


def commands_page() -> str:
    """List each command with its arguments and options; shared options are at the end."""
    parts = [
        "# Commands",
        _wrapped(
            "Generated from the command line by `python scripts/reference.py`; `mt COMMAND --help` prints the same."
        ),
    ]
    commands = {name: (command, click.Context(command, info_name=name)) for name, command in _commands("mt", app)}
    options, shared = _with_shared({name: _options(*found) for name, found in commands.items()}, "Shared options")
    for name, (command, context) in commands.items():
        usage = " ".join([name, *command.collect_usage_pieces(context)])
        parts.append(f"## {name}\n\n```text\n{usage}\n```\n\n{_paragraphs(command.help or '')}")
        parts += filter(None, [options[name]])
    return "\n\n".join([*parts, shared]) + "\n"


def _options(command: click.Command, context: click.Context) -> dict[str, str]:
    """Return the item of each option by its first name."""
    records = filter(None, (option.get_help_record(context) for option in command.params))
    return {
        names.split()[0].strip(","): f"`{names}`: {' '.join(meaning.split())}" for names, meaning in records if meaning
    }


def _with_shared(lists: dict[str, dict[str, str]], title: str) -> tuple[dict[str, str], str]:
    """Return lists as text, and a section with the items that several lists share, which these only name."""
    count = Counter(item for items in lists.values() for item in items.items())
    shared = dict(item for item, number in count.items() if number >= _SHARED)
    texts = {}
    for name, items in lists.items():
        own = [_item(text) for key, text in items.items() if shared.get(key) != text]
        named = ", ".join(f"`{key}`" for key, text in items.items() if shared.get(key) == text)
        link = f"[{title.split(': ')[-1].capitalize()}](#{re.sub('[^a-z]+', '-', title.lower())})"
        texts[name] = "\n".join(own + [_item(f"{link}: {named}.")] * bool(named))
    return texts, f"## {title}\n\n" + "\n".join(map(_item, shared.values()))


def api_page() -> str:
    """List the functions and classes of the package with their signatures and docstrings."""
    parts = [
        "# Python reference",
        _wrapped(
            "Generated from the docstrings by `python scripts/reference.py`; [the guide](python.md) has examples."
        ),
    ]
    for name in sorted(mt.__all__, key=lambda name: (inspect.isclass(getattr(mt, name)), name)):
        value = getattr(mt, name)
        parts.append(f"## mt.{name}\n\n{_described(value, name)}")
        members = vars(value).items() if inspect.isclass(value) else ()
        public = [(key, member) for key, member in members if not key.startswith("_") and inspect.getdoc(member)]
        parts += [f"### {name}.{key}\n\n{_described(member, key)}" for key, member in public if _is_code(member)]
    parts.append(f"## Arguments of a search\n\n{_docstring(inspect.getdoc(Search) or '')}")
    return "\n\n".join(parts) + "\n"


def _is_code(member: Any) -> bool:
    return inspect.isfunction(member) or isinstance(member, property)


def _described(value: Any, name: str) -> str:
    """Return the signature of a function, and the docstring."""
    text = _docstring(inspect.getdoc(value) or "")
    if not inspect.isfunction(value):
        return text
    declared = [parameter for parameter in inspect.signature(value).parameters.values() if parameter.name != "self"]
    parameters = [_parameter(parameter) for parameter in declared]
    keyword_only = [parameter.kind == parameter.KEYWORD_ONLY for parameter in declared]
    if any(keyword_only):
        parameters.insert(keyword_only.index(True), "*")
    call = textwrap.fill(f"{name}({', '.join(parameters)})", WIDTH, subsequent_indent="    ", break_on_hyphens=False)
    return f"```text\n{call}\n```\n\n{text}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_KEYWORD: "**", parameter.VAR_POSITIONAL: "*"}.get(parameter.kind, "")
    return f"{stars}{parameter.name}" + ("" if parameter.default is parameter.empty else f"={parameter.default!r}")


def _docstring(text: str) -> str:
    """Return a docstring as Markdown: sections such as `Args:` become lists."""
    parts = []
    for paragraph in text.split("\n\n"):
        title, _, rest = paragraph.partition("\n")
        if title not in ("Args:", "Attributes:", "Raises:", "Returns:"):
            parts.append(_wrapped(" ".join(paragraph.split())))
            continue
        items = [rest] if title == "Returns:" else re.split(r"\n(?=    \S)", f"\n{rest}")[1:]
        parts += [f"{title}", "\n".join(_item(" ".join(item.split())) for item in items)]
    return "\n\n".join(parts)


def _commands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        if command.invoke_without_command and name != "mt":
            yield name, command
        for child_name in command.list_commands(context):
            child = command.get_command(context, child_name)
            assert child is not None
            yield from _commands(f"{name} {child_name}", child)
    else:
        yield name, command


def _paragraphs(text: str) -> str:
    """Return help as Markdown; an `Example:` is a command, and lines that click does not wrap are a list of them."""
    parts = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b"):
            items = (line.split(": ", 1) for line in paragraph.splitlines()[1:])
            parts.append("\n".join(f"* {name}: `{command.strip()}`" for name, command in items))
        else:
            parts.append(_wrapped(re.sub(r"^Examples?:\s+(.*)", r"Example: `\1`", paragraph, flags=re.DOTALL)))
    return "\n\n".join(parts)


def _keys(section: type[Section]) -> str:
    return "\n".join(map(_item, _items(section).values()))


def _items(section: type[Section]) -> dict[str, str]:
    """Return the item of each key."""
    return {
        key: f"`{key}` ({_kind(field)}; {_default(field)}): {field.description or ''}"
        for key, field in section.model_fields.items()
        if section is not Config or key not in SECTIONS
    }


def _item(text: str) -> str:
    return _wrapped(text, "* ", "  ")


def _wrapped(text: str, first: str = "", rest: str = "") -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def _kind(field: FieldInfo) -> str:
    kind = _type_name(field.annotation)
    if kind.startswith("list of ") and any(isinstance(rule, OneOrList) for rule in field.metadata):
        kind = f"{kind.removeprefix('list of ')}, {kind}"
    bounds = ", ".join(_bounds(field))
    return f"{kind}, {bounds}" if bounds else kind


def _type_name(annotation: Any) -> str:
    if get_origin(annotation) is dict:
        return "map"
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
    if inspect.isclass(annotation) and issubclass(annotation, Section):
        return f"map of {' and '.join(f'`{key}`' for key in annotation.model_fields)}"
    return ", ".join(_type_name(_bare(argument)) for argument in arguments)


def _bare(annotation: Any) -> Any:
    """Return the type inside `Annotated`."""
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
    value = field.get_default(call_default_factory=True)
    if isinstance(value, FromTrain):
        return f"default `{{from_train: {value.from_train}}}`"
    if isinstance(value, tuple):
        return f"default `[{', '.join(map(str, value))}]`"
    words = {None: "null", True: "true", False: "false"}
    return f"default `{words[value] if value is None or isinstance(value, bool) else value}`"


def main() -> None:
    """Write the pages."""
    for name, content in pages().items():
        (DOCS / name).write_text(content, encoding="utf-8")
        print(DOCS / name)


if __name__ == "__main__":
    main()
