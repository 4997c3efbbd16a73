"""Every architecture there is."""

from mt.config.model import ModelConfig
from mt.model.decoder_only import DecoderOnly
from mt.model.transformer import Transformer

# What training, search and model folders work with: `states`, `start`, `step` and `output`, whatever is inside.
TranslationModel = Transformer | DecoderOnly


def build(
    config: ModelConfig, source_vocab: int, target_vocab: int, max_length: int, shared_vocab: bool
) -> TranslationModel:
    """A model with initial weights; arguments as of `Transformer`."""
    kind = DecoderOnly if config.architecture == "decoder_only" else Transformer
    return kind(config, source_vocab, target_vocab, max_length, shared_vocab)
