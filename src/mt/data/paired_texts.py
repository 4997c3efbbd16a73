"""Texts of a folder or an archive, paired by their names: the one has a language's code where the other has another."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from mt.errors import InputError
from mt.text.archives import file_names, member_lines
from mt.text.lines import IssueHandler, decode_lines, explain_read_errors, pair_lines, read_lines


def text_pairs(names: Iterable[str], languages: tuple[str, str]) -> dict[str, tuple[str, str]]:
    """Return the source and the target text of each stem, such as train of train.en and train.de.

    >>> text_pairs(["README", "Books.en-it.it", "Books.en-it.en", "Books.en-it.xml"], ("en", "it"))
    {'Books.en-it': ('Books.en-it.en', 'Books.en-it.it')}
    """
    there, found = set(names), {}
    code = re.compile(rf"(?<![^._/-]){re.escape(languages[0])}(?![^._/-])", re.IGNORECASE)
    for name in sorted(there):
        for place in list(code.finditer(name))[::-1]:
            before, after = name[: place.start()], name[place.end() :]
            if before + languages[1] + after in there:
                stem = re.sub("[._/-]+([._/-])", r"\1", before + after).strip("._/-")
                found[stem] = name, before + languages[1] + after
                break
    return found


def names_in(path: Path) -> list[str]:
    """Return the names of the files in an archive, or in a folder and the folders in it.

    Raises:
        InputError: it is missing, damaged or unsafe.
    """
    if not path.is_dir():
        return file_names(path)
    with explain_read_errors(path):
        return sorted(each.relative_to(path).as_posix() for level in ("*", "*/*") for each in path.glob(level))


def chosen_pairs(path: Path, languages: tuple[str, str], stem: str | None = None) -> list[tuple[str, str]]:
    """Return the names of the paired texts of a folder or an archive, or of those with one stem only.

    Raises:
        InputError: there are none.
    """
    pairs = text_pairs(names := names_in(path), languages)
    if stem is not None and stem not in pairs and pairs:
        raise InputError(f"{path}: no texts with the stem {stem!r}, only {', '.join(pairs)[:300]}", "name one of these")
    if not pairs:
        message = f"{path}: no two texts whose names differ in {languages[0]} and {languages[1]}"
        there = f"it holds {', '.join(names[:10])}" if names else "it is empty"
        raise InputError(message, f"{there}; source_column and target_column name other codes of an archive")
    return list(pairs.values()) if stem is None else [pairs[stem]]


def read_paired(
    path: Path, languages: tuple[str, str], stem: str | None, on_issue: IssueHandler
) -> Iterator[tuple[int, str, str]]:
    """Yield (line, source, target) of the paired texts, one pair of texts after the other.

    Raises:
        InputError: as `chosen_pairs`; or two texts have different numbers of lines.
    """
    for names in chosen_pairs(path, languages, stem):
        source, target = (_lines(path, name, on_issue) for name in names)
        pairs = pair_lines(source, target, (f"{path}/{names[0]}", f"{path}/{names[1]}"), on_issue)
        yield from ((line, src, tgt) for line, (src, tgt) in enumerate(pairs, 1))


def _lines(path: Path, name: str, on_issue: IssueHandler) -> Iterator[str]:
    if path.is_dir():
        return read_lines(path / name, on_issue)
    return decode_lines(member_lines(path, name), f"{path}/{name}", on_issue=on_issue)
