"""Sentence-level chrF and BLEU of all pairs of a list of sentences, equal to sacreBLEU's.

    N sentences   R references, which are some of them

Minimum Bayes risk decoding needs N * N scores per line, but sacreBLEU scores one pair at a time. Both metrics depend
only on the n-grams that two sentences share, so all pairs are counted at once.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a
from sacrebleu.tokenizers.tokenizer_char import TokenizerChar

from mt.metrics.scores import bleu_tokenizer

Matrix = NDArray[np.float64]

_CHRF_ORDER, _BETA = 6, 2
_BLEU_ORDER = 4
_NGRAMS_AT_ONCE = 4096  # in memory as a matrix
_ALL = slice(None)


def chrf(sentences: Sequence[str], references: slice = _ALL) -> Matrix:
    """Return chrF2 (Popovic 2015), 0 to 100, of each sentence (row) against each as reference (column), (N, N).

    With a slice of R sentences as `references`, there are columns for these only, (N, R).
    """
    texts = ["".join(sentence.split()) for sentence in sentences]
    precision, recall, orders = np.zeros((3, len(texts), len(texts[references])))
    for order in range(1, _CHRF_ORDER + 1):
        shared, totals = _shared_ngrams(texts, order, references)
        hypothesis, reference = totals[:, None], totals[None, references]
        # As in sacreBLEU, an order counts where both sentences are long enough for it.
        counts = (hypothesis > 0) & (reference > 0)
        precision += np.where(counts, shared / np.maximum(hypothesis, 1), 0)
        recall += np.where(counts, shared / np.maximum(reference, 1), 0)
        orders += counts
    precision, recall = precision / np.maximum(orders, 1), recall / np.maximum(orders, 1)
    divisor = _BETA**2 * precision + recall
    return 100 * ((1 + _BETA**2) * precision * recall / np.where(divisor > 0, divisor, 1))


def bleu(sentences: Sequence[str], references: slice = _ALL, characters: bool = False) -> Matrix:
    """Return sentence BLEU, 0 to 100, (N, R) as `chrf`, with exponential smoothing and effective order.

    Args:
        sentences: raw text.
        references: the sentences that are columns.
        characters: compare characters, for languages without spaces; otherwise words as the 13a tokenizer splits them.
    """
    tokenize = (TokenizerChar if characters else Tokenizer13a)()
    words = [tuple(tokenize(sentence).split()) for sentence in sentences]
    size = len(words), len(words[references])
    log_precision, orders, smoothing = np.zeros(size), np.zeros((len(words), 1)), np.ones(size)
    any_shared = np.zeros(size, dtype=bool)
    for order in range(1, _BLEU_ORDER + 1):
        shared, totals = _shared_ngrams(words, order, references)
        total = totals[:, None]
        smoothing = np.where((shared == 0) & (total > 0), 2 * smoothing, smoothing)
        matched = np.where(shared > 0, shared, 1 / smoothing)
        log_precision += np.where(total > 0, np.log(matched / np.maximum(total, 1)), 0)
        orders += total > 0
        any_shared |= shared > 0
    lengths = np.array([len(sentence) for sentence in words], dtype=float)
    brevity = np.exp(np.minimum(0, 1 - lengths[None, references] / np.maximum(lengths[:, None], 1e-9)))
    return 100 * np.where(any_shared, brevity * np.exp(log_precision / np.maximum(orders, 1)), 0)


def _shared_ngrams(sentences: Sequence[Sequence[Hashable]], order: int, references: slice) -> tuple[Matrix, Matrix]:
    """Return the numbers of n-grams that sentences and references share (N, R), and that each sentence has (N,)."""
    owners = defaultdict[Hashable, list[int]](list)  # the sentences that have an n-gram once, twice, ...
    for row, sentence in enumerate(sentences):
        counts = Counter(sentence[i : i + order] for i in range(len(sentence) - order + 1))
        for ngram, count in counts.items():
            for number in range(count):
                owners[ngram, number].append(row)
    totals = np.array([max(0.0, len(sentence) - order + 1) for sentence in sentences])
    several = [rows for rows in owners.values() if len(rows) > 1]
    shared = np.zeros((len(sentences), len(totals[references])))
    for start in range(0, len(several), _NGRAMS_AT_ONCE):
        has = np.zeros((len(sentences), _NGRAMS_AT_ONCE), np.float32)
        for column, rows in enumerate(several[start : start + _NGRAMS_AT_ONCE]):
            has[rows, column] = 1
        shared += has @ has[references].T
    own = np.arange(len(totals))[references]  # a sentence shares all of its own
    shared[own, range(len(own))] = totals[own]
    return shared, totals


UTILITIES: dict[str, Callable[..., Matrix]] = {
    "chrf": chrf,
    "bleu": bleu,
    "character_bleu": partial(bleu, characters=True),
}


def utility_for(name: str, target_lang: str) -> str:
    """Return the utility to use for a language: BLEU compares characters where words are not separated."""
    return "character_bleu" if name == "bleu" and bleu_tokenizer("auto", target_lang) in ("zh", "char") else name


def expected_utility(sentences: Sequence[str], utility: str) -> list[float]:
    """Return the mean utility of each sentence with all of them, itself included, as references."""
    counts = Counter(sentences)
    distinct = list(counts)
    if len(distinct) == 1:
        return [100.0] * len(sentences)
    weights = np.array(list(counts.values())) / len(sentences)
    means = dict(zip(distinct, (UTILITIES[utility](distinct) @ weights).tolist(), strict=True))
    return [means[sentence] for sentence in sentences]
