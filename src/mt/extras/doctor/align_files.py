"""Alignment of two text files by sentences, by words, or by lines if their numbers of lines differ."""

import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path

import numpy as np

from mt.console import log, table
from mt.data.paired_texts import LineText
from mt.data.ragged import Array, Ragged
from mt.data.word_alignment import align_words
from mt.errors import InputError
from mt.extras.doctor.alignment import MIN_KNOWN, Link, align, table_cells, with_gaps
from mt.storage import atomic
from mt.text.lines import read_lines, read_parallel
from mt.text.words import WORD

_SPACED = re.compile(r"\S+")
_MAX_LINES = 300_000  # of a side
_MAX_CELLS = 250_000_000  # 6 bytes each
_WINDOW = 1000  # lines that show whether two texts are in step
_IN_STEP, _MARGIN = 2000, 20  # lines before two texts diverge: to learn a lexicon from; that may be linked differently


def align_files(source: Path, target: Path, output: Path, min_score: float | None) -> str:
    """Write the aligned sentences as a table with a header, and return counts of how they were aligned.

    Raises InputError if a file is missing, empty, not UTF-8 or too long, or their lengths are too different.
    """
    texts = [_sentences(path) for path in (source, target)]
    if table_cells(*map(len, texts)) > _MAX_CELLS:
        sizes = f"{source} has {len(texts[0]):,} sentences and {target} {len(texts[1]):,}"
        raise InputError(f"{sizes}, too different to be aligned", "split both texts, by chapters for example")
    links = align(*texts)
    if (n_single := sum(link.is_single for link in links)) < MIN_KNOWN:
        message = "the alignment may be wrong: too few likely pairs (%d) to learn a lexicon from"
        log.warning(message, n_single)
    links = [link for link in links if min_score is None or link.score >= min_score]
    with atomic.new_file(output) as write:
        write(b"source\ttarget\tscore\n")
        for link in links:
            source_text, target_text = " ".join(texts[0][slice(*link.source)]), " ".join(texts[1][slice(*link.target)])
            write(f"{source_text}\t{target_text}\t{link.score:.2f}\n".encode())
    kinds = Counter(tuple(end - start for start, end in (link.source, link.target)) for link in links)
    rows = [[f"{n_src} to {n_tgt}", f"{count:,}"] for (n_src, n_tgt), count in kinds.most_common()]
    for side, (path, text) in enumerate(zip((source, target), texts, strict=True)):
        alone = len(text) - sum(count * kind[side] for kind, count in kinds.items())
        rows.append([f"without a partner in {path}", f"{alone:,}"])
    return table(["sentences", "pairs"], rows)


def _sentences(path: Path) -> list[str]:
    """Return the lines that are not empty, each as a cell of a table."""
    lines = [line for text in read_lines(path) if (line := text.replace("\t", " ").strip())]
    if not lines:
        raise InputError(f"{path}: no sentence in it")
    if len(lines) > _MAX_LINES:
        raise InputError(f"{path}: more than {_MAX_LINES:,} sentences", "split both texts, by chapters for example")
    return lines


