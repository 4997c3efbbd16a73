"""What a training costs here: a few real steps on a sample of its text, in a process of their own.

Of its own, so that its peak of memory is the training's, and so that a shape that does not fit ends the trial only.
"""

import logging
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from mt.bundle.pretrained import Pretrained
from mt.config import Config
from mt.console import log
from mt.data.batching import assemble, plan_epoch
from mt.data.corpus import Pair
from mt.data.encode import encode_corpus
from mt.data.token_store import EncodedCorpus
from mt.data.tokenizer import TokenizerPair
from mt.decoding.engine import SearchOptions
from mt.decoding.torch_engine import TorchEngine
from mt.errors import InputError, MachineError
from mt.model.build import TranslationModel, build
from mt.storage import atomic
from mt.storage.run_dir import RunDir
from mt.system.devices import choose_device, peak_memory
from mt.system.workers import start_worker
from mt.training.step import autocast
from mt.training.trainer import Trainer
from mt.training.validation import Validation

_MOST_STEPS = 20
_FEWEST_STEPS = 2
_TRANSLATED = 128  # sentences


@dataclass(frozen=True)
class Measured:
    """What some steps took.

    Attributes:
        device: cpu, cuda or mps.
        precision: bf16 or fp32.
        parameters: of the model.
        steps: how many were timed.
        seconds_per_step: of an optimiser step, on average.
        tokens_per_step: source and target, padding not counted.
        steps_per_pair: optimiser steps of an epoch, for each pair of the training text.
        seconds_per_sentence: to translate one in a validation.
        memory: the most that the process held, in bytes.
        gpu_memory: the most of the GPU's, in bytes; None without one.
        too_long: the part of the pairs that data.max_length drops.
        split: whether batches had to be split for lack of memory.
    """

    device: str
    precision: str
    parameters: int
    steps: int
    seconds_per_step: float
    tokens_per_step: float
    steps_per_pair: float
    seconds_per_sentence: float
    memory: int
    gpu_memory: int | None
    too_long: float
    split: bool = False


def probe(
    config: Config,
    sample: Sequence[Pair],
    tokenizers: TokenizerPair,
    whole: bool,
    seconds: float,
    pretrained: Pretrained,
) -> Measured:
    """Trains a few steps and forgets them.

    Args:
        config: what to train.
        sample: clean pairs.
        tokenizers: learned from them, or those that the training will have.
        whole: whether they were learned from all of the text; otherwise the vocabulary is taken to be as large as
            asked.
        seconds: how long the timed steps may take; two are made in any case.
        pretrained: the models to distil from.

    Raises:
        InputError: no pair is within data.max_length.
        MachineError: memory does not suffice.
    """
    silent = config.training.model_copy(update={"tensorboard": False, "wandb": False})
    config = config.model_copy(update={"training": silent})
    context = multiprocessing.get_context("spawn")
    with (
        TemporaryDirectory(prefix="mt-") as folder,  # of this process, which clears it whatever kills the other
        ProcessPoolExecutor(1, context, initializer=start_worker) as pool,
    ):
        try:
            work = (RunDir(Path(folder)), config, list(sample), tokenizers, whole, seconds, pretrained, log.level)
            return pool.submit(_measure, *work).result()
        except BrokenProcessPool:
            raise MachineError(
                "a trial of this configuration was killed, probably for lack of memory",
                "take a smaller model or a smaller training.max_tokens",
            ) from None


