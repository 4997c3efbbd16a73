"""The end of a run: final weights, model folder, number formats, test scores."""

import hashlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from mt.bundle.load_translator import open_converted
from mt.bundle.model_card import direction_options
from mt.bundle.model_folder import change_search, new_model
from mt.config import Config
from mt.console import duration, log, quoted
from mt.data.eval_texts import read_texts
from mt.data.shortlist import Shortlist, make_shortlist
from mt.data.token_store import SIDES, EncodedCorpus
from mt.data.tokenizer_kinds import TokenizerPair
from mt.decoding.engine import DistributedEngine, EngineChoice, UnusableError
from mt.decoding.settings import TranslationSettings
from mt.decoding.torch_engine import TorchEngine
from mt.decoding.translator import Translator
from mt.evaluation.length_penalty import with_best_penalty
from mt.evaluation.number_formats import FormatResult, formats_table, try_formats
from mt.evaluation.test_set import MethodResult, evaluate, results_table, write_results
from mt.metrics.scores import bleu_signature
from mt.model.build import TranslationModel
from mt.model.transformer import set_parameters
from mt.pipeline.data import sample_text
from mt.storage.manifest import DamagedError, read_manifest, stage_key, verify
from mt.storage.run_dir import ModelDir, RunDir
from mt.system.devices import peak_memory
from mt.system.distributed import Distributed
from mt.text.casing import Casing
from mt.text.languages import BACK_TRANSLATION_TAG, only_language
from mt.text.preprocessing import NO_PREPROCESSING, Preprocessing
from mt.text.spelling import Spelling
from mt.training.train_state import TrainState
from mt.training.trainer import Trainer

_MODEL_FORMAT = 3  # of the model folder; a finished run rebuilds one of another format
_CASING_LINES = 50_000  # of the training text, to learn the usual case of words
_SPELLING_LINES = 500_000  # of the training text, to learn which words there are


def finish(config: Config, run_dir: RunDir, tokenizers: TokenizerPair, trainer: Trainer, state: TrainState) -> None:
    """Build the model folder from the final weights, measure its number formats, and score the test set."""
    distributed = trainer.distributed
    weights, origin = trainer.final_weights.final()
    key = _key(config, run_dir, tokenizers, weights, origin) if distributed.is_main else ""
    is_complete = distributed.broadcast(distributed.is_main and _is_complete(run_dir.model, key, state.step))
    if not is_complete:
        model = trainer.full_model.to(trainer.model.device)
        set_parameters(model, weights)
        trained = _TrainedModel(run_dir, tokenizers, model, distributed)
        if distributed.is_main:
            created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            facts = {"key": key, "format": _MODEL_FORMAT, "weights": origin, "steps": state.step, "created": created}
            facts["training_seconds"] = round(state.seconds)
            trained.write_folder(config, weights, facts)
        else:
            trained.score(config)
    # After the folder is complete; a crash, or a full disk, may have come between them.
    if distributed.is_main and not (is_complete and trainer.metrics.last_event()[0] == "done"):
        facts = read_manifest(run_dir.model.root)
        trainer.metrics.write(
            "done",
            state.step,
            **{name: facts[name] for name in ("weights", "test", "formats", "peak_memory")},
            passes=trainer.batches.epochs_done,
            tokens=state.tokens,
            seconds=round(state.seconds, 3),
        )


def _is_complete(folder: ModelDir, key: str, steps: int) -> bool:
    """Compare key, steps (more may end with the same best weights) and files (the README may be edited)."""
    try:
        facts = read_manifest(folder.root)
        verify(folder.root, *(folder.root / name for name in facts["files"] if name != folder.readme.name))
    except DamagedError:
        return False
    return facts.get("key") == key and facts["steps"] == steps


def _key(config: Config, run_dir: RunDir, tokenizers: TokenizerPair, weights: Mapping[str, Tensor], origin: str) -> str:
    """Hash everything that the model folder and its scores depend on.

    The step is not enough: a run whose checkpoints were deleted trains again and ends at the same step.
    """
    content = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        content.update(name.encode())
        content.update(tensor.detach().cpu().flatten().view(torch.uint8).numpy().data)
    texts = read_manifest(run_dir.text)["key"]
    settings = config.model_dump(include={"decoding", "evaluation", "model"})
    inputs = tokenizers.files(), texts, settings, config.is_guided
    return stage_key("model", _MODEL_FORMAT, origin, content.hexdigest(), *inputs)


def learn_preprocessing(config: Config, run_dir: RunDir) -> Preprocessing:
    """Learn the usual case of words, and which words there are, from the training text."""
    language = only_language(config.data.source_lang)
    casing = spelling = None
    if config.decoding.restore_case:
        casing = Casing.learn(_untagged(run_dir, "source", _CASING_LINES), language)
    if config.decoding.correct_spelling and language:  # one language's frequent words would replace another's rare ones
        # Bidirectional training makes a model that also translates, and must not correct, the target language.
        sides = SIDES if config.training.bidirectional_epochs else SIDES[:1]
        spelling = Spelling.learn(chain.from_iterable(_untagged(run_dir, side, _SPELLING_LINES) for side in sides))
    return Preprocessing(casing, spelling)


def _untagged(run_dir: RunDir, side: str, limit: int) -> Iterator[str]:
    """Yield lines of the training text without the tag in front of back-translations."""
    return (line.removeprefix(f"{BACK_TRANSLATION_TAG} ") for line in sample_text(run_dir, side, limit))


