"""From a configuration to a model folder: corpus, tokenizer, encoded data, training, evaluation, bundle.

Each stage records a key made of what it depends on, and is skipped while its output carries that key.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import torch

from mt.bundle.given_models import GivenModels
from mt.bundle.model_folder import build_model
from mt.bundle.warm_start import load_start, refuse_missing_tags, start_from
from mt.config import Config, dump_config, name_of
from mt.console import log
from mt.data.batching import TrainingCorpus
from mt.data.bidirectional import BidirectionalCorpus
from mt.data.bpe_dropout import VaryingCorpus
from mt.data.cleaning import cleaning_table
from mt.data.encode import Tagged, encode_corpus, read_counts, shards_of
from mt.data.eval_texts import read_texts
from mt.data.mixture import read_parts, training_shares
from mt.data.prepare import input_digests, prepare_text, warn_of_shared_text
from mt.data.token_store import EncodedCorpus
from mt.data.tokenizer import TokenizerPair
from mt.errors import InputError, MtError
from mt.extras.export.in_run import write_exports
from mt.extras.reporting.report import is_current, write_report
from mt.model.build import TranslationModel
from mt.pipeline.finish import finish
from mt.pipeline.preflight import check_requirements
from mt.pipeline.resume import recorded_inputs, refuse_changes, refuse_other_tokenizer, tokenizer_files
from mt.storage import atomic, lock
from mt.storage.run_dir import RunDir
from mt.storage.stage import is_done, stage_key
from mt.system.devices import choose_device
from mt.system.distributed import SINGLE_PROCESS, Distributed, explain_lost_process
from mt.text.lines import TextFile
from mt.training.trainer import Trainer
from mt.training.validation import Validator

_NO_MODELS = GivenModels()


def run(config: Config, runs: Path, distributed: Distributed = SINGLE_PROCESS) -> str:
    """Runs every stage that has not been done yet.

    Of several processes the main one prepares the data while the others wait; they train and translate together.

    Args:
        config: the whole configuration.
        runs: the folder that holds the run folders; on several machines they all see it.
        distributed: the processes that train together.

    Returns:
        the summary to print.

    Raises:
        MtError: with the exit code that fits.
    """
    check_requirements(config, distributed)
    run_dir = RunDir(runs / config.name)
    device = choose_device(config.training.device, local_rank=distributed.local_rank)
    with lock.exclusive(run_dir.lock) if distributed.is_main else nullcontext(), explain_lost_process():
        given, origin = distributed.broadcast(make_data(config, run_dir, runs) if distributed.is_main else (GivenModels(), {}))
        tokenizers = TokenizerPair.load(run_dir.tokenizer, config.tokenizer.shared)
        trainer = make_trainer(config, run_dir, tokenizers, device, given, distributed, origin)
        with closing(trainer.metrics):  # whatever happens, what was written so far is to be seen
            progress = trainer.run()
            summary = finish(config, run_dir, tokenizers, trainer, progress)
        if distributed.is_main and config.exports:
            summary += f"\n{write_exports(config, run_dir)}"
        if distributed.is_main and config.training.report:
            summary += f"\nreport: {_report(run_dir)}"
        return summary


def _report(run_dir: RunDir) -> str:
    """Write the report unless the present one is of this model; a failure does not fail the training."""
    if is_current(run_dir):
        return str(run_dir.report)
    try:
        return str(write_report(run_dir))
    except MtError as error:
        log.warning("report: not written: %s", error.message)
        return f"not written: {error.message}"


def make_data(config: Config, run_dir: RunDir, runs: Path) -> tuple[GivenModels, dict[str, Any]]:
    """All that comes before training: checked inputs, clean text, the tokenizer, token ids.

    Returns:
        the models that training starts and learns from, and the digests that checkpoints record.
    """
    for folder in (
        run_dir.root,
        run_dir.text.parent,
        run_dir.encoded("train").parent,
        run_dir.checkpoints,
        run_dir.exports,
        run_dir.scores,
    ):
        atomic.remove_partials(folder)
    given = GivenModels.find(config, runs, recorded_inputs(run_dir))
    digests = input_digests(config.data)
    warn_of_shared_text(config.data)
    digests |= given.identities()
    refuse_changes(run_dir, config, digests)
    if given.start is not None and not run_dir.checkpoint_steps():
        load_start(given.start, config)  # what does not fit is refused before anything is prepared
    atomic.write_text(run_dir.config, dump_config(config))

    text_key = prepare(config, run_dir, digests)
    tokenizers, files = train_tokenizer(config, run_dir, text_key, given)
    encode(config, run_dir, tokenizers, files, text_key)
    report_cleaning(config, run_dir)
    return given, {"inputs": digests, "tokenizer": files}


def prepare(config: Config, run_dir: RunDir, digests: dict[str, Any]) -> str:
    """Reads the sources and cleans the training text. Returns the stage's key."""
    no_weight = {"__all__": {"weight": True}}
    not_in_text: dict[str, Any] = {"root": True, "max_length": True, "temperature": True, "train": no_weight}
    data = config.data.model_dump(exclude=not_in_text)
    # Runs from before a key stay what they are.
    for source in data["train"]:
        if not source.get("synthetic"):
            source.pop("synthetic", None)
    for sources in (data["train"], data["valid"], data["test"]):
        for source in sources if isinstance(sources, tuple) else ():
            if source.get("header"):
                source.pop("header")
    key = stage_key("text", data, config.seed, digests)
    if not is_done(run_dir.text, key):
        log.info("reading the corpus")
        prepare_text(config, run_dir.text, key)
    return key


