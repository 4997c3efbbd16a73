"""Trains in processes that are killed every 30 to 90 seconds, and reports what that costs.

    python scripts/soak.py --minutes 60

It trains a small model on the built-in phrasebook. Each process is killed with SIGKILL at a time drawn by chance and
started again with the same command; after the time given the last one is asked to stop. The report says how many steps
were lost to the kills and which temporary files were left. At the end the same number of steps is trained once without
a kill: the weights must be the same, bit for bit, and this long run shows whether memory or open files grow.
"""

import argparse
import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from mt.extras.reporting.run_data import parse_events
from mt.storage import atomic
from mt.storage.manifest import sha256, verify
from mt.storage.run_dir import CheckpointDir, RunDir

CONFIG = """\
name: {name}
data:
  source_lang: en
  target_lang: it
  train: {{builtin: phrasebook, split: train}}
  valid: {{from_train: 100}}
  test: null
tokenizer: {{vocab_size: 1000}}
model: {{d_model: 64, n_heads: 4, d_ff: 128, encoder_layers: 2, decoder_layers: 2, norm: pre}}
training:
  max_tokens: 1024
  max_steps: {max_steps}
  learning_rate: 3.0e-3
  warmup_steps: 200
  schedule: inverse_sqrt
  ema_decay: 0.999
  validate_every: 1000
  save_every: 100
  log_every: 1
"""
SETTLED = 15.0  # seconds until a process has the memory and files that it needs


@dataclass
class Usage:
    """Memory and files of a settled process over time: (seconds since its start, resident MB, open files)."""

    samples: list[tuple[float, float, int]] = field(default_factory=list)

    def sample(self, pid: int, spent: float) -> None:
        if spent < SETTLED:
            return
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        files = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
        self.samples.append((spent, pages * os.sysconf("SC_PAGE_SIZE") / 1e6, files))

    def peak(self, column: int) -> float:
        return max((sample[column] for sample in self.samples), default=0)

    def slope(self, column: int) -> float:
        """Return the growth an hour: the slope of a least-squares line."""
        if len(self.samples) < 2:
            return 0.0
        times, values = [s[0] for s in self.samples], [float(s[column]) for s in self.samples]
        return 3600 * statistics.linear_regression(times, values).slope


@dataclass
class Life:
    """One process from start to end.

    Attributes:
        usage: its memory and open files while it trains.
        resumed: the step that it resumed from.
        reached: the last step that it trained.
        saved: the newest checkpoint that it left.
    """

    usage: Usage = field(default_factory=Usage)
    resumed: int = 0
    reached: int = 0
    saved: int = 0

    @property
    def lost(self) -> int:
        return self.reached - self.saved


def start(config: Path, runs: Path) -> subprocess.Popen[bytes]:
    """Start the command under test, which writes to soak.log."""
    words = [sys.executable, "-m", "mt", "train", "--config", str(config), "--runs", str(runs)]
    with (runs / "soak.log").open("ab") as log:
        return subprocess.Popen(words, stdout=log, stderr=log)


def live(config: Path, run: RunDir, seconds: float, last: bool) -> Life:
    """Start the command, let it work for a while, and kill it, or ask the last one to stop."""
    life = Life()
    process = start(config, run.root.parent)
    started = time.monotonic()
    while (spent := time.monotonic() - started) < seconds:
        time.sleep(0.5)
        if process.poll() is not None:
            raise SystemExit(f"it ended by itself with exit code {process.returncode}; see {run.root.parent}/soak.log")
        life.usage.sample(process.pid, spent)
    process.send_signal(signal.SIGTERM if last else signal.SIGKILL)
    code = process.wait()
    # Before the training starts, SIGTERM ends the process as it ends any program.
    if code not in ((143, -signal.SIGTERM) if last else (-signal.SIGKILL,)):
        raise SystemExit(f"exit code {code} where a signal was sent; see {run.root.parent}/soak.log")
    events = _events(run)
    first = max((i for i, event in enumerate(events) if event["event"] in ("start", "resume")), default=0)
    life.resumed = events[first]["step"] if events else 0
    life.reached = max((event["step"] for event in events[first:]), default=0)
    life.saved = max(_checkpoint_steps(run), default=0)
    return life


def _events(run: RunDir) -> list[dict[str, Any]]:
    return list(parse_events(run.metrics.read_text(encoding="utf-8", errors="replace"))) if run.metrics.exists() else []


