"""Glossaries: terms with their translations, from TSV or TBX files, and where source text has them."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from mt.data.bilingual import choose_languages, read_units
from mt.data.tokenizer import normalized
from mt.errors import InputError
from mt.text.languages import is_spaced
from mt.text.lines import read_lines

_HEADERS = ({"source", "src"}, {"target", "trg", "tgt"})


class Term(NamedTuple):
    """An occurrence of a term in source text.

    Attributes:
        start, end: of its characters.
        forms: of its translation that are accepted, the preferred one first.
        sentence_case: whether a form that begins the translation is capitalised.
        is_spaced: whether the target language writes spaces, so that only a whole word counts.
    """

    start: int
    end: int
    forms: tuple[str, ...]
    sentence_case: bool = True
    is_spaced: bool = True

    def form(self, begins: bool) -> str:
        """Return the form for a place that begins the translation, or for another."""
        return _capitalized(self.forms[0]) if begins and self.sentence_case else self.forms[0]

    def is_in(self, text: str) -> bool:
        """Return True if a translation has the term."""
        if self.sentence_case and text.startswith(_capitalized(self.forms[0])):
            text = self.forms[0] + text[len(self.forms[0]) :]
        return any(self._has(text, form) for form in self.forms)

    def _has(self, text: str, form: str) -> bool:
        if not self.is_spaced:
            return form in text
        starts = (match.start() for match in re.finditer(f"(?={re.escape(form)})", text))  # overlapping ones, too
        return any(is_whole_word(text, start, start + len(form)) for start in starts)


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def is_whole_word(text: str, start: int, end: int) -> bool:
    """Return True if no word continues over the edges of a span."""
    return not (_joined(text[start - 1 : start + 1] if start else "") or _joined(text[end - 1 : end + 1]))


def _joined(edge: str) -> bool:
    return len(edge) == 2 and re.fullmatch(r"\w\w", edge) is not None


class Terms:
    """The terms of one direction.

    Args:
        entries: source and target; a target that is empty or the source keeps the text as it is.
        keep: patterns of text to keep as it is.
        languages: of the source (empty if unknown) and the target.
    """

    def __init__(
        self, entries: dict[str, str], keep: Sequence[re.Pattern[str]] = (), languages: tuple[str, str] = ("", "")
    ) -> None:
        self._keep = keep
        self._spaced, self._into_spaced = map(is_spaced, languages)
        self._word = re.compile(r"\w+|\S" if self._spaced else r"\S")
        self._by_word: dict[str, list[tuple[str, str]]] = {}  # by its first word in lower case
        for source, target in sorted(entries.items(), key=lambda entry: -len(entry[0])):
            first = self._word.match(source)
            assert first is not None
            self._by_word.setdefault(first[0].lower(), []).append((source, target))

    def find(self, text: str) -> list[Term]:
        """Return the terms of a text from left to right; where some overlap, the longest counts."""
        kept = [self._kept(m.start(), m.end(), m[0]) for pattern in self._keep for m in pattern.finditer(text)]
        found: list[Term] = []
        for term in sorted([*kept, *self._occurrences(text)], key=lambda term: term.start - term.end):
            if term.end > term.start and not any(term.start < o.end and o.start < term.end for o in found):
                found.append(term)
        return sorted(found)

    def _kept(self, start: int, end: int, text: str) -> Term:
        return Term(start, end, (text,), False, self._into_spaced)

    def _occurrences(self, text: str) -> Iterator[Term]:
        for word in self._word.finditer(text):
            start, matches = word.start(), []
            for source, target in self._by_word.get(word[0].lower(), ()):
                end = start + len(source)
                spelt = text[start:end]
                if spelt in (source, _capitalized(source), source.upper()) and (
                    not self._spaced or is_whole_word(text, start, end)
                ):
                    matches.append((spelt != source, start, end, source, target, spelt))
            for different, *_, source, target, spelt in sorted(matches, key=lambda m: (-m[2], m[0]))[:1]:
                if target in ("", source):
                    yield self._kept(start, start + len(spelt), spelt)
                    continue
                forms: tuple[str, ...] = (target,)
                if different:
                    upper = len(spelt) > 1 and spelt == source.upper()
                    forms = (target.upper(), target) if upper else (target, _capitalized(target))
                yield Term(start, start + len(spelt), forms, True, self._into_spaced)


class Glossary:
    """A file of terms, with patterns of text to keep as it is.

    Args:
        path: the file: TBX, or else TSV (source, tab, target); None for patterns alone.
        keep: the patterns.

    Raises:
        InputError: the file cannot be read, a term has two translations, or a pattern is none.
    """

    def __init__(self, path: Path | None, keep: Sequence[str] = ()) -> None:
        self._path, self._directions = path, dict[tuple[str, str], Terms]()
        self._keep = [_compiled(pattern) for pattern in keep]
        self._is_tbx = path is not None and path.name.lower().endswith(".tbx")
        self._entries = {} if path is None or self._is_tbx else _unique(_tsv_rows(path), path)

    def terms(self, source_lang: str, target_lang: str) -> Terms:
        """Return the terms of a direction; a TSV file has the same for all."""
        pair = (source_lang, target_lang)
        if pair not in self._directions:
            path, entries = self._path, self._entries
            if self._is_tbx and path is not None:
                entries = _unique(_tbx_rows(path, pair), path)
            self._directions[pair] = Terms(entries, self._keep, pair)
        return self._directions[pair]


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InputError(f"--keep {pattern}: not a regular expression ({error})", "escape special characters") from None


def _tsv_rows(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield line, source and target; further columns, empty lines, comments and a header do not count."""
    first = True
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip() or line.startswith("#"):
            continue
        cells = [normalized(cell) for cell in line.split("\t")]
        header, first = first, False
        if header and len(cells) > 1 and all(c.lower() in names for c, names in zip(cells, _HEADERS, strict=False)):
            continue
        if len(cells) < 2 or not cells[0]:
            problem = "has no tab" if len(cells) < 2 else "has no source term"
            raise InputError(f"{path}:{number}: {problem}", "write source, tab, target")
        yield number, cells[0], cells[1]


def _tbx_rows(path: Path, languages: tuple[str, str]) -> Iterator[tuple[int, str, str]]:
    """Yield line, source and target of each concept; of several target terms the first, the preferred one, counts."""
    found = False
    for number, texts in read_units(path, ".tbx"):
        names = [name for name, _ in texts]
        if chosen := choose_languages(languages, names):
            found = True
            for name, text in texts:
                if name == names[chosen[0]]:
                    yield number, normalized(text), normalized(texts[chosen[1]][1])
    if not found:
        raise InputError(f"{path}: no term in {' and '.join(languages)}", "check the languages of its terms")


def _unique(rows: Iterator[tuple[int, str, str]], path: Path) -> dict[str, str]:
    entries: dict[str, tuple[int, str]] = {}
    for number, source, target in rows:
        line, other = entries.setdefault(source, (number, target))
        if other != target:
            message = f"{path}:{number}: '{source}' is '{target}' here and '{other}' in line {line}"
            raise InputError(message, "keep one translation")
    return {source: target for source, (_, target) in entries.items()}
