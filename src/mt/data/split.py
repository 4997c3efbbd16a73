"""Which sentences are split off the training text for validation and test, where a configuration asks for it."""

from array import array
from collections.abc import Iterator
from hashlib import blake2b
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mt.config import DataConfig, FromTrain, Source, is_synthetic
from mt.console import log
from mt.data.corpus import read_pairs
from mt.data.duplicates import Duplicates
from mt.text.languages import BACK_TRANSLATION_TAG
from mt.text.lines import nfc

# A held-out set never takes more than this part of the training text.
MAX_HELD_OUT = 0.1

_HASHES_AT_ONCE = 2**20


class HeldOut:
    """Splits validation and test pairs off the training text, where the configuration asks for it.

    The choice is a pure function of the seed and the source sentences: those with the smallest hashes. All pairs that
    share a source sentence leave the training text with it, and the first of them in each target language is held out.
    Of synthetic text nothing is held out, and pairs that share either side with what is leave the training text, too:
    what was translated back has the sentences of people as targets.
    """

    def __init__(self, data: DataConfig, seed: int, folder: Path) -> None:
        self._seed = seed
        self._split_of_hash: dict[int, str] = {}
        self._taken: set[tuple[int, str]] = set()
        self._held_targets: set[int] = set()
        wanted = {s: v.from_train for s, v in (("test", data.test), ("valid", data.valid)) if isinstance(v, FromTrain)}
        if not wanted:
            return
        values, distinct = _smallest(self._hashes(data), sum(wanted.values()), folder)
        limit = max(1, int(distinct * MAX_HELD_OUT))
        start = 0
        for split, number in wanted.items():
            if number > limit:
                log.warning("data.%s: from_train lowered from %d to %d, a tenth of the text", split, number, limit)
            end = start + min(number, limit)
            self._split_of_hash.update(dict.fromkeys(values[start:end].tolist(), split))
            start = end
        if any(map(is_synthetic, data.train)):
            self._held_targets = {self._hash(tgt) for src, tgt in _written_by_people(data) if self.has(src, tgt)}

    def __bool__(self) -> bool:
        """True if anything is held out."""
        return bool(self._split_of_hash)

    def _hashes(self, data: DataConfig) -> Iterator[int]:
        for src, tgt in _written_by_people(data):
            if src and tgt:
                yield self._hash(src)

    def _hash(self, sentence: str) -> int:
        return int.from_bytes(blake2b(f"{self._seed}\n{nfc(sentence)}".encode(), digest_size=8).digest(), "little")

    def has(self, src: str, tgt: str, synthetic: bool = False) -> bool:
        """True if a training pair's source sentence is held out; of a synthetic pair also if its target is."""
        if not self._split_of_hash or not src or not tgt:
            return False
        if synthetic:
            src = src.removeprefix(f"{BACK_TRANSLATION_TAG} ")
        return self._hash(src) in self._split_of_hash or (synthetic and self._hash(tgt) in self._held_targets)

    def take(self, src: str, target_lang: str) -> str | None:
        """The split of a held-out sentence at its first call with a language, None at later ones."""
        key = self._hash(src)
        if (key, target_lang) in self._taken:
            return None
        self._taken.add((key, target_lang))
        return self._split_of_hash[key]


def _written_by_people(data: DataConfig) -> Iterator[tuple[str, str]]:
    sources: list[Source] = [source for source in data.train if not is_synthetic(source)]
    for source in sources:
        yield from read_pairs(source, data)


def _smallest(hashes: Iterator[int], number: int, folder: Path) -> tuple[NDArray[np.uint64], int]:
    """The smallest of distinct hashes, in ascending order, and how many distinct ones there are."""
    smallest = np.empty(0, dtype=np.uint64)
    total = 0
    with Duplicates(folder) as duplicates:
        while chunk := array("Q", islice(hashes, _HASHES_AT_ONCE)):
            for value in chunk:
                duplicates.add(value)
            total += len(chunk)
            smallest = np.unique(np.concatenate([smallest, np.frombuffer(chunk, np.uint64)]))[:number]
        return smallest, total - duplicates.later().count
