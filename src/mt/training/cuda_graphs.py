"""CUDA graphs of forward and backward passes, for small batches that are filled up to a few shapes.

A pass launches about a thousand kernels one by one, which takes longer than a small batch's arithmetic. A graph
launches all of them at once, but only with the shapes and addresses that it was captured with.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mt.data.batching import Batch
from mt.data.ragged import Indices
from mt.data.tokenizer import EOS_ID, PAD_ID
from mt.model.loss_rows import IGNORED
from mt.model.packing import Packing
from mt.system.cuda_graphs import GraphCapture

Pass = Callable[[Sequence[Tensor], Sequence[Packing]], Tensor]


def fill_up(batch: Batch, max_tokens: int, max_positions: int | None = None) -> Batch:
    """Add sentences without a loss until the batch has one of a few shapes, one for each power of two as its length.

    Args:
        batch: returned unchanged if its sentences times its longest side exceed `max_tokens`.
        max_tokens: as in `plan_epoch`.
        max_positions: tokens of the longest sentence that the model can read; None: any number.
    """
    longest = max(batch.src_tokens.shape[1], batch.tgt_in.shape[1])
    length = max(2, 1 << (longest - 1).bit_length())  # a new row has one token and a padded one
    max_sentences = max_tokens // (length // 2 + 1)  # in a batch whose longest has more than half of `length`
    if len(batch.src_tokens) > max_sentences or longest * len(batch.src_tokens) > max_tokens:
        return batch
    # Enough new rows for all `n_tokens`, and enough tokens for one in each of them, whatever the batch holds.
    rows = max_sentences + -(-(max_tokens + max_sentences) // (min(length, max_positions or length) - 1))
    n_tokens = max_tokens + rows
    return replace(
        batch,
        src_tokens=_filled(batch.src_tokens, (rows, length), n_tokens),
        tgt_in=_filled(batch.tgt_in, (rows, length), n_tokens),
        tgt_out=_padded(batch.tgt_out, (rows, length), IGNORED),
    )


def _filled(tokens: Indices, shape: tuple[int, int], n_tokens: int) -> Indices:
    """Pad tokens (B, L) to a shape, and spread the missing ones of `n_tokens` evenly over the new rows."""
    padded = _padded(tokens, shape, PAD_ID)
    new_rows = padded[len(tokens) :]
    per_row, rest = divmod(n_tokens - np.count_nonzero(tokens), len(new_rows))
    lengths = per_row + (np.arange(len(new_rows)) < rest)
    new_rows[np.arange(shape[1]) < lengths[:, None]] = EOS_ID
    return padded


def _padded(tokens: Indices, shape: tuple[int, int], value: int) -> Indices:
    padded = np.full(shape, value, dtype=tokens.dtype)
    padded[: len(tokens), : tokens.shape[1]] = tokens
    return padded


@dataclass(frozen=True)
class _Captured:
    """A graph, the tensors that it writes and reads, and the model's buffers, whose memory it uses."""

    graph: Any
    result: Tensor
    inputs: list[Tensor]
    buffers: list[Tensor]


class GraphedPasses:
    """A pass that runs as a CUDA graph from the second inputs of the same shapes on.

    Args:
        run: the pass, from tensors on the device. It must not synchronise, must add to gradients in place, and must
            read no number from the host that changes.
        model: its buffers must live as long as the graphs.

    Returns:
        the pass's result, in memory that the next call overwrites.
    """

    def __init__(self, run: Pass, model: nn.Module) -> None:
        self._run, self._model = run, model
        self._captured: dict[Any, _Captured | None] = {}
        self._capture = GraphCapture("training.cuda_graphs", "set it to false; the same command resumes")

    def __call__(self, tokens: Sequence[Tensor], packings: Sequence[Packing]) -> Tensor:
        inputs = [*tokens, *(x for packing in packings for x in packing.tensors)]
        shapes = tuple(x.shape for x in inputs)
        if shapes not in self._captured:  # compiles and allocates, which a capture must not
            self._captured[shapes] = None
            return self._run(tokens, packings)
        captured = self._captured[shapes]
        if captured is None:
            graph, result = self._capture(lambda: self._run(tokens, packings))
            captured = self._captured[shapes] = _Captured(graph, result, inputs, list(self._model.buffers()))
        torch._foreach_copy_(captured.inputs, inputs)
        captured.graph.replay()
        return captured.result
