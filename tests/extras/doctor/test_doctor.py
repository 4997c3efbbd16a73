"""Corpus checks: every planted fault is found at its line, and nothing in clean text."""

import gzip
import json
import lzma
import re
import tempfile
import unicodedata
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_helpers import make_config, write_lines, write_pairs
from mt.config import Config, PairFiles, load_config
from mt.data import duplicates, phrasebook
from mt.data.corpus import Pair
from mt.data.encode import encode_corpus, read_counts
from mt.data.prepare import prepare_text
from mt.data.sentence_format import Tags
from mt.data.tokenizer_kinds import TokenizerPair
from mt.errors import InputError
from mt.extras.doctor import block_checks, check
from mt.extras.doctor.actions import judge
from mt.extras.doctor.bitexts import bitexts_of
from mt.extras.doctor.characters import mojibake, suspicious_characters
from mt.extras.doctor.check import CorpusReport, Finding, check_corpus
from mt.extras.doctor.consistency import number_mismatch
from mt.extras.doctor.findings import Findings
from mt.extras.doctor.overlaps import add_repetitions
from mt.extras.doctor.rules import DROPPED_BY_CLEANING, DROPPED_BY_TRAINING, PAIR_RULES, TEXT_RULES, FindingRule
from mt.extras.doctor.scripts import foreign_letters, scripts_of
from mt.extras.doctor.statistics import collect_statistics
from mt.extras.doctor.text_report import text_report
from mt.text.lines import read_lines

Lines = dict[str, dict[str, set[int]]]
FILES = {"source": "a.en", "target": "a.it"}
GERMAN = ("She wants to know where the station is.", "Sie möchte gerne wissen, wo sich der Bahnhof hier befindet.")

# By rule: pairs that break it and no other, and share no sentence.
PLANTED: dict[str, list[Pair]] = {
    "empty": [("", "Il gatto nero."), ("The black cat.", ""), ("", "")],
    "ratio": [("The cat sleeps.", "Il gatto dorme " + "e la casa grande resta vuota " * 8 + "qui.")],
    "unusual-ratio": [("The cat sleeps.", "Il gatto dorme e la casa grande resta vuota ma nessuno lo sa davvero qui.")],
    "too-long": [("The cat sleeps. " * 99 + "Now.", "Il gatto dorme. " * 99 + "Ora.")],
    "duplicate": [("The boat is on the lake.", "La barca sta sul lago.")] * 3,
    "leak": [("The red apple lies on the old table.", "La mela rossa sta sul vecchio tavolo.")],
    "near-leak": [("the green apple lies on the old table!", "La mela verde sta  sul vecchio tavolo!")],
    "side-leak": [("The blue apple lies on the old table.", "Ecco una mela azzurra sul tavolo.")],
    "identical": [("Questa frase non fu mai tradotta.", "Questa frase non fu mai tradotta.")],
    "same-words": [("Roma Milano.", "Roma Milano.")],
    "wrong-script": [("The hat is here.", "Шляпа лежит здесь."), ("帽子在这里吗？", "Il cappello è qui?")],
    "language": [GERMAN],
    "replacement": [("The caf\ufffd is open.", "Il bar ha aperto.")],
    "mojibake": [
        ("That is fine.", "Ã¨ vero che va bene."),
        ("It\u00e2\u20ac\u2122s late now.", "Ora si fa tardi."),
        ("A word: Ð¿Ñ€Ð¸Ð²ÐµÑ‚.", "Una parola: ciao."),
    ],
    "nul": [("The dog\0 barks.", "Il cane abbaia.")],
    "control": [("The bird \x1b[31msings.", "Un uccello canta."), ("The fish swims.", "Un pesce\x90 nuota.")],
    "line-break": [
        ("The sun\u2028shines.", "Ora splende il sole."),
        ("Rain falls.", "Cade\x85la pioggia."),
        ("Snow falls.\u2029", "Cade la neve."),
        ("Wind\rblows.", "Soffia il vento."),
    ],
    "private-use": [("The icon \ue0b0 is small.", "Quella icona sembra piccola.")],
    "markup": [
        ("Salt &amp; pepper.", "Sale e pepe."),
        ("Bread and oil.", "Pane <b>e</b> olio."),
        ("Wine &#39;n&#39; water.", "Vino e acqua."),
    ],
    "mixed-script": [("The p\u0430per burns.", "La carta brucia."), ("A candle burns.", "Brucia una candel\u0391.")],
    "zero-width": [("The wall\u200b falls.", "Cade il muro."), ("The tower falls.", "Cade la\ufeff torre.")],
    "soft-hyphen": [("The win\u00addow falls.", "Cade la finestra.")],
    "bidi": [("The door\u200f falls.", "Cade la porta."), ("The roof falls.", "Cade il \u202etetto.")],
    "foreign-letters": [("The letter Ж is not ours.", "Quella lettera non fa parte di noi.")],
    "short": [("?", "!?"), ("X.", "Ics."), ("Three dots.", "...")],
    "numbers": [
        ("It costs 350 euros.", "Costa 530 euro."),
        ("There were 1,234 people.", "C'era tanta gente."),
        ("Room 17 is free.", "La stanza 71 si trova libera."),
    ],
    "punctuation": [("Do you sleep?", "Tu dormi."), ("Come here!", "Vieni qui"), ("I sing", "Canto.")],
    "many-targets": [("Many words are said.", f"Si dice {word}.") for word in ("molto", "tanto", "troppo", "assai")],
    "many-sources": [(f"One {word} says this.", "Uno dice questo.") for word in ("man", "boy", "girl", "child")],
    "near-duplicate": [
        (f"At the end of the long road there stands a {house}.", f"In fondo alla lunga strada si vede una {casa}.")
        for house, casa in (("house", "casa"), ("church", "chiesa"))
    ],
}
HELD_OUT = {
    "valid": [("The white apple lies on the old table.", "La mela bianca sta sul vecchio tavolo.")],
    "test": [
        ("The red apple lies on the old table.", "La mela rossa sta sul vecchio tavolo."),
        ("The green apple lies on the old table.", "La mela verde sta sul vecchio tavolo."),
        ("The blue apple lies on the old table.", "La mela blu sta sul vecchio tavolo."),
        ("The \u0175hite wolf.", "Il lupo bianco."),  # a letter that training does not have
        ("The yellow wolf.", "Il lupo\0 giallo."),
    ],
}


