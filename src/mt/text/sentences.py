"""Sentence boundaries, by the rules of `sentencex` (Wikimedia) for about 300 languages."""

import re

_WINDOW = 1000  # characters; `sentencex` takes quadratic time where quotation marks are never closed
_CLOSING = "」』）"
_SPACE = re.compile(r"\s")


def sentence_ends(text: str, language: str = "en") -> list[int]:
    """Return the end of each sentence but the last, after the white space that follows it.

    A segment without a letter or digit, such as ":)", is part of the previous one; 「…。」と言った is one sentence.

    Args:
        text: one line of text.
        language: its language code; other codes fall back to a related language or to English.
    """
    ends: list[int] = []
    for end in _boundaries(_SPACE.sub(" ", text), language):
        if text[end - 1] in _CLOSING:
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
        return list(segment(language, text))
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # a bug of the library, in Rust: 1.0.32 has them at odd spaces
            raise
        return [text]
