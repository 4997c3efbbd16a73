"""Recipes: values for a corpus and a machine, each with its reason, and their text as a configuration.

The values come from configurations that were measured (docs/quality.md) or published, or from between them.
"""

from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mt.config.loading import as_yaml
from mt.extras.planning.corpus_sample import CorpusSample


class _SizeClass(NamedTuple):
    """Values for corpora of a similar size."""

    max_epochs: int  # after which more gain little
    min_epochs: int  # from which a model beats the next smaller one (docs/lab/shapes.md)
    vocab_size: int
    vocab_reason: str


# Numbers of sentence pairs from which a corpus belongs to the next size class
_TINY, _SMALL, _MEDIUM, _LARGE = SIZE_BOUNDS = (10_000, 60_000, 300_000, 2_000_000)
_SIZE_CLASSES = (
    _SizeClass(30, 6, 2000, "few pieces, so that each is seen often"),
    _SizeClass(55, 10, 10_000, "2 BLEU more than 4,000 gave on Multi30k, which has 29,000"),
    _SizeClass(20, 4, 10_000, "as published for IWSLT14, which has 160,000"),
    _SizeClass(10, 2, 16_000, "enough text to learn rare words whole"),
    _SizeClass(5, 1, 32_000, "enough text to learn rare words whole"),
)
_SAME_ALPHABET = 0.3  # share of the letters in common
_MAX_HELD_OUT = 1000  # pairs
_COMMENT_COLUMN = 32
_POSITIONS_REASON = "2 BLEU more in short trainings of Multi30k; sinusoidal: for exports to Hugging Face"
TUNING_REASON = "of the model, on the validation set, when training ends"


@dataclass(frozen=True)
class Choice:
    """A value of the configuration and its reason."""

    key: str
    value: object
    reason: str = ""


@dataclass(frozen=True)
class Shape:
    """A model size and the optimizer it was trained with."""

    d_model: int
    n_heads: int
    d_ff: int
    encoder_layers: int
    decoder_layers: int
    known_from: str
    optimizer: str = "muon"
    learning_rate: float = 6e-3


# From small to large.
SHAPES = (
    Shape(128, 4, 256, 3, 3, "the demo's shape"),
    Shape(128, 4, 256, 4, 4, "29,000 pairs of Multi30k: 40 BLEU after 8 passes"),
    Shape(256, 4, 512, 3, 3, "29,000 pairs of Multi30k: 39 BLEU in an hour on two cores, by Adam", learning_rate=4e-3),
    Shape(512, 4, 1024, 6, 6, "published for 160,000 pairs (fairseq, IWSLT14)", "adam", 5e-4),
    Shape(512, 8, 2048, 6, 6, "the base model of Vaswani et al. 2017", "adam", 5e-4),
)
_FEW_STEPS_SHAPE = Shape(128, 4, 256, 2, 2, "for few steps: 3+3 layers gave 0 to 2 BLEU less in ten minutes")


@dataclass(frozen=True)
class Length:
    """The length of a training."""

    steps: int  # of the optimizer
    epochs: float  # passes over the text
    validations: int
    minutes: float | None = None  # that steps and validations may take; None where the text limits the steps
    overall: float | None = None  # minutes in all, with preparation and scoring, if there is a time limit


