"""`mt data check` and `mt data clean` as commands: what they print, write, refuse, and never do."""

import json
import random
import subprocess
import sys
import tempfile
from codecs import BOM_UTF8
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from command import mt
from data_helpers import lines_in, make_config, pairs_of, write_lines, write_pairs
from html_helpers import checked
from mt.data.corpus import Pair, one_line
from mt.errors import InputError
from mt.extras.doctor.check import check_corpus
from mt.extras.doctor.clean import dropping_rules, write_clean
from mt.extras.doctor.rules import DROPPABLE

FAULTY: list[Pair] = [
    ("one two three", "uno due tre"),
    ("", "quattro"),
    ("five &amp; six", "cinque e sei"),
    ("one two three", "uno due tre"),
    ("seven\u200b", "sette <script>alert(1)</script>"),
    ("eight\ufffd", "otto\tnove"),
    ("ten", "dieci"),
]
YAML = """\
name: mine
data:
  source_lang: en
  target_lang: it
  train: {source: train.en, target: train.it}
  valid: {source: valid.en, target: valid.it}
  test: null
tokenizer: {vocab_size: 300}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with `mine.yaml` and its corpus."""
    write_pairs(tmp_path, "train", FAULTY)
    write_pairs(tmp_path, "valid", [("eleven", "undici"), ("", "dodici")])
    (tmp_path / "mine.yaml").write_text(YAML)
    return tmp_path


def clean(project: Path, *words: str, code: int = 0) -> str:
    """What `mt data clean` says on stderr."""
    return mt("data", "clean", "mine.yaml", "--output", *words, cwd=project, code=code).stderr


def test_check_prints_tables_and_examples(project: Path) -> None:
    done = mt("data", "check", "mine.yaml", cwd=project)
    assert "train: train.en and train.it      7" in done.stdout
    rows = [line.split() for line in done.stdout.split("\n")]
    assert ["markup", "warning", "2", "28.57", "%", "0", "0"] in rows
    assert ["empty", "warning", "1", "14.29", "%", "1", "0"] in rows
    assert "\n  train.en:5: seven⟨U+200B⟩  [U+200B]\n" in done.stdout
    assert "\n  train.en:1: one two three\n    train.it:1: uno due tre\n    train.en:4: one two three\n" in done.stdout
    assert done.stdout.endswith("training would take this corpus\n")
    assert "\u200b" not in done.stdout
    assert "reading the corpus" in done.stderr
    assert not (project / "runs").exists()


def test_examples_are_as_many_as_wanted(project: Path) -> None:
    for wanted in (0, 1, 2):
        found = json.loads(mt("data", "check", "mine.yaml", "--json", "--examples", str(wanted), cwd=project).stdout)
        shown = {finding["name"]: len(finding["examples"]) for finding in found["findings"]}
        assert shown["markup"] == wanted
        assert shown["empty"] == min(wanted, 1) * 2, "of each text"


def test_json_has_all_of_it(project: Path) -> None:
    found = json.loads(mt("data", "check", "mine.yaml", "--json", cwd=project).stdout)
    assert found["pairs"] == {"train": 7, "valid": 2, "test": 0}
    assert found["refused"] is False
    [markup] = [finding for finding in found["findings"] if finding["name"] == "markup"]
    assert markup["counts"] == {"train": 2, "valid": 0, "test": 0}
    assert markup["seriousness"] == "warning"
    assert markup["examples"][1] == {
        "split": "train",
        "places": [{"file": "train.it", "line": 5, "text": "sette <script>alert(1)</script>"}],
        "note": "<script>",
    }
    assert [side["sentences"] for side in found["tokenizer"]["sides"]] == [7, 7]


def test_a_page_stands_alone_and_obeys_no_text(project: Path) -> None:
    mt("data", "check", "mine.yaml", "--html", "page.html", cwd=project)
    content = (project / "page.html").read_text()
    assert "<script>alert" not in content
    text = checked(content).text
    assert "sette <script>alert(1)</script>" in text
    assert "train.it:5" in text
    assert "Lengths of training sentences" in text


def test_exit_code_2_says_that_training_would_refuse(project: Path) -> None:
    write_lines(project / "valid.it", ["undici"])
    done = mt("data", "check", "mine.yaml", "--html", "page.html", cwd=project, code=2)
    assert "valid.en has 2 lines but valid.it has 1" in done.stdout
    assert done.stdout.endswith("training would refuse this corpus\n")
    assert (project / "page.html").exists()
    assert "valid.en has 2 lines but valid.it has 1" in mt("train", "--config", "mine.yaml", cwd=project, code=2).stderr
    assert json.loads(mt("data", "check", "mine.yaml", "--json", cwd=project, code=2).stdout)["refused"] is True
    assert "no such file" in mt("data", "check", "none.yaml", cwd=project, code=2).stderr


