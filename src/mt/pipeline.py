"""From a configuration to a model folder: corpus, tokenizer, encoded data, training, evaluation, bundle.

Each stage records a key made of what it depends on, and is skipped while its output carries that key.
"""

import hashlib
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import torch

from mt import storage
from mt.bundle.model_card import model_card
from mt.bundle.model_dir import build_model, new_model
from mt.bundle.open import open_converted
from mt.bundle.warm_start import Start, find_start, load_start, start_from
from mt.config import Config, dump_config
from mt.console import duration, log
from mt.data.batching import TrainingCorpus
from mt.data.bpe_dropout import VaryingCorpus
from mt.data.cleaning import cleaning_table
from mt.data.encoded import EncodedCorpus, encode_corpus
from mt.data.lines import TextFile, read_lines
from mt.data.prepare import input_digests, prepare_text
from mt.data.shortlist import Shortlist, make_shortlist
from mt.data.tokenizer import TokenizerPair
from mt.decoding.engine import EngineChoice, UnusableError
from mt.decoding.settings import TranslationSettings
from mt.decoding.torch_engine import TorchEngine
from mt.decoding.translator import Translator
from mt.devices import choose_device
from mt.errors import InputError
from mt.evaluate import MethodResult, evaluate, results_table, write_results
from mt.model.transformer import Transformer, set_parameters
from mt.resume import INIT_FROM, check_resumable, recorded_inputs
from mt.run_dir import ModelDir, RunDir
from mt.training.checkpoint import Progress
from mt.training.trainer import Trainer
from mt.training.validation import Validator
from mt.trial import FormatResult, formats_table, try_formats

_MODEL_FORMAT = 2  # of model folders; a finished run of an older one makes its folder anew


def run(config: Config, runs: Path) -> str:
    """Runs every stage that has not been done yet.

    Args:
        config: the whole configuration.
        runs: the folder that holds the run folders.

    Returns:
        the summary to print.

    Raises:
        MtError: with the exit code that fits.
    """
    run_dir = RunDir(runs / config.name)
    device = choose_device(config.training.device)
    with storage.exclusive(run_dir.lock):
        digests = input_digests(config.data)
        start = None
        if config.training.init_from is not None:
            start = find_start(config.training.init_from, runs, recorded_inputs(run_dir).get(INIT_FROM))
            digests[INIT_FROM] = start.identity
        check_resumable(run_dir, config, digests)
        for folder in (run_dir.root, run_dir.text.parent, run_dir.encoded("train").parent, run_dir.checkpoints):
            storage.remove_partials(folder)
        storage.write_text(run_dir.config, dump_config(config))

        text_key = prepare(config, run_dir, digests)
        tokenizers, tokenizer_key = train_tokenizer(config, run_dir, text_key, start)
        encode(config, run_dir, tokenizers, tokenizer_key)
        report_cleaning(config, run_dir)
        trainer = make_trainer(config, run_dir, tokenizers, device, start)
        progress = trainer.run()
        return finish(config, run_dir, tokenizers, trainer, progress)


def prepare(config: Config, run_dir: RunDir, digests: dict[str, Any]) -> str:
    """Reads the sources and cleans the training text. Returns the stage's key."""
    data = config.data.model_dump(exclude={"root", "max_length"})
    key = _key("text", data, config.seed, digests)
    if not _is_done(run_dir.text, key):
        log.info("reading the corpus")
        prepare_text(config, run_dir.text, key)
    return key


