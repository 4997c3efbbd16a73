"""Lexical shortlists: the target pieces that a source piece allows in a translation.

Searching a few hundred likely pieces instead of the whole vocabulary saves most of the output layer (Jean et al. 2015,
arXiv:1412.2007, section 3.3). The lists come from IBM Model 1 (Brown et al. 1993, "The Mathematics of Statistical
Machine Translation") on the training text.

    P pairs of a source and a target token in one sentence pair   U distinct ones among them
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mt.data.token_store import SIDES, EncodedCorpus
from mt.data.tokenizer import SPECIALS, TokenizerPair

Array = NDArray[Any]

_ITERATIONS = 5
_ALWAYS = 200  # the most frequent target pieces, which any sentence may need
_MAX_PAIRS = 15_000_000  # token pairs, 62 bytes each at the peak
_SENTENCES_AT_ONCE = 2**20


@dataclass(frozen=True)
class Shortlist:
    """Target ids that are always allowed, and those that each source id allows."""

    always: list[int]
    by_source: dict[int, list[int]]


def make_shortlist(corpus: EncodedCorpus, size: int, tokenizers: TokenizerPair) -> Shortlist:
    """Align a corpus and list each source piece's likeliest translations.

    Args:
        corpus: the training text; a large one is sampled at even distances.
        size: the maximum number of target pieces for a source piece.
        tokenizers: in a shared vocabulary each piece lists itself, so that names can be copied; in separate ones only
            bytes do.
    """
    sources, targets, positions = _token_pairs(corpus)
    vocab = int(targets.max(initial=0)) + 1
    codes, pair_index = np.unique(sources.astype(np.int64) * vocab + targets, return_inverse=True)
    probabilities = model_1(codes // vocab, pair_index, positions)

    order = np.lexsort((-probabilities, codes // vocab))
    shared = range(len(SPECIALS), tokenizers.source.vocab_size)
    copies = (shared, shared) if tokenizers.shared else (tokenizers.source.byte_ids, tokenizers.target.byte_ids)
    by_source = {source: [target] for source, target in zip(*copies, strict=False)}  # a model may have no bytes
    for source, target in zip((codes[order] // vocab).tolist(), (codes[order] % vocab).tolist(), strict=True):
        pieces = by_source.setdefault(source, [])
        if len(pieces) < size and target not in pieces:
            pieces.append(target)
    frequent: list[int] = np.argsort(-np.bincount(targets, minlength=vocab), kind="stable")[:_ALWAYS].tolist()
    return Shortlist(frequent, by_source)


def _token_pairs(corpus: EncodedCorpus) -> tuple[Array, Array, Array]:
    """Return the source id, the target id and the number of the target token of each pair, each (P,)."""
    n_pairs = 0
    for start in range(0, len(corpus), _SENTENCES_AT_ONCE):  # bounds the memory for lengths
        n_src, n_tgt = corpus.lengths(np.arange(start, min(start + _SENTENCES_AT_ONCE, len(corpus))))
        n_pairs += int(((n_src - 2) * (n_tgt - 1)).sum())
    stride = max(1, -(-n_pairs // _MAX_PAIRS))
    columns, n_tokens = [], 0
    for sentence in range(0, len(corpus), stride):
        source, target = (corpus.gather(side, np.array([sentence]))[0][0].astype(np.int32) for side in SIDES)
        numbers = np.arange(n_tokens, n_tokens + len(target), dtype=np.int32)
        n_tokens += len(target)
        columns.append((np.repeat(source, len(target)), np.tile(target, len(source)), np.tile(numbers, len(source))))
    return tuple(np.concatenate(column) for column in zip(*columns, strict=True))  # type: ignore[return-value]


def model_1(sources: Array, pair_index: Array, positions: Array) -> Array:
    """Estimate translation probabilities of target given source (U,) by expectation maximisation.

    Distinct pairs have source ids (U,); `pair_index` (P,) maps pairs to them, `positions` (P,) to target tokens.
    """
    probabilities = np.ones(len(sources))
    for _ in range(_ITERATIONS):
        shares = probabilities[pair_index]
        shares /= np.bincount(positions, weights=shares)[positions]
        expected = np.bincount(pair_index, weights=shares, minlength=len(sources))
        probabilities = expected / np.bincount(sources, weights=expected)[sources]
    return probabilities
