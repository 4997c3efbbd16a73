"""Documents: a round trip changes nothing, a translation the text and nothing else, and bad files are refused."""

import io
import os
import re
import struct
import threading
import time
import tracemalloc
import zipfile
from pathlib import Path
from zlib import crc32

import docx
import matplotlib
import mkdocs
import odf.opendocument
import odf.table
import odf.text
import pptx
import pytest
from lxml import etree
from markdown_it import MarkdownIt

from command import mt
from document_helpers import same, shout, translated, translator
from mt.errors import InputError
from mt.extras.documents.formats import document_format
from mt.extras.documents.translating import DocumentSummary, translate_document

ROOT = Path(__file__).parents[3]
MKDOCS, MATPLOTLIB = Path(mkdocs.__file__).parent, Path(matplotlib.__file__).parent


HTML = """\
<!DOCTYPE html>\r
<html lang="en"><head><title>A title</title><style>p { color: red }</style></head>
<body title="A &quot;word&quot;"><h1>First  heading</h1>
<p>Some <b>bold</b> text &amp; more,
on two lines. <img src="a.png" alt="A picture"> <code>do(x)</code></p>
<pre>for x in y</pre><script>if (a<b && "it's") { x('y') }</script>
<p translate="no">Stays</p><ul><li>One<li>Two %(name)s</ul><p>3 &lt; 4</p></body></html>
"""
MARKDOWN = """\
---
title: stays
---
# A *heading*

A paragraph of two
lines with `code`, a [link](http://a.example/x_y) and **bold**.

> A quote
> goes on.

* one item
  * another <br> item

| head | other |
|------|-------|
| cell | `x`   |

```python
print("stays")
```
"""
CUES = """\
1
00:00:01,000 --> 00:00:02,500
Hello there,
my friend.

2
00:00:03,000 --> 00:00:04,000
<i>Good</i> bye
"""
SRT = "\ufeff" + CUES.replace("\n", "\r\n")
VTT = """\
WEBVTT

NOTE stays

first
00:01.000 --> 00:02.000 align:start
Hello there

00:03.000 --> 00:04.000
<v Ann>Bye
"""
XLIFF = """\
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file source-language="en" original="a"><body>
<trans-unit id="1"><source>Press <g id="1">the key</g> now<x id="2"/></source></trans-unit>
<trans-unit id="6"><source>A <mrk mtype="protected">Bc</mrk> d</source><seg-source>a</seg-source></trans-unit>
<trans-unit id="2"><source>Done</source><target>Fertig</target></trans-unit>
<trans-unit id="3" translate="no"><source>Stays</source></trans-unit>
<group translate="no"><trans-unit id="4"><source>Stays, too</source></trans-unit>
<trans-unit id="5" translate="yes"><source>Goes</source></trans-unit></group>
</body></file></xliff>
"""
XLIFF_2 = """\
<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en"><file id="f"><unit id="1">
<segment><source>Some text</source></segment></unit>
<unit id="2" translate="no"><segment><source>Stays</source></segment></unit>
<group id="3" translate="no"><unit id="4"><segment><source>Stays, too</source></segment></unit></group>
</file></xliff>
"""
TMX = """\
<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="en"><seg>A segment</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>Done</seg></tuv><tuv xml:lang="de-AT"><seg>Fertig</seg></tuv></tu>
</body></tmx>
"""
EMPTY = '<tu><tuv xml:lang="en"><seg>{}</seg></tuv><tuv xml:lang="de"><note>empty</note><seg/></tuv></tu>'
TEXTS = {"a.html": HTML, "a.md": MARKDOWN, "a.srt": SRT, "a.vtt": VTT, "a.tsv": "one text\n\nother, text\n"}


