"""Synthetic training text: equality with `mt translate`, interruptions, and refused input."""

import json
import os
import signal
import time
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import pytest
from sacrebleu import sentence_bleu

from command import Command, mt
from config_helpers import SMALLEST
from engine_helpers import ENGLISH, printed, whole_folder
from mt.bundle.load_translator import open_model
from mt.config import parse_config
from mt.data.prepare import prepare_text
from mt.decoding.engine import EngineChoice, Sampling, SearchOptions
from mt.decoding.synthesis import closest, synthesize
from mt.decoding.translator import Candidate, Translator
from mt.errors import InputError, MachineError
from mt.storage.resumable_file import ResumableFile
from mt.storage.run_dir import ModelDir
from mt.text.lines import read_lines

SHAPE = ["model.positions=learned", "model.norm=pre", "model.activation=swiglu", "model.tie_embeddings=false"]
LINES = [*ENGLISH, "", "The dog is old.", "  ", "Men on\u2028the grass", "日本", "\x0c", "grass " * 30, "talking"]
OPTIONS = SearchOptions(2, max_length=6, scores=False)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> ModelDir:
    """Return a model with a different translation for each line."""
    changes = ["tokenizer.shared=false", "decoding.max_length=8", "decoding.beam_size=3"]
    return whole_folder(tmp_path_factory.mktemp("teacher") / "model", *SHAPE, *changes)


class HaltError(Exception):
    """An interruption of the work."""


class Watched(Translator):
    """A translator that records its input and raises after some blocks.

    Args:
        folder: of the model.
        blocks: the number that it translates.
    """

    def __init__(self, folder: ModelDir, blocks: int = 1000) -> None:
        self.__dict__.update(open_model(folder).translator.__dict__)
        self.blocks, self.given = blocks, []
        self.first_lines: list[int] = []

    def translate(self, lines: Sequence[str], options: SearchOptions, first_line: int = 1) -> list[list[Candidate]]:
        if len(self.first_lines) == self.blocks:
            raise HaltError
        self.first_lines.append(first_line)
        self.given += lines
        return super().translate(lines, options, first_line)


def write(path: Path, lines: Sequence[str], end: str = "\n") -> Path:
    path.write_bytes("".join(line + end for line in lines).encode())
    return path


def read(path: Path) -> list[str]:
    return path.read_bytes().decode().split("\n")[:-1]


def many(number: int) -> list[str]:
    """Return lines that all differ."""
    words = " ".join(ENGLISH).split()
    return [f"{words[i % 13]} {words[i % 11]} {i}" if i % 7 else "" for i in range(number)]


# Translations ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["distill", "backtranslate"])
@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--greedy"],
        ["--beam", "4", "--length-penalty", "0.2"],
        ["--engine", "torch"],
        ["--sample", "--seed", "5", "--temperature", "0.8", "--top-k", "9", "--top-p", "0.9"],
    ],
    ids=str,
)
def test_lines_equal_those_of_translate(teacher: ModelDir, tmp_path: Path, command: str, options: list[str]) -> None:
    source, names = write(tmp_path / "in", LINES), ["--model", teacher.root]
    report = printed(command, *names, "--input", source, "--output", tmp_path / "out", *options)
    assert report == f"{tmp_path / 'out'}: {len(LINES)} lines\n"
    expected = printed("translate", *names, "--input", source, *options).split("\n")[:-1]
    assert len(expected) == len(LINES)
    assert len(set(expected)) > 4, "no variety"
    tag = "<BT> " if command == "backtranslate" else ""
    assert read(tmp_path / "out") == [f"{tag}{line}" if line else "" for line in expected]
    made = zip(LINES, read(tmp_path / "out"), strict=True)
    assert [line for source, line in made if not source.strip()] == ["", "", ""]


@pytest.mark.parametrize(
    "options", [["--beam", "4"], ["--beam", "6", "--n-best", "4"], ["--sample", "--n-best", "4"]], ids=str
)
def test_the_closest_to_the_reference_is_chosen(teacher: ModelDir, tmp_path: Path, options: list[str]) -> None:
    """Each line's reference is one of its own translations, of varying rank."""
    names = ["--model", teacher.root, "--input", write(tmp_path / "in", LINES)]
    search = options if "--n-best" in options else [*options, "--n-best", "4"]
    listed = [json.loads(line) for line in printed("translate", *names, *search, "--format", "jsonl").split("\n")[:-1]]
    n_best = [[found["text"] for found in line["n_best"] if found["text"]] or [""] for line in listed]
    wanted = [texts[number % len(texts)] for number, texts in enumerate(n_best)]
    assert sum(text != texts[0] for text, texts in zip(wanted, n_best, strict=True)) > 2, "no variety"
    references = write(tmp_path / "references", wanted)
    printed("distill", *names, "--output", tmp_path / "out", *options, "--closest-to", references)
    assert read(tmp_path / "out") == wanted


