"""Validates a configuration and says in plain words everything that is wrong with it, at once.

pydantic alone stops before the rules that span several values as soon as one value is bad. So bad values are replaced
by valid ones and the rest is validated again; a rule that touches a replaced value is not reported.
"""

import copy
import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from mt.config.base import PATTERNS, SWITCH_TAGS, Rule, Section
from mt.config.schema import Config
from mt.config.sources import SOURCE_KINDS, TAGS
from mt.config.suggestions import similar, suggest_key
from mt.config.yaml_tree import TreePath

_KIND_KEYS = {tag.strip("<>") for tag in SOURCE_KINDS} | {"target"}
_SOURCE_HELP = "{source: FILE, target: FILE}, {file: FILE}, {hub: NAME} or {builtin: NAME}"
_LONGEST_SHOWN = 40
_ABSENT = object()


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        path: the key it is about, from the root of the tree.
        message: what is wrong with it, without the key.
        involved: the keys, at most (section, key) long, whose values have a part in it.
    """

    path: TreePath
    message: str
    involved: frozenset[TreePath]


def validate(tree: Mapping[str, Any]) -> tuple[Config | None, list[Problem]]:
    """Turn a plain tree into a configuration.

    Returns:
        The configuration, or `None` and all that is wrong.
    """
    repaired = copy.deepcopy(dict(tree))
    problems: list[Problem] = []
    doubtful: set[TreePath] = set()
    while True:
        try:
            config = Config.model_validate(repaired)
        except ValidationError as error:
            found = list(_explain(error, repaired))
        else:
            return (None if problems else config), problems
        problems += [problem for problem in found if not _touches(problem.involved, doubtful)]
        fresh = {key for problem in found for key in problem.involved} - doubtful
        if not fresh:
            return None, problems
        doubtful |= fresh
        for key in fresh:
            _repair(repaired, key)


def dotted(path: TreePath) -> str:
    """Write a path as a user would: `data.train.0.source`."""
    return ".".join(str(part) if str(part).isprintable() else repr(part) for part in path)


def section_class(name: str | int) -> type[Section] | None:
    """The class of a section, or `None` where the name is no section's."""
    field = Config.model_fields.get(str(name))
    kind = field.annotation if field else None
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def _touches(involved: Iterable[TreePath], doubtful: set[TreePath]) -> bool:
    return any(key in doubtful or key[:1] in doubtful for key in involved)


def _repair(tree: dict[str, Any], key: TreePath) -> None:
    """Replace a value by its default, or by the schema's example where it has none."""
    node: dict[str, Any] = tree
    owner: type[Section] = Config
    if section_class(key[0]) is None:  # an item of a list that is in no section
        key = key[:1]
    if len(key) == 2:
        owner = section_class(key[0]) or Config
        if not isinstance(tree.get(str(key[0])), dict):
            tree[str(key[0])] = {}
        node = tree[str(key[0])]
    name = str(key[-1])
    field = owner.model_fields.get(name)
    node.pop(name, None)
    if field is not None and field.is_required():
        node[name] = copy.deepcopy((field.examples or [None])[0])


def _explain(error: ValidationError, tree: Mapping[str, Any]) -> Iterator[Problem]:
    guessed: set[TreePath] = set()
    missing: list[Problem] = []
    for detail in error.errors(include_url=False):
        path = _tree_path(detail["loc"], tree)
        if detail["type"] == "rules":
            yield from (_broken_rule(rule, path, tree) for rule in detail["ctx"]["rules"])
        elif detail["type"] == "extra_forbidden":
            message, meant = _unknown_key(detail, path)
            guessed |= meant
            yield Problem(path, message, frozenset(key[:2] for key in {path, *meant}))
        elif detail["type"] == "missing":
            missing.append(_problem(path, _missing_sentence(detail, path)))
        elif not _is_echo(detail):
            yield _problem(path, sentence(detail))
    # A mistyped key is one problem, not an unknown key and a missing one.
    yield from (problem for problem in missing if problem.path not in guessed)


def _problem(path: TreePath, message: str) -> Problem:
    return Problem(path, message, frozenset({path[:2]}))


def _child(node: Any, part: str | int) -> Any:
    if not isinstance(node, list | Mapping):
        return _ABSENT
    container: Any = node
    try:
        return container[part]
    except (LookupError, TypeError):
        return _ABSENT


