"""Batches of similar lengths, in an order shuffled by seed and epoch.

    B sentences, S source tokens, T target tokens, N sentences of the corpus

The order is a pure function of (lengths, seed, epoch, window): resuming exactly needs no saved generator state.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mt.data.guided_alignment import Alignments
from mt.data.mixture import Share
from mt.data.ragged import Indices, Lengths
from mt.data.sentence_format import most_ids, sentence_tokens
from mt.data.shuffle import ShuffledWindows
from mt.data.token_store import EncodedCorpus, Ids
from mt.data.tokenizer import EOS_ID, PAD_ID, SOS_ID
from mt.system.distributed import SINGLE_PROCESS, Distributed

# Of a batch. FlashAttention takes fewer than 65,536 sentences, and R-Drop has each of them twice.
_MAX_SENTENCES = 2**15 - 1


class Sentences(Protocol):
    """The sentence pairs of an epoch; `select` loads some of them into memory as token ids."""

    def __len__(self) -> int: ...

    def select(self, indices: Indices) -> EncodedCorpus: ...


class TrainingCorpus(Protocol):
    """A source of sentence pairs whose tokens may differ from epoch to epoch."""

    def in_epoch(self, epoch: int) -> Sentences: ...


@dataclass(frozen=True)
class Batch:
    """A padded batch."""

    src_tokens: NDArray[np.int64]  # (B, S), `<s> tokens </s>`, or as the source format says
    tgt_in: NDArray[np.int64]  # (B, T), `<s> tokens`, the decoder's input
    tgt_out: NDArray[np.int64]  # (B, T), `tokens </s>`, the labels
    n_src: int  # tokens without padding, of all ranks together
    n_tgt: int
    weight: float = 1.0  # 0 for a placeholder on a rank that would otherwise have no sentence
    # (B, T, S), True where a source position is aligned to the input of a target position; for guided alignment.
    aligned: NDArray[np.bool_] | None = None


def plan_epoch(
    src_lengths: Lengths, tgt_lengths: Lengths, max_tokens: int, seed: int, epoch: int, window: int = 0
) -> list[Indices]:
    """Group sentences of similar lengths into batches and shuffle these; return the indices of each batch's sentences.

    Every sentence is in exactly one batch. `max_tokens` limits a batch's sentences times its longest side; a longer
    sentence is a batch by itself. The lengths (N,) are in tokens; seed, epoch and window seed the shuffle.
    """
    rng = np.random.Generator(np.random.PCG64([seed, epoch, window] if window else [seed, epoch]))
    # Source lengths ascend in one target length and descend in the next, so that no batch joins the longest sources of
    # one target length with the shortest of the next. Ties are broken at random.
    snake = np.where(tgt_lengths % 2 == 0, src_lengths, -src_lengths)
    order = np.lexsort((rng.random(len(src_lengths)), snake, tgt_lengths)).astype(np.int64)
    longest = np.maximum(src_lengths, tgt_lengths)[order]
    batches = [order[start:end] for start, end in _cut(longest, max_tokens)]
    return [batches[i] for i in rng.permutation(len(batches))]


def _cut(longest: Lengths, max_tokens: int) -> Iterator[tuple[int, int]]:
    """Cut the sorted sentences greedily into batches as large as the budget allows."""
    start = 0
    while start < len(longest):
        # The first sentence bounds the batch's size; the running maximum then decides.
        most = min(_MAX_SENTENCES, max(1, max_tokens // int(longest[start]) + 1))
        candidates = longest[start : start + most]
        cost = np.maximum.accumulate(candidates) * np.arange(1, len(candidates) + 1)
        end = start + max(1, int(np.searchsorted(cost, max_tokens, side="right")))
        yield start, end
        start = end


def assemble(corpus: EncodedCorpus, indices: Indices, max_length: int | None = None) -> Batch:
    """Build the padded arrays of one batch of the sentences at `indices` (B,).

    Each side is truncated to `max_length` tokens, specials included; None truncates nothing.
    """
    source_format = corpus.source_format
    src, n_src = corpus.gather("source", indices)
    tgt, n_tgt = corpus.gather("target", indices)
    ends_in_ids = source_format.endswith("lang")  # the ids end in EOS and the tag, which truncation keeps
    if max_length is not None:
        n_full, most = n_src, most_ids(max_length, source_format)
        n_src, n_tgt = np.minimum(n_src, most[0]), np.minimum(n_tgt, most[1])
        if ends_in_ids:
            rows, last = np.arange(len(src))[:, None], np.array([2, 1])
            src[rows, n_src[:, None] - last] = src[rows, n_full[:, None] - last]
    src_tokens = _frame(src, n_src, source_format.startswith("<s>"), not ends_in_ids)
    tgt_in, tgt_out = _frame(tgt, n_tgt, ends=False), _frame(tgt, n_tgt, begins=False)
    n_src, n_tgt = sentence_tokens(n_src, n_tgt, source_format)
    return Batch(src_tokens, tgt_in, tgt_out, int(n_src.sum()), int(n_tgt.sum()))


def _frame(ids: Ids, lengths: Lengths, begins: bool = True, ends: bool = True) -> Indices:
    """Return `<s> tokens </s>` of sentences (B, L), or without one of these specials, padded to one length."""
    longest = int(lengths.max())
    framed = np.full((len(ids), begins + longest + ends), PAD_ID, dtype=np.int64)
    is_token = np.arange(longest) < lengths[:, None]
    framed[:, begins : begins + longest][is_token] = ids[:, :longest][is_token]
    framed[:, :begins] = SOS_ID
    if ends:
        framed[np.arange(len(ids)), begins + lengths] = EOS_ID
    return framed


@dataclass
class BatchStream:
    """An endless stream of batches that can start anywhere: in epoch `epoch`, after `cursor` batches of `window`.

    Every rank gets its slice of each batch, so that all ranks together train on the batches of a single process.
    """

    corpus: TrainingCorpus
    max_tokens: int
    seed: int
    epoch: int = 0
    window: int = 0
    cursor: int = 0
    distributed: Distributed = SINGLE_PROCESS
    shares: tuple[Share, ...] | None = None
    alignments: Alignments | None = None

    def __post_init__(self) -> None:
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        self._epoch_sentences = self.corpus.in_epoch(self.epoch)
        self._windows = ShuffledWindows(self.shares or (Share(len(self._epoch_sentences)),), self.seed, self.epoch)
        self._begin_window()

    def _begin_window(self) -> None:
        self._indices = self._windows.indices(self.window)  # of the window's sentences in the corpus
        self._sentences = self._epoch_sentences.select(self._indices)
        self._lengths = self._sentences.lengths()
        self._plan = plan_epoch(*self._lengths, self.max_tokens, self.seed, self.epoch, self.window)

    @property
    def epochs_done(self) -> int:
        """Number of epochs that are consumed to the last batch."""
        return self.epoch + (self.window + 1 == len(self._windows) and self.cursor >= len(self._plan))

    def next(self) -> Batch:
        """Return the next batch and advance the cursor."""
        if self.cursor >= len(self._plan):
            self.cursor = 0
            self.window += 1
            if self.window < len(self._windows):
                self._begin_window()
            else:
                self.epoch, self.window = self.epoch + 1, 0
                self._begin_epoch()
        rows = self._plan[self.cursor]
        self.cursor += 1
        slice_of_rank = rows[self.distributed.rank :: self.distributed.world_size]
        used = slice_of_rank if len(slice_of_rank) else rows[:1]
        batch, aligned = assemble(self._sentences, used), None
        if self.alignments is not None:
            aligned = self.alignments.of_batch(self._indices[used], batch.src_tokens, batch.tgt_in)
        n_src, n_tgt = (int(lengths[rows].sum()) for lengths in self._lengths)
        return replace(batch, n_src=n_src, n_tgt=n_tgt, weight=float(len(slice_of_rank) > 0), aligned=aligned)
