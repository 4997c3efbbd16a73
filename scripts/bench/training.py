"""Measures training speed against other toolkits and against the machine, all in one run and in turn.

    python scripts/bench/training.py --peers ../peers/bin/python
    python scripts/bench/training.py --shape base --only mt --updates 2
    python scripts/bench/training.py --shape tiny --profile
    python scripts/bench/training.py --device cuda --precision bf16 --max-tokens 25000 2000 --only mt "mt compiled"

Trains a tokenizer on Multi30k, then lets each contestant do some updates, one after another, round after round: mt
through its own Trainer; transformers' MarianMTModel on the very same batches; JoeyNMT on batches cut its own way. The
peers run in an interpreter of their own (`--peers`), whichever of them is installed there; see peers.py. The
first round warms up and is not counted; its time, which contains compilation, is shown. With `--repeat` all rounds
train on the same batches, so that no shape is new in a round that counts. Between rounds the machine's rate for large
matrix products of the same number format is measured; `of limit` is useful arithmetic (`flops.py`) a second over
that rate.
"""

import argparse
import contextlib
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from training_task import OURS, SHAPES, make_trainer, matrix_rate, prepare, synchronize

from mt.config import Config
from mt.data.batching import BatchStream
from mt.data.token_store import EncodedCorpus
from mt.errors import MtError

sys.path.insert(0, str(Path(__file__).parents[1]))

from flops import training_flops

PEERS = ("marian", "joeynmt")


def main() -> int:
    """Print one table a shape."""
    arguments = _arguments()
    try:
        for shape, max_tokens in product(arguments.shape, arguments.max_tokens):
            with tempfile.TemporaryDirectory() as folder:
                (_profile if arguments.profile else _compare)(shape, max_tokens, Path(folder), arguments)
    except MtError as error:
        print(f"training: {error}", file=sys.stderr)
        return error.exit_code
    return 0


# ---- the contestants ------------------------------------------------------------------------------------------------