def _checkpoint_steps(run: RunDir) -> list[int]:
    steps = []
    for folder in run.checkpoints.glob("step-*"):
        verify(folder)  # a checkpoint must be complete, or absent
        steps.append(int(folder.name.removeprefix("step-")))
    return steps


def strays(run: RunDir) -> list[str]:
    """Return the temporary files that a run has left."""
    return [str(path.relative_to(run.root)) for path in run.root.rglob(f"*{atomic.PARTIAL}*")]


def undisturbed(config: Path, runs: Path) -> Usage:
    """Train to the end without a kill."""
    usage, process, started = Usage(), start(config, runs), time.monotonic()
    while process.poll() is None:
        with contextlib.suppress(FileNotFoundError):  # it has just ended
            usage.sample(process.pid, time.monotonic() - started)
        time.sleep(1)
    if process.returncode:
        raise SystemExit(f"the undisturbed training ended with exit code {process.returncode}; see {runs}/soak.log")
    return usage


def report(lives: Sequence[Life], left: Sequence[str]) -> str:
    """Return the results, one fact a line."""
    killed = lives[:-1]
    lost = [life.lost for life in killed]
    wrong = sum(later.resumed != earlier.saved for earlier, later in pairwise(lives) if later.resumed)
    lines = [
        f"kills: {len(killed)}, of them before the first checkpoint: {sum(life.saved == 0 for life in killed)}",
        f"steps: {lives[-1].saved:,} at the end; {sum(lost):,} done again, at most {max(lost, default=0)} after a kill",
        f"processes that went on elsewhere than at the newest checkpoint: {wrong}",
        f"memory: {max(life.usage.peak(1) for life in lives):.0f} MB at most",
        f"open files: {max(life.usage.peak(2) for life in lives)} at most",
        f"temporaries left at the end: {len(left)} {' '.join(left)}".rstrip(),
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--every", type=float, nargs=2, default=(30, 90), metavar="SECONDS", help="between two kills")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=Path, default=Path("runs/soak"), help="an empty folder to work in")
    parser.add_argument("--no-comparison", action="store_true", help="do not train once more without kills")
    arguments = parser.parse_args()
    arguments.runs.mkdir(parents=True, exist_ok=True)
    if any(arguments.runs.iterdir()):
        parser.error(f"{arguments.runs} is not empty")
    run, config = RunDir(arguments.runs / "soaked"), arguments.runs / "soaked.yaml"
    config.write_text(CONFIG.format(name="soaked", max_steps=10**8))
    rng = random.Random(arguments.seed)
    lives: list[Life] = []
    end = time.monotonic() + 60 * arguments.minutes
    while (left := end - time.monotonic()) > 0 or not lives:
        seconds = rng.uniform(*arguments.every)
        last = seconds >= left
        lives.append(live(config, run, max(left, arguments.every[0]) if last else seconds, last))
        print(f"process {len(lives)}: from step {lives[-1].resumed} to {lives[-1].reached}, saved {lives[-1].saved}")
        if last:
            break
    print(report(lives, strays(run)))
    if arguments.no_comparison:
        return
    steps = lives[-1].saved
    if steps == 0:
        raise SystemExit("no process lived long enough to save a checkpoint; give them more time with --every")
    config.write_text(CONFIG.format(name="undisturbed", max_steps=steps))
    sys.exit(not compare(undisturbed(config, arguments.runs), arguments.runs, steps))


def compare(usage: Usage, runs: Path, steps: int) -> bool:
    """Print the undisturbed training's usage, and whether it ended with the same weights as the soaked one."""
    span = usage.samples[-1][0] - usage.samples[0][0] if usage.samples else 0.0
    print(
        f"without a kill, over {span / 60:.0f} minutes: memory {usage.peak(1):.0f} MB at most, slope "
        f"{usage.slope(1):+.1f} MB an hour; open files {usage.peak(2)} at most, slope {usage.slope(2):+.2f} an hour"
    )
    pair = [CheckpointDir(RunDir(runs / name).checkpoint(steps)) for name in ("soaked", "undisturbed")]
    soaked, undisturbed = (sha256(checkpoint.weights) + sha256(checkpoint.average) for checkpoint in pair)
    print(f"weights after {steps:,} steps: {'the same' if soaked == undisturbed else 'DIFFERENT'} without a kill")
    return soaked == undisturbed


if __name__ == "__main__":
    main()
