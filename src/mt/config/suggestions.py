"""Suggestions for mistyped words."""

from collections.abc import Iterable
from difflib import SequenceMatcher

MIN_SIMILARITY = 0.6

_EXACT, _CLOSE, _SIMILAR = 1.0, 0.85, 0.75
_WHOLE_WORDS = 0.46  # plus half of the similarity in letters
_MARGIN = 0.05  # by which a suggestion may be less similar than the best one
_MAX_SUGGESTIONS = 3


def similarity(word: str, known: str) -> float:
    """Return the similarity, from 0 to 1, of a mistyped word and a known one, of a dotted key its last part."""
    word, known = word.lower().replace("-", "_"), known.rpartition(".")[2]
    parts = known.split("_")
    if word == known or (len(word) > 1 and word == "".join(part[:1] for part in parts)):  # lr: learning_rate
        return 1.0
    matcher = SequenceMatcher(None, word, known, autojunk=False)
    ratio = matcher.ratio() if min(matcher.real_quick_ratio(), matcher.quick_ratio()) >= MIN_SIMILARITY else 0.0
    words = set(word.split("_"))
    if words <= set(parts):  # steps: max_steps rather than eps
        return max(ratio, _WHOLE_WORDS + ratio / 2, MIN_SIMILARITY)
    return max(ratio, MIN_SIMILARITY if set(parts) < words else 0.0)


def similar(word: str, known: Iterable[str], least: float = MIN_SIMILARITY) -> list[str]:
    """Return the known words most similar to a word, at most three, with a similarity of `least` or more."""
    rated = [(similarity(word, candidate), candidate) for candidate in known]
    bound = max([least, *(rating - _MARGIN for rating, _ in rated)])
    best = sorted((item for item in rated if item[0] >= bound), key=lambda item: -item[0])
    return [candidate for _, candidate in best][:_MAX_SUGGESTIONS]


def suggest_key(key: str, here: Iterable[str], elsewhere: Iterable[str]) -> list[str]:
    """Return at most three suggestions for a key: of the keys of its section, or of dotted keys of other sections."""
    here, elsewhere = list(here), list(elsewhere)
    tries = (here, _CLOSE), (elsewhere, _EXACT), (here, _SIMILAR), (elsewhere, _SIMILAR), (here, MIN_SIMILARITY)
    found = (similar(key, known, least) for known, least in (*tries, (elsewhere, MIN_SIMILARITY)))
    return next(filter(None, found), [])


def did_you_mean(suggestions: Iterable[str]) -> str:
    """Return suggestions as a question, or an empty string if there are none."""
    listed = " or ".join(suggestions)
    return f"did you mean {listed}?" if listed else ""
