"""Synthetic training text: equality with `mt translate`, interruptions, and refused input."""

import json
import os
import signal
import time
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import click
import pytest
from sacrebleu import sentence_bleu

import mt as api
from command import Command, mt
from engine_helpers import ENGLISH, LIVELY, printed, printed_lines, whole_folder
from mt.bundle.load_translator import open_model
from mt.cli.synthesis import backtranslate, distill
from mt.decoding.candidates import Candidate
from mt.decoding.engine import EngineChoice, Sampling, SearchOptions
from mt.decoding.synthesis import closest, synthesize
from mt.decoding.translator import Translator
from mt.errors import InputError, MachineError
from mt.storage.resumable_file import ResumableFile
from mt.storage.run_dir import ModelDir

LINES = [*ENGLISH, "", "The dog is old.", "  ", "Men on\u2028the grass", "日本", "\x0c", "grass " * 30, "talking"]
OPTIONS = SearchOptions(2, max_length=6, scores=False)
FOUR_BEST = replace(OPTIONS, beam_size=4, n_best=4)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> ModelDir:
    """Return a model with a different translation for each line."""
    changes = ["tokenizer.shared=false", "decoding.max_length=8", "decoding.beam_size=3"]
    return whole_folder(tmp_path_factory.mktemp("teacher") / "model", *LIVELY, *changes)


class HaltError(Exception):
    """An interruption of the work."""


class Watched(Translator):
    """A translator that records its input and raises after some blocks."""

    def __init__(self, folder: ModelDir, blocks: int = 1000) -> None:
        self.__dict__.update(open_model(folder).translator.__dict__)
        self.blocks = blocks
        self.given: list[str] = []
        self.first_lines: list[int] = []

    def translate(self, lines: Sequence[str], options: SearchOptions, first_line: int = 1) -> list[list[Candidate]]:
        if len(self.first_lines) == self.blocks:
            raise HaltError
        self.first_lines.append(first_line)
        self.given += lines
        return super().translate(lines, options, first_line)


def write(path: Path, lines: Sequence[str]) -> Path:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return path


def read(path: Path) -> list[str]:
    return path.read_bytes().decode().split("\n")[:-1]


def many(number: int) -> list[str]:
    """Return lines that all differ."""
    words = " ".join(ENGLISH).split()
    return [f"{words[i % 13]} {words[i % 11]} {i}" if i % 7 else "" for i in range(number)]


def varied(n_best: Sequence[Sequence[str]]) -> list[str]:
    """Return one translation of each line, of varying rank."""
    found = [[text for text in texts if text] or [""] for texts in n_best]
    return [texts[number % len(texts)] for number, texts in enumerate(found)]


# Translations ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "options", "before"),
    [
        ("distill", [], ""),
        ("distill", ["--beam", "4", "--length-penalty", "0.2"], ""),
        ("distill", ["--engine", "torch"], ""),
        ("distill", ["--sample", "--seed", "5", "--temperature", "0.8", "--top-k", "9", "--top-p", "0.9"], ""),
        ("backtranslate", ["--greedy"], "<BT> "),
        ("backtranslate", ["--tag", ""], ""),
        ("backtranslate", ["--tag", "<BT>", "--sample"], "<BT> "),
    ],
    ids=str,
)
def test_lines_equal_those_of_translate(
    teacher: ModelDir, tmp_path: Path, command: str, options: list[str], before: str
) -> None:
    source, names = write(tmp_path / "in", LINES), ["--model", teacher.root]
    report = printed(command, *names, "--input", source, "--output", tmp_path / "out", *options)
    assert report == f"{tmp_path / 'out'}: {len(LINES)} lines\n"
    search = [option for option in options if option not in ("--tag", before.strip())]
    expected = printed_lines("translate", *names, "--input", source, *search)
    assert len(set(expected)) > 4, "no variety"
    assert read(tmp_path / "out") == [f"{before}{line}" if line else "" for line in expected]
    assert [text for line, text in zip(LINES, expected, strict=True) if not line.strip()] == ["", "", ""]


