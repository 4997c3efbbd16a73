"""The scripts behind the documented tables."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

SCRIPTS = Path(__file__).parents[2] / "scripts"


def script(name: str, *arguments: object, cwd: Path) -> str:
    command = [sys.executable, str(SCRIPTS / name), *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout


def test_names_that_scripts_import_exist() -> None:
    for path in SCRIPTS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "mt":
                exec(ast.unparse(node), {})


@pytest.mark.slow
def test_experiments_are_trained_without_a_test_set_and_laid_out_in_a_table(tiny: Path) -> None:
    listed = [{"name": "plain"}, {"name": "wider", "set": ["model.d_ff=64"]}]
    experiments = {"base": "tiny.yaml", "set": ["training.max_steps=8"], "experiments": listed}

    def write(**changes: object) -> None:
        (tiny / "list.yaml").write_text(yaml.safe_dump({**experiments, **changes}))

    def refused() -> subprocess.CalledProcessError:
        with pytest.raises(subprocess.CalledProcessError) as error:
            script("experiments.py", "list.yaml", cwd=tiny)
        return error.value

    write(experiments=[*listed, {"name": "impossible", "set": ["model.n_heads=5"]}])
    failed = refused()
    assert failed.returncode == 1
    assert "impossible: failed" in failed.stderr
    assert len(failed.stdout.splitlines()) == 4  # the other two have their rows
    write()
    table = script("experiments.py", "list.yaml", "--table", "table.md", cwd=tiny)
    assert table == (tiny / "table.md").read_text()
    rows = [line.split(" | ") for line in table.splitlines()[2:]]
    assert [(row[0], "model.d_ff=64" in row[-1]) for row in rows] == [("| plain", False), ("| wider", True)]
    for row, name in zip(rows, ("plain", "wider"), strict=True):
        run = tiny / "runs" / "experiments" / name
        manifest = json.loads((run / "model" / "MANIFEST.json").read_text())
        assert manifest["test"] == []
        assert float((run.parent / f"{name}.minutes").read_text()) > 0
        events = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        best = max(event["bleu"] for event in events if event["event"] == "validation")
        assert row[1:3] == [f"{best:.2f}", f"{manifest['formats'][0]['valid_bleu']:.2f}"]
    times = {path: path.stat().st_mtime_ns for path in tiny.rglob("metrics.jsonl")}
    assert script("experiments.py", "list.yaml", cwd=tiny) == table, "finished experiments are not trained again"
    assert times == {path: path.stat().st_mtime_ns for path in tiny.rglob("metrics.jsonl")}

    # A kill may leave a truncated line and no time; results of other settings are not shown.
    with (tiny / "runs" / "experiments" / "plain" / "metrics.jsonl").open("a", encoding="utf-8") as metrics:
        metrics.write('{"event": "validation", "bleu": 1\u20282')
    (tiny / "runs" / "experiments" / "plain.minutes").unlink()
    assert "| nan |" in script("experiments.py", "list.yaml", cwd=tiny)
    write(set=["training.max_steps=9"])
    assert "plain: was trained with other settings" in refused().stderr
    write()
    with (tiny / "tiny.yaml").open("a") as base:
        base.write("# another content under the same name\n")
    assert "plain: was trained with other settings than the file or tiny.yaml has now" in refused().stderr


@pytest.mark.slow
def test_experiments_of_some_minutes_have_the_steps_that_take_them(tiny: Path) -> None:
    (tiny / "list.yaml").write_text("{base: tiny.yaml, minutes: 60, experiments: [{name: plain, minutes: 0.01}]}")
    row = script("experiments.py", "list.yaml", cwd=tiny).splitlines()[-1].split(" | ")
    runs = tiny / "runs" / "experiments"
    steps = round(0.6 / float((runs / "plain.seconds").read_text()))
    assert row[4] == f"{steps:,}"
    config = yaml.safe_load((runs / "plain" / "config.yaml").read_text())["training"]
    assert config["warmup_steps"] == steps // 8
    assert config["ema_decay"] == round(1 - 12 / steps, 5)
    (tiny / "list.yaml").write_text("{base: tiny.yaml, minutes: 0.02, experiments: [{name: plain}]}")
    with pytest.raises(subprocess.CalledProcessError) as error:
        script("experiments.py", "list.yaml", cwd=tiny)
    assert "plain: was trained with other settings" in error.value.stderr


def test_a_slurm_job_has_all_cores_and_a_process_for_each_gpu(tmp_path: Path) -> None:
    for name, line in {"scontrol": "echo first", "srun": 'echo "$SRUN_CPUS_PER_TASK" "$@"'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    job = {"SLURM_JOB_NODELIST": "nodes", "SLURM_NNODES": "2", "SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "16"}
    gpus = {"SLURM_GPUS_PER_NODE": "a100:4", "SLURM_GPUS_ON_NODE": "4"}
    environment = os.environ | job | gpus | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    command = ["bash", str(SCRIPTS / "slurm.sh"), "mine.yaml"]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.startswith("16 torchrun --nnodes 2 --nproc-per-node 4 ")


def test_tokenised_bleu_is_that_of_moses(tmp_path: Path) -> None:
    pytest.importorskip("sacremoses")
    sys.path.insert(0, str(SCRIPTS))
    from score_multi30k import moses_tokens, paper_bleu

    german = "Ein Mann, der „Hallo“ sagt, trägt ein T-Shirt."
    assert moses_tokens([german], "de") == ["ein mann , der &quot; hallo &quot; sagt , trägt ein t-shirt ."]
    french = "Un homme d'affaires s'assoit à l'ombre."
    assert moses_tokens([french], "fr") == ["un homme d&apos; affaires s&apos; assoit à l&apos; ombre ."]
    assert paper_bleu([french.upper()], [french], "fr") == pytest.approx(100)


def test_a_curve_leaves_out_the_pause_between_two_sessions(tmp_path: Path) -> None:
    sys.path.insert(0, str(SCRIPTS))
    from time_to_quality import curve, read_points

    # Step, time and BLEU. What a crash lost (step 30, BLEU 9) is left out, its time is not; one line is truncated.
    events = """start 0 0 0, validation 10 60 1, train 15 90 0, resume 10 1000 0, validation 20 1030 2,
        validation 30 1060 9, truncated, resume 20 2000 0, validation 30 2060 3"""
    lines = []
    for words in map(str.split, events.split(",")):
        numbers = dict(zip(("step", "time", "bleu"), map(int, words[1:]), strict=False))
        event = {"event": words[0], **numbers, "samples": ["a\u2028b"]}
        lines.append(json.dumps(event, ensure_ascii=False) if numbers else '{"event": "train", "st')
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert curve(tmp_path) == [(1.0, 1), (2.0, 2), (3.5, 3)]
    assert read_points("a=5:5.8,10:8.1") == ("a", [(5.0, 5.8), (10.0, 8.1)])


@pytest.mark.slow
def test_a_large_corpus_is_measured(tmp_path: Path) -> None:
    found = script("bench/corpus.py", "--millions", 0.001, 0.002, "--folder", tmp_path, cwd=tmp_path).splitlines()
    assert [row.split()[0] for row in found[:3]] == ["pairs", "900", "1,800"]  # a tenth is held out to test on
    assert found[3].startswith("peak memory at 1,800 pairs: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_decoding_is_measured_and_scored(trained: Path) -> None:
    text = ["--source", trained / "valid.en", "--reference", trained / "valid.xx"]
    few = ["--rounds", 1, "--sentences", 4, "--singles", 2, "--threads", 1, "--only", "mt torch", "mt int8"]
    found = script("bench/decoding.py", "--model", trained / "runs" / "tiny" / "model", *text, *few, cwd=trained)
    rows = [line.split(" | ") for line in found.splitlines() if line.startswith("| mt ")]
    assert {row[0] for row in rows} == {"| mt torch", "| mt int8"}
    assert all(0 <= float(row[5]) <= 100 for row in rows)


@pytest.mark.slow
def test_the_doctor_is_measured(tmp_path: Path) -> None:
    found = script("bench/doctor.py", "--pairs", 2000, "--folder", tmp_path, cwd=tmp_path).splitlines()
    assert found[1].split()[0] == "4,000"  # 1,000 each of validation and test beside them
    assert list(tmp_path.iterdir()) == []


def test_growth_is_that_after_a_process_has_settled() -> None:
    from soak import SETTLED, Usage

    usage = Usage([(SETTLED + 36 * n, 100 + 0.02 * n, 7) for n in range(10)])
    usage.sample(0, SETTLED - 1)  # not looked at, or there would be an error: no process has this number
    assert (round(usage.slope(1), 6), usage.slope(2), usage.peak(2)) == (2.0, 0.0, 7)


@pytest.mark.slow
def test_a_soaked_training_ends_in_the_weights_of_an_undisturbed_one(tmp_path: Path) -> None:
    printed = script("soak.py", "--minutes", 2, "--every", 20, 40, "--runs", tmp_path / "soak", cwd=tmp_path)
    assert printed.splitlines()[-1].endswith("the same without a kill")
    assert "elsewhere than at the newest checkpoint: 0" in printed
    assert "left at the end: 0" in printed