def train_tokenizer(
    config: Config, run_dir: RunDir, text_key: str, given: GivenModels = _NO_MODELS
) -> tuple[TokenizerPair, dict[str, str]]:
    """Trains the tokenizer on the cleaned training text, and on nothing else; or takes that of a given model.

    Returns:
        the tokenizers and the SHA-256 of each of their files.

    Raises:
        InputError: checkpoints were made with another tokenizer.
    """
    settings = config.tokenizer
    key = stage_key("tokenizer", settings.model_dump(exclude={"bpe_dropout"}), text_key)
    owner = given.tokenizer_owner(config)
    if owner is not None:
        key = stage_key("tokenizer", owner.identity, *(() if settings.shared else ("of two vocabularies",)))
    if not is_done(run_dir.tokenizer, key):
        if owner is not None:
            log.info("the tokenizer is that of %s; tokenizer.vocab_size does not count", owner.path)
            trained = given.tokenizers(config)
        else:
            log.info("training the tokenizer")
            pairs = json.loads(run_dir.prepared_counts.read_bytes())["pairs"]["train"]
            every = -(-pairs // settings.train_pairs)
            source, target = (TextFile(run_dir.text_file("train", side), every) for side in ("source", "target"))
            trained = TokenizerPair.train(source, target, settings.vocab_size, settings.shared, config.data.tagged)
        content = {name: text.encode() for name, text in trained.files().items()}
        files = {name: hashlib.sha256(text).hexdigest() for name, text in content.items()}
        refuse_other_tokenizer(run_dir, files)
        with atomic.new_folder(run_dir.tokenizer, key=key) as folder:
            for name, text in content.items():
                atomic.write_bytes(folder / name, text)
    files = tokenizer_files(run_dir)
    refuse_other_tokenizer(run_dir, files)  # it may have been put there by hand
    tokenizers = TokenizerPair.load(run_dir.tokenizer, settings.shared)
    refuse_missing_tags(config, tokenizers)
    log.info("vocabulary: %d source and %d target pieces", tokenizers.source.vocab_size, tokenizers.target.vocab_size)
    return tokenizers, files


def encode(config: Config, run_dir: RunDir, tokenizers: TokenizerPair, files: Mapping[str, str], text_key: str) -> None:
    """Writes the training and validation text as token ids; over-long training pairs are dropped."""
    for split, limit in (("train", config.data.max_length), ("valid", None)):
        # Of the text, too: a tokenizer that came with training.init_from says nothing of it.
        key = stage_key("encoded", files, text_key, split, limit)
        if not is_done(run_dir.encoded(split), key):
            log.info("encoding %s", split)
            text = (run_dir.text_file(split, "source"), run_dir.text_file(split, "target"))
            tags = tokenizers.source.tags
            parts = [Tagged(p.pairs, tags.get(p.target_lang)) for p in read_parts(run_dir.prepared_counts, split)]
            encode_corpus(text, tokenizers, run_dir.encoded(split), key, limit, parts)
        atomic.remove_if_there(shards_of(run_dir.encoded(split)))  # a crash may have left them


def report_cleaning(config: Config, run_dir: RunDir) -> None:
    """Writes and shows what became of the training pairs, by reason.

    Raises:
        InputError: none is left.
    """
    prepared = json.loads(run_dir.prepared_counts.read_bytes())
    encoded = read_counts(run_dir.encoded_counts("train"))
    counts = {
        "kept": sum(encoded.kept),
        **{reason: count for reason, count in prepared["train"].items() if reason != "kept"},
        "longer than max_length": encoded.too_long,
    }
    atomic.write_json(run_dir.cleaning, counts)
    log.info("%s", cleaning_table(counts))
    log.info("validation pairs: %d, test pairs: %d", prepared["pairs"]["valid"], prepared["pairs"]["test"])
    if counts["kept"] == 0:
        raise InputError(
            f"data.train: none of its pairs is within data.max_length ({config.data.max_length} tokens)",
            "raise data.max_length",
        )
    _tell_empty_sources(config, encoded.kept)
    for split in ("valid", "test"):
        _tell_unscored_languages(config, split, {part["target_lang"] for part in prepared["parts"][split]})


def _tell_unscored_languages(config: Config, split: str, there: set[str]) -> None:
    for code in config.data.target_lang:
        if there and code not in there:
            log.warning("data.%s: no pair into %s, so no score says how good the model is there", split, code)


def _tell_empty_sources(config: Config, kept: Sequence[int]) -> None:
    data = config.data
    for source, pairs in zip(data.train, kept, strict=True):
        if not pairs:
            log.warning("data.train: %s: none of its pairs is left to train on", name_of(source))
    for code in data.target_lang:
        if not any(n for n, source in zip(kept, data.train, strict=True) if data.language_of(source) == code):
            raise InputError(
                f"data.train: no pair into {code} is left to train on",
                f"look at what cleaning and data.max_length dropped, or take {code} out of data.target_lang",
            )


def make_trainer(
    config: Config,
    run_dir: RunDir,
    tokenizers: TokenizerPair,
    device: torch.device,
    given: GivenModels = _NO_MODELS,
    distributed: Distributed = SINGLE_PROCESS,
    origin: Mapping[str, Any] | None = None,
) -> Trainer:
    """Puts the pieces of a training together; the weights start from the seed, a model, or the newest checkpoint."""
    torch.manual_seed(config.seed)
    model = build_model(config, tokenizers).to(device)
    if given.start is not None and not run_dir.checkpoint_steps():
        start_from(model, tokenizers, load_start(given.start, config))
    log.info("model: %s parameters, on %s", f"{sum(p.numel() for p in model.parameters()):,}", device)
    validator = Validator(
        config,
        EncodedCorpus.open(run_dir.encoded("valid")),
        read_texts(run_dir, "valid", config.data.target_lang),
        tokenizers,
        distributed,
    )
    corpus = _training_corpus(config, run_dir, tokenizers)
    weights = [source.weight for source in config.data.train]
    kept = read_counts(run_dir.encoded_counts("train")).kept
    shares = training_shares(kept, weights, config.data.temperature)
    missing = None
    teachers: tuple[TranslationModel, ...] = ()
    try:
        teachers = given.load_teachers(config, tokenizers, device)
    except InputError as error:  # where the training has ended they may be gone, which is all right
        missing = error
    trainer = Trainer(config, run_dir, model, corpus, validator, distributed, shares, teachers, origin)
    if missing is not None and not trainer.is_over():
        raise missing
    return trainer


def _training_corpus(config: Config, run_dir: RunDir, tokenizers: TokenizerPair) -> TrainingCorpus:
    folder, p = run_dir.encoded("train"), config.tokenizer.bpe_dropout
    encoded = EncodedCorpus.open(folder)
    corpus: TrainingCorpus = encoded
    if p > 0:
        corpus = VaryingCorpus(encoded, tokenizers, p, config.seed, config.data.max_length, folder.parent)
    bidirectional = config.training.bidirectional_epochs
    return BidirectionalCorpus(corpus, bidirectional, config.seed, config.data.max_length) if bidirectional else corpus
