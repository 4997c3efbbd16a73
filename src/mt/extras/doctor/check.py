"""Corpus checks: both passes over the texts of a configuration, and their findings."""

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path

import numpy as np

from mt.config import Config, FromTrain
from mt.console import log, progress
from mt.errors import InputError
from mt.extras.doctor.bitexts import RawPair, bitexts_of, read_bitext
from mt.extras.doctor.block_checks import PositionMap, check_blocks, with_blocks, workers_for
from mt.extras.doctor.coverage import Coverage, measure_coverage
from mt.extras.doctor.findings import SPLITS, Chunk, Criteria, Example, Findings, Masks, bits
from mt.extras.doctor.overlaps import HeldOutIndex, RepetitionFinder, add_repetitions
from mt.extras.doctor.pair_checks import check_chunk
from mt.extras.doctor.pair_scores import PairScores
from mt.extras.doctor.rules import BIT, DROPPED_BY_TRAINING, ERROR, PAIR_RULES, SEVERITIES, TEXT_RULES, FindingRule
from mt.extras.doctor.statistics import BitextStatistics, collect_statistics, criteria_by_direction, load_tokenizers
from mt.extras.planning.corpus_sample import MAX_SAMPLE
from mt.system.workers import in_order

_CHUNK_PAIRS, _CHUNK_CHARACTERS = 10_000, 2**22  # of a chunk, at most


@dataclass(frozen=True)
class Finding:
    """A broken rule."""

    rule: FindingRule
    counts: Counter[str]  # pairs by split; for a text rule, lines or files
    checked: Counter[str]  # pairs by split
    repairable: int  # training pairs that a repair would fix
    examples: list[Example]
    first: Example | None = None  # even if no examples are wanted


@dataclass(frozen=True)
class CorpusReport:
    """The result of a corpus check."""

    config: Config
    statistics: list[BitextStatistics]  # in the order test, valid, train
    findings: list[Finding]  # the most severe first
    coverage: Coverage | None  # None without training text
    masks: Masks  # of the training pairs
    maps: list[PositionMap]  # of each training text
    scores: PairScores | None  # of every training pair

    @property
    def pairs(self) -> dict[str, int]:
        return {split: sum(stats.pairs for stats in self.statistics if stats.bitext.split == split) for split in SPLITS}

    @property
    def training(self) -> list[BitextStatistics]:
        """Return the statistics of each training text."""
        return [stats for stats in self.statistics if stats.bitext.split == "train"]

    @property
    def refused(self) -> bool:
        """Report whether training would refuse the corpus."""
        return any(finding.rule.severity == ERROR for finding in self.findings)


