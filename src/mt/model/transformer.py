"""The encoder-decoder Transformer of "Attention Is All You Need" (Vaswani et al. 2017, arXiv:1706.03762).

B batch   S, T source and target positions   M, N real tokens among them   D d_model   V target vocabulary
W hypotheses a sentence
"""

from collections.abc import Iterable, Mapping
from typing import cast

import torch
from torch import Tensor, nn

from mt.config.model import ModelConfig
from mt.model.attention import added
from mt.model.decoder_state import DecoderState
from mt.model.initialization import initialize
from mt.model.layers import DecoderLayer, Embedding, EncoderLayer, final_norm, token_embeddings
from mt.model.packing import Packing


class Transformer(nn.Module):
    """Encoder and decoder stacks, embeddings and output layer.

    Args:
        config: the model section of a configuration.
        source_vocab, target_vocab: vocabulary sizes.
        max_length: positions the model is made for.
        shared_vocab: both sides use one vocabulary; tying then joins all three matrices, otherwise target and output.
    """

    def __init__(
        self, config: ModelConfig, source_vocab: int, target_vocab: int, max_length: int, shared_vocab: bool
    ) -> None:
        super().__init__()
        source_tokens, target_tokens = token_embeddings(config, source_vocab, target_vocab, shared_vocab)
        self.source_embedding = Embedding(source_tokens, config, max_length)
        self.target_embedding = Embedding(target_tokens, config, max_length)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        # Learned positions end somewhere; sinusoidal ones do not.
        self.max_positions = max_length if config.positions == "learned" else None
        self.encoder_norm, self.decoder_norm = final_norm(config), final_norm(config)
        self.output = nn.Linear(config.d_model, target_vocab, bias=False)
        if config.tie_embeddings:
            self.output.weight = target_tokens.weight
        initialize(self, config)

    @property
    def device(self) -> torch.device:
        return self.output.weight.device

    @property
    def blocks(self) -> Iterable[nn.Module]:
        """All layers."""
        return (*self.encoder, *self.decoder)

    def encode(self, src_tokens: Tensor, src: Packing) -> Tensor:
        """Source tokens (B, S) to memory (M, D), packed."""
        x: Tensor = self.source_embedding(src.pack(src_tokens), src.positions, src.shape[1])
        for layer in self.encoder:
            x = layer(x, src)
        x = self.encoder_norm(x)
        return x

    def decode(self, tgt_in: Tensor, tgt: Packing, memory: Tensor, src: Packing) -> Tensor:
        """Target tokens (B, T) against memory (M, D) to the last layer's states (N, D), packed."""
        x: Tensor = self.target_embedding(tgt.pack(tgt_in), tgt.positions, tgt.shape[1])
        for layer in self.decoder:
            x = layer(x, tgt, memory, src)
        x = self.decoder_norm(x)
        return x

    def states(self, src_tokens: Tensor, tgt_in: Tensor, src: Packing, tgt: Packing) -> Tensor:
        """All of the forward pass but the output layer, which the loss fuses: the decoder's states (N, D), packed."""
        return self.decode(tgt_in, tgt, self.encode(src_tokens, src), src)

    def forward(self, src_tokens: Tensor, tgt_in: Tensor) -> Tensor:
        """Source (B, S) and target (B, T) tokens to logits (B, T, V); those of padding are arbitrary."""
        src, tgt = Packing.of(src_tokens), Packing.of(tgt_in)
        logits: Tensor = self.output(tgt.unpack(self.states(src_tokens, tgt_in, src, tgt)))
        return logits

    def start(self, src_tokens: Tensor) -> DecoderState:
        """Encodes source tokens (B, S), ready for `step`."""
        src = Packing.of(src_tokens)
        memory = self.encode(src_tokens, src)
        projected = [layer.cross_attention.project(memory, src) for layer in self._decoder_layers()]
        return DecoderState(projected, None if src.pad is None else added(src.pad[:, None, None], memory.dtype))

    def step(self, tokens: Tensor, state: DecoderState) -> Tensor:
        """Feeds the newest token of every hypothesis (B, W) and returns the logits of the next (B * W, V).

        The state moves on by one position.
        """
        mask = state.make_room(tokens.shape[1])
        x: Tensor = self.target_embedding.step(tokens.flatten(), state.position)
        for layer, cache, memory in zip(self._decoder_layers(), state.caches, state.memory, strict=True):
            x = layer.step(x, cache, state.used, mask, memory, state.memory_mask)
        state.advance(tokens.shape[1])
        logits: Tensor = self.output(self.decoder_norm(x))
        return logits

    def _decoder_layers(self) -> Iterable[DecoderLayer]:
        return cast(Iterable[DecoderLayer], self.decoder)  # a ModuleList does not know what it holds


def set_parameters(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copies weights into a model; tied matrices are stored once."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
