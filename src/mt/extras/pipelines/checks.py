"""Checks of a plan before anything runs: files, languages, vocabularies, and texts of as many lines."""

import json
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from mt.bundle.pretrained import Pretrained, start_differences
from mt.config import Config, FromTrain
from mt.config.problems import Problem
from mt.config.schema import export_rules
from mt.config.yaml_tree import TreePath
from mt.data.sentence_format import SentenceFormat
from mt.data.token_store import SIDES
from mt.errors import InputError
from mt.evaluation.texts import has_split, owner
from mt.extras.export.exporting import check_options, is_quantized, require_packages
from mt.extras.pipelines.loading import problem
from mt.extras.pipelines.plan import Plan, Step
from mt.extras.pipelines.records import may_write, misfit
from mt.extras.pipelines.schema import Distill, Export, Score
from mt.metrics.comet import find_checkpoint
from mt.pipeline.training import check_requirements
from mt.storage.find_model import find_model
from mt.storage.manifest import read_manifest
from mt.system.devices import usable_devices
from mt.text.languages import chosen_language
from mt.text.lines import read_lines

_Direction = tuple[tuple[str, ...], tuple[str, ...]]  # source and target languages of a model
# Settings of a tokenizer that do not change what is learned
_SAMPLING = {"bpe_dropout", "sampling_alpha"}


def check_plan(plan: Plan) -> None:
    """Check that each step's inputs are there or will be, and fit.

    Raises:
        InputError: all problems of the first kind that has any, each with file and line.
    """
    checker = _Checker(plan)
    for check in (checker.missing, checker.other_languages, checker.unfit_models, checker.other_lengths):
        plan.pipeline.refuse([found for step in plan.steps.values() for found in check(step)])


def unusable_devices(plan: Plan, names: Iterable[str]) -> Iterator[Problem]:
    """Report steps that name a device which this machine does not have."""
    for name in names:
        step = plan.steps[name]
        path: TreePath = ("steps", name, step.kind, "device")
        device = getattr(step.settings, "device", None)
        trains = step.kind == "train" or (isinstance(step.settings, Score) and step.settings.train)
        if trains and device is None and step.config is not None:
            path, device = plan.pipeline.set_path(name, "training.device"), step.config.training.device
        if device not in (None, "auto", "cpu") and not usable_devices().get(device):
            yield problem(f"this machine has no usable {device} device", *path)


