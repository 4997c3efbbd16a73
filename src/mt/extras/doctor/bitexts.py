"""Bitexts of a configuration, read as in training, except that reading continues after a fault."""

from bisect import bisect_right
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from mt.config import DataConfig, PairFiles, Source, TableFile, TextFolder
from mt.data.corpus import Pair, line_texts, one_line, read_numbered
from mt.data.mixture import direction
from mt.data.paired_texts import LinePair, LineText, read_line_pairs
from mt.errors import InputError
from mt.extras.doctor.align_files import lines_in_step
from mt.extras.doctor.alignment import Link
from mt.extras.doctor.findings import SPLITS, Example, Findings, Location
from mt.extras.doctor.misalignment import SEGMENT, Block, unpaired_lines
from mt.extras.doctor.repair import repaired
from mt.extras.doctor.scripts import scripts_of
from mt.text.compressed import open_bytes
from mt.text.lines import IssueHandler, TextIssue, raw_lines, refuse_pipe

MIN_SCORE = -3.0  # of linked lines that are a pair


class RawPair(NamedTuple):
    """A pair as written.

    Attributes:
        error: why it is not UTF-8, or empty.
        repairs, before: names of its repairs, and both sides before the first.
        files: display names of the texts of its two sides.
    """

    line: int
    source: str
    target: str
    error: str
    repairs: tuple[str, ...] = ()
    before: Pair = ("", "")
    files: tuple[str, str] = ("", "")

    def cleaned(self) -> Pair:
        """Return the pair as training reads it."""
        return one_line(self.source), one_line(self.target)

    def changed(self, source: str, target: str, *repairs: str) -> "RawPair":
        """Return the pair with repaired sides."""
        before = self.before if self.repairs else (self.source, self.target)
        names = tuple(dict.fromkeys((*self.repairs, *repairs)))
        return self._replace(source=source, target=target, repairs=names, before=before)


@dataclass(frozen=True)
class Bitext:
    """A source of a split.

    Attributes:
        number: of the source in the split, from 1.
        repair: its pairs are read repaired.
        links: links that pair the lines of two texts of different length; lines before the first link are in step.
        swapped: ranges (first, end) of pairs whose sides are swapped while reading.
        blocks: of pairs that are out of step; those with a shift are read with the translations that belong to them.
        segment: pairs in memory together to find such blocks.
    """

    split: str
    number: int
    source: Source
    data: DataConfig
    repair: bool = False
    links: tuple[Link, ...] = ()
    swapped: tuple[tuple[int, int], ...] = ()
    blocks: tuple[Block, ...] = ()
    segment: int = SEGMENT

    @property
    def languages(self) -> tuple[str, str]:
        return self.data.languages_of(self.source)

    @property
    def direction(self) -> str:
        """The target language, or the pair of languages where there are several source languages."""
        source, target = self.languages
        return direction(self.data.own_source(source), target)

    @cached_property
    def files(self) -> tuple[str, str]:
        """Return the display names of the two sides."""
        if isinstance(self.source, PairFiles | TableFile):
            paths = [str(Path(self.data.root, name)) for name in self.source.files.values()]
            return paths[0], paths[-1]
        split = getattr(self.source, "split", "")
        return (f"{self.source.name} ({split})" if split else self.source.name,) * 2

    @property
    def options(self) -> dict[str, Any]:
        """Return the settings of the source that still hold when its pairs are written to other files."""
        kept = {"source_lang", "target_lang", "weight", "synthetic"}
        return self.source.model_dump(include=kept, exclude_defaults=True)

    @property
    def texts(self) -> list[LinePair]:
        """Return its pairs of texts of lines; none if it has other text, or cannot be read, which reading reports."""
        try:
            return line_texts(self.source, self.data)
        except InputError:
            return []

    def inputs(self) -> list[Path]:
        """Return the files that it is read from, as far as the configuration names them."""
        if isinstance(self.source, PairFiles | TableFile):
            return list(map(Path, self.files))
        # Another source's name is no path.
        return [text.path for pair in self.texts for text in pair] if isinstance(self.source, TextFolder) else []

    def unpaired(self) -> list[int]:
        """Return the indices of the pairs that are not certainly translations, even after repair."""
        before = self.links[0].source[0] if self.links else 0
        linked = {number for number, link in enumerate(self.links, before) if link.score < MIN_SCORE}
        return sorted(linked | unpaired_lines(self.blocks))


