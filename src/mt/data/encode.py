"""Encoding of text into token ids on disk, in parallel: each process writes whole shards of a large corpus.

Existing shards are not encoded again, so an interrupted encoding resumes. At the end the shards are joined into one
folder, which training maps. Each process needs memory for a few thousand sentences.
"""

import json
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO

import numpy as np

from mt.console import progress
from mt.data.sentence_format import NO_TAGS, Tags
from mt.data.token_store import SIDES, sentence_tokens
from mt.data.tokenizer import TokenizerPair
from mt.data.tokenizer_kinds import TextTokenizer
from mt.storage import atomic
from mt.storage.run_dir import COUNTS
from mt.storage.stage import is_done
from mt.system.cpus import usable_cores
from mt.system.workers import worker_pool
from mt.text.lines import decode_lines

SHARD = 2**18  # pairs

_CHUNK = 4_000  # sentences encoded at a time
_BLOCK = 2**24  # bytes read at a time when counting and copying


@dataclass(frozen=True)
class Counts:
    """The encoded pairs of each part (`kept`), and the number of dropped ones (`too_long`)."""

    kept: list[int]
    too_long: int


@dataclass(frozen=True)
class TaggedPairs:
    """Consecutive pairs with the language tags of their sentences."""

    pairs: int
    tags: Tags = NO_TAGS


def encode_corpus(
    text: tuple[Path, Path],
    tokenizers: TokenizerPair,
    folder: Path,
    key: str,
    max_length: int | None,
    parts: Sequence[TaggedPairs] | None = None,
    shard: int = SHARD,
) -> Counts:
    """Encode two aligned text files into `folder`.

    Args:
        text: the source and the target file.
        tokenizers: of both languages.
        folder: written atomically; shards are beside it until then.
        key: identifies the inputs; recorded in the folder's manifest.
        max_length: pairs with a longer side (in tokens, specials included) are dropped; None keeps all.
        parts: the parts of the text; None is one part without a tag.
        shard: pairs per shard.

    Raises:
        InputError: a line is not UTF-8.
        MachineError: a worker process was killed.
    """
    ranges = _line_ranges(text, shard)
    all_parts = tuple(parts or [TaggedPairs(sum(lines.number for lines in ranges))])
    if len(ranges) == 1:
        return _Job(text, tokenizers, max_length, all_parts, ranges[0], folder, key).run()
    shards = shards_folder(folder)
    jobs = [_Job(text, tokenizers, max_length, all_parts, r, shards / f"{r.first:012d}", key) for r in ranges]
    _run_all([job for job in jobs if not is_done(job.folder, key)])
    counts = _join([job.folder for job in jobs], folder, key)
    atomic.remove(shards)
    return counts


def shards_folder(folder: Path) -> Path:
    """Return the folder that holds the shards of `folder` until they are joined."""
    return folder.with_name(f"{folder.name}.shards")


@dataclass(frozen=True)
class _LineRange:
    """Consecutive lines: the first, counted from 0, their number, and their offset in the source and target file."""

    first: int
    number: int
    offsets: tuple[int, ...]


def _line_ranges(text: tuple[Path, Path], shard: int) -> list[_LineRange]:
    offsets, lines = zip(*(_line_offsets(path, shard) for path in text), strict=True)
    pairs = enumerate(zip(*offsets, strict=True))
    return [_LineRange(n * shard, min(shard, lines[0] - n * shard), both) for n, both in pairs]


def _line_offsets(path: Path, stride: int) -> tuple[list[int], int]:
    """Return the byte offset of every n-th line of a file, and its number of lines."""
    offsets, lines, position = [0], 0, 0
    with path.open("rb") as file:
        last = b"\n"
        while block := file.read(_BLOCK):
            ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
            wanted = np.arange(len(offsets) * stride, lines + len(ends) + 1, stride) - lines - 1
            offsets += (position + 1 + ends[wanted]).tolist()
            lines, position, last = lines + len(ends), position + len(block), block[-1:]
    lines += last != b"\n"
    if len(offsets) > 1 and offsets[-1] == position:
        offsets.pop()  # the end of the file is not a line
    return offsets, lines