def test_the_tokenizer_of_a_run_is_used_where_there_is_one(trained: Path) -> None:
    done = mt("data", "check", "tiny.yaml", "--json", cwd=trained)
    found = json.loads(done.stdout)
    assert found["tokenizer"]["name"] == "of runs/tiny"
    assert "findings" in found
    other = json.loads(mt("data", "check", "tiny.yaml", "--json", "--runs", "elsewhere", cwd=trained).stdout)
    assert other["tokenizer"]["name"] == "trained on 300 pairs"
    counts = json.loads((trained / "runs" / "tiny" / "data" / "cleaning.json").read_text())
    named = {finding["name"]: finding["counts"]["train"] for finding in found["findings"]}
    assert named.get("duplicate", 0) == counts.get("duplicate", 0)


def test_clean_writes_what_stays_and_what_goes(project: Path) -> None:
    before = {path.name: path.read_bytes() for path in project.iterdir()}
    done = mt("data", "clean", "mine.yaml", "--output", "out/clean", cwd=project)
    kept = [FAULTY[place] for place in (0, 2, 4, 6)]
    assert list(zip(*(lines_in(project / "out/clean" / f"train.{lang}") for lang in ("en", "it")), strict=True)) == kept
    went = project / "out/clean/dropped"
    assert {path.name for path in went.iterdir()} == {"empty.tsv", "duplicate.tsv", "replacement.tsv"}
    header = "file\tline\tsource\ttarget"
    assert lines_in(went / "replacement.tsv") == [header, "train.en\t6\teight\ufffd\totto⟨U+0009⟩nove"]
    assert lines_in(went / "duplicate.tsv") == [header, "train.en\t4\tone two three\tuno due tre"]
    assert "kept                4  57.1 %" in done.stdout
    assert "    - {source: out/clean/train.en, target: out/clean/train.it}" in done.stdout
    assert {name: (project / name).read_bytes() for name in before} == before


def test_reasons_can_be_chosen(project: Path) -> None:
    words = ("--keep", "empty", "--keep", "replacement", "--drop", "markup", "--drop", "zero-width")
    clean(project, "out", *words)
    assert lines_in(project / "out" / "train.en") == ["one two three", "", "eight\ufffd", "ten"]
    dropped = {path.stem: len(lines_in(path)) - 1 for path in (project / "out" / "dropped").iterdir()}
    assert dropped == {"duplicate": 1, "markup": 2}, "a pair goes for the first of its reasons"
    refused = mt(
        "data", "clean", "mine.yaml", "--output", "x", "--keep", "empty", "--drop", "empty", cwd=project, code=2
    )
    assert "contradict" in refused.stderr
    assert (
        "nonsense"
        in mt("data", "clean", "mine.yaml", "--output", "x", "--keep", "nonsense", cwd=project, code=2).stderr
    )
    assert not (project / "x").exists()


def test_lines_that_are_not_utf8_can_only_go(project: Path) -> None:
    (project / "train.it").write_bytes((project / "train.it").read_bytes().replace(b"dieci", b"dieci\xe8"))
    clean(project, "out")
    assert lines_in(project / "out" / "train.en") == ["one two three", "five &amp; six", "seven\u200b"]
    assert "encoding" not in DROPPABLE
    assert mt("data", "check", "mine.yaml", cwd=project, code=2).stdout.startswith("text")


def test_no_folder_of_the_user_is_replaced(project: Path) -> None:
    (project / "precious").mkdir()
    (project / "precious" / "file").write_text("x")
    assert "is there already" in clean(project, "precious", code=2)
    assert "train.en: this is a file, not a folder" in clean(project, "train.en", code=2)
    assert "this folder is or holds the current directory" in clean(project, ".", code=2)
    config = make_config(project, {"source": "train.en", "target": "train.it"})
    with pytest.raises(InputError, match="is there already"):
        write_clean(check_corpus(config, project, 0), project / "precious", dropping_rules((), ()))
    assert (project / "precious" / "file").read_text() == "x"
    for keep in ((), ("--keep", "empty")):
        clean(project, "again", *keep)
    assert len(lines_in(project / "again" / "train.en")) == 5


def test_what_the_user_put_beside_cleaned_text_is_not_lost(project: Path) -> None:
    clean(project, "out")
    (project / "out" / "notes.txt").write_text("x")
    assert "notes.txt would be lost" in clean(project, "out", code=2)
    assert (project / "out" / "notes.txt").read_text() == "x"


