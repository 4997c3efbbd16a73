"""Minimum Bayes risk: utilities equal sacreBLEU's, and the candidate of largest mean utility is chosen."""

import json
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU, CHRF

from engine_helpers import ENGLISH, LIVELY, printed_lines, whole_folder
from mt.api.search import SearchRequest
from mt.data.eval_texts import EvalText
from mt.decoding.candidates import Candidate, best_of, rerank_mbr
from mt.decoding.engine import SearchOptions
from mt.decoding.text_translation import translate_texts
from mt.metrics.pairwise import UTILITIES, _shared_ngrams, expected_utility, utility_for
from mt.storage.run_dir import ModelDir

# Sentences that share words and parts of words, and sentences of arbitrary characters.
WORDY = st.lists(st.sampled_from(["a", "b", "aa", "ab", "ba.", "aab", "the", ",", "!", "3.5"]), max_size=8).map(
    " ".join
)
ANYTHING = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=12)
SENTENCES = st.lists(
    WORDY | ANYTHING | st.sampled_from(["", " ", "a", "日本語", "<skipped>", "&quot;a&amp;"]), min_size=1
)
LINES = [*ENGLISH, "", "The dog is old.", "Men on the grass", "talking"]


@settings(max_examples=60)
@given(SENTENCES)
@example(["", "a", "ab", "abcdefg", "abcdefgh", "a b c d e f g h"])
@example(["the the the the", "the", "the cat", "cat the cat the"])
@example(["é", "e\u0301", "\u2028", "a\u2028b", "\ue000", "a\tb"])
def test_all_utilities_are_sacrebleus(sentences: list[str]) -> None:
    metrics = {
        "chrf": CHRF(),
        "bleu": BLEU(effective_order=True),
        "character_bleu": BLEU(effective_order=True, tokenize="char"),
    }
    for name, metric in metrics.items():
        theirs = [[metric.sentence_score(hyp, [ref]).score for ref in sentences] for hyp in sentences]
        np.testing.assert_allclose(UTILITIES[name](sentences), theirs, atol=1e-6)


@settings(max_examples=50)
@given(SENTENCES, st.sampled_from(["chrf", "bleu"]))
def test_the_expectation_is_the_mean_over_all_as_references(sentences: list[str], utility: str) -> None:
    means = UTILITIES[utility](sentences).mean(axis=1) if len(set(sentences)) > 1 else [100.0] * len(sentences)
    np.testing.assert_allclose(expected_utility(sentences, utility), means, atol=1e-9)


def test_the_memory_does_not_grow_with_sentences_times_ngrams() -> None:
    rng = np.random.default_rng(1)
    sentences = ["".join(map(chr, row)) for row in rng.integers(0x4E00, 0x9000, (200, 200))]
    n_ngrams = len({sentence[i : i + 2] for sentence in sentences for i in range(199)})
    tracemalloc.start()
    shared, totals = _shared_ngrams(sentences, 2, slice(None))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert shared.shape == (200, 200)
    assert np.array_equal(shared.diagonal(), totals)
    assert most < 8 * 200 * n_ngrams / 2


# Choosing -------------------------------------------------------------------------------------------------------------


def candidates(*texts: str, log_probs: Sequence[float] | None = None) -> list[Candidate]:
    log_probs = log_probs or [-1.0 - i for i in range(len(texts))]
    return [Candidate(text, log_prob / 2, log_prob) for text, log_prob in zip(texts, log_probs, strict=True)]


def test_the_candidate_with_the_largest_mean_chrf() -> None:
    """chrF2 of `ab` against either letter is 83.3 (precision 1/2, recall 1), of a letter against `ab` 55.6, and of one
    letter against the other 0."""
    found = rerank_mbr(candidates("a", "b", "ab", log_probs=[-1, -2, -30]), "chrf")
    assert [c.text for c in found] == ["ab", "a", "b"]
    assert [c.score for c in found] == pytest.approx(
        [(100 + 2 * 250 / 3) / 3, (100 + 500 / 9) / 3, (100 + 500 / 9) / 3]
    )
    assert [c.log_prob for c in found] == [-30, -1, -2]


