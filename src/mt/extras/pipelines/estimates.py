"""Estimates of time and disk for each step, from timed training steps and the sizes of the texts.

The factors between a training step and the other commands were measured once (docs/pipelines.md).
"""

import contextlib
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from heapq import heappop, heappush
from itertools import chain
from pathlib import Path

from mt.config import Config, PairFiles, Source
from mt.config.problems import SECTIONS
from mt.console import duration, log, table
from mt.data.tokenizer_kinds import TokenizerPair
from mt.errors import InputError, MtError
from mt.extras.doctor.scoring import random_interval, small_model
from mt.extras.pipelines.lost_trainings import is_complete
from mt.extras.pipelines.output_names import evaluated_pairs
from mt.extras.pipelines.plan import Plan, Step
from mt.extras.pipelines.records import State
from mt.extras.pipelines.results import identity
from mt.extras.pipelines.schema import Eval, Score
from mt.extras.planning.corpus_sample import sample_corpus, train_on_sample
from mt.extras.planning.dry_run import Texts, read_texts, training_progress
from mt.extras.planning.estimate import estimate, scoring_seconds
from mt.extras.planning.probe import Measurements, probe
from mt.storage import atomic
from mt.storage.manifest import stage_key
from mt.storage.run_dir import RunDir
from mt.system.devices import usable_devices
from mt.text.lines import count_lines

_START = 6.0  # seconds that a command takes to start
_FEW_STEPS = 20  # of a training that is not timed: a probe makes as many
_BEAM_FACTOR = 0.46  # times (1 + beam): 0.92, 2.8 and 6 times greedy search in a probe, for a beam of 1, 5 and 12
_INT8, _SHORTLIST = 0.8, 0.7  # of CTranslate2's time in float32, and without a shortlist
_TORCH = 1.3  # times CTranslate2's time in float32
_CLEANED_PER_SECOND = 1800  # pairs
_PASSES_PER_SCORE = 4  # two models, each for the pair and for its target with another source
_FORWARD = 0.28  # of a training step's time: without gradients, in batches that fit the caches
_SCORE_BYTES, _WEIGHT_BYTES = 160, 4  # of a pair's scores, of a weight


@dataclass(frozen=True)
class StepCost:
    """The estimated cost of a step: seconds, and bytes on the disk; None: unknown."""

    seconds: float | None = None
    disk: int | None = None


def plan_table(plan: Plan, step_states: Mapping[str, State], costs: Mapping[str, StepCost], jobs: int) -> str:
    """Return the steps with the estimated costs of those that are to run."""
    rows = []
    for name in plan.steps:
        cost = costs.get(name, StepCost())
        seconds = "-" if cost.seconds is None else duration(cost.seconds)
        megabytes = "-" if cost.disk is None else f"{cost.disk / 1e6:,.1f}"
        rows.append([*identity(plan, name, step_states), seconds, megabytes])
    unknown = sum(cost.seconds is None for cost in costs.values())
    without = f", without {unknown} step{'s' * (unknown > 1)} of unknown length" if unknown else ""
    disk = sum(cost.disk or 0 for cost in costs.values()) / 1e6
    total = f"estimated: {duration(makespan(plan, costs, jobs))}, {jobs} at once{without}; {disk:,.0f} MB"
    return "\n".join([table(["step", "command", "state", "needs", "time", "MB"], rows), total])


def estimate_costs(plan: Plan, names: list[str], jobs: int = 1, keep: bool = True) -> dict[str, StepCost]:
    """Estimate the cost of some steps if `jobs` run at once; with `keep` the timings are saved for the next time.

    Raises:
        InputError: a step's training would refuse its text.
    """
    threads = os.environ.get("OMP_NUM_THREADS")
    cores = {name: plan.cores(name, jobs) for name in names}
    estimator = _Estimator(plan, keep)
    try:
        return {name: estimator.cost(plan.steps[name], cores[name]) for name in names}
    finally:
        os.environ.pop("OMP_NUM_THREADS", None)
        os.environ |= {} if threads is None else {"OMP_NUM_THREADS": threads}


def makespan(plan: Plan, costs: Mapping[str, StepCost], jobs: int) -> float:
    """Return the seconds until the last of these steps has ended if `jobs` run at once, started as `execute` does."""
    waiting, running = list(filter(costs.__contains__, plan.steps)), list[tuple[float, str]]()
    ended, now = set[str](), 0.0
    while waiting or running:
        ready = [name for name in waiting if ended.issuperset(costs.keys() & plan.steps[name].needs)]
        for name in ready[: jobs - len(running)]:
            waiting.remove(name)
            heappush(running, (now + (costs[name].seconds or 0.0), name))
        now, name = heappop(running)
        ended.add(name)
    return now


def search_factor(beam: int, is_int8: bool = False, has_shortlist: bool = False) -> float:
    """Return the time of a search in CTranslate2, as a multiple of greedy search in a probe."""
    return _BEAM_FACTOR * (1 + beam) * (_INT8 if is_int8 else 1.0) * (_SHORTLIST if has_shortlist else 1.0)


