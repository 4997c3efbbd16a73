"""From what a few steps took to what a whole training will."""

from collections.abc import Sequence
from dataclasses import dataclass

from mt.config import Config
from mt.console import duration
from mt.data.mixture import training_shares
from mt.extras.planning.probe import Measured

_NUMBER = 4  # bytes of a weight


@dataclass(frozen=True)
class Estimate:
    """What a training will cost, as far as a few steps tell.

    Attributes:
        steps: that it will make at most.
        epochs: passes over the training text in these steps.
        training_seconds, validation_seconds: without preparing the data and scoring the model, and without the end that
            `training.patience` may bring earlier.
        disk: bytes of the run folder when it is largest, temporary files among them.
    """

    steps: int
    epochs: float
    training_seconds: float
    validation_seconds: float
    disk: int

    @property
    def seconds(self) -> float:
        return self.training_seconds + self.validation_seconds


def estimate(
    config: Config,
    measured: Measured,
    pairs: Sequence[int],
    valid_pairs: int,
    bytes_per_pair: float,
    whole: bool = True,
) -> Estimate:
    """What the steps that were measured mean for all of the training.

    Args:
        config: what is trained.
        measured: on a sample.
        pairs: of each training source, that are trained on.
        valid_pairs: of the validation set.
        bytes_per_pair: of the training text.
        whole: False where the training text goes on after these pairs; nobody knows then when an epoch ends.
    """
    training = config.training
    shares = training_shares(pairs, [source.weight for source in config.data.train], config.data.temperature)
    in_epoch = sum(share.sentences * share.repeats for share in shares) * measured.steps_per_pair
    steps = training.max_steps
    if training.max_epochs is not None and whole:
        steps = max(1, min(steps, round(training.max_epochs * in_epoch)))
    validations = -(-steps // training.validate_every)
    tokens = measured.tokens_per_step * measured.steps_per_pair * sum(pairs)
    return Estimate(
        steps=steps,
        epochs=steps / max(in_epoch, 1e-9),
        training_seconds=steps * measured.seconds_per_step,
        validation_seconds=validations * valid_pairs * measured.seconds_per_sentence,
        disk=_disk(config, measured, sum(pairs) * bytes_per_pair, _encoded(config, tokens, sum(pairs))),
    )


def _disk(config: Config, measured: Measured, text: float, encoded: float) -> int:
    """Bytes at the fullest moment: while duplicates are taken out, shards of token ids are joined, or in training.

    Args:
        config: of the training.
        measured: how many weights there are.
        text: bytes of the training text.
        encoded: bytes of its token ids.
    """
    # An epoch of BPE-dropout lies there while the next is made.
    epochs = 2 * encoded if config.tokenizer.bpe_dropout else 0
    in_training = text + encoded + epochs + _checkpoints(config, measured)
    return round(max(text * (1 + config.data.drop_duplicates), text + 2 * encoded, in_training))


def _encoded(config: Config, tokens: float, pairs: int) -> float:
    """Bytes of the encoded text: the tokens, and where each sentence starts."""
    return tokens * (2 if config.tokenizer.vocab_size <= 2**16 else 4) + 16 * pairs


def _checkpoints(config: Config, measured: Measured) -> int:
    """Bytes of the checkpoints and of the model folder."""
    training = config.training
    averaged = training.ema_decay is not None
    one = measured.parameters * _NUMBER * (3 + averaged)  # weights and two moments
    averages = training.average_checkpoints if training.final_weights.startswith("average") else 1
    number = training.keep_checkpoints + averages + 1  # one is being written
    return number * one + 3 * measured.parameters * _NUMBER  # the model for torch and CTranslate2


def cost(measured: Measured, estimated: Estimate) -> str:
    """Time and memory in a sentence's words."""
    minutes = duration(estimated.seconds)
    validating = duration(estimated.validation_seconds)
    return (
        f"{measured.seconds_per_step:.2g} s a step, about {minutes} ({validating} of it validation), {memory(measured)}"
    )


def memory(measured: Measured) -> str:
    """The peaks of memory in words."""
    text = f"{measured.memory / 1e9:.1f} GB of memory"
    return text if measured.gpu_memory is None else f"{measured.gpu_memory / 1e9:.1f} GB of the GPU's memory and {text}"
