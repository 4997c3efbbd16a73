"""Floating-point operations: equal to those that torch's counter sees in a forward and backward pass."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from flops import training_flops
from mt.config import ModelConfig
from mt.model import linear
from mt.model.build import build

VOCAB = 50
SHAPES = [
    {"activation": activation, "norm": norm, "encoder_layers": encoder, "decoder_layers": decoder}
    for activation in ("relu", "swiglu")
    for norm, encoder, decoder in (("post", 1, 3), ("pre", 3, 1))
] + [
    {"architecture": "decoder_only", "encoder_layers": 0, "decoder_layers": 3, "bidirectional_source": bidirectional}
    for bidirectional in (False, True)
]


def config_of(**changes: object) -> ModelConfig:
    return ModelConfig(**{"d_model": 24, "n_heads": 3, "d_ff": 40, "dropout": 0.0, **changes})


def counted(config: ModelConfig, sentences: int, src_length: int, tgt_length: int) -> int:
    """Return torch's count for a batch without padding, in which the causal mask saves nothing."""
    model = build(config, VOCAB, VOCAB, 64, shared_vocab=True)
    src_tokens, tgt_in, tgt_out = (
        torch.randint(4, VOCAB, (sentences, length)) for length in (src_length, tgt_length, tgt_length)
    )
    # The counter does not know the fused CPU kernels; the plain one is made of products, which it knows.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        logits = model(src_tokens, tgt_in)
        F.cross_entropy(logits.flatten(0, 1), tgt_out.flatten()).backward()
    return counter.get_total_flops()


def hidden_pairs(length: int) -> int:
    """Count the pairs of positions that the causal mask hides."""
    return length * (length - 1) // 2


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("sentences", "src_length", "tgt_length"), [(1, 1, 1), (3, 7, 5), (2, 6, 11)])
def test_equals_torchs_counter(
    shape: dict, sentences: int, src_length: int, tgt_length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "_prefers_onednn", lambda: False)
    config = config_of(**shape)
    ours = training_flops(config, VOCAB, np.full(sentences, src_length), np.full(sentences, tgt_length))
    hidden = hidden_pairs(tgt_length)
    if config.architecture == "decoder_only":
        hidden = hidden_pairs(src_length + tgt_length) - config.bidirectional_source * hidden_pairs(src_length)
    # Each costs a product of D numbers for its weight and one for its value, forward and twice backward.
    causal = 3 * 2 * 2 * config.d_model * config.decoder_layers * sentences * hidden
    assert ours + causal == counted(config, sentences, src_length, tgt_length)


def test_sentences_of_different_lengths_add_up() -> None:
    config, lengths = config_of(), [(3, 5), (8, 1), (2, 2)]
    together = training_flops(config, VOCAB, *(np.array(side) for side in zip(*lengths, strict=True)))
    alone = [training_flops(config, VOCAB, np.array([src]), np.array([tgt])) for src, tgt in lengths]
    assert together == sum(alone)


def test_a_real_batch_by_hand() -> None:
    # 100 sentences of 20 tokens each side through the paper's base model: 6 operations a weight and token, attention
    # over 20 * 20 pairs in the encoder and across, and 20 * 21 / 2 in the decoder.
    sides = np.full(100, 20)
    encoder, decoder = 6 * (4 + 8) * 512**2, 6 * (4 + 2 + 8) * 512**2  # cross-attention's other 2 are the source's
    weights = encoder * 2000 + decoder * 2000 + 6 * 2 * 512**2 * 2000 + 37_000 * 512 * 2000
    pairs = 6 * 100 * (400 + 400 + 210)
    assert training_flops(ModelConfig(), 37_000, sides, sides) == 6 * weights + 12 * 512 * pairs
