"""The training loop.

    micro_batch: one backward pass        step: one optimiser update over `accumulate` micro-batches

Everything random is a pure function of the seed and the place in training, so that a run killed anywhere and started
again ends in the same weights, bit for bit.
"""

import contextlib
import copy
import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from mt.config import Config
from mt.console import duration, log, progress
from mt.data.batching import BatchStream, TrainingCorpus
from mt.data.mixture import Share
from mt.errors import StoppedError
from mt.model.build import TranslationModel
from mt.model.transformer import set_parameters
from mt.storage.run_dir import RunDir
from mt.system.distributed import SINGLE_PROCESS, Distributed
from mt.training.averaging import (
    FinalWeights,
    MovingAverage,
    forget_lost_best,
    forget_other_scores,
    swapped_weights,
    measure_of,
    remember,
)
from mt.training.checkpoint import Checkpoints, TrainState
from mt.training.ending import reason_to_end
from mt.training.gradients import Gradients
from mt.training.metrics import Metrics
from mt.training.optimization import learning_rate, make_optimizer
from mt.training.sharding import whole
from mt.training.signals import StopRequest
from mt.training.step_results import StepResults
from mt.training.validation import Validation


class Trainer:
    """Trains a model until its steps, epochs or patience are spent.

    Args:
        config: the run's configuration.
        run: where checkpoints and metrics go.
        model: on its device, initialised; a checkpoint in the run replaces its weights.
        corpus: the encoded training text.
        validate: scores the model; of several processes, all call it.
        distributed: the processes that train together.
        shares: how often an epoch has which sentences; None: all once.
        teachers: models whose word probabilities it learns, too.
        origin: digests of the data and the tokenizer, for the checkpoints.
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
        teachers: Sequence[TranslationModel] = (),
        origin: Mapping[str, Any] | None = None,
    ) -> None:
        self.config = config
        self.settings = config.training
        self.distributed = distributed
        self.model = model
        # A model in shards cannot search for translations, since processes would need them at different times.
        self.whole_model = copy.deepcopy(model).cpu() if self._in_shards else model
        self.gradients = Gradients(config, model, distributed, teachers)  # before anything that keeps the model's parameters
        self.optimizer = make_optimizer(model, self.settings)
        decay = self.settings.ema_decay
        self.average = None if decay is None else MovingAverage(model, decay)
        self.checkpoints = Checkpoints(run, distributed, origin)
        self._saved: tuple[int, int] | None = None
        self.progress = self._resume()
        self.final_weights = FinalWeights(self.settings, self.save_every, self.checkpoints, self.progress)
        place = self.progress
        self.batches = BatchStream(
            corpus, self.settings.max_tokens, config.seed, place.epoch, place.window, place.cursor, distributed, shares
        )
        if not self.is_over():  # what is over keeps its best: nothing is to be compared with that
            forget_other_scores(self.progress, measure_of(config))
        self.metrics = Metrics(run, config, silent=not distributed.is_main)
        self._validate = validate
        # A CPU's work is done when a call returns. A GPU's is not, so nothing should ask for its results at once.
        self._reads_late = model.device.type == "cuda" and isinstance(self.optimizer, torch.optim.Optimizer)
        self.outcomes = StepResults(self.progress, self.metrics, self._reads_late)
        self._logged_seconds = self.progress.seconds
        self._began = 0.0, 0  # when this session did, and after which step

    def run(self) -> TrainState:
        """Trains to the end, or until a signal asks to stop.

        Raises:
            StoppedError: a signal came; everything is saved.
            DivergedError: five updates in a row were not finite.
        """
        self._began = time.monotonic(), self.progress.step
        if not self.is_over() or self._has_unscored_steps():  # or it only looks whether anything is left to do
            self.metrics.write("resume" if self.progress.step else "start", self.progress.step)
        with StopRequest(silent=not self.distributed.is_main) as stop, self._bar() as bar:
            # Steps are saved before they are validated, for that may take long, and fail, and who sent a signal may not
            # wait for it. So a checkpoint does not say how its own validation went: after a crash it is made again.
            if self.progress.step and self._is_due(self.settings.validate_every) and self._has_unscored_steps():
                self.validate()
            while not self.is_over():
                started = time.perf_counter()
                self.step()
                self.progress.seconds += time.perf_counter() - started
                bar.update()
                if self._is_due(self.settings.log_every):
                    bar.set_postfix(self._log())
                if self._is_due(self.save_every) or self._is_due(self.settings.validate_every):
                    self.save()
                if self._is_due(self.settings.validate_every):
                    self.validate()
                self._look(stop)
            if self._has_unscored_steps():
                self._save_unless_saved()
                self.validate()
            self._save_unless_saved()
            self._look(stop)
        log.info("the training has ended: %s", self._end())
        return self.progress

    def step(self) -> None:
        """One update: gradients of the next batches, clipped, applied."""
        place = self.progress
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(place.step + 1, self.settings, self.config.model.d_model)

        micro_batches = [self.batches.next() for _ in range(self.settings.accumulate)]
        result = self.gradients.add(micro_batches, place.step)
        limit = self.settings.clip_norm or math.inf
        norm = whole(torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit))
        self._update(result.sums[0] + norm)
        self.optimizer.zero_grad(set_to_none=True)

        place.step += 1
        if self.average is not None:
            self.average.update(place.step)
        place.epoch, place.window, place.cursor = self.batches.epoch, self.batches.window, self.batches.cursor
        place.tokens += result.n_tokens
        if result.pieces > 1:
            place.out_of_memory += 1
            self.metrics.write("out_of_memory", place.step, pieces=result.pieces)
        self.outcomes.add(place.step, result, norm)

    def _update(self, judge: Tensor) -> None:
        """Applies the gradients, unless a number that everything adds up to is not finite."""
        if self._reads_late:
            # The fused kernel looks at this flag itself.
            self.optimizer.found_inf = 1.0 - judge.isfinite().float()  # type: ignore[union-attr]
            self.optimizer.step()
        elif math.isfinite(judge.item()):
            self.optimizer.step()

    def validate(self) -> None:
        """Scores the model, remembers the best, and shows a few translations."""
        self.outcomes.settle()
        place = self.progress
        with self._having(self.final_weights.candidate(self._weights())) as model:
            result = self._validate(model)
        score = result.bleu if self.settings.best_metric == "bleu" else -result.loss
        score = -math.inf if math.isnan(score) else score  # nothing is better or worse than NaN
        place.validated_step = place.step
        place.bad_validations += 1
        remember(place, score, self.settings.average_checkpoints)
        if place.best_score is None or score > place.best_score:
            place.best_score, place.best_step, place.bad_validations = score, place.step, 0
        result.tell(place.step, is_best=place.best_step == place.step)
        self.metrics.write("validation", place.step, epoch=place.epoch, **asdict(result))

    @property
    def save_every(self) -> int:
        return self.settings.save_every or self.settings.validate_every

    def is_over(self) -> bool:
        """True when the steps, the epochs or the patience are spent."""
        return bool(self._end())

    def _end(self) -> str:
        return reason_to_end(self.progress, self.settings, self.batches.epochs_done)

    def save(self) -> None:
        """Writes a checkpoint and removes those no longer needed."""
        self.outcomes.settle()
        average = None if self.average is None else self.average.weights
        self.checkpoints.save(self.progress, self.model, self.optimizer, average)
        self._saved = self._state()
        self.checkpoints.prune(self.settings.keep_checkpoints, self.final_weights.needed())

    @property
    def _in_shards(self) -> bool:
        return self.distributed.world_size > 1 and self.settings.sharding == "fsdp"

    def _weights(self) -> Mapping[str, Tensor]:
        """The weights that count: their moving average, where there is one."""
        now = dict(self.model.named_parameters()) if self.average is None else self.average.weights
        return {name: whole(tensor.detach()) for name, tensor in now.items()}

    @contextlib.contextmanager
    def _having(self, weights: Mapping[str, Tensor]) -> Iterator[TranslationModel]:
        """The model with these weights, for a while."""
        if not self._in_shards:
            with swapped_weights(self.model, weights):
                yield self.model
            return
        set_parameters(self.whole_model.to(self.model.device), weights)
        yield self.whole_model
        self.whole_model.cpu()

    def _resume(self) -> TrainState:
        newest = self.checkpoints.newest()
        if newest is None:
            return TrainState()
        average = None if self.average is None else self.average.weights
        found = self.checkpoints.load(newest, self.model, self.optimizer, average)
        log.info("resuming after step %d (epoch %d)", found.step, found.epoch + 1)
        if self.settings.final_weights == "best":
            forget_lost_best(found, self.checkpoints.steps())
        self._saved = found.step, found.validated_step
        return found

    def _is_due(self, every: int) -> bool:
        return self.progress.step % every == 0

    def _has_unscored_steps(self) -> bool:
        return self.progress.validated_step != self.progress.step

    def _save_unless_saved(self) -> None:
        if self._saved != self._state():
            self.save()

    def _state(self) -> tuple[int, int]:
        """What tells a checkpoint from all others of the run."""
        return self.progress.step, self.progress.validated_step

    def _look(self, stop: StopRequest) -> None:
        """Stops after a signal. It may reach the processes between different steps; all must stop after the same."""
        if self.distributed.any(stop.signal is not None):
            self._stop(stop.signal or signal.SIGTERM)

    def _stop(self, signal_number: int) -> None:
        self._save_unless_saved()
        self.metrics.write("stopped", self.progress.step, signal=signal_number)
        raise StoppedError(
            signal_number,
            f"stopped after step {self.progress.step}; everything is saved",
            "the same command goes on from here",
        )

    def _bar(self) -> Any:
        return progress(total=self.settings.max_steps, initial=self.progress.step, unit="step", desc="training")

    def _log(self) -> dict[str, str]:
        """Writes what happened since the last time to the log and the metrics; returns it for the bar."""
        place = self.progress
        numbers = self.outcomes.summary(place.seconds - self._logged_seconds)
        self._logged_seconds = place.seconds
        if not numbers:  # all updates were skipped, which has been said
            return {}
        rate = self.optimizer.param_groups[0]["lr"]
        self.metrics.write("train", place.step, epoch=place.epoch, learning_rate=rate, **numbers)
        began, first = self._began  # of this session: another machine's pace says nothing, and validations count
        left = (self.settings.max_steps - place.step) * (time.monotonic() - began) / (place.step - first)
        log.info(
            "step %d, epoch %d: loss %.4f, perplexity %.2f, learning rate %.2e, %s tokens/s, at most %s left",
            place.step,
            place.epoch + 1,
            numbers["loss"],
            numbers["perplexity"],
            rate,
            f"{numbers['tokens_per_second']:,.0f}",
            duration(left),
        )
        return {
            "loss": f"{numbers['loss']:.3f}",
            "ppl": f"{numbers['perplexity']:.1f}",
            "lr": f"{rate:.1e}",
            "tok/s": f"{numbers['tokens_per_second']:,.0f}",
        }
