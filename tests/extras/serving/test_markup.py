"""Tags inside of sentences: around the words they belong to, well-formed, and none lost."""

import math
import re
import time
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt.data.tokenizer import BpeTokenizer
from mt.decoding.alignment import Unit, align_units
from mt.decoding.candidates import Candidate
from mt.extras.serving.html_lines import html_lines
from mt.extras.serving.segmentation import segment_html, segment_plain


def words(text: str) -> list[tuple[int, int]]:
    return [match.span() for match in re.finditer(r"\S+", text)]


def backwards(sentence: str) -> Candidate:
    """A translation in capitals, its words in reverse."""
    return Candidate(" ".join(reversed(sentence.upper().split())), 0.0, 0.0)


def reversed_origins(sentence: str, found: Candidate) -> Sequence[Unit]:
    origins = [start for start, _ in reversed(words(sentence))]
    return [Unit(*span, origin) for span, origin in zip(words(found.text), origins, strict=True)]


def translated(html: str) -> str:
    pieces = segment_html(html, " ")
    return pieces.assemble([backwards(sentence) for sentence in pieces.sentences], reversed_origins)


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("a <b>b</b> c", "C <b>B</b> A"),
        ("a <b>b c</b>", "<b>C B</b> A"),
        ("<b>a b</b>", "<b>B A</b>"),
        ("<b>a <i>b</i></b> c", "C <b><i>B</i> A</b>"),
        ('see <a href="x>y">the page</a> now', 'NOW <a href="x>y">PAGE THE</a> SEE'),
        ("<p>a <b>b</b></p><p>c</p>", "<p><b>B</b> A</p><p>C</p>"),
        ("a <b></b>b", "<b></b>B A"),
        ("a <img src=x> b", "<img src=x> B A"),
        ("a <img> <wbr> b", "<img> <wbr> B A"),
        ("a b <img>, c", "C <img>, B A"),
        ("a <b>b <img> c</b> d", "D <b><img> C B</b> A"),
        ("Good thing. <img> Good two.", "THING. GOOD <img> TWO. GOOD"),
        ("Good thing.<img> Good <b>two</b>.", "THING. GOOD<img> <b>TWO.</b> GOOD"),
        ("Good thing. <img><img> Good two.", "THING. GOOD <img><img> TWO. GOOD"),
        ("Good thing. <img>Good two.", "THING. GOOD <img>TWO. GOOD"),
        ("<a href=x><img src=y></a>", "<a href=x><img src=y></a>"),
        ("<a href=x><img src=y>a</a>", "<a href=x><img src=y>A</a>"),
        ("<a href=x>a</a><img src=y> b", "B <a href=x>A</a><img src=y>"),
        ("<a href=x>1</a><img src=y> 2 <b><i></i></b>", "2 <a href=x>1</a><img src=y> <b><i></i></b>"),
        ("<span><i class=f></i></span>", "<span><i class=f></i></span>"),
        ("<span><i class=f></i><img></span> a", "<span><i class=f></i><img></span> A"),
        ("<img src=x>", "<img src=x>"),
        ("<img src=x> a", "<img src=x> A"),
        ("a b <img src=x>", "B A <img src=x>"),
        ("a &lt; <b>b</b>", "<b>B</b> &lt; A"),
        ("Good thing. <i>Good</i> two.", "THING. GOOD TWO. <i>GOOD</i>"),
        ("<i>Good thing. Good</i> two.", "<i>THING. GOOD TWO. GOOD</i>"),
        ("a<br>b <b>c", "A<br>B <b>C"),
        ("a <b>b <p>c</p> d</b>", "A <b>B <p>C</p> D</b>"),
        ("a <b>b\nc</b>", "<b>C B</b> A"),
        ("a\n  b <b>c</b>\n", "<b>C</b> B A\n"),
        ("<p>\n  Good thing.\n  Good <b>two.</b>\n</p>", "<p>\n  THING. GOOD\n  <b>TWO.</b> GOOD\n</p>"),
        ("a&nbsp;&nbsp;b&nbsp;<i>c</i>", "<i>C</i> B A"),
        ("a <!-- b c -->d", "<!-- b c -->D A"),
        ("<p><!-- a --></p>", "<p><!-- a --></p>"),
        ('<b data-translate="no">a</b>', '<b data-translate="no">A</b>'),
        ("a <b>b <code>x y</code></b>", "A <b>B <code>x y</code></b>"),
        ("<b>x</i>", "<b>X</i>"),
        ("a <B CLASS=z>b</B>", "<B CLASS=z>B</B> A"),
        ("a <b/> b", "<b/> B A"),
        ('a <a id="p12"/>b <span epub:type="pagebreak"/>c', '<span epub:type="pagebreak"/>C <a id="p12"/>B A'),
        ("<script>for(i=0;i<n;i++){f(i)}</script><p>a b</p>", "<script>for(i=0;i<n;i++){f(i)}</script><p>B A</p>"),
        ("<SCRIPT>x='<b>';</Script >a b", "<SCRIPT>x='<b>';</Script >B A"),
        ("<style>a<b</style>a <b>b</b>", "<style>a<b</style><b>B</b> A"),
        ("<textarea>a </p> <b> b</textarea>c d", "<textarea>a </p> <b> b</textarea>D C"),
        ("a b<script>if (c <d", "B A<script>if (c <d"),
        ("<script/>a b", "<script/>B A"),
        ("<code>a <script>b<c</script> d</code> e f", "<code>a <script>b<c</script> d</code> F E"),
        ("<ul><li translate=no>a b<li>c d</ul><p>e f</p>", "<ul><li translate=no>a b<li>D C</ul><p>F E</p>"),
        ("<ul><li translate=no>a b</ul><p>e f</p>", "<ul><li translate=no>a b</ul><p>F E</p>"),
        (
            "<ul><li translate=no><ul><li>a b<li>c d</ul>e f<li>g h</ul>",
            "<ul><li translate=no><ul><li>a b<li>c d</ul>e f<li>H G</ul>",
        ),
        ("<tr><td class='x notranslate'>a b<td>c d<tr>", "<tr><td class='x notranslate'>a b<td>D C<tr>"),
        ("<td class=notranslate>a b</td>c d", "<td class=notranslate>a b</td>D C"),
        ("<p translate=NO>a b<div>c d</div>", "<p translate=NO>a b<div>D C</div>"),
        ("<p>a b<p translate=no>c d<hr>e f", "<p>B A<p translate=no>c d<hr>F E"),
        ("<a href='/x?translate=no'>a b</a>", "<a href='/x?translate=no'>B A</a>"),
        ("a <a href=http://b.c/>b c</a> d", "D <a href=http://b.c/>C B</a> A"),
        ("<p title=it's>a b</p>", "<p title=it's>B A</p>"),
        ("<p a = 'x>y' b>a b</p>", "<p a = 'x>y' b>B A</p>"),
        ("<i disabled/>a b", "<i disabled/>B A"),
        ("<![CDATA[a <b> c]]>d e", "<![CDATA[a <b> c]]>E D"),
        ("a <b>b</b><?php if (x > y) echo 1 ?>c d", "<b>B</b> A<?php if (x > y) echo 1 ?>D C"),
    ],
)
def test_tags_go_with_their_words(html: str, expected: str) -> None:
    assert translated(html) == expected