def bitexts_of(data: DataConfig, repair: bool = False) -> list[Bitext]:
    """Return all sources of a configuration; those of the training text are read repaired on request.

    The training text comes last, after the held-out text that must not occur in it. A split taken from the training
    text has no source. Raises InputError for a pipe.
    """
    bitexts = [
        Bitext(split, number, source, data, repair and split == "train")
        for split in reversed(SPLITS)
        if isinstance(sources := getattr(data, split), tuple)
        for number, source in enumerate(sources, 1)
    ]
    for name in chain.from_iterable(bitext.files for bitext in bitexts):
        refuse_pipe(Path(name))
    return bitexts


def read_bitext(bitext: Bitext, findings: Findings | None = None) -> Iterator[RawPair]:
    """Yield all readable pairs, and add faults to `findings`."""
    undecodable: list[TextIssue] = []  # lines of the pair that is yielded next
    scripts = [scripts_of(code) for code in bitext.languages] if bitext.repair else []

    def report(fault: TextIssue) -> None:
        if fault.kind == "encoding":
            undecodable.append(fault)
            return
        undecodable.clear()
        if findings is None:
            return
        if fault.kind == "row":
            findings.add("row", Example(bitext.split, (Location(fault.file, fault.line, _without_place(fault)),)))
        elif fault.kind == "lines":
            note = fault.message
            for pair in line_texts(bitext.source, bitext.data):
                if fault.file == str(pair[0]):
                    note += f"; they are out of step from line {lines_in_step(*pair) + 1:,} on"
            findings.add("line-counts", Example(bitext.split, (), note))
        else:  # one of two texts is empty
            findings.add("unreadable", Example(bitext.split, (), fault.message))

    try:
        pairs = (
            _aligned_lines(bitext) if bitext.links else _with_errors(_raw_pairs(bitext, report), undecodable, report)
        )
        pairs = _swapped_back(pairs, bitext.swapped) if bitext.swapped else pairs
        for raw in realigned(pairs, bitext.blocks, bitext.segment) if bitext.blocks else pairs:
            yield raw if raw.error or not bitext.repair else _repaired(raw, scripts)
    except InputError as error:
        if findings is not None:
            findings.add("unreadable", Example(bitext.split, (), error.message))


def _with_errors(pairs: Iterator[RawPair], undecodable: list[TextIssue], report: IssueHandler) -> Iterator[RawPair]:
    """Yield the pairs with the errors of their lines, which reading adds to `undecodable`."""
    for raw in pairs:
        if undecodable:
            own = [fault for fault in undecodable if fault.line >= raw.line]
            header = undecodable[: len(undecodable) - len(own)]
            undecodable.clear()
            for fault in header:  # of a table
                report(replace(fault, kind="row"))
            raw = raw._replace(error="; ".join(map(_without_place, own)))
        yield raw


def _without_place(fault: TextIssue) -> str:
    return fault.message.removeprefix(f"{fault.file}:{fault.line}: ").removeprefix(f"{fault.file}: ")


def _raw_pairs(bitext: Bitext, report: IssueHandler) -> Iterator[RawPair]:
    """Yield the pairs without their errors, which `report` gets."""
    texts = line_texts(bitext.source, bitext.data)
    for numbered in () if texts else read_numbered(bitext.source, bitext.data, report):
        yield RawPair(*numbered, error="", files=bitext.files)
    for pair in texts:
        names = (str(pair[0]), str(pair[1])) if len(texts) > 1 else bitext.files
        for line, sides in enumerate(read_line_pairs(pair, report), 1):
            yield RawPair(line, *sides, error="", files=names)


