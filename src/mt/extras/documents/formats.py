"""Kinds of documents: which can be translated, and what to do with the others."""

import re
from contextlib import suppress
from pathlib import Path

from mt.errors import InputError

_SUFFIXES = {
    **{f".{kind}": kind for kind in "docx pptx odt epub html md srt vtt po xliff tmx csv tsv".split()},
    **{".htm": "html", ".xhtml": "html", ".markdown": "md", ".pot": "po", ".xlf": "xliff", ".odp": "odt"},
}
FORMATS = tuple(sorted(set(_SUFFIXES.values())))
# Hints for documents that cannot be translated, by suffix
_AS_DOCX, _AS_TEXT = "save it as .docx or .odt in its program", "export its text, or the document it was made of"
_REFUSED = {
    **dict.fromkeys((".doc", ".rtf", ".pages", ".wpd", ".dotx"), _AS_DOCX),
    **dict.fromkeys((".ppt", ".key"), "save it as .pptx"),
    **dict.fromkeys((".xls", ".xlsx", ".ods", ".numbers"), "save the sheet as .csv"),
    **dict.fromkeys((".pdf", ".ps", ".djvu", ".mobi", ".tex"), _AS_TEXT),
    **dict.fromkeys(".png .jpg .jpeg .gif .webp .tif .tiff .bmp".split(), "read its text with OCR first"),
    **dict.fromkeys((".zip", ".tar", ".7z", ".rar"), "unpack it"),
}
_TEXT_KINDS = frozenset("html md srt vtt po xliff tmx csv tsv".split())
_MAGIC = {  # first bytes of archives and of documents that are no text
    b"PK\x03\x04": ".zip",
    b"%PDF": ".pdf",
    b"{\\rtf": ".rtf",
    b"\xd0\xcf\x11\xe0": ".doc",
    b"\x89PNG": ".png",
    b"\xff\xd8\xff": ".jpg",
}


def named_format(path: Path) -> str | None:
    """Return the kind that a file name's suffix stands for; None if it is unknown."""
    return _SUFFIXES.get(path.suffix.lower())


def document_format(path: Path, override: str | None = None) -> str | None:
    """Return the kind of a document by its name and its first bytes; None for plain lines of text.

    Raises:
        InputError: a document of a kind that cannot be translated, or `override` is no kind.
    """
    if override is not None and override not in FORMATS:
        raise InputError(f"--format: '{override}' is not one of {', '.join(FORMATS)}")
    kind, suffix, beginning = override or named_format(path), path.suffix.lower(), b""
    with suppress(OSError):
        if path.is_file():  # a pipe cannot be read twice, and a named one not even opened
            with path.open("rb") as file:
                beginning = file.read(8)
    actual = next((name for magic, name in _MAGIC.items() if beginning.startswith(magic)), suffix)
    if kind is not None:
        if kind in _TEXT_KINDS and actual in _REFUSED and actual != suffix:
            raise InputError(f"{path}: not .{kind} but a {actual} file", _REFUSED[actual])
        return kind
    if actual == ".zip" and beginning:
        return _kind_of_archive(path)
    if actual in _REFUSED:
        raise InputError(f"{path}: a {actual} file cannot be translated", _REFUSED[actual])
    return None


def names_document(text: str) -> bool:
    """Return whether a text looks like the file name of a document: one word with a known suffix."""
    return not re.search(r"\s", text) and (Path(text).suffix.lower() in {*_SUFFIXES, *_REFUSED})


def decode_utf8(content: bytes, place: str) -> str:
    """Decode a document; `InputError` with the line where it is not UTF-8."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{place}:{line}: not valid UTF-8", "save it in UTF-8") from None


def _kind_of_archive(path: Path) -> str:
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            names = set(archive.namelist())
    except (zipfile.BadZipFile, OSError, NotImplementedError, ValueError) as error:
        raise InputError(f"{path}: a damaged archive ({error})", "save or download it again") from None
    for kind, part in {"docx": "word/document.xml", "pptx": "ppt/presentation.xml", "odt": "content.xml"}.items():
        if part in names:
            return kind
    raise InputError(f"{path}: an archive cannot be translated", _REFUSED.get(path.suffix.lower(), "unpack it"))
