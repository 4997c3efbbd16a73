"""Documents in XML that hold source and translation: XLIFF and TMX."""

import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from mt.errors import InputError
from mt.extras.documents.inline import Marked, is_code, line_of, set_content
from mt.extras.documents.markup import parse_xml
from mt.extras.documents.segments import Segment, columns_of
from mt.text.languages import LANGUAGE_NAMES, base_language

_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
# Attributes that name the languages of a file
_LANGUAGES = dict.fromkeys(("source-language", "srcLang", "srclang"), "source")
_LANGUAGES |= dict.fromkeys(("target-language", "trgLang"), "target")
_SPACE = "string(ancestor-or-self::*[@xml:space][1]/@xml:space)"
_LAYOUT = re.compile(r"\n\S|\S\t+\S")  # line breaks and tabs that are no indentation of the XML


@dataclass
class XmlFile:
    """An XLIFF (1.2, 2.0) or TMX file: units without a translation get one."""

    root: Any
    units: list[tuple[Any, Any]]  # the source element, and the element that holds the texts of the translation

    @classmethod
    def read(cls, content: bytes, kind: str, languages: tuple[str, str], place: str) -> "XmlFile":
        """Read a file; `InputError` if it is damaged, or declares other languages than the model's."""
        root = parse_xml(content, place)
        expected = "tmx" if kind == "tmx" else "xliff"
        if root.tag.rpartition("}")[2] != expected:
            raise InputError(f"{place}: no {expected.upper()} file", "check its kind")
        _refuse_other_languages(root, languages, place)
        units = _tmx_units(root, languages) if kind == "tmx" else _xliff_units(root, languages[1])
        return cls(root, units)

    @property
    def segments(self) -> list[Segment]:
        found = []
        for old, new in self.units:
            nodes = _nodes(new)
            texts = tuple(piece for node in nodes for piece in _pieces(*node))
            is_marked = sum(bool(getattr(*node).strip()) for node in nodes) > 1
            found.append(Segment(texts, f"line {old.sourceline}", (line_of(new)[0],) if is_marked else ()))
        return found

    def written(self, translations: list[tuple[str, ...] | None]) -> bytes:
        from lxml import etree

        for (_, new), translated in zip(self.units, translations, strict=True):
            if translated is None:
                target = next(new.iterancestors("{*}target"), new)  # a later run skips a unit with part of a target
                if (owner := target.getparent()) is not None:
                    owner.remove(target)
                continue
            parent = new.getparent()
            if etree.QName(parent).localname == "segment" and parent.get("state", "initial") == "initial":
                parent.set("state", "translated")
            if isinstance(translated, Marked):
                set_content(new, translated[0], line_of(new)[1])
                continue
            rest = iter(translated)
            for node in _nodes(new):
                setattr(*node, "".join(next(rest) for _ in _pieces(*node)))
        return bytes(etree.tostring(self.root.getroottree(), xml_declaration=True, encoding="UTF-8"))


def _refuse_other_languages(root: Any, languages: tuple[str, str], place: str) -> None:
    """Refuse a file of known languages that are not the model's; regions and scripts may differ."""
    for node in root.iter("{*}xliff", "{*}file", "{*}header"):
        for key, side in _LANGUAGES.items():
            declared, wanted = node.get(key) or "", languages[side == "target"]
            old, new = base_language(declared), base_language(wanted)
            if old != new and {old, new} <= LANGUAGE_NAMES.keys():
                message = f"its {side} language is {declared}, but the model's is {wanted}"
                raise InputError(f"{place}: {message}", "choose a model of these languages")


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
        inherited = (node.get("translate") for node in source.iterancestors())
        if next(filter(None, inherited), "yes") == "no" or parent.tag == f"{namespace}alt-trans":
            continue
        if target is not None and ("".join(target.itertext()).strip() or not "".join(source.itertext()).strip()):
            continue
        segmented = parent.find(f"{namespace}seg-source")  # which stands between both
        is_segmented = segmented is not None and next(_segments(segmented), None) is not None
        new = deepcopy(segmented if is_segmented else source)
        new.tag = f"{namespace}target"
        if new.get(_XML_LANG):
            new.set(_XML_LANG, target_lang)
        if target is not None:
            if base_language(target.get(_XML_LANG) or target_lang) != base_language(target_lang):
                target.set(_XML_LANG, target_lang)
            new.attrib.update(target.attrib)
            parent.remove(target)
        if root.get("version", "").startswith("1"):
            new.set("state", "needs-review-translation")
        (source if segmented is None else segmented).addnext(new)
        units += [(source, each) for each in (_segments(new) if is_segmented else (new,))]
    return units


def _segments(element: Any) -> Iterator[Any]:
    """Yield the marks of the segments into which XLIFF 1.2 divides a unit."""
    return (node for node in element.iter("{*}mrk") if node.get("mtype") == "seg")


def _tmx_units(root: Any, languages: tuple[str, str]) -> list[tuple[Any, Any]]:
    header = root.find("header")
    source_lang = (header.get("srclang") if header is not None else None) or "*all*"
    units = []
    for unit in root.iter("tu"):
        variants = {tuv.get(_XML_LANG) or tuv.get("lang") or "": tuv for tuv in unit.findall("tuv")}
        wanted = unit.get("srclang") or source_lang
        if wanted == "*all*" and base_language(languages[0]) in LANGUAGE_NAMES:
            wanted = languages[0]
        source = next((tuv for code, tuv in variants.items() if wanted == "*all*" or _is_variant(code, wanted)), None)
        if source is None or any(_is_variant(code, languages[1]) for code in variants):
            continue
        new = deepcopy(source)
        new.set(_XML_LANG, languages[1])
        unit.append(new)
        units.append((source, new))
    return units


def _is_variant(code: str, wanted: str) -> bool:
    """Return True for codes of one language that do not name two regions: pt and pt-BR, not pt-PT and pt-BR."""
    code, wanted = (each.lower().replace("_", "-") for each in (code, wanted))
    return code == wanted or (base_language(code) == base_language(wanted) and not ("-" in code and "-" in wanted))


def _nodes(element: Any) -> list[tuple[Any, str]]:
    """Return where the texts of an element are: (node, `text` or `tail`)."""
    found = []
    for node in element.iter():
        is_inside = any(map(is_code, node.iterancestors()))
        if isinstance(node.tag, str) and not is_code(node) and not is_inside:  # no comment or instruction
            found.append((node, "text"))
        if node is not element and not is_inside:
            found.append((node, "tail"))
    return [(node, which) for node, which in found if getattr(node, which)]


def _pieces(node: Any, which: str) -> list[str]:
    """Return a text in pieces to translate, by line and column where its white space has a meaning."""
    text = str(getattr(node, which))
    return columns_of(text) if _LAYOUT.search(text) or node.xpath(_SPACE) == "preserve" else [text]
