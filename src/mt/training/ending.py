"""When a training is over."""

from mt.config import TrainingConfig
from mt.training.checkpoint import TrainState


def reason_to_end(place: TrainState, settings: TrainingConfig, epochs_done: int) -> str:
    """Why a training is over; empty where it is not."""
    if place.step >= settings.max_steps:
        return f"step {place.step:,} is the last (training.max_steps)"
    if settings.max_epochs is not None and epochs_done >= settings.max_epochs:
        return f"epoch {epochs_done:,} is the last (training.max_epochs), with step {place.step:,}"
    if settings.patience is not None and place.bad_validations >= settings.patience:
        return (
            f"after step {place.step:,} the last {place.bad_validations} validations were no better than that of step "
            f"{place.best_step or 0:,} (training.patience)"
        )
    return ""
