"""`mt train --dry-run`: check everything that could fail, estimate the cost, and leave nothing behind."""

import json
import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from mt.bundle.pretrained import Pretrained
from mt.config import Config, DataConfig, FromTrain, is_synthetic
from mt.console import duration, log
from mt.data.prepare import back_translation_error, input_digests
from mt.data.split import MAX_HELD_OUT
from mt.data.tokenizer_kinds import TokenizerPair
from mt.errors import InputError, MachineError
from mt.extras.export.exporting import require_packages
from mt.extras.planning.corpus_sample import CorpusSample, sample_corpus, sample_held_out, train_on_sample
from mt.extras.planning.estimate import Estimate, estimate
from mt.extras.planning.probe import Measurements, probe
from mt.pipeline.data import refuse_missing_directions
from mt.pipeline.resume import recorded_inputs, refuse_changes, refuse_other_tokenizer, tokenizer_digests
from mt.pipeline.training import check_requirements
from mt.storage import lock as run_lock
from mt.storage.find_model import refuse_pipeline
from mt.storage.run_dir import CheckpointDir, RunDir
from mt.system.cpus import usable_memory
from mt.system.devices import choose_device


@dataclass(frozen=True)
class Texts:
    """The texts of a configuration."""

    train: CorpusSample
    pairs: list[int]  # of each training source, without what is held out
    held_out: dict[str, tuple[int, bool]]  # of validation and test set: pairs, and whether these are all of them


def dry_run(config: Config, runs: Path) -> str:
    """Check a configuration, estimate its demands on this machine, and describe them in a table.

    Raises:
        InputError: the training would be refused.
        MachineError: disk or memory would not suffice.
    """
    check_requirements(config)
    require_packages(*config.exports)
    run_dir = RunDir(runs / config.name)
    refuse_pipeline(run_dir.root, "choose another name")
    disk = writable_parent(run_dir)
    device = choose_device(config.training.device)
    run_lock.refuse_locked(run_dir.lock)
    steps_done, _ = done = training_progress(run_dir)
    pretrained, tokenizers = _check_pretrained(config, runs, run_dir)
    texts = read_texts(config.data)
    train, complete = texts.train, texts.train.complete
    trained_on_all = tokenizers is not None or len(train.sample) == train.clean
    if tokenizers is None:
        tokenizers = train_on_sample(config.tokenizer, train.sample, config.tags)
    log.info("timing a few steps, whose result is discarded")
    measured = probe(config, train.sample, tokenizers, trained_on_all, pretrained)
    valid_pairs, _ = texts.held_out["valid"]
    estimated = estimate(config, measured, texts.pairs, valid_pairs, train.bytes_per_pair(), complete, done)
    rows = {
        "run": f"{run_dir.root}, " + (f"resumes after step {steps_done:,}" if steps_done else "new"),
        "device": f"{device}, {measured.precision}",
        **_text_rows(texts, measured),
        "starts from": str(pretrained.start.folder.root) if pretrained.start and pretrained.start.folder else "",
        "learns from": ", ".join(teacher.path for teacher in pretrained.teachers),
        "tokenizer": _tokenizer(tokenizers, config, trained_on_all),
        "model": f"{measured.parameters:,} parameters",
        **_training_rows(config, estimated, measured, steps_done, complete),
        "memory": _memory(measured),
        "disk": disk_space(disk, [run_dir.root], estimated.disk, complete),
    }
    width = max(map(len, rows))
    lines = [f"{name:<{width}}  {text}" for name, text in rows.items() if text]
    return "\n".join([*lines, "nothing was trained; run the same command without --dry-run to train"])


def training_progress(run_dir: RunDir) -> tuple[int, float]:
    """Return the steps up to the newest checkpoint, and the seconds of training that they took."""
    steps, elapsed = max(run_dir.checkpoint_steps(), default=0), 0.0
    with suppress(OSError, ValueError, KeyError):  # none, or damaged
        elapsed = json.loads(CheckpointDir(run_dir.checkpoint(steps)).state.read_bytes())["elapsed"]
    return steps, elapsed


def _check_pretrained(config: Config, runs: Path, run_dir: RunDir) -> tuple[Pretrained, TokenizerPair | None]:
    """Check the models to start and learn from, and a resume; return them and the tokenizers taken from them."""
    pretrained = Pretrained.find(config, runs, recorded_inputs(run_dir))
    tokenizers = None
    if all(model is None or model.folder is not None for model in (pretrained.start, *pretrained.teachers)):
        pretrained.check()
        tokenizers = pretrained.tokenizers()
    refuse_changes(run_dir, config, input_digests(config.data) | pretrained.identities())
    if tokenizers is not None:
        refuse_other_tokenizer(run_dir, tokenizer_digests(tokenizers))
    return pretrained, tokenizers


