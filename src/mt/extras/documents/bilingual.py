"""Documents that hold source and translation: gettext's PO, XLIFF, TMX and tables."""

import csv
import io
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mt.errors import InputError
from mt.extras.documents.markup import check_xml
from mt.extras.documents.segments import Segment

_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"


@dataclass
class PoFile:
    """A catalogue of gettext; entries that have a translation keep it, new ones are marked fuzzy."""

    catalogue: Any
    entries: list[Any]

    @classmethod
    def read(cls, content: str, place: str) -> "PoFile":
        import polib

        try:
            catalogue = polib.pofile(content, wrapwidth=_width(content))
        except (OSError, ValueError, UnicodeError) as error:
            raise InputError(f"{place}: no catalogue of gettext ({error})", "check it with msgfmt --check") from None
        new = [entry for entry in catalogue if not entry.obsolete and not entry.translated() and not entry.fuzzy]
        return cls(catalogue, [entry for entry in new if entry.msgid and not any(_plural_forms(entry).values())])

    @property
    def segments(self) -> list[Segment]:
        return [Segment(_texts(entry), f"entry {entry.msgid!r:.40}") for entry in self.entries]

    def written(self, translations: list[tuple[str, ...] | None]) -> bytes:
        for entry, new in zip(self.entries, translations, strict=True):
            if new is None:
                continue
            if entry.msgid_plural:
                forms = sorted(entry.msgstr_plural) or [0, 1]
                entry.msgstr_plural = {form: new[0 if form == 0 and len(forms) > 1 else -1] for form in forms}
            else:
                entry.msgstr = new[0]
            entry.flags.append("fuzzy")
        return f"{self.catalogue}".encode(self.catalogue.encoding)


def _texts(entry: Any) -> tuple[str, ...]:
    return (entry.msgid, entry.msgid_plural) if entry.msgid_plural else (entry.msgid,)


def _plural_forms(entry: Any) -> dict[int, str]:
    return dict(entry.msgstr_plural or {})


def _width(content: str) -> int:
    """Return the width that a catalogue is wrapped at."""
    lengths = [len(line) for line in content.splitlines() if line.startswith('"')]
    return max([78, *lengths]) if any(length <= 80 for length in lengths) else 10**6


@dataclass
class XmlFile:
    """An XLIFF (1.2, 2.0) or TMX file: units without a translation get one."""

    root: Any
    units: list[tuple[Any, Any]]  # the source element, and the element that holds the texts of the translation

    @classmethod
    def read(cls, content: bytes, kind: str, target_lang: str, place: str) -> "XmlFile":
        from lxml import etree

        check_xml(content, place)
        root = etree.fromstring(content, etree.XMLParser(resolve_entities=False, no_network=True))
        expected = "tmx" if kind == "tmx" else "xliff"
        if etree.QName(root).localname != expected:
            raise InputError(f"{place}: no {expected.upper()} file", "check its kind")
        units = _tmx_units(root, target_lang) if kind == "tmx" else _xliff_units(root, target_lang)
        return cls(root, units)

    @property
    def segments(self) -> list[Segment]:
        return [Segment(tuple(_get(node) for node in _nodes(new)), f"line {old.sourceline}") for old, new in self.units]

    def written(self, translations: list[tuple[str, ...] | None]) -> bytes:
        from lxml import etree

        for (_, new), translated in zip(self.units, translations, strict=True):
            if translated is None:
                new.getparent().remove(new)
                continue
            for node, text in zip(_nodes(new), translated, strict=True):
                _set(node, text)
        return bytes(etree.tostring(self.root.getroottree(), xml_declaration=True, encoding="UTF-8"))


def _xliff_units(root: Any, target_lang: str) -> list[tuple[Any, Any]]:
    namespace = root.tag.removesuffix("xliff")
    if root.get("version", "").startswith("2") and root.get("trgLang") is None:
        root.set("trgLang", target_lang)
    for file in root.iter(f"{namespace}file"):
        if root.get("version", "").startswith("1") and file.get("target-language") is None:
            file.set("target-language", target_lang)
    units = []
    for source in list(root.iter(f"{namespace}source")):
        parent = source.getparent()
        target = parent.find(f"{namespace}target")
        if parent.get("translate") == "no" or parent.tag == f"{namespace}alt-trans":
            continue
        if target is not None and ("".join(target.itertext()).strip() or not "".join(source.itertext()).strip()):
            continue
        if target is not None:
            parent.remove(target)
        new = deepcopy(source)
        new.tag = f"{namespace}target"
        if root.get("version", "").startswith("1"):
            new.set("state", "needs-review-translation")
        source.addnext(new)
        units.append((source, new))
    return units


