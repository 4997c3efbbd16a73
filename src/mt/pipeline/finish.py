"""The product of a training: the model folder, its engines tried, the test set scored."""

import hashlib
import time
from collections.abc import Mapping
from shlex import quote
from typing import Any

import torch
from torch import Tensor

from mt.bundle.load_translator import open_converted
from mt.bundle.model_card import model_card
from mt.bundle.model_folder import new_model
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
from mt.evaluation.number_formats import FormatResult, formats_table, try_formats
from mt.evaluation.test_set import MethodResult, evaluate, results_table, write_results
from mt.metrics.scores import bleu_signature
from mt.model.build import TranslationModel
from mt.model.transformer import set_parameters
from mt.storage import atomic
from mt.storage.manifest import read_manifest
from mt.storage.run_dir import ModelDir, RunDir
from mt.storage.stage import is_done, stage_key
from mt.system.devices import peak_memory
from mt.system.distributed import Distributed
from mt.training.checkpoint import TrainState
from mt.training.trainer import Trainer

_MODEL_FORMAT = 2  # of model folders; a finished run of an older one makes its folder anew


def finish(config: Config, run_dir: RunDir, tokenizers: TokenizerPair, trainer: Trainer, progress: TrainState) -> str:
    """Chooses the final weights, makes the model folder, tries its engines and scores it, and says what it all cost."""
    distributed = trainer.distributed
    weights, origin = trainer.final_weights.final()
    key = _key(config, run_dir, tokenizers, weights, origin) if distributed.is_main else ""
    if not distributed.broadcast(distributed.is_main and _is_made(run_dir.model, key, progress.step)):
        model = trainer.whole_model.to(trainer.model.device)
        set_parameters(model, weights)
        if distributed.is_main:
            facts = {
                "key": key,
                "format": _MODEL_FORMAT,
                "weights": origin,
                "steps": progress.step,
                "training_seconds": round(progress.seconds),
                "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            }
            _make_folder(config, run_dir, tokenizers, model, weights, facts, distributed)
            trainer.metrics.write(
                "done",
                progress.step,
                weights=origin,
                test=facts["test"],
                formats=facts["formats"],
                tokens=progress.tokens,
                seconds=round(progress.seconds, 3),
                peak_memory=peak_memory(),
            )
        else:
            _score(config, run_dir, _translator(config, tokenizers, model, distributed.broadcast(None)), distributed)
    if not distributed.is_main:
        return ""
    return _summary(config, run_dir, progress, read_manifest(run_dir.model.root))


def _is_made(folder: ModelDir, key: str, steps: int) -> bool:
    """Whether the folder is there, and says how long it was trained: more steps may end in the same best weights."""
    return is_done(folder.root, key) and read_manifest(folder.root)["steps"] == steps


def _make_folder(
    config: Config,
    run_dir: RunDir,
    tokenizers: TokenizerPair,
    model: TranslationModel,
    weights: Mapping[str, Tensor],
    facts: dict[str, Any],
    distributed: Distributed,
) -> None:
    """The main process's part: the folder, complete or not there at all; adds to the facts what was measured."""
    shortlist = _shortlist(config, run_dir, tokenizers)
    with new_model(run_dir.model, config, tokenizers, weights, facts, shortlist) as folder:
        formats = _try_out(config, run_dir, folder, tokenizers)
        converted = folder if formats and model.device.type == "cpu" else None
        results = _score(config, run_dir, _translator(config, tokenizers, model, distributed.broadcast(converted)), distributed)
        facts["formats"] = [result.as_dict() for result in formats]
        signature = bleu_signature(config.evaluation, config.data.target_lang)
        facts["formats_table"] = formats_table(formats, signature) if formats else ""
        facts["test"] = [result.as_dict() for result in results]
        facts["scores"] = results_table(results) if results else ""
        scores, formats_said = facts["scores"], facts["formats_table"]
        is_converted = folder.ctranslate2.is_dir()
        card = model_card(config, facts["weights"], facts["steps"], scores, formats_said, is_converted)
        atomic.write_text(folder.readme, card)


def _key(config: Config, run_dir: RunDir, tokenizers: TokenizerPair, weights: Mapping[str, Tensor], origin: str) -> str:
    """Identifies all that a model folder and its scores depend on.

    The name of a step is not enough: a run whose checkpoints were deleted trains anew, and ends at the same step.
    """
    content = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        content.update(name.encode())
        content.update(tensor.detach().cpu().flatten().view(torch.uint8).numpy().data)
    texts = read_manifest(run_dir.text)["key"]
    settings = config.model_dump(include={"decoding", "evaluation", "model"})
    return stage_key("model", _MODEL_FORMAT, origin, content.hexdigest(), tokenizers.files(), texts, settings)


def _shortlist(config: Config, run_dir: RunDir, tokenizers: TokenizerPair) -> Shortlist | None:
    size = config.decoding.shortlist
    if size == 0:
        return None
    log.info("aligning the training text for the shortlist")
    shared_vocab_size = tokenizers.source.vocab_size if tokenizers.shared else None
    return make_shortlist(EncodedCorpus.open(run_dir.encoded("train")), size, shared_vocab_size)


def _try_out(config: Config, run_dir: RunDir, folder: ModelDir, tokenizers: TokenizerPair) -> list[FormatResult]:
    """Measures the fast engine's number formats on the validation set; none where it cannot run the model."""
    if config.model.architecture == "decoder_only":
        return []
    try:
        log.info("trying the model's number formats on the validation set")
        return try_formats(folder, config, tokenizers, read_texts(run_dir, "valid", config.data.target_lang))
    except UnusableError as error:
        log.warning("%s; the folder works with torch", error)
        return []


def _translator(
    config: Config, tokenizers: TokenizerPair, model: TranslationModel, converted: ModelDir | None
) -> Translator:
    """What `mt eval` would use here: the fast engine with a model folder, or torch with the model."""
    settings = TranslationSettings.of(config)
    if converted is not None:
        return open_converted(converted, settings, tokenizers, EngineChoice()).translator
    engine = TorchEngine(model, settings.batch_tokens)
    return Translator(engine, tokenizers, settings.max_source_tokens, settings.target_langs)


def _score(config: Config, run_dir: RunDir, translator: Translator, distributed: Distributed) -> list[MethodResult]:
    """Translates and scores the test set, if there is one; hypotheses and scores go to the run's eval/."""
    if config.data.test is None:
        return []
    texts = read_texts(run_dir, "test", config.data.target_lang)
    results = evaluate(translator.shared(distributed), config, texts)
    if distributed.is_main:
        write_results(run_dir.scores, "test", results)
    return results


def _summary(config: Config, run_dir: RunDir, progress: TrainState, product: dict[str, Any]) -> str:
    """What was trained, what it cost, and what to type next."""
    speed = progress.tokens / max(progress.seconds, 1e-9)
    lines = [
        f"trained {progress.step:,} steps ({progress.tokens:,} tokens) in {duration(progress.seconds)}, "
        f"{speed:,.0f} tokens/s, at most {peak_memory() / 1e9:.1f} GB of memory",
        f"weights: {product['weights']}",
    ]
    if progress.skipped_updates or progress.out_of_memory:
        lines.append(
            f"updates skipped (not finite): {progress.skipped_updates}; out of memory: {progress.out_of_memory}"
        )
    if product["formats_table"]:
        lines += ["validation set, beam search:", product["formats_table"]]
    if product["scores"]:
        lines += ["test set:", product["scores"]]
    to = f" --to {config.data.target_lang[0]}" if len(config.data.target_lang) > 1 else ""
    lines += [f"model: {run_dir.model.root}", f'next: mt translate --model {quote(str(run_dir.root))}{to} "..."']
    return "\n".join(lines)