def read_texts(data: DataConfig) -> Texts:
    """Read samples of all texts; refuse those that cannot be trained on."""
    train = sample_corpus(data.train, data)
    if train.clean == 0:
        raise InputError("data.train: no sentence pair in it", "check the files, and what cleaning drops")
    human = [0 if is_synthetic(source) else n for source, n in zip(data.train, train.clean_pairs, strict=True)]
    held_out: dict[str, tuple[int, bool]] = {}
    split_off = 0
    for split in ("valid", "test"):
        sources = getattr(data, split)
        if isinstance(sources, FromTrain):
            limit = max(1, int(sum(human) * MAX_HELD_OUT)) if train.complete else sources.from_train
            number = min(sources.from_train, limit)
            held_out[split] = (number, True)
            split_off += number
        elif (sample := sample_held_out(split, data)) is not None:
            held_out[split] = (sum(sample.pairs), sample.complete)
    if train.complete:
        _refuse_unusable(data, train, split_off)
    # Pairs held out of a partly read text come from all of it, not from these first rows.
    return Texts(train, train.training_pairs(split_off if train.complete else 0, human), held_out)


def _refuse_unusable(data: DataConfig, train: CorpusSample, split_off: int) -> None:
    """Refuse text that preparation would refuse: nothing to train on, or back-translations to score on."""
    if train.clean <= split_off:
        message = f"data.train: no sentence pair in it when {split_off} for validation and test are split off"
        raise InputError(message, "name files of their own for these")
    refuse_missing_directions(data, train.clean_pairs)
    for source, back_translated in zip(data.train, train.back_translated, strict=True):
        if split_off and back_translated and not is_synthetic(source):
            raise back_translation_error(source.name)


def _text_rows(texts: Texts, measured: Measurements) -> dict[str, str]:
    def size(number: int, complete: bool) -> str:
        return f"{'' if complete else 'at least '}{number:,} pairs"

    train, held_out = texts.train, texts.held_out
    dropped = [f"{number:,} {reason}" for reason, number in train.counts.items() if reason != "kept"]
    if measured.too_long:
        dropped.append(f"about {measured.too_long:.1%} longer than max_length")
    cleaning = f"; cleaning drops {', '.join(dropped)}" if dropped else ""
    return {
        "training text": f"{size(sum(texts.pairs), train.complete)} before deduplication{cleaning}",
        "validation text": size(*held_out["valid"]),
        "test text": size(*held_out["test"]) if "test" in held_out else "none",
    }


def _tokenizer(tokenizers: TokenizerPair, config: Config, trained_on_all: bool) -> str:
    sizes, wanted = (tokenizers.source.vocab_size, tokenizers.target.vocab_size), config.tokenizer.vocab_size
    if not trained_on_all:
        return f"{min(wanted, *sizes):,} of {wanted:,} pieces from a sample of the text"
    return f"{sizes[0]:,} pieces" if tokenizers.shared else f"{sizes[0]:,} source and {sizes[1]:,} target pieces"


def _training_rows(
    config: Config, estimated: Estimate, measured: Measurements, steps_done: int, complete: bool
) -> dict[str, str]:
    bound = "" if complete or config.training.max_epochs is None else "at most "
    epochs = f", {estimated.epochs:.1f} passes over the text" if complete else ""
    left = estimated.left(steps_done)
    validation = duration(left * estimated.validation_seconds)
    total = f"{bound or 'about '}{duration(left * estimated.seconds)} ({validation} of it validation)"
    return {
        "training": f"{bound}{estimated.steps:,} steps of about {measured.tokens_per_step:,.0f} tokens{epochs}",
        "time": f"{total}, {measured.step_time}; preparing and scoring are extra",
    }


def _memory(measured: Measurements) -> str:
    if not measured.memory:
        return "unknown on this system"
    split = "; batches had to be split for lack of it: lower training.max_tokens" if measured.split else ""
    gpu = "" if measured.gpu_memory is None else f"{measured.gpu_memory / 1e9:.1f} GB of the GPU's, and "
    peak, usable = measured.memory / 1e9, usable_memory() / 1e9
    return f"{gpu}{peak:.1f} GB, and some 0.3 for scoring, of {usable:.0f} GB here{split}"


def writable_parent(run_dir: RunDir) -> Path:
    """Return the nearest existing folder on the path of the run folder."""
    root = run_dir.root.absolute()
    folder = next(path for path in (root, *root.parents) if os.path.lexists(path))
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise MachineError(f"{folder}: cannot write here, where the run folder is to be")
    return folder


def disk_space(disk: Path, runs: Iterable[Path], needed: int, complete: bool) -> str:
    """Describe the space that runs, folders or files, need, how much is in use already, and the free space."""
    paths = chain.from_iterable(run.rglob("*") if run.is_dir() else [run] for run in runs)
    used = sum(path.stat().st_size for path in paths if path.is_file())
    free = shutil.disk_usage(disk).free
    if free + used < needed:
        message = f"{disk}: {_gigabytes(free)} GB free on this disk, but the run may need {_gigabytes(needed)}"
        raise MachineError(message, "free some space, or lower training.keep_checkpoints")
    bound = "up to" if complete else "at least"
    in_use = f", {_gigabytes(used)} of it in use" if used >= 5_000_000 else ""  # shown as 0.01
    return f"{bound} {_gigabytes(needed)} GB{in_use}, of {_gigabytes(free)} GB free"


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:,.{0 if size > 1e10 else 2}f}"
