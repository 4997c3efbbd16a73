"""Sentence boundaries: languages, odd text, linear time."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt.text.sentences import sentence_ends


def sentences(text: str, language: str = "en") -> list[str]:
    places = [0, *sentence_ends(text, language), len(text)]
    return [text[begin:end].strip() for begin, end in pairwise(places)]


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("en", "Dr. Smith came. He left.", ["Dr. Smith came.", "He left."]),
        ("en", "Version 3.14 is out, e.g. here.", ["Version 3.14 is out, e.g. here."]),
        ("en", 'He said "Stop." Then he left.', ['He said "Stop."', "Then he left."]),
        ("en", "Thanks a lot! :)", ["Thanks a lot! :)"]),
        ("fr", "Quoi ? ! Non.", ["Quoi ? !", "Non."]),
        ("en", "... ! Go on.", ["... ! Go on."]),
        (
            "de",
            "Zwei Männer mit Hut bzw. Mütze dösen. Sie schlafen.",
            ["Zwei Männer mit Hut bzw. Mütze dösen.", "Sie schlafen."],
        ),
        ("de-AT", "Siehe Nr. 5 bzw. 6. Sie schlafen.", ["Siehe Nr. 5 bzw. 6.", "Sie schlafen."]),
        ("deu_Latn", "Siehe Nr. 5 bzw. 6. Sie schlafen.", ["Siehe Nr. 5 bzw. 6.", "Sie schlafen."]),
        ("hi", "यह एक वाक्य है। यह दूसरा है।", ["यह एक वाक्य है।", "यह दूसरा है।"]),
        ("ja", "「こんにちは。」と言った。はい。", ["「こんにちは。」と言った。", "はい。"]),
        ("fr", "M. Macron a rencontré J. Chirac.", ["M. Macron a rencontré J. Chirac."]),
        ("fr", "Mme. Petit et le Dr. Blanc. Il dort.", ["Mme. Petit et le Dr. Blanc.", "Il dort."]),
        ("fr", "Il est du groupe A. Le groupe B part.", ["Il est du groupe A.", "Le groupe B part."]),
        ("de", "Der 2. Weltkrieg endete. Es war Mai.", ["Der 2. Weltkrieg endete.", "Es war Mai."]),
        ("de", "Er kam am 3. Dann ging er.", ["Er kam am 3.", "Dann ging er."]),
        ("de", "Er ist 20. Sie ist 21.", ["Er ist 20.", "Sie ist 21."]),
        ("cs", "Dne 3. října přišel. V 4. třídě.", ["Dne 3. října přišel.", "V 4. třídě."]),
        ("zz", "Good thing. Good two.", ["Good thing.", "Good two."]),
        ("en", "", [""]),
    ],
)
def test_sentences_of_many_languages(language: str, text: str, expected: list[str]) -> None:
    assert sentences(text, language) == expected


def test_a_long_text_is_split_as_its_parts_are() -> None:
    text = "The quick brown fox jumps over it. " * 200
    assert sentences(text.strip()) == ["The quick brown fox jumps over it."] * 200
    long_sentence = "word " * 1000
    assert sentences(f"Short one. {long_sentence}end. Short two.") == [
        "Short one.",
        f"{long_sentence}end.",
        "Short two.",
    ]


@given(st.text(st.sampled_from("aB. .!?。！」「“”\"'\n\t\u2028\u00a0\u3000é😀1,"), max_size=60))
def test_ends_ascend_within_any_text(text: str) -> None:
    """sentencex 1.0.32 panics at a no-break space before an initial, among others."""
    ends = sentence_ends(text)
    assert ends == sorted(set(ends))
    assert all(0 < end < len(text) for end in ends)


@pytest.mark.parametrize("unit", ["“", "' ", "‘a ", "「", "1. ", "Good thing. ", "a", "(", " "])
def test_time_is_linear(unit: str) -> None:
    """The library alone would take minutes for unclosed quotation marks."""
    started = time.process_time()
    sentence_ends(unit * (300_000 // len(unit)))
    assert time.process_time() - started < 8