def clean_text() -> dict[str, list[Pair]]:
    """Return pairs of the phrasebook that share no sentence."""
    texts: dict[str, list[Pair]] = {}
    seen: set[str] = set()
    for split, size in {"train": 400, "valid": 30, "test": 30}.items():
        fresh = (pair for pair in phrasebook.sentence_pairs(split) if seen.isdisjoint(pair) and not seen.update(pair))
        texts[split] = list(islice(fresh, size))
    return texts


def corpus(folder: Path, texts: dict[str, list[Pair]], **data: Any) -> Config:
    sources = {split: write_pairs(folder, split, pairs) for split, pairs in texts.items()}
    return make_config(folder, tokenizer={"vocab_size": 2000}, **{**sources, **data})


def planted(folder: Path) -> tuple[Config, Lines]:
    """Write a corpus that breaks every rule; return its configuration and the lines."""
    texts = clean_text()
    expected: Lines = {"rare-characters": {"test": {34}}, "encoding": {"train": {2, 400}}}
    train, base = [], iter(texts["train"])
    for rule, pairs in PLANTED.items():
        for number, pair in enumerate(pairs):
            train += [*islice(base, 3), pair]
            if rule not in ("duplicate", "near-duplicate") or number:
                expected.setdefault(rule, {}).setdefault("train", set()).add(len(train))
    expected["nul"]["test"] = {35}
    texts["train"] = [*train, *base]
    for split, pairs in HELD_OUT.items():
        texts[split] += pairs
    config = corpus(folder, texts)
    path = folder / "train.it"
    lines = path.read_bytes().split(b"\n")
    lines[1], lines[399] = b"caff\xe8", b"\xff\xfe" + lines[399]
    path.write_bytes(b"\n".join(lines))
    return config, expected


def found(report: CorpusReport) -> Lines:
    """Return the lines of all examples; of a duplicate that of the later pair."""
    lines: Lines = {}
    for finding in report.findings:
        for example in finding.examples:
            shown = lines.setdefault(finding.rule.name, {}).setdefault(example.split, set())
            later = example.locations[2 * (finding.rule.name in ("duplicate", "near-duplicate")) :]
            shown.update(location.line for location in later)
    return lines


def found_in(config: Config, folder: Path) -> Lines:
    return found(check_corpus(config, folder / "runs", 1000))


def finding_of(report: CorpusReport, rule: str) -> Finding:
    [finding] = [finding for finding in report.findings if finding.rule.name == rule]
    return finding


def notes(report: CorpusReport, rule: str) -> list[str]:
    return [example.note for example in finding_of(report, rule).examples]


