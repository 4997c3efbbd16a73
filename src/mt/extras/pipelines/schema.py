"""The keys of a pipeline file, and of each kind of step."""

import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from mt.config.base import RUN_NAME, LanguageCode, Line, Lines, OneOrList, Rule, Section, without_repeats
from mt.config.schema import ExportFormat
from mt.extras.doctor.rules import DROPPABLE, Selecting

STEP_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$"  # no dot: such names stay free for files beside the steps' folders


class Place(Section):
    """A file or folder, or the output of a step."""

    step: Line | None = None
    """Name of the step that writes it."""
    file: Line | None = None
    """A path; with `step` that of a file in the step's folder."""

    def broken_rules(self) -> Iterator[Rule]:
        if self.step is None and self.file is None:
            yield Rule(("step",), "names neither a step nor a file")


def _as_place(value: object) -> object:
    if isinstance(value, str):
        return {"file": value}
    if not isinstance(value, Mapping | Place):
        raise ValueError("must be a path or {step: NAME}")
    return value


_Place = Annotated[Place, BeforeValidator(_as_place)]
_Places = Annotated[tuple[_Place, ...], Field(min_length=1), OneOrList()]
_Count = Annotated[int, Field(ge=1)]
_SourceLang = Annotated[LanguageCode | None, Field(alias="from")]


def _as_reasons(names: tuple[str, ...]) -> tuple[str, ...]:
    if unknown := [name for name in names if name not in DROPPABLE]:
        raise ValueError(f"'{unknown[0]}' is none of {', '.join(DROPPABLE)}")
    return names


_Reasons = Annotated[Lines, AfterValidator(_as_reasons)]
_Metrics = Annotated[tuple[Literal["bleu", "chrf", "ter", "comet"], ...], AfterValidator(without_repeats), OneOrList()]


class StepSettings(Section):
    """The keys of a step, most of them options of its command."""


class OnCorpus(StepSettings):
    """A step with a configuration."""

    config: Line
    """Configuration of a training, relative to the pipeline's file."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Values that replace the configuration's, by dotted key; {step: NAME} in them is that step's output."""


class Train(OnCorpus):
    """`mt train`."""


class Score(OnCorpus):
    """`mt data score`."""

    forward: _Places | None = None
    backward: _Places | None = None
    train: bool = False
    embeddings: Line | None = None
    device: Line | None = None

    def broken_rules(self) -> Iterator[Rule]:
        if self.train == bool(self.forward and self.backward) or (self.train and (self.forward or self.backward)):
            yield Rule(("forward", "train"), "give `forward` and `backward`, or `train: true`")


class Clean(OnCorpus):
    """`mt data clean`."""

    scores: _Place | None = None
    min_score: float | None = None
    keep_share: Annotated[float, Field(gt=0, le=1)] | None = None
    by: Selecting | None = None
    keep: _Reasons = ()
    drop: _Reasons = ()
    max_per_template: _Count | None = None
    repair: bool = False

    def broken_rules(self) -> Iterator[Rule]:
        given = {"low-score": self.scores, "template": self.max_per_template}
        dropped = (*self.drop, *(reason for reason, value in given.items() if value is not None))
        if both := [reason for reason in self.keep if reason in dropped]:
            yield Rule(("keep", "drop"), f"{both[0]} is to be kept and to be dropped")
        if self.min_score is not None and self.keep_share is not None:
            yield Rule(("min_score", "keep_share"), "min_score and keep_share contradict each other")
        selecting = (self.min_score, self.keep_share, self.by) != (None, None, None) or "low-score" in self.drop
        if self.scores is None and selecting:
            keys = ("scores", "min_score", "keep_share", "by", "drop")
            yield Rule(keys, "min_score, keep_share, by and `drop: low-score` select by `scores`")
        elif self.by not in (None, "score") and (self.min_score, self.keep_share) == (None, None):
            yield Rule(("by",), f"scores suggest no threshold for {self.by}; add min_score or keep_share")


