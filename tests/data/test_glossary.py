"""Glossaries: their files, and where text has their terms."""

import gzip
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt.data.glossary import Glossary
from mt.data.terms import SPANS, Term, Terms, is_whole_word
from mt.errors import InputError
from mt.text.casing import lower_case, title_case, upper_case

TSV = """# of vehicles
Source\tTarget\tnote

dog\tHund\ta comment
hot dog\tHotdog
US\tUSA
ice-cream\tEis
e.g.\tz. B.
mt\t
ice\teiswürfel
Siri\tSiri
"""

TBX = """<?xml version="1.0"?>
<!DOCTYPE martif SYSTEM "TBXcoreStructV02.dtd">
<martif type="TBX"><text><body>
<termEntry id="1">
<langSet xml:lang="en"><tig><term>dog</term></tig><tig><term>hound</term></tig></langSet>
<langSet xml:lang="de-DE"><ntig><termGrp><term>Hund</term></termGrp></ntig><tig><term>Köter</term></tig></langSet>
<langSet xml:lang="fr"><tig><term>chien</term></tig></langSet>
</termEntry>
<termEntry id="2"><langSet xml:lang="en"><tig><term>bank</term></tig></langSet></termEntry>
</body></text></martif>
"""


def glossary(folder: Path, text: str = TSV, name: str = "terms.tsv", **more: list[str]) -> Glossary:
    (folder / name).write_text(text, encoding="utf-8")
    return Glossary(folder / name, **more)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A dog sees a DOG.", ["dog Hund", "DOG HUND"]),
        ("Dog and hotdog, dogs, dog_2, hot dogs", ["Dog Hund"]),
        ("Hot dog, hot  dog", ["Hot dog Hotdog", "dog Hund"]),
        ("A HOT DOG for us in the US", ["HOT DOG HOTDOG", "US USA"]),
        ("ice-cream e.g. (dog)", ["ice-cream Eis", "e.g. z. B.", "dog Hund"]),
        ("Siri uses mt, MT and siri", ["Siri Siri", "mt mt", "MT MT"]),
        ("", []),
        ("mdog doge", []),
    ],
)
def test_occurrences(tmp_path: Path, text: str, expected: list[str]) -> None:
    found = glossary(tmp_path).terms("en", "de").find(text)
    assert [f"{text[term.start : term.end]} {term.forms[0]}" for term in found] == expected


def test_invisible_characters_are_no_part_of_a_term(tmp_path: Path) -> None:
    terms = glossary(tmp_path, "\u200b\tnichts\n\u200b old\xaddog\tHund\n").terms("en", "de")
    assert [term.forms for term in terms.find("an olddog")] == [("Hund",)]


def test_languages_without_spaces(tmp_path: Path) -> None:
    terms = glossary(tmp_path, "北京大学\tPeking-Universität\n北京\tPeking\n").terms("zh", "de")
    assert [term.forms[0] for term in terms.find("我在北京大学和北京")] == ["Peking-Universität", "Peking"]
    [term] = glossary(tmp_path, "Peking\t北京\n").terms("de", "zh").find("In Peking.")
    assert term.is_in("我在北京大学")


@pytest.mark.parametrize(
    ("source", "translation", "expected"),
    [
        ("a dog", "ein Hund", True),
        ("a dog", "ein Hunde", False),
        ("a dog", "ein Schäferhund, hund", False),
        ("a dog", "Hunde und Hund", True),
        ("a DOG", "ein HUND", True),
        ("a DOG", "ein Hund", True),
        ("e.g. this", "Z. B. dies", True),  # at its beginning
        ("e.g. this", "dies Z. B. so", False),
        ("a hot dog, e.g. this", "Hier ist ein Hotdog. Z. B. dies", True),
        ("Wait. ice", 'Warte. "Eiswürfel', True),
        ("Wait. ice", "Warte, Eiswürfel", False),
        ("mt runs", "mt läuft", True),
        ("mt runs", "Mt läuft", False),  # is kept as it is
    ],
)
def test_a_translation_has_the_term_as_a_word(tmp_path: Path, source: str, translation: str, expected: bool) -> None:
    *_, term = glossary(tmp_path).terms("en", "de").find(source)
    assert term.is_in(translation) is expected


