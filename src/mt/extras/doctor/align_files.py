"""Alignment of two text files into a table of sentence pairs."""

from collections import Counter
from pathlib import Path

from mt.console import table
from mt.errors import InputError
from mt.extras.doctor.alignment import align, table_cells
from mt.storage import atomic
from mt.text.lines import read_lines

_MAX_LINES = 300_000  # of a side
_MAX_CELLS = 250_000_000  # 5 bytes each


def align_files(source: Path, target: Path, output: Path, min_score: float | None) -> str:
    """Write the aligned sentences as a table with a header, and return counts of how they were aligned.

    Raises:
        InputError: a file is missing, empty, not UTF-8 or too long, or their lengths are too different.
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
