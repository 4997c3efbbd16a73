"""Memory-mapped token ids, of which training has one window in memory at a time.

B, N sentences, L tokens
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mt.data.ragged import Array, Indices, Lengths, Ragged
from mt.data.sentence_format import SOURCE_FORMATS, sentence_tokens

Ids = Array  # uint16 or uint32

SIDES = ("source", "target")


@dataclass(frozen=True, eq=False)
class EncodedCorpus:
    """A parallel corpus as token ids."""

    sides: dict[str, Ragged]  # the ids of all sentences, by side
    source_format: str = SOURCE_FORMATS[0]  # the special tokens around a source

    @classmethod
    def open(cls, folder: Path, source_format: str = SOURCE_FORMATS[0]) -> "EncodedCorpus":
        """Map a folder that `encode_corpus` wrote."""
        sides = {}
        for side in SIDES:
            path = next(folder.glob(f"{side}_tokens.uint*"))
            dtype = np.dtype(path.suffix[1:])
            # An empty file cannot be mapped.
            tokens = np.memmap(path, dtype=dtype, mode="r") if path.stat().st_size else np.zeros(1, dtype)
            sides[side] = Ragged(tokens, np.load(folder / f"{side}_starts.npy", mmap_mode="r"))
        return cls(sides, source_format)

    def in_epoch(self, epoch: int) -> "EncodedCorpus":
        """Return the corpus itself: every epoch has the same tokens."""
        return self

    def __len__(self) -> int:
        return len(self.sides["source"].starts) - 1

    def lengths(self, indices: Indices | None = None) -> tuple[Lengths, Lengths]:
        """Return source and target tokens (N,), specials included, of some sentences or of all."""
        n_source, n_target = (
            np.diff(starts) if indices is None else starts[indices + 1] - starts[indices]
            for starts in (self.sides[side].starts for side in SIDES)
        )
        return sentence_tokens(n_source, n_target, self.source_format)

    def begin_with(self, ids: Sequence[int]) -> NDArray[np.bool_]:
        """Return which sources (N,) begin with some ids."""
        tokens, starts = self.sides["source"]
        matches = np.diff(starts) >= len(ids)
        for place, number in enumerate(ids):
            matches[matches] = tokens[starts[:-1][matches] + place] == number
        return matches

    def select(self, indices: Indices) -> "EncodedCorpus":
        """Copy some sentences into memory, in the given order."""
        return EncodedCorpus({side: rows.select(indices) for side, rows in self.sides.items()}, self.source_format)

    def gather(self, side: str, indices: Indices) -> tuple[Ids, Lengths]:
        """Return ids (B, L), arbitrary beyond a sentence's end, and lengths (B,) without specials."""
        tokens, starts = self.sides[side]
        firsts = starts[indices]
        lengths = starts[indices + 1] - firsts
        positions = firsts[:, None] + np.arange(lengths.max(initial=0))
        return tokens[np.minimum(positions, len(tokens) - 1)], lengths