class _Search(StepSettings):
    model: _Places
    from_: _SourceLang = None
    to: LanguageCode | None = None
    beam: _Count | None = None
    length_penalty: float | None = None
    sample: bool = False
    temperature: float | None = None
    top_k: _Count | None = None
    top_p: float | None = None
    seed: Annotated[int, Field(ge=0)] | None = None
    engine: Line | None = None
    compute_type: Line | None = None
    shortlist: bool | None = None
    device: Line | None = None


class _Synthesis(_Search):
    input: _Place
    output: Line | None = None
    greedy: bool = False

    def broken_rules(self) -> Iterator[Rule]:
        if self.greedy and (self.sample or self.beam not in (None, 1)):
            yield Rule(("greedy",), "is a beam of one; leave it out, or `beam` and `sample`")


class Distill(_Synthesis):
    """`mt distill`."""

    closest_to: _Place | None = None
    n_best: Annotated[int, Field(ge=1, le=1000)] | None = None

    def broken_rules(self) -> Iterator[Rule]:
        yield from super().broken_rules()
        if self.closest_to is None and self.n_best is not None:
            yield Rule(("n_best",), "belongs to closest_to")
        if self.closest_to is not None and (self.greedy or (self.sample and self.n_best is None)):
            yield Rule(("closest_to",), "needs several translations: a beam, or `sample` with `n_best`")


class Backtranslate(_Synthesis):
    """`mt backtranslate`."""

    tag: Literal["", "<BT>"] | None = None  # the one that training knows


class Eval(_Search):
    """`mt eval`."""

    source: _Place | None = None
    reference: _Place | None = None
    glossary: _Place | None = None
    keep: Lines = ()
    metrics: _Metrics = ()
    comet_model: Line | None = None
    mbr: Annotated[int, Field(ge=2)] | None = None
    utility: Literal["chrf", "bleu"] | None = None

    def broken_rules(self) -> Iterator[Rule]:
        yield from _unpaired(self.source, self.reference)
        if ("comet" in self.metrics) != (self.comet_model is not None):
            yield Rule(("comet_model", "metrics"), "comet and comet_model, the folder of its checkpoint, go together")


class Export(StepSettings):
    """`mt export`."""

    format: ExportFormat
    model: _Place
    output: Line | None = None
    quantization: Literal["float32", "float16", "int8"] | None = None
    max_loss: Annotated[float, Field(ge=0)] | None = None
    source: _Place | None = None
    reference: _Place | None = None
    from_: _SourceLang = None
    to: LanguageCode | None = None

    def broken_rules(self) -> Iterator[Rule]:
        yield from _unpaired(self.source, self.reference)
        if self.source is None and (self.to or self.from_):
            yield Rule(("to", "from"), "is the language of a text; add source and reference, or leave it out")


def _unpaired(source: Place | None, reference: Place | None) -> Iterator[Rule]:
    if (source is None) != (reference is None):
        yield Rule(("source", "reference"), "source and reference go together; give both, or neither")


KINDS: dict[str, type[StepSettings]] = {
    kind.__name__.lower(): kind for kind in (Train, Distill, Backtranslate, Score, Clean, Eval, Export)
}
PROGRAM = (sys.executable, "-P", "-m", "mt")  # `mt` may not be on the PATH
# The first words of each kind's command
COMMANDS = {kind: (kind,) for kind in KINDS} | {"score": ("data", "score"), "clean": ("data", "clean")}


def _not_empty(steps: dict[str, Any]) -> dict[str, Any]:
    if not steps:
        raise ValueError("there is no step in it")
    return steps


class PipelineFile(Section):
    """A pipeline."""

    name: Annotated[str, Field(pattern=RUN_NAME, examples=["my-pipeline"])]
    """Name of the pipeline, and of its folder among the runs."""
    root: Line | None = None
    """Folder that the paths of texts are relative to, also data.root of all configurations; itself relative to the
    current directory. null: the current directory, and each configuration's own data.root."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Values for the configurations of all steps, by dotted key; a step's own values override them."""
    steps: Annotated[dict[str, Any], AfterValidator(_not_empty), Field(examples=[{"x": {}}])]
    """The steps by name, in any order; each has one key, the kind of step, with the keys of that kind."""
