"""Usual case of words: learned from text, restored in lines in capitals, kept in a file."""

from dataclasses import replace
from pathlib import Path
from unicodedata import normalize

import pytest

from mt.bundle.load_translator import open_model
from mt.data.terms import Terms
from mt.decoding.engine import EngineChoice, SearchOptions
from mt.errors import InputError
from mt.storage.run_dir import ModelDir
from mt.text.casing import Casing, title_case
from mt.text.preprocessing import NO_PREPROCESSING, Preprocessing

ENGLISH = [
    "The engineers of NASA met Anna in Paris.",
    "Yesterday Anna sent a letter from Paris to the engineers.",
    "They say that NASA and Anna like the letter.",
    "It is the new iPhone.",
    "Is this the iPhone of Anna?",
    "EVERYTHING HERE IS SHOUTED AND TEACHES NOTHING, SAYS ANNA OF PARIS.",
]
GERMAN = [
    "Der Hund läuft über die Straße.",
    "Am Abend ist die Straße leer, und der Hund bleibt im Haus.",
    "Im Haus: Kuchen, Kaffee, Zimt, Honig, Milch, Brot und Salz.",
]


TITLES = [
    "The letter that Anna sent is new, and the engineers like it.",
    "A letter is sent to the engineers that like iPhones, and is new.",
]


def learned(lines: list[str]) -> Casing:
    casing = Casing.learn(lines)
    assert casing is not None
    return casing


def usual(casing: Casing, line: str) -> str | None:
    found = casing.restored(line)
    return None if found is None else found[0]


def test_the_usual_case_of_words_is_restored() -> None:
    casing = learned(ENGLISH)
    shouted = "ANNA SENT THE LETTER TO NASA. THE IPHONE IS NEW, SAYS ANNA."
    assert usual(casing, shouted) == "Anna sent the letter to NASA. The iPhone is new, says Anna."
    assert usual(casing, "THE LETTER OF J. ANNA") == "The letter of j. Anna"  # an initial ends no sentence


def test_accents_of_their_own_belong_to_their_letters() -> None:
    casing = learned([normalize("NFD", line) for line in 2 * GERMAN])
    shouted = normalize("NFD", "DER HUND LÄUFT ÜBER DIE STRASSE.")
    assert Preprocessing(casing).apply(shouted).line == "Der Hund läuft über die Straße."


def test_what_is_kept_gets_its_own_case() -> None:
    glossary = Terms({"MyApp": "MonAppli", "red car": "rouge"})
    lines = {
        "RED CAR AND MYAPP SENT THE LETTER": "Red car and MyApp sent the letter",
        "SEE BUG-4567: A LETTER OF MYAPP TO THE RED CAR": "See BUG-4567: a letter of MyApp to the red car",
        "The Letter That {UserName} Sent By GetValue() Is New": "The letter that {UserName} sent by GetValue() is new",
    }
    for line, expected in lines.items():
        found = learned([*ENGLISH, *TITLES]).restored(line, kept=glossary.spans)
        assert found is not None
        assert found[0] == expected


def test_unknown_words_have_the_case_of_rare_words() -> None:
    assert usual(learned(ENGLISH), "THE TURTLE OF ANNA") == "The turtle of Anna"
    german = learned(GERMAN)
    assert usual(german, "DER HUND UND DIE SCHILDKRÖTE.") == "Der Hund und die Schildkröte."
    assert usual(german, "DIE STRASSE IST LEER") == "Die Straße Ist Leer"  # the last two were seen once


def test_titles_are_restored_and_capitals_within_them_stay() -> None:
    casing = learned(TITLES)
    found = casing.restored("A New Letter That NASA's Engineers Sent To Anna")
    assert found == ("A new letter that NASA's engineers sent to anna", title_case)  # Anna was seen once
    assert found[1]("un giorno d'estate", "it") == "Un Giorno D'estate"


@pytest.mark.parametrize(
    "line",
    [
        "The New Letter",
        "A New Letter that Is Sent To Engineers",
        "The letter is new",
        "iPhone Engineers Like The Letter",
    ],
)
def test_names_and_sentences_are_no_titles(line: str) -> None:
    assert learned(TITLES).restored(line) is None


@pytest.mark.parametrize(
    "line",
    [
        "",
        "NASA",
        "USB 3.0",
        "XYZ",
        "NASA, ANNA",
        "The engineers",
        "the letter of NASA",
        "你好。",
        "1:0",
        "<BT> THE Letter",
    ],
)
def test_other_lines_stay_as_they_are(line: str) -> None:
    casing = replace(learned(ENGLISH), words=("the", "letter", "NASA", "ANNA"))
    assert casing.restored(line) is None


