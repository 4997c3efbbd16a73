"""Misspelt words of source text: what is corrected, what is not, and translation of a corrected line."""

import shutil
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from command import mt
from mt.bundle.load_translator import open_model
from mt.decoding.engine import EngineChoice, SearchOptions
from mt.errors import InputError
from mt.storage.run_dir import ModelDir
from mt.text.preprocessing import Preprocessed, Preprocessing
from mt.text.spelling import Spelling

ENGLISH = [
    *["A woman rides her horse through the forest, and Anna waits in Paris."] * 3,
    *["Jugglers don't fear a well-known forest."] * 3,
    *["EVERYTHING HERE IS SHOUTED"] * 3,
    "An umbrella, seen once.",
]
GERMAN = ["Die Frau sieht einen Hund im Schatten."] * 3 + ["Am Abend bellen Hunde im Schatten."] * 3


def learned(lines: list[str]) -> Spelling:
    spelling = Spelling.learn(lines)
    assert spelling is not None
    return spelling


@pytest.mark.parametrize(
    ("line", "corrected"),
    [
        ("A woman rides her hrse.", "A woman rides her horse."),  # a letter is missing
        ("A woman rides her horsse.", "A woman rides her horse."),  # or twice there
        ("A woman rides her hosre.", "A woman rides her horse."),  # or swapped with the next
        ("A woman rides her hotse.", "A woman rides her horse."),  # or the key beside it was hit
        ("the jgglers don't fear the foresst!", "the jugglers don't fear the forest!"),
        ("“throguh the well-knwn (forrest)”", "“through the well-known (forest)”"),
        ("the  horrse\twaits", "the  horse\twaits"),
    ],
)
def test_slips_are_corrected(line: str, corrected: str) -> None:
    assert learned(ENGLISH).corrected(line) == corrected


@pytest.mark.parametrize(
    "line",
    [
        "",
        "A horse waits.",  # without errors
        "A norse, a horsex, a horke",  # the first or last letter, or no neighbour on the keyboard
        "wsits.txt --hrse hrse.org hrse/waits hrse_waits @hrse hrse=1 hrse2 `hrse`",  # no words
        "HRSE hRSE",
        "Hrse of Firest waits for Annna in Psris.",  # names
        "An umrella",  # that word was seen once
        "hxoxrse",  # two errors
        "shuted",  # a word of shouted lines only
        "不是horsse",
        "hrse" * 10_000,  # takes minutes if it is compared with all words
    ],
)
def test_other_words_stay_as_they_are(line: str) -> None:
    assert learned(ENGLISH).corrected(line) == line


def test_the_most_frequent_of_several_words_is_taken() -> None:
    assert learned([*["a plant"] * 3, *["a planet"] * 4]).corrected("a plamt, a planrt") == "a plant, a planet"
    assert learned([*["a sliver"] * 3, *["a silver"] * 4]).corrected("a slver") == "a silver"
    assert learned([*["a sliver"] * 4, *["a silver"] * 3]).corrected("a slver") == "a sliver"


def test_nouns_keep_their_capitals() -> None:
    german = learned(GERMAN)
    assert german.corrected("Im Schaten bellen Hnude.") == "Im Schatten bellen Hunde."
    assert german.corrected("Bellne im schaten") == "Bellne im schatten"


def test_spans_are_kept() -> None:
    spelling = learned(ENGLISH)
    line = "the hrse and the hrse"
    assert spelling.corrected(line, lambda text: [(4, 8, "hrse")]) == "the hrse and the horse"


WORDS = ["hrse", "horsse,", "(hosre)", "horse", "Hrse", "hrse.org", "`hrse`", "12.5", "hrse-hosre", "hrse/hrse"]


@given(st.lists(st.tuples(st.sampled_from(WORDS), st.booleans()), max_size=12))
def test_each_word_is_corrected_as_alone(words: list[tuple[str, bool]]) -> None:
    spelling = learned(ENGLISH)
    starts = list(accumulate((len(word) + 1 for word, _ in words), initial=0))
    spans = [(s, s + len(word), word) for s, (word, kept) in zip(starts, words, strict=False) if kept]
    corrected = spelling.corrected(" ".join(word for word, _ in words), lambda line: spans)
    assert corrected == " ".join(word if kept else spelling.corrected(word) for word, kept in words)


def test_text_without_case_teaches_nothing() -> None:
    assert Spelling.learn(["你好。世界很大。"] * 3) is None
    assert Spelling.learn(["ALL OF THIS IS SHOUTED"] * 3) is None


def test_a_file_keeps_everything(tmp_path: Path) -> None:
    spelling, path = learned(ENGLISH), tmp_path / "spelling.txt"
    path.write_text(spelling.text(), encoding="utf-8")
    assert Spelling.read(path) == spelling
    for content in ("", "horse\n", "mt spelling 1 2\nhorse\n", "mt spelling 1 x\nhorse\n", "mt spelling 1 1\na\n\n"):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(InputError, match=r"spelling.txt: not a list of words"):
            Spelling.read(path)


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_a_model_translates_the_corrected_line(engine: str, two_languages: Path) -> None:
    opened = open_model(ModelDir(two_languages / "runs" / "two" / "model"), EngineChoice(engine)).translator.to("xx")
    assert opened.preprocessing.spelling is not None  # the training text taught it
    translator = replace(opened, preprocessing=Preprocessing(spelling=Spelling(("abcd", "b"), 2)))
    options = SearchOptions(2, n_best=2, max_length=12, attention=engine == "torch")
    [right], [wrong] = (translator.translate([line], options) for line in ("b abcd ab d", "b abbcd ab d"))
    assert wrong == right != opened.translate(["b abbcd ab d"], options)[0]
    # Links lead to the words of the line as it was typed.
    to_wrong = {0: 0, 2: 2, 7: 8, 10: 11}
    units = translator.align("b abcd ab d", right[0])
    assert translator.align("b abbcd ab d", wrong[0]) == [unit.moved(to_wrong) for unit in units]
    kept = Preprocessing(spelling=Spelling(("abcd", "b"), 2)).apply("abbcd", kept=lambda line: [(0, len(line), line)])
    assert kept == Preprocessed("abbcd")


def test_a_model_may_be_made_without_it(two_languages: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(two_languages, tmp_path / "copy"))
    folder = ModelDir(root / "runs" / "two" / "model")
    assert folder.spelling.is_file()
    mt("train", "--config", "two.yaml", "--set", "decoding.correct_spelling=false", cwd=root)
    assert folder.casing.is_file()
    assert not folder.spelling.exists()
