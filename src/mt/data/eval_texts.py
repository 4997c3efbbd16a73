"""Validation and test text: raw sentences, with what they should become."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mt.console import log
from mt.data.mixture import languages, read_parts
from mt.errors import InputError
from mt.storage.run_dir import RunDir
from mt.text.lines import nfc, read_lines, read_parallel


@dataclass(frozen=True)
class Text:
    """Sentences and their translations into one language, aligned."""

    target_lang: str
    sources: list[str]
    references: list[str]


def comparable(lines: Iterable[str], name: object) -> list[str]:
    """Lines in Unicode's normal form C, in which models write: an accent of its own would make every word another."""
    before = list(lines)
    after = list(map(nfc, before))
    if changed := sum(a != b for a, b in zip(after, before, strict=True)):
        log.info("%s: %d lines are compared in Unicode's normal form C, in which models write", name, changed)
    return after


def read_texts(run: RunDir, split: str, target_langs: Sequence[str]) -> list[Text]:
    """The validation or test text of a run: one for each of its languages that has any.

    Args:
        run: where it lies.
        split: valid or test.
        target_langs: the languages of the run.
    """
    sources, path = list(read_lines(run.text_file(split, "source"))), run.text_file(split, "target")
    references = comparable(read_lines(path), path)
    if len(target_langs) == 1:
        return [Text(target_langs[0], sources, references)]
    texts = {language: Text(language, [], []) for language in target_langs}
    spoken = languages(read_parts(run.prepared_counts, split))
    for language, source, reference in zip(spoken, sources, references, strict=True):
        texts[language].sources.append(source)
        texts[language].references.append(reference)
    return [text for text in texts.values() if text.sources]


def read_pair(source: Path, reference: Path, target_lang: str) -> Text:
    """Two files as one text.

    Raises:
        InputError: they are not aligned, or empty.
    """
    pairs = list(read_parallel(source, reference))
    if not pairs:
        raise InputError(f"{source}: no line in it", "a set to score on needs at least one sentence")
    return Text(target_lang, [source for source, _ in pairs], comparable((target for _, target in pairs), reference))
