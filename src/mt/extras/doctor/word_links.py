"""Word alignment of two files whose lines are translations of each other, in Pharaoh's format: `0-0 1-2`."""

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from mt.data.word_alignment import Words, align_words
from mt.errors import InputError
from mt.storage import atomic
from mt.text.lines import read_parallel
from mt.text.words import WORD

_SPACED = re.compile(r"\S+")


class _Side:
    """Words and punctuation marks of all lines, as ids, and the words between spaces that they belong to."""

    def __init__(self, lines: Iterable[str]) -> None:
        vocab: dict[str, int] = {}
        ids, starts = list[int](), [0]
        self.spaced: list[list[int | None]] = []
        for line in lines:
            spaced: list[int | None] = []
            for number, found in enumerate(_SPACED.finditer(line)):
                units = WORD.findall(found[0].lower())
                ids += [vocab.setdefault(unit, len(vocab)) for unit in units]
                is_mark = not any(map(str.isalnum, found[0]))
                # A mark at a word says nothing about that word.
                spaced += [number if is_mark or unit[0].isalnum() else None for unit in units]
            starts.append(len(ids))
            self.spaced.append(spaced)
        self.words = Words(np.array(ids, np.int64), np.array(starts))


def write_word_links(source: Path, target: Path, output: Path) -> str:
    """Write a line of links for each pair of lines, and return a summary.

    Words are what white space separates, counted from 0, the source's first. Raises InputError if a file is missing
    or not UTF-8, they differ in their numbers of lines, or there is no word in them.
    """
    sides = [_Side(lines) for lines in zip(*read_parallel(source, target), strict=True)]
    if len(sides) < 2 or not all(len(side.words.ids) for side in sides):
        raise InputError(f"{source} and {target}: no words to align", "give two files of sentences")
    lines, linked, n_words = 0, 0, sum(len(set(line) - {None}) for line in sides[1].spaced)
    with atomic.new_file(output) as write:
        for links, src, tgt in zip(
            align_words(*(side.words for side in sides)), *(s.spaced for s in sides), strict=True
        ):
            found = sorted({(src[s], tgt[t]) for s, t in links if src[s] is not None and tgt[t] is not None})
            write(" ".join(f"{s}-{t}" for s, t in found).encode() + b"\n")
            lines, linked = lines + 1, linked + len({t for _, t in found})
    return f"{lines:,} pairs of lines, {linked / max(1, n_words):.0%} of the target words linked"