def found_plainly(entries: dict[str, str], text: str, language: str) -> list[tuple[int, int, str]]:
    """Return start, end and source of the terms of a text by comparing every entry with every word."""
    spaced = language != "zh"
    word, found = re.compile(r"[^\W에北京]+|[에北京]+|\S" if spaced else r"\S"), list[tuple[int, int, str]]()
    for match in word.finditer(text):
        start, fitting = match.start(), list[str]()
        for source in entries:
            first, spelt = word.match(source), text[start : start + len(source)]
            forms = (source, title_case(source[:1], language) + source[1:], upper_case(source, language))
            is_whole = not spaced or is_whole_word(text, start, start + len(source))
            same = first and lower_case(first[0], language) == lower_case(match[0], language)
            if same and spelt in forms and is_whole:
                fitting.append(source)
        if fitting:
            source = min(fitting, key=lambda source: (-len(source), text[start : start + len(source)] != source))
            found.append((start, start + len(source), source))
    kept: list[tuple[int, int, str]] = []
    for span in sorted(found, key=lambda span: span[0] - span[1]):
        if not any(span[0] < end and start < span[1] for start, end, _ in kept):
            kept.append(span)
    return sorted(kept)


# Letters with more or less than one capital and small letter, and those of a word that need no space beside it.
# Their spaces are single, since a translator removes others.
LETTERS = st.text("aAbß sSſςσΣıIiİǆǅ에北京-.", max_size=12).map(lambda text: re.sub(" +", " ", text))


@given(
    sources=st.sets(LETTERS.map(str.strip).filter(bool), max_size=12),
    text=LETTERS,
    language=st.sampled_from(["en", "tr", "zh"]),
)
def test_terms_are_found_as_by_comparison_with_each(sources: set[str], text: str, language: str) -> None:
    entries = {source: f"{source}!" for source in sorted(sources)}
    text = "".join([text, *sorted(sources)[::2], " ", *(source.upper() for source in sorted(sources)), text])
    text = re.sub(" +", " ", text)
    terms = Terms(entries, (), (language, "de"))
    found = [(term.start, term.end, term.source) for term in terms.find(text)]
    assert found == found_plainly(entries, text, language)


def test_vowel_signs_belong_to_their_word() -> None:
    """Those of Hindi, Arabic and others are no letters to Python."""
    terms = Terms({"\u0915\u092e": "short"})
    assert [term.start for term in terms.find("\u0915\u092e\u0940 \u0915\u092e")] == [4]
    assert not Term(0, 1, ("\u0915\u092e",)).is_in("\u0915\u092e\u0940")


def test_the_form_at_the_beginning(tmp_path: Path) -> None:
    [example, kept] = glossary(tmp_path).terms("en", "de").find("e.g. mt")
    assert [example.form(True), example.form(False), kept.form(True)] == ["Z. B.", "z. B.", "mt"]
    forms = [Term(0, 1, (form,)).form(True) for form in ("iPhone X", "macOS", "e-Mail", "z.B.", "2nd", "i Pad")]
    assert forms == ["iPhone X", "macOS", "E-Mail", "Z.B.", "2nd", "I Pad"]


def test_text_to_keep(tmp_path: Path) -> None:
    """The longest of overlapping spans counts; an empty match is none."""
    terms = glossary(tmp_path, keep=[r"https?://\S+", "x*"]).terms("en", "de")
    found = terms.find("dog at https://dog.example/dog xx")
    assert [term.forms[0] for term in found] == ["Hund", "https://dog.example/dog", "xx"]
    assert [term.forms for term in Glossary(None, [r"\d+"]).terms("", "de").find("12 dogs")] == [("12",)]


def test_white_space_around_text_to_keep_is_left_out() -> None:
    text = "in 2024 @me  and\u3000"
    found = Terms({}, [re.compile(r"\s\d+"), re.compile(r"(?:^|\s)@\w+\s*"), re.compile(r"\s+")]).find(text, spans=True)
    assert [(text[term.start : term.end], term.forms) for term in found] == [("2024", ("2024",)), ("@me", ("@me",))]


def test_tbx(tmp_path: Path) -> None:
    both = glossary(tmp_path, TBX, "terms.tbx")
    found = both.terms("en", "de").find("A dog, a hound and a bank")
    assert [term.forms for term in found] == [("Hund",), ("Hund",)]
    assert [term.forms for term in both.terms("fr", "en").find("un chien")] == [("dog",)]
    with pytest.raises(InputError, match=r"terms\.tbx: no term in en and it"):
        both.terms("en", "it")
    concepts = TBX.replace("martif", "tbx").replace("termEntry", "conceptEntry").replace("langSet", "langSec")
    concepts = concepts.replace('<!DOCTYPE tbx SYSTEM "TBXcoreStructV02.dtd">', "")
    assert len(glossary(tmp_path, concepts, "v3.tbx").terms("en", "de").find("dog")) == 1
    (tmp_path / "terms.tbx.gz").write_bytes(gzip.compress(TBX.encode()))
    assert len(Glossary(tmp_path / "terms.tbx.gz").terms("en", "de").find("dog")) == 1


