"""The decoder-only model: one stack reads source and target as one sequence, as GPT does (Radford et al. 2018).

The sequence is `<s> source </s> <s> target`; only the target's tokens are predicted. Zhang et al. 2022,
arXiv:2202.00528, compare it with encoder and decoder.

B sentences   S, T source and target positions   L = S + T   D d_model   V target vocabulary
M, N real tokens of source and target   W hypotheses per sentence
"""

from collections.abc import Iterable
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from mt.config.model import ModelConfig
from mt.model.attention import attention_mask
from mt.model.decoder_state import DecoderState, KeyValueCache
from mt.model.embedding import Embedding, token_embeddings
from mt.model.initialization import initialize
from mt.model.layers import EncoderLayer, final_norm
from mt.model.packing import Packing, Padding, sentence_starts
from mt.model.positions import rotary_positions


class Joined(NamedTuple):
    """Two packed lists of tokens joined into one.

    Attributes:
        packing: of the joined sequences (B, S + T), whose padding is all at the end.
        target: (N,), the index in the joined list of each target token.
        order: (M + N,), the index of each joined token in the list of all source tokens, then all target tokens.
        source_lengths: (B,).
    """

    packing: Packing
    target: Tensor
    order: Tensor
    source_lengths: Tensor


def join(src: Packing, tgt: Packing) -> Joined:
    """Append each target to its source. All sizes are known, so nothing synchronises with a GPU."""
    (src_rows, src_lengths), (tgt_rows, tgt_lengths) = _rows_and_lengths(src), _rows_and_lengths(tgt)
    lengths = src_lengths + tgt_lengths
    starts = lengths.cumsum(0) - lengths
    tgt_positions = src_lengths[tgt_rows] + tgt.positions
    source, target = starts[src_rows] + src.positions, starts[tgt_rows] + tgt_positions
    joined = torch.cat([source, target])
    order = torch.empty_like(joined).index_copy_(0, joined, torch.arange(len(joined), device=joined.device))
    positions = torch.cat([src.positions, tgt_positions])[order]
    shape = batch, length = src.shape[0], src.shape[1] + tgt.shape[1]
    padding = None
    if src.padding is not None or tgt.padding is not None:
        real = torch.cat([src_rows, tgt_rows])[order] * length + positions
        pad = torch.arange(length, device=real.device) >= lengths[:, None]
        empty = torch.nonzero_static(pad.flatten(), size=batch * length - len(real))[:, 0]
        padding = Padding.of(pad, real, empty)
    packed_starts = None if src.starts is None else sentence_starts(lengths)
    return Joined(Packing(shape, positions, padding, packed_starts), target, order, src_lengths)


def _rows_and_lengths(packing: Packing) -> tuple[Tensor, Tensor]:
    """Return the sentence of each real token (N,), and the number of tokens in each sentence (B,)."""
    batch, length = packing.shape
    if packing.padding is not None:
        return packing.padding.real // length, length - packing.padding.pad.sum(dim=1)
    device = packing.positions.device
    return torch.arange(batch * length, device=device) // length, torch.full((batch,), length, device=device)


class DecoderOnly(nn.Module):
    """A decoder-only model with the interface and the arguments of `Transformer`.

    Positions continue from source to target, so there are twice `max_length` of them.
    """

    def __init__(
        self, config: ModelConfig, source_vocab: int, target_vocab: int, max_length: int, shared_vocab: bool
    ) -> None:
        super().__init__()
        source_tokens, target_tokens = token_embeddings(config, source_vocab, target_vocab, shared_vocab)
        self.source_embedding = Embedding(source_tokens, config, 2 * max_length)
        self.target_embedding = Embedding(target_tokens, config, 2 * max_length)
        self.target_embedding.positions = self.source_embedding.positions
        self.rotary = rotary_positions(config, 2 * max_length)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.decoder_layers))
        self.max_positions = max_length if config.positions == "learned" else None
        self.source_format = config.source_format
        self.is_guided = False
        self.norm = final_norm(config)
        self.output = nn.Linear(config.d_model, target_vocab, bias=config.output_bias)
        if config.tie_embeddings:
            self.output.weight = target_tokens.weight
        self._bidirectional = config.bidirectional_source
        initialize(self, config)

    @property
    def device(self) -> torch.device:
        return self.output.weight.device

    @property
    def blocks(self) -> Iterable[EncoderLayer]:
        """All layers."""
        return cast(Iterable[EncoderLayer], self.layers)  # a ModuleList does not know the type of its elements

    def forward(self, src_tokens: Tensor, tgt_in: Tensor) -> Tensor:
        """Return the logits (B, T, V) of source (B, S) and target (B, T) tokens; those at padding are arbitrary."""
        src, tgt = Packing.of(src_tokens), Packing.of(tgt_in)
        logits: Tensor = self.output(tgt.unpack(self.states(src_tokens, tgt_in, src, tgt)))  # (B, T, V)
        return logits

    def states(self, src_tokens: Tensor, tgt_in: Tensor, src: Packing, tgt: Packing) -> Tensor:
        """Return the last states of the target (N, D): the forward pass up to the output layer."""
        joined = join(src, tgt)
        packing = joined.packing.rotated(self.rotary)
        source = self.source_embedding(src.pack(src_tokens), src.positions, packing.shape[1])  # (M, D)
        positions = packing.positions[joined.target]
        target = self.target_embedding(tgt.pack(tgt_in), positions, packing.shape[1])  # (N, D)
        x = torch.cat([source, target]).index_select(0, joined.order)  # (M + N, D)
        mask = self._bidirectional_mask(joined) if self._bidirectional else None
        for layer in self.blocks:
            x = layer(x, packing, mask is None, mask)
        y: Tensor = self.norm(x.index_select(0, joined.target))  # (N, D)
        return y

    def start(self, src_tokens: Tensor) -> DecoderState:
        """Read source tokens (B, S) for decoding with `step`."""
        src = Packing.of(src_tokens)
        x = self.source_embedding(src.pack(src_tokens), src.positions, src.shape[1])  # (M, D)
        src, mask = src.rotated(self.rotary), attention_mask(src.pad) if self._bidirectional else None
        caches = [KeyValueCache() for _ in self.layers]
        for layer, cache in zip(self.blocks, caches, strict=True):
            x = layer(x, src, not self._bidirectional, mask, cache)
        return DecoderState.after_prompt(caches, src_tokens.shape[1], src.pad)

    def step(self, tokens: Tensor, state: DecoderState) -> Tensor:
        """Feed the newest token of every hypothesis (B, W) and return the logits of the next (B * W, V).

        The state advances by one position.
        """
        width = tokens.shape[1]
        mask = state.reserve(width)
        positions = state.positions().repeat_interleave(width)
        length = state.max_prompt + state.position + 1
        rotation = None if self.rotary is None else self.rotary(positions, length)  # (B * W, K)
        x = self.target_embedding(tokens.flatten(), positions, length)
        for layer, cache in zip(self.blocks, state.caches, strict=True):
            x = layer.step(x, cache, state.used, mask, rotation)
        state.advance(width)
        logits: Tensor = self.output(self.norm(x))
        return logits

    def _bidirectional_mask(self, joined: Joined) -> Tensor:
        """Return the mask (B, 1, L, L), True where a position may look: at itself, before it, and at the source."""
        positions = torch.arange(joined.packing.shape[1], device=self.device)
        causal = positions <= positions[:, None]  # (L, L)
        in_source = positions < joined.source_lengths[:, None]  # (B, L)
        return (causal | in_source[:, None])[:, None]