def lines_in_step(source: LineText, target: LineText) -> int:
    """Return the number of lines after which two texts stay out of step, by bisection."""
    n_lines = min(_count(source), _count(target))
    low, high = 0, -(-n_lines // _WINDOW)  # windows: in step before `low`, out of step from `high` on
    while low < high:
        middle = (low + high) // 2
        on, off = _diagonal(_aligned(source, target, middle * _WINDOW, (middle + 1) * _WINDOW))
        low, high = (middle + 1, high) if len(on) > len(off) else (low, middle)
    start = max(0, low - 1) * _WINDOW
    on, off = _diagonal(_aligned(source, target, start, min(n_lines, start + 2 * _WINDOW)))
    if not len(off):
        return n_lines
    ends = np.concatenate([[0], on + 1])
    lead = np.arange(len(ends)) + len(off) - np.searchsorted(off, ends)  # lines that say so
    return start + int(ends[lead.argmax()])


def _diagonal(links: list[Link]) -> tuple[Array, Array]:
    """Return the source lines that belong to the target line of the same number, and those that do not."""
    single = [link for link in links if link.is_single]
    on = np.array([link.source == link.target for link in single], np.bool_)
    lines = np.array([link.source[0] for link in single], np.int64)
    return lines[on], lines[~on]


def line_links(source: LineText, target: LineText) -> tuple[Link, ...]:
    """Link all lines of two texts of different length, from shortly before they go out of step.

    A line without a partner has a link with an empty range. Texts of the same length have no links, nor has an empty
    text, which reading reports. Raises InputError if there are too many lines to be aligned.
    """
    counts = [_count(text) for text in (source, target)]
    if counts[0] == counts[1] or 0 in counts:
        return ()
    in_step = lines_in_step(source, target)
    start = max(0, in_step - _IN_STEP)
    n_source, n_target = (count - start for count in counts)
    if max(n_source, n_target) > _MAX_LINES or table_cells(n_source, n_target) > _MAX_CELLS:
        message = f"{source} has {counts[0]:,} lines and {target} {counts[1]:,}, too many to be aligned"
        raise InputError(message, f"split both; they are out of step from line {in_step + 1:,} on")
    links = list(with_gaps(_aligned(source, target, start, max(counts)), n_source, n_target))
    certain = max(0, in_step - start - _MARGIN)  # lines in step
    first = max(n for n, link in enumerate(links) if link.source[0] == link.target[0] <= certain)
    return tuple(link.moved(start) for link in links[first:])


def _lines(text: LineText) -> Iterator[str]:
    """Yield the lines, also those that are not UTF-8."""
    return text.lines(lambda fault: None)


def _count(text: LineText) -> int:
    return sum(1 for _ in _lines(text))


def _aligned(source: LineText, target: LineText, start: int, end: int) -> list[Link]:
    """Align the lines `start` to `end` of two texts; links count from `start`."""
    return align(*(list(islice(_lines(text), start, end)) for text in (source, target)))


class _Units:
    """The words and marks of one side's lines, and the space-separated words that they belong to.

    Attributes:
        ids: of the words and marks, one line after another.
        starts: where each line begins.
        places: number of the space-separated word of each; -1 for punctuation attached to a word, as it is not linked.
    """

    def __init__(self) -> None:
        self._vocab: dict[str, int] = {}
        self.ids, self.starts, self.places = array("i"), array("q", [0]), array("i")

    def add(self, line: str) -> None:
        vocab = self._vocab
        for number, word in enumerate(_SPACED.findall(line)):
            units = WORD.findall(word.lower())
            self.ids.extend([vocab.setdefault(unit, len(vocab)) for unit in units])
            is_mark = not any(map(str.isalnum, word))
            self.places.extend([number if is_mark or unit[0].isalnum() else -1 for unit in units])
        self.starts.append(len(self.ids))

    def words(self) -> Ragged:
        """Return the words and marks of all lines; the arrays are not copied."""
        return Ragged(np.asarray(self.ids), np.asarray(self.starts))

    def lines(self) -> Iterator[Sequence[int]]:
        """Yield the places of each line."""
        return (self.places[start:end] for start, end in pairwise(self.starts))


def write_word_links(source: Path, target: Path, output: Path) -> str:
    """Write a line of links for each pair of lines, and return a summary.

    A link is SOURCE-TARGET, the numbers from 0 of two words between white space. Raises InputError if a file is
    missing or not UTF-8, their numbers of lines differ, or there is no word in them.
    """
    first, second = _Units(), _Units()
    for src_line, tgt_line in read_parallel(source, target):
        first.add(src_line)
        second.add(tgt_line)
    if not first.ids or not second.ids:
        raise InputError(f"{source} and {target}: no words to align", "give two files of sentences")
    linked = n_words = 0
    with atomic.new_file(output) as write:
        aligned = align_words(first.words(), second.words())
        for links, src, tgt in zip(aligned, first.lines(), second.lines(), strict=True):
            pairs = sorted({(src[s], tgt[t]) for s, t in links if min(src[s], tgt[t]) >= 0})
            write(" ".join(f"{s}-{t}" for s, t in pairs).encode() + b"\n")
            linked, n_words = linked + len({t for _, t in pairs}), n_words + len({*tgt} - {-1})
    return f"{len(first.starts) - 1:,} pairs of lines, {linked / max(1, n_words):.0%} of the target words linked"