def check_corpus(
    config: Config,
    runs: Path,
    max_examples: int,
    dropped_for: frozenset[str] = frozenset(),
    repair: bool = False,
    scores: PairScores | None = None,
    max_per_template: int = 0,
) -> CorpusReport:
    """Check the texts of a configuration.

    Args:
        runs: folder of the runs; one of the same name may have a tokenizer.
        max_examples: examples shown of each finding.
        dropped_for: rules by which cleaning drops pairs; repetitions are looked for among the others.
        repair: check the training text as it is after its repair.
        scores: of the training pairs; of near duplicates, and of several sources of one target, the pair with the best
            score is not reported.
        max_per_template: pairs of each template that are not reported.
    """
    findings = Findings(max(1, max_examples))
    bitexts = [with_blocks(bitext) if bitext.repair else bitext for bitext in bitexts_of(config.data, repair)]
    log.info("reading the corpus")
    sources = Counter(bitext.split for bitext in bitexts)
    statistics = [collect_statistics(b, findings, max(MAX_SAMPLE // sources[b.split], 100)) for b in bitexts]
    with (
        tempfile.TemporaryDirectory(prefix="mt-check-") as folder,
        closing(RepetitionFinder(Path(folder), dropped_for, max_per_template)) as finder,
    ):
        tokenizers = load_tokenizers(config, runs, statistics)
        files = tokenizers and tokenizers[1].write(Path(folder))  # for the worker processes
        criteria = criteria_by_direction(config, statistics, files)
        coverage = tokenizers and measure_coverage(*tokenizers, statistics, findings)
        masks, maps = check_blocks(statistics, findings)
        _check_pairs(statistics, criteria, findings, finder, masks, scores)
        add_repetitions(statistics, findings, finder, masks["train"], scores)
    _check_usable(config, statistics, masks["train"], findings)
    collected = _collect(findings, masks, max_examples)
    return CorpusReport(config, statistics, collected, coverage, masks["train"], maps, scores)


def _check_pairs(
    statistics: Sequence[BitextStatistics],
    criteria: dict[str, Criteria],
    findings: Findings,
    finder: RepetitionFinder,
    masks: dict[str, Masks],
    scores: PairScores | None,
) -> None:
    """Read the bitexts again, and add to `findings`, `finder` and the rule bits of each split's pairs (N,), `masks`.

    The criteria are by direction. Raises InputError if the scores are not of all training pairs.
    """
    total, read = sum(map(len, masks.values())), Counter[str]()
    held_out = {"test": HeldOutIndex(), "valid": HeldOutIndex()}
    chunks = _chunks(statistics, criteria, findings.max_examples)
    with progress(total=total, unit="pair", desc="checking", unit_scale=True) as bar:
        for chunk, result in in_order(check_chunk, chunks, workers_for(total)):
            mask = masks[chunk.split][chunk.offset : chunk.offset + len(chunk.pairs)]
            read[chunk.split] += len(chunk.pairs)
            if read[chunk.split] > len(masks[chunk.split]):
                raise _changed(chunk.split)
            result.masks |= mask
            for split, index in held_out.items():
                if split == chunk.split:
                    index.add(chunk, result)
                    for swapped in _swapped(chunk, criteria):
                        index.add(swapped, check_chunk(swapped))
                    break  # the index of a later split is still empty
                index.find_leaks(chunk, result)
            if chunk.split == "train":
                if scores is not None:
                    scores.mark(chunk, result)
                finder.add(chunk, result)
                findings.repairable.update(result.findings.repairable)
            for (rule, _), examples in result.findings.examples.items():
                findings.show(rule, *examples)
            mask |= result.masks
            bar.update(len(chunk.pairs))
    for split in masks:
        if read[split] < len(masks[split]):
            raise _changed(split)
    if scores is not None and len(scores.values) != (pairs := len(masks["train"])):
        raise InputError(f"{len(scores.values):,} scores of {pairs:,} training pairs", "score this text again")


def _changed(split: str) -> InputError:
    return InputError(f"data.{split}: the text changed while it was read", "run the command again")


def _swapped(chunk: Chunk, criteria: dict[str, Criteria]) -> Iterator[Chunk]:
    """Yield a chunk with the sides of its pairs swapped, if the corpus has that direction, too."""
    languages = chunk.criteria.languages
    for reverse in criteria.values():
        if reverse.languages == languages[::-1] != languages:
            yield replace(chunk, pairs=[pair[::-1] for pair in chunk.pairs], max_examples=0, criteria=reverse)


def _chunks(
    statistics: Sequence[BitextStatistics], criteria: dict[str, Criteria], max_examples: int
) -> Iterator[Chunk]:
    offset = Counter[str]()
    for stats in statistics:
        bitext, split = stats.bitext, stats.bitext.split
        for files, reader in groupby(read_bitext(bitext), key=attrgetter("files")):
            while pairs := _take_chunk(reader):
                yield Chunk(
                    split=split,
                    files=files,
                    offset=offset[split],
                    lines=[pair.line for pair in pairs],
                    pairs=[(pair.source, pair.target) for pair in pairs],
                    encoding_errors={index: pair.error for index, pair in enumerate(pairs) if pair.error},
                    max_examples=max_examples,
                    criteria=criteria[bitext.direction],
                )
                offset[split] += len(pairs)


def _take_chunk(reader: Iterator[RawPair]) -> list[RawPair]:
    pairs, characters = list[RawPair](), 0
    for pair in reader:
        pairs.append(pair)
        characters += len(pair.source) + len(pair.target)
        if len(pairs) == _CHUNK_PAIRS or characters > _CHUNK_CHARACTERS:
            break
    return pairs


def _check_usable(config: Config, statistics: Sequence[BitextStatistics], masks: Masks, findings: Findings) -> None:
    """Add an error for each split that would have no pair."""
    usable = (masks & bits(*DROPPED_BY_TRAINING, "encoding")) == 0
    held_out = {"valid": config.data.valid, "test": config.data.test}
    n_split_off = sum(isinstance(sources, FromTrain) for sources in held_out.values())
    training = [stats for stats in statistics if stats.bitext.split == "train"]
    by_text = np.split(usable, np.cumsum([stats.pairs for stats in training])[:-1])
    trainable = {stats.bitext.direction for stats, mask in zip(training, by_text, strict=True) if mask.any()}
    if not trainable:
        problems = [("train", "no pair that training would take")]
    elif len(set[str]().union(*(stats.sources for stats in training))) <= n_split_off:
        problems = [("train", "perhaps no pair is left when those for validation and test are split off")]
    else:
        unused = sorted({stats.bitext.direction for stats in training} - trainable)
        word = "of" if len(config.data.source_lang) > 1 else "into"
        problems = [("train", f"no pair {word} {name} that training would take") for name in unused]
    for split, sources in held_out.items():
        if isinstance(sources, tuple) and not any(stats.pairs for stats in statistics if stats.bitext.split == split):
            problems.append((split, "no sentence pair in it"))
    for split, message in problems:
        findings.add("no-pairs", Example(split, (), f"data.{split}: {message}"))


def _collect(findings: Findings, masks: dict[str, Masks], max_examples: int) -> list[Finding]:
    """Return the findings; `masks` are the rule bits of the pairs of each split (N,)."""
    pairs = Counter({split: len(mask) for split, mask in masks.items() if len(mask)})
    for split, mask in masks.items():
        for name in BIT:
            findings.counts[name][split] += int(np.count_nonzero(mask & bits(name)))
    collected = []
    for rule in (*TEXT_RULES, *PAIR_RULES):
        counts = findings.counts[rule.name]
        if any(counts.values()):
            checked = Counter[str]() if rule in TEXT_RULES else findings.checked.get(rule.name, pairs)
            examples, repairable = findings.examples_of(rule.name), findings.repairable[rule.name]
            shown, first = examples if max_examples else [], next(iter(examples), None)
            collected.append(Finding(rule, counts, checked, repairable, shown, first))
    return sorted(collected, key=lambda finding: SEVERITIES.index(finding.rule.severity))
