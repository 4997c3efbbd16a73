"""Checks of a plan before anything runs: files, models, languages, and the lengths of aligned texts."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mt.config import Config
from mt.config.problems import Problem
from mt.config.sources import Source, TextFolder
from mt.data.sentence_format import SentenceFormat
from mt.data.token_store import SIDES
from mt.errors import InputError, MtError
from mt.extras.doctor.clean import text_names
from mt.extras.doctor.pair_scores import require_scores_folder
from mt.extras.pipelines.model_checks import ModelChecker
from mt.extras.pipelines.output_names import SCORE_NAMES, eval_names, name_in, train_names
from mt.extras.pipelines.plan import MODELS, TEXT_KINDS, Plan, Step
from mt.extras.pipelines.records import may_write
from mt.extras.pipelines.schema import Score
from mt.extras.scoring.comet import find_checkpoint
from mt.storage.output_path import is_device, require_replaceable, require_writable
from mt.storage.run_dir import RunDir
from mt.system.devices import usable_devices
from mt.text.languages import chosen_language
from mt.text.lines import read_lines

_TEXT_KEYS = ("input", "closest_to", "source", "reference", "glossary")
# The command of a kind of step that replaces only folders of its own, and the key that it writes into their manifest
_REPLACED = {"clean": ("mt data clean", "made_by"), "export": ("mt export", "export")}


def check_plan(plan: Plan) -> None:
    """Check that each step's inputs exist or will be written, and that they fit the step.

    Raises:
        InputError: all problems of the first check that finds any, each with file and line.
    """
    texts, models = _Checker(plan), ModelChecker(plan)
    for check in (texts.missing, texts.wrong_languages, models.unfit, texts.wrong_scores, texts.unaligned):
        plan.pipeline.refuse([found for step in plan.steps.values() for found in check(step)])


def refuse_unusable_devices(plan: Plan, names: Iterable[str]) -> None:
    """Refuse steps that name a device which this machine does not have; other steps may run on it."""
    problems = []
    for step in map(plan.steps.__getitem__, names):
        key, device = "device", getattr(step.settings, "device", None)
        trains = step.kind == "train" or (isinstance(step.settings, Score) and step.settings.train)
        if trains and device is None and step.config is not None:
            key, device = "training.device", step.config.training.device
        if device not in (None, "auto", "cpu") and not usable_devices().get(device):
            problems.append(plan.problem(step, f"this machine has no usable {device} device", key))
    plan.pipeline.refuse(problems)


def refuse_other_outputs(plan: Plan, names: Iterable[str]) -> None:
    """Refuse steps whose command would not replace the folder of its output, which another command wrote."""
    problems = []
    for step in map(plan.steps.__getitem__, names):
        try:
            if step.kind in _REPLACED:
                require_replaceable(step.output, *_REPLACED[step.kind])
            elif step.kind == "score" and step.config is not None:
                require_scores_folder(step.output, step.config.data)
        except MtError as error:
            message = f"{error.message.removeprefix('--output ')}; remove it, or give the step another name"
            problems.append(plan.problem(step, message, None))
    plan.pipeline.refuse(problems)


class _Checker:
    def __init__(self, plan: Plan) -> None:
        self._plan, self._problem = plan, plan.problem
        self._reported = set[Path]()  # missing files, which many steps may name
        self._lines = cache(lambda path: sum(1 for _ in read_lines(path)))

    def missing(self, step: Step) -> Iterator[Problem]:
        """Report missing files, models and COMET, and an output that would replace a file of the user."""
        keys = {path: key for key, paths in step.places.items() for path in paths}
        tokenizers = list(map(Path, (step.config and step.config.tokenizer.given) or ()))
        for path in dict.fromkeys(step.reads):
            wanted = "file" if keys.get(path) in _TEXT_KEYS or path in tokenizers else ""
            yield from self._missing(step, path, path.exists(), keys.get(path), wanted)
        for split, source, paths in step.sources():
            wanted = "folder" if isinstance(source, TextFolder) else "file"
            for path in paths:
                is_usable = path.exists() or getattr(source, "optional", False)
                yield from self._missing(step, path, is_usable, f"data.{split}", wanted)
        for key in MODELS:
            for path in filter(Path.exists, step.models(key)):
                try:
                    self._plan.config_of(path)
                except InputError as error:
                    yield self._problem(step, error.message, key)
        if comet := getattr(step.settings, "comet_model", None):
            try:
                find_checkpoint(Path(comet))
            except InputError as error:
                yield self._problem(step, error.message, "comet_model")
            if find_spec("comet") is None:
                yield self._problem(step, "comet needs the package unbabel-comet", "metrics")
        if getattr(step.settings, "output", None):
            yield from self._unwritable(step)
        elif step.kind == "eval" and not may_write(self._plan, step):  # the step replaces all scores in its folder
            message = f"{step.output} is there, and this step did not write it; remove it, or rename the step"
            yield Problem(("steps", step.name), message)

    def _unwritable(self, step: Step) -> Iterator[Problem]:
        """Report an output that would replace a file of the user, or that cannot be written."""
        if not may_write(self._plan, step):
            message = f"{step.output} is there, and this step did not write it; remove it, or choose another output"
            yield self._problem(step, message, "output")
            return
        try:
            require_writable(step.output / "file" if step.kind == "export" else step.output, "output")
        except MtError as error:
            yield self._problem(step, error.message.removeprefix("output "), "output")

    def _missing(self, step: Step, path: Path, is_usable: bool, key: str | None, wanted: str) -> Iterator[Problem]:
        writer = self._plan.writer(path)
        if writer is None and is_usable:
            message = _misfit(path, key, wanted)
        elif writer is None:
            message = "" if path in self._reported else f"there is no {path}, and no step writes it"
            self._reported.add(path)
        elif writer.name not in step.needs:  # the two could run in any order
            remedy = "" if writer is step else f"write {{step: {writer.name}}}, or "
            message = f"{path} is an output of step {writer.name}; {remedy}choose another output"
        else:
            message = self._misnamed(writer, path, key)
        if message:
            yield self._problem(step, message, key)

    def _misnamed(self, writer: Step, path: Path, key: str | None) -> str:
        """Return the reason why a step does not write a file; empty if it does."""
        name, is_data = name_in(writer, path), (key or "").startswith("data.")
        # Users may have written further files into a run, and a cleaning has others than texts.
        is_other = path.exists() and (writer.kind == "train" or (writer.kind == "clean" and not is_data))
        names = [] if is_other else self._names(writer)
        if name == "." or name in names or not names:
            return ""
        beside = [each for each in names if Path(each).parent == Path(name).parent]
        if not beside and Path(name).parent == RunDir(Path()).scores:
            return f"step {writer.name} has no test set, so it does not write {name}"
        return f"step {writer.name} writes {', '.join(beside or names)}, not {name}"

    def _names(self, step: Step) -> list[str]:
        """Return the names of the files that a step writes; empty if they are not known."""
        if step.kind == "eval":
            with suppress(InputError):  # the step's own problem
                return eval_names(self._plan, step)
        if step.kind in ("train", "clean"):
            return train_names(step) if step.kind == "train" else self._clean_names(step)
        return SCORE_NAMES if step.kind == "score" else []

    def _clean_names(self, step: Step) -> list[str]:
        """Return the names of the texts that a cleaning writes; it skips optional sources that are missing."""
        assert step.config is not None
        pairs = list(map(step.config.data.languages_of, self._train_sources(step)))
        return [name for n, pair in enumerate(pairs, 1) for name in text_names(pair, n, len(pairs))]

    def _train_sources(self, step: Step) -> list[Source]:
        """Return the sources of training text, except optional ones that are missing."""
        missing = [
            source
            for _, source, paths in step.sources()
            if getattr(source, "optional", False) and not all(p.exists() or self._plan.writer(p) for p in paths)
        ]
        return [source for source in step.config.data.train if source not in missing] if step.config else []

    def wrong_scores(self, step: Step) -> Iterator[Problem]:
        """Report scores of another text than the one to clean, and scores without the column to select by."""
        folder = step.text("scores")
        scorer = None if folder is None else self._plan.writer(folder)
        if scorer is None or not isinstance(scorer.settings, Score):
            return
        if getattr(step.settings, "by", None) == "similarity" and scorer.settings.embeddings is None:
            message = f"step {scorer.name} has no `embeddings`, so it writes no similarity"
            yield self._problem(step, message, "by")
        if list(self._texts(step)) != list(self._texts(scorer)):
            yield self._problem(step, f"step {scorer.name} scores another data.train than this one", "scores")

    def _texts(self, step: Step) -> Iterator[Any]:
        """Yield the properties of each source of training text that determine its pairs."""
        assert step.config is not None
        data, ignored = step.config.data, {"source_lang", "target_lang", "weight", "optional", "synthetic"}
        for source in self._train_sources(step):
            paths = [os.path.realpath(Path(data.root, name)) for name in source.files.values()]
            source_lang, target_lang = data.languages_of(source)
            values = source.model_dump(exclude={*ignored, *source.files})
            yield paths, data.own_source(source_lang), target_lang, values

    def wrong_languages(self, step: Step) -> Iterator[Problem]:
        """Report models and texts of other languages than the step needs."""
        if step.kind == "score" and step.config is not None:
            yield from self._unscored(step, list(map(step.config.data.languages_of, self._train_sources(step))))
        models = list(map(self._plan.config_of, step.models()))
        if len({model.data.source_lang for model in models}) > 1 or (models and not _common_targets(models)):
            yield self._problem(step, "these models translate in different directions", "model")
            return
        yield from self._unknown_languages(step, models)
        for key in ("input", "source", "closest_to", "reference") if models else ():
            known = {*models[0].data.target_lang, *models[0].data.source_lang}
            is_source = key in ("input", "source")
            expected = models[0].data.source_lang if is_source else _common_targets(models)
            chosen = getattr(step.settings, "from_" if is_source else "to", None)
            expected = (chosen,) if chosen in expected else expected
            expected = tuple(known) if models[0].training.bidirectional_epochs else expected
            path = step.text(key)
            language = self._language(path, known) if path else None
            if language is not None and language not in expected:
                yield self._problem(step, f"{path} is {language} text, not {' or '.join(expected)}", key)
        for split, source, paths in step.sources():
            expected = step.config.data.languages_of(source) if step.config else ()
            for path, code in zip(paths, expected, strict=False):
                language = self._language(path, set())
                if language is not None and language != code:
                    yield self._problem(step, f"{path} is {language} text, not {code}", f"data.{split}")

    def _unscored(self, step: Step, pairs: list[tuple[str, str]]) -> Iterator[Problem]:
        """Report directions of the training text that no model translates."""
        for key, order in (("forward", 1), ("backward", -1)):
            known = [(model, self._plan.config_of(model).data) for model in step.models(key)]
            ways = [f"{m} translates {', '.join(d.source_lang)} to {', '.join(d.target_lang)}" for m, d in known]
            for source, target in (pair[::order] for pair in dict.fromkeys(pairs)):
                if known and not any(source in data.source_lang and target in data.target_lang for _, data in known):
                    yield self._problem(step, f"{', '.join(ways)}, not {source} to {target}", key)

    def _unknown_languages(self, step: Step, models: list[Config]) -> Iterator[Problem]:
        """Report languages that the models do not have, or that are several with none chosen."""
        chosen = getattr(step.settings, "from_", None), getattr(step.settings, "to", None)
        if not models or not (any(chosen) or step.text("input") or step.text("source")):
            return
        languages = models[0].data.source_lang, _common_targets(models)
        for key, known, code in zip(("from", "to"), languages, chosen, strict=True):
            if code or key == "to" or SentenceFormat.of(models[0]).names_source:
                try:
                    chosen_language(known, code, "source" if key == "from" else "target")
                except InputError as error:
                    yield self._problem(step, f"{step.models()[0]}: {error.message}", key)

    def _language(self, path: Path, known: set[str]) -> str | None:
        """Return the language of a step's output, or of a file that is named after a known one; None for others."""
        writer = self._plan.writer(path)
        ending = path.suffix[1:]
        if writer is None:
            return ending if ending in known else None
        if writer.kind == "clean":
            return None if ending in SIDES else ending
        if writer.kind not in TEXT_KINDS:
            return None
        model, text = self._plan.config_of(writer.models()[0]), writer.places["input"][0]
        targets = model.data.target_lang
        if model.training.bidirectional_epochs and self._language(text, set(targets)) in targets:
            return model.data.source_lang[0]
        return getattr(writer.settings, "to", None) or (targets[0] if len(targets) == 1 else None)

    def unaligned(self, step: Step) -> Iterator[Problem]:
        """Report pairs of texts that must be aligned by line but are not; raise InputError if one cannot be read."""
        pairs = (("input", "closest_to"), ("source", "reference"))
        texts = [(key, [*step.places.get(first, ()), *step.places.get(key, ())]) for first, key in pairs]
        texts += [(f"data.{split}", paths) for split, _, paths in step.sources() if len(paths) == 2]
        for key, paths in texts:
            lengths = list(map(self._length, paths))  # each text is read, even if no other must fit
            if len(lengths) == 2 and None not in lengths and lengths[0] != lengths[1]:
                reason = f"the lines of {paths[1]} are not those of {paths[0]}"
                if all(isinstance(length, int) for length in lengths):
                    reason = f"{paths[1]} has {lengths[1]:,} lines, {paths[0]} has {lengths[0]:,}"
                yield self._problem(step, reason, key)

    def _length(self, path: Path) -> int | str | None:
        """Return a text's number of lines or, of cleaned text, a name that both sides share; None if unknown."""
        writer = self._plan.writer(path)
        if writer is None:
            return self._lines(path) if path.is_file() else None  # an optional source
        if writer.kind in TEXT_KINDS:
            return self._length(writer.places["input"][0])
        return f"{writer.name}/{path.stem}" if writer.kind == "clean" else None


def _misfit(path: Path, key: str | None, wanted: str) -> str:
    """Return the reason why a path of the user is not the `wanted` file or folder; empty if it is, or is missing."""
    if key == "scores" and not all((path / name).is_file() for name in ("scores.tsv", "scores.json")):
        return f"{path} has no scores.tsv and scores.json, as `mt data score` writes them"
    if is_device(path):  # the checks and the step would each read it
        return f"{path} is a pipe or a device; write its text to a file"
    found = "folder" if path.is_dir() else "file"
    return f"{path} is a {found}, not a {wanted}" if wanted and path.exists() and found != wanted else ""


def _common_targets(models: list[Config]) -> tuple[str, ...]:
    """Return the target languages that all models have."""
    first = models[0].data.target_lang
    return tuple(code for code in first if all(code in model.data.target_lang for model in models))
