"""Settings that do nothing, or not what they are for: no mistakes, but worth a word."""

from collections.abc import Iterator

from mt.config.schema import Config
from mt.config.training import TrainingConfig


def unused_keys(config: Config) -> Iterator[str]:
    """A sentence on each."""
    training = config.training
    if training.warmup_steps >= training.max_steps:
        yield (
            f"training.max_steps: the learning rate rises for {training.warmup_steps:,} steps (training.warmup_steps) "
            f"and the training ends after {training.max_steps:,}, before it is reached"
        )
    if training.r_drop > 0 and not config.model.has_dropout:
        yield (
            "training.r_drop: compares two passes that differ in their dropout, and there is none (model.dropout): it "
            "costs time for nothing"
        )
    if training.max_epochs is not None and 0 < training.max_epochs <= training.bidirectional_epochs:
        yield (
            f"training.bidirectional_epochs: of {training.max_epochs:,} epochs (training.max_epochs) none is left to "
            "learn the one direction alone"
        )
    if not training.distill_from and _is_set(training, "distill_weight"):
        yield "training.distill_weight: is for teachers, and training.distill_from names none"
    if training.final_weights in ("best", "last") and _is_set(training, "average_checkpoints"):
        yield (
            "training.average_checkpoints: is for a mean of checkpoints, and training.final_weights is "
            f"{training.final_weights}"
        )
    if config.data.temperature != 1 and len(config.data.train) == 1:
        yield "data.temperature: is for several sources, and data.train has one"
    if training.init_from is None and _is_set(training, "init_tokenizer"):
        yield "training.init_tokenizer: is for a model to start from, and training.init_from names none"


def _is_set(section: TrainingConfig, key: str) -> bool:
    return bool(getattr(section, key) != type(section).model_fields[key].default)