def check_findings(report: CorpusReport, expected: Lines) -> None:
    assert found(report) == expected
    for finding in report.findings:
        counts = {split: len(lines) for split, lines in expected[finding.rule.name].items()}
        assert {split: n for split, n in finding.counts.items() if n} == counts, finding.rule.name


def test_every_planted_fault_is_found_and_nothing_else(tmp_path: Path) -> None:
    config, expected = planted(tmp_path)
    report = check_corpus(config, tmp_path / "runs", 1000)
    larger = {"misaligned", "template", "low-score", "wrong-language", "swapped"}  # these need a larger text, or scores
    assert {*expected, *larger} == {rule.name for rule in PAIR_RULES}
    check_findings(report, expected)
    assert report.refused
    [latin1, _] = report.findings[0].examples
    assert (latin1.locations[0].text, latin1.note) == ("caff\ufffd", "not valid UTF-8 (byte 0xe8 at column 5)")
    assert report.pairs == {"train": 400 + sum(map(len, PLANTED.values())), "valid": 31, "test": 35}


def test_clean_text_has_no_findings(tmp_path: Path) -> None:
    report = check_corpus(corpus(tmp_path, clean_text()), tmp_path / "runs", 1000)
    assert report.findings == []
    assert not report.refused


def test_findings_do_not_depend_on_processes_chunks_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, expected = planted(tmp_path)
    monkeypatch.setattr(block_checks, "_SINGLE_PROCESS", 0)
    monkeypatch.setattr(check, "_CHUNK_PAIRS", 11)
    monkeypatch.setattr(duplicates, "_AT_ONCE", 50)
    check_findings(check_corpus(config, tmp_path / "runs", 1000), expected)


def test_the_language_of_every_line_is_judged(tmp_path: Path) -> None:
    texts = {**clean_text(), "valid": [GERMAN]}
    texts["train"] = [*texts["train"][:95], GERMAN, *texts["train"][95:]]
    finding = finding_of(check_corpus(corpus(tmp_path, texts), tmp_path, 1), "language")
    assert finding.counts == {"train": 1, "valid": 1, "test": 0}
    assert finding.checked["train"] == 401


def test_an_undetectable_language_is_logged(tmp_path: Path, notices: list[str]) -> None:
    write_lines(tmp_path / "t.tsv", ["en\txx", "one\tuno"])
    check_corpus(make_config(tmp_path, {"file": "t.tsv"}, target_lang="xx"), tmp_path, 0)
    logged = [notice for notice in notices if "is not checked" in notice]
    assert logged == ["the language of sentences in xx is not checked: py3langid does not know it"]


FAULTY = [("The cat.", "Il gatto."), ("The \u200bdog.", "Il cane."), ("Two\nlines.", "Due righe."), ("", "Niente.")]


def write_table(path: Path) -> None:
    """Write the pairs above as a table, after an empty row if the format has them."""
    if path.suffix == ".parquet":
        columns: dict[str, Any] = {name: [pair[side] for pair in FAULTY] for side, name in enumerate(("en", "it"))}
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
        return
    rows = [(en.replace("\n", " "), it) for en, it in FAULTY] if ".tsv" in path.name else FAULTY
    if ".jsonl" in path.name:
        lines = ["", *(json.dumps({"en": en, "it": it}) for en, it in rows)]
    else:
        quote, mark = ('"', ",") if ".csv" in path.name else ("", "\t")
        lines = [mark.join(["en", "it"]), "", *(mark.join(f"{quote}{cell}{quote}" for cell in row) for row in rows)]
    compress: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".xz": lzma.compress}
    content = "".join(line + "\n" for line in lines).encode()
    path.write_bytes(compress.get(path.suffix, bytes)(content))


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("t.tsv", {"zero-width": 4, "empty": 6}),
        ("t.tsv.gz", {"zero-width": 4, "empty": 6}),
        ("t.csv", {"zero-width": 4, "line-break": 5, "empty": 7}),
        ("t.jsonl.xz", {"zero-width": 3, "line-break": 4, "empty": 5}),
        ("t.parquet", {"zero-width": 2, "line-break": 3, "empty": 4}),
        ("hub", {"zero-width": 2, "line-break": 3, "empty": 4}),
    ],
)
def test_tables_and_hub_data_sets_are_checked_like_plain_files(
    tmp_path: Path, name: str, lines: dict[str, int]
) -> None:
    source, shown = {"file": name}, str(tmp_path / name)
    if name == "hub":
        (tmp_path / name).mkdir()
        rows = [json.dumps({"translation": {"en": en, "it": it}}) for en, it in FAULTY]
        write_lines(tmp_path / name / "train.jsonl", rows)
        source, shown = {"hub": shown}, f"{shown} (train)"
    else:
        write_table(tmp_path / name)
    report = check_corpus(make_config(tmp_path, source, test=None), tmp_path, 10)
    assert found(report) == {rule: {"train": {line}} for rule, line in lines.items()}
    assert report.findings[0].examples[0].locations[0].file == shown


