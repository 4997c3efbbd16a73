"""From text to token ids on disk, in parallel: a large corpus is cut into shards, each written whole by one process.

A shard that is there is not encoded again, so a killed encoding goes on where it was. At the end the shards are joined
into one folder, the form that training maps. Memory is that of a few thousand sentences a process.
"""

import json
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from mt.console import progress
from mt.data.token_store import SIDES, sentence_tokens
from mt.data.tokenizer import BpeTokenizer, TokenizerPair
from mt.storage import atomic
from mt.storage.run_dir import COUNTS
from mt.storage.stage import is_done
from mt.system.cpus import usable_cores
from mt.system.workers import worker_pool
from mt.text.lines import decode_lines

SHARD = 2**18  # pairs

_CHUNK = 4_000  # sentences encoded at a time
_BLOCK = 2**24  # bytes read at a time where lines are only counted


@dataclass(frozen=True)
class Counts:
    """What became of the pairs.

    Attributes:
        kept: pairs of each part that were encoded.
        too_long: pairs left out.
    """

    kept: list[int]
    too_long: int


@dataclass(frozen=True)
class Tagged:
    """Neighbouring pairs whose source sentences all begin with one token, or with none of the kind."""

    pairs: int
    tag: int | None = None


def encode_corpus(
    text: tuple[Path, Path],
    tokenizers: TokenizerPair,
    folder: Path,
    key: str,
    max_length: int | None,
    parts: Sequence[Tagged] | None = None,
    shard: int = SHARD,
) -> Counts:
    """Encodes two aligned text files into `folder`.

    Args:
        text: the source and the target file.
        tokenizers: what to encode them with.
        folder: comes into being whole or not at all; shards lie beside it until then.
        key: identifies the inputs, recorded in the folder's manifest.
        max_length: pairs with a side longer than this many tokens, specials counted, are left out; None keeps all.
        parts: what the text is made of; None is one part without a tag.
        shard: pairs that are written at a time.

    Raises:
        InputError: a line is not UTF-8.
        MachineError: a process that encoded was killed.
    """
    ranges = _cut(text, shard)
    made_of = tuple(parts or [Tagged(sum(lines.number for lines in ranges))])
    if len(ranges) == 1:
        return _Job(text, tokenizers, max_length, made_of, ranges[0], folder, key).run()
    shards = shards_of(folder)
    jobs = [_Job(text, tokenizers, max_length, made_of, lines, shards / f"{lines.first:012d}", key) for lines in ranges]
    _run_all([job for job in jobs if not is_done(job.folder, key)])
    counts = _join([job.folder for job in jobs], folder, key)
    atomic.remove(shards)
    return counts


def shards_of(folder: Path) -> Path:
    """Where the parts of a large corpus lie until they are joined."""
    return folder.with_name(f"{folder.name}.shards")


@dataclass(frozen=True)
class _Lines:
    """A range of lines: the first, counted from 0, how many, and where they begin in the source and the target file."""

    first: int
    number: int
    offsets: tuple[int, ...]


def _cut(text: tuple[Path, Path], shard: int) -> list[_Lines]:
    offsets, numbers = zip(*(_offsets(path, shard) for path in text), strict=True)
    starts = list(zip(*offsets, strict=True))
    return [_Lines(n * shard, min(shard, numbers[0] - n * shard), both) for n, both in enumerate(starts)]


def _offsets(path: Path, every: int) -> tuple[list[int], int]:
    """Where every n-th line of a file begins, and how many lines it has."""
    offsets, lines, place = [0], 0, 0
    with path.open("rb") as file:
        last = b"\n"
        while block := file.read(_BLOCK):
            ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
            wanted = np.arange(len(offsets) * every, lines + len(ends) + 1, every) - lines - 1
            offsets += (place + 1 + ends[wanted]).tolist()
            lines, place, last = lines + len(ends), place + len(block), block[-1:]
    lines += last != b"\n"
    if len(offsets) > 1 and offsets[-1] == place:
        offsets.pop()  # nothing comes after it
    return offsets, lines


