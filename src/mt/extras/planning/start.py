"""A first configuration for somebody's own text: fitted to its size and to the machine, each choice with its reason."""

from dataclasses import dataclass
from typing import Any

from mt.bundle.pretrained import Pretrained
from mt.config import DataConfig, parse_config
from mt.console import log
from mt.errors import InputError
from mt.extras.planning.answers import Answers, checked
from mt.extras.planning.corpus_sample import CorpusSample, sample_corpus, train_on_sample
from mt.extras.planning.draft import Draft
from mt.extras.planning.estimate import cost, estimate
from mt.extras.planning.probe import Measured, probe
from mt.extras.planning.recipe import (
    SHAPES,
    Ground,
    Length,
    first_shape,
    held_out,
    least_epochs,
    rounded,
    tokenizer_choices,
    wanted_epochs,
)
from mt.system.cpus import usable_cores
from mt.system.devices import choose_device

_FEW = 1_000  # pairs below which hardly anything is learned
_SECONDS = 8.0  # of timed steps
_SPARE = 0.85  # of the minutes given; the rest is for preparing the data and scoring the model
_VALIDATING = 0.15  # of the training's time, at most
_TRIAL = Length(steps=1000, epochs=10.0, validations=10)
_STEPS = (50, 300_000)  # at least and at most


@dataclass(frozen=True)
class Beginning:
    """A configuration's text, and what there is to say about it."""

    text: str
    summary: str


def begin(answers: Answers, schema: str) -> Beginning:
    """Looks at the files, chooses a configuration, and tries it for some seconds.

    Args:
        answers: what the user says.
        schema: where editors find the configuration's schema, seen from the file.

    Raises:
        InputError: a file is missing, empty, or not aligned with the other.
        MachineError: memory does not suffice even for a trial.
    """
    data = checked(answers)
    device = choose_device(answers.device, "--device").type
    found = sample_corpus(data.train, data)
    _refuse_nothing(found, answers.train[0][0])
    ground = Ground(found, device, usable_cores(), answers.minutes, answers.device)
    given = {split: _pairs_given(split, data) for split in ("valid", "test")}
    taken = sum(held_out(ground) for pairs in given.values() if pairs is None)
    if sum(found.training_pairs(taken)) == 0:
        raise InputError(
            f"{answers.train[0][0]}: {found.clean} pairs are too few to hold {taken} of them out",
            "give more text, or files for --valid and --test",
        )
    valid_pairs = given["valid"] or held_out(ground)
    tokenizer = tokenizer_choices(ground)
    draft = Draft(answers.name, answers.data(held_out(ground)), tokenizer, ground)
    return _tried(draft, found.training_pairs(taken), valid_pairs, schema)


def _refuse_nothing(found: CorpusSample, name: str) -> None:
    if sum(found.pairs) == 0:
        raise InputError(f"{name}: no line in it", "give the training text, one sentence a line")
    if found.clean < 2:
        dropped = ", ".join(f"{number} {reason}" for reason, number in found.counts.items() if reason != "kept")
        raise InputError(
            f"{name}: of {sum(found.pairs)} pairs {found.clean} can be trained on ({dropped or 'no more'})"
        )
    if found.clean < _FEW:
        log.warning("%d pairs are too few to learn a language from; expect very little", found.clean)


def _pairs_given(split: str, data: DataConfig) -> int | None:
    """The pairs of a validation or test set; None where it is split off the training text."""
    sources: Any = getattr(data, split)
    if not isinstance(sources, tuple):
        return None
    pairs = sum(sample_corpus(sources, data).pairs)
    if pairs == 0:
        raise InputError(f"data.{split}: no sentence pair in it", "give other files, or none to split some off")
    return pairs


def _tried(draft: Draft, pairs: list[int], valid_pairs: int, schema: str) -> Beginning:
    """The configuration with as many steps as a trial says; where the time is too short, with a smaller model."""
    ground, shape = draft.ground, first_shape(draft.ground)
    tokenizers = train_on_sample(draft.config(shape, _TRIAL).tokenizer, ground.survey.sample)
    while True:
        log.info(
            "training a few steps: d_model %d, %d layers", shape.d_model, shape.encoder_layers + shape.decoder_layers
        )
        whole = len(ground.survey.sample) == ground.pairs
        trial = draft.config(shape, _TRIAL)
        measured = probe(trial, ground.survey.sample, tokenizers, whole, _SECONDS, Pretrained(trial))
        length = length_for(ground, measured, sum(pairs), valid_pairs)
        enough = least_epochs(ground.pairs)
        if ground.minutes is None or shape == SHAPES[0] or length.epochs >= enough:
            break
        log.info("in that time it would read the text %.1f times only; trying a smaller model", length.epochs)
        shape = SHAPES[SHAPES.index(shape) - 1]
    if length.epochs < enough:
        span = f"{_STEPS[1]:,} steps, the most given here," if ground.minutes is None else f"{ground.minutes:g} minutes"
        log.warning("%s are %.1f passes over the text; it learns more in longer", span, length.epochs)
    config = draft.config(shape, length)
    told = cost(measured, estimate(config, measured, pairs, valid_pairs, ground.survey.bytes_per_pair()))
    header = [
        f"yaml-language-server: $schema={schema}",
        "",
        f"Written by `mt init` for {_described(ground)}.",
        f"Estimate, from {measured.steps} steps on this machine, as busy as it was:",
        f"{told}.",
        "Preparing the text and scoring the model come on top: some minutes, some 0.3 GB.",
    ]
    text = draft.text(shape, length, header)
    parse_config(text, "what mt init has written")
    return Beginning(text, f"{_described(ground)}\n{measured.parameters:,} parameters; {told}")


def _described(ground: Ground) -> str:
    source, target = ground.survey.words()
    where = "a GPU" if ground.device != "cpu" else f"{ground.cores} CPU cores"
    return f"{ground.pairs:,} sentence pairs ({source:.1f} and {target:.1f} words on average) and {where}"


def length_for(ground: Ground, measured: Measured, pairs: int, valid_pairs: int) -> Length:
    """As many steps as the time allows, or as the text is worth; validations take a small part of it."""
    steps = wanted_epochs(ground.pairs) * pairs * measured.steps_per_pair
    if ground.minutes is not None:
        seconds = 60 * ground.minutes * _SPARE * (1 - _VALIDATING)
        steps = min(2 * steps, seconds / measured.seconds_per_step)
    steps = rounded(min(max(steps, _STEPS[0]), _STEPS[1]))
    one = max(valid_pairs * measured.seconds_per_sentence, 1e-9)
    fitting = int(_VALIDATING * steps * measured.seconds_per_step / one)
    return Length(steps, steps / (pairs * measured.steps_per_pair), min(max(fitting, 3), 10))
