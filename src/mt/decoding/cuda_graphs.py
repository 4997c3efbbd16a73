"""Decoding steps on a GPU as CUDA graphs.

A step launches some hundred kernels, most of which take less time than their launch. A graph launches them at once,
but in the shapes and at the addresses that it was captured with. So the state of a search lies in buffers of a few
sizes, powers of two, which the batches share.

B sentences   W hypotheses per sentence   C slots of the caches   S source positions   H heads   K = d_model / H
"""

import math
from typing import Any

import torch
from torch import Tensor

from mt.model.build import TranslationModel
from mt.model.decoder_state import DecoderState, KeyValueCache, KeyValues
from mt.system.cuda_graphs import GraphCapture

_MIN_SLOTS, _MIN_SOURCE = 64, 16
_MAX_BYTES = 2**32  # of all caches; the buffers used longest ago go first


class _FixedCache(KeyValueCache):
    """Keys and values (B, H, C, K) that stay in their place; new ones go to the slots (W,) in a tensor."""

    def __init__(self, keys: Tensor, slots: Tensor) -> None:
        super().__init__()
        self.keys, self.values, self._slots = keys, torch.zeros_like(keys), slots

    def append(self, used: int, new: KeyValues) -> KeyValues:
        self.keys.index_copy_(2, self._slots, new.keys)
        self.values.index_copy_(2, self._slots, new.values)
        return KeyValues(self.keys, self.values)


class _Buffers(DecoderState):
    """A decoder state in tensors of fixed shape and place, larger than the state of a search that it holds.

    Attributes:
        tokens: (B, W), the newest of every hypothesis.
        view: the first layer's keys of the state that was loaded last; they are a part of these buffers.
        graph: that of a step, and the logits that it writes; None before it is captured.
        tables: the model's position tables that the graph reads, kept alive since the model may replace them.
        has_run: a step has run without a graph, as it must before it is captured.
    """

    def __init__(self, state: DecoderState, size: tuple[int, int, int, int]) -> None:
        batch, width, n_slots, length = size
        like = (state.source[0] if state.source else state.caches[0]).keys
        heads, per_head = like.shape[1], like.shape[3]

        def zeros(positions: int) -> Tensor:
            return like.new_zeros(batch, heads, positions, per_head)

        source = [KeyValues(zeros(length), zeros(length)) for _ in state.source]
        super().__init__(source, like.new_zeros(batch, 1, 1, length) if source else None)
        self.tokens = torch.zeros(batch, width, dtype=torch.long, device=like.device)
        self.view: Tensor | None = None
        self.graph: tuple[Any, Tensor] | None = None
        self.tables: list[Tensor] = []
        self.has_run = False
        self.position = n_slots - 1  # no position is later, so tables of positions are long enough
        self._mask = like.new_zeros(batch, 1, width, n_slots)
        self._slots = torch.zeros(width, dtype=torch.long, device=like.device)
        self._position = torch.zeros(1, dtype=torch.long, device=like.device)
        self.caches = [_FixedCache(zeros(n_slots), self._slots) for _ in state.caches]
        if state.prompt_lengths is not None:
            self.prompt_lengths = self.tokens.new_zeros(batch)
            self.max_prompt = n_slots  # also of rows without a sentence, which keep an earlier search's prompt

    @property
    def n_bytes(self) -> int:
        return 2 * len(self.caches) * self.caches[0].keys.nbytes

    def load(self, state: DecoderState) -> None:
        """Move a state's keys and values here; the state then reads and writes them in this place."""
        batch, used = len((state.source[0] if state.source else state.caches[0]).keys), state.used
        for mine, theirs in zip(self.source, state.source, strict=True):
            length = theirs.keys.shape[2]
            mine.keys[:batch, :, :length], mine.values[:batch, :, :length] = theirs.keys, theirs.values
        if self.source_mask is not None:
            self.source_mask[:batch] = -math.inf
            self.source_mask[:batch, ..., :length] = 0.0 if state.source_mask is None else state.source_mask
        if self.prompt_lengths is not None and state.prompt_lengths is not None:
            self.prompt_lengths[:batch] = state.prompt_lengths
        for cache, old in zip(self.caches, state.caches, strict=True):
            for buffer, filled in ((cache.keys, old.keys), (cache.values, old.values)):
                buffer.zero_()  # a NaN that another batch has left would stay NaN times a weight of zero
                if used:
                    buffer[:batch, :, :used] = filled[:, :, :used]
            old.keys, old.values = cache.keys[:batch], cache.values[:batch]
        self.view = state.caches[0].keys

    def prepare(self, tokens: Tensor, state: DecoderState, mask: Tensor | None) -> None:
        """Write the inputs of a step: tokens (B, W), and the mask (B, 1, W, C) that `state.reserve` returned."""
        batch, end = len(tokens), state.used + tokens.shape[1]
        self.tokens[:batch] = tokens
        self._mask[:batch] = -math.inf
        self._mask[batch:] = 0.0  # rows without a sentence attend to everything: a softmax over nothing is NaN
        self._mask[:batch, ..., :end] = 0.0 if mask is None else mask
        torch.arange(state.used, end, out=self._slots)
        self._position.fill_(state.position)

    def positions(self) -> Tensor:
        return self._position if self.prompt_lengths is None else self.prompt_lengths + self._position

    def reserve(self, width: int) -> Tensor:
        return self._mask

    def advance(self, width: int) -> None: ...