def test_lines_begin_as_those_of_the_text_do() -> None:
    casing = learned(["file manager for the desktop", "server of the desktop files", "A server runs the files."])
    assert casing.capital_start == (False, True)
    assert usual(casing, "THE DESKTOP FILES") == "the desktop files"
    assert usual(casing, "THE DESKTOP FILES.") == "The desktop files."


ARABIC = ["قال محمد إن الشركة أطلقت تطبيق whatsapp أمس.", "زار الوزير موقع example أمس."]
CHINESE = ["我在twitter上看到了，很好。"]


@pytest.mark.parametrize(
    "lines",
    [["你好。世界很大。", "我们再见。"], ["ALL OF THIS IS SHOUTED"], ARABIC, CHINESE],
    ids=["zh", "en", "ar", "zh-en"],
)
def test_text_without_case_teaches_nothing(lines: list[str]) -> None:
    assert Casing.learn(lines * 3) is None


def test_words_without_case_are_not_learned() -> None:
    assert learned([*ENGLISH * 5, *ARABIC, *CHINESE]) == learned(ENGLISH * 5)


@pytest.mark.parametrize(
    ("language", "line"),
    [
        ("ar", "قال المدير العام لمنظمة NATO إن الوضع جيد."),
        ("ja", "東京タワーで、ソニーのDVDを買いました。とても、うれしかった。"),
        ("ko", "그는 새로운 텔레비전에서 NHK 방송을 보았다."),
        ("zh", "他买了一张CD，然后回家了，吃了晚饭。"),
        ("hi", "हमने NATO पर अखबार समझकर बदलकर रखा।"),
    ],
)
def test_an_abbreviation_puts_no_line_in_capitals(language: str, line: str) -> None:
    """In a script without case, its letters are the only ones with case."""
    assert learned(ENGLISH).restored(line, language) is None
    shouted = learned(ENGLISH).restored("ANNA SENT THE LETTER: 北京。", language)
    assert shouted is not None
    assert shouted[0] == "Anna sent the letter: 北京。"


TURKISH = ["Biz dün Ali ile sinir ve sınır için İzmir yolunda idik.", "İki ülke dün sınır ile ilgili Irak için idi."]


def test_dotted_and_dotless_i_are_two_letters() -> None:
    casing = Casing.learn(TURKISH * 3, "tr")
    assert casing is not None
    found = casing.restored("DÜN ALİ İLE SINIR VE SİNİR, IRAK VE İZMİR IŞIK.", "tr")
    assert found is not None
    assert found[0] == "Dün Ali ile sınır ve sinir, Irak ve İzmir ışık."
    assert found[1]("in Berlin", "en") == "IN BERLIN"
    title = casing.restored("Dün Sınır İle İzmir Ve Sinir İçin Idik", "tr-TR")
    assert title == ("Dün sınır ile İzmir ve sinir için ıdik", title_case)


def test_a_file_keeps_everything(tmp_path: Path) -> None:
    casing, path = learned(GERMAN), tmp_path / "casing.txt"
    path.write_text(casing.text(), encoding="utf-8")
    assert Casing.read(path) == casing
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match=r"casing.txt: not a list of the usual case"):
        Casing.read(path)


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_a_model_translates_capitals_as_usual_text(engine: str, two_languages: Path) -> None:
    opened = open_model(ModelDir(two_languages / "runs" / "two" / "model"), EngineChoice(engine)).translator.to("xx")
    assert opened.preprocessing.casing is not None  # the training text taught it
    translator = replace(opened, preprocessing=Preprocessing(Casing(("ab", "b", "c"), (False, False), False)))
    options = SearchOptions(2, n_best=2, max_length=12, attention=engine == "torch")
    [plain], [shouted] = (translator.translate([line], options) for line in ("b a c ab d", "B A C AB D"))
    assert [c.text for c in shouted] == [c.text.upper() for c in plain] != [c.text for c in plain]
    assert [c.score for c in shouted] == pytest.approx([c.score for c in plain])
    units = translator.align("b a c ab d", plain[0])
    assert translator.align("B A C AB D", shouted[0]) == units
    assert replace(opened, preprocessing=NO_PREPROCESSING).translate(["B A C AB D"], options) != [shouted]
