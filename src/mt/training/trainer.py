"""The training loop.

    micro_batch: one backward pass        step: one optimiser update over `accumulate` micro-batches

All randomness is a pure function of the seed and the position in training, so that a run killed anywhere and resumed
ends with bit-identical weights.
"""

import copy
import logging
import math
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from mt.config import Config
from mt.console import duration, log, progress
from mt.data.batching import BatchStream, TrainingCorpus
from mt.data.guided_alignment import Alignments
from mt.data.mixture import Share
from mt.errors import StoppedError
from mt.model.build import TranslationModel
from mt.model.transformer import set_parameters
from mt.storage.run_dir import RunDir
from mt.system.distributed import SINGLE_PROCESS, Distributed
from mt.training.averaging import FinalWeights, MovingAverage, swapped_weights
from mt.training.checkpoints import Checkpoints
from mt.training.compilation import CompilationLog
from mt.training.length_plan import LengthPlan
from mt.training.metrics_log import MetricsLog
from mt.training.precision import choose_precision
from mt.training.sharding import full_tensor, is_sharded
from mt.training.signals import StopRequest
from mt.training.step import TrainStep
from mt.training.step_results import StepResults, losses_text
from mt.training.train_state import TrainState, validation_measure
from mt.training.validation import Validation


class Trainer:
    """Trains a model until its steps, epochs or patience are used up.

    Args:
        config: the run's configuration.
        run: receives checkpoints and metrics.
        model: on its device, initialised; a checkpoint in the run replaces its weights.
        corpus: the encoded training text.
        validate: scores the model; every rank calls it.
        distributed: the ranks of this training.
        shares: how often each part of the corpus occurs in an epoch; None: every sentence once.
        load_teachers: loads the models to distil from.
        origin: digests of data and tokenizer, which checkpoints record.
        alignments: word alignments of the corpus, for guided alignment.
    """

    def __init__(
        self,
        config: Config,
        run: RunDir,
        model: TranslationModel,
        corpus: TrainingCorpus,
        validate: Callable[[TranslationModel], Validation],
        distributed: Distributed = SINGLE_PROCESS,
        shares: tuple[Share, ...] | None = None,
        load_teachers: Callable[[], Sequence[TranslationModel]] = tuple,
        origin: Mapping[str, Any] | None = None,
        alignments: Alignments | None = None,
    ) -> None:
        self.config = config
        self.settings = config.training
        self.distributed = distributed
        self.model = model
        will_be_sharded = distributed.world_size > 1 and self.settings.sharding == "fsdp"
        self.full_model = _copy_on_cpu(model) if will_be_sharded else model
        self.precision = choose_precision(config, model, run, distributed)
        # Before everything that reads the parameters, since it may shard them.
        self.train_step = TrainStep(config, model, distributed, load_teachers, self.precision)
        self.optimizer = self.train_step.optimizer
        decay = self.settings.ema_decay
        self.average = None if decay is None else MovingAverage(model, decay)
        self.checkpoints = Checkpoints(run, distributed, origin)
        self._saved: tuple[int, int] | None = None
        self.state = state = self._resume()
        self.final_weights = FinalWeights(self.settings, self.save_every, self.checkpoints, state)
        position = self.settings.max_tokens, config.seed, state.epoch, state.window, state.cursor
        self.batches = BatchStream(corpus, *position, distributed, shares, alignments)
        self._length = LengthPlan(run, self.settings, distributed, state.step, state.elapsed)
        self._set_length(self._length.at(state.step))
        if not self._end_reason():  # a finished training keeps its best score
            state.use_measure(validation_measure(config))
        self.metrics = MetricsLog(run, not distributed.is_main)
        self._validate = validate
        scales_loss = self.train_step.loss_scale is not None
        self.step_results = StepResults(state, self.metrics, self.train_step.reads_late, scales_loss)
        self._logged_seconds = state.seconds
        self._compilation_log = CompilationLog()
        self._session_start = 0.0, 0  # time and step

    def run(self) -> TrainState:
        """Train to the end, or until a signal asks to stop.

        Raises:
            StoppedError: a signal came; everything is saved.
            DivergedError: five updates in a row were not finite; 21 in fp16.
        """
        if not self._end_reason() or self._has_unscored_steps() or self.metrics.last_event()[1] > self.state.step:
            self.metrics.write("resume" if self.state.step else "start", self.state.step)
        is_alone = self.distributed.world_size == 1  # an interrupted rank could hang, waiting for the others
        with StopRequest(not self.distributed.is_main, interrupts=is_alone) as stop, self._progress_bar() as bar:
            # A checkpoint is saved before its validation, which may be long, fail, or be interrupted. It does not know
            # its own score, so after a crash the validation is repeated.
            if self._is_due(self.settings.validate_every) and self._has_unscored_steps():
                self.validate()
            if self.settings.init_from is not None and self.state.step == 0:
                self._score_start()
            self._session_start = time.monotonic(), self.state.step
            while not self._end_reason():
                started = time.perf_counter()
                self.step()
                seconds = time.perf_counter() - started
                self.state.seconds += seconds
                compile_seconds = self._compilation_log.new_seconds()  # no part of the training's speed
                self._logged_seconds += compile_seconds
                self._length.add_step(seconds - compile_seconds)
                if self._length.is_due(self.state.step):
                    self._set_length(self._length.replan(self.state.step))
                bar.total = self.settings.max_steps
                bar.update()
                if self._is_due(self.settings.log_every):
                    bar.set_postfix_str(self._log(is_shown=not bar.disable))
                if self._is_due(self.save_every) or self._is_due(self.settings.validate_every):
                    self.save()
                if self._is_due(self.settings.validate_every):
                    self.validate()
                self._check_signal(stop)
            if self._has_unscored_steps():
                self._save_unless_saved()
                self.validate()
            self._save_unless_saved()
            self._check_signal(stop)
        log.info("training has ended: %s", self._end_reason())
        return self.state

    def step(self) -> None:
        """Make one update from the next micro-batches."""
        state = self.state
        micro_batches = [self.batches.next() for _ in range(self.settings.accumulate)]
        loss, gradient_norm = self.train_step(micro_batches, state.step)
        state.step += 1
        if self.average is not None:
            self.average.update(state.step)
        state.epoch, state.window, state.cursor = self.batches.epoch, self.batches.window, self.batches.cursor
        state.tokens += loss.n_tokens
        if loss.pieces > state.pieces:
            state.pieces = loss.pieces
            state.out_of_memory += 1
            self.metrics.write("out_of_memory", state.step, pieces=loss.pieces)
        self.step_results.add(state.step, loss, gradient_norm)

    def validate(self) -> None:
        """Score the model on the validation set and rank the score."""
        started = time.perf_counter()
        self.step_results.flush()
        state = self.state
        result = self._score(self.final_weights.candidate(self._weights()))
        score = result.bleu if self.settings.best_metric == "bleu" else -result.loss
        score = -math.inf if math.isnan(score) else score  # nothing compares with NaN
        state.record_validation(score, self.settings.average_checkpoints)
        result.log(state.step, is_best=state.best_step == state.step)
        self.metrics.write("validation", state.step, epoch=state.epoch, **result.as_dict())
        self._length.add_validation(time.perf_counter() - started)
        self._set_length(self._length.replan(state.step))

    def _set_length(self, max_steps: int) -> None:
        self.settings = self.train_step.settings = self.settings.model_copy(update={"max_steps": max_steps})

    def _score_start(self) -> None:
        """Score the weights that training starts from; they cannot become the best ones."""
        result = self._score(self._weights())
        log.info("the model to start from, before any step:")
        result.log(0, is_best=False)
        self.metrics.write("validation", 0, epoch=0, **result.as_dict())

    @property
    def save_every(self) -> int:
        return self.settings.save_every or self.settings.validate_every

    def _end_reason(self) -> str:
        """Return why training is over, or "" if it is not: the steps, the epochs or the patience are used up."""
        return self.state.end_reason(self.config.training, self.settings.max_steps, self.batches.epochs_done)

    def save(self) -> None:
        """Write a checkpoint and remove those no longer needed."""
        self.step_results.flush()
        average = None if self.average is None else self.average.weights
        self.state.elapsed = self._length.elapsed
        if self.train_step.loss_scale is not None:
            self.state.loss_scale = self.train_step.loss_scale.state()
        self.checkpoints.save(self.state, self.model, self.optimizer, average)
        self._saved = self.state.step, self.state.validated_step
        self.checkpoints.prune(self.settings.keep_checkpoints, self.final_weights.needed())

    def _weights(self) -> Mapping[str, Tensor]:
        """Return the present weights, or their moving average if there is one; shards are gathered on the CPU."""
        weights = dict(self.model.named_parameters()) if self.average is None else self.average.weights
        return {name: full_tensor(x.detach()).cpu() if is_sharded(x) else x.detach() for name, x in weights.items()}

    def _score(self, weights: Mapping[str, Tensor]) -> Validation:
        """Validate the model with other weights, or if it is sharded its full copy with them."""
        if self.full_model is self.model:
            with swapped_weights(self.model, weights):
                return self._validate(self.model)
        set_parameters(self.full_model.to(self.model.device), weights)
        result = self._validate(self.full_model)
        self.full_model.cpu()
        return result

    def _resume(self) -> TrainState:
        newest = self.checkpoints.newest()
        if newest is None:
            return TrainState()
        average = None if self.average is None else self.average.weights
        state = self.checkpoints.load(newest, self.model, self.optimizer, average)
        self.train_step.pieces = state.pieces
        if self.train_step.loss_scale is not None and state.loss_scale is not None:
            self.train_step.loss_scale.load(state.loss_scale)
        log.info("resuming after step %d (epoch %d)", state.step, state.epoch + 1)
        if self.settings.final_weights == "best":
            state.forget_lost_best(self.checkpoints.steps())
        self._saved = state.step, state.validated_step
        return state

    def _is_due(self, every: int) -> bool:
        return self.state.step % every == 0

    def _has_unscored_steps(self) -> bool:
        return self.state.validated_step != self.state.step

    def _save_unless_saved(self) -> None:
        if self._saved != (self.state.step, self.state.validated_step):
            self.save()

    def _check_signal(self, stop: StopRequest) -> None:
        """Stop all ranks after the same step by a `StoppedError`; a signal may reach them between different steps."""
        if not self.distributed.any(stop.signal is not None):
            return
        number = stop.signal or signal.SIGTERM
        self._save_unless_saved()
        self.metrics.write("stopped", self.state.step, signal=number)
        raise StoppedError(
            number, f"stopped after step {self.state.step}; everything is saved", "the same command resumes from here"
        )

    def _progress_bar(self) -> Any:
        """Return the progress bar: a status line that fits 60 columns."""
        form = "step {n_fmt}/{total_fmt} {percentage:.0f}% {remaining} left{postfix}"
        return progress(total=self.settings.max_steps, initial=self.state.step, bar_format=form)

    def _log(self, is_shown: bool) -> str:
        """Log the means since the last call, only to the file if a status line is shown; return the text for that."""
        state = self.state
        means = self.step_results.summary(state.seconds - self._logged_seconds)
        self._logged_seconds = state.seconds
        if not means:  # all updates were skipped and reported
            return ""
        rate = self.optimizer.param_groups[0]["lr"]
        self.metrics.write("train", state.step, epoch=state.epoch, learning_rate=rate, **means)
        start, first = self._session_start  # an earlier session may have run on another machine
        left = (self.settings.max_steps - state.step) * (time.monotonic() - start) / (state.step - first)
        log.log(
            logging.DEBUG if is_shown else logging.INFO,
            "step %d, epoch %d: %s, perplexity %.2f, learning rate %.2e, %s tokens/s, at most %s left",
            state.step,
            state.epoch + 1,
            losses_text(means, 4),
            means["perplexity"],
            rate,
            f"{means['tokens_per_second']:,.0f}",
            duration(left),
        )
        return f"{losses_text(means, 3)}, {means['tokens_per_second']:,.0f} tok/s"


def _copy_on_cpu(model: TranslationModel) -> TranslationModel:
    """Copy a model that will be sharded. The copy translates, as ranks would need the shards at different times."""
    device = model.device
    copied = copy.deepcopy(model.cpu())  # copied there, since a GPU may not hold two
    model.to(device)
    return copied
