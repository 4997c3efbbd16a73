"""The end of a run: final weights, model folder, number formats, test scores."""

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import asdict
from shlex import quote
from typing import Any

import torch
from torch import Tensor

from mt.bundle.load_translator import open_converted
from mt.bundle.model_card import direction_options
from mt.bundle.model_folder import change_search, new_model
from mt.config import Config
from mt.console import duration, log
from mt.data.eval_texts import read_texts
from mt.data.shortlist import Shortlist, make_shortlist
from mt.data.token_store import EncodedCorpus
from mt.data.tokenizer import TokenizerPair
from mt.decoding.engine import EngineChoice, UnusableError
from mt.decoding.settings import TranslationSettings
from mt.decoding.torch_engine import TorchEngine
from mt.decoding.translator import Translator
from mt.evaluation.length_penalty import with_best_penalty
from mt.evaluation.number_formats import FormatResult, formats_table, try_formats
from mt.evaluation.test_set import MethodResult, evaluate, results_table, write_results
from mt.metrics.scores import bleu_signature
from mt.model.build import TranslationModel
from mt.model.transformer import set_parameters
from mt.storage.manifest import is_done, read_manifest, stage_key
from mt.storage.run_dir import ModelDir, RunDir
from mt.system.devices import peak_memory
from mt.system.distributed import Distributed
from mt.text.casing import Casing
from mt.text.lines import TextFile
from mt.text.preprocessing import NO_PREPROCESSING, Preprocessing
from mt.text.spelling import Spelling
from mt.training.train_state import TrainState
from mt.training.trainer import Trainer

_MODEL_FORMAT = 3  # a finished run with a folder of another format rebuilds it
_CASED_LINES = 50_000  # of the training text that teach the usual case of words
_SPELT_LINES = 500_000  # that teach which words there are


