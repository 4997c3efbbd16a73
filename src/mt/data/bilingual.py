"""Sentence pairs and terms of TMX, XLIFF, gettext PO and TBX files, by language.

expat reads XML as a stream, so that memory does not grow with the file; a document that declares entities is refused.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.parsers import expat

from mt.errors import InputError, require_package
from mt.text.compressed import open_bytes
from mt.text.languages import base_language
from mt.text.lines import explain_read_errors
from mt.text.po import read_catalogue

Unit = tuple[int, list[tuple[str, str]]]  # line, and its texts with their languages

_UNNAMED = ("source", "target")  # stand for the languages that a file does not name
_UNITS = frozenset("tu trans-unit segment termEntry conceptEntry".split())
_TEXTS = frozenset("seg source target term".split())
# Inline markup of another program, and elements that hold texts of other units or of none.
_SKIPPED = frozenset("bpt ept ph it ut x bx ex alt-trans match glossEntry ignorable".split())
_ROOTS = {".tmx": ("tmx",), ".tbx": ("martif", "tbx")}  # the root of XLIFF is xliff
_BLOCK = 2**16  # bytes
_MAX_UNIT = 2**24  # bytes
_MAX_PO = 2**28  # bytes; polib needs some ten times as much memory


def bilingual_pairs(
    path: Path, kind: str, wanted: tuple[str, str], takes_unnamed: bool = True
) -> Iterator[tuple[int, str, str]]:
    """Yield (line, source, target) of each unit of a .tmx, .xliff, .xlf, .po or .tbx that has both languages.

    Of several texts in one language the first is taken; of several source terms in a .tbx each is. `en` also matches
    `en-US`. With `takes_unnamed`, a file that names no languages is assumed to be in the wanted ones.

    Raises InputError if the file is missing, of another kind, malformed or unsafe, or if no unit has both languages.
    """
    languages: dict[str, None] = {}
    has_pairs = False
    for line, texts in read_units(path, kind):
        names = [name for name, _ in texts]
        languages |= dict.fromkeys(names)
        if chosen := _choose_languages(wanted, names, takes_unnamed):
            has_pairs = True
            sources = [text for name, text in texts if name == names[chosen[0]]]
            for source in sources if kind == ".tbx" else sources[:1]:
                yield line, source, texts[chosen[1]][1]
    if not has_pairs:
        noun, hint = "unit", "name its languages with source_column and target_column"
        if kind == ".tbx":
            noun, hint = "term", "check the languages of its terms"
        present = f"only {', '.join(list(languages)[:20])}" if languages else "and no other translation"
        raise InputError(f"{path}: no {noun} in {' and '.join(wanted)}, {present}", hint)


def _choose_languages(wanted: Sequence[str], names: Sequence[str], takes_unnamed: bool) -> tuple[int, int] | None:
    """Return the indices of two languages among the names of a unit's texts, or None."""
    source, target = (_index(language, names) for language in wanted)
    if source is None and target is not None and len(names) == 2 and names[1 - target] in _UNNAMED:
        source = 1 - target
    elif target is None and source is not None and len(names) == 2 and names[1 - source] in _UNNAMED:
        target = 1 - source
    elif takes_unnamed and source is target is None and tuple(names) == _UNNAMED:
        return 0, 1
    return None if source is None or target is None or source == target else (source, target)


def _index(language: str, names: Sequence[str]) -> int | None:
    """Find a language: first the exact code, then the code without its region, or the first region of a bare code."""
    code, bare = language.lower().replace("_", "-"), base_language(language)
    spelled = [name.lower().replace("_", "-") for name in names]
    accepted = [code, bare] if code != bare else [code, *(name for name in spelled if base_language(name) == code)]
    return next((spelled.index(name) for name in accepted if name in spelled), None)


def read_units(path: Path, kind: str) -> Iterator[Unit]:
    """Yield the units with at least two non-empty texts, without the empty ones."""
    with explain_read_errors(path), open_bytes(path) as stream:
        units = _po_units(stream.read(_MAX_PO + 1), path) if kind == ".po" else _xml_units(stream, kind, path)
        for line, texts in units:
            if len(filled := [(name, text) for name, text in texts if text.strip()]) > 1:
                yield line, filled


