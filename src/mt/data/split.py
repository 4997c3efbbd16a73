"""Validation and test pairs that are split off the training text."""

from array import array
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import islice
from math import ceil

import numpy as np
from numpy.typing import NDArray

from mt.config import DataConfig, FromTrain, is_synthetic
from mt.console import log
from mt.data.corpus import read_pairs
from mt.text.languages import BACK_TRANSLATION_TAG
from mt.text.lines import nfc

MAX_HELD_OUT = 0.1  # the largest share of the training text in a held-out set
_AT_ONCE = 2**20  # hashes


class Split:
    """The assignment of training pairs to validation and test sets, where the configuration asks for it.

    The held-out source sentences are those with the smallest hashes, a pure function of the seed and the sentences. All
    pairs with a held-out source leave the training text; the first one in each direction is evaluated on. Synthetic
    pairs are never evaluated on, and leave the training text if either side is held out: back-translation has human
    sentences as targets. So do all pairs where there are several source languages: a sentence may be a source in one
    direction and a target in another. For the same reason, no pair is validated on whose reverse is tested on.
    """

    def __init__(self, data: DataConfig, seed: int) -> None:
        self._seed = seed
        self._split_of_hash: dict[int, str] = {}
        self._assigned: set[tuple[int, str]] = set()
        self._held_out_targets: set[int] = set()
        self._both_sides = len(data.source_lang) > 1
        sizes = {s: v.from_train for s, v in (("test", data.test), ("valid", data.valid)) if isinstance(v, FromTrain)}
        if not sizes:
            return
        hashes = (self._hash(src) for src, _ in _human_pairs(data))
        # Enough to see whether the largest set is at most MAX_HELD_OUT of the text; a smaller text is counted exactly.
        smallest = _smallest(hashes, ceil(max(sizes.values()) / MAX_HELD_OUT) + 1)
        limit = max(1, int(len(smallest) * MAX_HELD_OUT))
        candidates: list[int] = smallest.tolist()
        translations = self._translations(data, candidates) if self._both_sides else {}
        linked: set[int] = set()  # sentences that translate one of an earlier split, or are translated by one
        unused = iter(candidates)
        for split, number in sizes.items():
            if number > limit:
                log.warning("data.%s: from_train lowered from %d to %d, a tenth of the text", split, number, limit)
            chosen = set(islice((key for key in unused if key not in linked), min(number, limit)))
            self._split_of_hash.update(dict.fromkeys(chosen, split))
            linked |= {key for key, targets in translations.items() if not targets.isdisjoint(chosen)}
            linked |= {target for key in chosen for target in translations.get(key, ())}
        if not self._both_sides and any(map(is_synthetic, data.train)):
            translations = self._translations(data, self._split_of_hash)
        self._held_out_targets = {target for key in self._split_of_hash for target in translations.get(key, ())}
        if self._both_sides:
            self._held_out_targets |= self._split_of_hash.keys()

    def __bool__(self) -> bool:
        """Return True if any pair is held out."""
        return bool(self._split_of_hash)

    def _hash(self, sentence: str) -> int:
        return int.from_bytes(blake2b(f"{self._seed}\n{nfc(sentence)}".encode(), digest_size=8).digest(), "little")

    def _translations(self, data: DataConfig, keys: Iterable[int]) -> dict[int, set[int]]:
        """Return the hashes of the targets of each of these source sentences."""
        targets: dict[int, set[int]] = {key: set() for key in keys}
        for src, tgt in _human_pairs(data):
            if (key := self._hash(src)) in targets:
                targets[key].add(self._hash(tgt))
        return targets

    def holds_out(self, src: str, tgt: str, synthetic: bool = False) -> bool:
        """Return True if a pair must leave the training text."""
        if not self._split_of_hash or not src or not tgt:
            return False
        if synthetic:
            src = src.removeprefix(f"{BACK_TRANSLATION_TAG} ")
        if self._both_sides:
            return not self._held_out_targets.isdisjoint((self._hash(src), self._hash(tgt)))
        return self._hash(src) in self._split_of_hash or (synthetic and self._hash(tgt) in self._held_out_targets)

    def assign(self, src: str, direction: str) -> str | None:
        """Return the split of a held-out sentence on its first call for a direction, None on later ones."""
        key = self._hash(src)
        if (key, direction) in self._assigned:
            return None
        self._assigned.add((key, direction))
        return self._split_of_hash.get(key)


def _human_pairs(data: DataConfig) -> Iterator[tuple[str, str]]:
    for source in data.train:
        if not is_synthetic(source):
            yield from filter(all, read_pairs(source, data))


def _smallest(hashes: Iterator[int], number: int) -> NDArray[np.uint64]:
    """Return the smallest distinct hashes in ascending order."""
    smallest = np.empty(0, np.uint64)
    while chunk := array("Q", islice(hashes, _AT_ONCE)):
        smallest = np.unique(np.concatenate([smallest, np.asarray(chunk)]))[:number]
    return smallest
