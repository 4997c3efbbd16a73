"""Trains a list of variations of a configuration one after another, and prints a table of what each reached.

    python scripts/experiments.py FILE [--jobs 2] [--runs FOLDER] [--table FILE]

FILE is YAML: a base configuration, settings for all experiments, and a list of experiments, each with a name and the
settings that set it apart:

    base: configs/multi30k_en_de_plain.yaml
    set: [training.max_steps=2000]
    experiments:
      - {name: baseline}
      - {name: more-dropout, set: [model.dropout=0.3]}

With `minutes: 10` in the file, or in one of its experiments, each trains for the number of steps that takes 10 minutes,
validations not included. It times a few steps first (`mt train --dry-run`). Warm-up, moving average and validations
follow the number of steps, whatever the file says about them.

No experiment sees a test set: `data.test` is null in all of them. The table has BLEU on the validation set (greedy, the
best of the training; beam search, of the finished model), the time in CPU minutes, which other work on the machine
changes least, and the settings. Each experiment is an ordinary run; started again, the script skips finished ones and
resumes the others, but refuses to if the file or the base has other settings than a run was started with. With
`--jobs` above 1 each gets one thread. The exit code is 1 if an experiment failed.
"""

import argparse
import hashlib
import json
import math
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mt.extras.reporting.run_data import parse_events
from mt.storage.run_dir import RunDir


@dataclass(frozen=True)
class Experiment:
    """One variation."""

    name: str
    base: str
    settings: list[str]
    minutes: float | None = None  # of training steps, instead of their number


def read_experiments(path: Path) -> list[Experiment]:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    shared = content.get("set", [])
    return [
        Experiment(
            str(entry["name"]),
            entry["base"] if "base" in entry else content["base"],
            [*shared, *entry.get("set", [])],
            entry.get("minutes", content.get("minutes")),
        )
        for entry in content["experiments"]
    ]


def train(experiment: Experiment, runs: Path, one_thread: bool) -> bool:
    """Train an experiment to its end; its CPU time is summed over interruptions in a file beside its run.

    Returns:
        whether it got there.
    """
    command = [sys.executable, "-m", "mt", "train", "--config", experiment.base, "--runs", str(runs)]
    environment = {**os.environ, **({"OMP_NUM_THREADS": "1"} if one_thread else {})}
    runs.mkdir(parents=True, exist_ok=True)
    changes = [*_changes(experiment), *_length(experiment, runs, command, environment)]
    if not (runs / experiment.name).exists():
        _settings(experiment, runs).write_text(_identity(experiment))
    with (runs / f"{experiment.name}.log").open("ab") as log:
        arguments = [part for change in changes for part in ("--set", change)]
        process = subprocess.Popen([*command, *arguments], stderr=log, stdout=log, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
    minutes = runs / f"{experiment.name}.minutes"
    spent = float(minutes.read_text()) if minutes.exists() else 0.0
    minutes.write_text(str(spent + (usage.ru_utime + usage.ru_stime) / 60))
    if status:
        print(f"{experiment.name}: failed; see {runs / experiment.name}.log", file=sys.stderr)
    return not status


def _changes(experiment: Experiment) -> list[str]:
    return [*experiment.settings, "data.test=null", f"name={experiment.name}"]


def _length(experiment: Experiment, runs: Path, command: list[str], environment: dict[str, str]) -> list[str]:
    """Return the settings of a training of `minutes`; the step time is kept in a file, for a run that resumes."""
    if experiment.minutes is None:
        return []
    note = runs / f"{experiment.name}.seconds"
    if not note.exists():
        arguments = [part for change in _changes(experiment) for part in ("--set", change)]
        dry = subprocess.run([*command, *arguments, "--dry-run"], capture_output=True, text=True, env=environment)
        found = re.search(r"([\d.,]+) s a step", dry.stdout + dry.stderr)
        if not found:
            sys.exit(f"{experiment.name}: no time of a step in: {dry.stdout + dry.stderr}")
        note.write_text(found[1].replace(",", ""))
    steps = round(60 * experiment.minutes / float(note.read_text()))
    if steps < 13:  # else the average would have no decay
        sys.exit(f"{experiment.name}: {steps} steps in {experiment.minutes} minutes are too few")
    lengths = {"max_steps": steps, "warmup_steps": steps // 8, "validate_every": -(-steps // 4)}
    if not any("ema_decay" in change for change in experiment.settings):
        lengths["ema_decay"] = round(1 - 12 / steps, 5)
    return [f"training.{key}={value}" for key, value in lengths.items()]


def _settings(experiment: Experiment, runs: Path) -> Path:
    return runs / f"{experiment.name}.settings"


def _identity(experiment: Experiment) -> str:
    """Return what identifies a run: its settings and the content of the base, which may change under its name."""
    content = hashlib.sha256(Path(experiment.base).read_bytes()).hexdigest()
    minutes = [] if experiment.minutes is None else [f"minutes={experiment.minutes}"]
    return json.dumps([experiment.base, content, *minutes, *_changes(experiment)])


def refuse_other_settings(experiment: Experiment, runs: Path) -> None:
    """Exit if a run was started with other settings, which a table must not show beside these."""
    note = _settings(experiment, runs)
    if not (runs / experiment.name).exists():  # it never started, as its settings were refused
        return
    if note.exists() and note.read_text() != _identity(experiment):
        sys.exit(
            f"{runs / experiment.name}: was trained with other settings than the file or {experiment.base} has now; "
            f"give the experiment another name, or remove that folder and {note}"
        )


def result(experiment: Experiment, runs: Path) -> dict[str, Any] | None:
    """Return the figures of a finished experiment; None if it has not finished."""
    run = RunDir(runs / experiment.name)
    if not run.model.manifest.exists():
        return None
    events = parse_events(run.metrics.read_text(encoding="utf-8", errors="replace"))
    facts = json.loads(run.model.manifest.read_text())
    minutes = runs / f"{experiment.name}.minutes"
    return {
        "greedy": max(event["bleu"] for event in events if event["event"] == "validation"),
        "beam": facts["formats"][0]["valid_bleu"] if facts["formats"] else math.nan,  # CTranslate2 has not all models
        "minutes": float(minutes.read_text()) if minutes.exists() else math.nan,
        "steps": facts["steps"],
    }


def table(experiments: list[Experiment], runs: Path) -> str:
    lines = [
        "| experiment | valid BLEU, greedy | beam | CPU minutes | steps | settings |",
        "|---|---|---|---|---|---|",
    ]
    for experiment in experiments:
        found = result(experiment, runs)
        if found:
            numbers = f"{found['greedy']:.2f} | {found['beam']:.2f} | {found['minutes']:.0f} | {found['steps']:,}"
            lines.append(f"| {experiment.name} | {numbers} | {', '.join(experiment.settings)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="the list of experiments")
    parser.add_argument("--jobs", type=int, default=1, help="experiments at a time")
    parser.add_argument("--runs", type=Path, default=Path("runs/experiments"), help="where their run folders go")
    parser.add_argument("--table", type=Path, help="write the table to this file, too")
    arguments = parser.parse_args()
    experiments = read_experiments(arguments.file)
    for experiment in experiments:
        refuse_other_settings(experiment, arguments.runs)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        todo = [e for e in experiments if result(e, arguments.runs) is None]
        ended = list(pool.map(lambda e: train(e, arguments.runs, arguments.jobs > 1), todo))
    text = table(experiments, arguments.runs)
    print(text)
    if arguments.table:
        arguments.table.write_text(text + "\n", encoding="utf-8")
    sys.exit(not all(ended))


if __name__ == "__main__":
    main()
