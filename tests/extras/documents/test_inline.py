"""Tags inside of sentences in documents: the sentence is translated whole, and the tags go with their words."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from lxml import etree

from document_helpers import shout, translated
from mt.decoding.alignment import Unit

XLIFF = """<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file source-language="en" original="a">
<body><trans-unit id="1"><source>{}</source></trans-unit></body></file></xliff>"""


def inner_target(document: bytes) -> str:
    """Return the content of the first target."""
    text = etree.tostring(next(etree.fromstring(document).iter("{*}target")), encoding="unicode", with_tail=False)
    inner = re.sub(r' xmlns="[^"]*"', "", text).removeprefix('<target state="needs-review-translation">')
    return inner.removesuffix("</target>")


def backwards(texts: list[str]) -> list[tuple[str, Sequence[Unit]]]:
    """Translate into capitals in reverse order."""
    found = []
    for text in texts:
        words = [(match[0], match.start()) for match in re.finditer(r"\S+", text)][::-1]
        translation, units = " ".join(shout([word])[0] for word, _ in words), list[Unit]()
        for word, start in words:
            place = units[-1].end + 1 if units else 0
            units.append(Unit(place, place + len(word), start))
        found.append((translation, units))
    return found


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<p>see <b>the page</b> now</p>", "<p>NOW <b>PAGE THE</b> SEE</p>"),
        ("<p><b>one</b> two <i>three <u>four</u></i></p>", "<p><i><u>FOUR</u> THREE</i> TWO <b>ONE</b></p>"),
        ("<p>a cat<img src=x> sat</p>", "<p>SAT CAT<img src=x> A</p>"),
        ("<p>one <b></b>two</p>", "<p><b></b>TWO ONE</p>"),
        ('<p>see <a title="a page" href=y>it</a> now</p>', '<p>NOW <a title="A PAGE" href=y>IT</a> SEE</p>'),
        (
            "<p>One <b>thing</b> now.</p><p>Two &amp; <i>three</i></p>",
            "<p>NOW. <b>THING</b> ONE</p><p><i>THREE</i> &amp; TWO</p>",
        ),
        ("<p>call <code>f(x)</code> <b>now</b> or then</p>", "<p>CALL <code>f(x)</code> THEN OR <b>NOW</b></p>"),
        ("<p>hello <b>{name}</b> and you</p>", "<p>YOU AND <b>{name}</b> HELLO</p>"),
        ("<p><b>all of it</b></p>", "<p><b>ALL OF IT</b></p>"),
        # Several attributes of one tag, tags that begin alike, and equal ones
        (
            '<p>a <b>b</b> <img alt="cat" title="dog"><img alt="cats"><img alt="cat"><img alt="cat"></p>',
            '<p><b>B</b> A <img alt="CAT" title="DOG"><img alt="CATS"><img alt="CAT"><img alt="CAT"></p>',
        ),
        ("<p>to <b>see</b> <tt>ls -l</tt> do</p>", "<p><b>SEE</b> TO <tt>ls -l</tt> DO</p>"),
    ],
)
def test_tags_of_html_go_with_their_words(tmp_path: Path, page: str, expected: str) -> None:
    (tmp_path / "a.html").write_text(page)
    assert translated(tmp_path / "a.html", shout, align=backwards).decode() == expected


def forwards(texts: list[str]) -> list[tuple[str, Sequence[Unit]]]:
    """Translate into capitals."""
    return [(text.upper(), [Unit(*word.span(), word.start()) for word in re.finditer(r"\S+", text)]) for text in texts]


@pytest.mark.parametrize(
    "source",
    [
        "one <x/> two",
        "one <x/>two",
        "one<x/> two",
        "one <x/> <x/> two",
        "one <x/><x/> two",
        "one <x/>, two",
        "One <sc/>is. Two <x/> are. Three <x/>.",
    ],
)
def test_white_space_around_an_element_stays(tmp_path: Path, source: str) -> None:
    (tmp_path / "a.xlf").write_text(XLIFF.format(source))
    loud = translated(tmp_path / "a.xlf", shout, align=forwards, languages=("en", "fr")).decode()
    assert re.findall(r"<target[^>]*>(.*)</target>", loud) == [
        re.sub("<.*?>", lambda tag: tag[0].lower(), source.upper())
    ]


def test_a_sentence_that_loses_a_placeholder_is_translated_between_its_tags(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<p>hello <b>%s</b> and you</p>")

    def loses(texts: list[str]) -> list[tuple[str, Sequence[Unit]]]:
        return [(text.replace("%s", ""), []) for text, _ in backwards(texts)]

    assert translated(tmp_path / "a.html", shout, align=loses).decode() == "<p>HELLO <b>%s</b> AND YOU</p>"


@pytest.mark.parametrize(("name", "document"), [("a.html", "<p>{}</p>"), ("a.xlf", XLIFF)])
def test_messages_with_nested_braces_stay_whatever_tags_they_have(tmp_path: Path, name: str, document: str) -> None:
    message = '{n, plural, =0 {no items} other {<x id="1"/> items}}'.replace("x", "b" if name == "a.html" else "x")
    (tmp_path / name).write_text(document.format(message))
    new = translated(tmp_path / name, shout, align=forwards, languages=("en", "de")).decode()
    assert (message in new, "ITEMS" in new, "<target" in new) == (True, False, False)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('see <g id="1">the page</g> now', 'NOW <g id="1">PAGE THE</g> SEE'),
        (
            'see <g id="1">the <g id="2">red</g></g><x id="3"/> now',
            'NOW <g id="1"><g id="2">RED</g> THE</g><x id="3"/> SEE',
        ),
        (
            'see <bpt id="1">&lt;b&gt;</bpt>the page<ept id="1">&lt;/b&gt;</ept> now',
            'NOW <bpt id="1">&lt;b&gt;</bpt>PAGE THE<ept id="1">&lt;/b&gt;</ept> SEE',
        ),
        ('a <bx id="1" rid="a"/>b<ex id="2" rid="a"/> &amp; c', 'C &amp; <bx id="1" rid="a"/>B<ex id="2" rid="a"/> A'),
        (
            'see <mrk mtype="protected">Acme <g id="1">F</g> o</mrk> now',
            '<mrk mtype="protected">Acme <g id="1">F</g> o</mrk> NOW SEE',
        ),
        (
            'see <mrk translate="no">Acme</mrk> <mrk mtype="term">it</mrk>',
            '<mrk translate="no">Acme</mrk> <mrk mtype="term">IT</mrk> SEE',
        ),
        ('a <ept id="1">x</ept>b <!-- c --> d', '<!-- c --> D <ept id="1">x</ept>B A'),
        ('a <g id="1">b <!-- c --> d <x id="2"/></g> e', 'E <g id="1"><!-- c --> D B <x id="2"/></g> A'),
        ('a <bx id="1"/>b c <x id="2"/>d', '<x id="2"/>D C <bx id="1"/>B A'),
        ('a <g><bx id="1"/>b <x id="2"/>c</g> d', 'D <g><x id="2"/>C <bx id="1"/>B</g> A'),
        (
            'a <bx id="1"/>b <bx id="2"/>c <ex id="1"/>d<ex id="2"/> e',
            'E <bx id="2"/><ex id="1"/>D C<ex id="2"/> <bx id="1"/>B A',
        ),
    ],
)
def test_codes_of_xliff_go_with_their_words(tmp_path: Path, source: str, expected: str) -> None:
    (tmp_path / "a.xlf").write_text(XLIFF.format(source))
    new = translated(tmp_path / "a.xlf", shout, align=backwards, languages=("en", "de"))
    assert inner_target(new) == expected


@pytest.mark.parametrize(
    ("source", "asked"),
    [
        ('<g id="1">42</g> https://a.example <g id="2">%d</g>', []),
        ('<g id="1">Red.</g> <g id="2">%d.</g>', ["Red."]),
        ("\n  42\n", []),
    ],
)
def test_sentences_without_words_do_not_go_to_the_model(tmp_path: Path, source: str, asked: list[str]) -> None:
    """Nor do those of indented units, which are not aligned either."""
    seen: list[str] = []

    def align(texts: list[str]) -> list[tuple[str, Sequence[Unit]]]:
        seen.extend(texts)
        return forwards(texts)

    (tmp_path / "a.xlf").write_text(XLIFF.format(source))
    new = translated(tmp_path / "a.xlf", shout, align=align, languages=("en", "de"))
    assert (inner_target(new), seen) == (source.replace("Red", "RED"), asked)
    unit = '<tu>\n <tuv xml:lang="en">\n  <seg>Red</seg>\n </tuv>\n</tu>'
    (tmp_path / "a.tmx").write_text(f'<tmx><header srclang="en"/><body>{unit}</body></tmx>')
    assert b"<seg>RED</seg>" in translated(tmp_path / "a.tmx", shout, align=align, languages=("en", "de"))
    assert seen == asked


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("Error:\n  not found\nTry again", "Error:!\n  not found!\nTry again!"),
        ("\n    One text\n    goes on\n  ", "\n    One text goes on!\n  "),
        ("Name:\tvalue", "Name:!\tvalue!"),
        ('<g xml:space="preserve">one\n  two</g>', '<g xml:space="preserve">one!\n  two!</g>'),
    ],
)
def test_line_breaks_that_are_no_indentation_stay(tmp_path: Path, source: str, expected: str) -> None:
    (tmp_path / "a.xlf").write_text(XLIFF.format(source))
    new = translated(tmp_path / "a.xlf", lambda texts: [f"{text}!" for text in texts], languages=("en", "de"))
    assert inner_target(new) == expected
