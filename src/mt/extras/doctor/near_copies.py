"""Near copies of held-out pairs, and near duplicates in the training text.

Two pairs are near copies if the Jaccard index of their sets of words, of both sides together, is at least 0.8: about
one word of ten may differ. Such sets share three of the few rarest words of either (prefix filtering; Chaudhuri et al.
2006), so that few pairs are compared.

Near duplicates have the same letters on both sides, or the same words but for one. Each target is stored by the hash of
its letters, of its words, and of its words without the first, the second, ... Two targets that differ in one word share
one of these (deletion neighbourhoods; Mor and Fraenkel 1982).

N pairs looked up   H pairs held out   V distinct words of these
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mt.data.duplicates import HashPartitions
from mt.data.ragged import Array, distinct, positions_in, ranges
from mt.data.shuffle import mixed
from mt.extras.doctor.findings import ChunkResult
from mt.extras.doctor.word_hashes import Hashes, Words

_MIN_WORDS = 14  # of a pair that is compared with held-out ones
_SHARED = 3  # of the rarest words
_MAX_FREQUENCY = 200  # held-out pairs with a word that makes pairs candidates
_FILTER = 2**20  # bits of a filter for words that are in no held-out pair

_MIN_TARGET, _MAX_TARGET = 9, 250  # words of a target that is compared without one of them: one of nine may differ
_MAX_KEPT = 8  # pairs kept of a group that a later pair is compared with

_RECORD = np.dtype([("hash", np.uint64), ("index", np.uint32)])
# Of the source two bits for each word that occurs an odd number of times, and the number of words; a target hash.
_SKETCH = np.dtype([("bits", np.uint64, 2), ("target", np.uint32), ("words", np.uint16)])


class NearCopyIndex:
    """The words of held-out pairs, numbered from the rarest on; it takes some 500 bytes a pair."""

    def __init__(self, chunks: Sequence[tuple[Words, Words]]) -> None:
        self._size, parts = 0, [(np.zeros(0, np.int64), np.zeros(0, np.uint64))]
        for chunk in chunks:
            pairs, hashes = _joined(chunk)
            parts.append((pairs + self._size, hashes))
            self._size += len(chunk[0].counts)
        pairs, hashes = map(np.concatenate, zip(*parts, strict=True))
        self._vocabulary, inverse, counts = np.unique(hashes, return_inverse=True, return_counts=True)
        self._ranks = np.argsort(np.argsort(counts))  # the number of each word
        self._members = distinct(pairs * len(counts) + self._ranks[inverse])  # pair * V + word
        pairs, words = np.divmod(self._members, max(len(counts), 1))
        self._sizes = np.bincount(pairs, minlength=self._size)
        self._frequencies = np.bincount(words, minlength=len(counts))
        self._starts = np.cumsum(self._frequencies) - self._frequencies
        self._pairs_of = pairs[np.argsort(words, kind="stable")]  # those with the first word, with the second, ...
        self._filter = np.zeros(_FILTER, bool)
        self._filter[self._vocabulary % np.uint64(_FILTER)] = True

    def find(self, words: tuple[Words, Words], wanted: NDArray[np.bool_]) -> Array:
        """Return the index of a near copy of each wanted pair (N,), or -1."""
        n_pairs, n_words, n_held = len(wanted), len(self._vocabulary), self._size
        pairs, hashes = _joined(words)
        counts = np.bincount(pairs, minlength=n_pairs)
        known = np.bincount(pairs[self._filter[hashes % np.uint64(_FILTER)]], minlength=n_pairs)
        chosen = (wanted & (5 * known >= 4 * counts) & (counts >= _MIN_WORDS))[pairs]
        pairs, positions = pairs[chosen], positions_in(hashes[chosen], self._vocabulary)
        unknown = np.bincount(pairs[positions < 0], minlength=n_pairs)
        members = distinct(pairs[positions >= 0] * n_words + self._ranks[positions[positions >= 0]])
        pairs, numbers = np.divmod(members, max(n_words, 1))
        counts = np.bincount(pairs, minlength=n_pairs)
        starts, sizes = np.cumsum(counts) - counts, counts + unknown

        # Words that are in no held-out pair are the rarest.
        rare = np.arange(len(pairs)) - starts[pairs] < (sizes // 5 + _SHARED - unknown)[pairs]
        rare &= self._frequencies[numbers] <= _MAX_FREQUENCY
        lengths = self._frequencies[numbers[rare]]
        positions = ranges(self._starts[numbers[rare]], lengths)
        codes = np.sort(np.repeat(pairs[rare], lengths) * n_held + self._pairs_of[positions])  # pair * H + held-out
        often = codes[_SHARED - 1 :][codes[_SHARED - 1 :] == codes[: 1 - _SHARED]]
        candidates, held = np.divmod(distinct(often), max(n_held, 1))
        positions = ranges(starts[candidates], counts[candidates])
        rows = np.repeat(np.arange(len(candidates)), counts[candidates])  # the candidate of each of their words
        common = positions_in(held[rows] * n_words + numbers[positions], self._members) >= 0
        n_common = np.bincount(rows[common], minlength=len(held))
        near = 9 * n_common >= 4 * (sizes[candidates] + self._sizes[held])  # a Jaccard index of 0.8
        found = np.full(n_pairs, -1)
        found[candidates[near]] = held[near]
        return found


def _joined(words: tuple[Words, Words]) -> tuple[Array, Hashes]:
    """Return the pair and the hash of each word of both sides."""
    source, target = words
    return np.concatenate([source.sentences, target.sentences]), np.concatenate([source.hashes, target.hashes])


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
        shortened = np.repeat(usable & (counts >= _MIN_TARGET) & (counts <= _MAX_TARGET), counts)
        sentences = target.sentences[shortened]
        # The lowest bit tells letters from words.
        by_letters, by_words = (np.flatnonzero(usable & mask) for mask in (letters > 0, counts >= _MIN_TARGET - 1))
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
            _, starts, sizes = np.unique(hashes, return_index=True, return_counts=True)
            # Of equal targets, the group of their letters is enough.
            lowest, highest = (function.reduceat(targets[pairs], starts) for function in (np.minimum, np.maximum))
            chosen = (sizes > 1) & ((lowest < highest) | (hashes[starts] & np.uint64(1) > 0))
            members = np.repeat(chosen, sizes)
            groups = np.repeat(np.cumsum(chosen) - 1, sizes)[members] + n_groups
            found.append(np.stack([pairs[members], groups]))
            n_groups += int(chosen.sum())
        pairs, groups = np.concatenate(found, axis=1)
        return pairs, groups
