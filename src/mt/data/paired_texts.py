"""Texts of a folder or an archive, paired by their names, which differ in the language code only."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path

from mt.errors import InputError
from mt.text.archives import ARCHIVES, file_names, member_lines, refuse_too_many
from mt.text.compressed import COMPRESSED
from mt.text.languages import base_language
from mt.text.lines import IssueHandler, decode_lines, explain_read_errors, pair_lines, raise_issue, read_lines


def text_pairs(names: Iterable[str], languages: tuple[str, str]) -> dict[str, list[tuple[str, str]]]:
    """Return the source and target texts of each stem, such as train of train.en and train.de.

    Codes are matched in any case. Several pairs may have one stem: a.en and a.de, en/a and de/a.

    >>> text_pairs(["README", "Books.en-it.it", "Books.en-it.en", "Books.en-it.xml"], ("en", "it"))
    {'Books.en-it': [('Books.en-it.en', 'Books.en-it.it')]}
    """
    texts = {name for name in names if not name.rpartition("/")[2].startswith("._")}  # what macOS adds to archives
    targets = {place: name for name in sorted(texts) for place in _places(name, languages[1])}
    source_of_target: dict[str, dict[str, str]] = {}  # by stem
    for name in sorted(texts):
        places = _places(name, languages[0])
        exact = [(place, languages[1].join(place)) for place in places if languages[1].join(place) in texts]
        any_case = [(place, targets[place]) for place in places if targets.get(place, name) != name]
        for (before, after), target in [*exact, *any_case][:1]:
            stem = re.sub("[._/-]+([._/-])", r"\1", before + after).strip("._/-")
            source_of_target.setdefault(stem, {})[target] = name
    return {stem: [(source, target) for target, source in pairs.items()] for stem, pairs in source_of_target.items()}


def _places(name: str, code: str) -> list[tuple[str, str]]:
    """Return what is before and after each occurrence of a language's code in a name, the last one first."""
    matches = re.finditer(rf"(?<![^._/-]){re.escape(code)}(?![^._/-])", name, re.IGNORECASE)
    return [(name[: match.start()], name[match.end() :]) for match in matches][::-1]


def names_in(path: Path) -> list[str]:
    """Return the names of the files in an archive, or in a folder and its subfolders, without hidden ones.

    Raises InputError if it is missing, damaged, unsafe, or neither a folder nor an archive.
    """
    if not path.is_dir():
        if path.exists() and not path.name.lower().endswith(ARCHIVES):
            raise InputError(f"{path}: neither a folder nor an archive of texts", "name a table with `file`")
        return file_names(path)
    names = set()
    with explain_read_errors(path):
        for entry in chain(path.glob("*/*"), path.rglob("*")):  # rglob alone does not follow symbolic links
            name = entry.relative_to(path)
            is_hidden = any(part.startswith(".") for part in name.parts)  # such as leftovers of a killed command
            if entry.is_file() and not is_hidden:
                names.add(name.as_posix())
            refuse_too_many(len(names), path)
    return sorted(names)


@dataclass(frozen=True)
class LineText:
    """A text of lines: a file, or one in an archive."""

    path: Path
    member: str | None = None  # of the archive

    def __str__(self) -> str:
        return str(self.path) if self.member is None else f"{self.path}/{self.member}"

    def lines(self, on_issue: IssueHandler = raise_issue) -> Iterator[str]:
        """Yield its lines; each call reads it again."""
        if self.member is None:
            return read_lines(self.path, on_issue)
        if Path(self.member).suffix.lower() in COMPRESSED:
            raise InputError(f"{self}: compressed within an archive", "pack the texts uncompressed")
        return decode_lines(member_lines(self.path, self.member), str(self), on_issue=on_issue)


LinePair = tuple[LineText, LineText]


def paired_texts(path: Path, languages: tuple[str, str], stem: str | None = None) -> list[LinePair]:
    """Return the paired texts of a folder or an archive, or those with one stem only.

    If no names have the codes with their regions or scripts, such as en-GB or eng_Latn, bare codes match, too.

    Raises InputError if there are none.
    """
    names, bases = names_in(path), [base_language(code) for code in languages]
    spelled = [languages] if bases[0] == bases[1] else product(*map(dict.fromkeys, zip(languages, bases, strict=True)))
    pairs = next(filter(None, (text_pairs(names, (source, target)) for source, target in spelled)), {})
    if stem is not None and stem not in pairs and pairs:
        raise InputError(f"{path}: no texts with the stem {stem!r}, only {', '.join(pairs)[:300]}", "name one of these")
    if not pairs:
        message = f"{path}: no two texts whose names differ in {languages[0]} and {languages[1]}"
        hint = f"it holds {', '.join(names[:10])}" if names else "it is empty"
        if not path.is_dir():
            hint += "; source_column and target_column name other codes of an archive"
        raise InputError(message, hint)

    def text(name: str) -> LineText:
        return LineText(path / name) if path.is_dir() else LineText(path, name)

    chosen = chain.from_iterable(pairs.values()) if stem is None else pairs[stem]
    return [(text(source), text(target)) for source, target in chosen]


def read_line_pairs(pair: LinePair, on_issue: IssueHandler) -> Iterator[tuple[str, str]]:
    """Yield the line pairs of two texts.

    Raises InputError if one cannot be read, or they have different numbers of lines.
    """
    source, target = pair
    return pair_lines(source.lines(on_issue), target.lines(on_issue), (str(source), str(target)), on_issue)
