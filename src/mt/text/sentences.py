"""Sentence boundaries, by the rules of `sentencex` (Wikimedia) for about 300 languages."""

import re

from mt.text.languages import base_language

_WINDOW = 1000  # characters; `sentencex` takes quadratic time where quotation marks are never closed
_LOOKBACK = 40  # characters before an end that say whether it is one
_CLOSING = "」』）"
_SPACE = re.compile(r"\s")
# Text before a boundary of the library that ends no sentence: titles and initials (French), and ordinals (German).
_TITLE = re.compile(r"(?<!\w)(?:M|MM|Dr|Mme|Mlle|Me|St)\.\s+\Z")
_INITIAL = re.compile(r"(?<![\w'’-])[A-Z]\.\s+\Z")
_ORDINAL = re.compile(r"\b(?:der|die|das|des|dem|den|am|im|vom|zum|zur|beim)\s+\d{1,2}\.\s+\Z", re.IGNORECASE)
_NUMBER = re.compile(r"\d\.\s+\Z")
_STARTS = {  # words that begin a sentence rather than continue a name or a number
    "fr": "Le La Les Il Elle Ils Elles On Un Une Ce Cette Ces Je Tu Nous Vous Et Mais En Au Dans Pour".split(),
    "de": "Der Die Das Den Dem Des Er Sie Es Ich Du Wir Ihr Ein Eine Und Aber Dann Danach Da Dort Am Im In".split(),
}


def sentence_ends(text: str, language: str = "en") -> list[int]:
    """Return the end of each sentence but the last, after the white space that follows it.

    The text is one line. A segment without a letter or digit, such as ":)", is part of the previous one, and
    「…。」と言った is one sentence. Languages without rules have those of a related language or of English.
    """
    ends: list[int] = []
    for end in _boundaries(_SPACE.sub(" ", text), language):
        if text[end - 1] in _CLOSING or _is_within(text[max(0, end - _LOOKBACK) : end], text[end : end + 20], language):
            continue
        if _has_words(text[ends[-1] if ends else 0 : end]):
            ends.append(end)
        elif ends:
            ends[-1] = end
    while ends and not _has_words(text[ends[-1] :]):
        ends.pop()
    return ends


def _has_words(text: str) -> bool:
    return any(character.isalnum() for character in text)


def _is_within(before: str, after: str, language: str) -> bool:
    """Return True for a boundary within a sentence, after an abbreviation or an ordinal number."""
    if after[:1].islower():
        return _NUMBER.search(before) is not None
    base = base_language(language)
    starts_sentence = re.split(r"\W", after, maxsplit=1)[0] in _STARTS.get(base, ())
    if base == "fr":
        return _TITLE.search(before) is not None or (_INITIAL.search(before) is not None and not starts_sentence)
    return base == "de" and _ORDINAL.search(before) is not None and not starts_sentence


def _boundaries(text: str, language: str) -> list[int]:
    """Segment overlapping windows, so that the time is linear in the length of the text."""
    ends: list[int] = []
    start = 0
    while start < len(text):
        end = start
        for sentence in _segment(text[start : start + _WINDOW], language)[:-1]:
            end += len(sentence)
            ends.append(end)
        if start + _WINDOW >= len(text):
            break
        start = max(end, start + _WINDOW // 2)
    return ends


def _segment(text: str, language: str) -> list[str]:
    from sentencex import segment

    try:
        return list(segment(base_language(language), text))
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # the library is in Rust; 1.0.32 panics at unusual white space
            raise
        return [text]