def train_tokenizer(
    config: Config, run_dir: RunDir, text_key: str, start: Start | None = None
) -> tuple[TokenizerPair, str]:
    """Trains the tokenizer on the cleaned training text, and on nothing else; or takes that of the model to start from.

    Returns:
        the tokenizers and the stage's key.
    """
    settings = config.tokenizer
    key = _key("tokenizer", settings.model_dump(exclude={"bpe_dropout"}), text_key)
    kept = start if config.training.init_tokenizer else None
    if kept is not None:
        key = _key("tokenizer", kept.identity)
    if not _is_done(run_dir.tokenizer, key):
        if kept is not None:
            trained = load_start(kept, config).tokenizers
        else:
            log.info("training the tokenizer")
            source, target = (TextFile(run_dir.text_file("train", side)) for side in ("source", "target"))
            trained = TokenizerPair.train(source, target, settings.vocab_size, settings.shared)
        with storage.new_folder(run_dir.tokenizer, key=key) as folder:
            for name, content in trained.files().items():
                storage.write_text(folder / name, content)
    tokenizers = TokenizerPair.load(run_dir.tokenizer, settings.shared)
    log.info("vocabulary: %d source and %d target pieces", tokenizers.source.vocab_size, tokenizers.target.vocab_size)
    return tokenizers, key


def encode(config: Config, run_dir: RunDir, tokenizers: TokenizerPair, tokenizer_key: str) -> None:
    """Writes the training and validation text as token ids; over-long training pairs are dropped."""
    for split, limit in (("train", config.data.max_length), ("valid", None)):
        key = _key("encoded", tokenizer_key, split, limit)
        if not _is_done(run_dir.encoded(split), key):
            log.info("encoding %s", split)
            text = (run_dir.text_file(split, "source"), run_dir.text_file(split, "target"))
            encode_corpus(text, tokenizers, run_dir.encoded(split), key, limit)


def report_cleaning(config: Config, run_dir: RunDir) -> None:
    """Writes and shows what became of the training pairs, by reason.

    Raises:
        InputError: none is left.
    """
    prepared = json.loads(run_dir.prepared_counts.read_bytes())
    encoded = json.loads(run_dir.encoded_counts("train").read_bytes())
    counts = {"kept": encoded.pop("kept"), **{k: v for k, v in prepared["train"].items() if k != "kept"}, **encoded}
    storage.write_json(run_dir.cleaning, counts)
    log.info("%s", cleaning_table(counts))
    log.info("validation pairs: %d, test pairs: %d", prepared["pairs"]["valid"], prepared["pairs"]["test"])
    if counts["kept"] == 0:
        raise InputError(
            f"data.train: none of its pairs is within data.max_length ({config.data.max_length} tokens)",
            "raise data.max_length",
        )


def make_trainer(
    config: Config, run_dir: RunDir, tokenizers: TokenizerPair, device: torch.device, start: Start | None = None
) -> Trainer:
    """Puts the pieces of a training together; the weights start from the seed, a model, or the newest checkpoint."""
    torch.manual_seed(config.seed)
    model = build_model(config, tokenizers).to(device)
    if start is not None and not any(run_dir.checkpoints.glob("step-*")):
        start_from(model, tokenizers, load_start(start, config))
    log.info("model: %s parameters, on %s", f"{sum(p.numel() for p in model.parameters()):,}", device)
    validator = Validator(
        config,
        EncodedCorpus.open(run_dir.encoded("valid")),
        list(read_lines(run_dir.text_file("valid", "source"))),
        list(read_lines(run_dir.text_file("valid", "target"))),
        tokenizers,
    )
    return Trainer(config, run_dir, model, _training_corpus(config, run_dir, tokenizers), validator)


def _training_corpus(config: Config, run_dir: RunDir, tokenizers: TokenizerPair) -> TrainingCorpus:
    folder, p = run_dir.encoded("train"), config.tokenizer.bpe_dropout
    corpus = EncodedCorpus.open(folder)
    if p == 0:
        return corpus
    return VaryingCorpus(corpus, tokenizers, p, config.seed, config.data.max_length, folder.parent)


