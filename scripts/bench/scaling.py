"""Measures how training speeds up with more processes, and compares it with a simple model.

    python scripts/bench/scaling.py --processes 1 2
    python scripts/bench/scaling.py --processes 1 2 4 8 --set model.d_model=512 --max-tokens 25000   # GPUs

    step time = compute(tokens / N) + 2 (N - 1) / N * bytes of the gradients / bandwidth

Compute is what one process needs for a step of N times fewer tokens, measured in this run; the bandwidth is measured
with an all-reduce of the gradients' size between the same processes. The model leaves out that communication overlaps
with the backward pass, and that processes of one machine share its memory.
"""

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mt.extras.reporting.run_data import parse_events
from mt.storage.run_dir import RunDir

CONFIG = """\
name: bench
data:
  source_lang: en
  target_lang: it
  train: {builtin: phrasebook, split: train}
  valid: {builtin: phrasebook, split: valid}
tokenizer: {vocab_size: 4000}
model: {d_model: 128, n_heads: 4, d_ff: 512, encoder_layers: 3, decoder_layers: 3, norm: pre}
training:
  max_tokens: 4096
  max_steps: 1000000
  log_every: 1
  validate_every: 1000000
  tensorboard: false
  report: false
decoding: {beam_size: 1, max_length: 2}
"""
WARM_UP = 5


def main() -> None:
    """Print a table, one row a number of processes."""
    arguments = _arguments()
    print(f"{'processes':>9} {'tokens/s':>10} {'step':>9} {'compute':>9} {'exchange':>9} {'model':>9} {'MB/s':>7}")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "bench.yaml").write_text(CONFIG)
        for number in arguments.processes:
            step, tokens = _train(Path(folder), arguments, number, share=1)
            compute, _ = _train(Path(folder), arguments, 1, share=number)
            seconds, size = _exchange(Path(folder), number) if number > 1 else (0.0, 0)
            print(
                f"{number:>9} {tokens / step:>10,.0f} {step * 1e3:>6.0f} ms {compute * 1e3:>6.0f} ms "
                f"{seconds * 1e3:>6.0f} ms {(compute + seconds) * 1e3:>6.0f} ms "
                f"{size / seconds / 1e6 if seconds else 0:>7,.0f}",
                flush=True,
            )


def _train(folder: Path, arguments: argparse.Namespace, processes: int, share: int) -> tuple[float, float]:
    """Return the seconds (median) and tokens (mean) of a step whose batch is divided by `share`."""
    changes = [*arguments.set, f"name=n{processes}-{share}", f"training.max_steps={WARM_UP + arguments.steps}"]
    if share > 1:
        changes.append(f"training.max_tokens={max(256, arguments.max_tokens // share)}")
    else:
        changes.append(f"training.max_tokens={arguments.max_tokens}")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command += ["-m", "mt", "train", "--config", "bench.yaml", *(w for c in changes for w in ("--set", c))]
    environment = {**os.environ, "OMP_NUM_THREADS": str(arguments.threads)}
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    text = RunDir(folder / "runs" / f"n{processes}-{share}").metrics.read_text(encoding="utf-8")
    events = [event for event in parse_events(text) if event["event"] == "train"][WARM_UP:]
    times = [after["time"] - before["time"] for before, after in itertools.pairwise(events)]
    step = statistics.median(times)
    return step, statistics.mean(e["tokens_per_second"] * t for e, t in zip(events[1:], times, strict=True))


def _exchange(folder: Path, processes: int) -> tuple[float, int]:
    """Return the seconds that adding up the gradients of all processes takes, and their bytes."""
    weights = next((folder / "runs" / f"n{processes}-1" / "checkpoints").glob("step-*/model.safetensors"))
    size = weights.stat().st_size
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    done = subprocess.run(
        [*command, __file__, "--all-reduce", str(size)],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return float(done.stdout), size


def _all_reduce(size: int) -> None:
    """Print the median seconds of an all-reduce; runs in several processes."""
    import torch
    import torch.distributed as dist

    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    numbers, times = torch.zeros(size // 4, device=device), []
    for _ in range(20):
        dist.barrier()
        started = time.perf_counter()
        dist.all_reduce(numbers)
        if on_gpu:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    if dist.get_rank() == 0:
        print(statistics.median(times[5:]))
    dist.destroy_process_group()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=30, help="steps measured, after five to warm up")
    parser.add_argument("--max-tokens", type=int, default=2048, help="of a step, all processes together")
    parser.add_argument("--threads", type=int, default=1, help="of each process, on a CPU")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as for mt train")
    parser.add_argument("--all-reduce", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    if "--all-reduce" in sys.argv:
        _all_reduce(_arguments().all_reduce)
    else:
        main()
