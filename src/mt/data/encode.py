"""Encoding of text into token ids on disk: worker processes encode blocks of pairs, this process writes them in order.

Memory does not grow with the corpus: a few blocks are encoded at a time.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path

import numpy as np

from mt.console import progress
from mt.data.ragged import Lengths
from mt.data.sentence_format import NO_TAGS, SOURCE_FORMATS, Tags, most_ids
from mt.data.token_store import SIDES, Ids
from mt.data.tokenizer_kinds import TextTokenizer, TokenizerPair
from mt.storage import atomic
from mt.storage.run_dir import COUNTS
from mt.system.cpus import usable_cores
from mt.system.workers import in_order
from mt.text.lines import count_lines, read_parallel, take_block

_BLOCK = 2**14  # pairs that a process encodes at a time
_SMALL = 2**18  # pairs that take about as long as other processes take to start

_Block = tuple[int, Tags, list[tuple[str, str]]]  # number and tags of a part, and some of its pairs


@dataclass(frozen=True)
class Counts:
    """The encoded pairs of each part (`kept`), and the number of dropped ones (`too_long`)."""

    kept: list[int]
    too_long: int


def encode_corpus(
    text: tuple[Path, Path],
    tokenizers: TokenizerPair,
    folder: Path,
    key: str,
    max_length: int | None,
    parts: Sequence[tuple[int, Tags]] | None = None,
    workers: int | None = None,
    source_format: str = SOURCE_FORMATS[0],
) -> None:
    """Encode two aligned text files into `folder`, written atomically; its manifest records the key.

    Raises InputError if a line is not UTF-8, and MachineError if a worker process was killed.

    Args:
        max_length: pairs with a longer side (in tokens, specials included) are dropped; None keeps all.
        parts: number of pairs and tags of each part of the text; None is one part without a tag.
        workers: number of processes; None: one for a small corpus, otherwise one a core.
        source_format: the special tokens around a source.
    """
    parts = parts or [(count_lines(text[0]), NO_TAGS)]
    total, kept = sum(pairs for pairs, _ in parts), [0] * len(parts)
    encode = partial(_encode, tokenizers, max_length, source_format)
    workers = workers or (1 if total <= _SMALL else usable_cores())
    with (
        atomic.new_folder(folder, key=key) as unfinished,
        progress(total=total, unit="pair", desc="encoding", unit_scale=True) as bar,
    ):
        writers = [_SideWriter(unfinished, side, t) for side, t in zip(SIDES, tokenizers, strict=True)]
        for (part, _, pairs), sides in in_order(encode, _blocks(text, parts), workers):
            for writer, (ids, lengths) in zip(writers, sides, strict=True):
                writer.write(ids, lengths)
            kept[part] += len(sides[0][1])
            bar.update(len(pairs))
        for writer in writers:
            writer.close()
        atomic.write_json(unfinished / COUNTS, asdict(Counts(kept, total - sum(kept))))


def _blocks(text: tuple[Path, Path], parts: Sequence[tuple[int, Tags]]) -> Iterator[_Block]:
    pairs = read_parallel(*text)
    for number, (size, tags) in enumerate(parts):
        part = islice(pairs, size)
        while block := take_block(part, _BLOCK):
            yield number, tags, block


def _encode(
    tokenizers: TokenizerPair, max_length: int | None, source_format: str, block: _Block
) -> list[tuple[Ids, Lengths]]:
    """Return, for each side, the concatenated ids and the lengths of its sentences, without pairs that are too long."""
    _, tags, raw = block
    texts = zip(*raw, strict=True)
    source, target = (t.encode_batch(side, max_length) for t, side in zip(tokenizers, texts, strict=True))
    pairs = [(tags.source(src), tags.target(tgt)) for src, tgt in zip(source, target, strict=True)]
    if max_length is not None:
        most = most_ids(max_length, source_format)
        pairs = [(src, tgt) for src, tgt in pairs if len(src) <= most[0] and len(tgt) <= most[1]]
    sides = [[pair[side] for pair in pairs] for side in range(len(SIDES))]
    return [(np.fromiter(chain(*side), np.uint32), np.fromiter(map(len, side), np.int64)) for side in sides]


class _SideWriter:
    """A writer of one side: token ids in the smallest type that fits the vocabulary, and the sentences' positions."""

    def __init__(self, folder: Path, side: str, tokenizer: TextTokenizer) -> None:
        self._dtype = np.dtype(np.uint16 if tokenizer.vocab_size <= 2**16 else np.uint32)
        self._tokens = (folder / f"{side}_tokens.{self._dtype.name}").open("wb")
        self._starts = (folder / f"{side}_starts.npy").open("wb")
        self._sentences = self._end = 0
        self._write_header()
        self._starts.write(np.zeros(1, np.int64).tobytes())

    def write(self, ids: Ids, lengths: Lengths) -> None:
        self._tokens.write(ids.astype(self._dtype).tobytes())
        self._starts.write((self._end + np.cumsum(lengths)).tobytes())
        self._sentences += len(lengths)
        self._end += len(ids)

    def close(self) -> None:
        self._tokens.close()
        self._starts.seek(0)
        self._write_header()  # of the same size: NumPy leaves room for the number of rows
        self._starts.close()

    def _write_header(self) -> None:
        header = {"descr": "<i8", "fortran_order": False, "shape": (self._sentences + 1,)}
        np.lib.format.write_array_header_1_0(self._starts, header)


def read_counts(path: Path) -> Counts:
    """Read the counts that `encode_corpus` wrote."""
    return Counts(**json.loads(path.read_bytes()))
