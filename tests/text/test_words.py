"""Words and punctuation marks of any script."""

import pytest

from mt.text.words import WORD, is_single, word_starts


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't stop, A_1!", ["Don", "'", "t", "stop", ",", "A_1", "!"]),
        ("caf\u00e9 cafe\u0301", ["caf\u00e9", "cafe\u0301"]),
        ("\u0939\u093f\u0928\u094d\u0926\u0940 \u092d\u093e\u0937\u093e\u0964", [
            "\u0939\u093f\u0928\u094d\u0926\u0940", "\u092d\u093e\u0937\u093e", "\u0964",
        ]),
        ("\u0645\u064e\u0631\u0652 \u0645\u06cc\u200c\u062e", ["\u0645\u064e\u0631\u0652", "\u0645\u06cc\u200c\u062e"]),
        ("\u4f60\u597d ok", ["\u4f60", "\u597d", "ok"]),
        ("\U0001f469\u200d\U0001f4bb\U0001f44d\U0001f3fd \u2764\ufe0f!", [
            "\U0001f469\u200d\U0001f4bb", "\U0001f44d\U0001f3fd", "\u2764\ufe0f", "!",
        ]),
    ],
)  # fmt: skip
def test_words_are_whole(text: str, words: list[str]) -> None:
    assert WORD.findall(text) == words
    assert [text.index(word) for word in words] == word_starts(text)


def test_signs_are_no_words() -> None:
    assert [is_single(character) for character in ("!", "\u4f60", "a", "\u093f", "\u0301", " ", "")] == [
        *[True, True], *[False] * 5,
    ]  # fmt: skip
