"""Segments with inline tags: whole sentences are translated, and the tags placed by word alignment."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from mt.extras.serving.markup import Element, Line
from mt.text.languages import is_spaced

if TYPE_CHECKING:
    from mt.decoding.alignment import Unit

# Returns translations of sentences; those that are to be aligned, with their words.
Translate = Callable[[list[str], bool], "Sequence[tuple[str, Sequence[Unit]]]"]
Parts = Sequence[str | Line]  # markup that stays, and lines with inline elements

# Elements whose text is code of another program, and marks without text
_CODES = frozenset("bpt ept ph it ut x bx ex sc ec cp sm em prop note".split())
_STARTS = {"bpt": "ept", "bx": "ex", "sc": "ec"}


class Marked(tuple[str, ...]):
    """The translation of a segment as one text with its markup."""


def translate_marked(
    marked: Sequence[Parts],
    translate: Translate,
    is_translated: Callable[[str], bool],
    survives: Callable[[str, str], bool],
    languages: tuple[str, str],
) -> list[Marked | None]:
    """Translate texts with inline elements, each sentence once, those without anything to translate excepted.

    `survives` says of a sentence and its translation whether nothing was lost that must stay; None replaces a text with
    a sentence that loses it.
    """
    from mt.decoding.alignment import align_units
    from mt.decoding.candidates import Candidate
    from mt.extras.serving.segmentation import segment_lines

    separator = " " if is_spaced(languages[1]) else ""
    segmented = [segment_lines(parts, separator, languages[0]) for parts in marked]
    sentences = list(dict.fromkeys(sentence for text in segmented for sentence in text.sentences))
    found: dict[str, tuple[str, Sequence[Unit]]] = {
        one: (one, align_units(one, one)) for one in sentences if not is_translated(one)
    }
    sent = [one for one in sentences if one not in found]
    found |= zip(sent, translate(sent, True) if sent else (), strict=True)
    return [
        Marked(
            [text.assemble([Candidate(found[one][0], 0.0, 0.0) for one in text.sentences], lambda s, _: found[s][1])]
        )
        if all(survives(one, found[one][0]) for one in text.sentences)
        else None
        for text in segmented
    ]


def line_of(node: Any) -> tuple[Line, list[Any]]:
    """Return the text of an XML element with its inline elements, and the nodes that the names of its tags number."""
    text, elements, nodes, stack = "", list[Element](), list[Any](), list[tuple[Element, str, str]]()

    def walk(parent: Any) -> None:
        nonlocal text
        text += parent.text or ""
        for child in parent:
            name, number = _name(child), len(nodes)
            nodes.append(child)
            if stack and stack[-1][1:] == (name, _pair(child)):
                element = stack.pop()[0]
                element.closing, element.end = f"<n{number}/>", len(text)
            else:
                parents = tuple(each[0] for each in stack)
                element = Element(f"<n{number}/>", "", len(text), len(text), parents)
                elements.append(element)
                if name in _STARTS:
                    stack.append((element, _STARTS[name], _pair(child)))
                elif name and not is_code(child):
                    depth = len(stack)
                    stack.append((element, "", ""))
                    walk(child)
                    del stack[depth:]  # with codes that do not end in this element
                    element.opening, element.closing, element.end = f"<n{number}>", f"</n{number}>", len(text)
            text += child.tail or ""

    walk(node)
    for element in elements:  # a start without its end in this text is an empty element
        element.parents = tuple(parent for parent in element.parents if parent.closing)
    return Line(text, elements), nodes


def set_content(node: Any, markup: str, nodes: Sequence[Any]) -> None:
    """Replace the content of an XML element by markup whose tags are numbers of nodes, as `line_of` gives them."""
    from lxml import etree

    def build(parent: Any, parsed: Any) -> None:
        parent.text = parsed.text
        for child in parsed:
            original = nodes[int(child.tag[1:])]
            if _name(original) and not is_code(original):
                new = parent.makeelement(original.tag, dict(original.attrib), original.nsmap)
                parent.append(new)
                build(new, child)
            else:
                new = deepcopy(original)
                parent.append(new)
            new.tail = child.tail

    parsed = etree.fromstring(f"<n>{markup}</n>")
    for child in list(node):
        node.remove(child)
    build(node, parsed)


def is_code(node: Any) -> bool:
    """Return True for an element of XLIFF or TMX whose text is not translated."""
    protected = node.get("translate") == "no" or node.get("mtype") == "protected"
    return _name(node) in _CODES or (_name(node) == "mrk" and protected)


def _name(node: Any) -> str:
    """Return the name of an element without its namespace; empty for a comment or an instruction."""
    return node.tag.rpartition("}")[2] if isinstance(node.tag, str) else ""


def _pair(node: Any) -> str:
    """Return what identifies the two ends of a pair of codes."""
    return next((node.get(key) for key in ("rid", "startRef", "i", "id") if node.get(key) is not None), "")
