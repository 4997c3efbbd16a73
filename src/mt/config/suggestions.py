"""Guesses what a mistyped word was meant to be."""

from collections.abc import Callable, Iterable
from difflib import get_close_matches

_MOST = 3


def one_edit_apart(first: str, second: str) -> bool:
    """Whether one inserted, left out, changed or swapped character turns one text into the other."""
    if first == second:
        return False
    start = next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), None)
    if start is None:
        return abs(len(first) - len(second)) == 1
    a, b = first[start:], second[start:]
    return a[1:] == b[1:] or a[1:] == b or a == b[1:] or (a[:2] == b[1::-1] and a[2:] == b[2:])


def is_near(word: str, known: str) -> bool:
    """Whether a word is a known one but for case, dashes or one edit."""
    return _plain(word) == known or one_edit_apart(_plain(word), known)


def similar(word: str, known: Iterable[str]) -> list[str]:
    """Known words that differ from a word by one edit or by case and dashes, else what looks most like it.

    Of a dotted key, its last part counts.
    """
    known = list(known)
    near = _matching(word, known, is_near)
    return near or _matching(_closest(word, known), known, _same)


def suggest_key(key: str, own: Iterable[str], elsewhere: Iterable[str]) -> list[str]:
    """Guess which key was meant.

    Args:
        key: the unknown key.
        own: the keys that are known where it stands.
        elsewhere: the keys of all sections, dotted.

    Returns:
        The likeliest keys, at most three; those of `own` as they are, others dotted; empty without a good guess.
    """
    own, elsewhere = list(own), list(elsewhere)
    return (
        _matching(key, own, is_near)
        or _matching(key, elsewhere, _same)
        or similar(key, own)
        or _matching(key, own, _shares_words)
        or similar(key, elsewhere)
        or _matching(key, elsewhere, _shares_words)
    )[:_MOST]


def _matching(word: str, known: list[str], match: Callable[[str, str], bool]) -> list[str]:
    return [candidate for candidate in known if match(_plain(word), candidate.rpartition(".")[2])]


def _closest(word: str, known: list[str]) -> str:
    """The last part of the known word that looks most like a word; empty where none does."""
    names = [candidate.rpartition(".")[2] for candidate in known]
    return next(iter(get_close_matches(_plain(word), names, n=1, cutoff=0.75)), "")


def _plain(word: str) -> str:
    return word.lower().replace("-", "_")


def _same(word: str, known: str) -> bool:
    return word == known


def _shares_words(word: str, known: str) -> bool:
    return set(word.split("_")) <= set(known.split("_")) or set(known.split("_")) < set(word.split("_"))
