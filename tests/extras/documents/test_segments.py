"""Placeholders survive, and what a document cannot hold does not reach it."""

import time

import pytest

from document_helpers import shout, translator
from mt.extras.documents.markup import HTML, scan
from mt.extras.documents.segments import PLACEHOLDER, Segment, translate_segments


def of(text: str, *answers: str) -> str | None:
    """Translate a text with a model that gives these answers, one after another."""
    rest = iter(answers)
    answer = translator(lambda texts: [next(rest, "") for _ in texts])
    [new] = translate_segments([Segment((text,), "here")], answer).texts
    return None if new is None else new[0]


def test_placeholders_survive_a_model_that_loses_them() -> None:
    """Then the text between them is translated, and what has no translation stays and is reported."""

    def loses(texts: list[str]) -> list[str]:
        return ["" if text == "Bad" else PLACEHOLDER.sub("", text).upper() for text in texts]

    sources = ["Open %s at {place}, see https://a.example/b?c=d.", "Bad", "Hello. 42. Bye &amp; on.", "100% of $5"]
    result = translate_segments([Segment((text,), f"line {n}") for n, text in enumerate(sources)], translator(loses))
    assert result.texts == [
        ("OPEN %s AT {place}, SEE https://a.example/b?c=d.",),
        None,
        ("HELLO. 42. BYE &amp; ON.",),
        ("100% OF $5",),
    ]
    assert result.kept == [("line 1", "no translation of Bad")]


def test_each_sentence_is_translated_once() -> None:
    calls: list[list[str]] = []
    segments = [Segment(("One thing. Another thing.", "One thing."), "a"), Segment(("Another thing.",), "b")]
    answer = translator(lambda texts: calls.append(texts) or shout(texts))  # type: ignore[func-returns-value]
    result = translate_segments(segments, answer)
    assert calls == [["One thing.", "Another thing."]]
    assert result.texts == [("ONE THING. ANOTHER THING.", "ONE THING."), ("ANOTHER THING.",)]


def test_the_sample_is_in_the_order_of_the_document_and_comes_first() -> None:
    events: list[str] = []

    def answer(texts: list[str]) -> list[str]:
        events.append("translates")
        return texts

    segments = scan("<p>One thing.</p><p>Another <b>thing</b></p>", markup=HTML, place="line").segments
    assert segments[1].parts
    translate_segments(segments, translator(answer), show_sample=events.append)
    assert " ".join(events[0].split()) == "One thing. Another thing"
    assert "translates" in events


@pytest.mark.parametrize(
    "mark",
    ["%s", "%d", "%1$s", "%-5.2f", "%%", "%(name)s", "%*d", "%zu", "{}", "{name}", "{0}", "{{x}}", "${x}", "$HOME",
     "&amp;", "&#38;", "<b>", "</a>", "`code x`", "{% if x %}", "%{name}", "%n", "%Ln", "%1", "%L1", 
     "<0>", "</0>", "<1/>", "https://example.org/a?b=c", "a.b@example.org",
     "https://example.org/a_(b)", "https://example.org/users/{id}", "%1@"],
)  # fmt: skip
def test_each_placeholder_survives_a_model_that_loses_it(mark: str) -> None:
    assert of(f"open {mark} now", "auf nun", "auf", "nun") == f"auf {mark} nun"
    assert of(f"open {mark} now", f"nun {mark} auf") == f"nun {mark} auf"


@pytest.mark.parametrize("mark", ["a.b@example.org", "https://example.org/a", "%1", "$HOME", "`code x`"])
def test_letters_beside_a_placeholder_are_translated(mark: str) -> None:
    """Where words are written without spaces."""
    assert of(f"联系{mark}获取帮助。", f"contact {mark} for help.") == f"contact {mark} for help."


@pytest.mark.parametrize(("source", "swapped"), [("copy %s to %d", "nach %d kopiere %s"), ("<b>a</b> b", "</b>a<b> b")])
def test_unnamed_arguments_keep_their_order(source: str, swapped: str) -> None:
    assert of(source, swapped, "x", "y") != swapped


@pytest.mark.parametrize(
    "text",
    [
        "100% sure",
        "50% of all",
        "%50 more",
        "1 % now",
        "100%.",
        "a %nice one",
        "1 <2 and 3> 2",
        "It costs $5.",
        "a < b and c > d",
        "AT&T",
        "`a' and `b'",
    ],
)
def test_text_that_only_looks_like_placeholders_is_translated(text: str) -> None:
    assert of(text, text.upper()) == text.upper()


def test_named_and_numbered_arguments_change_places() -> None:
    assert of("%1 of %L2 by %{name}", "%{name}: %L2, %1") == "%{name}: %L2, %1"
    assert of("%1%2 of", "%2%1 of") == "%2%1 of"
    assert of("%5d of %3d", "%3d %5d", "of") == "%5d of %3d"


def test_messages_with_nested_braces_stay() -> None:
    result = translate_segments([Segment(("{n, plural, one {a file} other {# files}}",), "line 1")], translator(shout))
    assert (result.texts, [reason[:25] for _, reason in result.kept]) == ([None], ["unpaired or nested braces"])


def test_control_characters_and_line_breaks_of_a_model_become_spaces() -> None:
    assert of("a b", "x\x0b\x00y\n\n00:00:01,000 --> z\ud800\u2028w\u00a0!") == "x y 00:00:01,000 --> z w\u00a0!"


@pytest.mark.parametrize("text", ["a" * 300_000, "<a " * 50_000, "{% " * 50_000, "a@" * 50_000, "`a " * 50_001,
                                  "https://" + "a(" * 50_000,
                                  "%" + "0" * 100_000, "%(a)" + "0" * 100_000, "%(" * 50_000])  # fmt: skip
def test_time_is_linear(text: str) -> None:
    start = time.process_time()
    PLACEHOLDER.findall(text)
    assert time.process_time() - start < 10
