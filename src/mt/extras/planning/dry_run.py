"""`mt train --dry-run`: whatever a training could fail at is looked at, and nothing is trained or left behind."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mt.bundle.pretrained import Pretrained
from mt.config import Config, DataConfig, FromTrain, is_synthetic, name_of
from mt.console import duration, log
from mt.data.prepare import input_digests
from mt.data.split import MAX_HELD_OUT
from mt.data.tokenizer import TokenizerPair
from mt.errors import InputError, MachineError
from mt.extras.export.in_run import require_exports
from mt.extras.planning.corpus_sample import CorpusSample, sample_corpus, train_on_sample
from mt.extras.planning.estimate import Estimate, estimate
from mt.extras.planning.probe import Measured, probe
from mt.pipeline.preflight import check_requirements
from mt.pipeline.resume import recorded_inputs, refuse_changes
from mt.storage import lock
from mt.storage.run_dir import RunDir
from mt.system.devices import choose_device, has_bf16
from mt.text.languages import BACK_TRANSLATION_TAG
from mt.training.checkpoints import Checkpoints

_SECONDS = 8.0  # of timed steps


@dataclass(frozen=True)
class _Texts:
    """The corpora, as far as they can be known without cleaning them.

    Attributes:
        train: the training text.
        pairs: that are left of each training source.
        held_out: pairs of the validation and the test set; the test set's are None where there is none.
        partial: which of these two were read in part only, as is the beginning of a data set on the hub.
    """

    train: CorpusSample
    pairs: list[int]
    held_out: dict[str, int | None]
    partial: set[str]


def dry_run(config: Config, runs: Path) -> str:
    """Checks a configuration, and what it asks of this machine.

    Args:
        config: what would be trained.
        runs: the folder that holds the run folders.

    Returns:
        what was found, a line each.

    Raises:
        InputError: the training would be refused.
        MachineError: disk or memory would not suffice.
    """
    check_requirements(config)
    require_exports(config)
    run_dir = RunDir(runs / config.name)
    disk = _disk(run_dir)
    device = choose_device(config.training.device)
    done = _steps_done(run_dir)
    pretrained, tokenizers = _pretrained(config, runs, run_dir)
    texts = _read(config)
    whole = tokenizers is not None or len(texts.train.sample) == texts.train.clean
    if tokenizers is None:
        tokenizers = train_on_sample(config.tokenizer, texts.train.sample, config.data.tagged)
    log.info("training a few steps, which are forgotten again")
    measured = probe(config, texts.train.sample, tokenizers, whole, _SECONDS, pretrained)
    valid_pairs = texts.held_out["valid"] or 0
    bytes_per_pair = texts.train.bytes_per_pair()
    foreseen = estimate(config, measured, texts.pairs, valid_pairs, bytes_per_pair, texts.train.complete)
    rows = {
        "run": f"{run_dir.root}, " + (f"goes on after step {done:,}" if done else "new"),
        "device": _device(device, measured.precision),
        **_text_rows(texts, measured),
        **_pretrained_rows(pretrained),
        "tokenizer": _tokenizer(tokenizers, config, whole),
        "model": f"{measured.parameters:,} parameters",
        "training": _training(config, foreseen, measured, texts.train.complete),
        "time": _time(config, foreseen, measured, done, texts.train.complete),
        "memory": _memory(measured),
        "disk": _space(disk, run_dir.root, foreseen.disk, texts.train.complete),
    }
    width = max(map(len, rows))
    lines = [f"{name:<{width}}  {text}" for name, text in rows.items()]
    return "\n".join([*lines, "nothing was trained; the same command without --dry-run begins"])


def _device(device: torch.device, precision: str) -> str:
    could_be_faster = precision == "fp32" and has_bf16(device)
    return f"{device}, {precision}" + ("; training.precision: bf16 may be faster" if could_be_faster else "")


def _steps_done(run_dir: RunDir) -> int:
    lock.refuse_locked(run_dir.lock)
    return max(Checkpoints(run_dir).steps(), default=0)


def _pretrained(config: Config, runs: Path, run_dir: RunDir) -> tuple[Pretrained, TokenizerPair | None]:
    """Check the models to start and learn from, and the resume; return them and the tokenizers taken from them."""
    pretrained = Pretrained.find(config, runs, recorded_inputs(run_dir))
    tokenizers = None
    if all(model is None or model.folder is not None for model in (pretrained.start, *pretrained.teachers)):
        pretrained.check()
        tokenizers = pretrained.tokenizers()
    refuse_changes(run_dir, config, input_digests(config.data) | pretrained.identities())
    return pretrained, tokenizers


def _pretrained_rows(pretrained: Pretrained) -> dict[str, str]:
    rows = {}
    if pretrained.start is not None and pretrained.start.folder is not None:
        rows["starts from"] = str(pretrained.start.folder.root)
    if pretrained.teachers:
        rows["learns from"] = ", ".join(teacher.path for teacher in pretrained.teachers)
    return rows


def _read(config: Config) -> _Texts:
    data = config.data
    train = sample_corpus(data.train, data)
    if train.clean == 0:
        raise InputError("data.train: no sentence pair in it", "check the files, and what cleaning drops")
    held_out: dict[str, int | None] = {}
    partial: set[str] = set()
    taken = 0
    for split in ("valid", "test"):
        sources: Any = getattr(data, split)
        if isinstance(sources, FromTrain):
            most = max(1, int(train.clean * MAX_HELD_OUT)) if train.complete else sources.from_train
            held_out[split] = min(sources.from_train, most)
            taken += held_out[split] or 0
        elif sources is None:
            held_out[split] = None
        else:
            found = sample_corpus(sources, data)
            held_out[split] = sum(found.pairs)
            if not found.complete:
                partial.add(split)
            if held_out[split] == 0:
                raise InputError(f"data.{split}: no sentence pair in it", "check the files")
    if train.complete:
        _refuse_what_is_left(data, train, taken)
    # What is held out of a text of unknown size comes from all of it, not from its beginning.
    return _Texts(train, train.training_pairs(taken if train.complete else 0), held_out, partial)


def _refuse_what_is_left(data: DataConfig, train: CorpusSample, taken: int) -> None:
    """What preparing the text would find: nothing to train on, or sentences to be scored on that a model wrote."""
    if train.clean <= taken:
        raise InputError(
            f"data.train: no sentence pair in it when {taken} for validation and test are split off",
            "name files of their own for these",
        )
    there = {data.language_of(source) for source, kept in zip(data.train, train.clean_pairs, strict=True) if kept}
    for code in data.target_lang:
        if code not in there:
            raise InputError(
                f"data.train: no pair into {code} is left to train on",
                f"look at what cleaning drops, or take {code} out of data.target_lang",
            )
    for tagged, source in zip(train.back_translated, data.train, strict=True):
        if taken and tagged and not is_synthetic(source):
            raise InputError(
                f"data.train: {name_of(source)}: back-translated text ({BACK_TRANSLATION_TAG}) could be split off for "
                "validation or test",
                "add `synthetic: true` to this source, or name files of their own for these",
            )


def _text_rows(texts: _Texts, measured: Measured) -> dict[str, str]:
    train = texts.train
    dropped = [f"{number:,} {reason}" for reason, number in train.counts.items() if reason != "kept"]
    if measured.too_long:
        dropped.append(f"about {measured.too_long:.1%} longer than max_length")
    lost = f"; cleaning drops {', '.join(dropped)}" if dropped else ""
    sizes = {
        split: "none" if number is None else f"{_at_least(split not in texts.partial)}{number:,} pairs"
        for split, number in texts.held_out.items()
    }
    return {
        "training text": f"{_at_least(train.complete)}{sum(texts.pairs):,} pairs before deduplication{lost}",
        "validation text": sizes["valid"],
        "test text": sizes["test"],
    }


def _at_least(whole: bool) -> str:
    return "" if whole else "at least "


def _tokenizer(tokenizers: TokenizerPair, config: Config, whole: bool) -> str:
    sizes, asked = (tokenizers.source.vocab_size, tokenizers.target.vocab_size), config.tokenizer.vocab_size
    if not whole:
        return f"{min(asked, *sizes):,} of {asked:,} pieces from a sample of the text"
    return f"{sizes[0]:,} pieces" if tokenizers.shared else f"{sizes[0]:,} source and {sizes[1]:,} target pieces"


def _training(config: Config, foreseen: Estimate, measured: Measured, whole: bool) -> str:
    passes = f", {foreseen.epochs:.1f} passes over the text" if whole else ""
    return f"{_at_most(config, whole)}{foreseen.steps:,} steps of about {measured.tokens_per_step:,.0f} tokens{passes}"


def _at_most(config: Config, whole: bool) -> str:
    return "" if whole or config.training.max_epochs is None else "at most "


def _time(config: Config, foreseen: Estimate, measured: Measured, done: int, whole: bool) -> str:
    left = max(0, foreseen.steps - done) / foreseen.steps
    validating = duration(left * foreseen.validation_seconds)
    in_all = f"{_at_most(config, whole) or 'about '}{duration(left * foreseen.seconds)} ({validating} of it validation)"
    return f"{in_all}, {measured.seconds_per_step:.2g} s a step; preparing and scoring come on top"


def _memory(measured: Measured) -> str:
    has = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    split = "; batches had to be split for lack of it: lower training.max_tokens" if measured.split else ""
    on_gpu = "" if measured.gpu_memory is None else f"{measured.gpu_memory / 1e9:.1f} GB of the GPU's, and "
    return f"{on_gpu}{measured.memory / 1e9:.1f} GB, and some 0.3 for scoring, of {has / 1e9:.0f} GB here{split}"


def _disk(run_dir: RunDir) -> Path:
    """A folder on the disk where the run folder is, or will be."""
    there = run_dir.root.absolute()
    while not os.path.lexists(there):
        there = there.parent
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise MachineError(f"{there}: cannot write here, where the run folder is to be")
    return there


def _space(disk: Path, run: Path, needed: int, whole: bool) -> str:
    """What the run folder may need, and what there is; what it has already is part of what it needs."""
    has = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
    free = shutil.disk_usage(disk).free
    if free + has < needed:
        raise MachineError(
            f"{disk}: {free / 1e9:.1f} GB free on this disk, but the run may need {needed / 1e9:.1f}",
            "free some space, or lower training.keep_checkpoints",
        )
    most = "up to" if whole else "at least"
    there = f", {has / 1e9:.2g} of it there" if has else ""
    return f"{most} {needed / 1e9:.2g} GB{there}, of {free / 1e9:,.{0 if free > 1e10 else 2}f} GB free"
