"""Recipes: values for a corpus and a machine, each with its reason.

They come from configurations that were measured (docs/quality.md) or published, and are interpolated between them.
"""

from bisect import bisect
from dataclasses import dataclass

from mt.extras.planning.corpus_sample import CorpusSample

# Sentence pairs from which a corpus belongs to the next class of size.
_TINY, _SMALL, _MEDIUM, _LARGE = SIZE_BOUNDS = (10_000, 60_000, 300_000, 2_000_000)

# By class of size: epochs after which more gain little; epochs from which a model beats the next smaller one
# (docs/quality.md); pieces of the vocabulary.
_MAX_EPOCHS = (30, 55, 20, 10, 5)
_MIN_EPOCHS = (6, 5, 4, 2, 1)
_VOCAB_SIZES = (2000, 10_000, 10_000, 16000, 32000)
_VOCAB_REASONS = (
    "few pieces, so that each is seen often",
    "2 BLEU more than 4,000 gave on Multi30k, which has 29,000",
    "as published for IWSLT14, which has 160,000",
    "enough text to learn rare words whole",
    "enough text to learn rare words whole",
)
_SAME_ALPHABET = 0.3  # share of the letters in common
_MAX_HELD_OUT = 1000  # pairs


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
    Shape(128, 4, 256, 4, 4, "29,000 pairs of Multi30k: 40 BLEU after 55 passes, 37 after 7"),
    Shape(256, 4, 512, 3, 3, "29,000 pairs of Multi30k: 39 BLEU in an hour on two cores, by Adam", learning_rate=4e-3),
    Shape(512, 4, 1024, 6, 6, "published for 160,000 pairs (fairseq, IWSLT14)", "adam", 5e-4),
    Shape(512, 8, 2048, 6, 6, "the base model of Vaswani et al. 2017", "adam", 5e-4),
)


@dataclass(frozen=True)
class Length:
    """The length of a training: optimizer steps, the epochs they make, and the number of validations."""

    steps: int
    epochs: float
    validations: int