def test_an_element_whose_words_come_apart_stays_whole() -> None:
    pieces = segment_html("a <b>b c</b> d", " ")
    [sentence] = pieces.sentences
    assert sentence == "a b c d"
    origins = [Unit(0, 1, 2), Unit(2, 3, 0), Unit(4, 5, 4), Unit(6, 7, 6)]
    assert pieces.assemble([Candidate("B A C D", 0, 0)], lambda *_: origins) == "<b>B A C</b> D"


def test_an_element_without_a_word_left_is_not_lost() -> None:
    pieces = segment_html("a <b>b</b> c", " ")
    units = [Unit(0, 1, 0), Unit(2, 3, 4)]
    assert pieces.assemble([Candidate("A C", 0, 0)], lambda *_: units) == "A <b></b>C"
    assert pieces.assemble([Candidate("A", 0, 0)], lambda *_: units[:1]) == "A <b></b>"


def test_an_element_around_a_sentence_without_a_translation_is_not_doubled() -> None:
    pieces = segment_html("<b>Good thing. Good <i>two</i>.</b>", " ")
    found = [Candidate("A", 0, 0), Candidate("", 0, 0)]
    assert pieces.assemble(found, lambda _, found: align_units("", found.text)) == "<b>A <i></i></b>"


def test_tags_inside_of_a_word_that_stays_stay_inside_of_it() -> None:
    def spelt(html: str, translation: str) -> str:
        pieces = segment_html(html, " ")
        [sentence] = pieces.sentences
        return pieces.assemble([Candidate(translation, 0, 0)], lambda *_: align_units(sentence, translation))

    assert spelt("10 m<sup>2</sup> big", "10 m2 groß") == "10 m<sup>2</sup> groß"
    assert spelt("<b>H<sub>2</sub>O</b> is", "H2O ist") == "<b>H<sub>2</sub>O</b> ist"
    assert spelt("10 m<sup>2</sup> big", "10 qm groß") == "10 qm<sup></sup> groß"


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Thanks a lot! :)", ["Thanks a lot! :)"]),
        ("Great! 😀 Another one.", ["Great!", "😀 Another one."]),
        ("Quoi ? ! Non.", ["Quoi ? !", "Non."]),
        ("... ! Go on.", ["... ! Go on."]),
        ("本当！？はい。", ["本当！？", "はい。"]),
        ("「こんにちは。」と言った。", ["「こんにちは。」と言った。"]),
        ("Go! Stop? Really.", ["Go!", "Stop?", "Really."]),
        ("?!", []),
    ],
)
def test_signs_alone_are_no_sentence(text: str, sentences: list[str]) -> None:
    pieces = segment_plain(text, " ")
    assert pieces.sentences == sentences
    after = pieces.assemble([Candidate(sentence, 0, 0) for sentence in sentences], lambda *_: [])
    assert after.replace(" ", "") == text.replace(" ", "")


