"""Languages of single lines: scores of many at once with the byte n-grams of py3langid, and lines in another language.

py3langid looks at one text at a time, in 40 microseconds or more. Here its automaton walks through thousands of lines
in step, which takes 3 microseconds a line.

    N lines   F byte n-grams   L languages
"""

from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec

import numpy as np

from mt.data.ragged import Array
from mt.text.language_id import Detector, known_languages
from mt.text.languages import LANGUAGE_NAMES, base_language
from mt.text.lines import nfc

MAX_BYTES = 120  # of a line, which are enough
_BATCH = 2000  # lines whose scores fit the cache

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


class LineScorer:
    """The automaton that finds n-grams, and their log-probabilities in each language.

    Attributes:
        languages: code of each column; a language of two scripts has two.
        table: log-probability of each n-gram (F + 1, L), float32; the last row, of no n-gram, is 0.
    """

    def __init__(self, detector: Detector) -> None:
        library = detector.library
        self.languages = list(library.nb_classes)
        probabilities = np.asarray(library.nb_ptc, np.float32)
        self.table = np.ascontiguousarray(np.concatenate([probabilities, np.zeros_like(probabilities[:1])]))
        self._next = np.asarray(library.tk_nextmove)
        self._rows = np.asarray(library.tk_row, np.int64) << 8
        ngrams = np.asarray(library.tk_output, np.int64)
        self._ngrams = np.where(ngrams < 0, len(probabilities), ngrams)

    def count(self, lines: Sequence[str]) -> Array:
        """Return the number of occurrences of each n-gram (F,)."""
        counts = np.zeros(len(self.table), np.int64)
        for start in range(0, len(lines), _BATCH):
            found = [ngrams for _, ngrams in self._walk(_encoded(lines[start : start + _BATCH]))]
            counts += np.bincount(np.concatenate([np.zeros(0, np.int64), *found]), minlength=len(counts))
        return counts[:-1]

    def score(self, lines: Sequence[str], table: Array) -> Array:
        """Return sums of a table (F + 1, L) over the n-grams of each line (N, L), float32.

        As in py3langid, they are divided by the square root of the number of bytes. A softmax gives its confidence,
        except in lines that repeat an n-gram.
        """
        scores = np.empty((len(lines), table.shape[1]), np.float32)
        for start in range(0, len(lines), _BATCH):
            data = _encoded(lines[start : start + _BATCH])
            sums = np.zeros((len(data), table.shape[1]), np.float32)
            for rows, ngrams in self._walk(data):
                found = ngrams < len(self.table) - 1
                sums[rows[found]] += table[ngrams[found]]
            size = np.array([max(1, len(line)) for line in data], np.float32)
            scores[start : start + _BATCH] = sums * (np.log(2) / np.sqrt(size))[:, None]
        return scores

    def _walk(self, lines: list[bytes]) -> Iterator[tuple[Array, Array]]:
        """Yield for each position the lines that reach it, and the n-gram that ends there, or F for none."""
        sizes = np.array([len(line) for line in lines], np.int64)
        order = np.argsort(-sizes, kind="stable")
        values = np.zeros((len(lines), MAX_BYTES), np.uint8)
        values[np.arange(MAX_BYTES) < sizes[:, None]] = np.frombuffer(b"".join(lines), np.uint8)
        values = np.ascontiguousarray(values[order].T)
        states = np.zeros(len(lines), np.int64)
        for position, active in enumerate(np.searchsorted(-sizes[order], -np.arange(MAX_BYTES)).tolist()):
            if not active:
                return
            states[:active] = self._next[self._rows[states[:active]] + values[position, :active]]
            yield order[:active], self._ngrams[states[:active]]


def confidences(scores: Array) -> Array:
    """Return the softmax of the scores of each line (N, L)."""
    odds: Array = np.exp(scores - scores.max(axis=1, keepdims=True))
    odds /= odds.sum(axis=1, keepdims=True)
    return odds


def _encoded(lines: Sequence[str]) -> list[bytes]:
    cut = (line[:MAX_BYTES] for line in lines)
    return [nfc(line.lower() if line.isupper() else line).encode(errors="surrogatepass")[:MAX_BYTES] for line in cut]


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

    A short line is judged together with its neighbours, and only if it seems to be in their language itself.
    """
    if undetectable(languages[side]):
        return
    base, scorer = base_language(languages[side]), scorer_for(*languages)
    scores = scorer.score(lines, scorer.table)
    size = np.sqrt([[len(line.encode()[:MAX_BYTES])] for line in lines], dtype=np.float32)
    expected = np.array([code == base for code in scorer.languages])
    best, share, is_clear = _judged(scores, expected, _MIN_CONFIDENCE)
    window_scores = _windows(scores * size) / np.sqrt(_windows(size**2) + 1)
    around, share_around, is_clear_around = _judged(window_scores, expected, _MIN_AROUND)
    by_context = is_clear_around & (best == around)
    for line in np.flatnonzero(is_clear | by_context).tolist():
        code, letters = scorer.languages[best[line]], sum(map(str.isalpha, lines[line]))
        alone = is_clear[line] and letters >= (_MIN_SYLLABLES if base in _SYLLABIC else _MIN_LETTERS)
        if letters and (alone or by_context[line]) and code != base and not confusable(code, base):
            yield line, f"{code}, {100 * (share if alone else share_around)[line]:.0f} %"


def _judged(scores: Array, expected: Array, minimum: float) -> tuple[Array, Array, Array]:
    """Return the best column of scores (N, L), its confidence, and whether that is clear (N,): not `expected` (L,)."""
    shares = confidences(scores)
    best = shares.max(axis=1)
    return shares.argmax(axis=1), best, (best >= minimum) & (shares[:, expected].sum(axis=1) <= _MAX_EXPECTED)


def _windows(values: Array) -> Array:
    """Return the sums of each row of (N, L) and its neighbours."""
    sums = np.cumsum(np.pad(values.astype(np.float64), ((_NEIGHBOURS + 1, _NEIGHBOURS), (0, 0))), axis=0)
    return sums[2 * _NEIGHBOURS + 1 :] - sums[: -2 * _NEIGHBOURS - 1]


def scorer_for(*languages: str) -> LineScorer:
    """Return a scorer of the common languages, and of these if py3langid knows them."""
    unlisted = set(map(base_language, languages)) - set(LANGUAGE_NAMES)
    return _scorer(*sorted(unlisted.intersection(known_languages())))


@cache
def _scorer(*codes: str) -> LineScorer:
    return LineScorer(Detector(codes))
