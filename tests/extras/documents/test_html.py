"""HTML and Office markup: raw text elements, attributes in any quotes, and marks that do not split a sentence."""

from pathlib import Path
from time import process_time

import pytest

from document_helpers import same, shout, translated
from mt.extras.documents.markup import DOCX, HTML, PPTX, scan


@pytest.mark.parametrize("raw", ["<script>if (a<b) x('y)</script>", "<STYLE>'</STYLE >", "<textarea>'<b></textarea>"])
def test_text_behind_a_raw_element_is_translated(tmp_path: Path, raw: str) -> None:
    """Also behind İ, whose lower case has two characters."""
    page = f"<p>İİİİİ one</p>{raw}<p title='a'>two</p><script></script\n><p>three</p>"
    (tmp_path / "a.html").write_text(page, newline="")
    expected = page.replace("one", "ONE").replace("two", "TWO").replace("three", "THREE")
    assert translated(tmp_path / "a.html", shout).decode() == expected.replace("'a'", '"A"')


def test_an_attribute_is_translated_whatever_its_quotes(tmp_path: Path) -> None:
    page = """<img alt='a red "cat"' src='x'><img src=x alt=cat><img alt="dog"/><p data-x="see title='b'">c</p>"""
    (tmp_path / "a.html").write_text(page)
    assert translated(tmp_path / "a.html", shout).decode() == (
        """<img alt="A RED &quot;CAT&quot;" src='x'><img src=x alt="CAT"><img alt="DOG"/>"""
        """<p data-x="see title='b'">C</p>"""
    )


@pytest.mark.parametrize(
    "unclosed", ["<!-- ", "<![CDATA[", "<!", "<!'", "<a ", "<a", '<a b="', "<a '", '<a "<a "" ', '<a" "', '<a =x" "']
)
def test_unclosed_markup_takes_linear_time(unclosed: str) -> None:
    started = process_time()
    assert scan("<p>One</p>" + 20_000 * unclosed, HTML, "").segments[0].texts == ("One",)
    assert process_time() - started < 2, "one search to the end for each takes minutes"


@pytest.mark.parametrize(
    ("page", "texts"),
    [
        ("<!DOCTYPE html [<!ENTITY a 'b'>]><p <?= a ?>One</p><p>x <y</p><p>z</p>", ["One", "x <y", "z"]),
        ("<div {% if a < b %}class=x{% endif %}>One</div>", ["One"]),
        ('<?xml:namespace prefix = o ns = "urn:x" /><p>One</p>', ["One"]),  # of Office, without ?>
        ("<?php if (a > b) echo 1 ?><p>One</p><p>a <? b</p><p>c</p>", ["One", "a <? b", "c"]),
        ("<!--><p>One</p><!---><p>Two</p>", ["One", "Two"]),  # empty comments
        ("<p title=it's>One</p><code class=/x/>two</code>", ["it's", "One"]),  # values without quotation marks
    ],
)
def test_a_tag_ends_before_the_next_but_not_before_the_code_of_a_template(page: str, texts: list[str]) -> None:
    assert [" ".join(segment.texts) for segment in scan(page, HTML, "").segments] == texts


def test_proofing_marks_and_comments_do_not_split_a_sentence() -> None:
    runs = (
        "<w:r><w:t>Some </w:t></w:r>",
        '<w:r><w:rPr><w:lang w:val="en-GB"/><w:noProof/></w:rPr><w:t>text </w:t></w:r>',
        '<w:commentRangeStart w:id="1"/><w:r w:rsidR="1"><w:rPr><w:lang w:val="de"/></w:rPr><w:t>in </w:t></w:r>',
        '<w:commentRangeEnd w:id="1"/><w:r><w:rPr><w:rStyle w:val="CommentReference"/></w:rPr>',
        '<w:commentReference w:id="1"/></w:r><w:r><w:t>runs </w:t></w:r>',
        "<w:r><w:rPr><w:b/></w:rPr><w:t>and </w:t></w:r>",
        '<w:r><w:rPr><w:b/><w:lang w:val="en-GB"/></w:rPr><w:t>bold</w:t></w:r>',
    )
    [word] = scan(f"<w:p>{''.join(runs)}</w:p>", DOCX, "").segments
    assert word.texts == ("Some text in runs ", "and bold")
    slide = (
        '<a:p><a:r><a:rPr lang="en-US" dirty="0"/><a:t>Some </a:t></a:r><a:r><a:rPr lang="en-US" err="1"></a:rPr>'
        '<a:t>text </a:t></a:r><a:r><a:t>and </a:t></a:r><a:r><a:rPr lang="de" b="1"/><a:t>bold</a:t></a:r></a:p>'
    )
    assert scan(slide, PPTX, "").segments[0].texts == ("Some text and ", "bold")


@pytest.mark.parametrize(
    ("fonts", "is_code"),
    [
        ('w:ascii="Courier New" w:hAnsi="Courier New"', True),
        ('w:hAnsi="DejaVu Sans Mono"', True),
        ('w:ascii="Monotype Corsiva"', False),
        ('w:ascii="Arial" w:hAnsi="Arial" w:cs="Courier New"', False),
    ],
)
def test_text_in_the_font_of_code_stays(fonts: str, is_code: bool) -> None:
    run = f"<w:p><w:r><w:rPr><w:rFonts {fonts}/></w:rPr><w:t>Some text</w:t></w:r></w:p>"
    assert [segment.texts for segment in scan(run, DOCX, "").segments] == ([] if is_code else [("Some text",)])


def test_a_paragraph_has_its_own_line_behind_an_attribute_further_down() -> None:
    segments = scan("<p>one\n\n<b title='two'>three</b></p>", HTML, "line").segments
    assert {segment.texts[0]: segment.place for segment in segments} == {"two": "line:3", "one\n\n": "line:1"}


@pytest.mark.parametrize(
    "declaration",
    [
        '<meta charset="{}">',
        "<META http-equiv=Content-Type content='text/html; charset={}'>",
        '\ufeff<?xml version="1.0" encoding="{}"?><meta charset={}>',
    ],
)
def test_another_character_set_is_declared_no_longer(tmp_path: Path, declaration: str) -> None:
    """A page in ASCII may declare any; its translation is in UTF-8."""
    page = f"{declaration}<p>&ouml;</p>"
    (tmp_path / "a.html").write_text(page.replace("{}", "iso-8859-1"))
    assert translated(tmp_path / "a.html", shout).decode() == page.replace("{}", "UTF-8").replace("&ouml;", "Ö")
    for unchanged in ("utf-8", "UTF8"):
        (tmp_path / "a.html").write_text(page.replace("{}", unchanged))
        assert unchanged in translated(tmp_path / "a.html", shout).decode()
    (tmp_path / "a.html").write_text(page.replace("{}", "iso-8859-1"))
    assert translated(tmp_path / "a.html", same) == (tmp_path / "a.html").read_bytes()