def _tmx_units(root: Any, target_lang: str) -> list[tuple[Any, Any]]:
    header = root.find("header")
    source_lang = (header.get("srclang") if header is not None else None) or "*all*"
    units = []
    for unit in root.iter("tu"):
        variants = {(tuv.get(_XML_LANG) or tuv.get("lang") or "").lower(): tuv for tuv in unit.findall("tuv")}
        source = variants.get((unit.get("srclang") or source_lang).lower(), next(iter(variants.values()), None))
        if source is None or any(lang.split("-")[0] == target_lang.lower() for lang in variants):
            continue
        new = deepcopy(source)
        new.set(_XML_LANG, target_lang)
        unit.append(new)
        units.append((source, new))
    return units


_CODE = frozenset("bpt ept ph it ut x bx ex prop note".split())  # their text is markup of another program


def _nodes(element: Any) -> list[tuple[Any, str]]:
    """Return where the texts of an element are: (node, `text` or `tail`)."""
    found = []
    for node in element.iter():
        if not isinstance(node.tag, str):
            continue
        name = node.tag.rpartition("}")[2]
        if name not in _CODE and not any(parent.tag.rpartition("}")[2] in _CODE for parent in node.iterancestors()):
            found.append((node, "text"))
        if node is not element:
            found.append((node, "tail"))
    return [(node, which) for node, which in found if getattr(node, which)]


def _get(node: tuple[Any, str]) -> str:
    return str(getattr(*node))


def _set(node: tuple[Any, str], text: str) -> None:
    setattr(*node, text)


@dataclass
class Table:
    """A CSV or TSV file: one column is translated into another."""

    rows: list[list[str]]
    dialect: dict[str, Any]
    column: int
    target: int
    first: int  # the first row that is no header

    @classmethod
    def read(cls, content: str, kind: str, columns: str | None, place: str) -> "Table":
        """Read a table.

        Args:
            content: its text.
            kind: csv or tsv.
            columns: SOURCE or SOURCE:TARGET, names of the header or numbers from 1.
            place: the file, for messages.

        Raises:
            InputError: `columns` is missing or names no column.
        """
        newline = "\r\n" if "\r\n" in content else "\n"
        head = content.split("\n", 1)[0]
        delimiter = "\t" if kind == "tsv" else max(",;\t|", key=head.count)
        dialect = {"delimiter": delimiter, "lineterminator": newline}
        rows = list(csv.reader(io.StringIO(content, newline=""), delimiter=delimiter))
        header = rows[0] if rows else []
        if columns is None:
            if len(header) != 1:
                names = ", ".join(header)[:200]
                hint = f"give --columns SOURCE:TARGET, by name or number; the first row is: {names}"
                raise InputError(f"{place}: which of its {len(header)} columns is to be translated?", hint)
            columns = "1:2"
        source, _, target = columns.partition(":")
        has_header = any(name in header for name in (source, target) if name)
        column = _column(source, header, place)
        if target and not target.isdigit() and target not in header:
            header.append(target)
        where = _column(target, [*header, ""], place) if target else column
        return cls(rows, dialect, column, where, int(has_header))

    @property
    def segments(self) -> list[Segment]:
        return [Segment((row[self.column],), f"row {number}") for number, row in self._translated_rows()]

    def _translated_rows(self) -> list[tuple[int, list[str]]]:
        numbered = list(enumerate(self.rows, 1))[self.first :]
        return [(number, row) for number, row in numbered if len(row) > self.column]

    def written(self, translations: list[tuple[str, ...] | None]) -> bytes:
        for (_, row), new in zip(self._translated_rows(), translations, strict=True):
            row += [""] * (self.target + 1 - len(row))
            row[self.target] = new[0] if new else row[self.column] if self.target == self.column else ""
        output = io.StringIO(newline="")
        csv.writer(output, **self.dialect).writerows(self.rows)
        return output.getvalue().encode()


def _column(name: str, header: list[str], place: str) -> int:
    if name in header:
        return header.index(name)
    if name.isdigit() and 0 < int(name) <= len(header):
        return int(name) - 1
    raise InputError(f"--columns: {Path(place).name} has no column {name!r}", f"it has {', '.join(header)[:200]}")
