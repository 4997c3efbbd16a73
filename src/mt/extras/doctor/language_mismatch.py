"""Detection of single lines in another language than expected."""

from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec

import numpy as np

from mt.extras.doctor.language_scores import MAX_BYTES, Array, LineScorer, confidences
from mt.text.language_id import Detector
from mt.text.languages import LANGUAGE_NAMES, base_language

_MIN_LETTERS, _MIN_SYLLABLES = 40, 15  # a shorter line is judged with its neighbours; in an alphabet, in a syllabary
_NEIGHBOURS = 3  # lines before and after
_SYLLABIC = frozenset({"zh", "yue", "ja", "ko"})
_MIN_CONFIDENCE, _MIN_AROUND = 0.8, 0.95  # for the language of a line, and of a line with its neighbours
_MAX_EXPECTED = 0.02  # for the expected language

# Languages that are easily confused: a detection within one group is no finding.
_CONFUSABLE = tuple(
    frozenset(group.split())
    for group in (
        "no nb nn da sv, hr bs sr sh me, id ms jv su, gl pt es ast an ca oc, cs sk, mk bg sr, ru uk be rue, hi mr ne "
        "sa, fa ps ur ar ug, zh yue wuu ja, xh zu, lv ltg, az tr tk, kk ky tt ba, nl af li, de lb, fr wa oc, en sco, "
        "bn as, qu ay, tl fil"
    ).split(", ")
)


def undetectable(language: str) -> str:
    """Return why a language cannot be detected; "" if it can."""
    if find_spec("py3langid") is None:
        return "py3langid is not installed"
    return "" if base_language(language) in scorer_for(language).languages else "py3langid does not know it"


def confusable(language: str, other: str) -> bool:
    """Report whether two languages, without region, are close relatives."""
    return any({language, other} <= group for group in _CONFUSABLE)


def other_languages(lines: Sequence[str], languages: tuple[str, str], side: int) -> Iterator[tuple[int, str]]:
    """Yield the index, and the language and its confidence, of each line that is clearly not in its side's language.

    A short line is judged with its neighbours, if it seems to be in their language itself.
    """
    base, scorer = base_language(languages[side]), scorer_for(*languages)
    scores = scorer.score(lines, scorer.table)
    size = np.sqrt([[len(line.encode()[:MAX_BYTES])] for line in lines], dtype=np.float32)
    own = np.array([code == base for code in scorer.languages])
    best, share, is_clear = _judged(scores, own, _MIN_CONFIDENCE)
    around, share_around, is_clear_around = _judged(
        _windows(scores * size) / np.sqrt(_windows(size**2) + 1), own, _MIN_AROUND
    )
    by_context = is_clear_around & (best == around)
    for line in np.flatnonzero(is_clear | by_context).tolist():
        code, letters = scorer.languages[best[line]], sum(map(str.isalpha, lines[line]))
        alone = is_clear[line] and letters >= (_MIN_SYLLABLES if base in _SYLLABIC else _MIN_LETTERS)
        if letters and (alone or by_context[line]) and code != base and not confusable(code, base):
            yield line, f"{code}, {100 * (share if alone else share_around)[line]:.0f} %"


def _judged(scores: Array, own: Array, minimum: float) -> tuple[Array, Array, Array]:
    """Return the best column of scores (N, L), its confidence, and whether it clearly is none of its `own` (N,)."""
    shares = confidences(scores)
    best = shares.max(axis=1)
    return shares.argmax(axis=1), best, (best >= minimum) & (shares[:, own].sum(axis=1) <= _MAX_EXPECTED)


def _windows(values: Array) -> Array:
    """Return the sums of each row of (N, L) and its neighbours."""
    sums = np.cumsum(np.pad(values.astype(np.float64), ((_NEIGHBOURS + 1, _NEIGHBOURS), (0, 0))), axis=0)
    return sums[2 * _NEIGHBOURS + 1 :] - sums[: -2 * _NEIGHBOURS - 1]


def scorer_for(*languages: str) -> LineScorer:
    """Return a scorer of the common languages, and of these if py3langid knows them."""
    return _scorer(*sorted(set(map(base_language, languages)) - set(LANGUAGE_NAMES)))


@cache
def _scorer(*codes: str) -> LineScorer:
    return LineScorer(Detector(codes))
