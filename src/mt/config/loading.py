"""Configurations from YAML files and `--set` arguments, and back to YAML."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from mt.config.problems import Problem, dotted, validate
from mt.config.schema import Config
from mt.config.yaml_tree import MAX_BYTES, MAX_DEPTH, TreePath, Value, parse_yaml, plain_scalar
from mt.errors import InputError
from mt.text.lines import explain_read_errors

# A key's origin: a rank to sort by, and the file and line, or the argument.
Origin = tuple[float, str]


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read a configuration file.

    Args:
        path: the YAML file.
        overrides: changes to it, as in `training.max_steps=10`; the value is YAML, list indices count from 0.

    Raises:
        InputError: the file cannot be read, or its content is invalid; one message lists all problems.
    """
    return parse_config(read_limited(path), str(path), overrides)


def read_limited(path: Path) -> bytes:
    """Return the content of a file, or enough of it for `parse_yaml` to refuse it; `InputError` if unreadable."""
    siblings = sorted(other.name for other in path.parent.glob("*.yaml"))[:8]
    hint = f"Beside it: {', '.join(siblings)}." if siblings else ""
    with explain_read_errors(path, hint), path.open("rb") as file:
        return file.read(MAX_BYTES + 1)


def parse_config(text: str | bytes, name: str, overrides: Sequence[str] = ()) -> Config:
    """Parse the content of a configuration file, which messages call `name`; else as `load_config`."""
    tree, origins = parse_tree(text, name, overrides, "A configuration needs at least `name` and `data`.")
    if isinstance(tree.get("steps"), dict):
        hint = "give the `config` of one of its steps, or run it with `mt pipeline` (mt.run_pipeline)"
        raise InputError(f"{name}: a pipeline, not a configuration", hint)
    config, problems = validate(tree)
    if config is None:
        raise InputError(report_problems(problems, name, origins))
    return config


def parse_tree(
    text: str | bytes, name: str, overrides: Sequence[str], needed: str
) -> tuple[dict[str, Value], dict[TreePath, Origin]]:
    """Parse a file's sections and apply overrides; return them with the origins of all keys.

    `needed` says which keys an empty file lacks.
    """
    tree, lines = parse_yaml(text, name)
    if tree is None:
        raise InputError(f"{name}: empty", needed)
    if not isinstance(tree, dict):
        kind = "a list" if isinstance(tree, list) else "a single value"
        raise InputError(f"{name}: holds {kind} instead of sections", "Write `name: ...`, `data: ...` and so on.")
    origins: dict[TreePath, Origin] = {path: (line, f"{name}:{line}") for path, line in lines.items()}
    origins[()] = (0, name)
    for override in overrides:
        changed = _apply_override(tree, override)
        origins = {path: origin for path, origin in origins.items() if path[: len(changed)] != changed}
        origins[changed] = (math.inf, f"--set {override}")
    _lift_limits(tree, overrides)
    return tree, origins


def dump_config(config: Config) -> str:
    """Return a configuration as YAML, all defaults included; `parse_config` reads back an equal one."""
    lines: list[str] = []
    for key, value in config.model_dump().items():
        if isinstance(value, dict):
            lines += [f"{key}:", *(f"  {inner}: {as_yaml(item)}" for inner, item in value.items())]
        else:
            lines.append(f"{key}: {as_yaml(value)}")
    return "\n".join(lines) + "\n"