def test_among_equally_close_translations_the_likeliest_is_chosen() -> None:
    candidates = [Candidate(text, 0.0, 0.0) for text in ("a b c", "d e f g", "a b d")]
    assert closest(candidates, "x y z") == "a b c"
    assert closest(candidates, "d e f h") == "d e f g"


def test_a_reference_may_have_accents_of_their_own() -> None:
    """Models write Unicode's normal form C; without normalization, both candidates would be equally far."""
    found = [Candidate(text, 0.0, 0.0) for text in ("một con gà", "những con chó đang chạy")]
    reference = unicodedata.normalize("NFD", "những con chó chạy")
    assert reference != unicodedata.normalize("NFC", reference)
    assert closest(found, reference) == "những con chó đang chạy"


def test_closeness_is_of_characters_where_words_are_not_separated(teacher: ModelDir, tmp_path: Path) -> None:
    class Chinese(Translator):
        """A translator whose two candidates share no word with the reference, only characters."""

        target_lang = "zh"

        def __init__(self) -> None:
            self.__dict__.update(open_model(teacher).translator.__dict__)

        def translate(self, lines: Sequence[str], options: SearchOptions, first_line: int = 1) -> list[list[Candidate]]:
            return [[Candidate(text, 0.0, 0.0) for text in ("猫在睡觉", "我是一名学者")] for _ in lines]

    source, references = write(tmp_path / "in", ["I am a student."]), write(tmp_path / "references", ["我是一名学生"])
    synthesize(Chinese(), SearchOptions(2, n_best=2), source, tmp_path / "out", "x", references=references)
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
        (["--beam", "1", "--closest-to", "in"], "more than one translation to choose from"),
    ],
    ids=str,
)
def test_impossible_choices_are_refused(teacher: ModelDir, tmp_path: Path, options: list[str], words: str) -> None:
    write(tmp_path / "in", ["a", "b"])
    write(tmp_path / "short", ["a"])
    command = ["distill", "--model", teacher.root, "--input", "in", "--output", "out", *options]
    assert words in mt(*command, cwd=tmp_path, code=2).stderr
    assert not (tmp_path / "out").exists()


def test_missing_references_beside_an_earlier_output(teacher: ModelDir, tmp_path: Path) -> None:
    write(tmp_path / "in", ["a"])
    write(tmp_path / "out", ["b"])
    command = ["distill", "--model", teacher.root, "--input", "in", "--output", "out", "--closest-to", "missing"]
    assert "missing: no such file" in mt(*command, cwd=tmp_path, code=2).stderr


@pytest.mark.parametrize(("tag", "before"), [("", ""), ("<syn>", "<syn> "), ("→", "→ ")])
def test_the_tag_is_a_word_before_every_line(teacher: ModelDir, tmp_path: Path, tag: str, before: str) -> None:
    source, names = write(tmp_path / "in", LINES), ["--model", teacher.root, "--greedy"]
    printed("backtranslate", *names, "--input", source, "--output", tmp_path / "out", "--tag", tag)
    printed("distill", *names, "--input", source, "--output", tmp_path / "bare")
    assert read(tmp_path / "out") == [before + line if line else "" for line in read(tmp_path / "bare")]


@pytest.mark.parametrize("tag", [" ", "<BT> ", "two words", "a\n", "a\u2028b", "\udcff"])
def test_a_tag_that_is_not_one_word_is_refused(teacher: ModelDir, tmp_path: Path, tag: str) -> None:
    source = write(tmp_path / "in", LINES)
    files = ["--input", source, "--output", tmp_path / "out", "--tag", tag]
    stderr = mt("backtranslate", "--model", teacher.root, *files, cwd=tmp_path, code=2).stderr
    assert ("--tag: not valid UTF-8" if tag == "\udcff" else "--tag") in stderr
    assert not (tmp_path / "out").exists()


