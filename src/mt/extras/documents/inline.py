"""Inline elements of XLIFF and TMX: as those of a line of text, and put back around its translation."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from mt.extras.serving.markup import Element, Line

# Elements of XLIFF and TMX whose content is not translated: codes of other formats, empty markers, notes
_CODES = frozenset("bpt ept ph it ut x bx ex sc ec cp sm em prop note".split())
_END_CODES = {"bpt": "ept", "bx": "ex", "sc": "ec"}  # by the code that starts the pair


def line_of(node: Any) -> tuple[Line, list[Any]]:
    """Return the text of an XML element with inline elements, and nodes: the tag `<n3>` stands for node 3."""
    text, elements, nodes = "", list[Element](), list[Any]()
    stack: list[tuple[Element, str, str]] = []  # open elements; of start codes, name and identifier of the end code

    def walk(parent: Any) -> None:
        nonlocal text
        text += parent.text or ""
        for child in parent:
            name, number = _name(child), len(nodes)
            nodes.append(child)
            if name and stack and stack[-1][1:] == (name, _pair(child)):
                element = stack.pop()[0]
                element.closing, element.end = f"<n{number}/>", len(text)
            else:
                parents = tuple(parent for parent, *_ in stack)
                element = Element(f"<n{number}/>", "", len(text), len(text), parents)
                elements.append(element)
                if name in _END_CODES:
                    stack.append((element, _END_CODES[name], _pair(child)))
                elif name and not is_code(child):
                    depth = len(stack)
                    stack.append((element, "", ""))
                    walk(child)
                    del stack[depth:]  # also start codes whose end code is not in this element
                    element.opening, element.closing, element.end = f"<n{number}>", f"</n{number}>", len(text)
            text += child.tail or ""

    walk(node)
    for element in elements:  # a start code without its end code is an empty element
        element.parents = tuple(parent for parent in element.parents if parent.closing)
    return Line(text, elements), nodes


def set_content(node: Any, markup: str, nodes: Sequence[Any]) -> None:
    """Replace the content of an XML element by markup in which tags stand for nodes, as in `line_of`."""
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
    """Return the identifier that the start code and the end code of a pair share."""
    return next((node.get(key) for key in ("rid", "startRef", "i", "id") if node.get(key) is not None), "")
