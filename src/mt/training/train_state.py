"""State of a training besides weights and moments: position, costs, and validation scores."""

from collections.abc import Collection
from dataclasses import dataclass, field

from mt.config import Config, TrainingConfig
from mt.console import log


@dataclass
class TrainState:
    """The state that a checkpoint keeps as JSON.

    Attributes:
        step: updates done.
        epoch, window, cursor: the position in the batch order: epoch, window of the corpus, and batches of the window
            consumed.
        tokens: source and target tokens trained on, padding not counted.
        seconds: time spent in steps, over all sessions.
        elapsed: time since the first step, validations included, over all sessions.
        validated_step: the step last validated.
        best_score, best_step: the best validation score so far (higher is better) and its step.
        best_validations: the best (score, step), best first.
        bad_validations: validations since the best.
        measure: the name of what the validation scores measure; different measures cannot be compared.
        skipped_updates, skipped_in_a_row: updates skipped because the loss or the gradient was not finite.
        out_of_memory: steps in which memory ran out.
        pieces: the number of pieces that each micro-batch is split into since then.
        loss_scale: with fp16, the factor on the loss and the finite updates since it last changed.
    """

    step: int = 0
    epoch: int = 0
    window: int = 0
    cursor: int = 0
    tokens: int = 0
    seconds: float = 0.0
    elapsed: float = 0.0
    validated_step: int = 0
    best_score: float | None = None
    best_step: int | None = None
    best_validations: list[tuple[float, int]] = field(default_factory=list)
    bad_validations: int = 0
    measure: str = ""
    skipped_updates: int = 0
    skipped_in_a_row: int = 0
    out_of_memory: int = 0
    pieces: int = 1
    loss_scale: tuple[float, int] | None = None

    def record_validation(self, score: float, count: int) -> None:
        """Rank the score of the present step, and keep the `count` best.

        Higher is better; of equal scores the earlier one comes first.
        """
        self.validated_step = self.step
        self.bad_validations += 1
        ranked = [*self.best_validations, (score, self.step)]
        self.best_validations = sorted(ranked, key=lambda entry: (-entry[0], entry[1]))[:count]
        if self.best_score is None or score > self.best_score:
            self.best_score, self.best_step, self.bad_validations = score, self.step, 0

    def use_measure(self, measure: str) -> None:
        """Forget earlier validation scores if they measured something else."""
        if self.measure not in ("", measure) and self.best_validations:
            log.warning("validations are scored by %s now, not %s: earlier ones no longer count", measure, self.measure)
            self.best_score = self.best_step = None
            self.best_validations, self.bad_validations = [], 0
        self.measure = measure

    def forget_lost_best(self, steps: Collection[int]) -> None:
        """Forget the best validation if its checkpoint is not among `steps`, for example because it was damaged."""
        if self.best_step is not None and self.best_step not in steps:
            self.best_score = self.best_step = None
            self.bad_validations = 0

    def end_reason(self, settings: TrainingConfig, max_steps: int, epochs_done: int) -> str:
        """Return why training is over, or "" if it is not; `training.minutes` may have changed its `max_steps`."""
        if self.step >= max_steps:
            limit = "max_steps" if max_steps == settings.max_steps else "minutes"
            return f"step {self.step:,} is the last (training.{limit})"
        if settings.max_epochs is not None and epochs_done >= settings.max_epochs:
            return f"epoch {epochs_done:,} is the last (training.max_epochs), with step {self.step:,}"
        if settings.patience is not None and self.bad_validations >= settings.patience:
            return (
                f"after step {self.step:,} the last {self.bad_validations} validations were no better than that of "
                f"step {self.best_step or 0:,} (training.patience)"
            )
        return ""


def validation_measure(config: Config) -> str:
    """Name the quantity that the validation scores measure."""
    settings = config.training
    metric = settings.best_metric if settings.best_metric == "loss" else f"BLEU ({config.evaluation.bleu_tokenize})"
    weights = "a mean of checkpoints" if settings.final_weights == "average" else "one checkpoint"
    return f"{metric} of {weights}{'' if settings.ema_decay is None else ', moving averages'}"
