"""Which sentences form a batch, in which order, and the padded arrays of one batch.

    B sentences, S source tokens, T target tokens, N sentences of the corpus

The order is a pure function of (lengths, seed, epoch, window): nothing has to be saved to continue it exactly.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mt.data.mixture import Share
from mt.data.shuffle import Indices, Windows
from mt.data.token_store import Ids, Lengths
from mt.data.tokenizer import EOS_ID, PAD_ID, SOS_ID
from mt.system.distributed import SINGLE_PROCESS, Distributed


class Sentences(Protocol):
    """Pairs of sentences as token ids, as `EncodedCorpus` has them."""

    def __len__(self) -> int: ...

    def lengths(self, indices: Indices) -> tuple[Lengths, Lengths]: ...

    def copied(self, indices: Indices) -> "Sentences": ...

    def gather(self, side: str, indices: Indices) -> tuple[Ids, Lengths]: ...


class TrainingCorpus(Protocol):
    """What a stream of batches is made from: sentences whose tokens may differ from epoch to epoch."""

    def in_epoch(self, epoch: int) -> Sentences: ...


@dataclass(frozen=True)
class Batch:
    """A padded batch, as int64 arrays.

    Attributes:
        src_tokens: `<s> tokens </s>` (B, S).
        tgt_in: `<s> tokens`, the decoder's input (B, T).
        tgt_out: `tokens </s>`, the labels (B, T).
        n_src, n_tgt: tokens without padding; of the whole batch also where this is one process's share of it.
        weight: 1; or 0 for a sentence that is there only because no share may be empty.
    """

    src_tokens: NDArray[np.int64]
    tgt_in: NDArray[np.int64]
    tgt_out: NDArray[np.int64]
    n_src: int
    n_tgt: int
    weight: float = 1.0


def plan_epoch(
    src_lengths: Lengths, tgt_lengths: Lengths, max_tokens: int, seed: int, epoch: int, window: int = 0
) -> list[Indices]:
    """Groups all sentences into batches of similar lengths and shuffles the batches.

    Args:
        src_lengths, tgt_lengths: tokens of each sentence (N,).
        max_tokens: a batch's sentences times its longest side is at most this; a single longer sentence is a batch.
        seed, epoch, window: with the lengths, all that the plan depends on.

    Returns:
        the indices of each batch's sentences; every sentence is in exactly one batch.
    """
    random = np.random.Generator(np.random.PCG64([seed, epoch, window] if window else [seed, epoch]))
    order = _sorted_by_length(src_lengths, tgt_lengths, random)
    longest = np.maximum(src_lengths, tgt_lengths)[order]
    batches = [order[start:end] for start, end in _cut(longest, max_tokens)]
    return [batches[i] for i in random.permutation(len(batches))]


def _sorted_by_length(src_lengths: Lengths, tgt_lengths: Lengths, random: np.random.Generator) -> Indices:
    """Target length first, source length within it, chance among equals.

    Source lengths run up in one target length and down in the next: no batch then joins the longest sources of one with
    the shortest of the other.
    """
    snake = np.where(tgt_lengths % 2 == 0, src_lengths, -src_lengths)
    return np.lexsort((random.random(len(src_lengths)), snake, tgt_lengths)).astype(np.int64)


def _cut(longest: Lengths, max_tokens: int) -> Iterator[tuple[int, int]]:
    """Cuts the sorted sentences greedily: each batch is as large as the budget allows."""
    start = 0
    while start < len(longest):
        # No batch holds more sentences than this; the budget then cuts where the running maximum says.
        window = longest[start : start + max(1, max_tokens // int(longest[start]) + 1)]
        cost = np.maximum.accumulate(window) * np.arange(1, len(window) + 1)
        fitting = int(np.searchsorted(cost, max_tokens, side="right"))
        end = start + max(1, fitting)
        yield start, end
        start = end


def assemble(corpus: Sentences, indices: Indices, max_length: int | None = None) -> Batch:
    """Builds the padded arrays of one batch.

    Args:
        corpus: where the token ids lie.
        indices: which sentences (B,).
        max_length: what a side is cut to, for models that cannot take more; None cuts nothing.
    """
    src, n_src = corpus.gather("source", indices)
    tgt, n_tgt = corpus.gather("target", indices)
    if max_length is not None:
        n_src, n_tgt = np.minimum(n_src, max_length - 2), np.minimum(n_tgt, max_length - 1)
    src_tokens = _framed(src, n_src, before=SOS_ID, after=EOS_ID)
    tgt_in = _framed(tgt, n_tgt, before=SOS_ID)
    tgt_out = _framed(tgt, n_tgt, after=EOS_ID)
    return Batch(src_tokens, tgt_in, tgt_out, int(n_src.sum()) + 2 * len(indices), int(n_tgt.sum()) + len(indices))


def _framed(ids: NDArray[np.int64], lengths: Lengths, before: int | None = None, after: int | None = None) -> Indices:
    """Puts specials around sentences (B, L) and pads the rest."""
    shift = 0 if before is None else 1
    longest = int(lengths.max())
    framed = np.full((len(ids), longest + shift + (after is not None)), PAD_ID, dtype=np.int64)
    inside = np.arange(longest) < lengths[:, None]
    framed[:, shift : shift + longest][inside] = ids[:, :longest][inside]
    if before is not None:
        framed[:, 0] = before
    if after is not None:
        framed[np.arange(len(ids)), lengths + shift] = after
    return framed


def padding_share(batches: list[Indices], src_lengths: Lengths, tgt_lengths: Lengths) -> float:
    """Padding tokens as a part of all tokens of a plan, both sides counted."""
    real = int(src_lengths.sum() + tgt_lengths.sum())
    padded = sum(len(b) * int(src_lengths[b].max() + tgt_lengths[b].max()) for b in batches)
    return 1 - real / padded


@dataclass
class BatchStream:
    """An endless stream of batches that can be put anywhere: epoch `epoch`, after `cursor` batches of window `window`.

    An epoch has every sentence once, or as often as its share of the corpus says. Of several processes, each gets its
    share of every batch: all train on the batches that one alone would.
    """

    corpus: TrainingCorpus
    max_tokens: int
    seed: int
    epoch: int = 0
    window: int = 0
    cursor: int = 0
    distributed: Distributed = SINGLE_PROCESS
    shares: tuple[Share, ...] | None = None

    def __post_init__(self) -> None:
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        self._epoch_sentences = self.corpus.in_epoch(self.epoch)
        self._windows = Windows(self.shares or (Share(len(self._epoch_sentences)),), self.seed, self.epoch)
        self._begin_window()

    def _begin_window(self) -> None:
        self._sentences, self._indices = self._epoch_sentences, self._windows.indices(self.window)
        if len(self._windows) > 1:
            self._sentences = self._sentences.copied(self._indices)
            self._indices = np.arange(len(self._indices))
        lengths = self._sentences.lengths(self._indices)
        self._plan = plan_epoch(*lengths, self.max_tokens, self.seed, self.epoch, self.window)

    @property
    def batches_in_window(self) -> int:
        return len(self._plan)

    @property
    def epochs_done(self) -> int:
        """How many epochs are consumed to the last batch."""
        return self.epoch + (self.window + 1 == len(self._windows) and self.cursor >= len(self._plan))

    def next(self) -> Batch:
        """The next batch; the cursor counts it as consumed."""
        if self.cursor >= len(self._plan):
            self.cursor = 0
            self.window += 1
            if self.window < len(self._windows):
                self._begin_window()
            else:
                self.epoch, self.window = self.epoch + 1, 0
                self._begin_epoch()
        indices = self._indices[self._plan[self.cursor]]
        self.cursor += 1
        if self.distributed.world_size == 1:
            return assemble(self._sentences, indices)
        own = indices[self.distributed.rank :: self.distributed.world_size]
        batch = assemble(self._sentences, own if len(own) else indices[:1])
        n_src, n_tgt = (int(lengths.sum()) for lengths in self._sentences.lengths(indices))
        return replace(batch, n_src=n_src, n_tgt=n_tgt, weight=float(len(own) > 0))
