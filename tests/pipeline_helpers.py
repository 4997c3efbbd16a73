"""Helpers of tests that run pipelines."""

import os
import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from command import Command, Done
from conftest import make_project
from data_helpers import write_lines
from mt.api.pipelines import read_plan
from mt.extras.pipelines.checks import check_plan
from mt.extras.pipelines.loading import load_pipeline
from mt.extras.pipelines.plan import Plan, make_plan
from mt.storage.manifest import sha256

FEW = "training.max_steps: 8, training.save_every: 4, training.validate_every: 4"
TEACHERS = f"""\
name: tiny-student
steps:
  student:
    train:
      config: tiny.yaml
      set:
        data.train:
          - {{source: train.en, target: train.xx}}
          - {{source: train.en, target: {{step: translated}}, synthetic: true}}
        training: {{max_steps: 8, save_every: 4, validate_every: 8, init_from: {{step: teacher_1}}}}
  teacher_1:
    train: {{config: tiny.yaml, set: {{seed: 1, {FEW}}}}}
  teacher_2:
    train: {{config: tiny.yaml, set: {{seed: 2, {FEW}}}}}
  translated:
    distill: {{model: [{{step: teacher_1}}, {{step: teacher_2}}], input: train.en, beam: 2, closest_to: train.xx}}
  final:
    eval: {{model: {{step: student}}, source: valid.en, reference: valid.xx}}
"""
# A reverse model, scores and a filter besides
WHOLE = (
    TEACHERS.replace("name: tiny-student", "name: whole").replace(
        "{source: train.en, target: {step: translated}, synthetic: true}",
        "{source: {step: kept, file: train.en}, target: {step: kept, file: train.xx}, synthetic: true}",
    )
    + f"""\
  reverse:
    train:
      config: tiny.yaml
      set:
        data:
          source_lang: xx
          target_lang: en
          train: {{source: train.xx, target: train.en}}
          valid: {{source: valid.xx, target: valid.en}}
          test: null
        {FEW.replace(", ", chr(10) + "        ")}
  sources:
    backtranslate: {{model: {{step: reverse}}, input: train.xx, sample: true, seed: 3}}
  scores:
    score:
      config: tiny.yaml
      forward: {{step: teacher_1}}
      backward: {{step: reverse}}
  kept:
    clean:
      config: tiny.yaml
      scores: {{step: scores}}
      keep_share: 0.5
      keep: [wrong-language]  # the text is made up
  fast:
    export: {{model: {{step: student}}, format: ctranslate2, quantization: int8, max_loss: 100}}
"""
)
REVERSE = (
    "reverse: {train: {config: tiny.yaml, set: {data: {source_lang: xx, target_lang: en, "
    "train: {source: train.xx, target: train.en}, valid: {source: valid.xx, target: valid.en}, test: null}}}}"
)
# Values of a configuration with two target languages
TWO = (
    "data: {source_lang: en, target_lang: [xx, yy], train: [{source: train.en, target: train.xx, target_lang: xx}, "
    "{source: train.en, target: other.yy, target_lang: yy}], valid: {source: valid.en, target: valid.xx, "
    "target_lang: xx}, test: null}"
)


def make_pipeline(folder: Path, text: str = TEACHERS) -> Path:
    """Write a tiny corpus, its configuration and a pipeline."""
    make_project(folder)
    (folder / "pipeline.yaml").write_text(text)
    return folder


def plan_of(folder: Path, text: str, *overrides: str) -> Plan:
    """Write a pipeline, and return its checked plan."""
    (folder / "pipeline.yaml").write_text(text)
    return read_plan(folder / "pipeline.yaml", [f"root={folder}", *overrides], folder / "runs")


def check_steps(folder: Path, values: str, steps: Sequence[str]) -> None:
    """Check a pipeline of a model m with some values of its configuration, and further steps."""
    lines = [f"m: {{train: {{config: tiny.yaml, set: {{{values}}}}}}}", *steps]
    (folder / "pipeline.yaml").write_text("\n  ".join(["name: unfit\nsteps:", *lines]))
    write_lines(folder / "other.yy", (folder / "train.xx").read_text().splitlines())
    check_plan(make_plan(load_pipeline(folder / "pipeline.yaml", [f"root={folder}"]), folder / "runs"))


def run(folder: Path, *words: str, code: int | None = 0, **environment: str) -> Done:
    done = Command("train", "--config", "pipeline.yaml", *words, cwd=folder, **environment).wait(timeout=1800)
    assert code is None or done.code == code, f"exit {done.code}\n{done.stdout}\n{done.stderr}"
    return done


def products(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of all models and texts that a pipeline has written."""
    names = ("model/model.safetensors", "translations.txt", "train.??", "scores.tsv", "eval/test.beam", "valid.beam")
    runs = folder / "runs"
    paths = [path for name in (*names, "model.bin") for path in runs.glob(f"*/*/{name}")]
    return {path.relative_to(runs).as_posix(): sha256(path) for path in paths}


def commands_of(process: int) -> list[int]:
    """Return the ids of the `mt` commands that a process has started."""
    children = Path(f"/proc/{process}/task").glob("*/children")
    numbers = [number for path in children for number in path.read_text().split()]
    # Not the helper process of multiprocessing, whose death changes nothing.
    return [int(number) for number in numbers if b"-m\0mt\0" in Path(f"/proc/{number}/cmdline").read_bytes()]


def run_with_kills(folder: Path, kills: int, seed: int, longest: float) -> int:
    """Run a pipeline to its end, killing it or one of its commands at random moments; return the number of kills."""
    rng, killed = random.Random(seed), 0
    while killed < kills:
        command = Command("train", "--config", "pipeline.yaml", "--jobs", "2", cwd=folder)
        deadline = time.monotonic() + rng.uniform(0.5, longest)
        while time.monotonic() < deadline and command.process.exitcode is None:
            time.sleep(0.02)
        if command.process.exitcode is not None:
            done = command.wait()
            assert done.code == 0, done.stderr
            break
        killed += 1
        assert command.process.pid is not None
        children = commands_of(command.process.pid)
        if children and rng.random() < 0.3:
            try:
                os.kill(rng.choice(children), signal.SIGKILL)
            except ProcessLookupError:  # it has ended meanwhile
                killed -= 1
            assert command.wait(timeout=1800).code in (0, 137)  # 0: it had ended before
        else:
            command.signal(signal.SIGKILL)
            command.wait()
    run(folder, "--jobs", "2")
    return killed
