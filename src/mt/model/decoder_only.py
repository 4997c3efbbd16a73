"""One stack that reads source and target as one sequence, as GPT does (Radford et al. 2018), for translation.

`<s> source </s>` comes first; the `<s>` of the target is what separates the two. Only the target's tokens are
predicted. For how this compares with encoder and decoder: Zhang et al. 2022, arXiv:2202.00528.

B batch   S, T source and target positions   M, N real tokens among them   D d_model   V target vocabulary
W hypotheses a sentence
"""

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn

from mt.config.model import ModelConfig
from mt.model.attention import Cache, visible
from mt.model.decoder_only_packing import Joined, join
from mt.model.decoder_state import DecoderState, Prompt
from mt.model.initialization import initialize
from mt.model.layers import Embedding, EncoderLayer, final_norm, token_embeddings
from mt.model.packing import Packing


class DecoderOnly(nn.Module):
    """Looks like `Transformer` to training and to search; arguments as there.

    Positions run on from source to target, so there are twice `max_length` of them.
    """

    def __init__(
        self, config: ModelConfig, source_vocab: int, target_vocab: int, max_length: int, shared_vocab: bool
    ) -> None:
        super().__init__()
        source_tokens, target_tokens = token_embeddings(config, source_vocab, target_vocab, shared_vocab)
        self.source_embedding = Embedding(source_tokens, config, 2 * max_length)
        self.target_embedding = Embedding(target_tokens, config, 2 * max_length)
        self.target_embedding.positions = self.source_embedding.positions
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.decoder_layers))
        self.max_positions = max_length if config.positions == "learned" else None
        self.norm = final_norm(config)
        self.output = nn.Linear(config.d_model, target_vocab, bias=False)
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
        return cast(Iterable[EncoderLayer], self.layers)  # a ModuleList does not know what it holds

    def states(self, src_tokens: Tensor, tgt_in: Tensor, src: Packing, tgt: Packing) -> Tensor:
        """All of the forward pass but the output layer: the last layer's states at the target (N, D), packed."""
        joined = join(src, tgt)
        packing = joined.packing
        source = self.source_embedding(src.pack(src_tokens), src.positions, packing.shape[1])
        positions = packing.positions[joined.target]
        target = self.target_embedding(tgt.pack(tgt_in), positions, packing.shape[1])
        x = torch.cat([source, target]).index_select(0, joined.order)
        mask = self._sees(joined) if self._bidirectional else None
        for layer in self.blocks:
            x = layer(x, packing, mask is None, mask)
        y: Tensor = self.norm(x.index_select(0, joined.target))
        return y

    def forward(self, src_tokens: Tensor, tgt_in: Tensor) -> Tensor:
        """Source (B, S) and target (B, T) tokens to logits (B, T, V); those of padding are arbitrary."""
        src, tgt = Packing.of(src_tokens), Packing.of(tgt_in)
        logits: Tensor = self.output(tgt.unpack(self.states(src_tokens, tgt_in, src, tgt)))
        return logits

    def start(self, src_tokens: Tensor) -> DecoderState:
        """Reads source tokens (B, S), ready for `step`."""
        src = Packing.of(src_tokens)
        x = self.source_embedding(src.pack(src_tokens), src.positions, src.shape[1])
        mask = visible(src.pad) if self._bidirectional else None
        caches = [Cache() for _ in self.layers]
        for layer, cache in zip(self.blocks, caches, strict=True):
            x = layer(x, src, not self._bidirectional, mask, cache)
        return DecoderState(prompt=Prompt(caches, src_tokens.shape, src.pad))

    def step(self, tokens: Tensor, state: DecoderState) -> Tensor:
        """Feeds the newest token of every hypothesis (B, W) and returns the logits of the next (B * W, V).

        The state moves on by one position.
        """
        assert state.prompt is not None
        width = tokens.shape[1]
        mask = state.make_room(width)
        positions = (state.prompt.lengths + state.position).repeat_interleave(width)
        x = self.target_embedding(tokens.flatten(), positions, state.prompt.longest + state.position + 1)
        for layer, cache in zip(self.blocks, state.caches, strict=True):
            x = layer.step(x, cache, state.used, mask)
        state.advance(width)
        logits: Tensor = self.output(self.norm(x))
        return logits

    def _sees(self, joined: Joined) -> Tensor:
        """True (B, 1, L, L) where a position may look: at itself, at earlier ones, and at all of the source."""
        places = torch.arange(joined.packing.shape[1], device=self.device)
        earlier = places <= places[:, None]  # (L, L)
        of_source = places < joined.source_lengths[:, None]  # (B, L)
        return (earlier | of_source[:, None])[:, None]
