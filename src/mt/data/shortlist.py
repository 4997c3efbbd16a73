"""Lexical shortlists: which target pieces a source piece may bring into a translation.

A search that looks at a few hundred likely pieces instead of the whole vocabulary saves most of the output layer (Jean
et al. 2015, arXiv:1412.2007, section 3.3). The lists come from IBM Model 1 (Brown et al. 1993, "The Mathematics of
Statistical Machine Translation") on the training text.

    P pairs of a source and a target token in one sentence pair   U distinct ones among them
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mt.data.token_store import EncodedCorpus
from mt.data.tokenizer import BYTES, SPECIALS

Array = NDArray[Any]

_ITERATIONS = 5
_ALWAYS = 200  # the most frequent target pieces, which any sentence may need
_UNLIKELY = 1e-3  # translations below this probability are noise
_MOST_PAIRS = 15_000_000  # of tokens looked at, 62 bytes each at the peak
_AT_A_TIME = 2**20  # sentences


@dataclass(frozen=True)
class Shortlist:
    """Target ids: those that are always possible, and those that each source id makes possible."""

    always: list[int]
    by_source: dict[int, list[int]]


def make_shortlist(corpus: EncodedCorpus, size: int, shared_vocab_size: int | None) -> Shortlist:
    """Aligns a corpus and lists each source piece's likeliest translations.

    Args:
        corpus: the training text; of a large one, sentences at even distances are looked at.
        size: the most target pieces a source piece lists.
        shared_vocab_size: pieces of the vocabulary that both sides share; None where each has its own. Of a shared one
            each piece lists itself, so that names can be copied. Bytes, which are the same in all, always do.
    """
    sources, targets, positions = _token_pairs(corpus)
    vocab = int(targets.max(initial=0)) + 1
    codes, which = np.unique(sources.astype(np.int64) * vocab + targets, return_inverse=True)
    probabilities = _model_1(codes // vocab, which, positions)

    order = np.lexsort((-probabilities, codes // vocab))
    order = order[probabilities[order] >= _UNLIKELY]
    itself = range(len(SPECIALS), shared_vocab_size or len(SPECIALS) + len(BYTES))
    by_source = {piece: [piece] for piece in itself}
    for source, target in zip((codes[order] // vocab).tolist(), (codes[order] % vocab).tolist(), strict=True):
        chosen = by_source.setdefault(source, [])
        if len(chosen) < size and target not in chosen:
            chosen.append(target)
    return Shortlist(_most_frequent(targets, vocab), by_source)


def _most_frequent(targets: Array, vocab: int) -> list[int]:
    counts = np.bincount(targets, minlength=vocab)
    frequent: list[int] = np.argsort(-counts, kind="stable")[:_ALWAYS].tolist()
    return frequent


def _token_pairs(corpus: EncodedCorpus) -> tuple[Array, Array, Array]:
    """Source ids, target ids, and which target token of the corpus it is, each (P,)."""
    n_pairs = 0
    for start in range(0, len(corpus), _AT_A_TIME):  # the lengths of all of a large corpus would need its memory
        n_src, n_tgt = corpus.lengths(np.arange(start, min(start + _AT_A_TIME, len(corpus))))
        n_pairs += int(((n_src - 2) * (n_tgt - 1)).sum())
    step = max(1, -(-n_pairs // _MOST_PAIRS))
    parts, tokens = [], 0
    for sentence in range(0, len(corpus), step):
        one = np.array([sentence])
        source, target = (corpus.gather(side, one)[0][0].astype(np.int32) for side in ("source", "target"))
        places = np.arange(tokens, tokens + len(target), dtype=np.int32)
        tokens += len(target)
        parts.append((np.repeat(source, len(target)), np.tile(target, len(source)), np.tile(places, len(source))))
    return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))  # type: ignore[return-value]


def _model_1(sources: Array, which: Array, positions: Array) -> Array:
    """Translation probabilities of target given source (U,), by expectation maximisation.

    Args:
        sources: (U,), the source id of each distinct pair.
        which: (P,), which distinct pair each pair is.
        positions: (P,), the target token each pair explains.
    """
    probabilities = np.ones(len(sources))
    for _ in range(_ITERATIONS):
        shares = probabilities[which]
        shares /= np.bincount(positions, weights=shares)[positions]
        expected = np.bincount(which, weights=shares, minlength=len(sources))
        probabilities = expected / np.bincount(sources, weights=expected)[sources]
    return probabilities
