"""Alignment of two text files: into a table of sentence pairs, or of their lines where the numbers of them differ."""

from collections import Counter
from itertools import islice
from pathlib import Path

from mt.console import table
from mt.data.paired_texts import LineText
from mt.errors import InputError
from mt.extras.doctor.alignment import Link, align, in_step_until, table_cells, with_gaps
from mt.storage import atomic
from mt.text.lines import TextIssue, read_lines

_MAX_LINES = 300_000  # of a side
_MAX_CELLS = 250_000_000  # 5 bytes each
_IN_STEP, _MARGIN = 2000, 20  # lines aligned with those after them for their words, and those that may change


def align_files(source: Path, target: Path, output: Path, min_score: float | None) -> str:
    """Write the aligned sentences as a table with a header, and return counts of how they were aligned.

    Raises InputError if a file is missing, empty, not UTF-8 or too long, or their lengths are too different.
    """
    texts = [_sentences(path) for path in (source, target)]
    if table_cells(*map(len, texts)) > _MAX_CELLS:
        message = (
            f"{source} has {len(texts[0]):,} sentences and {target} {len(texts[1]):,}, too different to be aligned"
        )
        raise InputError(message, "split both texts, by chapters for example")
    links = [link for link in align(*texts) if min_score is None or link.score >= min_score]
    with atomic.new_file(output) as write:
        write(b"source\ttarget\tscore\n")
        for link in links:
            sides = (
                " ".join(text[slice(*lines)]) for text, lines in zip(texts, (link.source, link.target), strict=True)
            )
            write("\t".join([*sides, f"{link.score:.2f}"]).encode() + b"\n")
    kinds = Counter(tuple(end - start for start, end in (link.source, link.target)) for link in links)
    rows = [[f"{n_src} to {n_tgt}", f"{count:,}"] for (n_src, n_tgt), count in kinds.most_common()]
    for path, text, side in zip((source, target), texts, (0, 1), strict=True):
        alone = len(text) - sum(count * kind[side] for kind, count in kinds.items())
        rows.append([f"without a partner in {path}", f"{alone:,}"])
    return table(["sentences", "pairs"], rows)


def _sentences(path: Path) -> list[str]:
    """Return the lines that are not empty, each as a cell of a table."""
    lines = [line for text in read_lines(path) if (line := " ".join(text.split()))]
    if not lines:
        raise InputError(f"{path}: no sentence in it")
    if len(lines) > _MAX_LINES:
        raise InputError(f"{path}: more than {_MAX_LINES:,} sentences", "split both texts, by chapters for example")
    return lines


def parting_line(source: LineText, target: LineText) -> int:
    """Return the number of lines after which two texts stay out of step."""
    return in_step_until(lambda start, end: _lines(source, target, start, end), min(map(_count, (source, target))))


def line_links(source: LineText, target: LineText) -> tuple[Link, ...]:
    """Align the lines of two texts from shortly before the line where they part; all of them are in a link.

    A line without a partner has a link with an empty range; texts of the same length have no links. Raises InputError
    if there are too many lines to be aligned.
    """
    counts = [_count(text) for text in (source, target)]
    if counts[0] == counts[1]:
        return ()
    parting = parting_line(source, target)
    start = max(0, parting - _IN_STEP)
    n_source, n_target = (count - start for count in counts)
    if max(n_source, n_target) > _MAX_LINES or table_cells(n_source, n_target) > _MAX_CELLS:
        message = f"{source} has {counts[0]:,} lines and {target} {counts[1]:,}, too many to be aligned"
        raise InputError(message, f"split both; they are out of step from line {parting + 1:,} on")
    links = list(with_gaps(align(*_lines(source, target, start, max(counts))), n_source, n_target))
    certain = max(0, parting - start - _MARGIN)  # lines in step
    first = max(n for n, link in enumerate(links) if link.source[0] == link.target[0] <= certain)
    return tuple(link.moved(start) for link in links[first:])


def _count(text: LineText) -> int:
    return sum(1 for _ in text.lines(_ignored))


def _lines(source: LineText, target: LineText, start: int, end: int) -> tuple[list[str], list[str]]:
    first, second = (list(islice(text.lines(_ignored), start, end)) for text in (source, target))
    return first, second


def _ignored(fault: TextIssue) -> None:
    """Accept a line that is not UTF-8."""
