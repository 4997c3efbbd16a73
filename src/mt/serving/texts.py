"""What of a text is translated, and how it is put together again.

A text is cut into sentences, since that is what models learn from; line breaks stay where they are, and so do the tags
of HTML.
"""

import html
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

# The end of a sentence: a short word before a full stop may be an abbreviation ("Dr. Smith").
_SENTENCE_END = re.compile(r"(?:(?<=\w{4}\.)|(?<=[!?…])|(?<=[.!?…][\"'»”)]))\s+(?=\S)|(?<=[。！？])(?=\S)")
_MARKUP = re.compile(
    r"<!--.*?(?:-->|$)|<[!?][^>]*>|</?[A-Za-z][^>\"']*(?:\"[^\"]*\"[^>\"']*|'[^']*'[^>\"']*)*>", re.DOTALL
)
_TAG = re.compile(r"<(/?)([A-Za-z][^\s/>]*)([^>]*?)(/?)>", re.DOTALL)
_UNTRANSLATED = {"script", "style", "code", "kbd", "samp", "var", "pre", "template", "textarea", "svg", "math"}
_NO = re.compile(r"\btranslate\s*=\s*[\"']?no\b|\bclass\s*=\s*[\"'][^\"']*\bnotranslate\b", re.IGNORECASE)
_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


@dataclass(frozen=True)
class Pieces:
    """A text as parts that stay and sentences that are translated.

    Attributes:
        parts: in their order; None stands for the next sentence.
        sentences: what to translate.
        finish: makes a part of a translation.
    """

    parts: list[str | None]
    sentences: list[str]
    finish: Callable[[str], str]

    def together(self, translations: Sequence[str]) -> str:
        """The text with translations in place of its sentences."""
        following = iter(translations)
        return "".join(self.finish(next(following)) if part is None else part for part in self.parts)


def plain_pieces(text: str, joint: str) -> Pieces:
    """Cuts plain text.

    Args:
        text: any text.
        joint: what stands between two sentences of the target language.
    """
    parts: list[str | None] = []
    sentences: list[str] = []
    for part in re.split(r"(\r\n|\r|\n)", text):
        _add(part, joint, parts, sentences)
    return Pieces(parts, sentences, str)


def html_pieces(text: str, joint: str) -> Pieces:
    """Cuts HTML: tags, comments, entities in them, and what is not language (`<code>`, `translate="no"`) stay.

    Text inside of a sentence's tags (`I <b>love</b> you`) is translated on its own.
    """
    parts: list[str | None] = []
    sentences: list[str] = []
    silent: list[str] = []  # the elements that are open inside of one that is not translated
    for is_markup, piece in _markup_and_text(text):
        if is_markup:
            parts.append(piece)
            _follow(piece, silent)
        elif silent:
            parts.append(piece)
        else:
            for line in re.split(r"(\r\n|\r|\n)", piece):
                _add(html.unescape(line), joint, parts, sentences, html.escape)
    return Pieces(parts, sentences, lambda translation: html.escape(translation, quote=False))


def _markup_and_text(text: str) -> Iterator[tuple[bool, str]]:
    place = 0
    for found in _MARKUP.finditer(text):
        if found.start() > place:
            yield False, text[place : found.start()]
        yield True, found[0]
        place = found.end()
    if place < len(text):
        yield False, text[place:]


def _follow(markup: str, silent: list[str]) -> None:
    """Keeps account of whether what follows a tag is inside of an element that is not translated."""
    tag = _TAG.fullmatch(markup)
    if tag is None:
        return
    closes, name, attributes, empty = tag[1], tag[2].lower(), tag[3], tag[4]
    if closes:
        if silent and name in silent:
            while silent.pop() != name:
                pass
    elif name not in _VOID and not empty and (silent or name in _UNTRANSLATED or _NO.search(attributes)):
        silent.append(name)


def _add(
    text: str,
    joint: str,
    parts: list[str | None],
    sentences: list[str],
    escape: Callable[[str], str] = str,
) -> None:
    """Adds the sentences of a line; white space around it stays, and so does what has neither letter nor digit."""
    inner = text.strip()
    if not any(character.isalnum() for character in inner):
        parts.append(escape(text))
        return
    before, after = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
    parts.append(before)
    for number, sentence in enumerate(_SENTENCE_END.split(inner)):
        if number:
            parts.append(joint)
        parts.append(None)
        sentences.append(sentence)
    parts.append(after)
