"""Probes: a few real training steps on a sample of the text, timed in a process of their own.

The peak memory of that process is the training's, and running out of memory ends nothing else.
"""

import logging
import time
from collections.abc import Sequence
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
from mt.data.guided_alignment import Alignments, write_alignments
from mt.data.subword_sampling import SampledCorpus, make_segmenter
from mt.data.token_store import EncodedCorpus
from mt.data.tokenizer_kinds import TokenizerPair
from mt.decoding.engine import SearchOptions
from mt.decoding.torch_engine import TorchEngine
from mt.errors import InputError
from mt.model.build import TranslationModel, build
from mt.pipeline.training import freeze
from mt.storage import atomic
from mt.storage.run_dir import RunDir
from mt.system.devices import choose_device, peak_memory
from mt.system.workers import worker_pool
from mt.training.trainer import Trainer
from mt.training.validation import Validation

_MIN_STEPS, _MAX_STEPS = 2, 20
_TRANSLATED = 128  # sentences


@dataclass(frozen=True)
class Measurements:
    """Measurements of some training steps."""

    precision: str  # fp32, bf16 or fp16
    parameters: int  # of the model
    steps: int  # number of timed steps
    seconds_per_step: float  # of an optimizer step, on average
    tokens_per_step: float  # source and target, without padding
    steps_per_pair: float  # optimizer steps of an epoch, per pair of the training text
    seconds_per_sentence: float  # to translate one in a validation
    memory: int  # peak of the process, in bytes
    gpu_memory: int | None  # peak of the GPU, in bytes; None without one
    too_long: float  # share of the pairs beyond data.max_length
    split: bool = False  # whether batches had to be split for lack of memory

    @property
    def step_time(self) -> str:
        """The time of an optimizer step, without an exponent."""
        seconds = self.seconds_per_step
        return f"{seconds:.2g} s a step" if seconds < 10 else f"{seconds:,.0f} s a step"


def probe(
    config: Config,
    sample: Sequence[Pair],
    tokenizers: TokenizerPair,
    complete: bool,
    pretrained: Pretrained | None = None,
    seconds: float = 8.0,
) -> Measurements:
    """Time a few training steps whose result is discarded.

    Args:
        config: of the training.
        sample: clean pairs.
        tokenizers: trained on them, or those of the training.
        complete: whether they were trained on all of the text; otherwise the vocabulary has the configured size.
        pretrained: the models to distil from, if any.
        seconds: for the timed steps; at least two are made.

    Raises:
        InputError: no pair is within data.max_length.
        MachineError: memory does not suffice.
    """
    silent = config.training.model_copy(update={"tensorboard": False, "wandb": False})
    config = config.model_copy(update={"training": silent})
    hint = "take a smaller model or a smaller training.max_tokens"
    with (
        TemporaryDirectory(prefix="mt-") as folder,  # of this process, which removes it even if the other is killed
        worker_pool(1, "timed steps of this configuration", hint) as pool,
    ):
        teachers = pretrained or Pretrained(config)
        work = (RunDir(Path(folder)), config, list(sample), tokenizers, complete, teachers, seconds, log.level)
        return pool.submit(_measure, *work).result()


def _measure(
    run: RunDir,
    config: Config,
    sample: list[Pair],
    tokenizers: TokenizerPair,
    complete: bool,
    pretrained: Pretrained,
    seconds: float,
    log_level: int,
) -> Measurements:
    log.setLevel(max(log_level, logging.WARNING))
    device = choose_device(config.training.device)
    torch.manual_seed(config.seed)
    min_vocab = 0 if complete else config.tokenizer.vocab_size
    src_vocab, tgt_vocab = (max(each.vocab_size, min_vocab) for each in (tokenizers.source, tokenizers.target))
    model = build(config.model, src_vocab, tgt_vocab, config.data.max_length, tokenizers.shared).to(device)
    freeze(model, config.training.freeze)
    corpus = _encode(run, config, sample, tokenizers)
    trained = _sampled(run, config, corpus, tokenizers) if config.tokenizer.is_sampled else corpus
    if config.is_guided:
        write_alignments(corpus, tokenizers, run.alignments, "probe")
    trainer = Trainer(
        config,
        run,
        model,
        trained,
        _no_validation,
        load_teachers=lambda: pretrained.load_teachers(tokenizers, device),
        alignments=Alignments.open(run.alignments, tokenizers) if config.is_guided else None,
    )
    steps, elapsed, tokens, split = _train(trainer, trained, seconds)
    batches = len(plan_epoch(*trained.lengths(), config.training.max_tokens, config.seed, 0))
    return Measurements(
        precision=trainer.precision,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        steps=steps,
        seconds_per_step=elapsed / steps,
        tokens_per_step=tokens / steps,
        steps_per_pair=batches / config.training.accumulate / len(sample),
        seconds_per_sentence=_seconds_per_sentence(model, corpus, config),
        memory=peak_memory(),
        gpu_memory=torch.cuda.max_memory_allocated() if device.type == "cuda" else None,
        too_long=1 - len(corpus) / len(sample),
        split=split,
    )