def test_directions_without_terms_are_reported_if_optional(tmp_path: Path, notices: list[str]) -> None:
    some = glossary(tmp_path, TBX, "terms.tbx", keep=["x+"]).optional()
    found = [some.terms("en", "it").find("dog xx") for _ in range(2)]
    assert [[term.forms for term in each] for each in found] == [[("xx",)]] * 2
    assert len(notices) == 1
    assert "no term in en and it" in notices[0]
    assert len(some.terms("en", "de").find("dog xx")) == 2
    with pytest.raises(InputError, match="not well-formed"):
        glossary(tmp_path, TBX[:-9], "torn.tbx").optional().terms("en", "it")


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("a\tb\nc\td\na\te\n", "x.tsv", r"x\.tsv:3: 'a' is 'e' here and 'b' in line 1"),
        ("a\tb\nc d\n", "x.tsv", r"x\.tsv:2: has no tab"),
        ("\tb\n", "x.tsv", r"x\.tsv:1: has no source term"),
        (TBX[:400], "x.tbx", r"x\.tbx:\d+: not well-formed"),
        ("<!DOCTYPE martif [<!ENTITY a 'b'>]><martif>&a;</martif>", "x.tbx", "declares entities"),
        ("<tmx/>", "x.tbx", "not TBX: the root element is <tmx>"),
        (TBX.replace("hound", "bank").replace('bank</term></tig></langSet></termEntry>',
         'bank</term></tig></langSet><langSet xml:lang="de"><tig><term>Ufer</term></tig></langSet></termEntry>'),
         "x.tbx", r"x\.tbx:9: 'bank' is 'Ufer' here and 'Hund' in line 4"),
    ],
)  # fmt: skip
def test_unusable_files(tmp_path: Path, text: str, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        glossary(tmp_path, text, name).terms("en", "de")


def test_unusable_patterns() -> None:
    with pytest.raises(InputError, match=r"--keep \(: not a regular expression"):
        Glossary(None, ["("])


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("See https://a.org/b?c=1, or www.d.com/e.", ["https://a.org/b?c=1", "www.d.com/e"]),
        ("(http://a.org/b) ask me@a-b.co.uk.", ["http://a.org/b", "me@a-b.co.uk"]),
        ("Good \U0001f600\U0001f600 day \u2764\ufe0f!", ["\U0001f600\U0001f600", "\u2764\ufe0f"]),
        ("\u2b50 1\ufe0f\u20e3 \u23f0!", ["\u2b50", "1\ufe0f\u20e3", "\u23f0"]),
        ("\u2b06\ufe0f \U0001f469\u200d\U0001f4bb\u2122", ["\u2b06\ufe0f", "\U0001f469\u200d\U0001f4bb"]),
        ("Run `a b` with --all {name} %s <tag> $HOME", ["`a b`", "--all", "{name}", "%s", "<tag>", "$HOME"]),
        ("call() a_b in /usr/lib by @user #topic, ABC-12", ["call()", "a_b", "/usr/lib", "@user", "#topic", "ABC-12"]),
        ("On 2024-05-01 at 10:30 version 1.2.3 of 2048 lines.", ["2024-05-01", "10:30", "1.2.3", "2048"]),
        ("12.5 km, 1,000 m, 7%, #1, 3. --all.", ["12.5", "1,000", "7%", "#1", "--all"]),
        ("Run `don't`, `f'x'` or `print 'a' b`.", ["`don't`", "`f'x'`", "`print 'a' b`"]),
        ("The `dog' and the `cat', ``big dogs'' or `dogs'", []),
        ("The `dog' and `cat's friends run `a b`.", ["`a b`"]),
        ("5 dogs, 3/4, B2, 2x, 7th", []),
        ("and/or he/she; yes -- no; a < b > c; 1000m", []),
        # Letters that are written without a space belong to no address or code.
        ("请访问https://a.org/b.html，欢迎。", ["https://a.org/b.html"]),
        ("联系me@a.com获取帮助", ["me@a.com"]),
        ("https://a.org/b에서 ดูwww.a.orgที่นี่", ["https://a.org/b", "www.a.org"]),
        ("使用my_func函数和调用foo()或%s的@name", ["my_func", "foo()", "%s", "@name"]),
        ("打开/usr/bin目录（--all选项），修复ABC-12的错误", ["/usr/bin", "--all", "ABC-12"]),
        ("https://пример.рф/путь?а=б http://a.org/مرحبا https://a.org/%D0%BF%20x", [
            "https://пример.рф/путь?а=б", "http://a.org/مرحبا", "https://a.org/%D0%BF%20x",
        ]),
        ("예/yes/no /usr/bin", ["/usr/bin"]),
        ("'https://a.org','https://b.org' of https://c.org's", ["https://a.org", "https://b.org", "https://c.org"]),
        ("https://a.org/users/{id} **https://a.org**and", ["https://a.org/users/{id}", "https://a.org"]),
        ("https://a.org/Mercury_(planet), (see https://a.org/b)", ["https://a.org/Mercury_(planet)", "https://a.org/b"]),
        ("(https://a.org/b_(c).) [www.a.org](https://a.org/(b)/c)", [
            "https://a.org/b_(c)", "www.a.org", "https://a.org/(b)/c",
        ]),
    ],
)  # fmt: skip
def test_text_that_is_the_same_in_all_languages(text: str, spans: list[str]) -> None:
    terms = Terms({})
    assert [text[term.start : term.end] for term in terms.find(text, spans=True)] == spans
    assert terms.find(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "a" * 100_000,
        "a_" * 50_000,
        "a@b." * 30_000,
        "https://" + "a(" * 50_000,
        "www." * 25_000,
        "我a" * 50_000,
        "https://" + "{a}" * 30_000,
        "https://" + "{" * 100_000,
        "https://" + "{a" * 50_000,
    ],
)
def test_time_is_linear(text: str) -> None:
    start = time.process_time()
    SPANS.findall(text)
    assert time.process_time() - start < 5


