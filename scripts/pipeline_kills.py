"""Runs a pipeline twice, the second time with kills, and compares the files that the two runs have made.

    python scripts/pipeline_kills.py configs/pipelines/student.yaml --kills 20 --jobs 2 --set root=FOLDER

The second run is killed with SIGKILL, two times of three the pipeline itself and else one of its commands, at random
moments within the steps that were targeted least often so far, and started again with the same command. At the end all
files but those with times must have the same SHA-256. The last step gets the kills that remain, so there are fewer only
if it ends too early.
"""

import argparse
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from mt.storage.manifest import sha256

# Files and folders with times in them; models, checkpoints' tensors, encoded text, translations and scores have none.
TIMES = {"metrics.jsonl", "report.html", "train.log", "state.json", "test.json", "precision.json", "scores.json"}
TIMES |= {"MANIFEST.json", "README.md", ".lock", "valid.json"}
FOLDERS = {".pipeline", "tensorboard"}
POLL = 0.2  # seconds


class Pipeline:
    """A pipeline's command, whose runs are in one folder."""

    def __init__(self, words: list[str], runs: Path) -> None:
        self.words = [sys.executable, "-m", "mt", "train", "--runs", str(runs), *words]
        self.log = runs / "log"
        runs.mkdir(parents=True)

    def start(self) -> None:
        """Start the command, in a log of its own."""
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(self.words, stdout=log, stderr=log)

    def running(self) -> list[str]:
        """Return the steps that run now, as the log of this start says."""
        text = self.log.read_text(errors="replace")
        started, ended = (re.findall(rf"^[\d:]+ (\w+): {what} ", text, re.M) for what in ("mt", "done in"))
        return [name for name in started if name not in ended]

    def finish(self) -> None:
        if code := self.process.wait():
            raise SystemExit(f"the pipeline ended with exit code {code}; see {self.log}")

    def durations(self) -> dict[str, float]:
        """Watch the command to its end; return the seconds that each step has run."""
        seconds = Counter[str]()
        while self.process.poll() is None:
            time.sleep(POLL)
            seconds.update(dict.fromkeys(self.running(), POLL))
        self.finish()
        return dict(seconds)

    def commands(self) -> list[int]:
        """Return the processes of the steps that run now."""
        children = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        numbers = [number for path in children for number in path.read_text().split()]
        return [int(number) for number in numbers if b"-m\0mt\0" in Path(f"/proc/{number}/cmdline").read_bytes()]

    def kill(self, pipeline_itself: bool, rng: random.Random) -> None:
        """Kill the pipeline, or one of its commands, after which it ends by itself."""
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # a command has just ended
            commands = [] if pipeline_itself else self.commands()
            os.kill(rng.choice(commands) if commands else self.process.pid, signal.SIGKILL)
        self.process.wait()


def run_with_kills(pipeline: Pipeline, durations: dict[str, float], kills: int, rng: random.Random) -> Counter[str]:
    """Run a pipeline to its end and kill it that often on the way; return how often each step was killed."""
    killed, aimed, made = Counter(dict.fromkeys(durations, 0)), Counter[str](), 0
    quotas: dict[str, int] = {}
    pipeline.start()
    while made < kills and pipeline.process.poll() is None:
        time.sleep(POLL)
        for name in pipeline.running():
            if name not in quotas:  # an equal share of the kills that remain for this step and each one still to run
                quotas[name] = -(-(kills - made) // (len(durations) - len(quotas)))
        targets = [name for name in pipeline.running() if aimed[name] < quotas[name]]
        if not targets:
            continue
        target = min(targets, key=aimed.__getitem__)
        deadline = time.monotonic() + rng.uniform(0, durations[target] / 2)
        while time.monotonic() < deadline and target in pipeline.running() and pipeline.process.poll() is None:
            time.sleep(POLL)
        if pipeline.process.poll() is None:
            running, made = pipeline.running(), made + 1
            aimed[target] += 1
            pipeline.kill(made % 3 > 0, rng)
            killed.update(running)
            print(f"kill {made}: {', '.join(running) or 'between two steps'}", flush=True)
            pipeline.start()
    pipeline.finish()
    return killed


def products(runs: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of the steps."""
    files = [path for path in runs.glob("*/*/**/*") if path.is_file() and FOLDERS.isdisjoint(path.parts)]
    return {path.relative_to(runs).as_posix(): sha256(path) for path in files if path.name not in TIMES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pipeline", type=Path)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--jobs", default="1")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as of mt train")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path("runs/pipeline-kills"), help="a new folder")
    arguments = parser.parse_args()
    words = ["--config", str(arguments.pipeline), "--jobs", arguments.jobs]
    words += [word for value in arguments.set for word in ("--set", value)]
    undisturbed = Pipeline(words, arguments.work / "runs")
    undisturbed.start()
    durations = undisturbed.durations()
    first = products(arguments.work / "runs")
    (arguments.work / "runs").rename(arguments.work / "whole")  # the second run must have the same path
    print("seconds:", ", ".join(f"{name} {value:.0f}" for name, value in durations.items()), flush=True)
    rng = random.Random(arguments.seed)
    killed = run_with_kills(Pipeline(words, arguments.work / "runs"), durations, arguments.kills, rng)
    print("kills:", ", ".join(f"{name} {count}" for name, count in killed.items()))
    second = products(arguments.work / "runs")
    different = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
    print(f"{len(first)} files, different: {len(different)}", *different, sep="\n")
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
