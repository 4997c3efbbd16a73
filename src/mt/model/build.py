"""Choice of the architecture."""

from mt.config.model import ModelConfig
from mt.model.decoder_only import DecoderOnly
from mt.model.transformer import Transformer

# Common: `states`, `start`, `step`, `output`, `blocks`, `max_positions`, `source_format`, `is_guided` and `device`.
TranslationModel = Transformer | DecoderOnly


def build(
    config: ModelConfig, source_vocab: int, target_vocab: int, max_length: int, shared_vocab: bool
) -> TranslationModel:
    """Build a model with initial weights; arguments as of `Transformer`."""
    kind = DecoderOnly if config.architecture == "decoder_only" else Transformer
    return kind(config, source_vocab, target_vocab, max_length, shared_vocab)
