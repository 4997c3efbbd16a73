"""Floating-point operations of a Transformer's training, to compare a measured speed with the machine's.

S, T tokens of a sentence's source and target   D d_model   F d_ff   V target vocabulary
"""

import numpy as np
from numpy.typing import NDArray

from mt.config.model import ModelConfig


def training_flops(
    config: ModelConfig, target_vocab: int, src_lengths: NDArray[np.int64], tgt_lengths: NDArray[np.int64]
) -> float:
    """Return the useful operations of one forward and backward pass over some sentences.

    A matrix product with a weight costs 2 operations per weight and token forward and 4 backward, so 6 in all (Kaplan
    et al. 2020, arXiv:2001.08361, section 2.1). The products within attention cost 4 * D operations per pair of
    positions forward, 12 in all; the pairs that the causal mask hides do not count, nor do padding, embeddings, norms,
    softmax, dropout and the optimiser.

    Args:
        config: the model's shape.
        target_vocab: V, the rows of the output layer.
        src_lengths, tgt_lengths: S and T of each sentence (B,), as the model sees them.
    """
    d_model = config.d_model
    feed_forward = (3 if config.activation == "swiglu" else 2) * d_model * config.d_ff
    source, target = float(src_lengths.sum()), float(tgt_lengths.sum())
    output = target_vocab * d_model * target
    if config.architecture == "decoder_only":
        lengths = src_lengths + tgt_lengths
        pairs = float((lengths * (lengths + 1) / 2).sum())
        if config.bidirectional_source:
            pairs += float((src_lengths * (src_lengths - 1) / 2).sum())
        stack = config.decoder_layers * (4 * d_model**2 + feed_forward) * (source + target)
        return 6 * (stack + output) + 12 * d_model * config.decoder_layers * pairs
    encoder = config.encoder_layers * (4 * d_model**2 + feed_forward) * source
    decoder = config.decoder_layers * ((6 * d_model**2 + feed_forward) * target + 2 * d_model**2 * source)

    encoder_pairs = config.encoder_layers * float((src_lengths**2).sum())
    decoder_pairs = config.decoder_layers * float((tgt_lengths * (tgt_lengths + 1) / 2).sum())
    cross_pairs = config.decoder_layers * float((src_lengths * tgt_lengths).sum())
    return 6 * (encoder + decoder + output) + 12 * d_model * (encoder_pairs + decoder_pairs + cross_pairs)
