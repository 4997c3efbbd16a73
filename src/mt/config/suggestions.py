"""Guesses for mistyped words."""

from collections.abc import Iterable
from difflib import SequenceMatcher

GOOD = 0.6  # likeness from which a guess is worth making

_EXACT, _CLOSE, _LIKE = 1.0, 0.85, 0.75  # degrees of it
_MARGIN = 0.05  # by which a guess may be less like the word than the best one
_MOST = 3


def likeness(word: str, known: str) -> float:
    """Rate from 0 to 1 how likely a known word, or a dotted key's last part, was meant."""
    word, known = word.lower().replace("-", "_"), known.rpartition(".")[2]
    parts = known.split("_")
    if word == known or (len(word) > 1 and word == "".join(part[:1] for part in parts)):  # lr: learning_rate
        return 1.0
    matcher = SequenceMatcher(None, word, known, autojunk=False)
    ratio = matcher.ratio() if min(matcher.real_quick_ratio(), matcher.quick_ratio()) >= GOOD else 0.0
    words = set(word.split("_"))
    return max(ratio, GOOD if words <= set(parts) or set(parts) < words else 0.0)


def similar(word: str, known: Iterable[str], least: float = GOOD) -> list[str]:
    """Known words most like a word, at most three."""
    rated = [(likeness(word, candidate), candidate) for candidate in known]
    bound = max([least, *(rating - _MARGIN for rating, _ in rated)])
    best = sorted((item for item in rated if item[0] >= bound), key=lambda item: -item[0])
    return [candidate for _, candidate in best][:_MOST]


def suggest_key(key: str, own: Iterable[str], elsewhere: Iterable[str]) -> list[str]:
    """Guess which key was meant, at most three: of `own`, those known where it stands, or of all others, dotted."""
    own, elsewhere = list(own), list(elsewhere)
    tries = ((own, _CLOSE), (elsewhere, _EXACT), (own, _LIKE), ([*own, *elsewhere], GOOD))
    return next(filter(None, (similar(key, known, least) for known, least in tries)), [])
