"""How close sentences are to one another: chrF and BLEU of every pair of a list, as sacreBLEU scores single sentences.

    N sentences   G distinct n-grams of one order

Minimum Bayes risk decoding needs N times N scores for every line, and sacreBLEU takes one pair at a time. Both scores
only need the n-grams that two sentences share, so all pairs of a list are counted at once.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import NDArray
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a
from sacrebleu.tokenizers.tokenizer_char import TokenizerChar

from mt.metrics.scores import bleu_tokenizer

Matrix = NDArray[np.float64]

_CHRF_ORDER, _BETA = 6, 2
_BLEU_ORDER = 4


def chrf(sentences: Sequence[str]) -> Matrix:
    """chrF2 (Popovic 2015) of each sentence (row) against each as reference (column), between 0 and 100; (N, N)."""
    texts = ["".join(sentence.split()) for sentence in sentences]
    precision, recall = np.zeros((2, len(texts), len(texts)))
    orders = np.zeros_like(precision)
    for order in range(1, _CHRF_ORDER + 1):
        shared, totals = _shared(texts, order)
        hypothesis, reference = totals[:, None], totals[None, :]
        # As sacreBLEU has it: an order counts where both sentences are long enough for it.
        counts = (hypothesis > 0) & (reference > 0)
        precision += np.where(counts, shared / np.maximum(hypothesis, 1), 0)
        recall += np.where(counts, shared / np.maximum(reference, 1), 0)
        orders += counts
    precision /= np.maximum(orders, 1)
    recall /= np.maximum(orders, 1)
    below = _BETA**2 * precision + recall
    return 100 * np.where(below > 0, (1 + _BETA**2) * precision * recall / np.where(below > 0, below, 1), 0)


def bleu(sentences: Sequence[str], characters: bool = False) -> Matrix:
    """Sentence BLEU, likewise: exponential smoothing, effective order.

    Args:
        sentences: raw text.
        characters: compare characters, for languages without spaces; otherwise words as the 13a tokenizer cuts them.
    """
    tokenize = (TokenizerChar if characters else Tokenizer13a)()
    words = [tuple(tokenize(sentence).split()) for sentence in sentences]
    size = len(words)
    log_precision, orders, smoothing = np.zeros((size, size)), np.zeros((size, 1)), np.ones((size, size))
    found_any = np.zeros((size, size), dtype=bool)
    for order in range(1, _BLEU_ORDER + 1):
        shared, totals = _shared(words, order)
        total = totals[:, None]
        smoothing = np.where((shared == 0) & (total > 0), 2 * smoothing, smoothing)
        matched = np.where(shared > 0, shared, 1 / smoothing)
        log_precision += np.where(total > 0, np.log(matched / np.maximum(total, 1)), 0)
        orders += total > 0
        found_any |= shared > 0
    lengths = np.array([len(sentence) for sentence in words], dtype=float)
    short = np.exp(np.minimum(0, 1 - lengths[None, :] / np.maximum(lengths[:, None], 1e-9)))
    return 100 * np.where(found_any, short * np.exp(log_precision / np.maximum(orders, 1)), 0)


def _shared(sentences: Sequence[Sequence[Hashable]], order: int) -> tuple[Matrix, Matrix]:
    """How many n-grams of an order each pair of sentences shares (N, N), and how many each has (N,)."""
    counted = [Counter(sentence[i : i + order] for i in range(len(sentence) - order + 1)) for sentence in sentences]
    columns = {gram: i for i, gram in enumerate(dict.fromkeys(gram for counts in counted for gram in counts))}
    counts = np.zeros((len(sentences), len(columns)))
    for row, grams in enumerate(counted):
        for gram, count in grams.items():
            counts[row, columns[gram]] = count
    shared = np.stack([np.minimum(counts, own).sum(axis=1) for own in counts])
    return shared, counts.sum(axis=1)


def character_bleu(sentences: Sequence[str]) -> Matrix:
    """`bleu` of characters."""
    return bleu(sentences, characters=True)


UTILITIES: dict[str, Callable[[Sequence[str]], Matrix]] = {
    "chrf": chrf,
    "bleu": bleu,
    "character_bleu": character_bleu,
}


def utility_for(name: str, target_lang: str) -> str:
    """The utility that a name means for a language: BLEU compares characters where words are not parted."""
    return "character_bleu" if name == "bleu" and bleu_tokenizer("auto", target_lang) in ("zh", "char") else name


def expected(sentences: Sequence[str], utility: str) -> list[float]:
    """The mean utility of each sentence with all of them as references, itself included."""
    distinct = list(dict.fromkeys(sentences))
    weights = Counter(sentences)
    if len(distinct) == 1:
        return [100.0] * len(sentences)
    shares = np.array([weights[sentence] for sentence in distinct]) / len(sentences)
    means = dict(zip(distinct, (UTILITIES[utility](distinct) @ shares).tolist(), strict=True))
    return [means[sentence] for sentence in sentences]
