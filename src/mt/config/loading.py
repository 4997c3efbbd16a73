"""Files and `--set` arguments to a configuration, and a configuration back to YAML."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from mt.config.problems import Problem, dotted, validate
from mt.config.schema import Config
from mt.config.yaml_tree import MAX_BYTES, MAX_DEPTH, TreePath, Value, parse_yaml, plain_scalar
from mt.errors import InputError

# A rank to sort by, and what to show: the file and line, or the argument.
Place = tuple[float, str]


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read a configuration file.

    Args:
        path: the YAML file.
        overrides: changes to it, as in `training.max_steps=10`; the value is YAML, lists count from 0.

    Raises:
        InputError: the file cannot be read, or what it says is wrong; all problems are in one message.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        beside = sorted(other.name for other in path.parent.glob("*.yaml"))[:8]
        raise InputError(f"{path}: no such file", f"Beside it: {', '.join(beside)}." if beside else "") from None
    except IsADirectoryError:
        raise InputError(f"{path}: a folder, not a configuration file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    return parse_config(content, str(path), overrides)


def parse_config(text: str | bytes, origin: str, overrides: Sequence[str] = ()) -> Config:
    """Make a configuration of YAML text.

    Args:
        text: the content of a configuration file.
        origin: what to call it in messages.
        overrides: as for `load_config`.

    Raises:
        InputError: what the text says is wrong; all problems are in one message.
    """
    source = parse_yaml(text, origin)
    tree = source.root
    if tree is None:
        raise InputError(f"{origin}: empty", "A configuration needs at least `name` and `data`.")
    if not isinstance(tree, dict):
        found = "a list" if isinstance(tree, list) else "a single value"
        raise InputError(f"{origin}: holds {found} instead of sections", "Write `name: ...`, `data: ...` and so on.")
    places: dict[TreePath, Place] = {path: (line, f"{origin}:{line}") for path, line in source.lines.items()}
    places[()] = (0, origin)
    for override in overrides:
        changed = _override(tree, override)
        places = {path: place for path, place in places.items() if path[: len(changed)] != changed}
        places[changed] = (math.inf, f"--set {override}")
    config, problems = validate(tree)
    if config is None:
        raise InputError(_report(problems, origin, places))
    return config


def dump_config(config: Config) -> str:
    """Write a configuration as YAML, all defaults included; `parse_config` gives an equal one back."""
    lines: list[str] = []
    for key, value in config.model_dump().items():
        if isinstance(value, dict):
            lines += [f"{key}:", *(f"  {inner}: {as_yaml(item)}" for inner, item in value.items())]
        else:
            lines.append(f"{key}: {as_yaml(value)}")
    return "\n".join(lines) + "\n"


class _Dumper(yaml.SafeDumper):
    """PyYAML's dumper, with quotes around what YAML 1.2 would not read as text, and without aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    try:
        is_text = isinstance(plain_scalar(text), str)
    except ValueError:
        is_text = False
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if is_text else "'")


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(tuple, yaml.SafeDumper.represent_list)


def as_yaml(value: Any) -> str:
    """A value on one line, as this project's strict reader reads it back."""
    text = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=True, sort_keys=False, allow_unicode=True, width=math.inf
    )
    return text.removesuffix("...\n").strip("\n")  # no more: other white space may be the value's


def _override(tree: dict[str, Value], override: str) -> TreePath:
    """Put one `--set` argument into the tree, and return the path of the outermost thing that it made."""
    keys, value = _split_override(override)
    path: TreePath = ()
    made: TreePath | None = None
    node: Any = tree
    for key in keys[:-1]:
        part = _part(node, key, path, override)
        path = (*path, part)
        child = node.get(part) if isinstance(node, dict) else node[part]
        if child is None:
            made = made or path
            child = node[part] = {}
        if not isinstance(child, dict | list):
            raise InputError(f"--set {override}: {dotted(path)} is a single value, so nothing can be set in it")
        node = child
    part = _part(node, keys[-1], path, override)
    node[part] = value
    return made or (*path, part)


def _split_override(override: str) -> tuple[list[str], Value]:
    name, equals, text = override.partition("=")
    keys = name.strip().split(".")
    origin = f"--set {override}"
    if not equals or not all(keys) or len(keys) > MAX_DEPTH:
        raise InputError(f"{origin}: not of the form KEY=VALUE", "For example --set training.max_steps=1000.")
    try:
        value = parse_yaml(text, origin).root
    except InputError as error:
        raise InputError(error.message.replace(f"{origin}:1: ", f"{origin}: ", 1), error.hint) from None
    end = max(
        (token.end_mark.index for token in yaml.scan(text) if token.end_mark.index > token.start_mark.index), default=0
    )
    if text[end:].strip():
        raise InputError(f"{origin}: the value would end before '#'", "Put it into quotes: KEY='\"...\"'.")
    if isinstance(value, dict | list) and not text.lstrip().startswith(("{", "[")):
        raise InputError(f"{origin}: the value looks like part of a file", "Write [a, b], {key: value} or 'text'.")
    return keys, value


def _part(node: dict[str, Value] | list[Value], key: str, path: TreePath, override: str) -> str | int:
    if isinstance(node, dict):
        return key
    if not (key.isascii() and key.isdigit() and len(key) < 10 and int(key) < len(node)):
        numbers = f"0 to {len(node) - 1}" if node else "none"
        raise InputError(f"--set {override}: {dotted(path)} is a list, with the numbers {numbers}, not {key}")
    return int(key)


def _report(problems: Sequence[Problem], origin: str, places: dict[TreePath, Place]) -> str:
    found = []
    for problem in problems:
        rank, place = _place(problem.path, places)
        found.append((rank, f"  {place}: {dotted(problem.path)}: {problem.message}"))
    count = "1 problem" if len(found) == 1 else f"{len(found)} problems"
    in_order = [text for _, text in sorted(found, key=lambda item: item[0])]
    return "\n".join([f"{count} in {origin}:", *in_order])


def _place(path: TreePath, places: dict[TreePath, Place]) -> Place:
    """Find where a key comes from, or the nearest thing around it."""
    return next(places[path[:length]] for length in range(len(path), -1, -1) if path[:length] in places)
