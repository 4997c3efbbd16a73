"""Memory-mapped token ids: training needs no memory for its corpus.

B, N sentences, L tokens
"""

import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[Any]  # uint16 or uint32
Lengths = NDArray[np.int64]

SIDES = ("source", "target")

_RUNS_AT_ONCE = 256  # runs of consecutive sentences that are copied before their pages are released


def sentence_tokens(n_source: Any, n_target: Any) -> tuple[Any, Any]:
    """Return lengths as the model sees them: `<s> source </s>`, and `<s> target` in or `target </s>` out."""
    return n_source + 2, n_target + 1


class EncodedCorpus:
    """A parallel corpus as flat token ids and the position of each sentence in them.

    Args:
        tokens: by side (source, target), the ids of all sentences, concatenated.
        starts: by side, the position of each sentence and the end of the last one (N + 1,).
    """

    def __init__(self, tokens: dict[str, Ids], starts: dict[str, Lengths]) -> None:
        self._tokens, self._starts = tokens, starts

    @classmethod
    def open(cls, folder: Path) -> "EncodedCorpus":
        """Map a folder that `encode_corpus` wrote."""
        return cls(
            {side: _map_tokens(folder, side) for side in SIDES},
            {side: np.load(folder / f"{side}_starts.npy", mmap_mode="r") for side in SIDES},
        )

    def in_epoch(self, epoch: int) -> "EncodedCorpus":
        """Return the corpus itself: every epoch has the same tokens."""
        return self

    def side(self, side: str) -> tuple[Ids, Lengths]:
        """Return the flat ids of a side, and the positions of its sentences (N + 1,)."""
        return self._tokens[side], self._starts[side]

    def __len__(self) -> int:
        return len(self._starts["source"]) - 1

    def lengths(self, indices: NDArray[np.int64] | None = None) -> tuple[Lengths, Lengths]:
        """Return source and target tokens (N,), specials included, of some sentences or of all."""
        if indices is None:
            return sentence_tokens(*(np.diff(self._starts[side]) for side in SIDES))
        return sentence_tokens(*(self._starts[side][indices + 1] - self._starts[side][indices] for side in SIDES))

    def select(self, indices: NDArray[np.int64]) -> "EncodedCorpus":
        """Copy some sentences into memory, in the given order.

        Mapped pages count as memory of this process, together with those that the system reads ahead; they are
        released while copying.
        """
        firsts = np.flatnonzero(np.diff(indices, prepend=-2) != 1)
        runs = np.stack([indices[firsts], np.diff(firsts, append=len(indices))], axis=1)
        tokens, starts = zip(*(self._copy_runs(side, runs) for side in SIDES), strict=True)
        return EncodedCorpus(dict(zip(SIDES, tokens, strict=True)), dict(zip(SIDES, starts, strict=True)))

    def _copy_runs(self, side: str, runs: NDArray[np.int64]) -> tuple[Ids, Lengths]:
        tokens, starts = self.side(side)
        copies, lengths = [np.zeros(0, tokens.dtype)], [np.zeros(1, np.int64)]
        for group in np.split(runs, range(_RUNS_AT_ONCE, len(runs), _RUNS_AT_ONCE)):
            for first, number in group.tolist():
                bounds = np.asarray(starts[first : first + number + 1])
                copies.append(np.array(tokens[bounds[0] : bounds[-1]]))
                lengths.append(np.diff(bounds))
            for array in (tokens, starts):
                if (mapping := getattr(array, "_mmap", None)) is not None:
                    mapping.madvise(mmap.MADV_DONTNEED)
        return np.concatenate(copies), np.cumsum(np.concatenate(lengths))

    def gather(self, side: str, indices: NDArray[np.int64]) -> tuple[Ids, Lengths]:
        """Return ids (B, L), arbitrary beyond a sentence's end, and lengths (B,) without specials."""
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
