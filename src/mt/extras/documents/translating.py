"""Translation of a document: its kind, its segments, and the same document with translations in them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mt.console import log
from mt.errors import InputError, require_package
from mt.extras.documents.bilingual import XmlFile
from mt.extras.documents.formats import FORMATS, decode_utf8, document_format, named_format
from mt.extras.documents.lines import scan_markdown, scan_subtitles
from mt.extras.documents.markup import HTML, scan
from mt.extras.documents.packages import Package
from mt.extras.documents.po import PoFile
from mt.extras.documents.segments import Translate, translate_segments
from mt.extras.documents.splicing import Spliced
from mt.extras.documents.tables import Table
from mt.storage import atomic
from mt.storage.output_path import refuse_inputs, require_writable
from mt.text.languages import is_spaced
from mt.text.lines import explain_read_errors

_MAX_BYTES = 200_000_000  # of a document that is read into memory
# Optional dependencies, by kind
_PACKAGES = {"po": "polib", "md": "markdown_it"} | dict.fromkeys("docx pptx odt epub xliff tmx".split(), "lxml")


@dataclass(frozen=True)
class DocumentSummary:
    """The result of a document's translation."""

    segments: int  # paragraphs, cells and the like that were translated or kept
    kept: list[tuple[str, str]]  # place and reason of those that stayed as they were


def translate_document(
    source: Path,
    output: Path,
    translate: Translate,
    *,
    format_: str | None = None,
    columns: str | None = None,
    languages: tuple[str, str] = ("en", "und"),
    check_source: bool = True,
    show_sample: Callable[[str], bool | None] | None = None,
) -> DocumentSummary:
    """Translate a document into a new file of the same kind.

    Structure, formatting, code, addresses and placeholders stay. The output appears when it is complete.

    Args:
        source, output: the files.
        translate: takes sentences, and whether to align their words; returns each translation, with its words if they
            are aligned. Tags inside sentences are placed by the alignment.
        format_: the kind, where the name of the file does not say it; one of `FORMATS`.
        columns: of a table, SOURCE or SOURCE:TARGET.
        languages: source and target language.
        check_source: False if the source language is only a guess, so that a document may declare another one.
        show_sample: gets the first characters of the text before anything is translated; if it returns False,
            everything stays as it is.

    Raises:
        InputError: not a document of this kind, damaged, protected by a password, or too large; or the document
            declares other languages, or has to name the target language, which is unknown.
        MachineError: the output cannot be written.
    """
    kind = document_format(source, format_)
    if kind is None:
        raise InputError(f"{source}: the kind of this document is unknown", f"give --format, of {', '.join(FORMATS)}")
    if columns is not None and kind not in ("csv", "tsv"):
        raise InputError(f"--columns is for .csv and .tsv files, and {source} is {kind}", "leave it out")
    if named_format(output) not in (None, kind):
        raise InputError(f"--output {output}: {source} is {kind}, and kinds are not converted", f"name it .{kind}")
    if kind in _PACKAGES:
        require_package(_PACKAGES[kind], f"translating .{kind} files", "pip install 'mt-train[documents]'")
    if kind in ("xliff", "tmx") and languages[1] in ("", "und"):
        raise InputError(f"{source}: the target language is unknown, and a .{kind} file names it", "name it")
    require_writable(output, "--output")
    refuse_inputs([output], [source])
    expected = languages if check_source else ("und", languages[1])
    document = _read(_content(source), kind, columns, expected, str(source))
    result = translate_segments(document.segments, translate, languages, show_sample)
    written = document.written(result.texts)
    atomic.write_bytes(output, written.encode() if isinstance(written, str) else written)
    kept = (document.kept if isinstance(document, Spliced | PoFile) else []) + result.kept
    changed = sum(text is not None for text in result.texts)
    if changed + len(result.kept) < len(result.texts):
        log.info("%s: in %s already, so it is copied", source, languages[1])
    return DocumentSummary(changed + len(kept), kept)


def _content(path: Path) -> bytes:
    with explain_read_errors(path), path.open("rb") as file:
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise InputError(f"{path}: more than {_MAX_BYTES // 1_000_000} MB", "split it")
    if not content.strip():
        raise InputError(f"{path}: empty")
    if content.startswith(b"\xd0\xcf\x11\xe0"):  # an OLE container: an encrypted document, or one of Office 97 to 2003
        raise InputError(f"{path}: protected by a password, or of an old kind", "save it again without a password")
    return content


def _read(
    content: bytes, kind: str, columns: str | None, languages: tuple[str, str], place: str
) -> Package | XmlFile | PoFile | Table | Spliced:
    if kind in ("docx", "pptx", "odt", "epub"):
        return Package(content, kind, place)
    if kind in ("xliff", "tmx"):
        return XmlFile(content, kind, languages, place)
    if kind == "po":
        return PoFile(content, place)
    text = decode_utf8(content, place)
    if kind in ("csv", "tsv"):
        return Table(text, kind, columns, place)
    if kind == "html":
        return scan(text, HTML, "line")
    if kind == "md":
        return scan_markdown(text)
    if "-->" not in text:
        raise InputError(f"{place}: no subtitle in it", "check its kind")
    return scan_subtitles(text, kind == "vtt" or "WEBVTT" in text[:10], is_spaced(languages[1]))