@pytest.mark.parametrize(
    "options", [["--beam", "4"], ["--beam", "6", "--n-best", "4"], ["--sample", "--n-best", "4"]], ids=str
)
def test_the_closest_to_the_reference_is_chosen(teacher: ModelDir, tmp_path: Path, options: list[str]) -> None:
    """Each line's reference is one of its own translations."""
    names = ["--model", teacher.root, "--input", write(tmp_path / "in", LINES)]
    search = options if "--n-best" in options else [*options, "--n-best", "4"]
    listed = [json.loads(line) for line in printed_lines("translate", *names, *search, "--format", "jsonl")]
    n_best = [[found["text"] for found in line["n_best"]] for line in listed]
    wanted = varied(n_best)
    assert sum(text != texts[0] for text, texts in zip(wanted, n_best, strict=True)) > 2, "no variety"
    references = write(tmp_path / "references", wanted)
    printed("distill", *names, "--output", tmp_path / "out", *options, "--closest-to", references)
    assert read(tmp_path / "out") == wanted


@pytest.mark.parametrize(
    ("texts", "reference", "chosen"),
    [
        (("a b c", "d e f g", "a b d"), "x y z", 0),  # the likeliest among equally close ones
        (("a b c", "d e f g", "a b d"), "d e f h", 1),
        # Models write normal form C; without normalization, both candidates would be equally far.
        (("một con gà", "những con chó đang chạy"), unicodedata.normalize("NFD", "những con chó chạy"), 1),
    ],
)
def test_the_closest_translation(texts: tuple[str, ...], reference: str, chosen: int) -> None:
    assert closest([Candidate(text, 0.0, 0.0) for text in texts], reference) == texts[chosen]


class Chinese:
    """A translator whose two candidates share no word with the reference, only characters."""

    target_lang = "zh"

    def translate(self, lines: Sequence[str], options: SearchOptions, first_line: int) -> list[list[Candidate]]:
        return [[Candidate(text, 0.0, 0.0) for text in ("猫在睡觉", "我是一名学者")] for _ in lines]


def test_closeness_is_of_characters_where_words_are_not_separated(tmp_path: Path) -> None:
    source, references = write(tmp_path / "in", ["I am a student."]), write(tmp_path / "references", ["我是一名学生"])
    synthesize(Chinese(), SearchOptions(2, n_best=2), source, tmp_path / "out", "x", references=references)  # type: ignore[arg-type]
    assert read(tmp_path / "out") == ["我是一名学者"]


def test_the_translation_is_the_hypothesis_of_bleu() -> None:
    """With the arguments of BLEU swapped, the other candidate would win."""
    texts, reference = ["x a b c d", "a b c"], "a b c d"
    right = [sentence_bleu(text, [reference]).score for text in texts]
    wrong = [sentence_bleu(reference, [text]).score for text in texts]
    assert (right[0] > right[1]) != (wrong[0] > wrong[1])
    found = [Candidate(text, 0.0, 0.0) for text in texts]
    assert closest(found, reference) == texts[right.index(max(right))]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--n-best", "3"], "--n-best belongs to --closest-to"),
        (["--greedy", "--closest-to", "in"], "--greedy and --closest-to contradict each other"),
        (["--sample", "--closest-to", "in"], "add --n-best N"),
        (["--n-best", "9", "--beam", "4", "--closest-to", "in"], "more than the beam of 4"),
        (["--closest-to", "short"], "short has 1 lines, in has 2"),
        (["--closest-to", "missing"], "missing: no such file"),
        (["--closest-to", "pipe"], "pipe: a pipe, not a file"),
        (["--output", "-"], "--output -: this goes to a file, not to the standard output"),
        (["--input", "missing"], "missing: no such file"),
        (["--input", "pipe"], "pipe: a pipe, not a file"),
        (["--beam", "1", "--closest-to", "in"], "more than one translation to choose from"),
    ],
    ids=str,
)
def test_impossible_choices_are_refused(teacher: ModelDir, tmp_path: Path, options: list[str], words: str) -> None:
    """An earlier output stays."""
    for name, lines in (("in", ["a", "b"]), ("short", ["a"]), ("out", ["c"])):
        write(tmp_path / name, lines)
    os.mkfifo(tmp_path / "pipe")
    command = ["distill", "--model", teacher.root, "--input", "in", "--output", "out", "--force", *options]
    assert words in mt(*command, cwd=tmp_path, code=2).stderr
    assert read(tmp_path / "out") == ["c"]


