"""Validation of a configuration: all problems at once, in plain words.

pydantic alone stops before the rules over several values as soon as one value is bad. So bad values are replaced by
valid ones and the rest is validated again; a rule that involves a replaced value is not reported.
"""

import copy
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from mt.config.base import PATTERN_MEANINGS, SWITCH_TAGS, Rule, Section
from mt.config.schema import Config
from mt.config.sources import KIND_OF_KEY, SOURCE_KINDS, TAGS
from mt.config.suggestions import did_you_mean, similar, suggest_key
from mt.config.training import InitLayers
from mt.config.yaml_tree import TreePath

_SOURCE_HELP = (
    "{source: FILE, target: FILE}, {file: FILE}, {folder: FOLDER}, {opus: NAME}, {hub: NAME} or {builtin: NAME}"
)
_MAX_SHOWN = 40  # characters of a bad value
_MISSING = object()
SECTIONS: dict[str, type[Section]] = {
    name: field.annotation
    for name, field in Config.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
}
_KEYS = tuple(f"{name}.{key}" for name, section in SECTIONS.items() for key in section.model_fields)
Owner = Callable[[ErrorDetails, TreePath], tuple[str | None, type[Section]]]


@dataclass(frozen=True)
class Problem:
    """A problem in a configuration.

    Attributes:
        path: the key it is about, from the root of the tree.
        message: what is wrong with it, without the key.
        involved: the keys, cut to (section, key), whose values contribute to it.
    """

    path: TreePath
    message: str
    involved: frozenset[TreePath] = frozenset()


def validate(tree: Mapping[str, Any]) -> tuple[Config | None, list[Problem]]:
    """Turn a plain tree into a configuration and an empty list, or `None` and all problems."""
    repaired = copy.deepcopy(dict(tree))
    problems: list[Problem] = []
    suspects: set[TreePath] = set()
    while True:
        try:
            config = Config.model_validate(repaired)
        except ValidationError as error:
            reported = list(explain(error, repaired, _owner, _KEYS))
        else:
            return (None if problems else config), problems
        problems += [problem for problem in reported if not any({key, key[:1]} & suspects for key in problem.involved)]
        new_suspects = {key for problem in reported for key in problem.involved} - suspects
        if not new_suspects:
            return None, problems
        suspects |= new_suspects
        for key in new_suspects:
            _repair(repaired, key)


def dotted(path: TreePath) -> str:
    """Format a path as in `--set`: `data.train.0.source`."""
    return ".".join(str(part) if str(part).isprintable() else repr(part) for part in path)