class _Dumper(yaml.SafeDumper):
    """PyYAML's dumper, without aliases, and with quotes around what YAML 1.2 would not read as text on one line."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    try:
        style = None if isinstance(plain_scalar(text), str) else "'"
    except ValueError:
        style = "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style if text.isprintable() else '"')


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(tuple, yaml.SafeDumper.represent_list)


def as_yaml(value: Any) -> str:
    """Return a value on one line of YAML, which `parse_yaml` reads back unchanged."""
    text = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=True, sort_keys=False, allow_unicode=True, width=math.inf
    )
    return text.removesuffix("...\n").strip("\n")  # other white space may be part of the value


def _apply_override(tree: dict[str, Value], override: str) -> TreePath:
    """Put a `--set` argument into the tree, and return the path of the outermost node that it created."""
    keys, value = _split_override(override)
    path: TreePath = ()
    created: TreePath | None = None
    node: Any = tree
    for key in keys[:-1]:
        part = _child_key(node, key, path, override)
        path = (*path, part)
        child = node.get(part) if isinstance(node, dict) else node[part]
        if child is None:
            created = created or path
            child = node[part] = {}
        if not isinstance(child, dict | list):
            raise InputError(f"--set {override}: {dotted(path)} is a single value, so nothing can be set in it")
        node = child
    part = _child_key(node, keys[-1], path, override)
    node[part] = value
    return created or (*path, part)


def _lift_limits(tree: dict[str, Value], overrides: Sequence[str]) -> None:
    """Set `minutes` to null beside each `max_steps` that is overridden alone, which would otherwise have no effect."""
    paths = {tuple(override.partition("=")[0].strip().split(".")) for override in overrides}
    for path in paths:
        section: Any = tree
        minutes = (*path[:-1], "minutes")
        is_overridden = any(minutes[: len(other)] == other for other in paths)
        for key in path[:-1]:
            section = section.get(key) if isinstance(section, dict) else None
        if path[-1] == "max_steps" and not is_overridden and isinstance(section, dict) and "minutes" in section:
            section["minutes"] = None


def _split_override(override: str) -> tuple[list[str], Value]:
    name, equals, text = override.partition("=")
    keys = name.strip().split(".")
    argument = f"--set {override}"
    if not equals or not all(keys) or len(keys) > MAX_DEPTH:
        raise InputError(f"{argument}: not of the form KEY=VALUE", "For example --set training.max_steps=1000.")
    try:
        value = parse_yaml(text, argument).root
    except InputError as error:
        raise InputError(error.message.replace(f"{argument}:1: ", f"{argument}: ", 1), error.hint) from None
    tokens = [token for token in yaml.scan(text) if token.end_mark.index > token.start_mark.index]
    if text[max((token.end_mark.index for token in tokens), default=0) :].strip():
        raise InputError(f"{argument}: the value would end before '#'", "Put it into quotes: KEY='\"...\"'.")
    if isinstance(value, dict | list) and not text.lstrip().startswith(("{", "[")):
        raise InputError(f"{argument}: the value looks like part of a file", "Write [a, b], {key: value} or 'text'.")
    return keys, value


def _child_key(node: dict[str, Value] | list[Value], key: str, path: TreePath, override: str) -> str | int:
    if isinstance(node, dict):
        return key
    if not (key.isascii() and key.isdigit() and len(key) < 10 and int(key) < len(node)):
        numbers = f"0 to {len(node) - 1}" if node else "none"
        raise InputError(f"--set {override}: {dotted(path)} is a list, with the numbers {numbers}, not {key}")
    return int(key)


def nearest_origin(path: TreePath, origins: Mapping[TreePath, Origin]) -> Origin:
    """Return the origin of a key, or of the nearest one around it."""
    while path not in origins:
        path = path[:-1]
    return origins[path]


def report_problems(problems: Sequence[Problem], name: str, origins: dict[TreePath, Origin]) -> str:
    """Return a message that lists problems in the order of the file, each with the place of its key."""
    lines = []
    for problem in problems:
        rank, origin = nearest_origin(problem.path, origins)
        message = problem.message
        if rank == math.inf and message.endswith("put quotes around it"):  # a shell removes the outer ones
            message += ", in a shell '\"...\"'"
        lines.append((rank, f"  {origin}: {dotted(problem.path)}: {message}"))
    lines.sort(key=lambda line: line[0])
    count = "1 problem" if len(lines) == 1 else f"{len(lines)} problems"
    return "\n".join([f"{count} in {name}:", *(text for _, text in lines)])
