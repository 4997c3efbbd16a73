"""Conversion of other toolkits' options to ours, by the tables of other_toolkits.yaml."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from mt.config.loading import as_yaml
from mt.config.yaml_tree import parse_yaml, plain_scalar
from mt.console import shortened
from mt.errors import InputError

_SENTENCE_TOKENS = 32  # assumed for a sentence where batches are counted in sentences
_MIN_PIECES = 300  # of a vocabulary of ours
_OFF: tuple[Any, ...] = (None, False, 0, -1, "", "none", [], [0])  # values with which an option needs no counterpart
_TRANSFORMS = {"sentencepiece", "bpe", "onmt_tokenize", "filtertoolong"}  # not needed: mt has its own tokenizer


class Option(NamedTuple):
    """An option of another toolkit's file."""

    value: Any
    line: int


class _Noted(NamedTuple):
    """A value of ours, and how its meaning differs from theirs."""

    value: Any
    note: str


@dataclass
class Conversion:
    """The options of a file as values of our keys."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, tuple[str, int]] = field(default_factory=dict)  # by key, an option and its line; 0: a default
    differing: list[str] = field(default_factory=list)  # options whose meaning differs, each with an explanation
    missing: list[str] = field(default_factory=list)  # options without a counterpart

    def add(self, key: str, value: Any, option: str, line: int = 0) -> bool:
        """Set a value unless the key has one; return False if that is a different one."""
        self.origins.setdefault(key, (option, line))
        return bool(self.values.setdefault(key, value) == value)


@cache
def tables() -> dict[str, Any]:
    """Read the tables."""
    path = Path(__file__).with_suffix(".yaml")
    content: Any = parse_yaml(path.read_text(encoding="utf-8"), path.name).root
    for table in content["toolkits"].values():
        table["rows"] = {name: row for names, row in table["rows"].items() for name in names.split()}
    return dict(content)


def knows(toolkit: str, option: str) -> bool:
    """Return True for an option of a toolkit, with or without a counterpart."""
    table = tables()["toolkits"][toolkit]
    unneeded = (fnmatchcase(option, pattern) for pattern in table["unneeded"].split())
    return option in table["rows"] or option in table["required"] or any(unneeded)


def convert(toolkit: str, options: Mapping[str, Option], file: str) -> Conversion:
    """Convert the options of a file.

    Raises:
        InputError: the file does not describe a Transformer for translation, or a value has the wrong type.
    """
    table = tables()["toolkits"][toolkit]
    _refuse_other_tasks(toolkit, table, options, file)
    conversion, fallbacks = Conversion(), []
    plain = {name: option.value for name, option in options.items()}
    for name, (value, line) in options.items():
        shown = f"{name}: {shortened(as_yaml(value))}"
        if name not in table["rows"]:
            conversion.missing += [shown] * (value not in _OFF and not knows(toolkit, name))
            continue
        try:
            ours, note = _convert_option(table["rows"][name], value, plain)
        except (TypeError, ValueError, AttributeError, IndexError):
            raise InputError(f"{file}:{line}: {shown}: a value of another kind is expected") from None
        if ours is None:
            conversion.missing.append(shown)
        if note:
            conversion.differing.append(f"{shown}: {note}")
        for key, converted in (ours or {}).items():
            if key.endswith("*"):
                fallbacks.append((key.removesuffix("*"), converted, name, line))
            elif not conversion.add(key, converted, name, line):
                earlier = f"{as_yaml(conversion.values[key])} from {conversion.origins[key][0]}"
                conversion.differing.append(f"{shown}: mt has one {key}, which is {earlier}")
    fallbacks += [(key, default, f"{toolkit}'s default", 0) for key, default in table["defaults"].items()]
    for fallback in fallbacks:
        conversion.add(*fallback)
    return conversion


def _refuse_other_tasks(toolkit: str, table: Mapping[str, Any], options: Mapping[str, Option], file: str) -> None:
    hint = "mt trains Transformers that translate; configure others by hand, with docs/migrating.md"
    for name, allowed in table["required"].items():
        if name in options and options[name].value not in allowed:
            place = f"{file}:{options[name].line}: {name}"
            raise InputError(f"{place}: {options[name].value} has no counterpart; only {', '.join(allowed)}", hint)
    if not any(name in options for name in table["kind"]):
        raise InputError(f"{file}: {table['kind'][0]} is missing, and {toolkit}'s default is no Transformer", hint)


def _convert_option(row: str, value: Any, options: Mapping[str, Any]) -> tuple[dict[str, Any] | None, str]:
    """Return an option's value by our keys, None without a counterpart, and how the meaning differs."""
    keys, _, conversion = f" {row}".partition(" by ")
    result = value
    if conversion in _FUNCTIONS:
        result = _FUNCTIONS[conversion](value, options)
    elif conversion:
        text = value if isinstance(value, str) else as_yaml(value)
        result = tables()["values"][conversion].get(text, NotImplemented)
        result = _Noted(*result) if isinstance(result, list) else result
    if result is NotImplemented:
        return None, ""
    result, note = result if isinstance(result, _Noted) else (result, "")
    return result if isinstance(result, dict) else dict.fromkeys(keys.split(), result), note


