"""The encoder-decoder Transformer of "Attention Is All You Need" (Vaswani et al. 2017, arXiv:1706.03762).

B sentences   S, T source and target positions   D d_model   V target vocabulary   W hypotheses per sentence
M, N real tokens of source and target: between embedding and output, tensors are packed, (M, D) instead of (B, S, D)
"""

from collections.abc import Iterable, Mapping
from typing import cast

import torch
from torch import Tensor, nn

from mt.config.model import ModelConfig
from mt.model.attention import Links
from mt.model.decoder_state import DecoderState, additive_mask
from mt.model.embedding import Embedding, token_embeddings
from mt.model.initialization import initialize
from mt.model.layers import DecoderLayer, EncoderLayer, final_norm
from mt.model.packing import Packing
from mt.model.positions import rotary_positions


def alignment_layer(layers: int) -> int:
    """Return the decoder layer whose attention aligns words, counted from 0: the penultimate.

    It agrees better with word alignments than the other layers (Garg et al. 2019, arXiv:1909.02074).
    """
    return max(0, layers - 2)


class Transformer(nn.Module):
    """Embeddings, encoder and decoder stacks, and the output layer (figure 1).

    Args:
        config: the model section of a configuration.
        source_vocab, target_vocab: vocabulary sizes.
        max_length: positions to prepare for; the limit of learned ones.
        shared_vocab: both sides use one vocabulary; tying then joins all three matrices, otherwise target and output.

    Attributes:
        is_guided: trained by guided alignment: at the position that reads a target token, the first head of the
            `alignment_layer` attends to the source tokens aligned with it.
    """

    def __init__(
        self, config: ModelConfig, source_vocab: int, target_vocab: int, max_length: int, shared_vocab: bool
    ) -> None:
        super().__init__()
        source_tokens, target_tokens = token_embeddings(config, source_vocab, target_vocab, shared_vocab)
        self.source_embedding = Embedding(source_tokens, config, max_length)
        self.target_embedding = Embedding(target_tokens, config, max_length)
        self.rotary = rotary_positions(config, max_length)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.max_positions = max_length if config.positions == "learned" else None
        self.source_format = config.source_format
        self.is_guided = False
        self.encoder_norm, self.decoder_norm = final_norm(config), final_norm(config)
        self.output = nn.Linear(config.d_model, target_vocab, bias=config.output_bias)
        if config.tie_embeddings:
            self.output.weight = target_tokens.weight
        initialize(self, config)

    def forward(self, src_tokens: Tensor, tgt_in: Tensor) -> Tensor:
        """Return the logits (B, T, V) of source (B, S) and target (B, T) tokens; those at padding are arbitrary."""
        src, tgt = Packing.of(src_tokens), Packing.of(tgt_in)
        x = self.states(src_tokens, tgt_in, src, tgt)  # (N, D)
        logits: Tensor = self.output(tgt.unpack(x))  # (B, T, V)
        return logits

    def states(self, src_tokens: Tensor, tgt_in: Tensor, src: Packing, tgt: Packing) -> Tensor:
        """Return the decoder's last states (N, D): the forward pass up to the output layer, which the loss fuses."""
        memory = self.encode(src_tokens, src)  # (M, D)
        return self.decode(tgt_in, tgt, memory, src)  # (N, D)

    def guided_states(
        self, src_tokens: Tensor, tgt_in: Tensor, src: Packing, tgt: Packing, links: Links
    ) -> tuple[Tensor, Tensor]:
        """Return the same as `states`, and the loss of the layer that aligns words against word alignments."""
        memory, tgt = self.encode(src_tokens, src), tgt.rotated(self.rotary)
        x: Tensor = self.target_embedding(tgt.pack(tgt_in), tgt.positions, tgt.shape[1])
        guided_layer = self.decoder[alignment_layer(len(self.decoder))]
        for layer in self.decoder:
            if layer is guided_layer:
                x, loss = layer(x, tgt, memory, src, links)
            else:
                x = layer(x, tgt, memory, src)
        return self.decoder_norm(x), loss

    def encode(self, src_tokens: Tensor, src: Packing) -> Tensor:
        """Encode source tokens (B, S) into memory (M, D)."""
        src = src.rotated(self.rotary)
        x: Tensor = self.source_embedding(src.pack(src_tokens), src.positions, src.shape[1])  # (M, D)
        for layer in self.encoder:
            x = layer(x, src)  # (M, D)
        memory: Tensor = self.encoder_norm(x)  # (M, D)
        return memory

    def decode(self, tgt_in: Tensor, tgt: Packing, memory: Tensor, src: Packing) -> Tensor:
        """Decode target tokens (B, T), given memory (M, D), into the decoder's last states (N, D)."""
        tgt = tgt.rotated(self.rotary)
        x: Tensor = self.target_embedding(tgt.pack(tgt_in), tgt.positions, tgt.shape[1])  # (N, D)
        for layer in self.decoder:
            x = layer(x, tgt, memory, src)  # (N, D)
        x = self.decoder_norm(x)  # (N, D)
        return x

    def start(self, src_tokens: Tensor) -> DecoderState:
        """Encode source tokens (B, S) for decoding with `step`."""
        src = Packing.of(src_tokens)
        memory = self.encode(src_tokens, src)  # (M, D)
        source = [layer.cross_attention.project(memory, src) for layer in self._decoder_layers()]
        mask = None if src.pad is None else additive_mask(src.pad[:, None, None], memory.dtype)  # (B, 1, 1, S)
        return DecoderState(source, mask)

    def step(self, tokens: Tensor, state: DecoderState) -> Tensor:
        """Feed the newest token of every hypothesis (B, W) and return the logits of the next (B * W, V).

        The state advances by one position.
        """
        mask = state.reserve(tokens.shape[1])  # (B, 1, W, C)
        positions, length = state.positions(), state.position + 1
        rotation = None if self.rotary is None else self.rotary(positions, length)  # (1, K)
        x: Tensor = self.target_embedding(tokens.flatten(), positions, length)  # (B * W, D)
        for layer, cache, source in zip(self._decoder_layers(), state.caches, state.source, strict=True):
            x = layer.step(x, cache, state.used, mask, source, state.source_mask, rotation)  # (B * W, D)
        state.advance(tokens.shape[1])
        logits: Tensor = self.output(self.decoder_norm(x))  # (B * W, V)
        return logits

    @property
    def device(self) -> torch.device:
        return self.output.weight.device

    @property
    def blocks(self) -> Iterable[nn.Module]:
        """All layers."""
        return (*self.encoder, *self.decoder)

    def _decoder_layers(self) -> Iterable[DecoderLayer]:
        return cast(Iterable[DecoderLayer], self.decoder)  # a ModuleList does not know the type of its elements


def set_parameters(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy weights into a model; tied matrices are stored once."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
