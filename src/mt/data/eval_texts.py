"""Validation and test text: raw source sentences and their references."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mt.console import log
from mt.data.mixture import direction, part_of_each, read_parts
from mt.errors import InputError
from mt.storage.run_dir import RunDir
from mt.text.lines import nfc, read_lines, read_parallel

if TYPE_CHECKING:
    from mt.config import DataConfig


@dataclass(frozen=True)
class EvalText:
    """Sentences and their references in one direction, aligned."""

    target_lang: str
    sources: list[str]
    references: list[str]
    source_lang: str = ""  # empty where the model has one source language, or it is unknown
    zero_shot: bool = False  # the model was trained on both languages, but not on this pair of them

    @property
    def direction(self) -> str:
        """The direction as tables and files name it."""
        return direction(self.source_lang, self.target_lang)


def nfc_lines(lines: Iterable[str], name: object) -> list[str]:
    """Return lines in Unicode normal form C, the form that models write, and log how many changed."""
    raw = list(lines)
    normalized = list(map(nfc, raw))
    if changed := sum(a != b for a, b in zip(normalized, raw, strict=True)):
        log.info("%s: %d lines are compared in Unicode normal form C, the form that models write", name, changed)
    return normalized


def read_texts(run: RunDir, split: str, data: "DataConfig") -> list[EvalText]:
    """Return a run's `valid` or `test` text, one for each of its directions that has any."""
    sources, path = list(read_lines(run.text_file(split, "source"))), run.text_file(split, "target")
    references = nfc_lines(read_lines(path), path)
    if len(data.target_lang) == len(data.source_lang) == 1:
        return [EvalText(data.target_lang[0], sources, references)]
    texts, trained = {}, set(data.pairs)
    for source in data.source_lang:
        for target in data.target_lang:
            text = EvalText(target, [], [], data.own_source(source), (source, target) not in trained)
            texts[text.direction] = text
    parts = part_of_each(read_parts(run.prepared_counts, split))
    for part, source, reference in zip(parts, sources, references, strict=True):
        texts[part.direction].sources.append(source)
        texts[part.direction].references.append(reference)
    return [text for text in texts.values() if text.sources]


def read_pair(source: Path, reference: Path, target_lang: str) -> EvalText:
    """Read two aligned files; raise InputError if they have different numbers of lines, or none."""
    pairs = list(read_parallel(source, reference))
    if not pairs:
        raise InputError(f"{source}: the file is empty", "a test set needs at least one sentence")
    return EvalText(target_lang, [src for src, _ in pairs], nfc_lines((tgt for _, tgt in pairs), reference))
