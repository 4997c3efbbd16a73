"""Texts and names that come from Python, where types are only hints."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from mt.errors import InputError

Texts = str | Iterable[str]  # one, or several


def several(given: str | Path | Iterable[Any] | None) -> list[Any]:
    """Return a list of the given names or patterns: several, a single one, or none; `InputError` for others."""
    if given is None:
        return []
    names = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    if wrong := [name for name in names if not isinstance(name, str | PathLike)]:
        raise _not_text(wrong[0])
    return names


def texts_of(given: Texts) -> Iterator[Any]:
    """Iterate over several texts, or a single one; `InputError` for anything else."""
    if isinstance(given, Iterable):
        return iter([given] if isinstance(given, str) else given)
    raise _not_text(given)


def check_text(text: object) -> None:
    """Raise an `InputError` for anything but a string of valid Unicode."""
    if not isinstance(text, str):
        raise _not_text(text)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"{text!a:.50} has half of a surrogate pair", "decode it again from its bytes") from None


def refuse_unpaired(n_lines: int, n_prefixes: int, first_line: int) -> None:
    """Raise an `InputError` for a line without a prefix, or a prefix without a line."""
    if n_prefixes < n_lines:
        raise InputError(f"line {first_line + n_prefixes} has no prefix", "give an empty one")
    if n_prefixes > n_lines:
        message = f"there is a prefix for line {first_line + n_lines}, but no such line"
        raise InputError(message, "give one prefix for each line")


def known_names(given: str | Collection[str] | None, known: Sequence[str], what: str) -> tuple[str, ...]:
    """Return a tuple of the given names, as `several` does; `InputError` for one that is not `known`."""
    names = tuple(several(given))
    if unknown := [name for name in names if name not in known]:
        raise InputError(f"{what}: {unknown[0]!r:.50} is none of {', '.join(known)}")
    return names


def _not_text(value: object) -> InputError:
    return InputError(f"{value!r:.50} is not a string", "give a string, or a list of strings")