def _encode(run: RunDir, config: Config, sample: list[Pair], tokenizers: TokenizerPair) -> EncodedCorpus:
    paths = (run.text_file("train", "source"), run.text_file("train", "target"))
    for path, texts in zip(paths, zip(*sample, strict=True), strict=True):
        atomic.write_text(path, "".join(text + "\n" for text in texts))
    source_format = config.model.source_format
    encode_corpus(paths, tokenizers, run.encoded("train"), "probe", config.data.max_length, source_format=source_format)
    corpus = EncodedCorpus.open(run.encoded("train"), source_format)
    if len(corpus) == 0:
        message = f"data.train: none of its pairs is within data.max_length ({config.data.max_length} tokens)"
        raise InputError(message, "raise it, or split the lines into sentences")
    return corpus


def _sampled(run: RunDir, config: Config, corpus: EncodedCorpus, tokenizers: TokenizerPair) -> EncodedCorpus:
    """Return the corpus as subword regularisation segments it in the first epoch, with more tokens."""
    segmenters = [make_segmenter(tokenizer, config.tokenizer) for tokenizer in tokenizers]
    return SampledCorpus(corpus, tokenizers, segmenters, config.seed, config.data.max_length, run.root).in_epoch(0)


def _train(trainer: Trainer, corpus: EncodedCorpus, seconds: float) -> tuple[int, float, int, bool]:
    """Train steps; return their number, seconds and tokens, and whether any batch was split for lack of memory."""
    lengths = corpus.lengths()
    plan = plan_epoch(*lengths, trainer.settings.max_tokens, 0, 0)
    longest = max(plan, key=lambda batch: int(max(side[batch].max() for side in lengths)))
    batch = assemble(corpus, longest)  # memory must suffice for it
    largest = trainer.train_step.accumulate_gradients([batch] * trainer.settings.accumulate, 0)
    trainer.train_step.zero_gradients()
    trainer.step()  # allocates the optimizer's state
    before, steps, started = trainer.state.tokens, 0, _now(trainer)
    while steps < _MIN_STEPS or (steps < _MAX_STEPS and time.perf_counter() - started < seconds):
        trainer.step()
        steps += 1
    split = largest.pieces > 1 or trainer.state.out_of_memory > 0
    return steps, _now(trainer) - started, trainer.state.tokens - before, split


def _now(trainer: Trainer) -> float:
    if trainer.model.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def _seconds_per_sentence(model: TranslationModel, corpus: EncodedCorpus, config: Config) -> float:
    """Return the seconds to translate a sentence greedily, as validation does.

    An untrained model writes sentences of any length, so the time per token is measured.
    """
    every = max(1, len(corpus) // _TRANSLATED)
    indices = np.arange(0, len(corpus), every)[:_TRANSLATED]
    ids, lengths = corpus.gather("source", indices)
    sentences = [row[:length].tolist() for row, length in zip(ids, lengths, strict=True)]
    model.eval()
    options = SearchOptions(beam_size=1, max_length=config.longest_translation, max_length_ratio=0.5)
    started = time.perf_counter()
    translations = TorchEngine(model, config.decoding.batch_tokens).translate(sentences, options)
    seconds = time.perf_counter() - started
    tokens = sum(len(hypotheses[0].ids) + 1 for hypotheses in translations)
    return seconds / tokens * float(corpus.lengths(indices)[1].mean())


def _no_validation(model: TranslationModel) -> Validation:
    raise AssertionError("a probe does not validate")