def _first(value: Any, options: Mapping[str, Any]) -> Any:
    """Return the first value of an option that may list several, for later parts of the training."""
    values = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else [value]
    first = plain_scalar(values[0]) if isinstance(values[0], str) else values[0]
    return _Noted(first, "changes in training there; the first value is taken") if values[1:] else first


def _sentences(value: Any, options: Mapping[str, Any]) -> Any:
    if "--max-tokens" in options:
        return _Noted({}, "mt limits a batch by its tokens only")
    return _Noted(int(value) * _SENTENCE_TOKENS, f"counts sentences; taken as {_SENTENCE_TOKENS} tokens each")


def _batch(value: Any, options: Mapping[str, Any]) -> Any:
    kind = options.get("training.batch_type", options.get("batch_type"))
    return int(value) if kind in ("token", "tokens") else _sentences(value, options)


def _rsqrt_rate(value: Any, options: Mapping[str, Any]) -> Any:
    if options.get("decay_method") != "rsqrt":
        return value
    warmup = max(1, options.get("warmup_steps", 4000))
    return _Noted(value / warmup**0.5, f"there the rate is divided by the root of the step, at least of {warmup}")


def _peak(value: Any, options: Mapping[str, Any]) -> Any:
    if options.get("training.scheduling") == "noam":
        return {}
    return _Noted(value, "JoeyNMT 2.3 ignores it, and takes training.learning_rate")


_FUNCTIONS: dict[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    "batch": _batch,
    "betas": lambda value, options: [float(part) for part in value.strip("()[] ").split(",")],
    "beta1": lambda value, options: [value, options.get("adam_beta2", 0.999)],
    "beta2": lambda value, options: [options.get("adam_beta1", 0.9), value],
    "first": _first,
    "length_penalty": lambda value, options: _Noted(
        max(value, 0), "an exponent of the length, not of (5 + length) / 6"
    ),
    "noam_factor": lambda value, options: value if options.get("training.scheduling") == "noam" else {},
    "number": lambda value, options: len(value),
    "one_minus": lambda value, options: 1 - value if value else None,
    "peak": _peak,
    "pieces": lambda value, options: max(value, _MIN_PIECES),
    "positive": lambda value, options: value if value > 0 else None,
    "rsqrt_rate": _rsqrt_rate,
    "sentences": _sentences,
    "several": lambda value, options: value if value > 1 else {},
    "transforms": lambda value, options: {} if set(value) <= _TRANSFORMS else NotImplemented,
    "unless_noam": lambda value, options: {} if options.get("training.scheduling") == "noam" else value,
    "unless_zero": lambda value, options: value if value > 0 else {},
    "without_ends": lambda value, options: value + 2,
    "without_start": lambda value, options: value + 1,
}