def test_line_ends_of_windows_and_a_missing_last_one(teacher: ModelDir, tmp_path: Path) -> None:
    write(tmp_path / "unix", ["a dog", "", "two men"])
    (tmp_path / "windows").write_bytes(b"\xef\xbb\xbfa dog\r\n\r\ntwo men")
    for name in ("unix", "windows"):
        printed("distill", "--model", teacher.root, "--input", tmp_path / name, "--output", tmp_path / f"{name}.out")
    assert (tmp_path / "windows.out").read_bytes() == (tmp_path / "unix.out").read_bytes()
    assert b"\r" not in (tmp_path / "windows.out").read_bytes()
    assert len(read(tmp_path / "windows.out")) == 3


def test_a_missing_folder_is_made_an_old_file_is_replaced_and_nothing_else_stays(
    teacher: ModelDir, tmp_path: Path
) -> None:
    source, output = write(tmp_path / "in", LINES), tmp_path / "new" / "folder" / "out"
    for lines in (LINES, LINES[:3]):
        write(source, lines)
        assert synthesize(open_model(teacher).translator, OPTIONS, source, output, "x", "") == len(lines)
        assert len(read(output)) == len(lines)
        assert [path.name for path in output.parent.iterdir()] == ["out"]


@pytest.mark.parametrize("lines_at_once", [1, 3, len(LINES), 1000])
def test_blocks_change_nothing(teacher: ModelDir, tmp_path: Path, lines_at_once: int) -> None:
    source, translator = write(tmp_path / "in", LINES), Watched(teacher)
    options = SearchOptions(max_length=6, sampling=Sampling(0.5, seed=3))
    translator._engine = open_model(teacher, EngineChoice("torch")).translator._engine
    synthesize(translator, options, source, tmp_path / "out", "x", "T", lines_at_once)
    expected = [found[0].text for found in translator.translate(LINES, options)]
    assert read(tmp_path / "out") == [f"T {line}" if line else "" for line in expected]
    assert translator.first_lines[:-1] == list(range(1, len(LINES) + 1, lines_at_once))


def test_the_result_is_a_source_of_a_configuration(teacher: ModelDir, tmp_path: Path) -> None:
    """Its lines are aligned with its input; pairs with an empty side are removed in cleaning."""
    mono = write(tmp_path / "mono.de", ["ein Hund", "", "zwei Männer", "das Haus"])
    printed("backtranslate", "--model", teacher.root, "--input", mono, "--output", tmp_path / "mono.bt.en")
    write(tmp_path / "a", ["one", "two"])
    write(tmp_path / "b", ["eins", "zwei"])
    both = SMALLEST.replace(
        "train: {source: a, target: b}",
        "valid: {source: a, target: b}\n"
        "  train: [{source: a, target: b}, {source: mono.bt.en, target: mono.de, synthetic: true}]",
    )
    config = parse_config(both, "x.yaml", [f"data.root={tmp_path}"])
    prepare_text(config, tmp_path / "text", "key")
    pairs = set(zip(read(tmp_path / "text" / "train.source"), read(tmp_path / "text" / "train.target"), strict=True))
    made = zip(read(tmp_path / "mono.bt.en"), read(mono), strict=True)
    expected = {(src, tgt) for src, tgt in made if tgt}
    assert len(expected) == 3
    assert all(src.startswith("<BT> ") for src, _ in expected)
    assert expected <= pairs


# Interruption and resumption ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [0, 1, 3])
def test_finished_lines_are_not_translated_again(
    teacher: ModelDir, tmp_path: Path, blocks: int, notices: list[str]
) -> None:
    lines, tag = many(50), "<BT>"
    source, output = write(tmp_path / "in", lines), tmp_path / "out"
    synthesize(Watched(teacher), OPTIONS, source, tmp_path / "whole", "x", tag, 8)
    with pytest.raises(HaltError):
        synthesize(Watched(teacher, blocks), OPTIONS, source, output, "x", tag, 8)
    assert not output.exists()
    translator = Watched(teacher)
    assert synthesize(translator, OPTIONS, source, output, "x", tag, 8) == 50
    assert translator.given == lines[8 * blocks :]
    assert translator.first_lines == list(range(8 * blocks + 1, 51, 8))
    assert output.read_bytes() == (tmp_path / "whole").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out", "whole"]
    assert len([line for line in notices if f"after line {8 * blocks} of 50" in line]) == (blocks > 0)


def test_resumed_lines_keep_their_references(teacher: ModelDir, tmp_path: Path) -> None:
    """Each reference is one of its line's translations, of varying rank."""
    lines, output = many(40), tmp_path / "out"
    options = SearchOptions(4, n_best=4, max_length=6, scores=False)
    n_best = [
        [found.text for found in line if found.text] or [""] for line in Watched(teacher).translate(lines, options)
    ]
    wanted = [texts[number % len(texts)] for number, texts in enumerate(n_best)]
    source, references = write(tmp_path / "in", lines), write(tmp_path / "references", wanted)
    with pytest.raises(HaltError):
        synthesize(Watched(teacher, 2), options, source, output, "x", "", 8, references)
    translator = Watched(teacher)
    synthesize(translator, options, source, output, "x", "", 8, references)
    assert translator.given == lines[16:]
    assert read(output) == wanted