@dataclass(frozen=True)
class PlanInputs:
    """The inputs of a recipe."""

    sample: CorpusSample  # of the training text
    device: str  # cpu, cuda or mps
    cores: int  # of the processor
    minutes: float | None = None  # time limit of the training, if any
    device_option: str = "auto"  # the value of training.device
    precision: str = "auto"  # the value of training.precision
    epochs: int | None = None  # after which more gain little; None: as for a new model
    translating: float = 0.0  # of the training text for a student, as a multiple of a validation's search
    few_steps: bool = False  # the time suffices for so few that smaller batches and fewer layers are better

    @property
    def pairs(self) -> int:
        return self.sample.clean

    @property
    def size_class(self) -> _SizeClass:
        return _SIZE_CLASSES[bisect(SIZE_BOUNDS, self.pairs)]

    @property
    def held_out(self) -> int:
        """Return the pairs of a validation or test set that is split off."""
        return max(1, min(_MAX_HELD_OUT, self.pairs // 20))


def first_shape(inputs: PlanInputs) -> Shape:
    """Return the shape to try first; if time does not suffice, the smaller ones in `SHAPES` follow."""
    if inputs.pairs < _TINY:
        return SHAPES[0]
    if inputs.pairs < _SMALL:
        return SHAPES[2] if inputs.device == "cuda" or (inputs.minutes or 0) >= 60 else SHAPES[1]
    if inputs.device != "cuda":
        return SHAPES[2]
    return SHAPES[3] if inputs.pairs < _MEDIUM else SHAPES[4]


def shape_for_few_steps(shape: Shape, inputs: PlanInputs) -> Shape:
    """Return the shape for a time that suffices for few steps only: 2+2 layers instead of the demo's 3+3.

    Tiny corpora keep their shape, since few steps are many passes over them, for which fewer layers were not measured.
    """
    return _FEW_STEPS_SHAPE if shape == SHAPES[0] and inputs.pairs >= _TINY else shape


def tokenizer_choices(inputs: PlanInputs) -> list[Choice]:
    """Return the tokenizer section."""
    size_class = inputs.size_class
    reason = f"{inputs.pairs:,} pairs: {size_class.vocab_reason}"
    source, target = inputs.sample.letters
    letters = len(source.keys() | target.keys())
    if letters > size_class.vocab_size // 3 and size_class is not _SIZE_CLASSES[-1]:
        large_enough = (larger for larger in _SIZE_CLASSES if letters <= larger.vocab_size // 3)
        size_class = next(large_enough, _SIZE_CLASSES[-1])
        reason = f"the text has {letters:,} different letters, and each needs a piece"
    n_source, n_target = max(source.total(), 1), max(target.total(), 1)
    common = sum(min(source[c] / n_source, target[c] / n_target) for c in source)  # 1 for one alphabet, 0 for two
    shared = common >= _SAME_ALPHABET
    few, same = f"few letters in common ({common:.0%})", f"the same letters ({common:.0%} in common)"
    why = f"both languages use {same}" if shared else f"the languages have {few}"
    return [Choice("vocab_size", size_class.vocab_size, reason), Choice("shared", shared, why)]


def model_choices(shape: Shape, inputs: PlanInputs, epochs: float) -> list[Choice]:
    """Return the model section, with a dropout that suits the number of epochs."""
    dropout, reason = _dropout(shape, inputs, epochs)
    return [
        Choice("d_model", shape.d_model, shape.known_from),
        *(Choice(key, getattr(shape, key)) for key in ("n_heads", "d_ff", "encoder_layers", "decoder_layers")),
        Choice("dropout", dropout, reason),
        Choice("norm", "pre", "trains more steadily than post"),
        Choice("positions", "rotary", _POSITIONS_REASON),
    ]


def _dropout(shape: Shape, inputs: PlanInputs, epochs: float) -> tuple[float, str]:
    if inputs.pairs >= _MEDIUM:
        return 0.1, "much text: little overfitting"
    if inputs.pairs >= _TINY and epochs < 5:
        return 0.0, f"only {epochs:.1f} passes over the text: no overfitting yet"
    if inputs.pairs >= _TINY and epochs < (25 if shape.d_model <= 128 else 15):
        return 0.1, f"only {epochs:.1f} passes over the text: more would slow learning down"
    strong = inputs.pairs < _TINY or shape.d_model >= 512 or epochs >= 40
    return (0.3 if strong else 0.2), f"{epochs:.0f} passes over little text: against overfitting"


def _batch_choice(shape: Shape, inputs: PlanInputs) -> Choice:
    if inputs.device == "cuda":
        if inputs.pairs < _MEDIUM:
            return Choice("max_tokens", 4096, "as published for small corpora")
        return Choice("max_tokens", 25000, "as in Vaswani et al. 2017; lower it if memory does not suffice")
    if inputs.minutes is None and _TINY <= inputs.pairs < _SMALL:
        return Choice("max_tokens", 4096, "as in the best training of Multi30k; 2048 learns sooner")
    if shape.d_model <= 256 and inputs.few_steps:
        return Choice("max_tokens", 1024, "so that there are more steps: 2048 gave 0.2 to 3 BLEU less in ten minutes")
    if shape.d_model <= 256:
        return Choice("max_tokens", 2048, "small batches, so that a CPU makes many steps")
    return Choice("max_tokens", 4096, "memory of a CPU")


def training_choices(shape: Shape, inputs: PlanInputs, length: Length) -> list[Choice]:
    """Return the training section: batches, length, optimizer and schedule."""
    steps = length.steps
    epochs = f"about {length.epochs:.1f} passes over the text"
    others = f"preparation{', translating' * bool(inputs.translating)} and scoring"
    limit = f", in {length.overall:g} minutes including {others}" if length.overall else ""
    choices = [_batch_choice(shape, inputs), Choice("max_steps", steps, epochs + limit)]
    if length.minutes is not None:
        choices.append(Choice("minutes", length.minutes, "of training: max_steps then follows its speed"))
    if shape.optimizer == "muon":
        choices += [
            Choice("optimizer", "muon", "needed fewer steps than adam on Multi30k"),
            Choice("learning_rate", shape.learning_rate, f"measured for muon and d_model {shape.d_model}"),
            Choice("schedule", "constant", "with averaged weights 0.4 to 2 BLEU more than cosine in 10 to 90 minutes"),
            Choice("warmup_steps", max(1, min(600, steps // 8))),
            Choice("ema_decay", round(1 - 12 / max(100, steps), 5), "averages the weights over a twelfth of the steps"),
        ]
    else:
        choices += [
            Choice("optimizer", "adam"),
            Choice("learning_rate", shape.learning_rate, "as published with this schedule (fairseq)"),
            Choice("schedule", "inverse_sqrt", "independent of max_steps, which can be raised later"),
            Choice("warmup_steps", max(1, min(4000, steps // 5))),
        ]
    if inputs.precision != "auto":
        choices.append(Choice("precision", inputs.precision, "the faster of bf16 and fp32, measured on this processor"))
    if inputs.device_option != "auto":
        choices.append(Choice("device", inputs.device_option, "as requested; auto takes a GPU if there is one"))
    every = max(1, rounded(steps / length.validations))
    validations = f"about {max(1, round(steps / every))} validations; the best one's weights win"
    return [*choices, Choice("validate_every", every, validations), Choice("log_every", max(1, min(100, every // 4)))]


def rounded(number: float) -> int:
    """Round to two significant digits, and to at least 1."""
    return max(1, int(float(f"{number:.1e}")))


def config_text(sections: Mapping[str, Sequence[Choice]], header: Sequence[str]) -> str:
    """Return sections, that of the top level with an empty name, as YAML below a comment of `header`."""
    lines = [f"# {line}".rstrip() for line in header]
    for name, choices in sections.items():
        if name and choices:
            lines.append(f"{name}:")
        for choice in choices:
            text = f"{'  ' if name else ''}{choice.key}: {as_yaml(choice.value)}"
            lines.append(f"{text:<{_COMMENT_COLUMN}}  # {choice.reason}" if choice.reason else text)
    return "".join(f"{line}\n" for line in lines)
