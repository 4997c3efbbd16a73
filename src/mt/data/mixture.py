"""Mixtures of training sources: the languages of each part, and how often an epoch repeats it."""

import json
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path


@dataclass
class MixturePart:
    """Consecutive pairs of a source, in one direction; `source_lang` is empty where the model has only one."""

    pairs: int
    target_lang: str
    source_lang: str = ""

    @property
    def direction(self) -> str:
        """The target language, or de-fr where there are several source languages."""
        return direction(self.source_lang, self.target_lang)


def direction(source_lang: str, target_lang: str) -> str:
    """Name a direction in tables and files: de-fr, or fr where the model has one source language."""
    return f"{source_lang}-{target_lang}" if source_lang else target_lang


def read_parts(counts: Path, split: str) -> list[MixturePart]:
    """Return the parts of a split in their order, from the counts that `prepare_text` wrote."""
    return [MixturePart(**part) for part in json.loads(counts.read_bytes())["parts"][split]]


def part_of_each(parts: Sequence[MixturePart]) -> Iterator[MixturePart]:
    """Return the part of each pair."""
    return chain.from_iterable(repeat(part, part.pairs) for part in parts)


@dataclass(frozen=True)
class Share:
    """Consecutive sentences of a corpus and their repeats per epoch: 2 is twice, 0.5 is a random half."""

    sentences: int
    repeats: float = 1.0


def training_shares(
    sentences: Sequence[int], weights: Sequence[float], temperature: float, pairs: Sequence[Hashable] = ()
) -> tuple[Share, ...]:
    """Return how often an epoch repeats each source.

    With a temperature T, source i of n_i sentences has a probability proportional to n_i^(1/T) (Arivazhagan et al.
    2019, arXiv:1907.05019); the largest source is still read once, the others more often. With several language
    pairs, n_i is the number of sentences of pair i, all of whose sources are repeated alike.

    Sentences, weights (factors of the repeats) and language pairs are those of each source, in corpus order.
    """
    groups = list(pairs) if len(set(pairs)) > 1 else list(range(len(sentences)))
    sizes = Counter[Hashable]()
    for group, number in zip(groups, sentences, strict=True):
        sizes[group] += number
    largest = max(sizes.values(), default=0)
    return tuple(
        Share(number, weight * (largest / max(sizes[group], 1)) ** (1 - 1 / temperature))
        for group, number, weight in zip(groups, sentences, weights, strict=True)
    )
