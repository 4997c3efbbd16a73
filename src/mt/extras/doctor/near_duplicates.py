"""Near duplicates in the training text: pairs whose sides have the same letters, or the same words but for one.

Each target is stored by the hash of its letters, of its words, and of its words without the first, the second, ...
Two targets that differ in one word share one of these (deletion neighbourhoods; Mor and Fraenkel 1982).
"""

from collections.abc import Iterator
from hashlib import blake2b
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mt.data.duplicates import HashPartitions
from mt.data.shuffle import mixed
from mt.extras.doctor.findings import ChunkResult

_MIN_WORDS, _MAX_WORDS = 9, 250  # of a target that is compared without one word: one of nine may differ
_MAX_KEPT = 8  # pairs kept of a group that a later pair is compared with

_RECORD = np.dtype([("hash", np.uint64), ("index", np.uint32)])
# Of the source two bits for each word that occurs an odd number of times, and the number of words; a target hash.
_SKETCH = np.dtype([("bits", np.uint64, 2), ("target", np.uint32), ("words", np.uint16)])


class NearDuplicateFinder:
    """Near duplicates; in memory are 22 bytes for each training pair, the rest in files in `folder` until `close`."""

    def __init__(self, folder: Path) -> None:
        self._records = HashPartitions(folder, _RECORD)
        self._sketches = [np.zeros(0, _SKETCH)]

    def close(self) -> None:
        self._records.close()

    def add(self, result: ChunkResult, usable: NDArray[np.bool_], offset: int, direction: str) -> None:
        """Add the pairs of a chunk, after `offset` others.

        Those of the mask `usable` (N,) are compared with others of the same direction.
        """
        source, target = result.words
        bits = np.zeros((len(source.hashes) + 1, 2), np.uint64)
        bits[1:] = np.uint64(1) << (source.hashes[:, None] >> np.array([0, 6], np.uint64) & np.uint64(63))
        np.bitwise_xor.accumulate(bits, axis=0, out=bits)
        ends = np.cumsum(source.counts)
        sketches = np.zeros(len(usable), _SKETCH)
        sketches["bits"] = bits[ends] ^ bits[ends - source.counts]
        sketches["target"], sketches["words"] = result.hashes["tgt_letters"], np.minimum(source.counts, 2**16 - 1)
        self._sketches.append(sketches)

        # The letters are hashed by direction, the words by target language only.
        key = np.frombuffer(blake2b(direction.encode(), digest_size=8).digest(), np.uint64)
        letters, sums, counts = result.hashes["tgt_letters"], target.sums(target.hashes) + key, target.counts
        shortened = np.repeat(usable & (counts >= _MIN_WORDS) & (counts <= _MAX_WORDS), counts)
        sentences = target.sentences[shortened]
        # The lowest bit tells letters from words.
        by_letters, by_words = (np.flatnonzero(usable & mask) for mask in (letters > 0, counts >= _MIN_WORDS - 1))
        self._records.add(letters[by_letters] | np.uint64(1), by_letters + offset)
        self._records.add(mixed(sums[by_words]) & ~np.uint64(1), by_words + offset)
        self._records.add(mixed(sums[sentences] - target.hashes[shortened]) & ~np.uint64(1), sentences + offset)

    def find(self, rank: NDArray[np.int64], left_out: NDArray[np.bool_], any_source: bool) -> Iterator[tuple[int, int]]:
        """Yield two indices for each near duplicate: of a pair that stays and is a near copy of it, and its own.

        Of near copies the one of the lowest `rank` (N,) stays. Those of the mask `left_out` (N,) are not compared. With
        `any_source`, targets alone decide.
        """
        sketches = np.concatenate(self._sketches)
        self._sketches = [sketches]
        pairs, groups = self._groups(sketches["target"], left_out)
        order = np.lexsort((groups, rank[pairs]))
        ordered = zip(pairs[order].tolist(), groups[order].tolist(), strict=True)
        kept: dict[int, list[tuple[int, int, int]]] = {}
        for pair, members in groupby(ordered, key=itemgetter(0)):
            of_pair = [group for _, group in members]
            bits, words = int.from_bytes(sketches["bits"][pair].tobytes(), "big"), int(sketches["words"][pair])
            for first, other_bits, other_words in chain.from_iterable(kept.get(group, ()) for group in of_pair):
                # A Jaccard index of 0.8: of all words of both, one of nine is on one side only. Each has two bits.
                if any_source or 9 * (bits ^ other_bits).bit_count() <= 2 * (words + other_words):
                    yield first, pair
                    break
            else:
                for group in of_pair:
                    if len(others := kept.setdefault(group, [])) < _MAX_KEPT:
                        others.append((pair, bits, words))

    def _groups(self, targets: NDArray[np.uint32], left_out: NDArray[np.bool_]) -> tuple[NDArray[np.int64], ...]:
        """Return pairs and the group of each, for groups of several; a pair can be in several."""
        found, n_groups = [np.zeros((2, 0), np.int64)], 0
        for records in self._records:
            records = records[~left_out[records["index"]]]
            order = np.argsort(records["hash"], kind="stable")
            hashes, pairs = records["hash"][order], records["index"][order].astype(np.int64)
            if not len(hashes):
                continue
            starts = np.flatnonzero(np.diff(hashes, prepend=~hashes[0]))
            sizes = np.diff(starts, append=len(hashes))
            # Of equal targets, the group of their letters is enough.
            lowest, highest = (function.reduceat(targets[pairs], starts) for function in (np.minimum, np.maximum))
            chosen = (sizes > 1) & ((lowest < highest) | (hashes[starts] & np.uint64(1) > 0))
            members = np.repeat(chosen, sizes)
            groups = np.repeat(np.cumsum(chosen) - 1, sizes)[members] + n_groups
            found.append(np.stack([pairs[members], groups]))
            n_groups += int(chosen.sum())
        pairs, groups = np.concatenate(found, axis=1)
        return pairs, groups
