"""Segments of a document: text to translate between tags and placeholders that must survive."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from mt.extras.serving.markup import Line
from mt.text.languages import is_spaced
from mt.text.sentences import sentence_ends
from mt.text.words import EMAIL, ID_CHAR, URL

if TYPE_CHECKING:
    from mt.decoding.alignment import Unit

# Takes sentences, and whether to align their words; returns each translation with its words, none if not aligned.
Translate = Callable[[list[str], bool], "Sequence[tuple[str, Sequence[Unit]]]"]
Parts = Sequence[str | Line]  # markup that stays, and lines with inline elements

# Text that must stay as it is: code, format strings, variables, tags, entities, addresses.
PLACEHOLDER = re.compile(
    rf"""(?<!`)`[^`\n]+`(?!`|{ID_CHAR})|\$[A-Za-z_]{ID_CHAR}*|%L?(?:[1-9]|n)(?!{ID_CHAR}|[.,]\d|[$@])|{URL}|{EMAIL}"""
    r"""|%%|%\([^()\s]{1,80}\)[#0\- +]*+[\d.]*+[a-zA-Z]
    |%(?:\d++\$)?[#0\-+]*+(?:\d++|\*)?(?:\.(?:\d++|\*))?(?:hh?|ll?|[Lqjzt])?[diouxXeEfFgGcrsap@](?![a-zA-Z])
    |\{%[^{}\n]{0,80}%\}|[$%]?\{\{?[^{}\n]{0,80}\}?\}
    |</?[a-zA-Z][^<>\n]*>|</?\d{1,3}\s?/?>|&(?:\#?\w{1,31});""",
    re.VERBOSE,
)
_SPLIT = re.compile(f"({PLACEHOLDER.pattern})", re.VERBOSE)  # texts between placeholders at even positions
# Placeholders whose order matters: arguments without a name or number, which a program fills in order, and tags
_ORDERED = re.compile(r"%(?![(%{]|\d+\$|L?[\dn]$)|\{\}|<")
_SAMPLE = 10_000  # characters
# Characters that a document cannot hold, or that would break a line; in a translation, they become spaces.
_CONTROLS = re.compile("[\x00-\x20\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]+")


@dataclass(frozen=True)
class Segment:
    """A paragraph, a cell or a title: texts to translate, with the formatting between them left out."""

    texts: tuple[str, ...]  # pieces between which the formatting changes, in order
    place: str  # where it stands in the document, for messages
    parts: Parts = ()  # the same with the formatting as inline elements, where they can be moved


class Marked(tuple[str, ...]):
    """The translation of a segment as a single text that contains its markup."""


def columns_of(text: str) -> list[str]:
    """Split a text after line ends, and around the tabs and runs of spaces by which messages align columns."""
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
    """Translate all segments, each distinct sentence once: those with inline elements whole, others piece by piece.

    A sentence whose translation does not have each placeholder once is translated in pieces: those between its
    placeholders and its inline elements. Before anything is translated, `show_sample` gets the beginning of the text;
    if it returns False, all segments stay as they are.
    """
    sample = " ".join(text for segment in segments for text in segment.texts)[:_SAMPLE]
    if show_sample is not None and show_sample(sample) is False:
        return Result([None] * len(segments), [])
    parts = {n: s.parts for n, s in enumerate(segments) if s.parts and any(map(_is_translated, s.texts))}
    marked = dict[int, Marked | None]()
    if parts:
        marked = dict(zip(parts, _translate_marked(parts.values(), translate, languages), strict=True))
    others = [segment for n, segment in enumerate(segments) if marked.get(n) is None]
    pieces = _translate_pieces(others, translate, languages[0])
    remaining = iter(pieces.texts)
    return Result([marked.get(n) or next(remaining) for n in range(len(segments))], pieces.kept)


def _translate_marked(
    marked: Iterable[Parts], translate: Translate, languages: tuple[str, str]
) -> Iterator[Marked | None]:
    """Translate texts with inline elements, and place these by word alignment.

    Each distinct sentence is translated once, and only if it has something to translate. A text becomes None if the
    translation of one of its sentences is not intact.
    """
    from mt.decoding.alignment import align_units
    from mt.decoding.candidates import Candidate
    from mt.extras.serving.segmentation import SegmentedText

    separator = " " if is_spaced(languages[1]) else ""
    segmented = [SegmentedText(parts, separator, languages[0], is_html=True) for parts in marked]
    sentences = list(dict.fromkeys(sentence for text in segmented for sentence in text.sentences))
    aligned: dict[str, tuple[str, Sequence[Unit]]] = {
        s: (s, align_units(s, s)) for s in sentences if not _is_translated(s)
    }
    requested = [sentence for sentence in sentences if sentence not in aligned]
    aligned |= zip(requested, translate(requested, True) if requested else (), strict=True)
    for text in segmented:
        if all(_is_intact(sentence, aligned[sentence][0]) for sentence in text.sentences):
            candidates = [Candidate(aligned[sentence][0], 0.0, 0.0) for sentence in text.sentences]
            yield Marked([text.assemble(candidates, lambda sentence, _: aligned[sentence][1])])
        else:
            yield None


def _is_intact(source: str, translation: str) -> bool:
    is_line = bool(translation.strip()) and _CONTROLS.sub(" ", translation) == translation
    return is_line and not _has_stray_braces(source) and _survived(source, translation)


def _translate_pieces(segments: Sequence[Segment], translate: Translate, language: str) -> Result:
    split = [[_sentences(text, language) for text in segment.texts] for segment in segments]
    translated = _translate_distinct(translate, (core for texts in split for text in texts for _, core in text if core))
    lossy = [core for core, translation in translated.items() if not _survived(core, translation)]
    between = (piece for core in lossy for piece in _SPLIT.split(core)[::2] if has_words(piece))
    translated_pieces = _translate_distinct(translate, between)
    for core in lossy:
        pieces = _SPLIT.split(core)
        pieces[::2] = [_rejoined(piece, translated_pieces) for piece in pieces[::2]]
        translated[core] = "".join(pieces)
    texts: list[tuple[str, ...] | None] = []
    kept = []
    for segment, sentences in zip(segments, split, strict=True):
        cores = [core for text in sentences for _, core in text if core]
        reasons = [f"no translation of {core:.60}" for core in cores if not translated[core].strip()]
        reasons += [f"unpaired or nested braces: {core:.60}" for core in cores if _has_stray_braces(core)]
        if reasons:
            kept.append((segment.place, reasons[0]))
            texts.append(None)
        else:
            texts.append(tuple("".join(_replaced(*pair, translated) for pair in text) for text in sentences))
    return Result(texts, kept)


def _translate_distinct(translate: Translate, texts: Iterable[str]) -> dict[str, str]:
    """Translate each distinct text once; return the translations by text."""
    distinct = list(dict.fromkeys(texts))
    new = [_CONTROLS.sub(" ", text) for text, _ in translate(distinct, False)] if distinct else []
    return dict(zip(distinct, new, strict=True))


def _sentences(text: str, language: str) -> list[tuple[str, str]]:
    """Return (sentence, core) for each sentence: the core is on one line, or empty if there is nothing to translate."""
    sentences = [text[start:end] for start, end in pairwise([0, *sentence_ends(text, language), len(text)])]
    return [(sentence, " ".join(sentence.split()) if _is_translated(sentence) else "") for sentence in sentences]


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
    """Return True for braces that belong to no placeholder, as in ICU messages."""
    return not set("{}").isdisjoint(PLACEHOLDER.sub("", text))


def _survived(source: str, translation: str) -> bool:
    """Return True if a translation has exactly the placeholders of its source, the unnamed ones in their order."""
    old, new = PLACEHOLDER.findall(source), PLACEHOLDER.findall(translation)
    return sorted(old) == sorted(new) and list(filter(_ORDERED.match, old)) == list(filter(_ORDERED.match, new))


def _rejoined(piece: str, translated: Mapping[str, str]) -> str:
    """Return the translation of a piece with the white space around it; one that gains placeholders stays."""
    new = translated.get(piece, piece).strip()
    return piece.replace(piece.strip(), new, 1) if new and not PLACEHOLDER.search(new) else piece
