"""Keys that are set but have no effect: not errors, but worth a warning."""

from collections.abc import Iterator

from mt.config.base import Section
from mt.config.schema import Config


def unused_keys(config: Config) -> Iterator[str]:
    """Yield `KEY: reason` for each key whose value has no effect, or not the intended one."""
    training = config.training
    if training.warmup_steps >= training.max_steps:
        yield (
            f"training.max_steps: the learning rate rises for {training.warmup_steps:,} steps (training.warmup_steps) "
            f"but training ends after {training.max_steps:,}"
        )
    if training.r_drop > 0 and not config.model.has_dropout:
        yield (
            "training.r_drop: compares two passes that differ in their dropout, but dropout is off (model.dropout), so "
            "it only costs time"
        )
    if training.max_epochs is not None and 0 < training.max_epochs <= training.bidirectional_epochs:
        yield (
            f"training.bidirectional_epochs: covers all {training.max_epochs:,} epochs (training.max_epochs), so the "
            "intended direction is never learned alone"
        )
    if not training.distill_from and _is_set(training, "distill_weight"):
        yield "training.distill_weight: has no effect without teachers (training.distill_from)"
    if training.final_weights in ("best", "last") and _is_set(training, "average_checkpoints"):
        yield f"training.average_checkpoints: has no effect with training.final_weights: {training.final_weights}"
    if config.data.temperature != 1 and len(config.data.train) == 1:
        yield "data.temperature: has no effect with a single source in data.train"
    if training.init_from is None and _is_set(training, "init_tokenizer"):
        yield "training.init_tokenizer: has no effect without a model to start from (training.init_from)"
    if config.decoding.tune_length_penalty and config.decoding.beam_size == 1:
        yield "decoding.tune_length_penalty: has no effect with a beam of 1 (decoding.beam_size)"
    if config.tokenizer.given is not None:
        for key in ("vocab_size", "train_pairs"):
            if _is_set(config.tokenizer, key):
                yield f"tokenizer.{key}: has no effect with a given tokenizer (tokenizer.file)"


def _is_set(section: Section, key: str) -> bool:
    return bool(getattr(section, key) != type(section).model_fields[key].default)