@dataclass(frozen=True)
class PlanInputs:
    """The inputs of a recipe.

    Attributes:
        sample: of the training text.
        device: cpu, cuda or mps.
        cores: of the processor.
        minutes: time limit of the training, if any.
        device_option: the value of training.device.
    """

    sample: CorpusSample
    device: str
    cores: int
    minutes: float | None = None
    device_option: str = "auto"

    @property
    def pairs(self) -> int:
        return self.sample.clean

    @property
    def size_class(self) -> int:
        """Return 0 for a tiny corpus to 4 for a very large one."""
        return bisect(SIZE_BOUNDS, self.pairs)

    @property
    def is_gpu(self) -> bool:
        return self.device == "cuda"

    @property
    def max_epochs(self) -> int:
        return _MAX_EPOCHS[self.size_class]

    @property
    def min_epochs(self) -> int:
        return _MIN_EPOCHS[self.size_class]

    @property
    def held_out(self) -> int:
        """Return the pairs of a validation or test set that is split off."""
        return max(1, min(_MAX_HELD_OUT, self.pairs // 20))


def first_shape(inputs: PlanInputs) -> Shape:
    """Return the shape to try first; if time does not suffice, the smaller ones in `SHAPES` follow."""
    if inputs.pairs < _TINY:
        return SHAPES[0]
    if inputs.pairs < _SMALL:
        return SHAPES[2] if inputs.is_gpu or (inputs.minutes or 0) >= 60 else SHAPES[1]
    if not inputs.is_gpu:
        return SHAPES[2]
    return SHAPES[3] if inputs.pairs < _MEDIUM else SHAPES[4]


def tokenizer_choices(inputs: PlanInputs) -> list[Choice]:
    """Return the tokenizer section."""
    size_class = inputs.size_class
    reason = f"{inputs.pairs:,} pairs: {_VOCAB_REASONS[size_class]}"
    source, target = inputs.sample.letters()
    letters = len(source.keys() | target.keys())
    if letters > _VOCAB_SIZES[size_class] // 3 and size_class < 4:
        size_class = next((i for i, size in enumerate(_VOCAB_SIZES) if letters <= size // 3), 4)
        reason = f"the text has {letters:,} different letters, and each needs a piece"
    common = inputs.sample.shared_letters()
    shared = common >= _SAME_ALPHABET
    alphabet = "both languages use the same" if shared else "the languages have few"
    share = f"({common:.0%} in common)" if shared else f"in common ({common:.0%})"
    return [
        Choice("vocab_size", _VOCAB_SIZES[size_class], reason),
        Choice("shared", shared, f"{alphabet} letters {share}"),
    ]


def model_choices(shape: Shape, inputs: PlanInputs, epochs: float) -> list[Choice]:
    """Return the model section, with a dropout for so many epochs."""
    dropout, reason = _dropout(shape, inputs, epochs)
    return [
        Choice("d_model", shape.d_model, shape.known_from),
        *(Choice(key, getattr(shape, key)) for key in ("n_heads", "d_ff", "encoder_layers", "decoder_layers")),
        Choice("dropout", dropout, reason),
        Choice("norm", "pre", "trains more steadily than post"),
    ]


def _dropout(shape: Shape, inputs: PlanInputs, epochs: float) -> tuple[float, str]:
    if inputs.pairs >= _MEDIUM:
        return 0.1, "much text: little overfitting"
    if inputs.pairs >= _TINY and epochs < 5:
        return 0.0, f"only {epochs:.1f} passes over the text: no overfitting yet"
    if inputs.pairs >= _TINY and epochs < 10:
        return 0.1, f"only {epochs:.1f} passes over the text: more would slow learning down"
    strong = inputs.pairs < _TINY or shape.d_model >= 512 or epochs >= 40
    return (0.3 if strong else 0.2), f"{epochs:.0f} passes over little text: against overfitting"


def _batch_choice(shape: Shape, inputs: PlanInputs) -> Choice:
    if inputs.is_gpu:
        if inputs.pairs < _MEDIUM:
            return Choice("max_tokens", 4096, "as published for small corpora")
        return Choice("max_tokens", 25000, "as in Vaswani et al. 2017; lower it if memory does not suffice")
    if inputs.minutes is None and _TINY <= inputs.pairs < _SMALL:
        return Choice("max_tokens", 4096, "as in the best training of Multi30k; 2048 learns sooner")
    if shape.d_model <= 256:
        return Choice("max_tokens", 2048, f"small batches, so that {inputs.cores} CPU cores make many steps")
    return Choice("max_tokens", 4096, "memory of a CPU")


def training_choices(shape: Shape, inputs: PlanInputs, length: Length) -> list[Choice]:
    """Return the training section: batches, length, optimizer and schedule."""
    steps = length.steps
    epochs = f"about {length.epochs:.1f} passes over the text"
    limit = f", in {inputs.minutes:g} minutes including preparation and scoring" if inputs.minutes else ""
    choices = [_batch_choice(shape, inputs), Choice("max_steps", steps, epochs + limit)]
    if shape.optimizer == "muon":
        choices += [
            Choice("optimizer", "muon", "needed fewer steps than adam on Multi30k"),
            Choice("learning_rate", shape.learning_rate, f"measured for muon and d_model {shape.d_model}"),
            Choice("schedule", "cosine", "falls to zero at max_steps"),
            Choice("warmup_steps", max(1, min(600, steps // 8))),
        ]
    else:
        choices += [
            Choice("optimizer", "adam"),
            Choice("learning_rate", shape.learning_rate, "as published with this schedule (fairseq)"),
            Choice("schedule", "inverse_sqrt", "independent of max_steps, which can be raised later"),
            Choice("warmup_steps", max(1, min(4000, steps // 5))),
        ]
    if inputs.device_option != "auto":
        choices.append(Choice("device", inputs.device_option, "as requested; auto takes a GPU if there is one"))
    every = max(1, rounded(steps / length.validations))
    validations = f"about {max(1, round(steps / every))} validations; the best one's weights win"
    return [*choices, Choice("validate_every", every, validations), Choice("log_every", max(1, min(100, every // 4)))]


def rounded(number: float) -> int:
    """Round to two significant digits, and to at least 1."""
    return max(1, int(float(f"{number:.1e}")))
