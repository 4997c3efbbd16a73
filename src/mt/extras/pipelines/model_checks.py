"""Checks of the models in a plan: shapes, vocabularies, teachers, searches and exports."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mt.bundle.pretrained import Pretrained, start_differences, tag_fault, teacher_fault
from mt.config import Config, FromTrain
from mt.config.problems import Problem
from mt.config.schema import export_rules
from mt.data.sentence_format import SentenceFormat
from mt.decoding.engine import FLOAT_TYPES
from mt.errors import InputError
from mt.evaluation.texts import has_split, owner
from mt.extras.export.exporting import is_quantized
from mt.extras.pipelines.plan import Plan, Step
from mt.extras.pipelines.schema import Distill, Export
from mt.storage.find_model import find_model
from mt.storage.manifest import read_manifest

# Settings of a tokenizer that do not change what is learned
_SAMPLING = {"bpe_dropout", "sampling_alpha"}


class ModelChecker:
    """Checks of models that exist, or that steps have yet to train."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._problem = plan, plan.problem

    def unfit(self, step: Step) -> Iterator[Problem]:
        """Report models whose shape or vocabulary does not fit the step, and exports that cannot hold the model."""
        models = step.models()
        if isinstance(step.settings, Export):
            yield from self._unfit_export(step, step.settings, models[0])
        if step.kind == "train" and step.config is not None:
            yield from self._unfit_pretrained(step, step.config)
        if models:
            yield from self._unfit_search(step, self._plan.config_of(models[0]))
        if step.kind == "eval" and step.text("source") is None and not self._has_split(models[0], "test"):
            message = f"{models[0]} has no test set; add source and reference, or set data.test in its training"
            yield self._problem(step, message, "model")
        for other in models[1:]:
            forms = [SentenceFormat.of(self._plan.config_of(model))[:2] for model in (models[0], other)]
            if forms[0] != forms[1]:
                message = f"{other} has another model.source_format or model.target_tag than {models[0]}"
                yield self._problem(step, message, "model")
            elif self._differ(models[0], other):
                yield self._problem(step, f"the vocabulary of {other} is not that of {models[0]}", "model")

    def _unfit_export(self, step: Step, settings: Export, model: Path) -> Iterator[Problem]:
        config = self._plan.config_of(model)
        for rule in export_rules(config, settings.format):
            yield self._problem(step, rule.reason, "format")
        is_measured = is_quantized(config, settings.format, settings.quantization) and step.text("source") is None
        if is_measured and not self._has_split(model, "valid"):
            message = f"{model} has no validation set to measure this export on; add source and reference"
            yield self._problem(step, message, "model")

    def _unfit_search(self, step: Step, config: Config) -> Iterator[Problem]:
        """Report engines that cannot run the models, and choices among too few or too many translations."""
        settings, models = step.settings, step.models()
        engine, number_format = (getattr(settings, key, None) for key in ("engine", "compute_type"))
        if config.model.architecture == "decoder_only":
            message = f"needs the CTranslate2 engine, which does not run {models[0]}, a decoder-only model"
            if engine == "ctranslate2":
                yield self._problem(step, message, "engine")
            if number_format not in (None, "auto", *FLOAT_TYPES):
                yield self._problem(step, message, "compute_type")
        if engine == "torch-graphs" and len(models) > 1:
            yield self._problem(step, "torch-graphs is for one model", "engine")
        if not isinstance(settings, Distill) or settings.closest_to is None:
            return
        beam = settings.beam or config.decoding.beam_size
        key, count = "n_best" if settings.n_best else "closest_to", settings.n_best or beam
        if settings.sample and count < 2:
            yield self._problem(step, "needs 2 or more translations", key)
        elif not settings.sample and not 2 <= count <= beam:
            message = f"needs 2 or more translations, and no more than the beam of {beam} has"
            yield self._problem(step, message, key)

    def _has_split(self, model: Path, split: str) -> bool:
        config = self._plan.planned_config(model)
        if config is None:
            return has_split(owner(find_model(model, self._plan.folder)), split)
        return getattr(config.data, split) is not None

    def _unfit_pretrained(self, step: Step, config: Config) -> Iterator[Problem]:
        """Report models that a training cannot start from or learn from."""
        start, teachers = config.training.init_from, config.training.distill_from
        named = [Path(each) for each in (start, *teachers) if each]
        if named and not any(map(self._plan.writer, named)):
            try:
                Pretrained.find(config, self._plan.folder, {}).check()
            except InputError as error:
                key, _, reason = error.message.partition(": ")
                if not key.startswith(("training.", "tokenizer.")):
                    key, reason = f"training.{'init_from' if start else 'distill_from'}", error.message
                yield self._problem(step, reason, key)
            return
        try:
            differences = start_differences(self._plan.config_of(Path(start)), config) if start else []
        except InputError as error:
            yield self._problem(step, error.message, "training.init_layers")
            return
        if differences:
            reason = f"{start} differs from this configuration in {', '.join(differences)}"
            yield self._problem(step, reason, "training.init_from")
        yield from self._unfit_tokenizer(step, config)
        for teacher in map(Path, teachers):
            if fault := teacher_fault(self._plan.config_of(teacher), config):
                yield self._problem(step, f"{teacher} {fault[0]}", "training.distill_from")
            elif self._differ(teacher, config):
                reason = f"the vocabulary of {teacher} is not that of the student; training.init_from keeps one"
                yield self._problem(step, reason, "training.distill_from")

    def _unfit_tokenizer(self, step: Step, config: Config) -> Iterator[Problem]:
        """Report another model's tokenizer that lacks a tag, or is not of the kind that a training samples from."""
        model, origin = _tokenizer_model(config), self._tokenizer_origin(config)
        if model is None or isinstance(origin, Path) or origin.tokenizer.given:  # a file has tags of its own
            return
        key = "training.init_from" if model == config.training.init_from else "training.distill_from"
        if fault := tag_fault(config, origin.tags):
            yield self._problem(step, f"the tokenizer of {model} {fault[0]}", key)
        samples, is_unigram = config.tokenizer.sampling_alpha is not None, origin.tokenizer.type == "unigram"
        if config.tokenizer.is_sampled and samples != is_unigram:
            reason = f"the tokenizer of {model} is {'' if is_unigram else 'not '}a unigram model"
            yield self._problem(step, reason, f"tokenizer.{'sampling_alpha' if samples else 'bpe_dropout'}")

    def _tokenizer_origin(self, model: Config | Path) -> Config | Path:
        """Return the configuration of the training that learns a model's tokenizer, or a finished model that has it."""
        if isinstance(model, Path):
            config = self._plan.planned_config(model)
            return self._tokenizer_origin(config) if config else model
        other = _tokenizer_model(model)
        return self._tokenizer_origin(Path(other)) if other else model

    def _vocabulary(self, model: Config | Path) -> Any:
        """Return what determines the vocabulary of a model: its files, or the settings and text of its tokenizer."""
        origin = self._tokenizer_origin(model)
        if isinstance(origin, Path):
            files = read_manifest(find_model(origin, self._plan.folder).root)["files"]
            return {name: file["sha256"] for name, file in files.items() if name.startswith("tokenizer/")}
        data, settings = origin.data, origin.tokenizer.model_dump(exclude=_SAMPLING)
        if origin.tokenizer.given:
            return [settings]
        splits = {"valid": data.valid, "test": data.test}
        held_out = {split: each.from_train for split, each in splits.items() if isinstance(each, FromTrain)}
        text = data.model_dump(exclude={"root", "max_length", "temperature", "train", "valid", "test"})
        root = os.path.realpath(data.root)
        files = [{key: str(Path(root, name)) for key, name in source.files.items()} for source in data.train]
        train = [s.model_dump(exclude={"weight"}) | paths for s, paths in zip(data.train, files, strict=True)]
        pieces = [settings, origin.augmentation.cases, origin.tags]
        return [pieces, held_out and [origin.seed, held_out], text, train]

    def _differ(self, *models: Config | Path) -> bool:
        """Return True if two models cannot have the same vocabulary."""
        first, second = map(self._vocabulary, models)
        if type(first) is type(second):
            return json.dumps(first, sort_keys=True) != json.dumps(second, sort_keys=True)
        # One is finished, the other has yet to learn its tokenizer: compare their settings if both learn their own.
        origins = map(self._tokenizer_origin, models)
        configs = [self._plan.config_of(each) if isinstance(each, Path) else each for each in origins]
        if any(_tokenizer_model(config) or config.tokenizer.given for config in configs):
            return False
        return configs[0].tokenizer != configs[1].tokenizer


def _tokenizer_model(config: Config) -> str | None:
    """Return the model whose tokenizer a training takes; None if it learns one, or a file is given."""
    training = config.training
    models = (training.init_from if training.init_tokenizer else None, *training.distill_from)
    return next(filter(None, models), None)