@pytest.mark.parametrize("name", TEXTS)
def test_a_round_trip_of_text_changes_no_byte(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(TEXTS[name].encode())
    options = {"columns": "1"} if name.endswith("tsv") else {}
    assert translated(tmp_path / name, same, **options) == TEXTS[name].encode()


REAL = [
    *sorted((MATPLOTLIB / "backends" / "web_backend").glob("*.html")),
    *sorted((MKDOCS / "themes" / "mkdocs").glob("*.html")),
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "README.md",
]


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_a_round_trip_of_real_files_changes_no_byte(tmp_path: Path, path: Path) -> None:
    copy = tmp_path / path.name
    copy.write_bytes(path.read_bytes())
    assert translated(copy, same) == path.read_bytes()
    loud = translated(copy, shout)
    if path.suffix == ".md":
        fences = re.compile(rb"^```.*?^```", re.MULTILINE | re.DOTALL)
        assert fences.findall(loud) == fences.findall(path.read_bytes())
        assert re.findall(rb"\]\([^)]*\)", loud) == re.findall(rb"\]\([^)]*\)", path.read_bytes())
        assert loud != path.read_bytes()


def test_html_is_translated_and_its_code_is_not(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(HTML, newline="")
    loud = translated(tmp_path / "a.html", shout).decode()
    expected = (
        HTML.replace("A title", "A TITLE")
        .replace("A &quot;word&quot;", "A &quot;WORD&quot;")
        .replace("First  heading", "FIRST HEADING")
    )
    for old in ("Some ", ">bold<", "A picture", ">One", ">Two "):
        expected = expected.replace(old, old.upper(), 1)
    expected = expected.replace(" text &amp; more,\non two lines.", " TEXT &amp; MORE, ON TWO LINES.")
    assert loud == expected


def test_markdown_is_translated_and_its_code_is_not(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(MARKDOWN)
    loud = translated(tmp_path / "a.md", shout).decode()
    assert "# A *HEADING*\n\nA PARAGRAPH OF TWO LINES WITH `code`, A [LINK](http://a.example/x_y) AND **BOLD**." in loud
    assert "> A QUOTE GOES ON.\n\n* ONE ITEM\n  * ANOTHER <br> ITEM" in loud
    assert "| HEAD | OTHER |\n|------|-------|\n| CELL | `x`   |" in loud
    assert loud.startswith("---\ntitle: stays\n---\n")
    assert loud.endswith('```python\nprint("stays")\n```\n')


def test_a_translation_is_no_html(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<p title="a">b</p>')
    assert translated(tmp_path / "a.html", lambda texts: ['">x'] * len(texts)) == (
        b'<p title="&quot;&gt;x">&quot;&gt;x</p>'
    )


@pytest.mark.parametrize("answer", ["# Titel", "- a", "1984. Ein Buch", "a | b", "> x", "===", "*a* _b_ [c](d)", "`x"])
def test_a_translation_does_not_become_markdown(tmp_path: Path, answer: str) -> None:
    for source in ("text\n\nmore\n", "| text | b |\n|---|---|\n| c | d |\n"):
        (tmp_path / "a.md").write_text(source)
        new = translated(tmp_path / "a.md", lambda texts: [answer for _ in texts]).decode()
        old, tokens = ([*MarkdownIt().enable("table").parse(text)] for text in (source, new))
        assert [token.type for token in tokens] == [token.type for token in old]
        assert answer in ["".join(part.content for part in token.children or ()) for token in tokens]


def test_marks_of_markdown_stay(tmp_path: Path) -> None:
    """Also a link's title, references, escaped bars, images and boxes to tick."""
    text = (
        'Some [text](http://a.b/c_(d) "t") [ref] and [x][ref]\n\n| a | b \\| c |\n|---|---|\n| x | `y` |\n\n'
        "* [ ] item ~~old~~ snake_case `` a`b `` {{ var }}\n\n[ref]: http://a.b\n"
    )
    (tmp_path / "a.md").write_text(text)
    expected = text
    for old in ("Some ", "[text]", "and ", "[x]", "| a ", "b \\| c", "| x ", "item ", "old", "snake_case"):
        expected = expected.replace(old, old.upper(), 1)
    assert translated(tmp_path / "a.md", shout).decode() == expected


def test_addresses_and_placeholders_of_a_wrapped_paragraph_stay(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("Hello reader of this\npage: see https://a.example/my_page and {my_name}.\n")
    loud = translated(tmp_path / "a.md", shout).decode()
    assert loud == "HELLO READER OF THIS PAGE: SEE https://a.example/my_page AND {my_name}.\n"


def test_hard_line_breaks_and_front_matter_stay(tmp_path: Path) -> None:
    text = "\ufeff+++\ntitle = 'stays'\n+++\n# Poem\n\nRoses are red,  \nviolets are\\\nblue \\\\\nand sweet\n"
    (tmp_path / "a.md").write_text(text)
    expected = text.replace("Poem", "POEM").replace("Roses are red", "ROSES ARE RED").replace("violets", "VIOLETS")
    expected = expected.replace(" are\\\n", " ARE\\\n").replace("blue", "BLUE").replace("and sweet", "AND SWEET")
    assert translated(tmp_path / "a.md", shout).decode() == expected
    text = "\ufeff---\r\ntitle: stays\r\n---\r\ntext\r\n"
    (tmp_path / "a.md").write_text(text, newline="")
    assert translated(tmp_path / "a.md", shout).decode() == text.replace("text", "TEXT")


def test_elements_may_end_without_a_tag(tmp_path: Path) -> None:
    page = "<ul><li translate=no>a<li>b<li class=notranslate>c</ul><p translate=no>d<hr>e<p class=notranslate>f<p>g"
    page += "<div><pre><code>h</pre></code></div>i"
    (tmp_path / "a.html").write_text(page)
    expected = page.replace(">b", ">B").replace(">e", ">E").replace(">g", ">G").replace(">i", ">I")
    assert translated(tmp_path / "a.html", shout).decode() == expected


def test_marked_elements_stay(tmp_path: Path) -> None:
    page = "<div class='x notranslate'><p>a</p></div><p translate=no>b</p><p class=\"notranslated\">c</p>"
    page += '<img alt="d" translate="no"><input placeholder="e" class="notranslate"><b title="f" translate="no"/>'
    (tmp_path / "a.html").write_text(page)
    assert translated(tmp_path / "a.html", shout).decode() == page.replace(">c<", ">C<")


def test_a_large_page_takes_no_more_than_seconds(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<p>some text &amp; <b>more</b></p>\n" * 8000)
    began = time.process_time()
    translated(tmp_path / "a.html", same)
    assert time.process_time() - began < 12


def test_the_kind_of_a_named_pipe_is_found_without_opening_it(tmp_path: Path) -> None:
    """Otherwise the program that writes to it would fail, and the document would never come."""
    os.mkfifo(tmp_path / "a.md")
    kinds: list[str | None] = []
    finding = threading.Thread(target=lambda: kinds.append(document_format(tmp_path / "a.md")), daemon=True)
    finding.start()
    finding.join(10)
    assert kinds == ["md"]


def test_kinds_are_not_converted(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<p>a</p>")
    with pytest.raises(InputError, match="kinds are not converted"):
        translate_document(tmp_path / "a.html", tmp_path / "b.docx", translator(same))


def test_subtitles_keep_their_times(tmp_path: Path) -> None:
    (tmp_path / "a.srt").write_bytes(SRT.encode())
    loud = translated(tmp_path / "a.srt", shout).decode()
    expected = SRT.replace("Hello there,\r\nmy friend.", "HELLO THERE,\r\nMY FRIEND.")
    assert loud == expected.replace("Good", "GOOD").replace("bye", "BYE")
    (tmp_path / "a.vtt").write_text(VTT)
    (tmp_path / "b.srt").write_text(CUES.replace("\n\n", "\n"))
    assert translated(tmp_path / "b.srt", shout).decode() == loud[1:].replace("\r", "").replace("\n\n", "\n")
    (tmp_path / "c.srt").write_text(CUES.replace("there,\n", "there,\n\n").replace("\n2\n", "\n2b\n"))
    loud = translated(tmp_path / "c.srt", shout).decode()
    assert "\nHELLO THERE,\n\nMY FRIEND.\n\n2b\n" in loud
    (tmp_path / "d.srt").write_text(CUES.replace("00:00:03,000", "00:00:03").replace("04,000", "04:000"))
    assert "\n\n2\n00:00:03 --> 00:00:04:000\n<i>GOOD</i> BYE" in translated(tmp_path / "d.srt", shout).decode()
    loud = translated(tmp_path / "a.vtt", shout).decode()
    assert loud == VTT.replace("Hello there", "HELLO THERE").replace("Bye", "BYE")
    (tmp_path / "b.vtt").write_text(f"\n{VTT}\nNOTE this, too\n")
    assert translated(tmp_path / "b.vtt", shout).decode() == f"\n{loud}\nNOTE this, too\n"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            XLIFF,
            ['PRESS <g id="1">THE KEY</g> NOW<x id="2"/>', 'A <mrk mtype="protected">Bc</mrk> D', "Fertig", "GOES"],
        ),
        (XLIFF_2, ["SOME TEXT"]),
    ],
    ids=["1.2", "2.0"],
)
def test_xliff_gets_targets(tmp_path: Path, content: str, expected: list[str]) -> None:
    (tmp_path / "a.xlf").write_text(content)
    loud = translated(tmp_path / "a.xlf", shout, languages=("en", "de")).decode()
    assert re.findall(r"<target[^>]*>(.*?)</target>", loud) == expected
    assert "</seg-source><target" in loud or "seg-source" not in content
    assert re.findall(r"<source>.*?</source>", loud) == re.findall(r"<source>.*?</source>", content)
    assert "xml:lang" not in loud
    tagged = content.replace("<source>", '<source xml:lang="en">')
    (tmp_path / "b.xlf").write_text(tagged)
    assert '<target xml:lang="de"' in translated(tmp_path / "b.xlf", shout, languages=("en", "de")).decode()
    assert 'target-language="de"' in loud or 'trgLang="de"' in loud
    assert translated(tmp_path / "a.xlf", same, languages=("en", "de")) != content.encode()


def test_a_segment_without_translation_stays_initial(tmp_path: Path) -> None:
    unit = "<unit><segment><source>{}</source></segment></unit>"
    (tmp_path / "a.xlf").write_text(f'<xliff version="2.0"><file>{unit.format("a")}{unit.format("b")}</file></xliff>')
    root = etree.fromstring(
        translated(
            tmp_path / "a.xlf", lambda texts: [" " if text == "a" else "x" for text in texts], languages=("en", "de")
        )
    )
    assert [segment.get("state") for segment in root.iter("segment")] == [None, "translated"]
    assert [target.text for target in root.iter("target")] == ["x"]


@pytest.mark.parametrize("lost", ["b", "ab"])
def test_a_unit_without_the_translation_of_a_segment_gets_no_target(tmp_path: Path, lost: str) -> None:
    """A later run would skip a unit with part of a target."""
    marks = "".join(f'<mrk mtype="seg">{one}</mrk>' for one in "abc")
    unit = f"<trans-unit><source>abc</source><seg-source>{marks}</seg-source></trans-unit>"
    other = "<trans-unit><source>d</source></trans-unit>"
    (tmp_path / "a.xlf").write_text(f'<xliff version="1.2"><file>{unit}{other}</file></xliff>')
    new = translated(
        tmp_path / "a.xlf", lambda texts: ["" if text in lost else text for text in texts], languages=("en", "de")
    )
    assert [target.text for target in etree.fromstring(new).iter("target")] == ["d"]


@pytest.mark.parametrize("target", ["pt-BR", "pt_br", "pt"])
def test_a_variant_with_a_region_is_a_translation(tmp_path: Path, target: str) -> None:
    (tmp_path / "a.tmx").write_text(TMX.replace("de-AT", "pt-BR"))
    root = etree.fromstring(translated(tmp_path / "a.tmx", shout, languages=("en", target)))
    segments = [[seg.text for seg in unit.iter("seg")] for unit in root.iter("tu")]
    assert segments == [["A segment", "A SEGMENT"], ["Done", "Fertig"]]


def test_a_translation_memory_gets_the_missing_variants(tmp_path: Path) -> None:
    (tmp_path / "a.tmx").write_text(TMX.replace("</body>", f"{EMPTY.format('Left')}{EMPTY.format('')}</body>"))
    root = etree.fromstring(translated(tmp_path / "a.tmx", shout, languages=("en", "de")))
    segments = [[seg.text for seg in unit.iter("seg")] for unit in root.iter("tu")]
    assert segments == [["A segment", "A SEGMENT"], ["Done", "Fertig"], ["Left", "LEFT"], [None, None]]


def test_a_variant_with_a_region_is_a_source(tmp_path: Path) -> None:
    french = '<tuv xml:lang="fr"><seg>Un segment</seg></tuv>'
    text = TMX.replace('<tu><tuv xml:lang="en"><seg>A', f'<tu>{french}<tuv xml:lang="en-US"><seg>A')
    (tmp_path / "a.tmx").write_text(text.replace("</body>", f"<tu>{french}</tu></body>"))
    root = etree.fromstring(translated(tmp_path / "a.tmx", shout, languages=("en", "de")))
    segments = [[seg.text for seg in unit.iter("seg")] for unit in root.iter("tu")]
    assert segments == [["Un segment", "A segment", "A SEGMENT"], ["Done", "Fertig"], ["Un segment"]]


def word_file(path: Path) -> None:
    document = docx.Document()
    document.add_heading("A heading", 1)
    paragraph = document.add_paragraph("Some ")
    paragraph.add_run("split ")
    paragraph.add_run("text and ")
    paragraph.add_run("bold").bold = True
    paragraph.add_run(" words.")
    document.add_table(1, 2).cell(0, 1).text = "A cell"
    document.sections[0].header.paragraphs[0].text = "The header"
    document.save(str(path))


def test_a_word_document(tmp_path: Path) -> None:
    path = tmp_path / "a.docx"
    word_file(path)
    seen: list[str] = []
    loud = docx.Document(io.BytesIO(translated(path, lambda texts: seen.extend(texts) or shout(texts))))
    assert [paragraph.text for paragraph in loud.paragraphs] == ["A HEADING", "SOME SPLIT TEXT AND BOLD WORDS."]
    assert [run.text for run in loud.paragraphs[1].runs if run.bold] == ["BOLD"]
    assert loud.paragraphs[0].style.name == "Heading 1"
    assert loud.tables[0].cell(0, 1).text == "A CELL"
    assert loud.sections[0].header.paragraphs[0].text == "THE HEADER"
    assert "Some split text and" in seen  # runs of one format are one text
    assert unpacked(translated(path, same)) == unpacked(path.read_bytes())


def test_the_body_of_a_word_document_may_have_a_number(tmp_path: Path) -> None:
    text = '<w:p xmlns:w="w"><w:r><w:t>Some text</w:t></w:r></w:p>'
    with zipfile.ZipFile(tmp_path / "a.docx", "w") as archive:
        archive.writestr("word/document2.xml", text)
        archive.writestr("word/header1.xml", text)
    loud = unpacked(translated(tmp_path / "a.docx", shout))
    assert [b"SOME TEXT" in part for part in loud.values()] == [True, True]


def unpacked(content: bytes) -> dict[str, bytes]:
    archive = zipfile.ZipFile(io.BytesIO(content))
    return {name: archive.read(name) for name in archive.namelist()}


def test_code_and_spaces_in_word(tmp_path: Path) -> None:
    document = docx.Document()
    document.styles.add_style("Source Code", 1)
    paragraph = document.add_paragraph("Call ")
    paragraph.add_run("f(x)").font.name = "Courier New"
    paragraph.add_run(" twice")
    document.add_paragraph("print(1)", style="Source Code")
    paragraph = document.add_paragraph("one")
    paragraph.add_run(" two ")
    paragraph.add_run("three").italic = True
    document.save(str(tmp_path / "a.docx"))
    loud = docx.Document(io.BytesIO(translated(tmp_path / "a.docx", shout)))
    assert [each.text for each in loud.paragraphs] == ["CALL f(x) TWICE", "print(1)", "ONE TWO THREE"]
    assert (
        b'<w:t xml:space="preserve">ONE TWO <'
        in unpacked((tmp_path / "translated.docx").read_bytes())["word/document.xml"]
    )


def test_slides_and_open_documents(tmp_path: Path) -> None:
    slides = pptx.Presentation()
    slide = slides.slides.add_slide(slides.slide_layouts[1])
    slide.shapes.title.text = "A title"
    slide.placeholders[1].text = "First point\nSecond point"
    number = '<a:fld xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" id="{1}"><a:t>x7</a:t></a:fld>'
    slide.placeholders[1].text_frame.paragraphs[1]._p.append(etree.fromstring(number))
    slides.save(str(tmp_path / "a.pptx"))
    loud = pptx.Presentation(io.BytesIO(translated(tmp_path / "a.pptx", shout)))
    assert [shape.text_frame.text for shape in loud.slides[0].shapes] == ["A TITLE", "FIRST POINT\nSECOND POINTx7"]

    text = odf.opendocument.OpenDocumentText()
    text.text.addElement(odf.text.H(outlinelevel=1, text="A heading"))
    paragraph = odf.text.P(text="Some ")
    paragraph.addElement(odf.text.Span(text="marked"))
    paragraph.addText(" text & more")
    text.text.addElement(paragraph)
    text.save(str(tmp_path / "a.odt"))
    translated(tmp_path / "a.odt", shout)
    loud = odf.opendocument.load(str(tmp_path / "translated.odt"))
    assert [str(each) for each in loud.getElementsByType(odf.text.H)] == ["A HEADING"]
    assert [str(each) for each in loud.getElementsByType(odf.text.P)] == ["SOME MARKED TEXT & MORE"]
    for name in ("a.pptx", "a.odt"):
        assert unpacked(translated(tmp_path / name, same)) == unpacked((tmp_path / name).read_bytes())


def test_a_book(tmp_path: Path) -> None:
    parts = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": "<container/>",
        "OEBPS/one.xhtml": '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><p>A text</p></html>',
    }
    with zipfile.ZipFile(tmp_path / "a.epub", "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    loud = unpacked(translated(tmp_path / "a.epub", shout))
    assert list(loud) == list(parts)
    assert loud["OEBPS/one.xhtml"] == parts["OEBPS/one.xhtml"].replace("A text", "A TEXT").encode()


BAD: list[tuple[str, bytes, str]] = [
    ("a.html", b"", "empty"),
    ("a.srt", b"caf\xe8", "a.srt:1: not valid UTF-8"),
    ("a.docx", b"PK\x03\x04 no zip", "damaged, or no .docx file"),
    ("a.docx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "protected by a password"),
    ("a.pdf", b"%PDF-1.7", "a .pdf file cannot be translated"),
    ("a", b"%PDF-1.7", "a .pdf file cannot be translated"),
    ("a.txt", b"{\\rtf1 x}", "a .rtf file cannot be translated"),
    ("a.xlsx", b"PK\x03\x04PK\x05\x06" + bytes(18), "an archive cannot be translated"),
    ("a", b"PK\x03\x04" + b"PK\x05\x06" + bytes(8) + b"\x01\x00\x00\x00\xff\x00\x00\x00\x00\x00", "a damaged archive"),
    ("a.png", b"\x89PNG\r\n", "a .png file cannot be translated"),
    ("a.xlf", b"<tmx/>", "no XLIFF file"),
    ("a.tmx", b"<tmx>", "not well-formed XML"),
    ("a.xlf", b'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><xliff>&a;</xliff>', "declares entities"),
    ("a.tmx", b'<!DOCTYPE x [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><tmx>&b;</tmx>', "declares entities"),
    ("a.srt", b"no subtitles\n", "no subtitle in it"),
    *(
        (f"a.{kind}", b"%PDF-1.7", f"not .{kind.replace('xlf', 'xliff')} but a .pdf file")
        for kind in "html md srt vtt po xlf tmx csv".split()
    ),
    ("a.csv", b"PK\x03\x04", "not .csv but a .zip file"),
]


@pytest.mark.parametrize(("name", "content", "message"), BAD, ids=[f"{name} {message}" for name, _, message in BAD])
def test_bad_documents(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=re.escape(message)):
        translate_document(tmp_path / name, tmp_path / "out.x", translator(same), languages=("en", "de"))
    assert sorted(path.name for path in tmp_path.iterdir()) == [name]


def test_bad_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.docx"
    word_file(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="damaged"):
        translate_document(path, tmp_path / "out.docx", translator(same))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word/document.xml", "<a/>")
        archive.writestr("word/media/a.bin", b"a part that is only copied")
    path.write_bytes(path.read_bytes().replace(b"only copied", b"damaged now"))
    with pytest.raises(InputError, match="damaged"):
        translate_document(path, tmp_path / "out.docx", translator(same))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("word/document.xml", "w") as part:
        for _ in range(11):
            part.write(bytes(1_000_000))
    monkeypatch.setattr("mt.extras.documents.packages._MAX_BYTES", 10_000_000)
    with pytest.raises(InputError, match="unpacks to more than 10 MB"):
        translate_document(path, tmp_path / "out.docx", translator(same))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other.xml", "<a/>")
    with pytest.raises(InputError, match=r"holds no text of a \.docx file"):
        translate_document(path, tmp_path / "out.docx", translator(same))
    path.write_bytes(whole)
    with pytest.raises(InputError, match="this is an input"):
        translate_document(path, path, translator(same))
    with pytest.raises(InputError, match="no such file"):
        translate_document(tmp_path / "none.docx", tmp_path / "out.docx", translator(same))
    assert document_format(tmp_path / "a.en") is None
    assert not (tmp_path / "out.docx").exists()


def test_a_part_is_unpacked_only_as_far_as_it_claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mt.extras.documents.translating._MAX_BYTES", 1_000_000)  # its buffer counts as memory
    path = tmp_path / "a.docx"
    word_file(path)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/media/a.bin", bytes(50_000_000))
        info = archive.getinfo("word/media/a.bin")
    sizes = struct.pack("<3L", info.CRC, info.compress_size, info.file_size)
    assert path.read_bytes().count(sizes) == 2
    path.write_bytes(path.read_bytes().replace(sizes, struct.pack("<3L", crc32(bytes(9)), info.compress_size, 9)))
    tracemalloc.start()
    try:
        assert unpacked(translated(path, shout))["word/media/a.bin"] == bytes(9)
        assert tracemalloc.get_traced_memory()[1] < 25_000_000
    finally:
        tracemalloc.stop()


def test_a_document_in_the_target_language_is_copied(tmp_path: Path, notices: list[str]) -> None:
    source, output = tmp_path / "a.html", tmp_path / "b.html"
    source.write_text("<p>Ein Satz.</p><p>Noch einer.</p>")
    done = translate_document(source, output, translator(shout), languages=("?", "de"), show_sample=lambda _: False)
    assert done == DocumentSummary(0, [])
    assert output.read_bytes() == source.read_bytes()
    assert notices == [f"{source}: in de already, so it is copied"]
    assert translate_document(source, output, translator(shout), show_sample=lambda _: True).segments == 2
    assert len(notices) == 1


def test_the_command_line(trained: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "a.md", tmp_path / "b.md"
    source.write_text("# a b c\n\n`code` stays\n")
    done = mt("translate", source, "--output", output, cwd=trained)
    assert done.stdout == f"{output}: 2 segments translated\n"
    assert "`code`" in output.read_text()
    assert "this file exists" in mt("translate", "--input", source, "--output", output, cwd=trained, code=2).stderr
    assert "a document needs a file" in mt("translate", source, cwd=trained, code=2).stderr
    for words in ((), ("a",), ("--input", "-")):
        refused = mt("translate", *words, "--format", "html", "--output", tmp_path / "c", cwd=trained, code=2)
        assert "--format html is for a document in a file" in refused.stderr
        assert "give --input FILE and --output FILE" in refused.stderr
    both = mt("translate", "a", "--input", source, "--output", tmp_path / "c", cwd=trained, code=2)
    assert "contradict each other" in both.stderr
    best = mt("translate", source, "--output", tmp_path / "c", "--n-best", "2", cwd=trained, code=2)
    assert "--n-best is for lines of text, not for documents" in best.stderr
    lines = mt("translate", "--input", source, "--format", "text", cwd=trained).stdout
    assert len(lines.splitlines()) == 3
    wrong = mt("translate", source, "--output", tmp_path / "c", "--alignment", cwd=trained, code=2)
    assert "--alignment is for lines of text" in wrong.stderr
    for words in (["none.docx"], ["a", "none.docx"]):
        missing = mt("translate", *words, "--output", tmp_path / "m.docx", cwd=trained, code=2)
        assert "none.docx: no such file" in missing.stderr
    assert not (tmp_path / "m.docx").exists()
    assert "one document at a time" in mt("translate", source, source, cwd=trained, code=2).stderr
    stray = mt("translate", source, "--columns", "1", "--output", tmp_path / "c", cwd=trained, code=2)
    assert "is for .csv and .tsv" in stray.stderr
    assert "--columns is for .csv" in mt("translate", "a", "--columns", "1", cwd=trained, code=2).stderr