def test_georgian_words_begin_with_no_capital() -> None:
    assert Term(0, 1, ("ძაღლი",)).form(begins=True) == "ძაღლი"


def test_numbers_may_be_punctuated_as_the_language_does() -> None:
    [decimal, thousands, percent, clock] = Terms({}).find("12.5, 1,000, 75% at 10:30", spans=True)
    assert decimal.is_in("etwa 12,5 km")
    assert not decimal.is_in("etwa 125 km")
    [comma] = Terms({}).find("etwa 12,5 km", spans=True)
    assert comma.is_in("some 12.5 km")
    assert not comma.is_in("some 125 km")
    assert all(thousands.is_in(text) for text in ("1.000 m", "1 000 m", "1000 m", "1\u202f000 m"))
    assert percent.is_in("75 %")
    assert not percent.is_in("75")
    assert all(clock.is_in(text) for text in ("um 10.30 Uhr", "à 10h30"))
    assert [term.form(False) for term in (decimal, thousands, percent, clock)] == ["12.5", "1,000", "75%", "10:30"]


def test_text_that_a_user_keeps_stays_letter_by_letter() -> None:
    [by_pattern] = Terms({}, [re.compile(r"\d\S+")]).find("1,000 m")
    [by_row] = Terms({"1,000": ""}).find("1,000 m")
    assert by_pattern.forms == by_row.forms == ("1,000",)


def test_text_kept_inside_a_word_may_stand_inside_one() -> None:
    inside, whole = Terms({}, [re.compile(r"\d+")]).find("The MP3 decoder 2")
    assert [inside.is_in("Der MP3-Decoder"), inside.is_in("Der MP-Decoder")] == [True, False]
    assert [whole.is_in("Version 2"), whole.is_in("Version B52")] == [True, False]


def test_terms_have_the_letters_of_their_language() -> None:
    [client, shouted] = Terms({"client": "istemci", "info": "bilgi"}, (), ("en", "tr")).find("client INFO")
    assert [client.form(True), client.is_in("İstemci bağlandı."), client.is_in("Istemci")] == ["İstemci", True, False]
    assert shouted.forms == ("BİLGİ", "bilgi")
    found = Terms({"istemci": "client", "bilgi": "info"}, (), ("tr", "en")).find("İstemci BİLGİ")
    assert [term.forms[0] for term in found] == ["client", "INFO"]


def test_korean_particles_end_a_word() -> None:
    text = "API를 사용하세요. 새APIs"
    assert [term.start for term in Terms({"API": "API"}, (), ("ko", "en")).find(text)] == [0]


def test_text_that_overlaps_a_users_pattern_is_requested() -> None:
    terms = Terms({"max_size": ""}, [re.compile("[0-9]+")])
    found = terms.find("1,001.50 and max_size at http://a.b", spans=True)
    assert [term.is_requested for term in found] == [True, True, False]