@dataclass(frozen=True)
class _Job:
    """Lines that one process encodes into a folder."""

    text: tuple[Path, Path]
    tokenizers: TokenizerPair
    max_length: int | None
    parts: tuple[TaggedPairs, ...]
    lines: _LineRange
    folder: Path
    key: str

    def run(self) -> Counts:
        kept, too_long = [0] * len(self.parts), 0
        with atomic.new_folder(self.folder, key=self.key) as partial:
            writers = [_SideWriter(partial, side, t) for side, t in zip(SIDES, self.tokenizers, strict=True)]
            for part, *chunk in self._chunks():
                source, target = (
                    t.encode_batch(lines, self.max_length) for t, lines in zip(self.tokenizers, chunk, strict=True)
                )
                if (tags := self.parts[part].tags) != NO_TAGS:
                    source, target = [tags.source(ids) for ids in source], [tags.target(ids) for ids in target]
                fitting = [pair for pair in zip(source, target, strict=True) if self._fits(*pair)]
                kept[part] += len(fitting)
                too_long += len(source) - len(fitting)
                for writer, sentences in zip(writers, zip(*fitting, strict=True), strict=False):
                    writer.write(sentences)
            for writer in writers:
                writer.close()
            counts = Counts(kept, too_long)
            atomic.write_json(partial / COUNTS, asdict(counts))
        return counts

    def _fits(self, source: list[int], target: list[int]) -> bool:
        return self.max_length is None or max(sentence_tokens(len(source), len(target))) <= self.max_length

    def _chunks(self) -> Iterator[tuple[int, list[str], list[str]]]:
        """Yield a part's number and some of its source and target sentences."""
        with self.text[0].open("rb") as source, self.text[1].open("rb") as target:
            sides = []
            for file, path, offset in zip((source, target), self.text, self.lines.offsets, strict=True):
                file.seek(offset)
                sides.append(decode_lines(islice(file, self.lines.number), str(path), self.lines.first))
            position, last, end = self.lines.first, self.lines.first + self.lines.number, 0
            for number, part in enumerate(self.parts):
                end += part.pairs
                while position < min(end, last):
                    size = min(_CHUNK, end - position, last - position)
                    yield number, list(islice(sides[0], size)), list(islice(sides[1], size))
                    position += size


class _SideWriter:
    """A writer of one side: token ids in the smallest type that fits the vocabulary, and the sentences' positions."""

    def __init__(self, folder: Path, side: str, tokenizer: TextTokenizer) -> None:
        self._dtype = np.dtype(np.uint16 if tokenizer.vocab_size <= 2**16 else np.uint32)
        self._file: BinaryIO = (folder / f"{side}_tokens.{self._dtype.name}").open("wb")
        self._starts_path = folder / f"{side}_starts.npy"
        self._lengths: list[int] = []

    def write(self, sentences: Sequence[list[int]]) -> None:
        self._file.write(np.fromiter(chain.from_iterable(sentences), self._dtype).tobytes())
        self._lengths += map(len, sentences)

    def close(self) -> None:
        self._file.close()
        np.save(self._starts_path, np.cumsum([0, *self._lengths], dtype=np.int64))


def _run_all(jobs: list[_Job]) -> None:
    """Run jobs in one process per core; the progress bar counts pairs."""
    workers = min(usable_cores(), len(jobs))
    if workers == 0:
        return
    with (
        worker_pool(workers, "encoded text", "the same command resumes the encoding") as pool,
        progress(total=sum(job.lines.number for job in jobs), unit="pair", desc="encoding", unit_scale=True) as bar,
    ):
        futures = {pool.submit(job.run): job for job in jobs}
        for future in as_completed(futures):
            future.result()
            bar.update(futures[future].lines.number)


def _join(shards: Sequence[Path], folder: Path, key: str) -> Counts:
    """Concatenate shards into one folder."""
    shard_counts = [read_counts(shard / COUNTS) for shard in shards]
    kept = [sum(part) for part in zip(*(counts.kept for counts in shard_counts), strict=True)]
    counts = Counts(kept, sum(counts.too_long for counts in shard_counts))
    with atomic.new_folder(folder, key=key) as partial:
        for side in SIDES:
            tokens = [next(shard.glob(f"{side}_tokens.uint*")) for shard in shards]
            with (partial / tokens[0].name).open("wb") as file:
                for path in tokens:
                    with path.open("rb") as part:
                        shutil.copyfileobj(part, file, _BLOCK)
            _join_starts([shard / f"{side}_starts.npy" for shard in shards], partial / f"{side}_starts.npy")
        atomic.write_json(partial / COUNTS, asdict(counts))
    return counts


def read_counts(path: Path) -> Counts:
    """Read the counts that `encode_corpus` wrote."""
    return Counts(**json.loads(path.read_bytes()))


def _join_starts(parts: Sequence[Path], path: Path) -> None:
    """Concatenate the positions within shards, shifted to positions in the corpus."""
    total = sum(len(np.load(part, mmap_mode="r")) - 1 for part in parts) + 1
    starts = np.lib.format.open_memmap(path, mode="w+", dtype=np.int64, shape=(total,))
    end = 0
    for part in parts:
        shifted = np.load(part)[1:] + starts[end]
        starts[end + 1 : end + 1 + len(shifted)] = shifted
        end += len(shifted)
    starts.flush()
