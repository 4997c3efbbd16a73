"""Mixtures of training sources: the language of each part, and how often an epoch repeats it."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class MixturePart:
    """Consecutive sentence pairs from one source, all in one target language."""

    pairs: int
    target_lang: str


def read_parts(counts: Path, split: str) -> list[MixturePart]:
    """Return the parts of a split in their order, from the counts that `prepare_text` wrote."""
    return [MixturePart(**part) for part in json.loads(counts.read_bytes())["parts"][split]]


def target_languages(parts: Sequence[MixturePart]) -> Iterator[str]:
    """Yield the target language of each pair."""
    for part in parts:
        for _ in range(part.pairs):
            yield part.target_lang


@dataclass(frozen=True)
class Share:
    """Consecutive sentences of a corpus and their repeats per epoch: 2 is twice, 0.5 is a random half."""

    sentences: int
    repeats: float = 1.0


def training_shares(sentences: Sequence[int], weights: Sequence[float], temperature: float) -> tuple[Share, ...]:
    """Return how often an epoch repeats each source.

    With a temperature T, source i of n_i sentences has a probability proportional to n_i^(1/T) (Arivazhagan et al.
    2019, arXiv:1907.05019); the largest source is still read once, the others more often.

    Args:
        sentences: number of each source, in corpus order.
        weights: factor of each source.
        temperature: 1 leaves the sizes as they are.
    """
    largest = max(sentences, default=0)
    return tuple(
        Share(number, weight * (largest / max(number, 1)) ** (1 - 1 / temperature))
        for number, weight in zip(sentences, weights, strict=True)
    )