def entries(values: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the values of a mapping with their paths; those of a section one by one."""
    for key, value in values.items():
        if key in SECTIONS and isinstance(value, Mapping):
            yield from (((key, name), item) for name, item in value.items())
        else:
            yield (key,), value


def _repair(tree: dict[str, Any], key: TreePath) -> None:
    """Replace a value by its default, or by the schema's example where it has none."""
    node, name = tree, str(key[0])
    owner: type[Section] = Config
    section = SECTIONS.get(name)
    if section is not None and len(key) == 2:
        if not isinstance(tree.get(name), dict):
            tree[name] = {}
        node, owner, name = tree[name], section, str(key[1])
    field = owner.model_fields.get(name)
    node.pop(name, None)
    if field is not None and field.is_required():
        node[name] = copy.deepcopy((field.examples or [None])[0])


def explain(error: ValidationError, tree: Any, owner: Owner, elsewhere: Sequence[str] = ()) -> Iterator[Problem]:
    """Yield what pydantic found, in plain words.

    Args:
        error: pydantic's error.
        tree: the tree that was validated.
        owner: returns the class whose key an error is about, and its tag if it is a kind of source.
        elsewhere: dotted keys of other sections, which an unknown key may stand for.
    """
    suggested: set[TreePath] = set()
    missing: list[Problem] = []
    for detail in error.errors(include_url=False):
        path = _tree_path(detail["loc"], tree)
        if detail["type"] == "rules":
            yield from (_broken_rule(rule, path, tree) for rule in detail["ctx"]["rules"])
        elif detail["type"] == "extra_forbidden":
            message, siblings = _unknown_key(path, *owner(detail, path), elsewhere)
            suggested |= siblings
            yield Problem(path, message, frozenset(key[:2] for key in {path, *siblings}))
        elif detail["type"] == "missing":
            missing.append(Problem(path, _missing_key(path, owner(detail, path)[1]), frozenset({path[:2]})))
        # pydantic counts only valid items, so a list of bad ones is also "too short".
        elif detail["type"] != "too_short" or len(detail["input"]) < detail["ctx"]["min_length"]:
            yield Problem(path, _sentence(detail), frozenset({path[:2]}))
    # A mistyped key is one problem, not an unknown key and a missing one.
    yield from (problem for problem in missing if problem.path not in suggested)


def _child(node: Any, part: Any) -> Any:
    try:
        return node[part] if isinstance(node, list | Mapping) else _MISSING
    except (LookupError, TypeError):
        return _MISSING


def _tree_path(location: tuple[str | int, ...], tree: Any) -> TreePath:
    """Remove from pydantic's location what the file does not have: tags, and the list around a single source."""
    path: list[str | int] = []
    node: Any = tree
    for part in location:
        is_tag = part in TAGS and not (isinstance(node, Mapping) and part in node)
        if is_tag or (isinstance(part, int) and not isinstance(node, list)):
            continue
        path.append(part)
        node = _child(node, part)
    return tuple(path)


def _broken_rule(rule: Rule, path: TreePath, tree: Any) -> Problem:
    """Report a rule at the first of its keys that the file has."""
    keys: list[TreePath] = [
        (*path, *(int(part) if part.isdigit() else part for part in key.split("."))) for key in rule.keys
    ]
    present = (key for key in keys if functools.reduce(_child, key, tree) is not _MISSING)
    return Problem(next(present, keys[0]), rule.reason, frozenset(key[:2] for key in keys))


def _unknown_key(
    path: TreePath, tag: str | None, owner: type[Section], elsewhere: Sequence[str]
) -> tuple[str, set[TreePath]]:
    """Return the message for an unknown key, and the paths of the keys beside it that it may stand for."""
    key, known = str(path[-1]), [field.alias or name for name, field in owner.model_fields.items()]
    if tag and key in KIND_OF_KEY:
        return f"does not go with {tag.strip('<>')}; a source is one of {_SOURCE_HELP}", set()
    suggestions = suggest_key(key, known, (other for other in elsewhere if not other.startswith(f"{path[0]}.")))
    if not suggestions:
        return f"unknown key; known here: {', '.join(known)}", set()
    siblings = {(*path[:-1], suggestion) for suggestion in suggestions if suggestion in known}
    return f"unknown key; {did_you_mean(suggestions)}", siblings


def _owner(detail: ErrorDetails, path: TreePath) -> tuple[str | None, type[Section]]:
    """Return the class whose key an error is about, and its tag if it is a kind of source."""
    if path[:2] == ("training", "init_layers") and len(path) > 2:
        return None, InitLayers
    tag = next((str(part) for part in reversed(detail["loc"][:-1]) if part in SOURCE_KINDS), None)
    section = SECTIONS.get(str(path[0])) if len(path) > 1 else Config
    return tag, SOURCE_KINDS[tag] if tag else section or Config


def _missing_key(path: TreePath, owner: type[Section]) -> str:
    if isinstance(path[-1], int):
        return "missing; the list is too short"
    return f"missing: {owner.model_fields[str(path[-1])].description or 'it has no default'}"


_WORDING = {
    "string_type": "must be text, not {shown}{quote}",
    "string_too_long": "must be at most {max_length} characters long",
    "int_type": "must be a whole number, not {shown}",
    "float_type": "must be a number, not {shown}",
    "bool_type": "must be true or false, not {shown}",
    "switch_or_name": "must be true, false or a name, not {shown}{quote}",
    "greater_than": "must be more than {gt}, not {shown}",
    "greater_than_equal": "must be at least {ge}, not {shown}",
    "less_than": "must be less than {lt}, not {shown}",
    "less_than_equal": "must be at most {le}, not {shown}",
    "tuple_type": "must be a list such as [a, b], not {shown}",
    "too_short": "too short: {actual_length} given, at least {min_length} needed",
    "too_long": "too long: {actual_length} given, at most {max_length} allowed",
    "literal_error": "must be {expected}, not {shown}{suggestion}",
    "model_type": "must be a section with keys of its own, not {shown}",
    "union_tag_not_found": "must be a source such as {sources}{source_fault}",
    "union_tag_invalid": "must be a source such as {sources}{source_fault}",
    "string_pattern_mismatch": "must be {pattern_meaning}",
    "value_error": "{error}",
}


def _sentence(detail: ErrorDetails) -> str:
    """Return pydantic's finding about a value in plain words."""
    value, context = detail["input"], detail.get("ctx", {})
    words = {
        "pattern_meaning": PATTERN_MEANINGS.get(context.get("pattern", "")),
        "shown": _shown(value),
        "quote": "; put quotes around it" if isinstance(value, bool | int | float) else "",
        "suggestion": _suggest_value(value, str(context.get("expected", ""))),
        "sources": _SOURCE_HELP,
        "source_fault": _source_fault(value),
    }
    kind = "switch_or_name" if detail["loc"][-1:] == SWITCH_TAGS[:1] else detail["type"]
    return _WORDING.get(kind, "cannot be {shown}").format(**{**context, **words})


def _shown(value: object) -> str:
    if value is None:
        return "empty (null)"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "a map"
    if isinstance(value, list | tuple):
        return "a list"
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."


def _suggest_value(value: object, expected: str) -> str:
    choices = expected.replace(" or ", ", ").replace("'", "").split(", ")
    suggestions = similar(value, choices) if isinstance(value, str) else []
    return f"; {did_you_mean(suggestions)}" if suggestions else ""


def _source_fault(value: object) -> str:
    if not isinstance(value, Mapping):
        return f", not {_shown(value)}"
    if "from_train" in value:
        return "; from_train can only be all of data.valid or data.test"
    return f"; none of those keys is among {', '.join(map(str, value))}" if value else ", not an empty map"