def test_a_cleaning_is_not_replaced_while_it_is_the_input(project: Path) -> None:
    clean(project, "out")
    (project / "mine.yaml").write_text(YAML.replace("train.en", "out/train.en").replace("train.it", "out/train.it"))
    before = (project / "out" / "train.en").read_bytes()
    assert "out: this folder is or holds the input out/train.en" in clean(project, "out", code=2)
    assert (project / "out" / "train.en").read_bytes() == before


@pytest.mark.parametrize("name", ["mine.yaml", "train.en", "link"])
def test_the_page_is_not_written_over_an_input(project: Path, name: str) -> None:
    (project / "link").symlink_to("valid.it")
    before = (project / name).read_bytes()
    assert "this is an input" in mt("data", "check", "mine.yaml", "--html", name, cwd=project, code=2).stderr
    assert (project / name).read_bytes() == before


def test_an_output_that_cannot_be_written_is_refused_before_the_reading(project: Path) -> None:
    said = clean(project, "train.en/out", code=2)
    assert "train.en is a file, not a folder" in said
    assert "reading the corpus" not in said


def test_rows_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    write_lines(tmp_path / "t.tsv", ["en\tit", "one two\tuno due", "a\tb\tc", "three four\ttre quattro"])
    (tmp_path / "mine.yaml").write_text(YAML.replace("{source: train.en, target: train.it}", "{file: t.tsv}"))
    write_pairs(tmp_path, "valid", [("eleven", "undici")])
    done = mt("data", "clean", "mine.yaml", "--output", "out", cwd=tmp_path)
    assert ["row", "1", "33.3", "%"] in [line.split() for line in done.stdout.split("\n")]
    assert "1 rows cannot be read and were dropped" in done.stderr


def test_repeats_that_a_configuration_keeps_stay(project: Path) -> None:
    keep = ("--set", "data.drop_duplicates=false")
    done = mt("data", "check", "mine.yaml", *keep, cwd=project)
    [said] = [line for line in done.stdout.split("\n") if line.startswith("duplicate (")]
    assert "leaves such training pairs out" not in said
    clean(project, "out", *keep)
    assert lines_in(project / "out" / "train.en").count("one two three") == 2
    clean(project, "out", *keep, "--drop", "duplicate")
    assert lines_in(project / "out" / "train.en").count("one two three") == 1


def test_the_second_of_equal_pairs_stays_where_the_first_goes(tmp_path: Path) -> None:
    write_pairs(tmp_path, "train", [("\u2028one two", "uno due"), ("one two", "uno due"), ("five six", "cinque sei")])
    write_pairs(tmp_path, "valid", [("eleven", "undici")])
    (tmp_path / "mine.yaml").write_text(YAML)
    clean(tmp_path, "out", "--drop", "line-break")
    assert lines_in(tmp_path / "out" / "train.en") == ["one two", "five six"]
    clean(tmp_path, "out")
    assert lines_in(tmp_path / "out" / "train.en") == ["one two", "five six"], "here it is the first"


def test_nothing_of_a_text_commands_the_terminal(tmp_path: Path) -> None:
    write_pairs(tmp_path, "train", [("a <b \x1b]0;pwned\x07\x1b[31m> c", "d e"), ("f", "g")])
    write_lines(tmp_path / "t.jsonl", ['["\x9b2J"]', '{"\\u001b[31mRED": 1}'])
    sources = "[{source: train.en, target: train.it}, {file: t.jsonl}]"
    (tmp_path / "mine.yaml").write_text(YAML.replace("{source: train.en, target: train.it}", sources))
    write_pairs(tmp_path, "valid", [("eleven", "undici")])
    done = mt("data", "check", "mine.yaml", cwd=tmp_path, code=2)
    assert "⟨U+001B⟩" in done.stdout
    assert "⟨U+009B⟩" in done.stdout
    assert not {"\x1b", "\x9b", "\x07"} & set(done.stdout + done.stderr)


def test_paths_and_links_in_what_to_use_it_with(tmp_path: Path) -> None:
    far = tmp_path / "far" / "my: data"
    far.mkdir(parents=True)
    write_pairs(far, "train", FAULTY)
    write_pairs(far, "valid", [("eleven", "undici")])
    (tmp_path / "my: data").symlink_to(far)
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    (tmp_path / "mine.yaml").write_text(YAML.replace("  train:", '  root: "my: data"\n  train:'))
    for _ in range(2):  # the second replaces what the first has written, in the folder that the link leads to
        done = mt("data", "clean", "mine.yaml", "--output", "out", cwd=tmp_path)
    assert (tmp_path / "out").is_symlink()
    data = yaml.safe_load(done.stdout.split("use it with\n")[1])["data"]
    assert data["root"] == "my: data"
    assert (tmp_path / data["root"] / data["train"][0]["source"]).is_file()


