"""The whole examination of a corpus, and what comes out of it."""

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mt.config import Config, FromTrain, is_synthetic
from mt.console import log
from mt.extras.doctor.chunks import Example, Examples
from mt.extras.doctor.examination import Tally, examine
from mt.extras.doctor.kinds import BIT, ERROR, PAIR_KINDS, SERIOUSNESS, TEXT_KINDS, Kind
from mt.extras.doctor.reading import Faults, texts_of
from mt.extras.doctor.survey import SAMPLE, Survey, find_tokenizers, survey, tokenizer_files, yardsticks
from mt.extras.doctor.vocabulary import RARE, Vocabulary, look_at
from mt.text.languages import BACK_TRANSLATION_TAG


@dataclass(frozen=True)
class Finding:
    """What was found of one kind.

    Attributes:
        counts: pairs (of a text's form: lines or files) by split.
        judged: pairs that were looked at, by split.
        examples: a few.
    """

    kind: Kind
    counts: dict[str, int]
    judged: dict[str, int]
    examples: list[Example]


@dataclass(frozen=True)
class Diagnosis:
    """All that is known of a corpus.

    Attributes:
        surveys: of each text, in the order test, valid, train.
        findings: the most serious first.
        vocabulary: None without training text.
        masks: bits of kinds of every training pair (N,).
    """

    config: Config
    surveys: list[Survey]
    findings: list[Finding]
    vocabulary: Vocabulary | None
    masks: NDArray[np.uint64]

    @property
    def pairs(self) -> dict[str, int]:
        """How many each split has."""
        sizes = Counter(dict.fromkeys(("train", "valid", "test"), 0))
        for one in self.surveys:
            sizes[one.text.split] += one.pairs
        return dict(sizes)

    @property
    def refused(self) -> bool:
        """Whether a training would refuse the corpus."""
        return any(finding.kind.seriousness == ERROR for finding in self.findings)


def diagnose(
    config: Config,
    runs: Path,
    examples: int,
    every_language: bool = False,
    dropped_for: frozenset[str] = frozenset(),
) -> Diagnosis:
    """Examines the texts of a configuration.

    Args:
        config: names them.
        runs: where a run of the same name may have a tokenizer.
        examples: to show of each kind of finding.
        every_language: judge the language of all pairs, not of a sample.
        dropped_for: kinds of finding for which a pair will go, so that a later one that is equal to it may stay.
    """
    faults = Faults(Examples(examples))
    texts = texts_of(config.data)
    log.info("reading the corpus")
    number = Counter(text.split for text in texts)
    surveys = [survey(text, faults, max(SAMPLE // number[text.split], 100)) for text in texts]
    with tempfile.TemporaryDirectory(prefix="mt-check-") as name:
        folder = Path(name)
        vocabulary, files = None, None
        if any(one.sample for one in surveys if one.text.split == "train"):
            title, tokenizers = find_tokenizers(config, runs, surveys)
            files = tokenizer_files(tokenizers, folder)
        measures = yardsticks(config, surveys, files)
        if files is not None:
            vocabulary = look_at(title, tokenizers, surveys, measures, examples)
        tally, masks = examine(surveys, measures, examples, every_language, folder, dropped_for)
    _note_emptiness(config, surveys, masks, faults)
    _note_back_translations(config, surveys, faults)
    return Diagnosis(config, surveys, _findings(faults, tally, vocabulary), vocabulary, masks)


def _note_emptiness(config: Config, surveys: Sequence[Survey], masks: NDArray[np.uint64], faults: Faults) -> None:
    """What training refuses because nothing is left of a split."""
    unusable = np.uint64(sum(BIT[kind.name] for kind in PAIR_KINDS if kind.in_training) | BIT["encoding"])
    pairs, splits = Counter[str](), {"valid": config.data.valid, "test": config.data.test}
    for one in surveys:
        pairs[one.text.split] += one.pairs
    apart = sum(isinstance(sources, FromTrain) for sources in splits.values())
    different = len(set[str]().union(*(one.sources for one in surveys if one.text.split == "train")))
    if not np.any((masks & unusable) == 0):
        said = "no pair that training would take"
    elif different <= apart:
        said = "perhaps no pair is left when those for validation and test are split off"
    else:
        said = ""
    if said:
        faults.add("no-pairs", Example("train", (), f"data.train: {said}"))
    else:
        for code in sorted(set(config.data.target_lang) - _languages_with(surveys, (masks & unusable) == 0)):
            faults.add("no-pairs", Example("train", (), f"data.train: no pair into {code} that training would take"))
    for split, sources in splits.items():
        if isinstance(sources, tuple) and not pairs[split]:
            faults.add("no-pairs", Example(split, (), f"data.{split}: no sentence pair in it"))


def _languages_with(surveys: Sequence[Survey], usable: NDArray[np.bool_]) -> set[str]:
    """The target languages that have usable training pairs.

    Args:
        surveys: whose training texts, one after the other, are what `usable` is about.
        usable: of each training pair (N,).
    """
    texts = [one for one in surveys if one.text.split == "train"]
    ends = np.cumsum([one.pairs for one in texts])
    return {
        one.text.data.language_of(one.text.source)
        for one, end in zip(texts, ends.tolist(), strict=True)
        if usable[end - one.pairs : end].any()
    }


def _note_back_translations(config: Config, surveys: Sequence[Survey], faults: Faults) -> None:
    """What training refuses because a model wrote it, and it would be scored on."""
    if not any(isinstance(sources, FromTrain) for sources in (config.data.valid, config.data.test)):
        return
    for one in surveys:
        if one.text.split == "train" and not is_synthetic(one.text.source):
            found = [line for line, (src, _) in one.sample if src.startswith(f"{BACK_TRANSLATION_TAG} ")]
            if found:
                said = f"{one.text.files[0]}:{found[0]}: data.train"
                faults.add("back-translated", Example("train", (), said), len(found))


def _findings(faults: Faults, tally: Tally, vocabulary: Vocabulary | None) -> list[Finding]:
    found = [
        Finding(kind, faults.counts[kind.name], {}, faults.examples.of(kind.name))
        for kind in TEXT_KINDS
        if kind.name in faults.counts
    ]
    for kind in PAIR_KINDS:
        counts, judged, examples = tally.counts[kind.name], tally.pairs, tally.examples.of(kind.name)
        if kind.name == "language":
            judged = tally.sampled
        if kind.name == RARE and vocabulary is not None:
            counts, judged, examples = vocabulary.counts, vocabulary.judged, vocabulary.examples.of(RARE)
        if any(counts.values()):
            found.append(Finding(kind, dict(counts), dict(judged), examples))
    return sorted(found, key=lambda finding: SERIOUSNESS.index(finding.kind.seriousness))
