"""Corpus samples: one pass over the pairs of some sources, with counts and an even sample."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import Generic, TypeVar

from mt.config import DataConfig, HubDataset, Source, TokenizerConfig
from mt.console import log, progress
from mt.data.cleaning import reason_to_drop
from mt.data.corpus import Pair, read_pairs
from mt.data.tokenizer_kinds import TokenizerPair
from mt.errors import InputError
from mt.text.languages import BACK_TRANSLATION_TAG

T = TypeVar("T")

MAX_SAMPLE = 20_000  # pairs
_HUB_ROWS = 2_000  # of a hub data set, which may be a slow download


class EvenSample(Generic[T]):
    """Items at even distances from a stream of unknown length: at the limit, every other one is dropped."""

    def __init__(self, limit: int) -> None:
        self.items: list[T] = []
        self._limit, self._stride = limit, 1

    def add(self, index: int, item: T) -> None:
        """Take the item at an index of the stream if it belongs to the sample."""
        if index % self._stride == 0:
            self.items.append(item)
        if len(self.items) > self._limit:
            self.items = self.items[::2]
            self._stride *= 2


@dataclass(frozen=True)
class CorpusSample:
    """Counts and a sample of the pairs of some sources."""

    pairs: list[int]  # of each source, in their order
    clean_pairs: list[int]  # of each source, those that cleaning keeps, duplicates included
    back_translated: list[int]  # of each source, those with the tag of back-translations
    counts: dict[str, int]  # by what cleaning does with them
    sample: list[Pair]  # clean pairs at even distances
    complete: bool = True  # False if a hub data set was read in part

    @property
    def clean(self) -> int:
        """Return the number of pairs that cleaning keeps."""
        return sum(self.clean_pairs)

    def training_pairs(self, held_out: int, human: Sequence[int] | None = None) -> list[int]:
        """Estimate the pairs of each source that remain after `held_out` are taken from `human`, by default all."""
        human = self.clean_pairs if human is None else human
        share = min(1.0, held_out / max(sum(human), 1))
        return [pairs - round(human_pairs * share) for pairs, human_pairs in zip(self.clean_pairs, human, strict=True)]

    def words(self) -> tuple[float, float]:
        """Return the mean number of words of a source and of a target sentence."""
        source, target = (sum(len(pair[side].split()) for pair in self.sample) for side in (0, 1))
        return source / max(len(self.sample), 1), target / max(len(self.sample), 1)

    def bytes_per_pair(self) -> float:
        """Return the mean bytes of a pair, line ends included."""
        return sum(len(text.encode()) + 1 for text in chain(*self.sample)) / max(len(self.sample), 1)

    def bytes_per_source(self) -> float:
        """Return the mean bytes of a source sentence, line ends included."""
        return sum(len(source.encode()) + 1 for source, _ in self.sample) / max(len(self.sample), 1)

    @cached_property
    def letters(self) -> tuple[Counter[str], Counter[str]]:
        """The letters of each side of the sample, counted."""
        source, target = (Counter(filter(str.isalpha, chain(*(pair[side] for pair in self.sample)))) for side in (0, 1))
        return source, target


def sample_corpus(sources: Sequence[Source], data: DataConfig) -> CorpusSample:
    """Read all pairs of some sources as training does, but only the first rows of a hub data set.

    Raises:
        InputError: a source is missing, damaged, or its two sides have different numbers of lines.
    """
    counts, sample = Counter[str](), EvenSample[Pair](MAX_SAMPLE)
    pairs, clean, tagged, complete = [0] * len(sources), [0] * len(sources), [0] * len(sources), True
    for number, source in enumerate(sources):
        for pair in _pairs(source, data):
            pairs[number] += 1
            tagged[number] += pair[0].startswith(f"{BACK_TRANSLATION_TAG} ")
            if reason := reason_to_drop(*pair, data.max_ratio):
                counts[reason] += 1
            else:
                sample.add(counts["kept"], pair)
                counts["kept"] += 1
                clean[number] += 1
        complete = complete and not (isinstance(source, HubDataset) and pairs[number] == _HUB_ROWS)
    return CorpusSample(pairs, clean, tagged, dict(counts), sample.items, complete)


def _pairs(source: Source, data: DataConfig) -> Iterable[Pair]:
    """Return all pairs, or the first of a hub data set, streamed if possible instead of downloading all of it."""
    if not isinstance(source, HubDataset):
        return progress(iterable=read_pairs(source, data), unit="pair", desc="reading", unit_scale=True)
    streamed = source.model_copy(update={"streaming": True})
    try:
        return list(islice(read_pairs(streamed, data), _HUB_ROWS))
    except InputError as error:
        log.info("%s; trying the cache", error.message)
        return list(islice(read_pairs(source, data), _HUB_ROWS))


def train_on_sample(settings: TokenizerConfig, sample: Sequence[Pair], tags: Sequence[str] = ()) -> TokenizerPair:
    """Train tokenizers on a sample, which is fast; they are close to those of the full text."""
    log.info("training a tokenizer of %d pieces on %d pairs", settings.vocab_size, len(sample))
    source, target = ([pair[side] for pair in sample] for side in (0, 1))
    return TokenizerPair.train(source, target, settings.vocab_size, settings.shared, tags, settings.type)


def sample_held_out(split: str, data: DataConfig) -> CorpusSample | None:
    """Sample the validation or test set; None if it has no sources of its own.

    Raises:
        InputError: it is empty, or cannot be read.
    """
    sources = getattr(data, split)
    if not isinstance(sources, tuple):
        return None
    sample = sample_corpus(sources, data)
    if sum(sample.pairs) == 0:
        raise InputError(f"data.{split}: no sentence pair in it", "check the files")
    return sample
