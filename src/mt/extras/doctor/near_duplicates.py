"""Near duplicates in the training text: pairs whose sides have the same letters, or the same words but for one.

Each target is stored by the hash of its letters, of its words, and of its words without the first, the second, ...
Two targets that differ in one word share one of these (deletion neighbourhoods; Mor and Fraenkel 1982).
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mt.data.duplicates import HashPartitions
from mt.extras.doctor.chunks import ChunkResult
from mt.extras.doctor.word_hashes import Hashes, mixed

_MIN_WORDS, _MAX_WORDS = 9, 100  # of a target that is compared without one word: one of nine may differ
_MAX_KEPT = 8  # pairs kept of a group that a later pair is compared with

_RECORD = np.dtype([("hash", np.uint64), ("index", np.uint32)])
# Of the source the number of words, and a bit for those that occur an odd number of times; hashes of letters, or 0.
_SKETCH = np.dtype([("bits", np.uint64), ("source", np.uint32), ("target", np.uint32), ("words", np.uint16)])


class NearDuplicateFinder:
    """Near duplicates; in memory are 18 bytes for each training pair, the rest in files in `folder` until `close`."""

    def __init__(self, folder: Path) -> None:
        self._records = HashPartitions(folder, _RECORD)
        self._sketches = [np.zeros(0, _SKETCH)]

    def close(self) -> None:
        self._records.close()

    def add(self, result: ChunkResult, usable: NDArray[np.bool_], offset: int) -> None:
        """Add the pairs of a chunk, after `offset` others; those of the mask `usable` (N,) are compared."""
        source, target = result.words
        bits = np.bitwise_xor.accumulate(np.concatenate([[0], 1 << (source.hashes & np.uint64(63))]), dtype=np.uint64)
        ends = np.cumsum(source.counts)
        sketches = np.zeros(len(usable), _SKETCH)
        sketches["bits"] = bits[ends] ^ bits[ends - source.counts]
        sketches["source"], sketches["target"] = result.hashes["src_letters"], result.hashes["tgt_letters"]
        sketches["words"] = np.minimum(source.counts, 2**16 - 1)
        self._sketches.append(sketches)

        letters, sums, counts = result.hashes["tgt_letters"], target.sums(target.hashes), target.counts
        shortened = np.repeat(usable & (counts >= _MIN_WORDS) & (counts <= _MAX_WORDS), counts)
        sentences = target.sentences[shortened]
        whole = np.flatnonzero(usable & (letters > 0)), np.flatnonzero(usable & (counts >= _MIN_WORDS - 1))
        # The lowest bit tells letters from words.
        self._add(letters[whole[0]] | np.uint64(1), whole[0] + offset)
        self._add(mixed(sums[whole[1]]) & ~np.uint64(1), whole[1] + offset)
        self._add(mixed(sums[sentences] - target.hashes[shortened]) & ~np.uint64(1), sentences + offset)

    def _add(self, hashes: Hashes, indices: NDArray[np.int64]) -> None:
        records = np.empty(len(hashes), _RECORD)
        records["hash"], records["index"] = hashes, indices
        self._records.add(records)

    def find(self, rank: NDArray[np.int64], left_out: NDArray[np.bool_], any_source: bool) -> Iterator[tuple[int, int]]:
        """Yield for each near duplicate a pair that stays and is a near copy of it, and the duplicate.

        Args:
            rank: of all training pairs (N,); of near copies the first stays.
            left_out: pairs that are not compared (N,).
            any_source: targets alone decide.
        """
        sketches = np.concatenate(self._sketches)
        pairs, groups = self._groups(sketches["target"], left_out)
        order = np.lexsort((groups, rank[pairs]))
        pairs, groups = pairs[order], groups[order].tolist()
        ends = np.flatnonzero(np.diff(pairs, append=-1)) + 1
        kept: dict[int, list[tuple[int, int, int, int]]] = {}
        start = 0
        for end, pair in zip(ends.tolist(), pairs[ends - 1].tolist(), strict=True):
            own, start = groups[start:end], end
            bits, source, _, words = sketches[pair].tolist()
            for first, other_bits, other_source, other_words in (each for group in own for each in kept.get(group, ())):
                # With D words on one side only, the Jaccard index of the words is at least 0.8 up to a ninth of them.
                differing = (bits ^ other_bits).bit_count()
                same = source == other_source > 0 or 9 * differing <= words + other_words
                if any_source or same:
                    yield first, pair
                    break
            else:
                for group in own:
                    if len(others := kept.setdefault(group, [])) < _MAX_KEPT:
                        others.append((pair, bits, source, words))

    def _groups(self, targets: NDArray[np.uint32], left_out: NDArray[np.bool_]) -> tuple[NDArray[np.int64], ...]:
        """Return pairs and the group of each, for groups of several; a pair can be in several."""
        found, n_groups = [np.zeros((2, 0), np.int64)], 0
        for records in self._records:
            records = records[~left_out[records["index"]]]
            order = np.argsort(records["hash"], kind="stable")
            hashes, pairs = records["hash"][order], records["index"][order].astype(np.int64)
            starts = np.flatnonzero(np.diff(hashes, prepend=hashes[:1] + np.uint64(1)))
            sizes = np.diff(starts, append=len(hashes))
            # Of equal targets, the group of their letters is enough.
            differ = np.zeros(len(sizes), bool)
            if len(sizes):
                own = targets[pairs]
                differ = np.maximum.reduceat(own, starts) > np.minimum.reduceat(own, starts)
            chosen = (sizes > 1) & (differ | (hashes[starts] & np.uint64(1) > 0))
            members = np.repeat(chosen, sizes)
            groups = np.repeat(np.cumsum(chosen) - 1, sizes)[members] + n_groups
            found.append(np.stack([pairs[members], groups]))
            n_groups += int(chosen.sum())
        pairs, groups = np.concatenate(found, axis=1)
        return pairs, groups
