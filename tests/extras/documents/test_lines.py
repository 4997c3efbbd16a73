"""Subtitles in languages without spaces and with markup in translations, and extensions of Markdown."""

import time
from pathlib import Path

import pytest

from document_helpers import shout, translated, translator
from mt.extras.documents.lines import scan_subtitles
from mt.extras.documents.translating import translate_document

CUE = "{}00:01.000 --> 00:02.000\n{}\n"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("今天天气很好我们去公园", "今天天气很好\n我们去公园"),
        ("今天天气很。好我们去", "今天天气很。\n好我们去"),  # no line begins with a full stop
        ("今天的iPhone在这里", "今天的iPhone\n在这里"),
        ("ที่นี่น้ำ", "ที่นี่\nน้ำ"),  # nor with a combining mark
        ("好", "好"),
    ],
)
def test_a_cue_without_spaces_has_as_many_lines(tmp_path: Path, answer: str, expected: str) -> None:
    (tmp_path / "a.srt").write_text(CUE.format("1\n", "one\ntwo"))
    for language in ("zh", "th"):
        new = translated(tmp_path / "a.srt", lambda _: [answer], languages=("en", language)).decode()
        assert new == CUE.format("1\n", expected)
    (tmp_path / "a.srt").write_text(CUE.format("1\n", "one\ntwo"))
    new = translated(tmp_path / "a.srt", lambda _: ["Verbesserung"], languages=("en", "de")).decode()
    assert new == CUE.format("1\n", "Verbesserung")


def test_a_translation_is_no_markup_of_a_cue(tmp_path: Path) -> None:
    cue = "<i>Tom &amp; you</i> now"
    for name, head in (("a.vtt", "WEBVTT\n\n"), ("a.srt", "1\n")):
        (tmp_path / name).write_text(CUE.format(head, cue))
        new = translated(tmp_path / name, lambda texts: [f"{text} & x < y" for text in texts]).decode()
        loud = "<i>Tom &amp; you & x < y</i> now & x < y"
        loud = loud.replace("& x <", "&amp; x &lt;") if name == "a.vtt" else loud
        assert new == CUE.format(head, loud)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('!!! note "Title"\n    some\n    text\n', '!!! note "Title"\n    SOME TEXT\n'),
        ("??? tip\n    some\n\nmore\n", "??? tip\n    SOME\n\nMORE\n"),
        ("!!! Watch out\n", "!!! WATCH OUT\n"),
        ('=== "Tab"\nsome\n', '=== "Tab"\nSOME\n'),
        (":::tip\nsome\ntext\n:::\n", ":::tip\nSOME TEXT\n:::\n"),
        ("one\n$$\nx = y\n$$\ntwo\nthree\n", "ONE\n$$\nx = y\n$$\nTWO THREE\n"),
        ("$$ x = y $$\ntwo\n", "$$ x = y $$\nTWO\n"),
        ("a term\n:   its\n    meaning\n", "A TERM\n:   ITS MEANING\n"),
        ("a <kbd>ctrl</kbd> or <code class=x>do <b>it</b></code>",
         "A <kbd>ctrl</kbd> OR <code class=x>do <b>it</b></code>"),
        ('a <span translate="no">Name</span> <i>here</i>', 'A <span translate="no">Name</span> <i>HERE</i>'),
        ("<div>\nstays\n</div>\n", "<div>\nstays\n</div>\n"),
        ("at https://a.org/b_(c) or https://a.org/_d/*e* now", "AT https://a.org/b_(c) OR https://a.org/_d/*e* NOW"),
        ("**see https://a.org/b** or _https://a.org/c_ now", "**SEE https://a.org/b** OR _https://a.org/c_ NOW"),
        ("a [https://a.org/b_](https://a.org/b_) link", "A [https://a.org/b_](https://a.org/b_) LINK"),
        ("use https://a.org/{{ version }}/x now", "USE https://a.org/{{ version }}/X NOW"),
        ("[see https://a.org/x][ref] for it", "[SEE https://a.org/x][ref] FOR IT"),
        ("see https://a.org\\\nnext ~~https://a.org~~more", "SEE https://a.org\\\nNEXT ~~https://a.org~~MORE"),
        ("one\n\u3000two\n", "ONE TWO\n"),
        ("- first line\n\tsecond line\n", "- FIRST LINE SECOND LINE\n"),
        ("> 1. first\n>\t\tsecond\n\nlast\n", "> 1. FIRST SECOND\n\nLAST\n"),
        ("> see `a\n> --b` and `c` or\n> [the\n> d](e.md\n> \"f\") now\n",
         "> SEE `a\n> --b` AND `c` OR\n> [THE D](e.md\n> \"f\") NOW\n"),
        ("a <!-- b\nc --> d <a href=e\ntitle=f>g</a>\nh\n", "A <!-- b\nc --> D <a href=e\ntitle=f>G</a>\nH\n"),
        ("first\rsecond\n\nthird\r\r\nfourth\n", "FIRST SECOND\n\nTHIRD\r\r\nFOURTH\n"),
    ],
)  # fmt: skip
def test_extensions_and_code_of_markdown_stay(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "a.md").write_bytes(text.encode())
    assert translated(tmp_path / "a.md", shout).decode() == expected


def test_a_paragraph_that_cannot_be_found_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("some\0text\n\nmore\n")
    done = translate_document(tmp_path / "a.md", tmp_path / "b.md", translator(shout))
    assert (tmp_path / "b.md").read_text() == "some\0text\n\nMORE\n"
    assert (done.segments, done.kept) == (2, [("line 1", "not found as it stands: some\ufffdtext")])


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\r\r\n"])
def test_line_ends_of_subtitles_stay(tmp_path: Path, end: str) -> None:
    source = (CUE.format("1\n", "one\ntwo") + "\n" + CUE.format("2\n", "three").rstrip()).replace("\n", end)
    (tmp_path / "a.srt").write_bytes(source.encode())
    expected = source.replace(f"one{end}two", f"ONE{end}TWO").replace("three", "THREE")
    assert translated(tmp_path / "a.srt", shout).decode() == expected
    assert [segment.place for segment in scan_subtitles(source, is_vtt=False).segments] == ["line 3", "line 8"]


@pytest.mark.parametrize("text", ["!!! a" + " " * 20_000 + "X", "<code>" * 5_000, "<a" + " translate=no" * 5_000,
                                  "https://" + "_" * 100_000])  # fmt: skip
def test_time_is_linear(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.md").write_text(text)
    start = time.process_time()
    translated(tmp_path / "a.md", lambda texts: texts)
    assert time.process_time() - start < 10