class GraphedDecoder:
    """The decoding interface of a model, whose steps are CUDA graphs from the second step of a size on.

    It serves one search at a time, since the next search reuses the buffers.

    Args:
        model: on a GPU.
    """

    def __init__(self, model: TranslationModel) -> None:
        self.max_positions, self.source_format = model.max_positions, model.source_format
        self._model = model
        self._capture = GraphCapture("--engine torch-graphs", "use --engine torch")
        self._buffers: dict[tuple[int, int, int, int], _Buffers] = {}  # the latest used comes last

    def start(self, src_tokens: Tensor) -> DecoderState:
        """Read source tokens (B, S) as the model's own `start` does."""
        return self._model.start(src_tokens)

    def step(self, tokens: Tensor, state: DecoderState) -> Tensor:
        """Feed the newest token of every hypothesis (B, W) and return the logits of the next (B * W, V).

        The state advances by one position. The next call overwrites the logits.
        """
        mask = state.reserve(tokens.shape[1])
        buffers = self._buffers_for(state, tokens.shape)
        if state.caches[0].keys is not buffers.view:
            buffers.load(state)
        buffers.prepare(tokens, state, mask)
        logits = self._run(buffers)[: tokens.numel()]
        state.advance(tokens.shape[1])
        return logits

    def _buffers_for(self, state: DecoderState, shape: torch.Size) -> _Buffers:
        length = state.source[0].keys.shape[2] if state.source else 0
        slots = _power_of_two(max(_MIN_SLOTS, state.used + shape[1]))
        size = (_power_of_two(shape[0]), shape[1], slots, _power_of_two(max(_MIN_SOURCE, length)))
        buffers = self._buffers.pop(size, None) or _Buffers(state, size)
        self._buffers[size] = buffers
        while sum(each.n_bytes for each in self._buffers.values()) > _MAX_BYTES and len(self._buffers) > 1:
            del self._buffers[next(iter(self._buffers))]
        return buffers

    def _run(self, buffers: _Buffers) -> Tensor:
        if not buffers.has_run:
            buffers.has_run = True
            return self._model.step(buffers.tokens, buffers)
        if buffers.graph is None:
            buffers.graph = self._capture(lambda: self._model.step(buffers.tokens, buffers))
            buffers.tables = list(self._model.buffers())
        graph, logits = buffers.graph
        graph.replay()
        return logits


def _power_of_two(n: int) -> int:
    """Return the smallest power of two that is not below n."""
    return 1 << (n - 1).bit_length()
