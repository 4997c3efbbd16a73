"""Documents in XML that hold source and translation: XLIFF and TMX."""

import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from mt.errors import InputError
from mt.extras.documents.inline import is_code, line_of, set_content
from mt.extras.documents.markup import parse_xml
from mt.extras.documents.segments import Marked, Parts, Segment, columns_of
from mt.text.languages import LANGUAGE_NAMES, base_language

_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
_LANGUAGE_ATTRIBUTES = dict.fromkeys(("source-language", "srcLang", "srclang"), "source")
_LANGUAGE_ATTRIBUTES |= dict.fromkeys(("target-language", "trgLang"), "target")
_XML_SPACE = "string(ancestor-or-self::*[@xml:space][1]/@xml:space)"
_LAYOUT = re.compile(r"\n\S|\S\t+\S")  # line breaks and tabs that are not the indentation of the XML


class XmlFile:
    """An XLIFF (1.2, 2.0) or TMX file: units without a translation get one."""

    def __init__(self, content: bytes, kind: str, languages: tuple[str, str], place: str) -> None:
        """Read a file; `InputError` if it is damaged, or declares other languages than the model's."""
        root = self._root = parse_xml(content, place)
        self._line_end = b"\r\n" if b"\r\n" in content else b"\n"
        if root.tag.rpartition("}")[2] != kind:
            raise InputError(f"{place}: no {kind.upper()} file", "check its kind")
        _refuse_other_languages(root, languages, place)
        # Source element, and a copy of it (or of its segment) that becomes the translation
        self._units = list(_tmx_units(root, languages) if kind == "tmx" else _xliff_units(root, languages[1]))
        self.segments: list[Segment] = []
        for source, new in self._units:
            places = list(_text_places(new))
            texts = tuple(piece for place in places for piece in _pieces(*place))
            is_marked = sum(bool(getattr(*place).strip()) for place in places) > 1
            parts: Parts = (line_of(new)[0],) if is_marked else ()
            self.segments.append(Segment(texts, f"line {source.sourceline}", parts))

    def written(self, translations: list[tuple[str, ...] | None]) -> bytes:
        from lxml import etree

        for (_, new), translated in zip(self._units, translations, strict=True):
            if translated is None:
                # Remove the whole target, as a later run would skip a unit that has a part of it.
                target = next(new.iterancestors("{*}target"), new)
                if (unit := target.getparent()) is not None:  # not yet removed for another segment
                    unit.remove(target)
                continue
            parent = new.getparent()
            if etree.QName(parent).localname == "segment" and parent.get("state", "initial") == "initial":
                parent.set("state", "translated")
            if isinstance(translated, Marked):
                set_content(new, translated[0], line_of(new)[1])
                continue
            remaining = iter(translated)
            for place in _text_places(new):
                setattr(*place, "".join(next(remaining) for _ in _pieces(*place)))
        written = bytes(etree.tostring(self._root.getroottree(), xml_declaration=True, encoding="UTF-8"))
        return (written + b"\n").replace(b"\n", self._line_end)


def _refuse_other_languages(root: Any, languages: tuple[str, str], place: str) -> None:
    """Refuse a file that declares known languages other than the model's; regions and scripts may differ."""
    for node in root.iter("{*}xliff", "{*}file", "{*}header"):
        for attribute, side in _LANGUAGE_ATTRIBUTES.items():
            declared, wanted = node.get(attribute) or "", languages[side == "target"]
            bases = {base_language(declared), base_language(wanted)}
            if len(bases) > 1 and bases <= LANGUAGE_NAMES.keys():
                message = f"its {side} language is {declared}, but the model's is {wanted}"
                raise InputError(f"{place}: {message}", "choose a model of these languages")


def _xliff_units(root: Any, target_lang: str) -> Iterator[tuple[Any, Any]]:
    namespace = root.tag.removesuffix("xliff")
    if root.get("version", "").startswith("2") and root.get("trgLang") is None:
        root.set("trgLang", target_lang)
    for file in root.iter(f"{namespace}file"):
        if root.get("version", "").startswith("1") and file.get("target-language") is None:
            file.set("target-language", target_lang)
    for source in list(root.iter(f"{namespace}source")):
        parent = source.getparent()
        target = parent.find(f"{namespace}target")
        inherited = (node.get("translate") for node in source.iterancestors())
        if next(filter(None, inherited), "yes") == "no" or parent.tag == f"{namespace}alt-trans":
            continue
        if target is not None and ("".join(target.itertext()).strip() or not "".join(source.itertext()).strip()):
            continue
        segmented = parent.find(f"{namespace}seg-source")  # between source and target, if there is one
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
        yield from ((source, part) for part in (_segments(new) if is_segmented else (new,)))


def _segments(element: Any) -> Iterator[Any]:
    """Return the `mrk` elements of the segments into which XLIFF 1.2 divides a unit."""
    return (node for node in element.iter("{*}mrk") if node.get("mtype") == "seg")


def _tmx_units(root: Any, languages: tuple[str, str]) -> Iterator[tuple[Any, Any]]:
    header = root.find("{*}header")
    source_lang = (header.get("srclang") if header is not None else None) or "*all*"
    for unit in root.iter("{*}tu"):
        variants = {tuv.get(_XML_LANG) or tuv.get("lang") or "": tuv for tuv in unit.findall("{*}tuv")}
        wanted = unit.get("srclang") or source_lang
        if wanted == "*all*" and base_language(languages[0]) in LANGUAGE_NAMES:
            wanted = languages[0]
        source = next((tuv for code, tuv in variants.items() if wanted == "*all*" or _is_variant(code, wanted)), None)
        target = next((tuv for code, tuv in variants.items() if _is_variant(code, languages[1])), None)
        if source is None or (target is not None and (_has_text(target) or not _has_text(source))):
            continue
        new = deepcopy(source)
        new.set(_XML_LANG, languages[1])
        if target is not None:  # empty
            unit.remove(target)
        unit.append(new)
        yield source, new


def _has_text(variant: Any) -> bool:
    return any("".join(segment.itertext()).strip() for segment in variant.iter("{*}seg"))


def _is_variant(code: str, wanted: str) -> bool:
    """Return whether two codes name one language, and not two regions of it: pt and pt-BR, not pt-PT and pt-BR."""
    code, wanted = (language.lower().replace("_", "-") for language in (code, wanted))
    return code == wanted or (base_language(code) == base_language(wanted) and not ("-" in code and "-" in wanted))


def _text_places(node: Any) -> Iterator[tuple[Any, str]]:
    """Yield where the texts of an element are: (node, attribute), the attribute being `text` or `tail`."""
    if not isinstance(node.tag, str) or is_code(node):  # a comment or an instruction has no tag
        return
    if node.text:
        yield node, "text"
    for child in node:
        yield from _text_places(child)
        if child.tail:
            yield child, "tail"


def _pieces(node: Any, attribute: str) -> list[str]:
    """Split a text into pieces to translate: lines and columns where its white space matters, else one piece."""
    text = str(getattr(node, attribute))
    return columns_of(text) if _LAYOUT.search(text) or node.xpath(_XML_SPACE) == "preserve" else [text]