class _Estimator:
    def __init__(self, plan: Plan, keep: bool) -> None:
        self._plan, self._keep = plan, keep
        self._cores = 1  # of the step that is estimated
        self._path = plan.records / ".timings.json"
        self._measured: dict[str, Measurements] = {}
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):  # missing or damaged
            timings = json.loads(self._path.read_bytes())
            self._measured = {key: Measurements(**values) for key, values in timings.items()}
        self._read = cache(read_texts)
        pairs = (pair for step in plan.steps.values() for pair in _pairs(step))
        self._translations = {source: target for source, target in pairs if not plan.writer(target)}

    def cost(self, step: Step, cores: int) -> StepCost:
        """Return the estimated cost of a step on that many cores."""
        self._refuse_unusable(step)
        self._cores = cores
        os.environ["OMP_NUM_THREADS"] = str(cores)  # for the processes that time training steps
        try:
            return self._model_cost(step) if step.config is None else self._corpus_cost(step, step.config)
        except (MtError, OSError) as error:
            log.debug("%s: no estimate: %s", step.name, error)
            return StepCost(3 * _START if step.kind == "export" else None)

    def _refuse_unusable(self, step: Step) -> None:
        """Refuse text that a training would refuse, if it is in files of the user; steps may yet rewrite theirs."""
        if step.kind != "train" or step.config is None:
            return
        data = step.config.data
        splits = [each for each in (data.train, data.valid, data.test) if isinstance(each, tuple)]
        is_local = all(source.files for source in chain.from_iterable(splits))
        paths = chain.from_iterable(paths for _, _, paths in step.sources())
        if is_local and all(path.exists() and not self._plan.writer(path) for path in paths):
            try:
                self._read(self._with_stand_ins(step.config).data)
            except InputError as error:
                place = self._plan.pipeline.origin("steps", step.name)
                raise InputError(f"{place}: step {step.name}: {error.message}", error.hint) from None

    def _model_cost(self, step: Step) -> StepCost:
        models = self._trained(step, "model")
        if len(models) < len(step.models()):
            raise InputError("a model that no step trains is not timed")
        measured = list(map(self._measure, models))
        if step.kind == "export":
            return StepCost(3 * _START, measured[0].parameters * _WEIGHT_BYTES)
        sentences, size = self._text_size(step, models)
        options, search = step.settings.model_dump(), models[0].decoding
        beam = 1 if options.get("greedy") else options["beam"] or search.beam_size
        beam = (options.get("n_best") or 1) if options["sample"] else beam
        is_int8 = (options["compute_type"] or search.compute_type) == "int8"
        factor = search_factor(beam, is_int8, search.shortlist > 0 and options["shortlist"] is not False)
        if len(models) > 1 or options["sample"]:
            factor = _TORCH * search_factor(beam)
        passes = factor * (2 if step.kind == "eval" else 1)
        passes += _TORCH * search_factor(options["mbr"]) if options.get("mbr") else 0.0
        seconds = sum(each.seconds_per_sentence for each in measured) * passes
        return StepCost(_START + sentences * seconds, size)

    def _text_size(self, step: Step, models: list[Config]) -> tuple[int, int]:
        """Return the sentences and bytes of the text that a step translates."""
        path = step.text("source" if step.kind == "eval" else "input")
        if path is None:  # the model's test set
            data = self._with_stand_ins(models[0]).data
            if isinstance(data.test, tuple) and isinstance(step.settings, Eval):
                evaluated = evaluated_pairs(step.settings, models)
                sample = sample_corpus([test for test in data.test if data.languages_of(test) in evaluated], data)
                pairs = sum(sample.pairs)
            else:
                sample, (pairs, _) = self._read(data).train, self._read(data).held_out["test"]
            return pairs, round(pairs * sample.bytes_per_source())
        if (text := self._stand_in(path)) is None:
            raise InputError("the length of its text is unknown")
        return count_lines(text), text.stat().st_size

    def _corpus_cost(self, step: Step, planned: Config) -> StepCost:
        config = self._with_stand_ins(planned)
        texts = self._read(config.data)
        if step.kind == "clean":
            size = sum(texts.pairs) * texts.train.bytes_per_pair()
            return StepCost(_START + sum(texts.pairs) / _CLEANED_PER_SECOND, round(size))
        if step.kind == "score":
            return self._scoring_cost(step, config, texts)
        measured = self._measure(config, texts)
        valid, test = (texts.held_out.get(split, (0, True))[0] for split in ("valid", "test"))
        training, train, run = config.training, texts.train, RunDir(step.output)
        steps_done, _ = done = training_progress(run)
        estimated = estimate(config, measured, texts.pairs, valid, train.bytes_per_pair(), train.complete, done)
        left = 0.0 if is_complete(planned, run) else estimated.left(steps_done)
        # Each teacher makes a forward pass, a third of a step; a training with a time limit makes fewer steps instead.
        teachers = 1 if training.minutes else 1 + len(training.distill_from) / 3
        seconds = 2 * _START + left * (estimated.training_seconds * teachers + estimated.validation_seconds)
        return StepCost(seconds + scoring_seconds(measured, valid, test), estimated.disk)

    def _scoring_cost(self, step: Step, config: Config, texts: Texts) -> StepCost:
        pairs, seconds_per_pair, seconds = sum(texts.pairs), [], 2 * _START
        if isinstance(step.settings, Score) and step.settings.train:
            small = small_model("", ("", ""), "", [], round(pairs * texts.train.bytes_per_pair() / 2), "auto")
            sections = {key: SECTIONS[key].model_validate(small[key]) for key in ("tokenizer", "model", "training")}
            config = config.model_copy(update=sections)
            training_seconds = config.training.max_steps * self._measure(config, texts).seconds_per_step
            seconds += 2 * training_seconds * len({frozenset(pair) for pair in config.data.pairs})  # both directions
        for model in self._trained(step, "forward", "backward") or [config]:
            training = model.training.model_copy(update={"precision": "fp32"})  # in which all models score
            measured = self._measure(model.model_copy(update={"training": training}), texts)
            seconds_per_pair.append(measured.steps_per_pair * measured.seconds_per_step)
        scored = pairs + pairs // random_interval(pairs)
        seconds += _PASSES_PER_SCORE * scored * sum(seconds_per_pair) / len(seconds_per_pair) * _FORWARD
        return StepCost(seconds, 2 * _SCORE_BYTES * scored)

    def _trained(self, step: Step, *keys: str) -> list[Config]:
        """Return the configurations of a step's models, as far as other steps train them."""
        configs = [self._plan.planned_config(model) for key in keys for model in step.models(key)]
        return list(filter(None, configs))

    def _measure(self, config: Config, texts: Texts | None = None) -> Measurements:
        """Time some steps of a training, or reuse the timings of an equal one on this machine."""
        training = config.training
        if training.max_steps <= _FEW_STEPS:
            raise InputError("so few steps are not timed")
        plain = training.model_copy(update={"init_from": None, "init_layers": None, "distill_from": ()})
        config = self._with_stand_ins(config.model_copy(update={"training": plain}))
        texts = texts or self._read(config.data)
        train = texts.train
        best = (name for name, usable in usable_devices().items() if usable and training.device == "auto")
        machine = (platform.node(), next(best, training.device), self._cores)
        text = (texts.pairs, round(train.bytes_per_pair(), 1), config.data.max_length)
        settings = (training.max_tokens, training.accumulate, training.optimizer, training.r_drop, training.precision)
        features = (training.recompute, training.compile, training.cuda_graphs, training.freeze, config.is_guided)
        key = stage_key(config.model, config.tokenizer, machine, text, *settings, *features)
        if key not in self._measured:
            given = TokenizerPair.given(config.tokenizer, config.tags)
            tokenizers = given or train_on_sample(config.tokenizer, train.sample, config.tags)
            log.info("timing a few steps of %s, whose result is discarded", config.name)
            complete = given is not None or len(train.sample) == train.clean
            self._measured[key] = probe(config, train.sample, tokenizers, complete)
            if self._keep:
                atomic.write_json(self._path, {key: asdict(each) for key, each in self._measured.items()})
        return self._measured[key]

    def _with_stand_ins(self, config: Config) -> Config:
        """Replace training texts that steps have yet to write by texts of similar length; leave out unknown ones."""
        train: list[Source] = []
        for source in config.data.train:
            files = source.files if isinstance(source, PairFiles) else {}
            stand_ins = {side: self._stand_in(Path(config.data.root, name)) for side, name in files.items()}
            paths = {side: str(path.absolute()) for side, path in stand_ins.items() if path is not None}
            if len(paths) == len(files):
                train.append(source.model_copy(update=paths))
        return config.model_copy(update={"data": config.data.model_copy(update={"train": tuple(train)})})

    def _stand_in(self, path: Path) -> Path | None:
        """Return a text or, until a step has written it, an existing one of as many lines or more; None if unknown."""
        if path.exists():
            return path
        writer = self._plan.writer(path)
        if writer is None:
            return None
        if writer.config is not None:  # a cleaning
            sides = list(chain.from_iterable(_pairs(writer)))
            same_language = [side for side in sides if side.suffix == path.suffix] or sides[:1]
            return self._stand_in(same_language[0]) if same_language else None
        source = writer.text("input")
        if source is None:
            return None
        return self._stand_in(writer.text("closest_to") or self._translations.get(source) or source)


def _pairs(step: Step) -> list[list[Path]]:
    """Return the two files of each training source of a step that is a pair of text files."""
    return [paths for split, source, paths in step.sources() if split == "train" and isinstance(source, PairFiles)]
