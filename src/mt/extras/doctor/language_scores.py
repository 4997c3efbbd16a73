"""Language scores of many lines at once, with the byte n-grams of py3langid.

py3langid looks at one text at a time, in 40 microseconds or more. Here its automaton walks through thousands of lines
in step, which takes 3 microseconds a line.

    N lines   F byte n-grams   L languages
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mt.text.language_id import Detector
from mt.text.lines import nfc

Array = NDArray[Any]

MAX_BYTES = 120  # of a line, which are enough
_BATCH = 2000  # lines whose scores fit the cache


class LineScorer:
    """The automaton that finds n-grams, and their log-probabilities in each language.

    Attributes:
        languages: code of each column; a language of two scripts has two.
        table: log-probability of each n-gram (F + 1, L), float32; the last row, of no n-gram, is 0.
    """

    def __init__(self, detector: Detector) -> None:
        library = detector.library()
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

        As in py3langid, they are divided by the root of the number of bytes: a softmax gives its confidence, but for
        n-grams that repeat within a line.
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
        letters = np.zeros((len(lines), MAX_BYTES), np.uint8)
        letters[np.arange(MAX_BYTES) < sizes[:, None]] = np.frombuffer(b"".join(lines), np.uint8)
        letters = np.ascontiguousarray(letters[order].T)
        states = np.zeros(len(lines), np.int64)
        for position, active in enumerate(np.searchsorted(-sizes[order], -np.arange(MAX_BYTES)).tolist()):
            if not active:
                return
            states[:active] = self._next[self._rows[states[:active]] + letters[position, :active]]
            yield order[:active], self._ngrams[states[:active]]


def confidences(scores: Array) -> Array:
    """Return the softmax of the scores of each line (N, L)."""
    odds: Array = np.exp(scores - scores.max(axis=1, keepdims=True))
    odds /= odds.sum(axis=1, keepdims=True)
    return odds


def _encoded(lines: Sequence[str]) -> list[bytes]:
    cut = (line[:MAX_BYTES] for line in lines)
    return [nfc(line.lower() if line.isupper() else line).encode(errors="surrogatepass")[:MAX_BYTES] for line in cut]