def finish(config: Config, run_dir: RunDir, tokenizers: TokenizerPair, trainer: Trainer, state: TrainState) -> str:
    """Build the model folder from the final weights, measure its number formats, and score the test set.

    Returns:
        the summary to print; empty in other ranks than 0.
    """
    distributed = trainer.distributed
    weights, origin = trainer.final_weights.final()
    key = _key(config, run_dir, tokenizers, weights, origin) if distributed.is_main else ""
    if not distributed.broadcast(distributed.is_main and _is_complete(run_dir.model, key, state.step)):
        model = trainer.full_model.to(trainer.model.device)
        set_parameters(model, weights)
        if distributed.is_main:
            facts = {
                "key": key,
                "format": _MODEL_FORMAT,
                "weights": origin,
                "steps": state.step,
                "training_seconds": round(state.seconds),
                "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            }
            _write_folder(config, run_dir, tokenizers, model, weights, facts, distributed)
            trainer.metrics.write(
                "done",
                state.step,
                weights=origin,
                test=facts["test"],
                formats=facts["formats"],
                tokens=state.tokens,
                seconds=round(state.seconds, 3),
                peak_memory=peak_memory(),
            )
        else:
            config, converted, preprocessing = distributed.broadcast((config, None, NO_PREPROCESSING))
            _score(config, run_dir, _translator(config, tokenizers, model, converted, preprocessing), distributed)
    return _summary(config, run_dir, state, read_manifest(run_dir.model.root)) if distributed.is_main else ""


def _is_complete(folder: ModelDir, key: str, steps: int) -> bool:
    """Check key and steps: more steps may end with the same best weights."""
    return is_done(folder.root, key) and read_manifest(folder.root)["steps"] == steps


def _write_folder(
    config: Config,
    run_dir: RunDir,
    tokenizers: TokenizerPair,
    model: TranslationModel,
    weights: Mapping[str, Tensor],
    facts: dict[str, Any],
    distributed: Distributed,
) -> None:
    """Write the model folder in rank 0, and add the measurements to its facts."""
    extras = _shortlist(config, run_dir, tokenizers), _preprocessing(config, run_dir)
    with new_model(run_dir.model, config, tokenizers, weights, facts, *extras) as folder:
        if config.decoding.tune_length_penalty and config.decoding.beam_size > 1:
            config = _tuned(config, run_dir, folder, tokenizers, model, extras[1])
            facts["length_penalty"] = config.decoding.length_penalty
        formats = _measure_formats(config, run_dir, folder, tokenizers)
        converted = folder if formats and model.device.type == "cpu" else None
        distributed.broadcast((config, converted, extras[1]))
        translator = _translator(config, tokenizers, model, converted, extras[1])
        results = _score(config, run_dir, translator, distributed)
        signature = bleu_signature(config.evaluation, config.data.target_lang)
        if len(config.data.source_lang) > 1:
            facts["pairs"] = [list(pair) for pair in config.data.pairs]
        facts["formats"] = [asdict(result) for result in formats]
        facts["formats_table"] = formats_table(formats, signature) if formats else ""
        facts["test"] = [result.as_dict() for result in results]
        facts["scores"] = results_table(results) if results else ""


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
    own = tokenizers.files(), texts, settings, config.is_guided
    return stage_key("model", _MODEL_FORMAT, origin, content.hexdigest(), *own)


def _shortlist(config: Config, run_dir: RunDir, tokenizers: TokenizerPair) -> Shortlist | None:
    size = config.decoding.shortlist
    if size == 0:
        return None
    log.info("aligning the training text for the shortlist")
    return make_shortlist(EncodedCorpus.open(run_dir.encoded("train")), size, tokenizers)


def _preprocessing(config: Config, run_dir: RunDir) -> Preprocessing:
    pairs = json.loads(run_dir.prepared_counts.read_bytes())["pairs"]["train"]
    text, decoding = run_dir.text_file("train", "source"), config.decoding
    language = config.data.source_lang[0] if len(config.data.source_lang) == 1 else ""
    casing = Casing.learn(TextFile(text, -(-pairs // _CASED_LINES)), language) if decoding.restore_case else None
    spelling = Spelling.learn(TextFile(text, -(-pairs // _SPELT_LINES))) if decoding.correct_spelling else None
    return Preprocessing(casing, spelling)


def _tuned(
    config: Config,
    run_dir: RunDir,
    folder: ModelDir,
    tokenizers: TokenizerPair,
    model: TranslationModel,
    preprocessing: Preprocessing,
) -> Config:
    """Return the configuration with a length penalty for this model, which its folder then has, too."""
    converted = folder if folder.ctranslate2.is_dir() and model.device.type == "cpu" else None
    try:
        translator = _translator(config, tokenizers, model, converted, preprocessing)
    except UnusableError:  # said when the number formats are measured
        translator = _translator(config, tokenizers, model, None, preprocessing)
    config = with_best_penalty(translator, config, read_texts(run_dir, "valid", config.data))
    change_search(folder, config)
    return config


def _measure_formats(
    config: Config, run_dir: RunDir, folder: ModelDir, tokenizers: TokenizerPair
) -> list[FormatResult]:
    """Measure CTranslate2's number formats on the validation set; none where it cannot run the model."""
    if not folder.ctranslate2.is_dir():  # decoder-only, or the library is missing, which was said
        return []
    try:
        log.info("measuring number formats on the validation set")
        return try_formats(folder, config, tokenizers, read_texts(run_dir, "valid", config.data))
    except UnusableError as error:
        log.warning("%s; the folder works with torch", error)
        return []


def _translator(
    config: Config,
    tokenizers: TokenizerPair,
    model: TranslationModel,
    converted: ModelDir | None,
    preprocessing: Preprocessing,
) -> Translator:
    """Choose the engine as `mt eval` would: CTranslate2 with a converted folder, torch otherwise."""
    settings = TranslationSettings.of(config)
    if converted is not None:
        return open_converted(converted, settings, tokenizers, EngineChoice()).translator
    engine = TorchEngine(model, settings.batch_tokens)
    return Translator.of(engine, tokenizers, settings, preprocessing)


def _score(config: Config, run_dir: RunDir, translator: Translator, distributed: Distributed) -> list[MethodResult]:
    """Translate and score the test set, if there is one, and write hypotheses and scores to the run's eval/."""
    if config.data.test is None:
        return []
    texts = read_texts(run_dir, "test", config.data)
    results = evaluate(translator.distribute(distributed), config, texts)
    if distributed.is_main:
        write_results(run_dir.scores, "test", results)
    return results


def _summary(config: Config, run_dir: RunDir, state: TrainState, facts: dict[str, Any]) -> str:
    """Report training costs, weights, scores and the next command."""
    speed, memory = state.tokens / max(state.seconds, 1e-9), peak_memory()
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
    command = f"mt translate --model {quote(str(run_dir.root))} {direction_options(config)}"
    lines += [f"model: {run_dir.model.root}", f'next: {command}"..."']
    return "\n".join(lines)