def _aligned_lines(bitext: Bitext) -> Iterator[RawPair]:
    """Yield the pairs of two texts of different length by their links; a line without a partner has an empty one."""
    [pair] = line_texts(bitext.source, bitext.data)
    first, second = map(_lines_with_faults, pair)
    n_before = bitext.links[0].source[0]
    in_step = islice(zip(first, second, strict=False), n_before)
    for number, ((src, src_fault), (tgt, tgt_fault)) in enumerate(in_step, 1):
        yield RawPair(number, src, tgt, "; ".join(filter(None, (src_fault, tgt_fault))), files=bitext.files)
    sources, targets = list(first), list(second)
    for link in (link.moved(-n_before) for link in bitext.links):
        sides = sources[slice(*link.source)], targets[slice(*link.target)]
        src, tgt = (" ".join(text for text, _ in side) for side in sides)
        line, error = link.source[0], "; ".join(fault for side in sides for _, fault in side if fault)
        number = n_before + (line if link.source[1] > line else link.target[0]) + 1
        raw = RawPair(number, src, tgt, error, files=bitext.files)
        if link.source != link.target and src and tgt and not error:
            beside = targets[line][0] if line < len(targets) else ""
            raw = raw._replace(repairs=("alignment",), before=(sources[line][0], beside))
        yield raw


def _lines_with_faults(text: LineText) -> Iterator[tuple[str, str]]:
    faults: list[TextIssue] = []
    for line in text.lines(faults.append):
        yield line, "".join(map(_without_place, faults))
        faults.clear()


def _swapped_back(pairs: Iterator[RawPair], blocks: Sequence[tuple[int, int]]) -> Iterator[RawPair]:
    """Yield the pairs, those in blocks with their sides swapped; the blocks are in order and do not overlap."""
    bounds = list(chain.from_iterable(blocks))
    for index, raw in enumerate(pairs):
        is_swapped = bisect_right(bounds, index) % 2 == 1
        yield raw.changed(raw.target, raw.source, "swapped") if is_swapped and not raw.error else raw


def realigned(pairs: Iterator[RawPair], blocks: Sequence[Block], size: int = SEGMENT) -> Iterator[RawPair]:
    """Yield the pairs, those of a block with a shift with the targets found there; segments have `size` pairs."""
    unsure = {line for block in blocks for line in block.unsure}
    start = 0
    while segment := list(islice(pairs, size)):
        inside = (block for block in blocks if start <= block.start < start + size)
        moved = {n: n + block.shift for block in inside if block.shift for n in range(block.start, block.end)}
        for number, here in enumerate(segment, start):
            there = moved.get(number, number) - start
            other = segment[there] if 0 <= there < len(segment) else here  # its translation was cut off
            stays = other is here or number in unsure or here.error or other.error
            yield here if stays else here.changed(here.source, other.target, "alignment")
        start += len(segment)


def _repaired(raw: RawPair, scripts: Sequence[frozenset[str]]) -> RawPair:
    (src, first), (tgt, second) = (
        repaired(text, needed) for text, needed in zip((raw.source, raw.target), scripts, strict=True)
    )
    return raw.changed(src, tgt, *first, *second) if first or second else raw


def check_bytes(bitext: Bitext, findings: Findings) -> None:
    """Add byte order marks and CR LF in files of lines to `findings`; `read_bitext` adds unreadable files."""
    source = bitext.source
    is_table = isinstance(source, TableFile) and source.kind in (".tsv", ".csv", ".jsonl")
    for path in dict.fromkeys(bitext.inputs()) if is_table or isinstance(source, PairFiles) else ():
        has_mark, crlf, first = False, 0, 0
        try:
            with open_bytes(path) as stream:
                for number, line in enumerate(raw_lines(stream), 1):
                    has_mark |= number == 1 and line.startswith(BOM_UTF8)
                    if line.endswith(b"\r\n"):
                        crlf, first = crlf + 1, first or number
        except (OSError, InputError):
            continue
        if has_mark:
            findings.add("byte-order-mark", Example(bitext.split, (), str(path)))
        if crlf:
            note = f"{path}: {crlf:,} lines, the first is line {first:,}"
            findings.add("crlf", Example(bitext.split, (), note), crlf)