def test_all_unreadable_rows_are_reported(tmp_path: Path) -> None:
    rows = ['{"en": "a", "it": "b"}', "{", '{"en": 7, "it": "b"}', '["x"]', '{"en": "c", "it": "d"}', '{"it": "d"}']
    write_lines(tmp_path / "t.jsonl", rows)
    (tmp_path / "t.tsv").write_bytes(b"en\tit\na\tb\tc\nd\te\nf\t\xffg\n\xff\th\ti\nj\tk\n")
    report = check_corpus(make_config(tmp_path, [{"file": "t.jsonl"}, {"file": "t.tsv"}]), tmp_path, 10)
    lines, finding = found(report), finding_of(report, "row")
    assert lines["row"] == {"train": {2, 3, 4, 6, 5}}  # 2 of each table
    assert lines["encoding"] == {"train": {4}}
    assert finding.counts == {"train": 6}
    reason = "not valid JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
    assert finding.examples[0].locations[0].text == reason


def test_a_header_that_is_not_utf_8_is_no_fault_of_the_first_pair(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_bytes(b"en\tit\tcaf\xe8\na\tb\tc\nd\te\xe9\tf\n")
    lines = found(check_corpus(make_config(tmp_path, {"file": "t.tsv"}), tmp_path, 10))
    assert (lines["row"], lines["encoding"]) == ({"train": {1}}, {"train": {3}})


def test_byte_order_marks_and_carriage_returns(tmp_path: Path) -> None:
    (tmp_path / "a.en").write_bytes(b"\xef\xbb\xbfone\ntwo\nthree\r\nfour\r\nfive\n")
    (tmp_path / "a.it").write_bytes(b"uno\r\ndue\r\ntre\r\nquattro\r\ncinque\r\n")
    report = check_corpus(make_config(tmp_path, FILES), tmp_path, 10)
    assert notes(report, "byte-order-mark") == [f"{tmp_path}/a.en"]
    assert notes(report, "crlf") == [
        f"{tmp_path}/a.en: 2 lines, the first is line 3",
        f"{tmp_path}/a.it: 5 lines, the first is line 1",
    ]
    assert {finding.rule.name for finding in report.findings} == {"byte-order-mark", "crlf"}


def test_an_empty_file_is_not_to_be_aligned(tmp_path: Path) -> None:
    for empty, other in (("a.it", "a.en"), ("a.en", "a.it")):
        write_lines(tmp_path / empty, [])
        write_lines(tmp_path / other, ["one", "two"])
        report = check_corpus(make_config(tmp_path, FILES, test=None), tmp_path, 10)
        message = f"{tmp_path}/{empty}: this text is empty, but {tmp_path}/{other} has 2 lines"
        assert notes(report, "unreadable") == [message]
        actions = judge(report).actions
        assert any(action.gain.startswith(message) for action in actions)
        assert not any("align" in action.command for action in actions)


@pytest.mark.parametrize("repair", [False, True])
def test_an_empty_text_of_a_folder_does_not_stop_the_check(tmp_path: Path, repair: bool) -> None:
    (tmp_path / "texts").mkdir()
    for name, lines in {"a.en": ["one"], "a.it": [], "b.en": ["two", "three"], "b.it": ["due", "tre"]}.items():
        write_lines(tmp_path / "texts" / name, lines)
    config = make_config(tmp_path, {"folder": "texts"}, test=None)
    report = check_corpus(config, tmp_path, 10, repair=repair)
    texts = tmp_path / "texts"
    assert notes(report, "unreadable") == [f"{texts}/a.it: this text is empty, but {texts}/a.en has 1 line"]
    assert report.pairs["train"] == 2
    assert not any("align" in action.command for action in judge(report).actions)


def test_files_of_different_length_and_utf_16(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.en", ["one", "two", "three"])
    write_lines(tmp_path / "a.it", ["uno", "due"])
    report = check_corpus(make_config(tmp_path, FILES, test=None), tmp_path, 10)
    [note] = notes(report, "line-counts")
    assert note.startswith(f"{tmp_path}/a.en has 3 lines but {tmp_path}/a.it has 2; they are out of step from line ")
    assert report.pairs["train"] == 2
    assert report.refused
    (tmp_path / "a.en").write_bytes("one\ntwo\n".encode("utf-16"))
    assert "encoding" in found_in(make_config(tmp_path, FILES), tmp_path)
    with pytest.raises(InputError, match="iconv -f utf-16") as caught:
        list(read_lines(tmp_path / "a.en"))
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("content", "note"),
    [
        (b"", "no pair that training would take"),
        (b"\n", "no pair that training would take"),
        (b"one\n", "perhaps no pair is left when those for validation and test are split off"),
        (b"one\none\ntwo\n", "perhaps no pair is left when those for validation and test are split off"),
    ],
)
def test_nothing_to_train_on(tmp_path: Path, content: bytes, note: str) -> None:
    for name in FILES.values():
        (tmp_path / name).write_bytes(content)
    config = make_config(tmp_path, FILES)
    assert notes(check_corpus(config, tmp_path, 10), "no-pairs") == [f"data.train: {note}"]
    with pytest.raises(InputError):
        prepare_text(config, tmp_path / "text", "key")


def test_a_missing_text_does_not_hide_the_others(tmp_path: Path) -> None:
    texts = clean_text()
    sources = [write_pairs(tmp_path, "train", texts["train"]), {"file": "none.tsv"}]
    (tmp_path / "empty.tsv").write_bytes(b"")
    valid = write_pairs(tmp_path, "valid", texts["valid"])
    report = check_corpus(make_config(tmp_path, sources, valid=valid, test={"file": "empty.tsv"}), tmp_path, 10)
    assert notes(report, "unreadable") == [f"{tmp_path}/none.tsv: no such file"]
    assert notes(report, "no-pairs") == ["data.test: no sentence pair in it"]
    assert report.pairs == {"train": 400, "valid": 30, "test": 0}


@pytest.mark.slow
def test_a_line_of_a_million_characters(tmp_path: Path) -> None:
    texts = clean_text()
    for text in ("x" * 10**6, "<a " * 333_333, "1 " * 500_000, "0" * 10**6, "ÃÐ" * 500_000, "12,345 " * 150_000):
        texts["train"].append((text, text[::-1]))
    report = check_corpus(corpus(tmp_path, texts), tmp_path, 10)
    assert found(report)["too-long"] == {"train": set(range(401, 407))}
    assert len(text_report(report)) < 50_000


def test_each_target_language_has_its_own_criteria(tmp_path: Path) -> None:
    texts = clean_text()["train"][:100]
    sentence = "Это предложение на русском языке, и в нём много слов"
    russian = [(en, f"{sentence}{'' if en[-1].isalpha() else en[-1]}") for en, _ in texts]
    few = [
        [("It is said.", f"{start} {word}.") for word in words]
        for start, words in (("Si dice", ("uno", "due")), ("Говорят о", ("первом", "втором")))
    ]
    sources = [
        {**write_pairs(tmp_path, "a", [*texts, *few[0]]), "target_lang": "it"},
        {**write_pairs(tmp_path, "b", [*russian, texts[0], *few[1]]), "target_lang": "ru"},
    ]
    lines = found_in(make_config(tmp_path, sources, target_lang=["it", "ru"], test=None), tmp_path)
    assert lines.pop("many-sources")
    assert lines == {"wrong-script": {"train": {101}}}


def test_counts_are_those_of_training(tmp_path: Path) -> None:
    texts = clean_text()
    for rule in ("empty", "ratio", "duplicate"):
        texts["train"] += [*PLANTED[rule], *PLANTED[rule]]
    config = corpus(tmp_path, texts)
    counted = {finding.rule.name: finding.counts["train"] for finding in check_corpus(config, tmp_path, 0).findings}
    prepare_text(config, tmp_path / "text", "key")
    counts = json.loads((tmp_path / "text" / "counts.json").read_bytes())["train"]
    names = {"empty": "empty", "ratio": "badly proportioned", "duplicate": "duplicate"}
    assert {rule: counted[rule] for rule in names} == {rule: counts[name] for rule, name in names.items()}
    assert counts["duplicate"] == 5


_sentences = st.sampled_from(
    [b"", b"one", b"two", b"three three three", b"four\xff", b"x" * 200, b" \r", b"\xef\xbb\xbf"]
)


@settings(max_examples=60)
@given(st.lists(st.tuples(_sentences, _sentences), max_size=4), st.lists(_sentences, max_size=2), st.booleans())
def test_errors_are_what_training_refuses(
    train: list[tuple[bytes, bytes]], more: list[bytes], with_valid: bool
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = {"train": [*train, *((None, target) for target in more)], "valid": train[:1]}
        for split, pairs in texts.items():
            for side, language in enumerate(("en", "it")):
                lines = (pair[side] for pair in pairs)
                (folder / f"{split}.{language}").write_bytes(
                    b"".join(b"%b\n" % line for line in lines if line is not None)
                )
        valid = {"valid": {"source": "valid.en", "target": "valid.it"}} if with_valid else {}
        config = make_config(folder, {"source": "train.en", "target": "train.it"}, test=None, **valid)
        try:
            prepare_text(config, folder / "text", "key")
            refused = False
        except InputError:
            refused = True
        report = check_corpus(config, folder, 1)
        assert report.refused >= refused
        # Which of two sentences is split off depends on a hash.
        perhaps = any("perhaps" in example.note for finding in report.findings for example in finding.examples)
        assert report.refused == refused or perhaps


@pytest.mark.parametrize(
    ("languages", "is_fault"),
    [(("en-GB", "en-US"), False), (("en", "en"), False), (("en", "it"), True), (("sr-Latn", "sr-Cyrl"), True)],
)
def test_equal_sides_are_a_fault_but_between_variants_of_a_language(
    tmp_path: Path, languages: tuple[str, str], is_fault: bool
) -> None:
    pairs = [("the cat sat on the mat and slept", "the cat sat on the mat and slept"), ("yes", "yes"), ("no", "not")]
    source = write_pairs(tmp_path, "train", pairs)
    config = make_config(tmp_path, source, source_lang=languages[0], target_lang=languages[1])
    assert bool({"identical", "same-words"} & found_in(config, tmp_path).keys()) == is_fault


def test_text_is_compared_in_normal_form_c(tmp_path: Path) -> None:
    def decomposed(pair: Pair) -> Pair:
        return unicodedata.normalize("NFD", pair[0]), unicodedata.normalize("NFD", pair[1])

    held = ("The café lies on the old square, où est-il.", "Il caffè è là, perché no.")
    twice = ("Déjà vu is what they call that feeling.", "Ciò che si chiama così è già visto.")
    texts = clean_text()
    texts["train"] += [decomposed(held), twice, decomposed(twice)]
    texts["valid"] += [held]
    first = len(texts["train"]) - 2
    expected = {"leak": {"train": {first}}, "duplicate": {"train": {first + 2}}}
    assert found_in(corpus(tmp_path, texts), tmp_path) == expected


def test_test_pairs_in_the_validation_text_are_leaks_and_everyday_phrases_none(tmp_path: Path) -> None:
    texts = clean_text()
    texts["valid"] += texts["test"][3:5]
    texts["test"] += texts["test"][:1]
    for pairs in texts.values():
        pairs += [("Yes.", "Sì."), ("Thank you.", "Grazie."), ("1 2 3 4 5 6 7 8 9 10.", "1 2 3 4 5 6 7 8 9 10.")]
    lines = found_in(corpus(tmp_path, texts), tmp_path)
    lines.pop("short", None)
    assert lines == {"leak": {"valid": {31, 32}}}


def test_a_held_out_pair_is_a_leak_in_the_opposite_direction_too(tmp_path: Path) -> None:
    held_out = ("The red apple lies on the old table.", "La mela rossa sta sul vecchio tavolo.")
    other = ("The green hat hangs on the new door.", "Il cappello verde pende dalla porta nuova.")
    texts = {"train": [other, held_out], "test": [held_out], "valid": [("One more sentence.", "Una frase in più.")]}
    sources = {split: {**write_pairs(tmp_path, split, pairs), "both_ways": True} for split, pairs in texts.items()}
    sources["test"] |= {"both_ways": False}
    both = {"source_lang": ["en", "it"], "target_lang": ["it", "en"]}
    for source in sources.values():
        source |= {"source_lang": "en", "target_lang": "it"}
    report = check_corpus(make_config(tmp_path, **sources, **both), tmp_path / "runs", 9)
    assert {split: n for split, n in finding_of(report, "leak").counts.items() if n} == {"train": 2}
    assert [place.file for e in finding_of(report, "leak").examples for place in e.locations] == [
        str(tmp_path / name) for name in ("train.en", "train.it", "train.it", "train.en")
    ]


def test_vowel_signs_are_compared(tmp_path: Path) -> None:
    boy, girl = "लड़का बगीचे में गेंद खेल रहा है।", "लड़की बगीचे में गेंद खेल रही है।"
    texts = {"train": [("La ragazza gioca a palla.", girl)], "valid": [("Il ragazzo gioca a palla in giardino.", boy)]}
    config = corpus(tmp_path, texts, source_lang="it", target_lang="hi", test=None)
    assert not {"near-leak", "side-leak"} & found_in(config, tmp_path).keys()


@pytest.mark.parametrize(("pairs", "limit"), [(0, 10), (10, 10), (11, 10), (99, 10), (1000, 7)])
def test_the_sample_is_even(tmp_path: Path, pairs: int, limit: int) -> None:
    source = write_pairs(tmp_path, "train", [(f"a {n}", f"b {n}") for n in range(pairs)])
    data = make_config(tmp_path, source, test=None).data
    statistics = collect_statistics(bitexts_of(data)[0], Findings(0), limit)
    lines = [line for line, _ in statistics.sample]
    assert min(pairs, (limit + 1) // 2) <= len(lines) <= limit
    assert len(set(np.diff(lines).tolist())) <= 1
    assert pairs - max(lines, default=0) <= 2 * pairs // limit + 1
    assert all(pair == (f"a {line - 1}", f"b {line - 1}") for line, pair in statistics.sample)
    assert statistics.pairs == pairs


@pytest.mark.parametrize(
    ("language", "text", "words"),
    [("ko", "고양이가 집에 있다.", 3), ("zh", "猫在家里。", 0), ("it", "Il gatto è a casa.", 5)],
)
def test_pieces_per_word_are_counted_where_words_have_spaces(
    tmp_path: Path, language: str, text: str, words: int
) -> None:
    pairs = [(f"The cat is at home {number} times.", f"{text} {number}") for number in range(40)]
    config = corpus(tmp_path, {"train": pairs}, valid={"from_train": 5}, target_lang=language)
    coverage = check_corpus(config, tmp_path / "runs", 0).coverage
    assert coverage
    usage = coverage.usages["target", language]
    assert usage.words == (usage.sentences * (words + 1) if words else 0)


def test_too_long_pairs_are_those_that_training_drops(two_languages: Path, tmp_path: Path) -> None:
    config = load_config(two_languages / "two.yaml", ["data.max_length=7", f"data.root={two_languages}"])
    tokenizers = TokenizerPair.load(two_languages / "runs" / "two" / "tokenizer", shared=True)
    finding = finding_of(check_corpus(config, two_languages / "runs", 0), "too-long")
    expected = 0
    for source in config.data.train:
        assert isinstance(source, PairFiles)
        tag = tokenizers.source.tags[config.data.languages_of(source)[1]]
        text = (two_languages / source.source, two_languages / source.target)
        encode_corpus(text, tokenizers, tmp_path / "out", "key", 7, [(400, Tags((tag,)))])
        expected += read_counts(tmp_path / "out" / "counts.json").too_long
    assert finding.counts["train"] == expected > 50


@pytest.mark.parametrize(
    ("language", "text", "rules"),
    [
        ("zh", "请参阅 Microsoft Azure Active Directory 文档。", []),
        ("zh-CN", "GNU General Public License（GNU通用公共许可证）是自由软件许可证。", []),
        ("ja", "Microsoft Visual Studio をインストールします", []),
        ("ko", "Visual Studio Code Enterprise 설치 방법 안내", []),
        ("ru", "См. https://docs.example.org/en/latest/installation.html", []),
        ("ru", "Выполните sudo apt-get install build-essential", []),
        ("zh", "请访问https://www.example.com/very/long/path/page.html。", []),
        ("ru", "Пример: an English sentence that isn't translated", ["wrong-script"]),
        ("iu-Cans", "ᐃᓄᒃᑎᑐᑦ CBC", []),
        ("zgh_Tfng", "ⵜⴰⵎⴰⵣⵉⵖⵜ", []),
        ("zh", "This sentence is English, and one word of Chinese (中文) does not change that.", ["wrong-script"]),
        ("fr", "ᐃᓄᒃᑎᑐᑦ", ["wrong-script"]),
    ],
)
def test_latin_names_do_not_make_another_script(language: str, text: str, rules: list[str]) -> None:
    assert [rule for rule, *_ in foreign_letters(text, scripts_of(language))] == rules


def test_scripts_of_unlisted_languages_are_detected_if_listed() -> None:
    assert scripts_of("iu", ["ᐃᓄᒃᑎᑐᑦ ᐅᖃᐅᓯᖅ", "CBC ᐃᓄᒃᑎᑐᑦ"]) == frozenset()
    assert scripts_of("qaa", ["Слово о полку", "и дело о другом", "ok"]) == {"Cyrl"}


@pytest.mark.parametrize("text", ["1200 Å³", "10 Å²", "2.5Å±0.1", "BLÅ®", "kalbų".encode().decode("cp1252")])
def test_angstrom_is_no_mojibake(text: str) -> None:
    assert [rule for rule, *_ in mojibake(text)] == ["mojibake"] * ("kalb" in text)


@pytest.mark.parametrize(
    ("src", "tgt", "note"),
    [
        ("at 3 pm", "alle 15", ""),
        ("in the 1990s", "negli anni '90", ""),
        ("7" * 5000, "23", f"{'7' * 20} and 23"),  # more digits than int() takes
    ],
)
def test_numbers_are_compared(src: str, tgt: str, note: str) -> None:
    assert number_mismatch(src, tgt, ("en", "it")) == note


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("ab\r" * 500_000 + "end", 500_000),
        ("ab\r" * 200_000 + "\r\n", 199_999),  # those at the end are no fault
        ("\U000e0061" * 200_000, 200_000),
        ("\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", 0),  # the flag of England
    ],
)
def test_unwanted_characters_are_found_in_linear_time(text: str, count: int) -> None:
    start = process_time()
    assert len(list(suspicious_characters(text, frozenset({"Latn"})))) == count
    assert process_time() - start < 20


def test_back_translations_that_could_be_held_out_are_an_error(tmp_path: Path) -> None:
    pairs = clean_text()["train"]
    source = write_pairs(tmp_path, "bt", [(f"<BT> {src}", tgt) for src, tgt in pairs[:100]])
    own = write_pairs(tmp_path, "own", pairs[100:])
    held = {"valid": {"from_train": 10}, "test": None, "drop_duplicates": False}
    report = check_corpus(make_config(tmp_path, [own, source], **held), tmp_path, 3)
    assert report.refused
    assert notes(report, "back-translated") == [f"{tmp_path / 'bt.en'}:1: data.train"]
    assert not check_corpus(make_config(tmp_path, [own, {**source, "synthetic": True}], **held), tmp_path, 3).refused


def test_a_single_back_translation_is_found_beside_the_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mt.extras.doctor.check.MAX_SAMPLE", 100)  # every other pair, so not the second
    (src, tgt), *others = clean_text()["train"][:150]
    source = write_pairs(tmp_path, "train", [others[0], (f"<BT> {src}", tgt), *others[1:]])
    held = {"valid": {"from_train": 10}, "test": None}
    report = check_corpus(make_config(tmp_path, source, **held), tmp_path, 3)
    assert notes(report, "back-translated") == [f"{tmp_path / 'train.en'}:2: data.train"]


@pytest.mark.parametrize("count", [39, 41], ids=["shrinks", "grows"])
def test_a_text_that_changes_while_it_is_checked_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    def change(*arguments: Any) -> Any:
        write_pairs(tmp_path, "train", clean_text()["train"][:count])
        return block_checks.check_blocks(*arguments)

    config = make_config(tmp_path, write_pairs(tmp_path, "train", clean_text()["train"][:40]), valid={"from_train": 1})
    monkeypatch.setattr(check, "check_blocks", change)
    with pytest.raises(InputError, match="the text changed while it was read"):
        check_corpus(config, tmp_path, 3)


def test_a_text_that_loses_an_example_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = clean_text()["train"][:40]

    def shrink(*arguments: Any) -> None:
        write_pairs(tmp_path, "train", pairs)
        add_repetitions(*arguments)

    config = make_config(tmp_path, write_pairs(tmp_path, "train", [*pairs, pairs[0]]), valid={"from_train": 1})
    monkeypatch.setattr(check, "add_repetitions", shrink)
    with pytest.raises(InputError, match="the text changed while it was read"):
        check_corpus(config, tmp_path, 3)


def test_the_documentation_lists_the_rules() -> None:
    page = (Path(__file__).parents[3] / "docs" / "data.md").read_text()
    listed = re.findall(r"^\| `([a-z-]+)` \| (\w+) \| ([a-z, ]*?) ?\|", page, re.MULTILINE)
    rules = sorted([*TEXT_RULES, *PAIR_RULES], key=lambda rule: listed.index((rule.name, rule.severity, _marks(rule))))
    assert [rule.name for rule in rules] == [name for name, *_ in listed]
    assert [rule for rule in rules if rule in PAIR_RULES] == list(PAIR_RULES), "a pair is counted for the first"


def _marks(rule: FindingRule) -> str:
    marks = {"yes": rule.name in {*DROPPED_BY_CLEANING, "row"}, "train": rule.name in DROPPED_BY_TRAINING}
    return ", ".join(mark for mark, applies in marks.items() if applies)