@dataclass(frozen=True)
class _TrainedModel:
    run_dir: RunDir
    tokenizers: TokenizerPair
    model: TranslationModel
    distributed: Distributed

    def write_folder(self, config: Config, weights: Mapping[str, Tensor], facts: dict[str, Any]) -> None:
        """Write the model folder in rank 0, and add the measurements to its facts."""
        shortlist = self._shortlist(config.decoding.shortlist)
        preprocessing = learn_preprocessing(config, self.run_dir)
        with new_model(self.run_dir.model, config, self.tokenizers, weights, facts, shortlist, preprocessing) as folder:
            if config.decoding.tune_length_penalty and config.decoding.beam_size > 1:
                config = self._tuned(config, folder, preprocessing)
                facts["length_penalty"] = config.decoding.length_penalty
            formats = self._measure_formats(config, folder)
            converted = folder if formats and self.model.device.type == "cpu" else None
            results = self.score(config, converted, preprocessing)
            signature = bleu_signature(config.evaluation, config.data.target_lang)
            if len(config.data.source_lang) > 1:
                facts["pairs"] = [list(pair) for pair in config.data.pairs]
            facts["formats"] = [asdict(result) for result in formats]
            facts["formats_table"] = formats_table(formats, signature) if formats else ""
            facts["peak_memory"] = peak_memory()
            facts["test"] = [result.as_dict() for result in results]
            facts["scores"] = results_table(results) if results else ""

    def _shortlist(self, size: int) -> Shortlist | None:
        if size == 0:
            return None
        log.info("aligning the training text for the shortlist")
        return make_shortlist(EncodedCorpus.open(self.run_dir.encoded("train")), size, self.tokenizers)

    def _tuned(self, config: Config, folder: ModelDir, preprocessing: Preprocessing) -> Config:
        """Tune the length penalty; return the configuration with it, and write it to the model folder."""
        converted = folder if folder.ctranslate2.is_dir() and self.model.device.type == "cpu" else None
        try:
            translator = self._translator(config, converted, preprocessing)
        except UnusableError:  # reported when the number formats are measured
            translator = self._translator(config, None, preprocessing)
        config = with_best_penalty(translator, config, read_texts(self.run_dir, "valid", config.data))
        change_search(folder, config)
        return config

    def _measure_formats(self, config: Config, folder: ModelDir) -> list[FormatResult]:
        """Measure CTranslate2's number formats on the validation set; none where it cannot run the model."""
        if not folder.ctranslate2.is_dir():  # decoder-only, or the library is missing, which was reported
            return []
        try:
            log.info("measuring number formats on the validation set")
            return try_formats(folder, config, self.tokenizers, read_texts(self.run_dir, "valid", config.data))
        except UnusableError as error:
            log.warning("%s; the folder works with torch", error)
            return []

    def _translator(self, config: Config, converted: ModelDir | None, preprocessing: Preprocessing) -> Translator:
        """Choose the engine as `mt eval` would: CTranslate2 for a converted model, torch otherwise."""
        settings = TranslationSettings.of(config)
        if converted is not None:
            return open_converted(converted, settings, self.tokenizers, EngineChoice()).translator
        return Translator(TorchEngine(self.model, settings.batch_tokens), self.tokenizers, settings, preprocessing)

    def score(
        self, config: Config, converted: ModelDir | None = None, preprocessing: Preprocessing = NO_PREPROCESSING
    ) -> list[MethodResult]:
        """Score the test set, if there is one, with rank 0's arguments, and write the results to the run's eval/."""
        config, converted, preprocessing = self.distributed.broadcast((config, converted, preprocessing))
        if config.data.test is None:
            if self.distributed.is_main:
                (self.run_dir.scores / "test.json").unlink(missing_ok=True)  # of other weights on an earlier test set
            return []
        translator = self._translator(config, converted, preprocessing)
        translator = replace(translator, engine=DistributedEngine(translator.engine, self.distributed))
        results = evaluate(translator, config, read_texts(self.run_dir, "test", config.data))
        if self.distributed.is_main:
            write_results(self.run_dir.scores, "test", results)
        return results


def summary(config: Config, run_dir: RunDir, state: TrainState) -> str:
    """Report training costs, weights, scores and the next command."""
    facts = read_manifest(run_dir.model.root)
    speed, memory = state.tokens / max(state.seconds, 1e-9), facts["peak_memory"]
    lines = [
        f"trained {state.step:,} steps ({state.tokens:,} tokens) in {duration(state.seconds)}, "
        f"{speed:,.0f} tokens/s" + (f", at most {memory / 1e9:.1f} GB of memory" if memory else ""),
        f"weights: {facts['weights']}",
    ]
    if state.skipped_updates or state.out_of_memory:
        lines.append(f"updates skipped (not finite): {state.skipped_updates}; out of memory: {state.out_of_memory}")
    if "length_penalty" in facts:
        lines.append(f"length penalty: {facts['length_penalty']:g}, chosen on the validation set")
    if facts["formats_table"]:
        lines += ["validation set, beam search:", facts["formats_table"]]
    if facts["scores"]:
        lines += ["test set:", facts["scores"]]
    command = f"mt translate --model {quoted(str(run_dir.root))} {direction_options(config)}"
    lines += [f"model: {run_dir.model.root}", f'next: {command}"..."']
    return "\n".join(lines)