def test_only_tags_within_sentences_need_origins() -> None:
    assert segment_html("a <b>b</b> c", " ").needs_alignment
    for text in ("<b>a b</b>", "<p>a</p>", "a &amp; b", "<b>Good thing.</b> <i>Good two.</i>"):
        assert not segment_html(text, " ").needs_alignment
    assert not segment_plain("a <b>b</b> c", " ").needs_alignment


def test_an_element_that_begins_behind_the_sentence_is_not_split() -> None:
    pieces = segment_html("a<b>b</b><i><img> </i>", " ")
    found = pieces.assemble([Candidate("AB", 0, 0)], lambda *_: [Unit(0, 2, 0)])
    assert found == "AB<b></b><i><img> </i>"


def test_an_element_without_words_in_both_of_its_sentences_stays_in_its_parent() -> None:
    pieces = segment_html("<i>A thing <b>ends. Two</b> go</i> on", " ")
    assert pieces.sentences == ["A thing ends.", "Two go on"]
    origins = {"A thing ends.": [0, 0], "Two go on": [4, 7]}
    candidates = [Candidate("X Y", 0, 0), Candidate("V W", 0, 0)]
    found = pieces.assemble(
        candidates, lambda sentence, _: [Unit(0, 1, origins[sentence][0]), Unit(2, 3, origins[sentence][1])]
    )
    assert found == "<i>X Y <b></b>V</i> W"