def test_a_reader_that_has_seen_enough_does_not_hide_the_verdict(project: Path) -> None:
    write_lines(project / "valid.it", ["undici"])
    check = subprocess.Popen(
        [sys.executable, "-m", "mt", "data", "check", "mine.yaml"],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert check.stdout is not None
    check.stdout.close()
    assert check.wait(60) == 2


def test_what_cannot_be_cleaned_is_refused(project: Path) -> None:
    write_lines(project / "valid.it", ["undici"])
    clean(project, "out")
    write_lines(project / "train.it", ["uno"])
    assert "has 7 lines but train.it has 1" in clean(project, "x", code=2)
    write_lines(project / "train.en", [""])
    assert "no pair would be left" in clean(project, "x", code=2)
    assert not (project / "x").exists()


def test_each_source_becomes_two_files_of_its_own(tmp_path: Path) -> None:
    sources = [
        {**write_pairs(tmp_path, "a", FAULTY), "target_lang": "it", "weight": 2.0, "synthetic": True},
        {"file": "t.tsv", "target_column": "de", "target_lang": "de"},
    ]
    write_lines(tmp_path / "t.tsv", ["en\tde", "one two three\tuno due tre", "", "x\t", "ten\tzehn"])
    config = make_config(tmp_path, sources, target_lang=["it", "de"])
    cleaned = write_clean(check_corpus(config, tmp_path, 0), tmp_path / "out", dropping_rules((), ()))
    assert pairs_of(tmp_path, cleaned.sources, target_lang=["it", "de"]) == [
        *(FAULTY[place] for place in (0, 2, 4, 6)),
        ("one two three", "uno due tre"),
        ("ten", "zehn"),
    ]
    assert [source.get("weight") for source in cleaned.sources] == [2.0, None]
    assert [source.get("synthetic") for source in cleaned.sources] == [True, None]
    assert [Path(source["target"]).name for source in cleaned.sources] == ["train-1.it", "train-2.de"]


def test_a_corpus_that_changes_meanwhile_is_refused(project: Path) -> None:
    config = make_config(project, {"source": "train.en", "target": "train.it"})
    report = check_corpus(config, project, 0)
    for pairs in (FAULTY[:-1], [*FAULTY, ("a", "b")]):
        write_pairs(project, "train", pairs)
        with pytest.raises(InputError, match="changed while"):
            write_clean(report, project / "out", dropping_rules((), ()))
        assert not (project / "out").exists()


_texts = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["", "\r", "same", "uno due tre", "a\u2028b", "\ufeffx", "\0", "é" * 50, "привет мир", "&amp;"]
)
_lines = st.binary(max_size=6).map(lambda raw: raw.replace(b"\n", b"")) | _texts.map(str.encode)


@settings(max_examples=40)
@given(st.lists(st.tuples(_lines, _lines), max_size=30), st.sets(st.sampled_from(DROPPABLE)), st.integers(0, 2**32))
def test_clean_never_shifts_pairs(pairs: list[tuple[bytes, bytes]], drop: set[str], seed: int) -> None:
    pairs = [*pairs, (b"a pair that stays", b"una coppia che resta"), *random.Random(seed).sample(pairs, len(pairs))]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for side, language in enumerate(("en", "it")):
            (folder / f"train.{language}").write_bytes(b"".join(pair[side] + b"\n" for pair in pairs))
        config = make_config(folder, {"source": "train.en", "target": "train.it"}, test=None)
        drop -= {"punctuation", "rare-characters", "numbers"}
        write_clean(check_corpus(config, folder, 0), folder / "out", dropping_rules((), drop))
        gone = [
            int(row.split("\t")[1]) for path in (folder / "out" / "dropped").iterdir() for row in lines_in(path)[1:]
        ]
        assert len(gone) == len(set(gone))
        pairs[0] = (pairs[0][0].removeprefix(BOM_UTF8), pairs[0][1].removeprefix(BOM_UTF8))
        stays = [pair for line, pair in enumerate(pairs, 1) if line not in gone]
        read = [(one_line(src.decode()), one_line(tgt.decode())) for src, tgt in stays]
        written = zip(*(lines_in(folder / "out" / f"train.{language}") for language in ("en", "it")), strict=True)
        assert list(written) == read
