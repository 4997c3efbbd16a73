"""The commands `mt data check` and `mt data clean`."""

import json
import random
import re
import subprocess
import sys
import tempfile
from codecs import BOM_UTF8
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from command import mt
from data_helpers import YAML, lines_in, make_config, pairs_in, pairs_of, write_lines, write_pairs
from html_helpers import checked
from mt.data.corpus import Pair, one_line
from mt.errors import InputError
from mt.extras.doctor.check import check_corpus
from mt.extras.doctor.clean import check_output, dropping_rules, training_digests, write_clean
from mt.extras.doctor.rules import DROPPABLE
from mt.storage import atomic

FAULTY: list[Pair] = [
    ("one two three", "uno due tre"),
    ("", "quattro"),
    ("five &amp; six", "cinque e sei"),
    ("one two three", "uno due tre"),
    ("seven\u200b", "sette <script>alert(1)</script>"),
    ("eight\ufffd", "otto\tnove"),
    ("ten", "dieci"),
]
FILES = "{source: train.en, target: train.it}"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a folder with `mine.yaml` and its corpus."""
    write_pairs(tmp_path, "train", FAULTY)
    return set_up(tmp_path, [("eleven", "undici"), ("", "dodici")])


def set_up(folder: Path, valid: Sequence[Pair] = (("eleven", "undici"),), train: str = FILES) -> Path:
    write_pairs(folder, "valid", valid)
    (folder / "mine.yaml").write_text(YAML.replace(FILES, train))
    return folder


def check(project: Path, *words: str, code: int = 0) -> str:
    """Return the output of `mt data check`."""
    return mt("data", "check", "mine.yaml", *words, cwd=project, code=code).stdout


def clean(project: Path, *words: str, code: int = 0) -> str:
    """Return the messages of `mt data clean`."""
    return mt("data", "clean", "mine.yaml", "--output", *words, cwd=project, code=code).stderr


def english(folder: Path) -> list[str]:
    return lines_in(folder / "train.en")


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


@pytest.mark.parametrize("limit", [0, 2])
def test_the_number_of_examples_is_an_option(project: Path, limit: int) -> None:
    findings = json.loads(check(project, "--json", "--examples", str(limit)))["findings"]
    shown = {finding["name"]: len(finding["examples"]) for finding in findings}
    assert shown["markup"] == limit
    assert shown["empty"] == min(limit, 1) * 2, "of each split"


def test_json_and_html_reports(project: Path) -> None:
    report = json.loads(check(project, "--json", "--html", "page.html"))
    assert report["pairs"] == {"train": 7, "valid": 2, "test": 0}
    assert report["refused"] is False
    [markup] = [finding for finding in report["findings"] if finding["name"] == "markup"]
    assert markup["counts"] == {"train": 2, "valid": 0, "test": 0}
    assert markup["seriousness"] == "warning"
    assert markup["examples"][1] == {
        "split": "train",
        "places": [{"file": "train.it", "line": 5, "text": "sette <script>alert(1)</script>"}],
        "note": "<script>",
    }
    assert [side["sentences"] for side in report["tokenizer"]["sides"]] == [7, 7]
    content = (project / "page.html").read_text()
    assert "<script>alert" not in content
    text = checked(content).text
    for part in ("sette <script>alert(1)</script>", "train.it:5", "Lengths of training sentences"):
        assert part in text
    assert '<span class="badge warning">warning</span>' in content, "colour is not the only sign of severity"
    assert '<details id="markup" class="finding warning"><summary>' in content, "folded"
    assert not re.search("<pre|`|monospace", content.split("<script>")[0])


def test_exit_code_2_means_that_training_would_refuse(project: Path) -> None:
    write_lines(project / "valid.it", ["undici"])
    output = check(project, "--html", "page.html", code=2)
    assert "valid.en has 2 lines but valid.it has 1" in output
    assert output.endswith("training would refuse this corpus\n")
    assert (project / "page.html").exists()
    assert "valid.en has 2 lines but valid.it has 1" in mt("train", "--config", "mine.yaml", cwd=project, code=2).stderr
    report = json.loads(check(project, "--json", "--examples", "0", code=2))
    assert report["refused"] is True
    assert any(action["command"].startswith("mt data align valid.en valid.it") for action in report["actions"])
    assert "no such file" in mt("data", "check", "none.yaml", cwd=project, code=2).stderr


@pytest.mark.slow
def test_the_tokenizer_of_a_run_is_used(trained: Path) -> None:
    reports = [
        json.loads(mt("data", "check", "tiny.yaml", "--json", *words, cwd=trained).stdout)
        for words in ((), ("--runs", "elsewhere"))
    ]
    assert [report["tokenizer"]["name"] for report in reports] == ["of runs/tiny", "trained on 300 pairs"]
    counts = json.loads((trained / "runs" / "tiny" / "data" / "cleaning.json").read_text())
    named = {finding["name"]: finding["counts"]["train"] for finding in reports[0]["findings"]}
    assert named.get("duplicate", 0) == counts.get("duplicate", 0)


def test_clean_writes_kept_and_dropped_pairs(project: Path) -> None:
    before = {path.name: path.read_bytes() for path in project.iterdir()}
    output = mt("data", "clean", "mine.yaml", "--output", "out/clean", cwd=project).stdout
    kept = [FAULTY[index] for index in (0, 2, 4, 6)]
    assert pairs_in(project / "out/clean") == kept
    dropped = project / "out/clean/dropped"
    assert {path.name for path in dropped.iterdir()} == {"empty.tsv", "duplicate.tsv", "replacement.tsv"}
    header = "file\tline\tsource\ttarget"
    assert lines_in(dropped / "replacement.tsv") == [header, "train.en\t6\teight\ufffd\totto⟨U+0009⟩nove"]
    assert lines_in(dropped / "duplicate.tsv") == [header, "train.en\t4\tone two three\tuno due tre"]
    assert "kept                4  57.1 %" in output
    assert "    - {source: out/clean/train.en, target: out/clean/train.it}" in output
    assert {name: (project / name).read_bytes() for name in before} == before


def test_rules_can_be_chosen(project: Path) -> None:
    clean(project, "out", "--keep", "empty", "--keep", "replacement", "--drop", "markup", "--drop", "zero-width")
    assert english(project / "out") == ["one two three", "", "eight\ufffd", "ten"]
    dropped = {path.stem: len(lines_in(path)) - 1 for path in (project / "out" / "dropped").iterdir()}
    assert dropped == {"duplicate": 1, "markup": 2}, "a pair is counted for the first rule"
    assert "contradict" in clean(project, "x", "--keep", "empty", "--drop", "empty", code=2)
    assert "nonsense" in clean(project, "x", "--keep", "nonsense", code=2)
    assert not (project / "x").exists()


def test_lines_that_are_not_utf8_are_always_dropped(project: Path) -> None:
    (project / "train.it").write_bytes((project / "train.it").read_bytes().replace(b"dieci", b"dieci\xe8"))
    clean(project, "out")
    assert english(project / "out") == ["one two three", "five &amp; six", "seven\u200b"]
    assert "encoding" not in DROPPABLE
    assert check(project, code=2).startswith("training would refuse this corpus: lines that are not UTF-8")


def test_a_folder_with_notes_of_a_file_manager_only_is_empty(project: Path) -> None:
    (project / "out").mkdir()
    (project / "out" / ".DS_Store").write_text("x")
    clean(project, "out")
    assert english(project / "out")


def test_files_of_the_user_are_not_replaced(project: Path) -> None:
    (project / "precious").mkdir()
    (project / "precious" / "file").write_text("x")
    assert "this folder exists" in clean(project, "precious", code=2)
    assert "train.en: this is a file, not a folder" in clean(project, "train.en", code=2)
    messages = clean(project, "train.en/out", code=2)
    assert "train.en is a file, not a folder" in messages
    assert "reading the corpus" not in messages
    assert "this folder is or holds the current directory" in clean(project, ".", code=2)
    config = make_config(project, {"source": "train.en", "target": "train.it"})
    with pytest.raises(InputError, match="this folder exists"):
        write_clean(
            check_corpus(config, project, 0),
            project / "precious",
            dropping_rules((), ()),
            training_digests(config.data),
        )
    assert (project / "precious" / "file").read_text() == "x"
    for keep in ((), ("--keep", "empty")):
        clean(project, "again", *keep)
    assert len(english(project / "again")) == 5
    (project / "again" / "notes.txt").write_text("x")
    assert "notes.txt would be lost" in clean(project, "again", code=2)
    assert (project / "again" / "notes.txt").read_text() == "x"
    (project / "again" / "notes.txt").unlink()
    lines = english(project / "again")
    for edited in ([*lines[:-1], "10"], [lines[0].replace("one", "ONE"), *lines[1:]]):
        write_lines(project / "again" / "train.en", edited)
        assert "train.en was changed since `mt data clean` wrote it" in clean(project, "again", code=2)
        assert english(project / "again") == edited
    (project / "again" / "train.en").unlink()
    clean(project, "again", "--keep", "empty")
    assert english(project / "again") == lines


def test_a_cleaning_within_a_folder_of_texts_is_refused(project: Path) -> None:
    (project / "corpus").mkdir()
    write_pairs(project / "corpus", "train", FAULTY)
    set_up(project, train="{folder: corpus}")
    assert "corpus/in/it: in corpus, whose texts are all read" in clean(project, "corpus/in/it", code=2)
    assert not (project / "corpus" / "in").exists()
    set_up(project, train="{folder: corpus, stem: train}")
    clean(project, "corpus/cleaned")


@pytest.mark.parametrize(
    "source", ["root: ., train: {source: out/train.en, target: out/train.it}", "root: out, train: {folder: .}"]
)
def test_a_cleaning_is_not_replaced_while_it_is_the_input(project: Path, source: str) -> None:
    clean(project, "out")
    (project / "mine.yaml").write_text(
        f"name: mine\ndata: {{source_lang: en, target_lang: it, {source}, valid: {{from_train: 1}}, test: null}}\n"
    )
    before = (project / "out" / "train.en").read_bytes()
    assert "out: this folder is or holds the input out/train.en" in clean(project, "out", code=2)
    assert (project / "out" / "train.en").read_bytes() == before


def test_the_name_of_a_corpus_is_no_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with atomic.new_folder(Path("Books"), made_by="mt data clean") as cleaned:
        write_lines(cleaned / "train.en", ["one"])
    check_output(Path("Books"), make_config(tmp_path, {"opus": "Books"}).data)


@pytest.mark.parametrize("name", ["mine.yaml", "train.en", "link", "texts/a.en"])
def test_the_html_page_is_not_written_over_an_input(project: Path, name: str) -> None:
    (project / "link").symlink_to("valid.it")
    (project / "texts").mkdir()
    write_pairs(project / "texts", "a", FAULTY)
    (project / "mine.yaml").write_text(YAML.replace("test: null", "test: {folder: texts}"))
    before = (project / name).read_bytes()
    assert "this is an input" in mt("data", "check", "mine.yaml", "--html", name, cwd=project, code=2).stderr
    assert (project / name).read_bytes() == before


def test_unreadable_rows_are_counted(tmp_path: Path) -> None:
    write_lines(tmp_path / "t.tsv", ["en\tit", "one two\tuno due", "a\tb\tc", "three four\ttre quattro"])
    set_up(tmp_path, train="{file: t.tsv}")
    done = mt("data", "clean", "mine.yaml", "--output", "out", cwd=tmp_path)
    assert ["row", "1", "33.3", "%"] in [line.split() for line in done.stdout.split("\n")]
    assert "unreadable rows dropped: 1;" in done.stderr


@pytest.mark.slow
def test_duplicates_that_a_configuration_keeps_stay(project: Path) -> None:
    keep = ("--set", "data.drop_duplicates=false")
    [line] = [line for line in check(project, *keep).split("\n") if line.startswith("duplicate (")]
    assert "`mt train` drops" not in line
    for words, count in (((), 2), (("--drop", "duplicate"), 1)):
        clean(project, "out", *keep, *words)
        assert english(project / "out").count("one two three") == count


@pytest.mark.parametrize("words", [("--drop", "line-break"), ()])
def test_one_of_two_equal_pairs_stays(tmp_path: Path, words: tuple[str, ...]) -> None:
    """The second if a rule drops the first, else the first."""
    write_pairs(tmp_path, "train", [("\u2028one two", "uno due"), ("one two", "uno due"), ("five six", "cinque sei")])
    clean(set_up(tmp_path), "out", *words)
    assert english(tmp_path / "out") == ["one two", "five six"]


def test_no_text_controls_the_terminal(tmp_path: Path) -> None:
    write_pairs(tmp_path, "train", [("a <b \x1b]0;pwned\x07\x1b[31m> c", "d e"), ("f", "g")])
    write_lines(tmp_path / "t.jsonl", ['["\x9b2J"]', '{"\\u001b[31mRED": 1}'])
    set_up(tmp_path, train=f"[{FILES}, {{file: t.jsonl}}]")
    done = mt("data", "check", "mine.yaml", cwd=tmp_path, code=2)
    assert "⟨U+001B⟩" in done.stdout
    assert "⟨U+009B⟩" in done.stdout
    assert not {"\x1b", "\x9b", "\x07"} & set(done.stdout + done.stderr)


def test_the_snippet_has_usable_paths(tmp_path: Path) -> None:
    far = tmp_path / "far" / "my: data"
    far.mkdir(parents=True)
    write_pairs(far, "train", FAULTY)
    set_up(far)
    (tmp_path / "my: data").symlink_to(far)
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    (tmp_path / "mine.yaml").write_text(YAML.replace("  train:", '  root: "my: data"\n  train:'))
    for _ in range(2):  # the second replaces the first, in the folder that the link leads to
        output = mt("data", "clean", "mine.yaml", "--output", "out", cwd=tmp_path).stdout
    assert (tmp_path / "out").is_symlink()
    data = yaml.safe_load(output.split("use it with\n")[1])["data"]
    assert data["root"] == "my: data"
    assert (tmp_path / data["root"] / data["train"][0]["source"]).is_file()


def test_a_closed_pipe_does_not_change_the_exit_code(project: Path) -> None:
    write_lines(project / "valid.it", ["undici"])
    command = [sys.executable, "-m", "mt", "data", "check", "mine.yaml"]
    process = subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(60) == 2


def test_the_next_command_has_the_same_overrides(project: Path) -> None:
    override = "data.test={source: valid.en, target: valid.it}"
    assert f"mt train --config mine.yaml --set '{override}'" in clean(project, "out", "--set", override)


def test_text_that_cannot_be_cleaned_is_refused(project: Path) -> None:
    write_lines(project / "valid.it", ["undici"])
    clean(project, "out")
    write_lines(project / "train.it", ["uno"])
    assert "has 7 lines but train.it has 1" in clean(project, "x", code=2)
    write_lines(project / "train.en", [""])
    assert "no pair would be left" in clean(project, "x", code=2)
    assert not (project / "x").exists()


def test_each_source_is_cleaned_into_files_of_its_own(tmp_path: Path) -> None:
    sources = [
        {**write_pairs(tmp_path, "a", FAULTY), "target_lang": "it", "weight": 2.0, "synthetic": True},
        {"file": "t.tsv", "target_column": "de", "target_lang": "de"},
    ]
    write_lines(tmp_path / "t.tsv", ["en\tde", "one two three\tuno due tre", "", "x\t", "ten\tzehn"])
    config = make_config(tmp_path, sources, target_lang=["it", "de"])
    cleaned = write_clean(
        check_corpus(config, tmp_path, 0), tmp_path / "out", dropping_rules((), ()), training_digests(config.data)
    )
    assert pairs_of(tmp_path, cleaned.sources, target_lang=["it", "de"]) == [
        *(FAULTY[index] for index in (0, 2, 4, 6)),
        ("one two three", "uno due tre"),
        ("ten", "zehn"),
    ]
    assert [source.get("weight") for source in cleaned.sources] == [2.0, None]
    assert [source.get("synthetic") for source in cleaned.sources] == [True, None]
    assert [Path(source["target"]).name for source in cleaned.sources] == ["train-1.it", "train-2.de"]


def test_each_text_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    for name in ("a", "b"):
        write_pairs(tmp_path / "texts", name, [*FAULTY[:3], (f"ten {name}\u200b", "dieci")])
    set_up(tmp_path, train="{folder: texts}")
    output = check(tmp_path)
    assert "texts/b.en:4: ten b⟨U+200B⟩" in output
    assert re.search(r"texts/a\.en:1: one two three\n.*\n *texts/b\.en:1: one two three", output)
    clean(tmp_path, "out", "--repair")
    assert "texts/b.en\t2\t\tquattro" in lines_in(tmp_path / "out" / "dropped" / "empty.tsv")
    assert "texts/b.en\t4" in "".join(lines_in(tmp_path / "out" / "repaired" / "invisible.tsv"))


def test_an_empty_text_is_not_repaired(tmp_path: Path) -> None:
    write_pairs(set_up(tmp_path), "train", FAULTY)
    write_lines(tmp_path / "train.it", [])
    assert "train.it: this text is empty, but " in clean(tmp_path, "out", "--repair", code=2)
    assert not (tmp_path / "out").exists()


def test_a_corpus_that_changes_meanwhile_is_refused(project: Path) -> None:
    config = make_config(project, {"source": "train.en", "target": "train.it"})
    digests, report = training_digests(config.data), check_corpus(config, project, 0)
    for pairs in (FAULTY[:-1], [*FAULTY, ("a", "b")], FAULTY[::-1]):
        write_pairs(project, "train", pairs)
        with pytest.raises(InputError, match="changed while"):
            write_clean(report, project / "out", dropping_rules((), ()), digests)
        assert not (project / "out").exists()


def test_an_edit_of_the_output_meanwhile_is_kept(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def edit(action: str, path: Path) -> None:
        if path.parent.name == ".out.partial":
            write_lines(project / "out" / "train.en", ["mine"])

    config = make_config(project, {"source": "train.en", "target": "train.it"})
    report = check_corpus(config, project, 0)
    write_clean(report, project / "out", dropping_rules((), ()), training_digests(config.data))
    monkeypatch.setattr(atomic, "failpoint", edit)
    with pytest.raises(InputError, match=r"train\.en was changed since"):
        write_clean(report, project / "out", dropping_rules((), ()), training_digests(config.data))
    assert english(project / "out") == ["mine"]


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
        write_clean(
            check_corpus(config, folder, 0), folder / "out", dropping_rules((), drop), training_digests(config.data)
        )
        gone = [
            int(row.split("\t")[1]) for path in (folder / "out" / "dropped").iterdir() for row in lines_in(path)[1:]
        ]
        assert len(gone) == len(set(gone))
        pairs[0] = (pairs[0][0].removeprefix(BOM_UTF8), pairs[0][1].removeprefix(BOM_UTF8))
        stays = [pair for line, pair in enumerate(pairs, 1) if line not in gone]
        read = [(one_line(src.decode()), one_line(tgt.decode())) for src, tgt in stays]
        written = zip(*(lines_in(folder / "out" / f"train.{language}") for language in ("en", "it")), strict=True)
        assert list(written) == read