def _measure(
    run: RunDir,
    config: Config,
    sample: list[Pair],
    tokenizers: TokenizerPair,
    whole: bool,
    seconds: float,
    pretrained: Pretrained,
    level: int,
) -> Measured:
    log.setLevel(max(level, logging.WARNING))
    device = choose_device(config.training.device)
    torch.manual_seed(config.seed)
    vocab = (0 if whole else config.tokenizer.vocab_size,)
    model = build(
        config.model,
        max(tokenizers.source.vocab_size, *vocab),
        max(tokenizers.target.vocab_size, *vocab),
        config.data.max_length,
        tokenizers.shared,
    ).to(device)
    corpus = _encoded(run, config, sample, tokenizers)
    trainer = Trainer(
        config, run, model, corpus, _no_validation, load_teachers=lambda: pretrained.load_teachers(tokenizers, device)
    )
    steps, in_steps, tokens, split = _train(trainer, corpus, seconds)
    batches = len(plan_epoch(*corpus.lengths(), config.training.max_tokens, config.seed, 0))
    return Measured(
        device=device.type,
        precision="bf16" if _is_bf16(device, config) else "fp32",
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        steps=steps,
        seconds_per_step=in_steps / steps,
        tokens_per_step=tokens / steps,
        steps_per_pair=batches / config.training.accumulate / len(sample),
        seconds_per_sentence=_translate(model, corpus, config),
        memory=peak_memory(),
        gpu_memory=torch.cuda.max_memory_allocated() if device.type == "cuda" else None,
        too_long=1 - len(corpus) / len(sample),
        split=split,
    )


def _encoded(run: RunDir, config: Config, sample: list[Pair], tokenizers: TokenizerPair) -> EncodedCorpus:
    for side, texts in zip(("source", "target"), zip(*sample, strict=True), strict=True):
        atomic.write_text(run.text_file("train", side), "".join(text + "\n" for text in texts))
    text = (run.text_file("train", "source"), run.text_file("train", "target"))
    encode_corpus(text, tokenizers, run.encoded("train"), "trial", config.data.max_length)
    corpus = EncodedCorpus.open(run.encoded("train"))
    if len(corpus) == 0:
        raise InputError(
            f"data.train: none of its pairs is within data.max_length ({config.data.max_length} tokens)",
            "raise data.max_length",
        )
    return corpus


def _train(trainer: Trainer, corpus: EncodedCorpus, seconds: float) -> tuple[int, float, int, bool]:
    """Makes steps, the first with the longest sentences, for which memory must suffice.

    Returns:
        how many were timed, the seconds they took, and their tokens; and whether any had to be split for lack of
        memory.
    """
    lengths = corpus.lengths()
    plan = plan_epoch(*lengths, trainer.settings.max_tokens, 0, 0)
    longest = max(plan, key=lambda batch: int(max(side[batch].max() for side in lengths)))
    longest_one = trainer.train_step.accumulate_gradients([assemble(corpus, longest)] * trainer.settings.accumulate, 0)
    trainer.model.zero_grad(set_to_none=True)
    trainer.step()  # makes the optimiser's memory
    before, steps, started = trainer.state.tokens, 0, _now(trainer)
    while steps < _FEWEST_STEPS or (steps < _MOST_STEPS and time.perf_counter() - started < seconds):
        trainer.step()
        steps += 1
    split = longest_one.pieces > 1 or trainer.state.out_of_memory > 0
    return steps, _now(trainer) - started, trainer.state.tokens - before, split


def _now(trainer: Trainer) -> float:
    if trainer.model.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def _translate(model: TranslationModel, corpus: EncodedCorpus, config: Config) -> float:
    """Seconds to translate a sentence greedily, as validations do.

    A model that has learned nothing writes sentences of any length, so the time is taken for each token.
    """
    every = max(1, len(corpus) // _TRANSLATED)
    indices = np.arange(0, len(corpus), every)[:_TRANSLATED]
    ids, lengths = corpus.gather("source", indices)
    sentences = [row[:length].tolist() for row, length in zip(ids, lengths, strict=True)]
    model.eval()
    options = SearchOptions(beam_size=1, max_length=config.longest_translation, max_length_ratio=0.5)
    started = time.perf_counter()
    found = TorchEngine(model, config.decoding.batch_tokens).translate(sentences, options)
    seconds = time.perf_counter() - started
    tokens = sum(len(hypotheses[0].ids) + 1 for hypotheses in found)
    return seconds / tokens * float(corpus.lengths(indices)[1].mean())


def _is_bf16(device: torch.device, config: Config) -> bool:
    with autocast(device, config.training.precision):
        return torch.is_autocast_enabled(device.type)


def _no_validation(model: TranslationModel) -> Validation:
    raise AssertionError("a trial validates nothing")
