"""Word alignment of a parallel text: hidden Markov models of both directions, and their symmetrisation.

The words of one side are the states that emit those of the other, and a jump's probability depends on its width (Vogel
et al. 1996, https://aclanthology.org/C96-2141). Both models learn from the product of their posteriors, so that they
agree (Liang et al. 2006, https://aclanthology.org/N06-1014). IBM Model 1 gives the first probabilities.

    N sentence pairs   S, T words of source and target   P pairs of words in one sentence pair, U distinct ones
    H states, O words that they emit: source and target, or the reverse   B sentence pairs of a batch   W widest jump
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from mt.console import log
from mt.data.ragged import Array, Ragged, blocks, positions_in, value_pairs
from mt.data.shortlist import model_1

Links = list[tuple[int, int]]  # (source word, target word) of a sentence pair

_ITERATIONS = 5
_MAX_PAIRS = 10_000_000  # that the models learn from; some 100 bytes each at the peak
_MAX_WORDS = 100  # of a sentence to learn from
_MAX_ALIGNED = 1000  # words of a sentence with links; time grows with their cube
_CELLS = 2**18  # B * O * H of a batch
_NULL = 0.1  # probability that a word has no counterpart
_UNSEEN = 1e-7  # probability of a translation that was not seen
_WIDEST = 50  # jump; wider ones count as this one
_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def align_words(source: Ragged, target: Ragged) -> Iterator[Links]:
    """Learn to align a parallel text, given as the ids of its words; yield the links of each sentence pair in order.

    Pairs with a very long sentence get no links, and a warning counts them.
    """
    sizes = np.stack([np.diff(source.starts), np.diff(target.starts)])
    usable = np.flatnonzero((sizes.min(axis=0, initial=1) > 0) & (sizes.max(axis=0, initial=0) <= _MAX_WORDS))
    stride = max(1, -(-int(sizes[:, usable].prod(axis=0).sum()) // _MAX_PAIRS))
    vocab = tuple(int(side.values.max(initial=0)) + 1 for side in (source, target))
    aligner = _Aligner(source.select(usable[::stride]), target.select(usable[::stride]), vocab)
    is_long = sizes.max(axis=0, initial=0) > _MAX_ALIGNED
    if is_long.any():
        message = "%s of %s pairs have more than %s words on one side and get no links; the first is pair %s"
        log.warning(message, *(f"{n:,}" for n in (is_long.sum(), len(is_long), _MAX_ALIGNED, is_long.argmax() + 1)))
    for block in blocks(np.where(is_long, 0, sizes.prod(axis=0)), _MAX_PAIRS):
        kept = block[~is_long[block]]
        links = aligner.align(source.select(kept), target.select(kept))
        yield from ([] if skipped else next(links) for skipped in is_long[block])


def grow_diag_final_and(forward: set[tuple[int, int]], backward: set[tuple[int, int]]) -> Links:
    """Symmetrise the links of both directions (Koehn et al. 2003, https://aclanthology.org/N03-1017), as Moses does."""
    union, links = forward | backward, sorted(forward & backward)
    linked = set(links)
    sources, targets = {s for s, _ in links}, {t for _, t in links}

    def add(link: tuple[int, int]) -> None:
        linked.add(link)
        links.append(link)
        sources.add(link[0])
        targets.add(link[1])

    for s, t in links:  # the list grows in the loop
        for down, right in _NEIGHBOURS:
            new = s + down, t + right
            if new in union and new not in linked and (new[0] not in sources or new[1] not in targets):
                add(new)
    for direction in (forward, backward):
        for link in sorted(direction):
            if link[0] not in sources and link[1] not in targets:
                add(link)
    return sorted(links)


class _Batch(NamedTuple):
    """Sentence pairs with the same number of states H."""

    cells: Array  # (B, O, H), the number of each pair of words
    words: Array  # (B, O), the number of each emitted word
    is_word: Array  # (B, O), False at padding


class _Text:
    """Sentence pairs with the pairs of their words, numbered sentence by sentence and target word by target word."""

    def __init__(self, source: Ragged, target: Ragged) -> None:
        self.sides = source, target
        self.sizes = np.diff(source.starts), np.diff(target.starts)
        self.starts = np.concatenate([[0], np.cumsum(self.sizes[0] * self.sizes[1])])
        self.words = value_pairs(source, target)  # (P,) each

    def batches(self, states: int) -> Iterator[_Batch]:
        """Yield all sentence pairs without an empty side in batches; the states are the words of side 0 or 1."""
        n_states, n_words = self.sizes[states], self.sizes[1 - states]
        order = np.lexsort((n_words, n_states))
        order = order[(n_states[order] > 0) & (n_words[order] > 0)]
        steps = self.sizes[0], np.ones_like(self.sizes[0])  # between two target words, and two source words
        start = 0
        while start < len(order):
            size = int(n_states[order[start]])
            end = start + int(np.searchsorted(n_states[order[start:]], size, side="right"))
            end = min(end, start + max(1, _CELLS // (size * int(n_words[order[end - 1]]))))
            rows = order[start:end]
            emitted = np.arange(n_words[rows[-1]])
            is_word = emitted < n_words[rows, None]
            emitted = np.minimum(emitted, n_words[rows, None] - 1)
            cells = self.starts[rows, None] + emitted * steps[states][rows, None]
            cells = cells[:, :, None] + np.arange(size) * steps[1 - states][rows, None, None]
            yield _Batch(cells, self.sides[1 - states].starts[rows, None] + emitted, is_word)
            start = end


@dataclass
class _Direction:
    """The model of one direction."""

    states: int  # the side of the states, 0 or 1
    table: Array  # (U + 1,), the probability of each distinct pair's emitted word given its state; last, of any other
    null: Array  # by word id, the probability of each word among emitted words without a counterpart
    jumps: Array  # (2 W + 1,), the weight of each jump of -W to W words

    def expectations(self, text: _Text, index: Array) -> tuple[Array, Array, Array]:
        """Return the posteriors of all pairs (P,), of no counterpart for each emitted word, and the expected jumps."""
        pairs, nulls = np.zeros(len(index)), np.ones(len(text.sides[1 - self.states].values))
        jumps = np.zeros_like(self.jumps)
        for batch, aligned, unaligned, transitions in self._posteriors(text, index):
            pairs[batch.cells[batch.is_word]] = aligned[batch.is_word]
            nulls[batch.words[batch.is_word]] = unaligned[batch.is_word]
            jumps += np.bincount(_widths(len(transitions)).ravel(), transitions.ravel(), len(jumps))
        return pairs, nulls, jumps

    def best(self, text: _Text, index: Array) -> Array:
        """Return the likeliest state of each emitted word, counted in its sentence; -1 if it has no counterpart."""
        states = np.full(len(text.sides[1 - self.states].values), -1)
        for batch, aligned, unaligned, _ in self._posteriors(text, index):
            chosen = np.where(aligned.max(axis=2) > unaligned, aligned.argmax(axis=2), -1)
            states[batch.words[batch.is_word]] = chosen[batch.is_word]
        return states

    def _posteriors(self, text: _Text, index: Array) -> Iterator[tuple[_Batch, Array, Array, Array]]:
        for batch in text.batches(self.states):
            emission = np.where(batch.is_word[:, :, None], self.table[index[batch.cells]], 1.0)
            null = np.where(batch.is_word, self.null[text.sides[1 - self.states].values[batch.words]], 1.0)
            yield batch, *self._forward_backward(emission, null, batch.is_word)

    def _forward_backward(self, emission: Array, null: Array, is_word: Array) -> tuple[Array, Array, Array]:
        """Return the posteriors of states (B, O, H), of no counterpart (B, O), and the expected transitions (H, H).

        Each state has a twin that emits unaligned words and remembers the state for the next jump (Och and Ney 2003).
        """
        n_words, n_states = emission.shape[1:]
        transitions = self.jumps[_widths(n_states)]
        transitions /= transitions.sum(axis=1, keepdims=True)
        first = self.jumps[_WIDEST + 1 :][np.minimum(np.arange(n_states), _WIDEST - 1)]
        alpha = np.broadcast_to(first / first.sum(), emission[:, 0].shape)  # forward probability of a state or its twin
        aligned, unaligned, alphas, scales = np.empty_like(emission), np.empty_like(emission), [], []
        for o in range(n_words):
            alphas.append(alpha)
            aligned[:, o] = (1 - _NULL) * emission[:, o] * (alpha @ transitions if o else alpha)
            unaligned[:, o] = _NULL * null[:, o, None] * alpha
            alpha = aligned[:, o] + unaligned[:, o]
            scales.append(alpha.sum(axis=1, keepdims=True))
            aligned[:, o] /= scales[o]
            unaligned[:, o] /= scales[o]
            alpha = alpha / scales[o]
        beta, expected = np.ones_like(alpha), np.zeros_like(transitions)
        for o in reversed(range(n_words)):
            aligned[:, o] *= beta
            unaligned[:, o] *= beta
            emitted = (1 - _NULL) * emission[:, o] * beta / scales[o]
            if o:
                expected += alphas[o].T @ (emitted * is_word[:, o, None])
            beta = emitted @ transitions.T + _NULL * null[:, o, None] * beta / scales[o]
        return aligned, unaligned.sum(axis=2), expected * transitions


def _widths(n_states: int) -> Array:
    """Return the index in `_Direction.jumps` of the jump from each state to each other (H, H)."""
    places = np.arange(n_states)
    widths: Array = np.clip(places - places[:, None], -_WIDEST, _WIDEST) + _WIDEST
    return widths


class _Aligner:
    """Models of both directions, learned from a text of word ids; `vocab` has the sizes of the vocabularies."""

    def __init__(self, source: Ragged, target: Ragged, vocab: tuple[int, ...]) -> None:
        text, self._n_targets = _Text(source, target), vocab[1]
        self._codes, index = np.unique(self._code(text), return_inverse=True)
        words = self._codes // self._n_targets, self._codes % self._n_targets
        jumps = np.exp(-np.abs(np.arange(-_WIDEST, _WIDEST + 1) - 1) / 2) + 1e-3
        self._directions = []
        for states in range(2):
            frequency = np.bincount(text.sides[1 - states].values, minlength=vocab[1 - states]) + 0.01
            table = np.append(model_1(words[states], [(index, text.words[1 - states])]), _UNSEEN)
            self._directions.append(_Direction(states, table, frequency / frequency.sum(), jumps))
        for _ in range(_ITERATIONS if len(index) else 0):
            expected = [direction.expectations(text, index) for direction in self._directions]
            counts = np.bincount(index, expected[0][0] * expected[1][0], len(self._codes))
            for direction, (_, nulls, jumps) in zip(self._directions, expected, strict=True):
                state_words, emitted = words[direction.states], text.sides[1 - direction.states].values
                totals = np.maximum(np.bincount(state_words, counts), 1e-12)
                direction.table[:-1] = np.maximum(counts / totals[state_words], _UNSEEN)
                null = np.bincount(emitted, nulls, len(direction.null)) + 0.01
                direction.null = null / null.sum()
                direction.jumps = jumps / max(jumps.sum(), 1.0) + 1e-4

    def align(self, source: Ragged, target: Ragged) -> Iterator[Links]:
        """Yield the links of each sentence pair."""
        text = _Text(source, target)
        index = positions_in(self._code(text), self._codes)  # -1, a pair not seen, takes the last probability
        source_words, target_words = (direction.best(text, index).tolist() for direction in self._directions)
        bounds = zip(pairwise(source.starts.tolist()), pairwise(target.starts.tolist()), strict=True)
        for (src_start, src_end), (tgt_start, tgt_end) in bounds:
            forward = {(s, t) for t, s in enumerate(source_words[tgt_start:tgt_end]) if s >= 0}
            backward = {(s, t) for s, t in enumerate(target_words[src_start:src_end]) if t >= 0}
            yield grow_diag_final_and(forward, backward)

    def _code(self, text: _Text) -> Array:
        """Return a number for the words of each pair (P,)."""
        src, tgt = (side.values[words].astype(np.int64) for side, words in zip(text.sides, text.words, strict=True))
        codes: Array = src * self._n_targets + tgt
        return codes
