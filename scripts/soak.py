"""Trains under fire: a process killed every 30 to 90 seconds, and what that cost.

    python scripts/soak.py --minutes 60

It trains a small model on the built-in phrasebook. Each process is killed with SIGKILL at a time drawn by chance and
started again with the same command; after the time given the last one is asked to stop. The report says how many steps
were lost to the kills, whether memory or open files grew within processes, and what was left lying about. At the end
the same number of steps is trained once without a kill: the weights must be the same, bit for bit.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from mt import storage
from mt.run_dir import CheckpointDir, RunDir

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
SETTLED = 15.0  # seconds after which a process has what it needs


@dataclass
class Life:
    """One process from start to end.

    Attributes:
        samples: (seconds since its start, resident MB, open files) while it trains.
        resumed: the step it went on from.
        reached: the last step it did.
        saved: the newest checkpoint that it left.
    """

    samples: list[tuple[float, float, int]] = field(default_factory=list)
    resumed: int = 0
    reached: int = 0
    saved: int = 0

    @property
    def lost(self) -> int:
        return self.reached - self.saved


def live(config: Path, run: RunDir, seconds: float, last: bool) -> Life:
    """Starts the command, lets it work for a while, and kills it, or asks the last one to stop."""
    life = Life()
    with (run.root.parent / "soak.log").open("ab") as log:
        words = [sys.executable, "-m", "mt", "train", "--config", str(config), "--runs", str(run.root.parent)]
        process = subprocess.Popen(words, stdout=log, stderr=log)
    started = time.monotonic()
    while (spent := time.monotonic() - started) < seconds:
        time.sleep(0.5)
        if process.poll() is not None:
            raise SystemExit(f"it ended by itself with exit code {process.returncode}; see {run.root.parent}/soak.log")
        if spent > SETTLED:
            life.samples.append((spent, *_usage(process.pid)))
    process.send_signal(signal.SIGTERM if last else signal.SIGKILL)
    code = process.wait()
    # Before it trains, SIGTERM ends it as it ends any program.
    if code not in ((143, -signal.SIGTERM) if last else (-signal.SIGKILL,)):
        raise SystemExit(f"exit code {code} where a signal was sent; see {run.root.parent}/soak.log")
    events = _events(run)
    begun = max((i for i, event in enumerate(events) if event["event"] in ("start", "resume")), default=0)
    life.resumed = events[begun]["step"] if events else 0
    life.reached = max((event["step"] for event in events[begun:]), default=0)
    life.saved = max(_whole_checkpoints(run), default=0)
    return life


def _usage(pid: int) -> tuple[float, int]:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6, sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def _events(run: RunDir) -> list[dict[str, Any]]:
    lines = run.metrics.read_text().splitlines() if run.metrics.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]  # the last may be torn


def _whole_checkpoints(run: RunDir) -> list[int]:
    steps = []
    for folder in run.checkpoints.glob("step-*"):
        storage.verify(folder)  # whole or absent: anything else is a failure of the soak
        steps.append(int(folder.name.removeprefix("step-")))
    return steps


def strays(run: RunDir) -> list[str]:
    """Temporaries that a run has left."""
    return [str(path.relative_to(run.root)) for path in run.root.rglob(f"*{storage.PARTIAL}*")]


def slope(lives: Sequence[Life], column: int) -> float:
    """Growth within a process, an hour: the slope of a line through all samples, each process with its own height."""
    over = below = 0.0
    for life in lives:
        if len(life.samples) < 2:
            continue
        times, values = [s[0] for s in life.samples], [float(s[column]) for s in life.samples]
        middle, height = sum(times) / len(times), sum(values) / len(values)
        over += sum((t - middle) * (v - height) for t, v in zip(times, values, strict=True))
        below += sum((t - middle) ** 2 for t in times)
    return 3600 * over / below if below else 0.0


def report(lives: Sequence[Life], left: Sequence[str]) -> str:
    """What happened, one fact a line."""
    killed = lives[:-1]
    lost = [life.lost for life in killed]
    samples = [sample for life in lives for sample in life.samples]
    wrong = sum(later.resumed != earlier.saved for earlier, later in pairwise(lives) if later.resumed)
    lines = [
        f"kills: {len(killed)}, of them before the first checkpoint: {sum(life.saved == 0 for life in killed)}",
        f"steps: {lives[-1].saved:,} at the end; {sum(lost):,} done again, at most {max(lost, default=0)} after a kill",
        f"processes that went on elsewhere than at the newest checkpoint: {wrong}",
        f"memory: {max((s[1] for s in samples), default=0):.0f} MB at most, slope {slope(lives, 1):+.1f} MB an hour",
        f"open files: {max((s[2] for s in samples), default=0)} at most, slope {slope(lives, 2):+.2f} an hour",
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
    words = [sys.executable, "-m", "mt", "train", "--config", str(config), "--runs", str(arguments.runs)]
    subprocess.run(words, check=True, capture_output=True)
    pair = [CheckpointDir(RunDir(arguments.runs / name).checkpoint(steps)) for name in ("soaked", "undisturbed")]
    same = [storage.sha256(each.weights) + storage.sha256(each.average) for each in pair]
    print(f"weights after {steps:,} steps: {'the same' if same[0] == same[1] else 'DIFFERENT'} without a kill")
    sys.exit(same[0] != same[1])


if __name__ == "__main__":
    main()
