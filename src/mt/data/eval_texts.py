"""Validation and test text: raw source sentences and their references."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mt.console import log
from mt.data.mixture import read_parts, target_languages
from mt.errors import InputError
from mt.storage.run_dir import RunDir
from mt.text.lines import nfc, read_lines, read_parallel


@dataclass(frozen=True)
class EvalText:
    """Sentences and their references in one target language, aligned."""

    target_lang: str
    sources: list[str]
    references: list[str]


def nfc_lines(lines: Iterable[str], name: object) -> list[str]:
    """Return lines in Unicode normal form C, the form that models write, and log how many changed."""
    raw = list(lines)
    normalized = list(map(nfc, raw))
    if changed := sum(a != b for a, b in zip(normalized, raw, strict=True)):
        log.info("%s: %d lines are compared in Unicode normal form C, the form that models write", name, changed)
    return normalized


def read_texts(run: RunDir, split: str, target_langs: Sequence[str]) -> list[EvalText]:
    """Return a run's `valid` or `test` text, one for each of its languages that has any."""
    sources, path = list(read_lines(run.text_file(split, "source"))), run.text_file(split, "target")
    references = nfc_lines(read_lines(path), path)
    if len(target_langs) == 1:
        return [EvalText(target_langs[0], sources, references)]
    texts = {language: EvalText(language, [], []) for language in target_langs}
    languages = target_languages(read_parts(run.prepared_counts, split))
    for language, source, reference in zip(languages, sources, references, strict=True):
        texts[language].sources.append(source)
        texts[language].references.append(reference)
    return [text for text in texts.values() if text.sources]


def read_pair(source: Path, reference: Path, target_lang: str) -> EvalText:
    """Read two aligned files.

    Raises:
        InputError: they have different numbers of lines, or none.
    """
    pairs = list(read_parallel(source, reference))
    if not pairs:
        raise InputError(f"{source}: the file is empty", "a test set needs at least one sentence")
    return EvalText(target_lang, [source for source, _ in pairs], nfc_lines((target for _, target in pairs), reference))
