"""Which lines of a split come from which source: it decides their target language, and how often training sees them."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Part:
    """Neighbouring pairs that come from one source, all into one language."""

    pairs: int
    target_lang: str


def as_json(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """What `read_parts` reads."""
    return [asdict(part) for part in parts]


def read_parts(counts: Path, split: str) -> list[Part]:
    """The parts of a split, in their order, from the counts that `prepare_text` wrote."""
    return [Part(**part) for part in json.loads(counts.read_bytes())["parts"][split]]


def languages(parts: Sequence[Part]) -> Iterator[str]:
    """The target language of each pair."""
    for part in parts:
        for _ in range(part.pairs):
            yield part.target_lang


@dataclass(frozen=True)
class Share:
    """Neighbouring sentences of a corpus, and how often an epoch has them: 2 is twice, 0.5 a half drawn by chance."""

    sentences: int
    times: float = 1.0


def training_shares(sentences: Sequence[int], weights: Sequence[float], temperature: float) -> tuple[Share, ...]:
    """How often an epoch has the sentences of each source.

    With a temperature T, source i of n_i sentences has a probability proportional to n_i^(1/T) (Arivazhagan et al.
    2019, arXiv:1907.05019); the largest is still read once, the others more often.

    Args:
        sentences: of each source, in their order.
        weights: each source's own factor.
        temperature: 1 leaves sizes as they are.
    """
    largest = max(sentences, default=0)
    return tuple(
        Share(number, weight * (largest / max(number, 1)) ** (1 - 1 / temperature))
        for number, weight in zip(sentences, weights, strict=True)
    )
