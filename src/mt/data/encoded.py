"""Token ids on disk: written once, then memory-mapped, so that training needs no memory for its corpus."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from mt import storage
from mt.data.lines import read_lines
from mt.data.tokenizer import BpeTokenizer, TokenizerPair

Ids = NDArray[Any]  # uint16 or uint32
Lengths = NDArray[np.int64]

SIDES = ("source", "target")

_CHUNK = 10_000  # sentences encoded at a time


def sentence_tokens(n_source: Any, n_target: Any) -> tuple[Any, Any]:
    """Lengths as the model sees them: `<s> source </s>`, and `<s> target` in against `target </s>` out."""
    return n_source + 2, n_target + 1


class EncodedCorpus:
    """A parallel corpus as flat token ids and where each sentence starts.

    Args:
        tokens: of each side (source, target), all sentences' ids one after the other.
        starts: of each side, where sentences start in them, and where the last one ends (N + 1,).

    Attributes:
        src_lengths, tgt_lengths: tokens of each sentence (N,), specials counted as the model sees them.
    """

    def __init__(self, tokens: dict[str, Ids], starts: dict[str, Lengths]) -> None:
        self._tokens, self._starts = tokens, starts
        self.src_lengths, self.tgt_lengths = sentence_tokens(np.diff(starts["source"]), np.diff(starts["target"]))

    @classmethod
    def open(cls, folder: Path) -> "EncodedCorpus":
        """Maps a folder that `encode_corpus` wrote."""
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
        return len(self.src_lengths)

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


def encode_corpus(
    text: tuple[Path, Path], tokenizers: TokenizerPair, folder: Path, key: str, max_length: int | None
) -> dict[str, int]:
    """Encodes two aligned text files into `folder`.

    Args:
        text: the source and the target file.
        tokenizers: what to encode them with.
        folder: comes into being whole or not at all.
        key: identifies the inputs, recorded in the folder's manifest.
        max_length: pairs with a side longer than this many tokens, specials counted, are left out; None keeps all.

    Returns:
        the numbers of pairs kept and left out.
    """
    counts = {"kept": 0, "longer than max_length": 0}
    with storage.new_folder(folder, key=key) as partial:
        writers = [_SideWriter(partial, "source", tokenizers.source), _SideWriter(partial, "target", tokenizers.target)]
        for batch in _chunks(*text):
            encoded = [writer.tokenizer.encode_batch(lines) for writer, lines in zip(writers, batch, strict=True)]
            for src, tgt in zip(*encoded, strict=True):
                if max_length is not None and max(sentence_tokens(len(src), len(tgt))) > max_length:
                    counts["longer than max_length"] += 1
                    continue
                counts["kept"] += 1
                writers[0].write(src)
                writers[1].write(tgt)
        for writer in writers:
            writer.close()
        storage.write_json(partial / "counts.json", counts)
    return counts


def _chunks(source: Path, target: Path) -> Iterator[tuple[list[str], list[str]]]:
    source_lines, target_lines = read_lines(source), read_lines(target)
    while chunk := list(islice(source_lines, _CHUNK)):
        yield chunk, list(islice(target_lines, _CHUNK))


class _SideWriter:
    """Writes one side: token ids in the smallest type that holds the vocabulary, and the sentences' starts."""

    def __init__(self, folder: Path, side: str, tokenizer: BpeTokenizer) -> None:
        self.tokenizer = tokenizer
        self._dtype = np.uint16 if tokenizer.vocab_size <= 2**16 else np.uint32
        self._file: BinaryIO = (folder / f"{side}_tokens.{np.dtype(self._dtype).name}").open("wb")
        self._starts_path = folder / f"{side}_starts.npy"
        self._lengths: list[int] = []

    def write(self, ids: list[int]) -> None:
        self._file.write(np.asarray(ids, dtype=self._dtype).tobytes())
        self._lengths.append(len(ids))

    def close(self) -> None:
        self._file.close()
        starts = np.zeros(len(self._lengths) + 1, dtype=np.int64)
        np.cumsum(self._lengths, out=starts[1:])
        np.save(self._starts_path, starts)
