"""The command line: arguments, streams, exit codes, one-sentence errors."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from command import mt
from mt.storage.run_dir import RunDir


def mt_lines(*arguments: str | Path, cwd: Path) -> list[str]:
    return mt(*arguments, cwd=cwd).stdout.splitlines()


def in_bash(script: str, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    script = script.replace("mt ", f"{sys.executable} -m mt ", 1)
    command = ["bash", "-o", "pipefail", "-c", script]
    return subprocess.run(command, cwd=cwd, capture_output=True, check=False)


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> RunDir:
    """A copy of the trained run, ./tiny."""
    return RunDir(shutil.copytree(trained / "runs" / "tiny", tmp_path / "tiny"))


def test_n_lines_in_are_n_lines_out_in_order(trained: Path) -> None:
    lines = ["a b", "", "  ", "c d e f", "x\u2028y", "\x0c", "</s> <pad>", "a b", "日本", "a " * 300]
    done = mt("translate", cwd=trained, stdin="".join(f"{line}\n" for line in lines).encode())
    out = done.stdout.split("\n")
    assert len(out) == len(lines) + 1
    assert out[1] == out[2] == out[5] == ""
    assert out[0] == out[7]
    assert out[0] == mt_lines("translate", "a b", cwd=trained)[0]
    assert "translated in" in done.stderr  # of the long line


def test_windows_line_ends_and_a_missing_last_one(trained: Path) -> None:
    unix = mt("translate", cwd=trained, stdin=b"a b\nc d\n").stdout
    assert mt("translate", cwd=trained, stdin=b"\xef\xbb\xbfa b\r\nc d").stdout == unix


def test_a_pipe_that_does_not_wait_is_read_to_its_end(trained: Path) -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    pipes = {"stdin": reading, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-m", "mt", "translate"], cwd=trained, **pipes) as process:
        for line in (b"a b\n", b"c d\n"):
            os.write(writing, line)
            time.sleep(2.5)
        os.close(writing)
        translated = process.communicate(timeout=60)[0]
    os.close(reading)
    assert translated.decode() == mt("translate", cwd=trained, stdin=b"a b\nc d\n").stdout


@pytest.mark.parametrize("seed", ["abc", "0", "-3", ""])
def test_a_seed_that_sacrebleu_cannot_read_is_refused_at_once(tiny: Path, seed: str) -> None:
    done = mt("train", "--config", "tiny.yaml", cwd=tiny, code=2, SACREBLEU_SEED=seed)
    assert "SACREBLEU_SEED" in done.stderr
    assert not (tiny / "runs").exists()


def test_arguments_and_files_in_and_out(trained: Path, tmp_path: Path) -> None:
    assert len(mt_lines("translate", "a b c", "c d", cwd=trained)) == 2
    (tmp_path / "in.txt").write_text("a b\n\nc d\n")
    mt("translate", "--input", tmp_path / "in.txt", "--output", tmp_path / "out.txt", cwd=trained)
    assert len((tmp_path / "out.txt").read_text().split("\n")) == 4


@pytest.mark.parametrize("text", ["я" * 200, "a b " * 100, "x" * 300 + ".docx"], ids=["bytes", "words", "document"])
def test_a_text_may_be_too_long_for_a_file_name(trained: Path, text: str) -> None:
    done = mt("translate", text, cwd=trained, code=None)
    assert "File name too long" not in done.stderr
    assert done.code == (2 if text.endswith(".docx") else 0)


def test_n_best_and_jsonl_carry_the_same_scores(two_languages: Path) -> None:
    command = ["translate", "a b c", "--to", "xx", "--n-best", "2"]
    text = mt_lines(*command, cwd=two_languages)
    record = json.loads(mt(*command, "--format", "jsonl", cwd=two_languages).stdout)
    assert record["source"] == "a b c"
    assert [f"{rank}\t{c['score']:.4f}\t{c['text']}" for rank, c in enumerate(record["n_best"], 1)] == text
    assert record["translation"] == record["n_best"][0]["text"]
    assert record["n_best"][0]["score"] >= record["n_best"][1]["score"]


def test_greedy_is_a_beam_of_one(trained: Path) -> None:
    arguments = ["a b c d", "e f g"]
    greedy = mt("translate", *arguments, "--greedy", cwd=trained).stdout
    assert greedy == mt("translate", *arguments, "--beam", "1", cwd=trained).stdout


def test_a_closed_pipe_ends_it_quietly(trained: Path) -> None:
    done = in_bash("for i in $(seq 3000); do echo a b c; done | mt translate --greedy | head -n 1", trained)
    assert (done.stdout.count(b"\n"), done.stderr) == (1, b"")
    assert done.returncode in (0, 141)  # 141: the shell's own loop met the closed pipe


def test_eval_prints_a_table_with_signatures_and_writes_files(trained: Path, tmp_path: Path) -> None:
    header, greedy, beam, *signatures = mt_lines("eval", "--output", tmp_path, cwd=trained)
    assert header.split()[:2] == ["method", "BLEU"]
    assert (greedy.split()[0], beam.split()[0]) == ("greedy", "beam")
    assert "tok:13a" in signatures[0]
    assert "version:" in signatures[0]
    assert len((tmp_path / "test.greedy").read_text().splitlines()) == 12
    assert json.loads((tmp_path / "test.json").read_text())["sentences"] == 12


def test_eval_json_is_one_object_and_its_bleu_is_sacrebleus(trained: Path, tmp_path: Path) -> None:
    result = json.loads(mt("eval", "--json", "--output", tmp_path, cwd=trained).stdout)
    assert [r["method"] for r in result["results"]] == ["greedy", "beam"]
    for entry in result["results"]:
        files = [tmp_path / "test.reference", "-i", tmp_path / f"test.{entry['method']}"]
        command = [sys.executable, "-m", "sacrebleu", *files, "-b", "-w", "4"]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert float(printed) == pytest.approx(entry["bleu"], abs=1e-4)


def test_the_model_folder_works_on_its_own(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "runs" / "tiny" / "model", tmp_path / "moved")
    alone = mt("translate", "a b c", "--model", "moved", cwd=tmp_path).stdout
    assert alone == mt("translate", "a b c", cwd=trained).stdout
    assert not [path for path in (tmp_path / "moved").rglob("*") if path.suffix in (".pt", ".pkl", ".pickle")]


TEST_FILES = ("--source", "test.en", "--reference", "test.xx")


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (TEST_FILES, "other.test"),
        *(
            (tuple(words.split()), "changed.test")
            for words in (
                *("--beam 1", "--length-penalty 0", "--metrics chrf", "--compute-type int8", "--sample", "--mbr 2"),
            )
        ),
    ],
    ids=str,
)
def test_other_texts_and_settings_do_not_replace_the_runs_own_scores(
    run: RunDir, tmp_path: Path, options: tuple[str, ...], name: str
) -> None:
    (tmp_path / "test.en").write_text("a b\n")
    (tmp_path / "test.xx").write_text("x\n")
    before = {path.name: path.read_bytes() for path in run.scores.iterdir()}
    mt("eval", "--model", "tiny", *options, cwd=tmp_path)
    after = {path.name: path.read_bytes() for path in run.scores.iterdir()}
    assert before.items() <= after.items()
    assert f"{name}.json" in after
    assert options != TEST_FILES or f"{name}.greedy" in after


def test_other_settings_do_not_replace_the_usual_scores_of_a_given_text(
    trained: Path, run: RunDir, tmp_path: Path
) -> None:
    text = ["--source", trained / "valid.en", "--reference", trained / "valid.xx"]
    mt("eval", "--model", "tiny", *text, cwd=tmp_path)
    assert (run.scores / "valid.beam").is_file()
    usual = (run.scores / "valid.json").read_bytes()
    mt("eval", "--model", "tiny", *text, "--beam", "1", cwd=tmp_path)
    assert (run.scores / "valid.json").read_bytes() == usual
    assert (run.scores / "changed.valid.json").is_file()


def test_eval_of_given_files_writes_into_the_output_folder(trained: Path, tmp_path: Path) -> None:
    shutil.copy(trained / "valid.en", tmp_path / "mine.en")
    shutil.copy(trained / "valid.xx", tmp_path / "mine.xx")
    mt("eval", "--source", tmp_path / "mine.en", "--reference", tmp_path / "mine.xx", "--output", tmp_path, cwd=trained)
    assert (tmp_path / "mine.beam").is_file()


def test_eval_replaces_files_only_by_force(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "test.source").write_text("mine\n")
    done = mt("eval", "--output", tmp_path, cwd=trained, code=2)
    assert "test.source exists" in done.stderr
    assert "translating" not in done.stderr
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine\n"]
    mt("eval", "--output", tmp_path, "--force", cwd=trained)
    assert len((tmp_path / "test.source").read_text().splitlines()) == 12


def test_an_impossible_folder_for_scores_is_refused_before_translation(trained: Path) -> None:
    done = mt("eval", "--output", "test.en", cwd=trained, code=2)
    assert "test.en is a file, not a folder" in done.stderr
    assert "translating" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("source", ["file", "pipe"])
def test_a_line_that_is_not_utf_8_loses_no_work(trained: Path, tmp_path: Path, source: str) -> None:
    (tmp_path / "in").write_bytes(b"a b\n" * 5 + b"\xff\n")
    if source == "file":
        done = mt("translate", "--input", tmp_path / "in", "--model", "nowhere", cwd=trained, code=2)
        assert "in:6: not valid UTF-8" in done.stderr
    else:
        done = mt("translate", cwd=trained, stdin=(tmp_path / "in").read_bytes(), code=2)
        assert "stdin:6: not valid UTF-8" in done.stderr
        assert len(done.stdout.splitlines()) == 5


def test_scores_are_written_though_the_pipe_is_closed(trained: Path, tmp_path: Path) -> None:
    in_bash(f"mt eval --output {tmp_path} | true", trained)
    assert (tmp_path / "test.json").is_file()


def test_scores_are_printed_though_they_cannot_be_written(run: RunDir, tmp_path: Path) -> None:
    shutil.rmtree(run.scores)
    run.scores.write_text("a file where the folder should be")
    done = mt("eval", "--model", "tiny", cwd=tmp_path, code=4)
    assert done.stdout.startswith("method")
    assert "cannot write here" in done.stderr


def test_an_output_that_is_not_a_regular_file(trained: Path, tmp_path: Path) -> None:
    said = mt("translate", "a b", "--output", tmp_path, cwd=trained, code=2).stderr
    assert f"--output {tmp_path}: this is a folder, not a file" in said
    said = mt("translate", "a b", "--output", tmp_path / "out.gz", cwd=trained, code=2).stderr
    assert "cannot be written compressed" in said
    os.mkfifo(tmp_path / "pipe")
    reader = subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE)
    mt("translate", "a b", "--output", tmp_path / "pipe", cwd=trained)
    assert reader.communicate()[0].decode() == mt("translate", "a b", cwd=trained).stdout
    assert (tmp_path / "pipe").is_fifo(), "it was replaced by a file"


@pytest.mark.parametrize("name", ["in", "link", "hard"])
def test_translate_does_not_overwrite_its_input(trained: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "in").write_text("a b\n")
    (tmp_path / "link").symlink_to("in")
    (tmp_path / "hard").hardlink_to(tmp_path / "in")
    said = mt("translate", "--input", tmp_path / "in", "--output", tmp_path / name, cwd=trained, code=2).stderr
    assert "this is an input" in said
    done = in_bash(f"mt translate --output {tmp_path / name} < {tmp_path / 'in'}", trained)
    assert (done.returncode, b"this is an input" in done.stderr) == (2, True)
    assert (tmp_path / "in").read_text() == (tmp_path / "hard").read_text() == "a b\n"


@pytest.mark.parametrize(
    ("source", "reference"), [("x.source", "y"), ("x.en", "x.greedy"), ("x.en", "x.json"), ("x.en", "link")]
)
def test_eval_does_not_overwrite_its_input(trained: Path, tmp_path: Path, source: str, reference: str) -> None:
    (tmp_path / "link").symlink_to("x.reference")
    for name in (source, reference):
        (tmp_path / name).write_bytes(b"a b\r\n")
    given = ["--source", tmp_path / source, "--reference", tmp_path / reference]
    done = mt("eval", *given, "--output", tmp_path, cwd=trained, code=2)
    assert "this is an input" in done.stderr
    assert done.stdout == ""
    assert {(tmp_path / name).read_bytes() for name in (source, reference)} == {b"a b\r\n"}


def test_an_output_that_is_a_link_stays_one(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "link.txt").symlink_to("real.txt")
    mt("translate", "a b", "--output", tmp_path / "link.txt", cwd=trained)
    mt("distill", "--input", "test.en", "--output", tmp_path / "link.txt", "--force", cwd=trained)
    assert (tmp_path / "link.txt").is_symlink()
    assert len((tmp_path / "real.txt").read_text().splitlines()) == 12


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_closed_stream_is_an_empty_one(trained: Path, closed: str) -> None:
    done = in_bash(f"mt translate {'a' if closed != '<&-' else ''} {closed}", trained)
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("words", ["translate --unknown", "runs show none --debug"])
def test_an_error_that_cannot_be_printed_keeps_its_exit_code(tmp_path: Path, words: str) -> None:
    assert in_bash(f"mt {words} 2> /dev/full", tmp_path).returncode == 2


@pytest.mark.slow
def test_a_log_that_cannot_be_written_does_not_end_training(tiny: Path) -> None:
    done = in_bash("mt train --config tiny.yaml --set training.max_steps=40 2> /dev/full", tiny)
    assert done.returncode == 0
    assert (tiny / "runs" / "tiny" / "model" / "MANIFEST.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        (["translate", "good", "caf\udce9"], b"", "argument 2: not valid UTF-8"),
        (["translate", "a", "--model", "nowhere"], b"", "nowhere"),
        (["translate", "a", "--model", "."], b"", "not a complete model folder"),
        (["translate", "a", "--model", "a" * 300], b"", "too long"),
        (["translate", "a", "--runs", "empty"], b"", "no finished run"),
        (["translate", "a", "--n-best", "9"], b"", "--n-best 9"),
        (["translate", "a", "--greedy", "--beam", "3"], b"", "--greedy"),
        (["translate", "a", "--input", "tiny.yaml"], b"", "--input"),
        (["translate", "a", "--format", "xml"], b"", "xml"),
        (["translate", "a", "--beam", "0"], b"", "--beam"),
        (["translate", "a", "--device", "tpu"], b"", "tpu"),
        (["translate", "--input", "missing.txt"], b"", "missing.txt"),
        (["translate"], b"good\nb\xe4d\n", "stdin:2"),
        (["eval", "--source", "test.en"], b"", "source and reference go together"),
        (["eval", "--source", "train.en", "--reference", "test.xx"], b"", "300 lines but test.xx has 12"),
        (["train"], b"", "--config"),
        (["train", "--config", "missing.yaml"], b"", "missing.yaml"),
        (["train", "--config", "tiny.yaml", "--set", "training.max_step=3"], b"", "max_steps"),
        (["train", "--config", "tiny.yaml", "--set", "model.n_heads=3"], b"", "n_heads"),
        (["train", "--config", "tiny.yaml", "--runs", "refused", "--set", "data.root=gone"], b"", "gone/train.en"),
        (["train", "--config", "tiny.yaml", "--runs", "refused", "--set", "data.train.target=test.xx"], b"", "300"),
        (["tarin"], b"", "tarin"),
    ],
)
def test_bad_input_is_one_readable_message_and_exit_2(
    trained: Path, arguments: list[str], stdin: bytes, message: str
) -> None:
    done = mt(*arguments, cwd=trained, stdin=stdin, code=2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr) < 1500
    assert done.stdout.count("\n") == stdin.count(b"good\n"), "lines before the bad one are translated"


def test_all_configuration_errors_come_at_once_with_their_lines(tiny: Path) -> None:
    text = (tiny / "tiny.yaml").read_text().replace("max_steps", "max_stepps")
    (tiny / "tiny.yaml").write_text(text.replace("vocab_size: 320", "vocab_size: many"))
    done = mt("train", "--config", "tiny.yaml", cwd=tiny, code=2)
    assert "tiny.yaml:9: tokenizer.vocab_size" in done.stderr
    assert "did you mean max_steps" in done.stderr
    assert "tiny.yaml:13" in done.stderr


def test_debug_shows_the_traceback_and_changes_nothing_else(tiny: Path) -> None:
    plain = mt("translate", "--model", "nope", "a b", cwd=tiny, code=2)
    done = mt("translate", "--model", "nope", "a b", "--debug", cwd=tiny, code=2)
    assert "Traceback" in done.stderr
    assert done.stderr.endswith(plain.stderr)


def test_a_full_disk_is_exit_4_and_nothing_is_lost(tiny: Path) -> None:
    disk = tiny / "runs"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=500k", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        changes = ["--set", "training.average_checkpoints=20", "--set", "training.final_weights=average"]
        done = mt("train", "--config", "tiny.yaml", *changes, cwd=tiny, code=4)
        assert "no space left" in done.stderr
        subprocess.run(["mount", "-o", "remount,size=100m", disk], check=True)
        resumed = mt("train", "--config", "tiny.yaml", *changes, cwd=tiny)
        assert "resuming after step" in resumed.stderr
    finally:
        subprocess.run(["umount", disk], check=True)


def test_an_unwritable_runs_folder_is_exit_4(tiny: Path) -> None:
    (tiny / "blocked").write_text("a file where a folder should be")
    done = mt("train", "--config", "tiny.yaml", "--runs", "blocked", cwd=tiny, code=4)
    assert "blocked" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_line_is_answered_before_the_next_and_ctrl_c_is_exit_130(trained: Path) -> None:
    command = [sys.executable, "-m", "mt", "translate", "--greedy"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=trained, **pipes) as process:
        for line in (b"a b c\n", b"d e\n"):
            process.stdin.write(line)
            process.stdin.flush()
            assert process.stdout.readline().endswith(b"\n")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert b"Traceback" not in process.stderr.read()