@pytest.mark.parametrize("command", [distill, backtranslate])
def test_a_file_is_replaced_only_by_force(tmp_path: Path, command: click.Command) -> None:
    source, output = write(tmp_path / "in", ["a"]), write(tmp_path / "out", ["by people"])
    words = ["--input", str(source), "--output", str(output), "--model", str(tmp_path / "none")]
    with pytest.raises(InputError, match="out: this file exists"):
        command.main(words, standalone_mode=False)
    with pytest.raises(InputError, match="none"):
        command.main([*words, "--force"], standalone_mode=False)
    assert read(output) == ["by people"]


@pytest.mark.parametrize("tag", [" ", "<BT> ", "two words", "<synth>", "a\u2028b", "\udcff"])
def test_a_tag_that_training_does_not_know_is_refused(teacher: ModelDir, tmp_path: Path, tag: str) -> None:
    source = write(tmp_path / "in", LINES)
    files = ["--input", source, "--output", tmp_path / "out", "--tag", tag]
    stderr = mt("backtranslate", "--model", teacher.root, *files, cwd=tmp_path, code=2).stderr
    assert f"--tag: {tag!r} is not <BT>, the one tag that training knows" in stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tag": "a\nb"}, r"tag: 'a\\nb' is not <BT>, the one tag that training knows"),
        ({"tag": "\ud800"}, r"tag: '\\ud800' is not <BT>"),
        ({"n_best": 0, "references": "in"}, "n_best 0 is not between"),
        ({"n_best": 1}, "n_best belongs to references"),
        ({"sample": True, "references": "in"}, "needs the number of translations to draw"),
    ],
)
def test_python_is_refused_as_the_command_is(
    teacher: ModelDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in", LINES)
    with pytest.raises(InputError, match=message):
        api.synthesize("in", "out", teacher.root, **arguments)
    assert not (tmp_path / "out").exists()


def test_a_missing_folder_is_made_an_old_file_is_replaced_and_nothing_else_stays(
    teacher: ModelDir, tmp_path: Path
) -> None:
    output = tmp_path / "new" / "folder" / "out"
    for lines in (LINES, LINES[:3]):
        source = write(tmp_path / "in", lines)
        assert synthesize(Watched(teacher), OPTIONS, source, output, "x") == len(lines) == len(read(output))
        assert [path.name for path in output.parent.iterdir()] == ["out"]


@pytest.mark.parametrize("lines_at_once", [1, 3, len(LINES), 1000])
def test_blocks_change_nothing(teacher: ModelDir, tmp_path: Path, lines_at_once: int) -> None:
    source, translator = write(tmp_path / "in", LINES), Watched(teacher)
    options = SearchOptions(max_length=6, sampling=Sampling(0.5, seed=3))
    translator.engine = open_model(teacher, EngineChoice("torch")).translator.engine
    synthesize(translator, options, source, tmp_path / "out", "x", "T", lines_at_once)
    expected = [found[0].text for found in translator.translate(LINES, options)]
    assert read(tmp_path / "out") == [f"T {line}" if line else "" for line in expected]
    assert translator.first_lines[:-1] == list(range(1, len(LINES) + 1, lines_at_once))


@pytest.mark.parametrize("closest_to", [False, True])
@pytest.mark.parametrize("end", [["end", "more"], [], ["other"]], ids=str)
def test_a_file_that_changes_while_it_is_read_is_refused(
    teacher: ModelDir, tmp_path: Path, end: list[str], closest_to: bool
) -> None:
    class Editing(Watched):
        def translate(self, lines: Sequence[str], options: SearchOptions, first_line: int = 1) -> list[list[Candidate]]:
            write(source, [*beginning, *end])
            return super().translate(lines, options, first_line)

    beginning = [*many(4), " " * 100_000]  # the end is not in a reader's buffer
    source, references = (write(tmp_path / name, [*beginning, "end"]) for name in ("in", "references"))
    options, output = FOUR_BEST if closest_to else OPTIONS, tmp_path / "out"
    with pytest.raises(InputError, match="in: changed while it was read"):
        synthesize(
            Editing(teacher), options, source, output, "x", block_size=4, references=references if closest_to else None
        )
    assert not output.exists()


# Interruption and resumption ------------------------------------------------------------------------------------------


def interrupted(teacher: ModelDir, blocks: int, **arguments: Any) -> None:
    """Synthesize some blocks of four lines."""
    with pytest.raises(HaltError):
        synthesize(Watched(teacher, blocks), block_size=4, **arguments)
    assert not arguments["output"].exists()


@pytest.mark.parametrize("blocks", [0, 1, 3])
def test_finished_lines_are_not_translated_again(
    teacher: ModelDir, tmp_path: Path, blocks: int, notices: list[str]
) -> None:
    lines, output = many(25), tmp_path / "out"
    n_best = [[found.text for found in line] for line in Watched(teacher).translate(lines, FOUR_BEST)]
    source, references = write(tmp_path / "in", lines), write(tmp_path / "references", varied(n_best))
    files: dict[str, Any] = {"source": source, "output": output, "references": references}
    arguments = {**files, "options": FOUR_BEST, "model_key": "x", "tag": "<BT>"}
    interrupted(teacher, blocks, **arguments)
    translator = Watched(teacher)
    assert synthesize(translator, block_size=4, **arguments) == 25
    assert translator.given == lines[4 * blocks :]
    assert translator.first_lines == list(range(4 * blocks + 1, 26, 4))
    assert read(output) == [f"<BT> {line}" if line else "" for line in read(references)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out", "references"]
    assert len([line for line in notices if f"after line {4 * blocks} of 25" in line]) == (blocks > 0)


@pytest.mark.parametrize(
    ("changes", "file"),
    [
        ({"model_key": ["model", "b"]}, None),
        ({"options": replace(FOUR_BEST, max_length=3)}, None),
        ({"options": replace(FOUR_BEST, sampling=Sampling())}, None),
        ({"tag": "S"}, None),
        ({"references": None}, None),
        ({}, "in"),
        ({}, "references"),
    ],
    ids=str,
)
def test_other_inputs_or_options_restart_the_work(
    teacher: ModelDir, tmp_path: Path, changes: dict[str, Any], file: str | None
) -> None:
    lines = many(20)
    source, references, output = write(tmp_path / "in", lines), write(tmp_path / "references", lines), tmp_path / "out"
    arguments = {"options": FOUR_BEST, "model_key": ["model", "a"], "tag": "T", "references": references}
    interrupted(teacher, 2, source=source, output=output, **arguments)
    if file is not None:
        write(tmp_path / file, [*lines[:-1], "another"])
    translator = Watched(teacher)
    translator.engine = open_model(teacher, EngineChoice("torch")).translator.engine
    for path in (output, tmp_path / "fresh"):
        translator.given.clear()
        synthesize(translator, source=source, output=path, block_size=4, **arguments | changes)
        assert translator.given == read(source)
    assert read(output) == read(tmp_path / "fresh")


@pytest.mark.slow
def test_another_model_of_the_same_name_restarts_the_command(teacher: ModelDir, tmp_path: Path) -> None:
    """A model that was trained again under the same name is a different one."""
    model = Path(copytree(teacher.root, tmp_path / "model"))
    source, output = write(tmp_path / "in", many(2200)), tmp_path / "out"
    command = ["distill", "--input", source, "--output", output, "--greedy", "--model", model]
    interrupt(Command(*command, cwd=tmp_path), output)
    rmtree(model)
    whole_folder(model, *LIVELY, "tokenizer.shared=false", "decoding.max_length=8", "model.d_ff=28")
    done = mt(*command, cwd=tmp_path)
    assert "resuming" not in done.stderr
    assert "out: restarting: 2000 lines were written with a different model" in done.stderr
    assert read(output) == printed_lines("translate", "--input", source, "--greedy", "--model", model)


def test_the_engine_and_all_models_are_part_of_the_key(
    teacher: ModelDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = [*LIVELY, "tokenizer.shared=false", "decoding.max_length=8"]
    other = whole_folder(tmp_path / "other", *shape, "model.d_ff=28")
    model_key: list[object] = []

    def take_note(*arguments: object, **_: object) -> int:
        model_key.append(arguments[4])
        return 0

    monkeypatch.setattr("mt.decoding.synthesis.synthesize", take_note)
    command = ["distill", "--input", write(tmp_path / "in", LINES), "--output", tmp_path / "out"]
    ways = [
        ["--model", teacher.root, "--compute-type", "float32"],
        ["--model", teacher.root, "--compute-type", "int8"],
        ["--model", teacher.root, "--engine", "torch"],
        ["--model", teacher.root, "--model", teacher.root],
        ["--model", teacher.root, "--model", other.root],
    ]
    for way in [*ways, ways[0]]:
        printed(*command, *way)
    assert model_key[-1] == model_key[0]
    assert len({json.dumps(each, default=str) for each in model_key}) == len(ways)


def interrupt(command: Command, output: Path) -> int:
    """Kill a command as soon as some lines are safe; return their number."""
    note = output.with_name(f".{output.name}.unfinished.json")
    deadline = time.monotonic() + 60
    while not note.exists():
        assert time.monotonic() < deadline
        assert command.process.is_alive()
        time.sleep(0.002)
    command.signal(signal.SIGKILL)
    assert command.wait().code == -signal.SIGKILL, "it was too quick"
    assert not output.exists()
    return json.loads(note.read_text())["lines"]


def test_killed_and_started_again_it_makes_the_same_file(teacher: ModelDir, tmp_path: Path) -> None:
    """It resumes where it stopped: a mark in the finished lines stays there."""
    source, output = write(tmp_path / "in", many(5000)), tmp_path / "out"
    command = ["backtranslate", "--input", source, "--output", output, "--greedy", "--model", teacher.root]
    mt(*command[:4], tmp_path / "whole", *command[5:], cwd=tmp_path)
    whole = (tmp_path / "whole").read_bytes()
    safe = interrupt(Command(*command, cwd=tmp_path), output)
    assert safe in (2000, 4000)
    unfinished = tmp_path / ".out.unfinished"
    content = bytearray(unfinished.read_bytes())
    place = content.index(b"<BT>")
    content[place : place + 4] = b"mark"
    unfinished.write_bytes(content + b"half a li")  # bytes beyond the recorded lines are discarded
    done = mt(*command, cwd=tmp_path)
    assert f"resuming after line {safe} of 5000" in done.stderr
    equal = output.read_bytes() == whole.replace(b"<BT>", b"mark", 1)
    assert equal  # asserting == directly would make pytest diff them for minutes
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out", "whole"]


@pytest.mark.parametrize("note", [b"", b"no json", b"[]", b"null", b'{"key": 1}', b"gone", b"short"], ids=str)
def test_an_unreadable_record_restarts_the_work(tmp_path: Path, note: bytes) -> None:
    place = tmp_path / ".out.unfinished.json"
    with ResumableFile(tmp_path / "out", "key") as file:
        file.append(["one", "two"])
    if note == b"gone":
        place.unlink()
    elif note == b"short":  # the lines themselves are gone
        (tmp_path / ".out.unfinished").write_bytes(b"T")
    else:
        place.write_bytes(note)
    with ResumableFile(tmp_path / "out", "key") as file:
        assert file.lines == 0
        file.append(["three"])
        file.finish()
    assert read(tmp_path / "out") == ["three"]


def test_lines_of_another_key_are_not_resumed(tmp_path: Path) -> None:
    """The second is killed after its first lines are written, before they are recorded."""
    path = tmp_path / "out"
    with ResumableFile(path, "one") as file:
        file.append(["1"])
    with ResumableFile(path, "two") as file:
        (tmp_path / ".out.unfinished").write_bytes(b"TWO TWO\n")
    with ResumableFile(path, "one") as file:
        assert file.lines == 0
        file.append(["1", "2"])
        file.finish()
    assert read(path) == ["1", "2"]


def test_a_record_left_beside_the_finished_file_is_ignored(tmp_path: Path, notices: list[str]) -> None:
    path = tmp_path / "out"
    with ResumableFile(path, "one") as file:
        file.append(["1"])
        note = (tmp_path / ".out.unfinished.json").read_bytes()
        file.finish()
    (tmp_path / ".out.unfinished.json").write_bytes(note)
    with ResumableFile(path, "one") as file:
        assert file.lines == 0
    assert not notices


def test_a_growing_file_appears_when_it_is_finished(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with ResumableFile(path, "key") as file:
        file.append(["ä", ""])
        file.append([])
        assert file.lines == 2
        assert not path.exists()
    with ResumableFile(path, "key") as file:
        assert file.lines == 2
        file.append(["b"])
        assert not path.exists()
        file.finish()
    assert list(tmp_path.iterdir()) == [path]
    with ResumableFile(path, "key") as file:
        assert file.lines == 0
        assert path.read_bytes() == "ä\n\nb\n".encode()


# Refused input and output ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "output", "message"),
    [
        *(("in", name, "this is an input") for name in ("in", "link", "hard", "sub/../in", "references")),
        *((name, "in", "this is an input") for name in ("link", "hard", "sub/../in")),
        ("pipe", "out", "pipe: a pipe, not a file"),
        ("empty", "out", "empty: no line in it"),
        ("broken", "out", "broken:2: not valid UTF-8"),
        ("missing", "out", "missing: no such file"),
        ("sub", "out", "sub: "),
        ("in", "empty/out", "cannot write here"),
        ("in", "out.gz", "out.gz: "),
    ],
)
def test_files_that_are_refused(teacher: ModelDir, tmp_path: Path, source: str, output: str, message: str) -> None:
    references = write(tmp_path / "references", LINES)
    (tmp_path / "link").symlink_to("in")
    (tmp_path / "hard").hardlink_to(write(tmp_path / "in", LINES))
    (tmp_path / "sub").mkdir()
    (tmp_path / "empty").touch()
    (tmp_path / "broken").write_bytes(b"a\nb\xff\n")
    os.mkfifo(tmp_path / "pipe")
    before = sorted(tmp_path.iterdir())
    with pytest.raises((InputError, MachineError)) as caught:
        synthesize(
            Watched(teacher, 0), OPTIONS, tmp_path / source, tmp_path / output, "x",
            references=references if output == "references" else None,
        )  # fmt: skip
    assert message in str(caught.value)
    assert read(tmp_path / "in") == read(references) == LINES
    assert sorted(tmp_path.iterdir()) == before


def test_two_at_once_are_refused_and_the_first_goes_on(teacher: ModelDir, tmp_path: Path) -> None:
    source, output = write(tmp_path / "in", LINES), tmp_path / "out"
    command = ["distill", "--model", teacher.root, "--input", source, "--output", output]
    with ResumableFile(output, "key") as first:
        first.append(["safe"])
        done = mt(*command, cwd=tmp_path, code=2)
        assert "another process is writing it" in done.stderr
        assert (done.stdout, len(done.stderr.splitlines())) == ("", 2)
        first.append(["safe too"])
        first.finish()
    assert read(output) == ["safe", "safe too"]