@dataclass(frozen=True)
class _Job:
    """Some lines that one process encodes into a folder of their own."""

    text: tuple[Path, Path]
    tokenizers: TokenizerPair
    max_length: int | None
    parts: tuple[Tagged, ...]
    lines: _Lines
    folder: Path
    key: str

    def run(self) -> Counts:
        counts = Counts([0] * len(self.parts), 0)
        tokenizers = (self.tokenizers.source, self.tokenizers.target)
        with atomic.new_folder(self.folder, key=self.key) as partial:
            writers = [_SideWriter(partial, side, t) for side, t in zip(SIDES, tokenizers, strict=True)]
            for part, *chunk in self._chunks():
                source, target = (
                    t.encode_batch(lines, self.max_length) for t, lines in zip(tokenizers, chunk, strict=True)
                )
                tag = self.parts[part].tag
                if tag is not None:
                    source = [[tag, *ids] for ids in source]
                kept = [pair for pair in zip(source, target, strict=True) if self._fits(*pair)]
                counts.kept[part] += len(kept)
                counts = replace(counts, too_long=counts.too_long + len(source) - len(kept))
                for writer, sentences in zip(writers, zip(*kept, strict=True), strict=False):
                    writer.write(sentences)
            for writer in writers:
                writer.close()
            atomic.write_json(partial / COUNTS, asdict(counts))
        return counts

    def _fits(self, source: list[int], target: list[int]) -> bool:
        return self.max_length is None or max(sentence_tokens(len(source), len(target))) <= self.max_length

    def _chunks(self) -> Iterator[tuple[int, list[str], list[str]]]:
        """A few sentences of one part at a time: which part, the sources, the targets."""
        with self.text[0].open("rb") as source, self.text[1].open("rb") as target:
            texts = []
            for file, path, offset in zip((source, target), self.text, self.lines.offsets, strict=True):
                file.seek(offset)
                texts.append(decode_lines(islice(file, self.lines.number), str(path), self.lines.first))
            for part, number in self._pieces():
                yield part, list(islice(texts[0], number)), list(islice(texts[1], number))

    def _pieces(self) -> Iterator[tuple[int, int]]:
        """The lines, cut where a part ends: which part, and how many lines."""
        place, last, end = self.lines.first, self.lines.first + self.lines.number, 0
        for number, part in enumerate(self.parts):
            end += part.pairs
            while place < min(end, last):
                size = min(_CHUNK, end - place, last - place)
                yield number, size
                place += size


class _SideWriter:
    """Writes one side: token ids in the smallest type that holds the vocabulary, and the sentences' starts."""

    def __init__(self, folder: Path, side: str, tokenizer: BpeTokenizer) -> None:
        self._dtype = np.dtype(np.uint16 if tokenizer.vocab_size <= 2**16 else np.uint32)
        self._file: BinaryIO = (folder / f"{side}_tokens.{self._dtype.name}").open("wb")
        self._starts = folder / f"{side}_starts.npy"
        self._lengths: list[int] = []

    def write(self, sentences: Sequence[list[int]]) -> None:
        self._file.write(np.fromiter(chain.from_iterable(sentences), self._dtype).tobytes())
        self._lengths += map(len, sentences)

    def close(self) -> None:
        self._file.close()
        starts = np.zeros(len(self._lengths) + 1, dtype=np.int64)
        np.cumsum(self._lengths, out=starts[1:])
        np.save(self._starts, starts)


def _run_all(jobs: list[_Job]) -> None:
    """Runs jobs in as many processes as there are cores; the progress is counted in pairs."""
    workers = min(usable_cores(), len(jobs))
    if workers == 0:
        return
    with (
        worker_pool(workers, "encoded text", "the same command goes on with what is left to encode") as pool,
        progress(total=sum(job.lines.number for job in jobs), unit="pair", desc="encoding", unit_scale=True) as bar,
    ):
        futures = {pool.submit(job.run): job for job in jobs}
        for done in as_completed(futures):
            done.result()
            bar.update(futures[done].lines.number)


def _join(shards: Sequence[Path], folder: Path, key: str) -> Counts:
    """One folder from the shards', in their order."""
    each = [read_counts(shard / COUNTS) for shard in shards]
    kept = [sum(of_part) for of_part in zip(*(one.kept for one in each), strict=True)]
    counts = Counts(kept, sum(one.too_long for one in each))
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
    """What `encode_corpus` wrote beside the tokens."""
    return Counts(**json.loads(path.read_bytes()))


def _join_starts(parts: Sequence[Path], path: Path) -> None:
    """Starts within shards to starts in the whole."""
    total = sum(len(np.load(part, mmap_mode="r")) - 1 for part in parts) + 1
    with path.open("wb") as file:
        header: dict[str, Any] = {"descr": np.dtype(np.int64).str, "fortran_order": False, "shape": (total,)}
        np.lib.format.write_array_header_1_0(file, header)
        before = np.zeros(1, dtype=np.int64)
        file.write(before.tobytes())
        for part in parts:
            starts = np.load(part)[1:] + before
            file.write(starts.tobytes())
            before = starts[-1:] if len(starts) else before