def test_utility_is_that_of_the_candidate_as_hypothesis() -> None:
    """BLEU of `a` against `a b` is exp(-1), a brevity penalty; of `a b` against `a` it is sqrt(1/2 * 1/2): one of two
    words matches, and no bigram. There are three `a` and one `a b`."""
    found = rerank_mbr(candidates("a b", "a", "a", "a"), "bleu")
    assert [c.text for c in found] == ["a", "a b"]
    assert [c.score for c in found] == pytest.approx([(300 + 100 * np.exp(-1)) / 4, (100 + 3 * 50) / 4])


@pytest.mark.parametrize("utility", ["chrf", "bleu"])
def test_a_sample_drawn_twice_counts_twice(utility: str) -> None:
    once = rerank_mbr(candidates("x y", "u v"), utility)
    assert [c.text for c in once] == ["x y", "u v"]
    twice = rerank_mbr(candidates("x y", "u v", "u v"), utility)
    assert [c.text for c in twice] == ["u v", "x y"]
    assert [c.score for c in twice] == pytest.approx([200 / 3, 100 / 3])


@pytest.mark.parametrize("utility", ["chrf", "bleu"])
def test_among_equals_the_likelier(utility: str) -> None:
    """Of equal texts it is the one to be shown."""
    for texts, log_probs, expected in (
        ("", [-1], [("", -1)]),
        ("aab", [-5, -2, -1], [("a", -2), ("b", -1)]),
        ("xyz", [-3, -1, -2], [("y", -1), ("z", -2), ("x", -3)]),
    ):
        found = rerank_mbr(candidates(*(texts or [""]), log_probs=log_probs), utility)
        assert [(c.text, c.log_prob) for c in found] == expected


@pytest.mark.parametrize(
    ("utility", "stem", "number"),
    [("chrf", "abc", 3), ("chrf", "a b c d e", 5), ("chrf", "Ein Hund läuft", 5), ("bleu", "Ein Hund läuft", 5)],
)
def test_among_equals_that_share_something_the_likelier(utility: str, stem: str, number: int) -> None:
    """They differ in the last letter only, so all have the same utility; the command keeps their order."""
    texts = [f"{stem} {letter}" for letter in "uvwxy"[:number]]
    for likeliest in range(number):
        found = candidates(*texts, log_probs=[-1.0 if i == likeliest else -2.0 for i in range(number)])
        ranked = rerank_mbr(found, utility)
        assert ranked[0].text == texts[likeliest]
        assert best_of(found, utility, 2, sampled=True) == ranked[:2]


def test_equal_texts_are_one_of_the_nbest_of() -> None:
    found = candidates("a b", "a b", "c d", "e f", log_probs=[-1.0, -2.0, -3.0, -4.0])
    assert [each.text for each in best_of(found, None, 3, sampled=False)] == ["a b", "c d", "e f"]
    assert [each.text for each in best_of(found, None, 3, sampled=True)] == ["a b", "a b", "c d"]
    # Otherwise its duplicate would raise its utility.
    alone = rerank_mbr(candidates("a b", "c d", "e f"), "chrf")
    assert [each.score for each in best_of(found, "chrf", 3, sampled=False)] == [each.score for each in alone]


# The command line -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelDir:
    """Return a model with a different translation for each line."""
    changes = ["tokenizer.shared=false", "decoding.max_length=8", "decoding.beam_size=3", "evaluation.methods=[beam]"]
    return whole_folder(tmp_path_factory.mktemp("mbr") / "model", *LIVELY, *changes)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "in.txt"
    path.write_text("".join(f"{line}\n" for line in LINES))
    return path


def listed(*arguments: str | Path) -> list[list[Candidate]]:
    """Return the n best of each line."""
    records = [json.loads(line) for line in printed_lines(*arguments, "--format", "jsonl")]
    return [[Candidate(**candidate) for candidate in record["n_best"]] for record in records]


