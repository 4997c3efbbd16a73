"""Token ids on disk: written once, then memory-mapped, so that training needs no memory for its corpus."""

import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[Any]  # uint16 or uint32
Lengths = NDArray[np.int64]

SIDES = ("source", "target")

_RUNS_AT_ONCE = 256  # runs of neighbouring sentences that are copied before their pages are given back


def sentence_tokens(n_source: Any, n_target: Any) -> tuple[Any, Any]:
    """Lengths as the model sees them: `<s> source </s>`, and `<s> target` in against `target </s>` out."""
    return n_source + 2, n_target + 1


class EncodedCorpus:
    """A parallel corpus as flat token ids and where each sentence starts.

    Args:
        tokens: of each side (source, target), all sentences' ids one after the other.
        starts: of each side, where sentences start in them, and where the last one ends (N + 1,).
    """

    def __init__(self, tokens: dict[str, Ids], starts: dict[str, Lengths]) -> None:
        self._tokens, self._starts = tokens, starts

    @classmethod
    def open(cls, folder: Path) -> "EncodedCorpus":
        """Maps a folder that `encoding.encode_corpus` wrote."""
        return cls(
            {side: _map_tokens(folder, side) for side in SIDES},
            {side: np.load(folder / f"{side}_starts.npy", mmap_mode="r") for side in SIDES},
        )

    def in_epoch(self, epoch: int) -> "EncodedCorpus":
        """What an epoch trains on: always the same."""
        return self

    def side(self, side: str) -> tuple[Ids, Lengths]:
        """The flat ids of a side, and the sentences' starts in them (N + 1,)."""
        return self._tokens[side], self._starts[side]

    def __len__(self) -> int:
        return len(self._starts["source"]) - 1

    def lengths(self, indices: NDArray[np.int64] | None = None) -> tuple[Lengths, Lengths]:
        """Source and target tokens of some sentences or of all (N,), specials counted as the model sees them."""
        if indices is None:
            return sentence_tokens(*(np.diff(self._starts[side]) for side in SIDES))
        return sentence_tokens(*(self._starts[side][indices + 1] - self._starts[side][indices] for side in SIDES))

    def copied(self, indices: NDArray[np.int64]) -> "EncodedCorpus":
        """Some sentences, copied into memory in the order given; neighbours are copied together.

        What is read of a mapped file counts as memory of this process, and with each page the system maps those around
        it, so it is given back on the way.
        """
        firsts = np.flatnonzero(np.diff(indices, prepend=-2) != 1)
        runs = np.stack([indices[firsts], np.diff(firsts, append=len(indices))], axis=1)
        sides = {side: self._copied(side, runs) for side in SIDES}
        return EncodedCorpus({side: s[0] for side, s in sides.items()}, {side: s[1] for side, s in sides.items()})

    def _copied(self, side: str, runs: NDArray[np.int64]) -> tuple[Ids, Lengths]:
        tokens, starts = self.side(side)
        copies, lengths = [np.zeros(0, tokens.dtype)], [np.zeros(1, np.int64)]
        for some in np.split(runs, range(_RUNS_AT_ONCE, len(runs), _RUNS_AT_ONCE)):
            for begin, number in some.tolist():
                bounds = np.asarray(starts[begin : begin + number + 1])
                copies.append(np.array(tokens[bounds[0] : bounds[-1]]))
                lengths.append(np.diff(bounds))
            for array in (tokens, starts):
                mapping = getattr(array, "_mmap", None)
                if mapping is not None:
                    mapping.madvise(mmap.MADV_DONTNEED)
        return np.concatenate(copies), np.cumsum(np.concatenate(lengths))

    def gather(self, side: str, indices: NDArray[np.int64]) -> tuple[Ids, Lengths]:
        """The ids of some sentences.

        Args:
            side: source or target.
            indices: which sentences (B,).

        Returns:
            ids (B, L), where L is the longest sentence's length and what lies beyond a sentence's end is arbitrary;
            and the sentences' lengths (B,), specials not counted.
        """
        starts = self._starts[side][indices]
        lengths = self._starts[side][indices + 1] - starts
        positions = starts[:, None] + np.arange(lengths.max(initial=0))
        tokens = self._tokens[side]
        return tokens[np.minimum(positions, len(tokens) - 1)], lengths


def _map_tokens(folder: Path, side: str) -> Ids:
    path = next(folder.glob(f"{side}_tokens.uint*"))
    dtype = np.dtype(path.suffix[1:])
    # An empty file cannot be mapped.
    return np.memmap(path, dtype=dtype, mode="r") if path.stat().st_size else np.zeros(1, dtype)