def test_other_references_restart_the_work(teacher: ModelDir, tmp_path: Path) -> None:
    lines = many(20)
    source, references = write(tmp_path / "in", lines), write(tmp_path / "references", many(20))
    options = SearchOptions(4, n_best=4, max_length=6, scores=False)
    with pytest.raises(HaltError):
        synthesize(Watched(teacher, 2), options, source, tmp_path / "out", "x", "", 4, references)
    write(references, [*many(20)[:-1], "another"])
    translator = Watched(teacher)
    synthesize(translator, options, source, tmp_path / "out", "x", "", 4, references)
    assert translator.given == lines


@pytest.mark.parametrize("what", ["model", "option", "sampling", "tag", "input", "references"])
def test_other_inputs_or_options_restart_the_work(teacher: ModelDir, tmp_path: Path, what: str) -> None:
    lines = many(20)
    source, output = write(tmp_path / "in", lines), tmp_path / "out"
    with pytest.raises(HaltError):
        synthesize(Watched(teacher, 2), OPTIONS, source, output, ["model", "a"], "T", 4)
    options = {
        "option": SearchOptions(2, max_length=3, scores=False),
        "sampling": SearchOptions(2, max_length=6, scores=False, sampling=Sampling()),
    }.get(what, OPTIONS)
    if what == "input":
        lines = [*lines[:-1], "another"]
        write(source, lines)
    translator = Watched(teacher)
    translator._engine = open_model(teacher, EngineChoice("torch")).translator._engine
    model_key, tag = ["model", "b" if what == "model" else "a"], "S" if what == "tag" else "T"
    references = source if what == "references" else None
    synthesize(translator, options, source, output, model_key, tag, 4, references)
    assert translator.given == lines
    expected = [found[0].text for found in translator.translate(lines, options)]
    assert read(output) == [f"{tag} {line}" if line else "" for line in expected]


def test_another_model_of_the_same_name_restarts_the_command(teacher: ModelDir, tmp_path: Path) -> None:
    """A model that was trained again under the same name is a different one."""
    other = whole_folder(tmp_path / "other", *SHAPE, "tokenizer.shared=false", "decoding.max_length=8", "model.d_ff=28")
    source = write(tmp_path / "in", many(2200))
    command = ["distill", "--input", source, "--output", tmp_path / "out", "--greedy", "--model"]
    interrupt(Command(*command, teacher.root, cwd=tmp_path), tmp_path / "out")
    moved = Path(teacher.root.rename(teacher.root.with_name("aside")))
    try:
        other.root.rename(teacher.root)
        done = mt(*command, teacher.root, cwd=tmp_path)
        assert "resuming" not in done.stderr
        assert "out: restarting: 2000 lines were written with a different model" in done.stderr
        assert (
            read(tmp_path / "out")
            == printed("translate", "--input", source, "--greedy", *command[-1:], teacher.root).split("\n")[:-1]
        )
    finally:
        teacher.root.rename(other.root)
        moved.rename(teacher.root)


def test_the_engine_and_all_models_are_part_of_the_key(
    teacher: ModelDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = [*SHAPE, "tokenizer.shared=false", "decoding.max_length=8"]
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
def test_an_unreadable_record_restarts_the_work(teacher: ModelDir, tmp_path: Path, note: bytes) -> None:
    lines = many(12)
    source, output, place = write(tmp_path / "in", lines), tmp_path / "out", tmp_path / ".out.unfinished.json"
    with pytest.raises(HaltError):
        synthesize(Watched(teacher, 2), OPTIONS, source, output, "x", "T", 4)
    if note == b"gone":
        place.unlink()
    elif note == b"short":  # the lines themselves are gone
        (tmp_path / ".out.unfinished").write_bytes(b"T")
    else:
        place.write_bytes(note)
    translator = Watched(teacher)
    synthesize(translator, OPTIONS, source, output, "x", "T", 4)
    assert translator.given == lines
    assert len(read(output)) == 12


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
        assert file.lines == 0
        file.append(["ä", ""])
        file.append([])
        assert file.lines == 2
        assert not path.exists()
    with ResumableFile(path, "key") as file:
        assert file.lines == 2
        file.append(["b"])
        assert not path.exists()
        file.finish()
    assert path.read_bytes() == "ä\n\nb\n".encode()
    assert list(tmp_path.iterdir()) == [path]
    with ResumableFile(path, "key") as file:
        assert file.lines == 0
        assert path.read_bytes() == "ä\n\nb\n".encode()


# Refused input and output ---------------------------------------------------------------------------------------------


def refused(teacher: ModelDir, folder: Path, source: Path, output: Path, code: int = 2) -> str:
    done = mt("distill", "--model", teacher.root, "--input", source, "--output", output, cwd=folder, code=code)
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) <= 2
    return done.stderr