@dataclass
class Contestant:
    """A process that trains when told to, and what it has done so far.

    Attributes:
        seconds, tokens, padded, flops: of each counted round: wall time, tokens without and with padding, operations.
        updates: how many in a round.
        warm_up: wall time of the round that is not counted, in seconds.
        peak: bytes.
    """

    name: str
    process: subprocess.Popen[str]
    parameters: int = 0
    seconds: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    padded: list[int] = field(default_factory=list)
    flops: list[float] = field(default_factory=list)
    updates: int = 0
    warm_up: float = 0.0
    peak: int = 0

    def start(self) -> None:
        """Wait until the model is built."""
        self.parameters = self._answer()["parameters"]

    def round(self, updates: int, config: Config, vocab: int, corpus: EncodedCorpus, counted: bool) -> float:
        """Let the process do some updates; return its tokens a second."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{updates}\n")
        self.process.stdin.flush()
        answer = self._answer()
        self.peak, self.updates = answer["peak"], updates
        tokens, padded, flops = 0, 0, 0.0
        for rows in answer["batches"]:
            src, tgt = corpus.lengths(np.asarray(rows))
            tokens += int(src.sum() + tgt.sum())
            padded += len(rows) * int(src.max() + tgt.max())
            flops += training_flops(config.model, vocab, src, tgt)
        if counted:
            self.seconds.append(answer["seconds"])
            self.tokens.append(tokens)
            self.padded.append(padded)
            self.flops.append(flops)
        else:
            self.warm_up = answer["seconds"]
        return tokens / float(answer["seconds"])

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"training: {self.name} stopped; its messages are above")
        return json.loads(line)


def _profile(shape: str, max_tokens: int, folder: Path, arguments: argparse.Namespace) -> None:
    """Print the share of each kernel on a GPU, or of each operator on a CPU, in the time of some updates."""
    prepare(shape, max_tokens, folder, arguments)
    on_gpu, spec = arguments.device == "cuda", json.loads((folder / "spec.json").read_text())
    trainer = make_trainer(folder, spec, "mt compiled" if "mt compiled" in arguments.only else "mt")
    corpus, seed = EncodedCorpus.open(folder / "encoded"), trainer.config.seed
    for _ in range(arguments.warm_up):
        trainer.step()
    if on_gpu:  # the same batches again, so that nothing is new
        trainer.batches = BatchStream(corpus, max_tokens, seed)
    synchronize(trainer.model.device)
    activity = torch.profiler.ProfilerActivity.CUDA if on_gpu else torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[activity]) as profile:
        started = time.perf_counter()
        for _ in range(arguments.updates):
            trainer.step()
        synchronize(trainer.model.device)
        wall = 1000 * (time.perf_counter() - started) / arguments.updates

    def own_ms(row: Any) -> float:
        return (row.self_device_time_total if on_gpu else row.self_cpu_time_total) / arguments.updates / 1000

    rows = sorted(profile.key_averages(), key=own_ms, reverse=True)
    total = sum(map(own_ms, rows)) or math.nan
    where = "in the GPU's kernels" if on_gpu else "in operators"
    print(f"\n{shape}: {arguments.updates} updates, {wall:,.1f} ms each, of which {total:,.1f} ms {where}\n")
    print("| operator | share | ms an update | calls an update |")
    print("|---|---|---|---|")
    for row in rows[:24]:
        calls = row.count / arguments.updates
        print(f"| {row.key[:90]} | {own_ms(row) / total:.1%} | {own_ms(row):,.2f} | {calls:,.0f} |")


# ---- one shape ------------------------------------------------------------------------------------------------------


def _compare(shape: str, max_tokens: int, folder: Path, arguments: argparse.Namespace) -> None:
    config, corpus, vocab = prepare(shape, max_tokens, folder, arguments)
    contestants: list[Contestant] = []
    limits: list[float] = []
    try:
        for name, command in _commands(folder, arguments):
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            contestants.append(Contestant(name, process))
        for contestant in contestants:  # all of them load at the same time
            contestant.start()
        for number in range(arguments.rounds + 1):
            limits.append(matrix_rate(torch.device(arguments.device), arguments.precision, arguments.matrices))
            updates = arguments.updates if number or arguments.repeat else arguments.warm_up
            rates = [c.round(updates, config, vocab, corpus, counted=number > 0) for c in contestants]
            shown = ", ".join(f"{c.name} {rate:,.0f}" for c, rate in zip(contestants, rates, strict=True))
            print(f"{shape}, round {number or 'warm-up'}: {shown} tokens/s, limit {limits[-1] / 1e9:,.0f} GFLOP/s")
        _table(shape, contestants, statistics.median(limits), config, arguments)
    finally:
        for contestant in contestants:
            contestant.process.kill()


def _commands(folder: Path, arguments: argparse.Namespace) -> Iterator[tuple[str, list[str]]]:
    here = Path(__file__)
    for name in (name for name in OURS if name in arguments.only):
        yield name, [sys.executable, str(here.with_name("training_task.py")), str(folder), name]
    modules = {"marian": "transformers", "joeynmt": "joeynmt.model"}
    for peer in PEERS:
        if peer in arguments.only and arguments.peers:
            if not _has(arguments.peers, modules[peer]):
                print(f"training: {arguments.peers} cannot import {modules[peer]}: no {peer}", file=sys.stderr)
                continue
            script = here.parent / "peers.py"
            yield peer, [arguments.peers, str(script), peer, str(folder / "spec.json"), str(folder / "corpus.npz")]


def _has(python: str, module: str) -> bool:
    try:
        return subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode == 0
    except OSError as error:
        raise SystemExit(f"training: --peers {python}: {error.strerror}; name a Python interpreter") from None


def _table(
    shape: str, contestants: list[Contestant], limit: float, config: Config, arguments: argparse.Namespace
) -> None:
    size = f"at most {config.training.max_tokens} tokens a side"
    rounds = f"{arguments.rounds} rounds of {arguments.updates} updates, {size}"
    print(f"\n{shape}: {rounds}, {arguments.precision} on {arguments.device}, {torch.get_num_threads()} threads")
    print(f"matrix limit (median): {limit / 1e9:,.0f} GFLOP/s\n")
    print("| | parameters | tokens/s | from - to | ms a step | padding | peak memory | of limit | warm-up |")
    print("|---|---|---|---|---|---|---|---|---|")
    for c in contestants:
        rates = [n / s for n, s in zip(c.tokens, c.seconds, strict=True)]
        seconds = sum(c.seconds)
        print(
            f"| {c.name} | {c.parameters / 1e6:.1f} M | {sum(c.tokens) / seconds:,.0f} "
            f"| {min(rates):,.0f} - {max(rates):,.0f} | {1000 * seconds / (c.updates * len(rates)):,.0f} "
            f"| {1 - sum(c.tokens) / sum(c.padded):.1%} | {c.peak / 1e9:.2f} GB "
            f"| {sum(c.flops) / seconds / limit:.0%} | {c.warm_up:.1f} s |"
        )
    ours = [c for c in contestants if c.name in OURS]
    for own, peer in product(ours, (c for c in contestants if c.name not in OURS)):
        # Round by round, so that a machine that slows down for a while slows both sides of a ratio.
        pairs = zip(own.tokens, own.seconds, peer.tokens, peer.seconds, strict=True)
        ratios = [(n / s) / (m / t) for n, s, m, t in pairs]
        print(f"\n{own.name} / {peer.name}: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    print(flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data/multi30k"), help="folder with train.en and train.de")
    parser.add_argument("--shape", nargs="+", choices=SHAPES, default=["tiny", "base"])
    parser.add_argument("--peers", help="Python interpreter that has transformers, joeynmt or both")
    parser.add_argument("--only", nargs="+", choices=(*OURS, *PEERS), default=["mt", *PEERS])
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count")
    parser.add_argument("--updates", type=int, default=5, help="updates in a round")
    parser.add_argument("--warm-up", type=int, default=10, help="updates before, which do not count")
    parser.add_argument("--matrices", type=int, nargs="+", default=(), help="sizes that show the machine's rate")
    parser.add_argument("--repeat", action="store_true", help="the same batches in all rounds, warm-up included")
    parser.add_argument("--max-tokens", type=int, nargs="+", default=[4096], help="of a batch: longer side, padded")
    parser.add_argument("--vocab", type=int, default=10_000, help="rows of the embedding")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--profile", action="store_true", help="show where the time of mt goes instead")
    return parser.parse_args()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
