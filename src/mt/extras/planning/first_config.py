"""`mt init`: a first configuration, fitted to the user's text and machine."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from mt.config import Config, parse_config
from mt.config.augmentation import ROBUST
from mt.console import duration, log
from mt.data.tokenizer_kinds import TokenizerPair
from mt.errors import InputError
from mt.extras.planning.corpus_sample import CorpusSample, sample_corpus, sample_held_out, train_on_sample
from mt.extras.planning.estimate import estimate, scoring_seconds
from mt.extras.planning.init_options import InitOptions, Source, validated_data
from mt.extras.planning.probe import Measurements, probe
from mt.extras.planning.recipe import (
    SHAPES,
    TUNING_REASON,
    Choice,
    Length,
    PlanInputs,
    Shape,
    config_text,
    first_shape,
    model_choices,
    rounded,
    shape_for_few_steps,
    tokenizer_choices,
    training_choices,
)
from mt.system.cpus import usable_cores
from mt.system.devices import choose_device, has_bf16

_FEW_PAIRS = 1_000  # fewer get a warning
_MANY_TOO_LONG = 0.02  # a share from which there is a warning
_FIXED_SECONDS, _PAIRS_PER_SECOND = 40.0, 5000  # of preparation
_VALIDATION_SHARE = 0.15  # of the training time, at most
PROBE_LENGTH = Length(steps=1000, epochs=10.0, validations=10)
_STEP_LIMITS = (50, 300_000)
_FEW_STEPS = 1500  # of 2,048 tokens; with fewer, half of these and 2+2 layers are better (docs/lab/defaults.md)
_COPY_REASON = "also train to copy URLs, emoji and numbers; robust: true changes more, for 0.1 to 1.3 BLEU"
_INT8_REASON = "1.5 to 2 times as fast as float32, with the same BLEU; shortlist: 50 is faster still"


@dataclass(frozen=True)
class GivenTexts:
    """The texts that the user gave."""

    inputs: PlanInputs  # of a recipe for the training text
    general: CorpusSample  # mixed in against forgetting; empty unless a model is fine-tuned
    valid: CorpusSample | None  # None if it is split off the training text
    pairs: list[int]  # that remain to train on, of each source of the training text
    valid_pairs: int
    test_pairs: int

    def seconds_beside_training(self, measured: Measurements) -> float:
        """Estimate the seconds of preparation, of scoring and, for a student, of translating the training text."""
        read = sum(self.inputs.sample.pairs)
        translating = read * self.inputs.translating * measured.seconds_per_sentence
        preparing = _FIXED_SECONDS + (read + sum(self.general.pairs)) / _PAIRS_PER_SECOND
        return preparing + translating + scoring_seconds(measured, self.valid_pairs, self.test_pairs)


def read_given_texts(options: InitOptions) -> GivenTexts:
    """Read all files.

    Raises:
        InputError: a file is missing, empty, or not aligned with the other.
    """
    data = validated_data(options)
    device = choose_device(options.device, "--device").type
    n_train = len(options.train)
    sample, general = sample_corpus(data.train[:n_train], data), sample_corpus(data.train[n_train:], data)
    name = refuse_unusable(sample, options.train[0])
    if sample.clean < _FEW_PAIRS and options.start is None:
        log.warning("%d pairs are too few to learn a language from; expect very little", sample.clean)
    minutes, translating = options.minutes, options.translating
    inputs = PlanInputs(sample, device, usable_cores(), minutes, options.device, translating=translating)
    valid, test = (sample_held_out(split, data) for split in ("valid", "test"))
    split_off = inputs.held_out * ((valid is None) + (test is None))
    pairs = sample.training_pairs(split_off)
    if sum(pairs) == 0:
        hint = "give more text, or files for --valid and --test"
        raise InputError(f"{name}: {sample.clean} pairs are too few to hold {split_off} of them out", hint)
    sizes = (inputs.held_out if split is None else sum(split.pairs) for split in (valid, test))
    return GivenTexts(inputs, general, valid, pairs, *sizes)


def draft_config(options: InitOptions) -> tuple[str, str]:
    """Read the files, choose a configuration, and time some steps of it.

    Returns:
        the text of the configuration, and a summary for the terminal.

    Raises:
        InputError: a file is missing, empty, or not aligned with the other.
        MachineError: memory does not suffice for the timed steps.
    """
    texts = read_given_texts(options)
    inputs = texts.inputs
    tokenizers = train_on_sample(_config(options, inputs, SHAPES[0], PROBE_LENGTH).tokenizer, inputs.sample.sample)
    shape, length, measured = _fit_to_time(options, texts, tokenizers)
    if inputs.device == "cpu" and length.minutes is not None and length.steps < _FEW_STEPS:
        texts = replace(texts, inputs=replace(inputs, few_steps=True))
        shape = shape_for_few_steps(shape, inputs)
        length, measured = _measured_length(options, texts, tokenizers, shape)
    inputs = with_precision(texts.inputs, measured)
    header, summary = describe(_config(options, inputs, shape, length), texts, measured)
    return new_model_text(options, inputs, shape, length, header), summary


def new_model_text(
    options: InitOptions, inputs: PlanInputs, shape: Shape, length: Length, header: Sequence[str] = ()
) -> str:
    """Return the configuration of a new model, YAML below a comment of `header`."""
    decoding = [Choice("beam_size", 5), Choice("tune_length_penalty", True, TUNING_REASON)]
    if inputs.device == "cpu":
        decoding.append(Choice("compute_type", "int8", _INT8_REASON))
    sections = {
        "": [Choice("name", options.name)],
        "data": options.data_choices(inputs.held_out),
        "augmentation": [Choice("copy_spans", ROBUST["copy_spans"], _COPY_REASON)],
        "tokenizer": tokenizer_choices(inputs),
        "model": model_choices(shape, inputs, length.epochs),
        "training": training_choices(shape, inputs, length),
        "decoding": decoding,
    }
    return config_text(sections, header)


def _config(options: InitOptions, inputs: PlanInputs, shape: Shape, length: Length) -> Config:
    return parse_config(new_model_text(options, inputs, shape, length), "mt init")


def describe(config: Config, texts: GivenTexts, measured: Measurements) -> tuple[list[str], str]:
    """Return the comment above a configuration, and a summary for the terminal."""
    inputs, pairs = texts.inputs, [*texts.pairs, *texts.general.clean_pairs]
    if measured.too_long >= _MANY_TOO_LONG:
        message = (
            "about %.0f %% of the pairs are longer than data.max_length, %d tokens, and will not be trained on; %s"
        )
        log.warning(message, 100 * measured.too_long, config.data.max_length, "raise it, or split lines into sentences")
    others = texts.seconds_beside_training(measured)
    if inputs.minutes is not None and others > 30 * inputs.minutes:
        message = "preparing and scoring may take %s, and training takes half of %g minutes: more than these in all"
        log.warning(message, duration(others), inputs.minutes)
    if measured.split:
        message = "batches of %s tokens had to be split for lack of memory: lower training.max_tokens"
        log.warning(message, f"{config.training.max_tokens:,}")
    estimated = estimate(config, measured, pairs, texts.valid_pairs, inputs.sample.bytes_per_pair())
    source, target = inputs.sample.words()
    machine = "a GPU" if inputs.device != "cpu" else f"{inputs.cores} CPU core{'s'[: inputs.cores != 1]}"
    description = f"{inputs.pairs:,} sentence pairs ({source:.1f} and {target:.1f} words on average) and {machine}"
    memory = f"{measured.memory / 1e9:.1f} GB of memory"
    if measured.gpu_memory is not None:
        memory = f"{measured.gpu_memory / 1e9:.1f} GB of GPU memory and {memory}"
    total = f"about {duration(estimated.seconds)} ({duration(estimated.validation_seconds)} of it validation)"
    costs = f"{measured.step_time}, {total}, {memory}"
    header = [
        f"Written by `mt init` for {description}.",
        f"Estimate, from {measured.steps} steps on this machine under its current load:",
        f"{costs}.",
        "Preparing the text and scoring the model are extra: some minutes, some 0.3 GB.",
    ]
    return header, f"{description}\n{measured.parameters:,} parameters; {costs}"


def with_precision(inputs: PlanInputs, measured: Measurements) -> PlanInputs:
    """Add the number format measured on a CPU with bf16; on other devices `auto` needs no measurement."""
    is_measured = inputs.device == "cpu" and has_bf16(torch.device(inputs.device))
    return replace(inputs, precision=measured.precision) if is_measured else inputs


def refuse_unusable(sample: CorpusSample, source: Source, needed: int = 2) -> str:
    """Refuse a text of which cleaning keeps fewer pairs than are needed; return the name of any other."""
    name, pairs = str(next(iter(source.values()))), sum(sample.pairs)
    if pairs == 0:
        raise InputError(f"{name}: no line in it", "give text, one sentence a line")
    if sample.clean < needed:
        dropped = ", ".join(f"{number} {reason}" for reason, number in sample.counts.items() if reason != "kept")
        raise InputError(f"{name}: cleaning keeps {sample.clean} of {pairs} pairs ({dropped or 'no more'})")
    return name


def _fit_to_time(
    options: InitOptions, texts: GivenTexts, tokenizers: TokenizerPair
) -> tuple[Shape, Length, Measurements]:
    """Time steps of the first shape and, while too few epochs fit into the time limit, of smaller ones."""
    inputs, minutes, shape = texts.inputs, texts.inputs.minutes, first_shape(texts.inputs)
    while True:
        length, measured = _measured_length(options, texts, tokenizers, shape)
        is_longest = minutes is None or length.steps == _STEP_LIMITS[1]
        if is_longest or shape == SHAPES[0] or length.epochs >= inputs.size_class.min_epochs:
            break
        log.info("the time suffices for %.1f passes over the text only; trying a smaller model", length.epochs)
        shape = SHAPES[SHAPES.index(shape) - 1]
    if length.epochs < inputs.size_class.min_epochs:
        limit = f"{_STEP_LIMITS[1]:,} steps, the limit of mt init," if is_longest else f"{minutes:g} minutes"
        log.warning("%s are %.1f passes over the text; a longer training learns more", limit, length.epochs)
    return shape, length, measured


def _measured_length(
    options: InitOptions, texts: GivenTexts, tokenizers: TokenizerPair, shape: Shape
) -> tuple[Length, Measurements]:
    """Time a few steps of a shape; return the length of a training that fits, and what was measured."""
    config, sample = _config(options, texts.inputs, shape, PROBE_LENGTH), texts.inputs.sample.sample
    layers, tokens = shape.encoder_layers + shape.decoder_layers, config.training.max_tokens
    log.info("timing a few steps: d_model %d, %d layers, batches of %s tokens", shape.d_model, layers, f"{tokens:,}")
    measured = probe(config, sample, tokenizers, complete=len(sample) == texts.inputs.pairs)
    return fitting_length(texts, measured, sum(texts.pairs)), measured


def fitting_length(texts: GivenTexts, measured: Measurements, pairs: float) -> Length:
    """Return the steps that the time limit allows and the text is worth, and validations for a small part of the time.

    An epoch has `pairs` pairs.
    """
    inputs = texts.inputs
    epochs = inputs.epochs or inputs.size_class.max_epochs
    steps = epochs * pairs * measured.steps_per_pair
    validation_seconds = max(texts.valid_pairs * measured.seconds_per_sentence, 1e-9)
    minutes = overall = None
    if inputs.minutes is not None:
        others = texts.seconds_beside_training(measured)
        seconds = max(60 * inputs.minutes - others, 30 * inputs.minutes)
        overall = max(inputs.minutes, float(f"{inputs.minutes / 2 + others / 60:.3g}"))
        fitting = seconds * (1 - _VALIDATION_SHARE) / measured.seconds_per_step
        minutes = float(f"{seconds / 60:.3g}") if fitting < 2 * steps else None
        steps = min(2 * steps, fitting)
    steps = rounded(min(max(steps, _STEP_LIMITS[0]), _STEP_LIMITS[1]))
    validations = int(_VALIDATION_SHARE * steps * measured.seconds_per_step / validation_seconds)
    return Length(steps, steps / (pairs * measured.steps_per_pair), min(max(validations, 3), 10), minutes, overall)
