"""Segments of a document: text to translate between tags and placeholders that must survive."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mt.extras.documents.inline import Parts, Translate, translate_marked
from mt.text.sentences import sentence_ends
from mt.text.words import EMAIL, ID_CHAR, URL

# What programs and readers need letter by letter: code, format strings, variables, tags, entities, addresses.
PLACEHOLDER = re.compile(
    rf"""(?<!`)`[^`\n]+`(?!`|{ID_CHAR})|\$[A-Za-z_]{ID_CHAR}*|%L?(?:[1-9]|n)(?!{ID_CHAR}|[.,]\d|[$@])|{URL}|{EMAIL}"""
    r"""|%%|%\([^()\s]{1,80}\)[#0\- +]*+[\d.]*+[a-zA-Z]
    |%(?:\d++\$)?[#0\-+]*+(?:\d++|\*)?(?:\.(?:\d++|\*))?(?:hh?|ll?|[Lqjzt])?[diouxXeEfFgGcrsap@](?![a-zA-Z])
    |\{%[^{}\n]{0,80}%\}|[$%]?\{\{?[^{}\n]{0,80}\}?\}
    |</?[a-zA-Z][^<>\n]*>|</?\d{1,3}\s?/?>|&(?:\#?\w{1,31});""",
    re.VERBOSE,
)
_SPLIT = re.compile(f"({PLACEHOLDER.pattern})", re.VERBOSE)  # texts between placeholders at even positions
# Arguments without a name or number, which a program fills in order; of tags, the order is that of nesting.
_ORDERED = re.compile(r"%(?![(%{]|\d+\$|L?[\dn]$)|\{\}|<")
_SAMPLE = 10_000  # characters
# What a document cannot hold, or what would begin a line of its own: such characters of a translation become spaces.
_CONTROLS = re.compile("[\x00-\x20\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]+")


@dataclass(frozen=True)
class Segment:
    """A paragraph, a cell or a title: texts to translate, with the formatting between them left out."""

    texts: tuple[str, ...]  # pieces between which the formatting changes, in order
    place: str  # where it stands in the document, for messages
    parts: Parts = ()  # the same with the formatting as inline elements, where they can be moved


def columns_of(text: str) -> list[str]:
    """Split a text at the ends of lines, and at tabs and wide spaces, by which messages align columns."""
    lines = text.splitlines(keepends=True)
    return [piece for line in lines for piece in re.split(r"(\t+| {3,})", line) if piece]


@dataclass(frozen=True)
class Result:
    """The translations of a document's segments."""

    texts: list[tuple[str, ...] | None]  # translated pieces, or a text with its markup; None: the segment stays
    kept: list[tuple[str, str]]  # place and reason of segments that stay


def translate_segments(
    segments: Sequence[Segment],
    translate: Translate,
    languages: tuple[str, str] = ("en", "und"),
    show_sample: Callable[[str], bool | None] | None = None,
) -> Result:
    """Translate all segments, each sentence once: those with inline elements whole, others piece by piece.

    A sentence whose placeholders do not all come back, once each, is translated piece by piece between them, and
    between its inline elements. Before anything is translated, `show_sample` gets the beginning of the text; all
    segments stay if it returns False.
    """
    sample = " ".join(text for segment in segments for text in segment.texts)[:_SAMPLE]
    if show_sample is not None and show_sample(sample) is False:
        return Result([None] * len(segments), [])
    marked = {n: one.parts for n, one in enumerate(segments) if one.parts and any(map(_is_translated, one.texts))}
    found = translate_marked(list(marked.values()), translate, _is_translated, _is_whole, languages) if marked else ()
    whole = dict(zip(marked, found, strict=True))
    others = [segment for number, segment in enumerate(segments) if whole.get(number) is None]
    pieces = _translate_pieces(others, translate, languages[0])
    rest = iter(pieces.texts)
    return Result([whole.get(number) or next(rest) for number in range(len(segments))], pieces.kept)


def _is_whole(source: str, translation: str) -> bool:
    is_line = bool(translation.strip()) and _CONTROLS.sub(" ", translation) == translation
    return is_line and not _has_stray_braces(source) and _survived(source, translation)


def _translate_pieces(segments: Sequence[Segment], translate: Translate, language: str) -> Result:
    split = [[_sentences(text, language) for text in segment.texts] for segment in segments]
    first = _all(translate, (core for texts in split for text in texts for _, core in text if core))
    lost = [core for core, translated in first.items() if not _survived(core, translated)]
    between = _all(translate, (piece for core in lost for piece in _SPLIT.split(core)[::2] if has_words(piece)))
    for core in lost:
        pieces = _SPLIT.split(core)
        pieces[::2] = [_rejoined(piece, between) for piece in pieces[::2]]
        first[core] = "".join(pieces)
    texts: list[tuple[str, ...] | None] = []
    kept = []
    for segment, sentences in zip(segments, split, strict=True):
        cores = [core for text in sentences for _, core in text if core]
        reasons = [f"no translation of {core:.60}" for core in cores if not first[core].strip()]
        reasons += [f"unpaired or nested braces: {core:.60}" for core in cores if _has_stray_braces(core)]
        if reasons:
            kept.append((segment.place, reasons[0]))
            texts.append(None)
        else:
            texts.append(tuple("".join(_replaced(*each, first) for each in text) for text in sentences))
    return Result(texts, kept)


def _all(translate: Translate, texts: Iterable[str]) -> dict[str, str]:
    """Translate each distinct text once."""
    distinct = list(dict.fromkeys(texts))
    new = [_CONTROLS.sub(" ", text) for text, _ in translate(distinct, False)] if distinct else []
    return dict(zip(distinct, new, strict=True))


def _sentences(text: str, language: str) -> list[tuple[str, str]]:
    """Return each sentence as it stands and on one line; the latter is empty if it has no words."""
    sentences = [text[start:end] for start, end in pairwise([0, *sentence_ends(text, language), len(text)])]
    return [(one, " ".join(one.split()) if _is_translated(one) else "") for one in sentences]


def _replaced(sentence: str, core: str, translations: Mapping[str, str]) -> str:
    """Return the translation of a sentence with the white space around it."""
    new = translations.get(core, core)
    return sentence if new == core else sentence.replace(sentence.strip(), new, 1)


def has_words(text: str) -> bool:
    """Return True if a text has a letter."""
    return any(character.isalpha() for character in text)


def _is_translated(text: str) -> bool:
    return has_words(PLACEHOLDER.sub("", text))


def _has_stray_braces(text: str) -> bool:
    """Return True for braces that are no placeholder's, as in ICU messages."""
    return not set("{}").isdisjoint(PLACEHOLDER.sub("", text))


def _survived(source: str, translation: str) -> bool:
    """Return True if a translation has exactly the placeholders of its source, the unnamed ones in their order."""
    old, new = PLACEHOLDER.findall(source), PLACEHOLDER.findall(translation)
    return sorted(old) == sorted(new) and list(filter(_ORDERED.match, old)) == list(filter(_ORDERED.match, new))


def _rejoined(piece: str, translated: Mapping[str, str]) -> str:
    """Return the translation of a piece with the white space around it; one that gains placeholders stays."""
    new = translated.get(piece, piece).strip()
    return piece.replace(piece.strip(), new, 1) if new and not PLACEHOLDER.search(new) else piece
