"""What suits a corpus and a machine: the values of a configuration, each with its reason.

The sources are configurations that were measured (docs/quality.md) or published; between them it is judgement.
"""

from dataclasses import dataclass

from mt.extras.planning.corpus_sample import CorpusSample

# Sentence pairs below which a corpus is of the next smaller kind.
TINY, SMALL, MIDDLING, LARGE = 10_000, 60_000, 300_000, 2_000_000

_ONE_ALPHABET = 0.3  # of the letters in common
_HELD_OUT = 1000


@dataclass(frozen=True)
class Choice:
    """One value of the configuration and the reason for it."""

    key: str
    value: object
    reason: str = ""


@dataclass(frozen=True)
class Shape:
    """A size of model, and how such models are trained."""

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
    """How long a training is.

    Attributes:
        steps: of the optimiser.
        epochs: passes over the text in these steps.
        validations: on the way.
    """

    steps: int
    epochs: float
    validations: int


@dataclass(frozen=True)
class Ground:
    """What choices are made from.

    Attributes:
        survey: of the training text.
        device: cpu, cuda or mps.
        cores: of the processor.
        minutes: that training may take; None: as many as it needs.
        device_wanted: what training.device is to say.
    """

    survey: CorpusSample
    device: str
    cores: int
    minutes: float | None = None
    device_wanted: str = "auto"

    @property
    def pairs(self) -> int:
        return self.survey.clean

    @property
    def is_gpu(self) -> bool:
        return self.device == "cuda"


def first_shape(ground: Ground) -> Shape:
    """The shape to begin with; where the time does not suffice, smaller ones follow in `SHAPES`."""
    if ground.pairs < TINY:
        return SHAPES[0]
    if ground.pairs < SMALL:
        return SHAPES[2] if ground.is_gpu or (ground.minutes or 0) >= 60 else SHAPES[1]
    if not ground.is_gpu:
        return SHAPES[2]
    return SHAPES[3] if ground.pairs < MIDDLING else SHAPES[4]


def wanted_epochs(pairs: int) -> int:
    """Passes over the training text after which more of them gain little."""
    return 30 if pairs < TINY else 55 if pairs < SMALL else 20 if pairs < MIDDLING else 10 if pairs < LARGE else 5


def least_epochs(pairs: int) -> int:
    """Passes over the training text from which on a model is better than the next smaller one (docs/quality.md)."""
    return 6 if pairs < TINY else 5 if pairs < SMALL else 4 if pairs < MIDDLING else 2 if pairs < LARGE else 1


def tokenizer_choices(ground: Ground) -> list[Choice]:
    """The vocabulary."""
    sizes = [2000, 10_000, 10_000, 16000, 32000]
    reasons = [
        "few pieces, so that each is seen often",
        "2 BLEU more than 4,000 gave on Multi30k, which has 29,000",
        "as published for IWSLT14, which has 160,000",
        "enough text to learn rare words whole",
        "enough text to learn rare words whole",
    ]
    place = sum(ground.pairs >= bound for bound in (TINY, SMALL, MIDDLING, LARGE))
    reason = f"{ground.pairs:,} pairs: {reasons[place]}"
    source, target = ground.survey.letters()
    letters = len(source.keys() | target.keys())
    if letters > sizes[place] // 3 and place < 4:
        place = next((i for i, size in enumerate(sizes) if letters <= size // 3), 4)
        reason = f"the text has {letters:,} different letters, which all need pieces"
    common = ground.survey.shared_letters()
    return [
        Choice("vocab_size", sizes[place], reason),
        Choice("shared", True, f"both languages use the same letters ({common:.0%} in common)")
        if common >= _ONE_ALPHABET
        else Choice("shared", False, f"the languages have few letters in common ({common:.0%})"),
    ]


def model_choices(shape: Shape, ground: Ground, epochs: float) -> list[Choice]:
    """The shape, and a dropout for so many passes over the text."""
    dropout, reason = 0.1, "much text: little to guard against"
    if ground.pairs < MIDDLING:
        dropout, reason = 0.2, f"{epochs:.0f} passes over little text: guards against learning it by heart"
        if ground.pairs < TINY:
            dropout = 0.3
        elif epochs < 5:
            dropout, reason = 0.0, f"only {epochs:.1f} passes over the text: nothing is learned by heart yet"
        elif epochs < 10:
            dropout, reason = 0.1, f"only {epochs:.1f} passes over the text: more would slow learning down"
        elif shape.d_model >= 512 or epochs >= 40:
            dropout = 0.3
    return [
        Choice("d_model", shape.d_model, shape.known_from),
        Choice("n_heads", shape.n_heads),
        Choice("d_ff", shape.d_ff),
        Choice("encoder_layers", shape.encoder_layers),
        Choice("decoder_layers", shape.decoder_layers),
        Choice("dropout", dropout, reason),
        Choice("norm", "pre", "trains more steadily than post"),
    ]


def batch_choice(shape: Shape, ground: Ground) -> Choice:
    """The size of a batch."""
    if ground.is_gpu:
        if ground.pairs < MIDDLING:
            return Choice("max_tokens", 4096, "as published for small corpora")
        return Choice("max_tokens", 25000, "as in Vaswani et al. 2017; lower it where memory does not suffice")
    if ground.minutes is None and TINY <= ground.pairs < SMALL:
        return Choice("max_tokens", 4096, "as in the best training of Multi30k; 2048 learns sooner")
    if shape.d_model <= 256:
        return Choice("max_tokens", 2048, f"small batches, so that {ground.cores} CPU cores make many steps")
    return Choice("max_tokens", 4096, "memory of a CPU")


def training_choices(shape: Shape, ground: Ground, length: Length) -> list[Choice]:
    """Optimiser, schedule and length."""
    steps = length.steps
    passes = f"about {length.epochs:.1f} passes over the text"
    in_time = f", in {ground.minutes:g} minutes with all that comes before and after" if ground.minutes else ""
    choices = [batch_choice(shape, ground), Choice("max_steps", steps, passes + in_time)]
    if shape.optimizer == "muon":
        choices += [
            Choice("optimizer", "muon", "learned in fewer steps than adam in trials on Multi30k"),
            Choice("learning_rate", shape.learning_rate, f"measured for muon and d_model {shape.d_model}"),
            Choice("schedule", "cosine", "falls to zero at max_steps"),
            Choice("warmup_steps", max(1, min(600, steps // 8))),
        ]
    else:
        choices += [
            Choice("optimizer", "adam"),
            Choice("learning_rate", shape.learning_rate, "as published with this schedule (fairseq)"),
            Choice("schedule", "inverse_sqrt", "has no end to be planned: max_steps can be raised later"),
            Choice("warmup_steps", max(1, min(4000, steps // 5))),
        ]
    if ground.device_wanted != "auto":
        choices.append(Choice("device", ground.device_wanted, "as asked for; auto takes a GPU where there is one"))
    every = max(1, rounded(steps / length.validations))
    return [
        *choices,
        Choice(
            "validate_every", every, f"about {max(1, round(steps / every))} validations; the best one's weights win"
        ),
        Choice("log_every", max(1, min(100, every // 4))),
    ]


def held_out(ground: Ground) -> int:
    """Pairs for a validation or test set that is split off."""
    return max(1, min(_HELD_OUT, ground.pairs // 20))


def rounded(number: float) -> int:
    """To two digits, and at least 1."""
    return max(1, int(float(f"{number:.1e}")))
