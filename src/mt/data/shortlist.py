"""Lexical shortlists: the target pieces that a source piece allows in a translation.

Searching a few hundred likely pieces instead of the whole vocabulary saves most of the output layer (Jean et al. 2015,
arXiv:1412.2007, section 3.3). The lists come from IBM Model 1 (Brown et al. 1993, "The Mathematics of Statistical
Machine Translation") on the training text.

    P pairs of a source and a target token in one sentence pair   U distinct ones among them
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mt.data.ragged import Array, Ragged, blocks, indexed, top_of_each, value_pairs
from mt.data.token_store import SIDES, EncodedCorpus
from mt.data.tokenizer import SPECIALS
from mt.data.tokenizer_kinds import TokenizerPair

_ITERATIONS = 5
_ALWAYS = 200  # the most frequent target pieces, which any sentence may need
_MAX_PAIRS = 120_000_000  # token pairs; half have a frequent target piece, the others take 8 bytes each
_PAIRS_AT_ONCE = 4_000_000  # some 60 bytes each
_SENTENCES_AT_ONCE = 2**20


@dataclass(frozen=True)
class Shortlist:
    """Target ids that are always allowed, and those that each source id allows in addition."""

    always: list[int]
    by_source: dict[int, list[int]]


def make_shortlist(corpus: EncodedCorpus, size: int, tokenizers: TokenizerPair) -> Shortlist:
    """Align a corpus and list each source piece's `size` likeliest translations, beyond those always allowed.

    A large corpus is sampled at even distances. In a shared vocabulary each piece lists itself, so that names can be
    copied; in separate ones only bytes do.
    """
    sample = _sample(corpus)
    vocab = tokenizers.target.vocab_size
    counts = np.bincount(sample.sides["target"].values, minlength=vocab)
    always = np.argsort(-counts, kind="stable")[: min(_ALWAYS, np.count_nonzero(counts))]
    codes, pairs = indexed(_token_pairs(sample, always, vocab))
    sources, targets = np.divmod(codes, vocab)
    best = top_of_each(sources, model_1(sources, pairs), size)

    shared = range(len(SPECIALS), tokenizers.source.vocab_size)
    copies = (shared, shared) if tokenizers.shared else (tokenizers.source.byte_ids, tokenizers.target.byte_ids)
    by_source = {source: [target] for source, target in zip(*copies, strict=False)}  # a model may have no bytes
    for source, target in zip(sources[best].tolist(), targets[best].tolist(), strict=True):
        pieces = by_source.setdefault(source, [])
        if len(pieces) < size and target not in pieces:
            pieces.append(target)
    return Shortlist(always.tolist(), by_source)


def _sample(corpus: EncodedCorpus) -> EncodedCorpus:
    n_pairs, bounds = 0, [corpus.sides[side].starts for side in SIDES]
    for first in range(0, len(corpus), _SENTENCES_AT_ONCE):  # bounds the memory for lengths
        n_src, n_tgt = (np.diff(starts[first : first + _SENTENCES_AT_ONCE + 1]) for starts in bounds)
        n_pairs += int(n_src @ n_tgt)
    return corpus.select(np.arange(0, len(corpus), max(1, -(-n_pairs // _MAX_PAIRS))))


def _token_pairs(corpus: EncodedCorpus, frequent: Array, vocab: int) -> Iterator[tuple[Array, Array]]:
    """Yield block by block the pairs (P,) whose target is not frequent: source * vocab + target, and the target token.

    Target tokens are numbered from 0 in each block. Those that are always allowed need no lists.
    """
    source, target = (corpus.sides[side] for side in SIDES)
    is_rare = ~np.isin(target.values, frequent)
    rare = Ragged(target.values[is_rare], np.concatenate([[0], np.cumsum(is_rare)])[target.starts])
    for block in blocks(np.diff(source.starts) * np.diff(rare.starts), _PAIRS_AT_ONCE):
        sources, targets = source.select(block), rare.select(block)
        places, tokens = value_pairs(sources, targets)
        codes = sources.values[places].astype(np.int64) * vocab + targets.values[tokens]
        yield codes, tokens.astype(np.int32)


def model_1(sources: Array, pairs: Sequence[tuple[Array, Array]]) -> Array:
    """Estimate translation probabilities of target given source (U,) by expectation maximisation.

    Args:
        sources: (U,), the source ids of the distinct pairs of a source and a target token.
        pairs: for the pairs (P,) of some sentences, their indices in `sources`, and the numbers of the target tokens.
    """
    probabilities = np.ones(len(sources))
    for _ in range(_ITERATIONS):
        expected = np.zeros(len(sources))
        for index, tokens in pairs:
            shares = probabilities[index]
            shares /= np.bincount(tokens, weights=shares)[tokens]
            expected += np.bincount(index, weights=shares, minlength=len(sources))
        probabilities = expected / np.bincount(sources, weights=expected)[sources]
    return probabilities