class _Checker:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._lines = cache(lambda path: sum(1 for _ in read_lines(path)))

    def missing(self, step: Step) -> Iterator[Problem]:
        """Report files, models and packages that are not there, and an output that would replace a file of the user."""
        keys = {path: key for key, paths in step.places.items() for path in paths}
        for path in step.reads:
            yield from self._missing(step, path, path.exists(), keys.get(path))
        for split, source, paths in step.sources():
            for path in paths:
                is_there = path.exists() or getattr(source, "optional", False)
                yield from self._missing(step, path, is_there, f"data.{split}")
        if comet := getattr(step.settings, "comet_model", None):
            try:
                find_checkpoint(Path(comet))
            except InputError as error:
                yield self._problem(step, error.message, "comet_model")
        if getattr(step.settings, "output", None) and not may_write(self._plan, step):
            message = f"{step.output} is there, and this step did not write it; remove it, or choose another output"
            yield self._problem(step, message, "output")
        if step.kind == "train" and step.config is not None:
            check_requirements(step.config)
            require_packages(*step.config.exports)

    def _missing(self, step: Step, path: Path, is_there: bool, key: str | None) -> Iterator[Problem]:
        writer = self._plan.writer(path)
        if writer is None:
            message = misfit(path, key) if is_there else f"there is no {path}, and no step writes it"
        elif writer.name not in step.needs:  # they could run in any order
            remedy = "" if writer is step else f"write {{step: {writer.name}}}, or "
            message = f"{path} is what {writer.name} writes; {remedy}choose another output"
        else:
            is_named = writer.kind == "clean" and (not path.exists() or (key or "").startswith("data."))
            names = self._clean_names(writer) if is_named else [path.name]
            message = "" if path.name in names else f"step {writer.name} writes {', '.join(names)}, not {path.name}"
        if message:
            yield self._problem(step, message, *filter(None, [key]))

    def _clean_names(self, step: Step) -> list[str]:
        """Return the names of the texts that a cleaning writes, which leaves out optional sources that are missing."""
        assert step.config is not None
        data = step.config.data
        gone = [
            source
            for _, source, paths in step.sources()
            if getattr(source, "optional", False) and not all(p.exists() or self._plan.writer(p) for p in paths)
        ]
        train = [source for source in data.train if source not in gone]
        numbers = [f"-{n}" for n in range(1, len(train) + 1)] if len(train) != 1 else [""]
        pairs = zip(numbers, map(data.languages_of, train), strict=True)
        sides = ((number, codes if codes[0] != codes[1] else SIDES) for number, codes in pairs)
        return [f"train{number}.{side}" for number, names in sides for side in names]

    def unfit_models(self, step: Step) -> Iterator[Problem]:
        """Report models of another shape or vocabulary than the step needs, and exports that hold no such model."""
        settings, models = step.settings, step.models()
        if isinstance(settings, Export):
            check_options(settings.format, settings.quantization, settings.max_loss)
            require_packages(settings.format)
            config = self._plan.config_of(models[0])
            for rule in export_rules(config, settings.format):
                yield self._problem(step, rule.reason, "format")
            is_measured = is_quantized(config, settings.format, settings.quantization) and step.text("source") is None
            if is_measured and not self._has_split(models[0], "valid"):
                message = f"{models[0]} has no validation set to measure this export on; add source and reference"
                yield self._problem(step, message, "model")
        if step.kind == "train" and step.config is not None:
            yield from self._unfit_pretrained(step, step.config)
        if isinstance(settings, Distill) and settings.closest_to is not None and not settings.sample:
            beam = settings.beam or self._plan.config_of(models[0]).decoding.beam_size
            if not 2 <= (settings.n_best or beam) <= beam:
                message = f"needs 2 or more translations, and no more than the beam of {beam} has"
                yield self._problem(step, message, "n_best" if settings.n_best else "closest_to")
        if step.kind == "eval" and step.text("source") is None and not self._has_split(models[0], "test"):
            message = f"{models[0]} has no test set; add source and reference, or set data.test in its training"
            yield self._problem(step, message, "model")
        for other in models[1:]:
            if _differ(self._vocabulary(models[0]), self._vocabulary(other)):
                yield self._problem(step, f"the vocabulary of {other} is not that of {models[0]}", "model")

    def _has_split(self, model: Path, split: str) -> bool:
        writer = self._plan.writer(model)
        if writer is None or writer.config is None:
            return has_split(owner(find_model(model, self._plan.folder)), split)
        return getattr(writer.config.data, split) is not None

    def _unfit_pretrained(self, step: Step, config: Config) -> Iterator[Problem]:
        start, teachers = config.training.init_from, config.training.distill_from
        named = [Path(each) for each in (start, *teachers) if each]
        if named and not any(map(self._plan.writer, named)):
            Pretrained.find(config, self._plan.folder, {}).check()
            return
        try:
            different = start_differences(self._plan.config_of(Path(start)), config) if start else []
        except InputError as error:
            yield self._problem(step, error.message, "training.init_layers")
            return
        if different:
            reason = f"{start} differs from this configuration in {', '.join(different)}"
            yield self._problem(step, reason, "training.init_from")
        for teacher in map(Path, teachers):
            if _differ(self._vocabulary(teacher), self._config_vocabulary(config)):
                reason = f"the vocabulary of {teacher} is not that of the student; training.init_from keeps one"
                yield self._problem(step, reason, "training.distill_from")

    def _vocabulary(self, model: Path) -> Any:
        """Return what determines the vocabulary of a model: its files, or the settings and text of its tokenizer."""
        writer = self._plan.writer(model)
        if writer is not None and writer.config is not None:
            return self._config_vocabulary(writer.config)
        files = read_manifest(find_model(model, self._plan.folder).root)["files"]
        return {name: file["sha256"] for name, file in files.items() if name.startswith("tokenizer/")}

    def _config_vocabulary(self, config: Config) -> Any:
        training, data = config.training, config.data
        owners = [training.init_from if training.init_tokenizer else None, *training.distill_from]
        if owner := next(filter(None, owners), None):
            return self._vocabulary(Path(owner))
        settings = config.tokenizer.model_dump(exclude=_SAMPLING)
        if config.tokenizer.given:
            return [settings]
        splits = {"valid": data.valid, "test": data.test}
        held_out = {split: each.from_train for split, each in splits.items() if isinstance(each, FromTrain)}
        text = data.model_dump(exclude={"root", "max_length", "temperature", "train", "valid", "test"})
        train = [source.model_dump(exclude={"weight"}) for source in data.train]
        return [settings, held_out and [config.seed, held_out], text, train]

    def other_languages(self, step: Step) -> Iterator[Problem]:
        """Report models and texts of other languages than the step needs."""
        models = step.models()
        if step.kind == "score" and step.config is not None:
            own, targets = step.config.data.source_lang, step.config.data.target_lang
            for key, sources, others in (("forward", own, targets), ("backward", targets, own)):
                for model in step.models(key):
                    source, target = self._direction(model)
                    if not (set(source) & set(sources) and set(target) & set(others)):
                        ways = f"{', '.join(source)} to {', '.join(target)}"
                        reason = f"{model} translates {ways}, not {sources[0]} to {others[0]}"
                        yield self._problem(step, reason, key)
        directions = [self._direction(model) for model in models]
        if len({source for source, _ in directions}) > 1 or (directions and not _common(directions)):
            yield self._problem(step, "these models translate in different directions", "model")
            return
        yield from self._unknown_languages(step, directions)
        for key in ("input", "source", "closest_to", "reference") if directions else ():
            known = {*directions[0][1], *directions[0][0]}
            expected = directions[0][0] if key in ("input", "source") else _common(directions)
            expected = tuple(known) if self._is_bidirectional(models[0]) else expected
            path = step.text(key)
            language = self._language(path, known) if path else None
            if language is not None and language not in expected:
                yield self._problem(step, f"{path} is {language} text, not {' or '.join(expected)}", key)
        for split, source, paths in step.sources():
            expected = step.config.data.languages_of(source) if step.config else ()
            for path, code in zip(paths, expected, strict=False):
                language = self._language(path, set()) if self._plan.writer(path) else None
                if language is not None and language != code:
                    yield self._problem(step, f"{path} is {language} text, not {code}", f"data.{split}")

    def _unknown_languages(self, step: Step, directions: list[_Direction]) -> Iterator[Problem]:
        """Report languages that the models do not have, or that are several with none chosen."""
        chosen = getattr(step.settings, "from_", None), getattr(step.settings, "to", None)
        if not directions or not (any(chosen) or step.text("input") or step.text("source")):
            return
        source_format = SentenceFormat.of(self._plan.config_of(step.models()[0]))
        for key, known, code in zip(("from", "to"), (directions[0][0], _common(directions)), chosen, strict=True):
            if code or key == "to" or source_format.names_source:
                try:
                    chosen_language(known, code, "source" if key == "from" else "target")
                except InputError as error:
                    yield self._problem(step, f"{step.models()[0]}: {error.message}", key)

    def _direction(self, model: Path) -> _Direction:
        data = self._plan.config_of(model).data
        return data.source_lang, data.target_lang

    def _is_bidirectional(self, model: Path) -> bool:
        return self._plan.config_of(model).training.bidirectional_epochs > 0

    def _language(self, path: Path, known: set[str]) -> str | None:
        """Return the language of a text: what a step writes, or of the known ones what its name ends in."""
        writer = self._plan.writer(path)
        ending = path.suffix[1:]
        if writer is None:
            return ending if ending in known else None
        if writer.kind == "clean":
            return None if ending in SIDES else ending
        if writer.kind not in ("distill", "backtranslate"):
            return None
        model, text = writer.models()[0], writer.places["input"][0]
        source, targets = self._direction(model)
        if self._is_bidirectional(model) and self._language(text, set(targets)) in targets:
            return source[0]
        return getattr(writer.settings, "to", None) or (targets[0] if len(targets) == 1 else None)

    def other_lengths(self, step: Step) -> Iterator[Problem]:
        """Report two texts that should be aligned by line, and cannot be; raise InputError if a text cannot be read."""
        pairs = (("input", "closest_to"), ("source", "reference"))
        if step.config is None:
            for path in (*step.places.get("input", ()), *step.places.get("source", ())):
                self._rows(path)  # read it even if no other text must fit
        texts = [(key, [*step.places.get(first, ()), *step.places.get(key, ())]) for first, key in pairs]
        for key, paths in [*texts, *((f"data.{split}", paths) for split, _, paths in step.sources())]:
            if len(paths) == 2 and (reason := self._unaligned(*paths)):
                yield self._problem(step, reason, key)

    def _unaligned(self, first: Path, second: Path) -> str:
        rows = self._rows(first), self._rows(second)
        if None in rows or rows[0] == rows[1]:
            return ""
        if all(isinstance(each, int) for each in rows):
            return f"{second} has {rows[1]:,} lines, {first} has {rows[0]:,}"
        return f"the lines of {second} are not those of {first}"

    def _rows(self, path: Path) -> int | str | None:
        """Return the number of lines of a text, or the cleaned source whose pairs they are; None where unknown."""
        writer = self._plan.writer(path)
        if writer is None:
            return self._lines(path) if path.is_file() else None  # an optional source
        if writer.kind in ("distill", "backtranslate"):
            return self._rows(writer.places["input"][0])
        return f"{writer.name}/{path.stem}" if writer.kind == "clean" else None

    def _problem(self, step: Step, message: str, *keys: str) -> Problem:
        """Return a problem with a step's key, or with a dotted one of its configuration."""
        if keys and "." in keys[0]:
            return problem(message, *self._plan.pipeline.set_path(step.name, keys[0]))
        return problem(message, "steps", step.name, step.kind, *keys)


def _differ(one: Any, other: Any) -> bool:
    """Return True if two vocabularies cannot be the same; of a file and of settings that is not known."""
    return type(one) is type(other) and json.dumps(one, sort_keys=True) != json.dumps(other, sort_keys=True)


def _common(directions: list[_Direction]) -> tuple[str, ...]:
    """Return the target languages that all models have."""
    return tuple(code for code in directions[0][1] if all(code in targets for _, targets in directions))