def finish(config: Config, run_dir: RunDir, tokenizers: TokenizerPair, trainer: Trainer, progress: Progress) -> str:
    """Chooses the final weights, makes the model folder, tries its engines and scores it, and says what it all cost."""
    weights, origin = trainer.final_weights.final()
    key = _key("model", _MODEL_FORMAT, progress.step, origin, config.model_dump(include={"decoding", "evaluation"}))
    if not _is_done(run_dir.model.root, key):
        set_parameters(trainer.model, weights)
        facts: dict[str, Any] = {
            "key": key,
            "format": _MODEL_FORMAT,
            "weights": origin,
            "steps": progress.step,
            "training_seconds": round(progress.seconds),
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        shortlist = _shortlist(config, run_dir, tokenizers)
        with new_model(run_dir.model, config, tokenizers, weights, facts, shortlist) as folder:
            translator, formats = _try_out(config, run_dir, folder, tokenizers, trainer.model)
            results = _score(config, run_dir, translator)
            facts["formats"] = [result.as_dict() for result in formats]
            facts["formats_table"] = formats_table(formats) if formats else ""
            facts["test"] = [result.as_dict() for result in results]
            facts["scores"] = results_table(results) if results else ""
            card = model_card(config, origin, progress.step, facts["scores"], facts["formats_table"])
            storage.write_text(folder.readme, card)
        trainer.metrics.write("done", progress.step, weights=origin, test=facts["test"], formats=facts["formats"])
    trainer.metrics.close()
    return _summary(run_dir, progress, storage.read_manifest(run_dir.model.root))


def _shortlist(config: Config, run_dir: RunDir, tokenizers: TokenizerPair) -> Shortlist | None:
    size = config.decoding.shortlist
    if size == 0:
        return None
    log.info("aligning the training text for the shortlist")
    shared_vocab_size = tokenizers.source.vocab_size if tokenizers.shared else None
    return make_shortlist(EncodedCorpus.open(run_dir.encoded("train")), size, shared_vocab_size)


def _try_out(
    config: Config, run_dir: RunDir, folder: ModelDir, tokenizers: TokenizerPair, model: Transformer
) -> tuple[Translator, list[FormatResult]]:
    """Measures the fast engine on the validation set, and returns the translator that `mt eval` would use here."""
    settings = TranslationSettings.of(config)
    engine = TorchEngine(model, settings.batch_tokens)
    translator = Translator(engine, tokenizers, settings.max_source_tokens, settings.target_lang)
    try:
        log.info("trying the model's number formats on the validation set")
        valid = [list(read_lines(run_dir.text_file("valid", side))) for side in ("source", "target")]
        formats = try_formats(folder, config, tokenizers, *valid)
        if model.device.type == "cpu":
            translator = open_converted(folder, settings, tokenizers, EngineChoice()).translator
    except UnusableError as error:
        log.warning("%s; the folder works with torch", error)
        return translator, []
    return translator, formats


def _score(config: Config, run_dir: RunDir, translator: Translator) -> list[MethodResult]:
    """Translates and scores the test set, if there is one; hypotheses and scores go to the run's eval/."""
    if config.data.test is None:
        return []
    sources = list(read_lines(run_dir.text_file("test", "source")))
    references = list(read_lines(run_dir.text_file("test", "target")))
    results = evaluate(translator, config, sources, references)
    write_results(run_dir.scores, "test", results, sources, references)
    return results


def _summary(run_dir: RunDir, progress: Progress, product: dict[str, Any]) -> str:
    """What was trained, what it cost, and what to type next."""
    # Linux counts in KiB, macOS in bytes.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1024 if sys.platform == "linux" else 1) / 1e9
    lines = [
        f"trained {progress.step:,} steps ({progress.tokens:,} tokens) in {duration(progress.seconds)}, "
        f"{progress.tokens / max(progress.seconds, 1e-9):,.0f} tokens/s, at most {peak:.1f} GB of memory",
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
    lines += [f"model: {run_dir.model.root}", f'next: mt translate --model {run_dir.root} "..."']
    return "\n".join(lines)


def _key(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def _is_done(folder: Path, key: str) -> bool:
    """True if a stage's output is there, made from the same inputs, and whole."""
    try:
        return bool(storage.verify(folder).get("key") == key)
    except storage.DamagedError:
        return False