class _Balance(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: Counter[str] = Counter()
        self.balanced = True
        self.pictures: Counter[tuple[str, ...]] = Counter()  # by what they stand in

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen[tag] += 1
        if tag == "img":
            self.pictures[tuple(self.open)] += 1
        if tag not in ("img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.balanced &= bool(self.open) and self.open.pop() == tag


def balance(html: str) -> _Balance:
    parser = _Balance()
    parser.feed(html)
    parser.close()
    return parser


trees = st.recursive(
    st.sampled_from(["a", "bb c", " ", "d. E", "<img>", "<br>", "\n", "x &amp; y", "Long. Other"]),
    lambda inner: st.builds(
        lambda tag, parts: f"<{tag}>{''.join(parts)}</{tag}>",
        st.sampled_from(["b", "i", "p", "span", "code"]),
        st.lists(inner, max_size=4),
    ),
    max_leaves=12,
)


@given(st.lists(trees, max_size=5).map("".join), st.randoms())
def test_well_formed_stays_well_formed_and_nothing_is_lost(html: str, random) -> None:
    def anyhow(sentence: str, found: Candidate) -> list[Unit]:
        places = words(sentence)
        return [Unit(*span, random.choice(places)[0]) for span in words(found.text)]

    pieces = segment_html(html, " ")
    assert "<" not in "".join(pieces.sentences)
    after = balance(pieces.assemble([backwards(sentence) for sentence in pieces.sentences], anyhow))
    before = balance(html)
    assert before.balanced
    assert after.balanced
    assert after.pictures == before.pictures
    assert not after.open
    assert after.seen == before.seen


@given(st.text(alphabet="ab <>&;/\"'\n.!=pibr-", max_size=40))
def test_any_text_at_all(html: str) -> None:
    pieces = segment_html(html, " ")
    together = pieces.assemble([backwards(sentence) for sentence in pieces.sentences], reversed_origins)
    letters = Counter(character for character in together.lower() if character.isalpha())
    assert letters >= Counter(
        character for sentence in pieces.sentences for character in sentence if character.isalpha()
    )


@pytest.mark.parametrize("unit", ["<a", "<a '", '<a "', "<!", "<![CDATA[", "<!--", "<script>", "</", "<a b='", "< "])
def test_what_is_never_closed_takes_no_longer_than_its_length_asks_for(unit: str) -> None:
    """A search to the end of the text from each `<` would take minutes, while all other requests wait."""
    started = time.process_time()
    "".join(part if isinstance(part, str) else part.text for part in html_lines(unit * 40_000))
    assert time.process_time() - started < 10


@pytest.mark.parametrize("unit", ["<span>Word {}.</span> ", "A <b>red</b> dress {}. "])
def test_many_elements_in_a_line_take_linear_time(unit: str) -> None:
    """If each sentence looked at all of them, these would take more than ten seconds."""
    page = "".join(map(unit.format, range(3000)))
    started = time.process_time()
    after = translated(page)
    assert time.process_time() - started < 5
    assert after.count("<") == page.count("<")


LINES = ["the red house", "das rote Haus.", "play-ing, (he) says!", "été 日本語 mix"]


def test_words_are_aligned_by_the_attention_of_their_pieces() -> None:
    tokenizer = BpeTokenizer.train(LINES, 300)
    source, target = "the red house", "das Haus, rote"
    sides = [tokenizer.tokens(tokenizer.encode(text)) for text in (source, target)]
    origin_of = {"d": 0, "H": 8, ",": 8, "r": 4}
    letters = iter("dH,r")
    rows, current = [], ""
    for piece in sides[1]:
        if piece.startswith("▁") or piece == ",":
            current = next(letters)
        row, place = [], -1
        for other in sides[0]:
            start = max(place + len(other) - len(other.lstrip("▁")), 0)
            row.append(0.9 if origin_of[current] <= start < origin_of[current] + 3 else 0.05)
            place += len(other)
        rows.append(row)
    units = align_units(source, target, (sides[0], sides[1]), rows)
    assert [unit[:3] for unit in units] == [(0, 3, 0), (4, 8, 8), (8, 9, 8), (10, 14, 4)]
    assert dict(units[0].shares) == pytest.approx({0: 0.878, 4: 0.049, 8: 0.073}, abs=0.001)


def test_without_attention_a_word_comes_from_as_far_into_the_source() -> None:
    assert align_units("a b c d", "x y") == [Unit(0, 1, 0), Unit(2, 3, 4)]
    assert align_units("a", "x y") == [Unit(0, 1, 0), Unit(2, 3, 0)]
    assert align_units("", "x") == [Unit(0, 1, 0)]
    assert align_units("a", "") == []
    assert align_units("a", "x", (["▁a"], ["▁x"]), [[math.nan]]) == [Unit(0, 1, 0)]
    strange = (["▁z"], ["▁x", "▁y"])
    assert align_units("a b", "x y", strange, [[1.0], [1.0]]) == align_units("a b", "x y")


@pytest.mark.parametrize("line", LINES)
def test_tokens_are_found_in_their_text(line: str) -> None:
    tokenizer = BpeTokenizer.train(LINES, 400)
    pieces = tokenizer.tokens(tokenizer.encode(line))
    same = [[float(i == j) for j in range(len(pieces))] for i in range(len(pieces))]
    units = align_units(line, line, (pieces, pieces), same)
    assert [line[unit.start : unit.end] for unit in units] == re.findall(r"[日本語]|[^\W日本語]+|[^\w\s]", line)
    places = {unit.start for unit in units}
    assert all(unit.origin in places and unit.origin <= unit.start for unit in units)
    if "日" not in line:
        assert all(unit.origin == unit.start for unit in units)


def test_elements_without_text_may_be_nested_deeply() -> None:
    empty = "<b>" * 1200 + "</b>" * 1200
    after = translated(f"<p>Hello {empty} big <i>world</i></p>")
    assert empty in after
    assert after.replace(empty, "").split() == ["<p><i>WORLD</i>", "BIG", "HELLO</p>"]