def test_the_input_is_not_overwritten(teacher: ModelDir, tmp_path: Path) -> None:
    """Links and other spellings of the name are included."""
    source = write(tmp_path / "in", LINES)
    (tmp_path / "link").symlink_to("in")
    (tmp_path / "hard").hardlink_to(source)
    (tmp_path / "sub").mkdir()
    before = source.read_bytes()
    for name in ("in", "link", "hard", "sub/../in"):
        assert "this is an input" in refused(teacher, tmp_path, source, Path(name))
        assert "this is an input" in refused(teacher, tmp_path, Path(name), source)
    assert source.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hard", "in", "link", "sub"]


def test_the_references_are_not_overwritten(teacher: ModelDir, tmp_path: Path) -> None:
    source, references = write(tmp_path / "in", LINES), write(tmp_path / "references", LINES)
    with pytest.raises(InputError, match="this is an input"):
        synthesize(Watched(teacher), OPTIONS, source, references, "x", references=references)
    assert read(references) == LINES


@pytest.mark.parametrize("piped", ["--input", "--closest-to"])
def test_a_pipe_cannot_be_read_more_than_once(teacher: ModelDir, tmp_path: Path, piped: str) -> None:
    """A pipe is empty when read again."""
    os.mkfifo(tmp_path / "pipe")
    write(tmp_path / "in", LINES)
    names = {"--input": "in", "--closest-to": "in", piped: "pipe"}
    words = [word for option in names.items() for word in option]
    done = mt("distill", "--model", teacher.root, "--output", "out", *words, cwd=tmp_path, code=2)
    assert "pipe: a pipe, not a file" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "pipe"]


def test_two_at_once_are_refused_and_the_first_goes_on(teacher: ModelDir, tmp_path: Path) -> None:
    source, output = write(tmp_path / "in", LINES), tmp_path / "out"
    with ResumableFile(output, "key") as first:
        first.append(["safe"])
        assert "another process is writing it" in refused(teacher, tmp_path, source, output)
        first.append(["safe too"])
        first.finish()
    assert read(output) == ["safe", "safe too"]


@pytest.mark.parametrize(("content", "words"), [(b"", "no line"), (b"a\nb\xff\n", "in:2: not valid UTF-8")], ids=str)
def test_an_input_without_text(teacher: ModelDir, tmp_path: Path, content: bytes, words: str) -> None:
    source = tmp_path / "in"
    source.write_bytes(content)
    assert words in refused(teacher, tmp_path, source, tmp_path / "out")
    assert list(tmp_path.iterdir()) == [source]


def test_an_output_that_cannot_be_written(teacher: ModelDir, tmp_path: Path) -> None:
    source = write(tmp_path / "in", LINES)
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(MachineError, match="cannot write here"):
        synthesize(Watched(teacher, 0), OPTIONS, source, tmp_path / "file" / "out", "x")
    (tmp_path / "out").mkdir()
    with pytest.raises((InputError, MachineError)):
        synthesize(Watched(teacher, 0), OPTIONS, source, tmp_path / "out", "x")


@pytest.mark.parametrize("name", ["missing", "folder"])
def test_a_missing_input_is_the_users_fault(teacher: ModelDir, tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    expected = mt("translate", "--model", teacher.root, "--input", name, cwd=tmp_path, code=2).stderr
    done = mt("distill", "--model", teacher.root, "--input", name, "--output", "out", cwd=tmp_path, code=None)
    assert (done.code, done.stderr) == (2, expected)


def test_an_output_can_be_read_by_its_name(teacher: ModelDir, tmp_path: Path) -> None:
    source, output = write(tmp_path / "in", LINES), tmp_path / "out.gz"
    try:
        synthesize(Watched(teacher), OPTIONS, source, output, "x")
    except InputError:
        return
    assert len(list(read_lines(output))) == len(LINES)