def _tree_path(location: tuple[str | int, ...], tree: Mapping[str, Any]) -> TreePath:
    """Take out of pydantic's location what is not in the file: tags, and the list around a single source."""
    path: list[str | int] = []
    node: object = tree
    for part in location:
        is_tag = part in TAGS and not (isinstance(node, Mapping) and part in node)
        if is_tag or (isinstance(part, int) and not isinstance(node, list)):
            continue
        path.append(part)
        node = _child(node, part)
    return tuple(path)


def _broken_rule(rule: Rule, path: TreePath, tree: Mapping[str, Any]) -> Problem:
    keys: list[TreePath] = [
        (*path, *(int(part) if part.isdigit() else part for part in key.split("."))) for key in rule.keys
    ]
    given = [key for key in keys if functools.reduce(_child, key, tree) is not _ABSENT]
    return Problem((given or keys)[0], rule.reason, frozenset(key[:2] for key in keys))


def _unknown_key(detail: ErrorDetails, path: TreePath) -> tuple[str, set[TreePath]]:
    """Say what an unknown key may have been meant to be, and give the paths of the guesses beside it."""
    key = str(path[-1])
    tag, owner = _owner(detail, path)
    own = list(owner.model_fields)
    if tag and key in _KIND_KEYS:
        return f"does not go with {tag.strip('<>')}; a source is one of {_SOURCE_HELP}", set()
    guesses = suggest_key(key, own, _keys_of_other_sections(path[0]))
    if not guesses:
        return f"unknown key; known here: {', '.join(own)}", set()
    return f"unknown key; did you mean {' or '.join(guesses)}?", {
        (*path[:-1], guess) for guess in guesses if guess in own
    }


def _owner(detail: ErrorDetails, path: TreePath) -> tuple[str | None, type[Section]]:
    """The class whose key an error is about, and its tag where that is a kind of source."""
    tag = next((str(part) for part in reversed(detail["loc"][:-1]) if part in SOURCE_KINDS), None)
    section = section_class(path[0]) if len(path) > 1 else Config
    return tag, SOURCE_KINDS[tag] if tag else section or Config


def _keys_of_other_sections(here: str | int) -> list[str]:
    return [
        f"{name}.{key}"
        for name in Config.model_fields
        if name != here
        for key in getattr(section_class(name), "model_fields", {})
    ]


def _missing_sentence(detail: ErrorDetails, path: TreePath) -> str:
    if isinstance(path[-1], int):
        return "missing; the list is too short"
    _, owner = _owner(detail, path)
    return f"missing: {owner.model_fields[str(path[-1])].description}"


def _is_echo(detail: ErrorDetails) -> bool:
    # pydantic counts only valid items, so a list of bad ones is also "too short".
    return detail["type"] == "too_short" and len(detail["input"]) >= detail["ctx"]["min_length"]


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
    "literal_error": "must be {expected}, not {shown}{guess}",
    "model_type": "must be a section with keys of its own, not {shown}",
    "model_attributes_type": "must be a section with keys of its own, not {shown}",
    "union_tag_not_found": "must be a source such as {sources}{given}",
    "union_tag_invalid": "must be a source such as {sources}{given}",
    "string_pattern_mismatch": "must be {shape}",
    "plain": "{sentence}",
}


def sentence(detail: ErrorDetails) -> str:
    """Say in plain words what pydantic found wrong with a value."""
    given, context = detail["input"], detail.get("ctx", {})
    words = {
        "shape": PATTERNS.get(context.get("pattern", "")),
        "shown": _shown(given),
        "quote": "; put quotes around it" if isinstance(given, bool | int | float) else "",
        "guess": _guess_value(detail),
        "sources": _SOURCE_HELP,
        "given": _odd_source(given),
    }
    kind = "switch_or_name" if detail["loc"][-1:] == SWITCH_TAGS[:1] else detail["type"]
    wording = _WORDING.get(kind, "cannot be {shown}")
    return wording.format(**{**context, **words})


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
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "..."


def _guess_value(detail: ErrorDetails) -> str:
    choices = str(detail.get("ctx", {}).get("expected", "")).replace(" or ", ", ").replace("'", "").split(", ")
    guesses = similar(detail["input"], choices) if isinstance(detail["input"], str) else []
    return f"; did you mean {' or '.join(guesses)}?" if guesses else ""


def _odd_source(value: object) -> str:
    if not isinstance(value, Mapping):
        return f", not {_shown(value)}"
    if "from_train" in value:
        return "; from_train can only be the whole of data.valid or data.test"
    return f"; none of those keys is among {', '.join(map(str, value))}" if value else ", not an empty map"