@pytest.mark.parametrize("utility", ["chrf", "bleu"])
@pytest.mark.parametrize(
    "way", [["--engine", "torch"], [], ["--sample", "--seed", "4", "--temperature", "0.7"]], ids=str
)
def test_translate_chooses_among_the_n_best_or_the_samples(
    folder: ModelDir, text: Path, way: list[str], utility: str
) -> None:
    command = ["translate", "--model", folder.root, "--input", text, *way]
    beam = [] if "--sample" in way else ["--beam", "6"]  # which --mbr does by itself
    ranked = [rerank_mbr(found, utility) for found in listed(*command, *beam, "--n-best", "6")]
    wanted = [*command, "--mbr", "6", *([] if utility == "chrf" else ["--utility", utility])]
    found = printed_lines(*wanted)
    assert found == [line[0].text for line in ranked]
    assert found != printed_lines(*command), "what is likeliest is chosen anyway"
    two = listed(*wanted, "--n-best", "2")
    assert [[c.text for c in line] for line in two] == [[c.text for c in line[:2]] for line in ranked]
    for line, expected_line in zip(two, ranked, strict=True):
        assert [c.score for c in line] == pytest.approx([c.score for c in expected_line[:2]], abs=1e-6)


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        (["--mbr", "5"], ["beam", "mbr"]),
        (["--mbr", "5", "--utility", "bleu"], ["beam", "mbr"]),
        (["--sample", "--mbr", "5", "--top-k", "9"], ["beam", "mbr"]),
        (["--sample", "--seed", "5"], ["beam", "sample"]),
        ([], ["beam"]),
    ],
    ids=str,
)
def test_eval_scores_what_translate_says(
    folder: ModelDir, text: Path, tmp_path: Path, options: list[str], rows: list[str]
) -> None:
    references = tmp_path / "references"
    references.write_text("".join(f"{line}\n" for line in LINES[::-1]))
    given = ["--source", text, "--reference", references, "--output", tmp_path / "out", "--json"]
    [line] = printed_lines("eval", "--model", folder.root, *given, *options)
    results = json.loads(line)["results"]
    assert [row["method"] for row in results] == rows
    engine = ["--engine", "torch"] if "--sample" in options else []
    for row, search in {"beam": engine, rows[-1]: options}.items():
        translations = (tmp_path / "out" / f"in.{row}").read_text().split("\n")[:-1]
        assert translations == printed_lines("translate", "--model", folder.root, "--input", text, *search)
    assert results[-1]["chrf"] == pytest.approx(CHRF().corpus_score(translations, [LINES[::-1]]).score, abs=1e-3)


class Chinese:
    """A translator with three candidates per line that share no word, only characters."""

    target_lang = "zh"

    def for_text(self, text: EvalText) -> "Chinese":
        return self

    def translate(self, lines: Sequence[str], options: object, first_line: int | None = 1) -> list[list[Candidate]]:
        return [candidates(f"猫在睡{line}", f"我是一名学生{line}", f"我是一名学者{line}") for line in lines]


def test_eval_compares_characters_too_and_the_lines_of_every_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mt.decoding.text_translation.lines_at_once", lambda *_: 2)
    text = EvalText("zh", list("abcde"), [])
    [found] = translate_texts(Chinese(), [text], SearchOptions(3, n_best=3), "bleu")  # type: ignore[arg-type]
    assert found.hypotheses == [f"我是一名学生{line}" for line in "abcde"]


def test_the_options_of_minimum_bayes_risk() -> None:
    """Scores are needed, because of equal texts the likelier candidate is shown."""
    decoding = SearchRequest(n_best=4, utility="bleu")
    assert decoding.options(SearchOptions(4), scores=False).scores
    assert not SearchRequest(n_best=4).options(SearchOptions(4), scores=False).scores
    assert (decoding.utility_in("zh"), decoding.utility_in("de")) == ("character_bleu", "bleu")


@pytest.mark.parametrize(
    ("name", "lang", "expected"), [("bleu", "de", "bleu"), ("bleu", "ja", "character_bleu"), ("chrf", "zh", "chrf")]
)
def test_bleu_compares_characters_where_words_are_not_separated(name: str, lang: str, expected: str) -> None:
    assert utility_for(name, lang) == expected
    assert (
        UTILITIES["character_bleu"](["我很好", "我很好吗"])[0, 1] > 0 == UTILITIES["bleu"](["我很好", "我很好吗"])[0, 1]
    )
