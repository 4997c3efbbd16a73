"""Estimates for a full training, from measurements of a few steps."""

from collections.abc import Sequence
from dataclasses import dataclass

from mt.config import Config
from mt.data.mixture import training_shares
from mt.extras.planning.probe import Measurements
from mt.training.length_plan import fitting_steps

_WEIGHT_BYTES = 4
_BEAM_COST = 5  # times greedy search; tuning and scoring search with a beam, and again for missing URLs and numbers


@dataclass(frozen=True)
class Estimate:
    """The estimated cost of a training, without preparing the data and scoring the model."""

    steps: int  # at most; `training.patience` may stop earlier
    epochs: float  # passes over the training text in these steps
    training_seconds: float
    validation_seconds: float
    disk: int  # peak bytes of the run folder, temporary files included

    @property
    def seconds(self) -> float:
        return self.training_seconds + self.validation_seconds

    def left(self, steps_done: int) -> float:
        """Return the share of the steps that is left."""
        return max(0, self.steps - steps_done) / self.steps


def estimate(
    config: Config,
    measured: Measurements,
    pairs: Sequence[int],
    valid_pairs: int,
    bytes_per_pair: float,
    complete: bool = True,
    done: tuple[int, float] = (0, 0.0),
) -> Estimate:
    """Extrapolate measurements on a sample to the full training.

    `pairs` are those of each training source; `complete` is False if the text has more than these, so that the end of
    an epoch is unknown. `done` has the steps and seconds that a training has behind it when it resumes.
    """
    training, data = config.training, config.data
    languages = list(map(data.languages_of, data.train))
    shares = training_shares(pairs, [source.weight for source in data.train], data.temperature, languages)
    steps_per_epoch = sum(share.sentences * share.repeats for share in shares) * measured.steps_per_pair
    per_validation = valid_pairs * measured.seconds_per_sentence
    steps = training.max_steps
    if training.minutes is not None:
        per_step = measured.seconds_per_step + per_validation / training.validate_every
        steps = fitting_steps(training, done[0], 60 * training.minutes - done[1], per_step)
    if training.max_epochs is not None and complete:
        steps = max(1, min(steps, round(training.max_epochs * steps_per_epoch)))
    validations = -(-steps // training.validate_every)
    return Estimate(
        steps=steps,
        epochs=steps / max(steps_per_epoch, 1e-9),
        training_seconds=steps * measured.seconds_per_step,
        validation_seconds=validations * per_validation,
        disk=_disk(config, measured, sum(pairs), bytes_per_pair, steps),
    )


def scoring_seconds(measured: Measurements, valid_pairs: int, test_pairs: int) -> float:
    """Return the seconds of tuning on the validation set and scoring on the test set after a training."""
    return _BEAM_COST * (valid_pairs + test_pairs) * measured.seconds_per_sentence


def _disk(config: Config, measured: Measurements, pairs: int, bytes_per_pair: float, steps: int) -> int:
    """Return the bytes at the peak: while dropping duplicates, or in training."""
    text = pairs * bytes_per_pair
    tokens = measured.tokens_per_step * measured.steps_per_pair * pairs
    encoded = tokens * (2 if config.tokenizer.vocab_size <= 2**16 else 4) + 16 * pairs  # and each sentence's offset
    epochs = 2 * encoded if config.tokenizer.is_sampled else 0  # the current epoch, and the next
    in_training = text + encoded + epochs + _checkpoints(config, measured, steps)
    return round(max(text * (1 + config.data.drop_duplicates), in_training))


def _checkpoints(config: Config, measured: Measurements, steps: int) -> int:
    """Return the bytes of the checkpoints and of the model folder."""
    training = config.training
    weights = measured.parameters * _WEIGHT_BYTES
    copies = 3 + (training.ema_decay is not None)  # weights, two moments, averaged weights
    averages = training.average_checkpoints if training.final_weights.startswith("average") else 1
    written = sum(-(-steps // every) for every in (training.save_every, training.validate_every) if every)
    checkpoints = min(training.keep_checkpoints + averages, written) + 1  # one is being written
    return checkpoints * copies * weights + 3 * weights  # the model for torch and CTranslate2
