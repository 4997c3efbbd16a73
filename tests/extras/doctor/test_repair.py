"""Repair of sentences, which a second repair leaves alone, and of corpora."""

import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from command import mt
from data_helpers import lines_in, make_config, write_pairs, write_project
from mt.api.corpora import clean_corpus
from mt.data.phrasebook import sentence_pairs
from mt.extras.doctor.check import check_corpus
from mt.extras.doctor.repair import repaired

LATIN = frozenset({"Latn"})


@pytest.mark.parametrize(
    ("before", "after", "reasons"),
    [
        ("Plain text.", "Plain text.", []),
        ("Fish &amp; chips", "Fish & chips", ["markup"]),
        ("Fish &amp;amp; chips", "Fish & chips", ["markup"]),
        ("<p>One <b>bold</b> word.</p>", "One bold word.", ["markup"]),
        (f"Fish &{'amp;' * 9} chips", "Fish & chips", ["markup"]),
        ("Hello <b>world</b>.", "Hello world.", ["markup"]),
        ("H<sub>2</sub>O, <a href='x'>O</a>xygen", "H2O, Oxygen", ["markup"]),
        ("One<br/>two<BR><br>three", "One two three", ["markup"]),
        ("The &lt;b&gt; tag &amp; others", "The &lt;b&gt; tag &amp; others", []),
        ("Converts <a href> to LaTeX &amp; foo <title>", "Converts <a href> to LaTeX & foo <title>", ["markup"]),
        ("<p>&#60;b> or 5 &lt; 6</p>", "&#60;b> or 5 &lt; 6", ["markup"]),
        ("&#55357;&#56832; &#xD83D;&#xDE00; &#54620;&#55357;&#56832;", "😀 😀 한😀", ["markup"]),
        ("&#55357; &#56832;&#55357; &#0; &#xFFFD; &amp;", "&#55357; &#56832;&#55357; &#0; &#xFFFD; &", ["markup"]),
        ("If x <p and q> 3", "If x <p and q> 3", []),
        ('<p class="a b">One</p><hr noshade><br />two <td nowrap width=5>three</td >', "One two three", ["markup"]),
        ("&notit; &amp; &copy;", "&notit; & ©", ["markup"]),
        ("Quoi&nbsp;?\xa0» <i>non</i>\xa0:", "Quoi ?\xa0» non\xa0:", ["markup"]),
        ("AT&T, R&D; 5 < 6", "AT&T, R&D; 5 < 6", []),
        ("schÃ¶n", "schön", ["mojibake"]),
        ("Ð¿Ñ€Ð¸Ð²ÐµÑ‚", "привет", ["mojibake"]),
        ("zero\u200bwidth", "zerowidth", ["invisible"]),
        ("soft\u00adhyphen", "softhyphen", ["invisible"]),
        ("bell\x07", "bell", ["invisible"]),
        ("two\u2028lines", "two lines", ["invisible"]),
        ('"He said ""yes""."', 'He said "yes".', ["quotes"]),
        ('"He said yes."', '"He said yes."', []),
        ('"One ""two"" "three"', '"One ""two"" "three"', []),
        ('"', '"', []),
        ("cafe\u0301", "caf\u00e9", ["composed"]),
        ("1,5 kg – „so“", "1,5 kg – „so“", []),
    ],
)
def test_sentences(before: str, after: str, reasons: list[str]) -> None:
    assert repaired(before, LATIN) == (after, reasons)


def test_a_long_quotation_is_read_in_little_memory() -> None:
    text = '"' + "a" * 10**6
    tracemalloc.start()
    assert repaired(text, LATIN) == (text, [])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * 10**6


def test_a_script_keeps_the_characters_that_it_needs() -> None:
    joined = "می\u200cخواهم"
    assert repaired(joined, frozenset({"Arab"})) == (joined, [])
    marked = "ABC\u200f بود"
    assert repaired(marked, frozenset({"Arab"})) == (marked, [])
    for text in (joined, marked):
        assert repaired(text, frozenset()) == (text, []), "unknown"
    separated = "ᠬᠠᠷ\u180eᠠ"
    assert repaired(separated, frozenset({"Cyrl", "Mong"})) == (separated, [])


@given(st.text(st.sampled_from('ab &;<>/"#xÃ¶â€™Ð\u00a0\u200b\u00ad\u0301\x07\u2028') | st.characters(), max_size=40))
def test_a_second_repair_changes_nothing(text: str) -> None:
    once, _ = repaired(text, LATIN)
    assert repaired(once, LATIN) == (once, [])


def test_a_corpus_is_repaired_before_it_is_judged(tmp_path: Path) -> None:
    pairs = list(sentence_pairs("train"))[:400]
    sources, targets = (list(side) for side in zip(*pairs, strict=True))
    sources[10], targets[11] = (
        f"{sources[10]} &amp; more",
        targets[11].encode().decode("latin-1") + " cittÃ\xa0 è bella",
    )
    sources[20], targets[20] = f"\u200b{sources[30]}", targets[30]  # repaired, it is a duplicate
    write_project(tmp_path, list(zip(sources, targets, strict=True)))
    findings = json.loads(mt("data", "check", "a.yaml", "--json", cwd=tmp_path).stdout)["findings"]
    repairable = {each["name"]: each["repairable"] for each in findings if each["repairable"]}
    assert repairable["markup"] == repairable["zero-width"] == 1
    done = mt("data", "clean", "a.yaml", "--output", "clean", "--repair", cwd=tmp_path)
    assert "repaired: " in done.stdout
    kept = lines_in(tmp_path / "clean" / "train.en")
    assert f"{sources[10]}".replace("&amp;", "&") in kept
    assert kept.count(sources[30]) == 1
    header, row = (tmp_path / "clean" / "repaired" / "markup.tsv").read_text(encoding="utf-8").splitlines()
    assert header.split("\t")[2:] == ["source before", "target before", "source", "target"]
    assert row.split("\t") == ["a.en", "11", sources[10], targets[10], sources[10].replace("&amp;", "&"), targets[10]]
    again = mt(
        "data", "clean", "a.yaml", "--set", "data.train={source: clean/train.en, target: clean/train.it}",
        "--output", "again", "--repair", cwd=tmp_path,
    )  # fmt: skip
    assert "repaired" not in again.stdout


@pytest.mark.parametrize(("language", "repaired_pairs"), [("it", 3), ("kab", 0)])
def test_a_check_promises_the_repairs_that_cleaning_makes(tmp_path: Path, language: str, repaired_pairs: int) -> None:
    pairs = [(source, f"\u200b{target}") for source, target in list(sentence_pairs("train"))[:3]]
    train = write_pairs(tmp_path, "train", pairs)
    config = make_config(tmp_path, train, valid={"from_train": 1}, test=None, target_lang=language)
    [finding] = [each for each in check_corpus(config, tmp_path, 0).findings if each.rule.name == "zero-width"]
    assert (finding.counts["train"], finding.repairable) == (3, repaired_pairs)
    cleaned = clean_corpus(config.model_dump(mode="json"), tmp_path / "cleaned", repair=True, keep=["zero-width"])
    assert sum(cleaned.repaired.values()) == repaired_pairs