def _po_units(content: bytes, path: Path) -> Iterator[Unit]:
    require_package("polib", f"{path}: reading .po files")
    if len(content) > _MAX_PO or b"\0" in content:
        raise InputError(f"{path}: not a gettext catalogue, or too large for one", "check its kind")
    catalogue, _, _ = read_catalogue(content, str(path))
    names = ("source", catalogue.metadata.get("Language") or "target")
    for entry in catalogue:
        if entry.obsolete or entry.fuzzy:
            continue
        forms = [text for _, text in sorted((entry.msgstr_plural or {}).items())] or [entry.msgstr]
        yield entry.linenum, list(zip(names, (entry.msgid, forms[0]), strict=True))
        if len(forms) > 1:
            yield entry.linenum, list(zip(names, (entry.msgid_plural, forms[-1]), strict=True))


def _xml_units(stream: Any, kind: str, path: Path) -> Iterator[Unit]:
    parser, fed = expat.ParserCreate(), 0
    reader = _XmlReader(parser, kind, str(path))
    while True:
        block = stream.read(_BLOCK)
        fed += len(block)
        try:
            parser.Parse(block, not block)
        except expat.ExpatError as error:
            message = f"{path}:{error.lineno}: not well-formed XML ({expat.ErrorString(error.code)})"
            raise InputError(message, "save it again in its program") from None
        except (ValueError, LookupError) as error:  # of the codec
            raise InputError(f"{path}: an encoding that cannot be read ({error})", "save it in UTF-8") from None
        yield from reader.units
        reader.units.clear()
        if not block:
            return
        reader.refuse_large(fed - max(parser.CurrentByteIndex, 0))


class _XmlReader:
    """The handlers of an XML parser: they collect finished units and hold the state of the current one."""

    def __init__(self, parser: Any, kind: str, place: str) -> None:
        self.units: list[Unit] = []
        self._parser, self._roots, self._place = parser, _ROOTS.get(kind, ("xliff",)), place
        self._open: list[str] = []  # names of the open elements, the innermost last
        self._languages = dict(zip(_UNNAMED, _UNNAMED, strict=True))  # of source and target in XLIFF
        self._language, self._text, self._size = "", [""], 0
        self._skipped = 0  # number of open elements in _SKIPPED
        self._unit: Unit = (0, [])
        parser.buffer_text = True
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler = self._characters
        parser.EntityDeclHandler = parser.SkippedEntityHandler = self._refuse_entity

    def refuse_large(self, size: int) -> None:
        if size > _MAX_UNIT:
            raise InputError(f"{self._place}: an element of more than {_MAX_UNIT // 2**20} MB", "this is not text")

    def _refuse_entity(self, *_: Any) -> None:
        raise InputError(f"{self._place}: declares entities of its own, which are not expanded", "save it without them")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        name = tag.rpartition(":")[2]
        if not self._open and name not in self._roots:
            message = f"{self._place}: not {self._roots[-1].upper()}: the root element is <{name}>"
            raise InputError(message, "check its kind")
        self._open.append(name)
        if name in _SKIPPED:
            self._skipped += 1
        elif name in ("file", "xliff"):
            for key, names in (("source", ("source-language", "srcLang")), ("target", ("target-language", "trgLang"))):
                self._languages[key] = next(filter(None, map(attributes.get, names)), self._languages[key])
        elif name in _UNITS:
            self._unit, self._size = (self._parser.CurrentLineNumber, []), 0
        elif name in ("tuv", "langSet", "langSec"):
            self._language = attributes.get("xml:lang") or attributes.get("lang") or "unnamed"
        elif name in _TEXTS and not self._skipped:
            self._text = []
            self._language = self._languages.get(name, self._language)

    def _end(self, tag: str) -> None:
        name = self._open.pop()
        if name in _SKIPPED:
            self._skipped -= 1
        elif name in _TEXTS and not self._skipped:
            self._unit[1].append((self._language, "".join(self._text)))
        elif name in _UNITS:
            self.units.append(self._unit)

    def _characters(self, text: str) -> None:
        if not self._skipped and not _TEXTS.isdisjoint(self._open):
            self._size += len(text)
            self.refuse_large(self._size)
            self._text.append(text)
