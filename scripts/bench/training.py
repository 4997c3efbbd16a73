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
matrix products of the same number format is measured; `of limit` is useful arithmetic (mt.model.flops) a second over
that rate.
"""

import argparse
import contextlib
import json
import math
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count, product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mt.config import Config, parse_config
from mt.data.batching import BatchStream, plan_epoch
from mt.data.encode import encode_corpus
from mt.data.token_store import EncodedCorpus
from mt.data.tokenizer import TokenizerPair
from mt.errors import MtError
from mt.model.build import build
from mt.model.flops import training_flops
from mt.model.linear import linear_without_grad
from mt.storage.run_dir import RunDir
from mt.system.devices import choose_device
from mt.text.lines import TextFile
from mt.training.trainer import Trainer

SHAPES = {
    "tiny": {"layers": 4, "d_model": 128, "d_ff": 256, "heads": 4, "dropout": 0.3},
    "base": {"layers": 6, "d_model": 512, "d_ff": 2048, "heads": 8, "dropout": 0.1},
    "big": {"layers": 6, "d_model": 1024, "d_ff": 4096, "heads": 16, "dropout": 0.1},
}
PEERS = ("marian", "joeynmt")
OURS = ("mt", "mt compiled")
CONFIG = """\
name: bench
data:
  source_lang: en
  target_lang: de
  train: {{source: train.en, target: train.de}}
tokenizer: {{vocab_size: {vocab}}}
model:
  d_model: {d_model}
  n_heads: {heads}
  d_ff: {d_ff}
  encoder_layers: {layers}
  decoder_layers: {layers}
  dropout: {dropout}
training:
  max_tokens: {max_tokens}
  precision: {precision}
  device: {device}
  tensorboard: false
  report: false
"""


def main() -> int:
    """Print one table a shape."""
    if sys.argv[1:2] == ["--worker"]:
        _serve(Path(sys.argv[2]), compiled=sys.argv[3] == "mt compiled")
        return 0
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
        """Waits until the model stands."""
        self.parameters = self._answer()["parameters"]

    def round(self, updates: int, config: Config, vocab: int, corpus: EncodedCorpus, counted: bool) -> float:
        """Lets it do some updates; returns its tokens a second."""
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


def _trainer(folder: Path, spec: dict[str, Any]) -> Trainer:
    """The Trainer that `mt train` uses, with the vocabulary's size that was asked for."""
    config = parse_config((folder / "mt.yaml").read_text(), "mt.yaml", [f"training.compile={spec['compile']}"])
    torch.manual_seed(config.seed)
    device = choose_device(config.training.device)
    model = build(config.model, spec["vocab"], spec["vocab"], config.data.max_length, True).to(device)
    return Trainer(config, RunDir(folder / "run"), model, EncodedCorpus.open(folder / "encoded"), _no_validation)


def _serve(folder: Path, compiled: bool) -> None:
    """mt's own worker, one line of stdin a round."""
    spec = json.loads((folder / "spec.json").read_text()) | {"compile": str(compiled).lower()}
    trainer, corpus = _trainer(folder, spec), EncodedCorpus.open(folder / "encoded")
    settings, seed = trainer.settings, trainer.config.seed
    plan, done = _plan(corpus, trainer.config, spec["updates"]), 0
    print(json.dumps({"parameters": sum(p.numel() for p in trainer.model.parameters())}), flush=True)
    on_gpu = settings.device == "cuda"
    for line in sys.stdin:
        if spec["repeat"]:
            trainer.batches, done = BatchStream(corpus, settings.max_tokens, seed), 0
        started = time.perf_counter()
        for _ in range(int(line)):
            trainer.step()
        if on_gpu:
            torch.cuda.synchronize()
        seconds = time.perf_counter() - started
        peak = torch.cuda.max_memory_allocated() if on_gpu else _resident()
        batches = [rows.tolist() for rows in plan[done : done + int(line)]]
        done += int(line)
        print(json.dumps({"seconds": seconds, "batches": batches, "peak": peak}), flush=True)


def _profile(shape: str, max_tokens: int, folder: Path, arguments: argparse.Namespace) -> None:
    """Prints where the time of some updates goes: the kernels' on a GPU, the operators' on a CPU."""
    _prepare(shape, max_tokens, folder, arguments)
    on_gpu, spec = arguments.device == "cuda", json.loads((folder / "spec.json").read_text())
    trainer = _trainer(folder, spec | {"compile": str("mt compiled" in arguments.only).lower()})
    corpus, seed = EncodedCorpus.open(folder / "encoded"), trainer.config.seed
    for _ in range(arguments.warm_up):
        trainer.step()
    if on_gpu:  # the same batches again, so that nothing is new
        trainer.batches = BatchStream(corpus, max_tokens, seed)
        torch.cuda.synchronize()
    activity = torch.profiler.ProfilerActivity.CUDA if on_gpu else torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[activity]) as profile:
        started = time.perf_counter()
        for _ in range(arguments.updates):
            trainer.step()
        if on_gpu:
            torch.cuda.synchronize()
        wall = 1000 * (time.perf_counter() - started) / arguments.updates

    def own(row: Any) -> float:
        return (row.self_device_time_total if on_gpu else row.self_cpu_time_total) / arguments.updates / 1000

    rows = sorted(profile.key_averages(), key=own, reverse=True)
    total = sum(map(own, rows)) or math.nan
    where = "in the GPU's kernels" if on_gpu else "in operators"
    print(f"\n{shape}: {arguments.updates} updates, {wall:,.1f} ms each, of which {total:,.1f} ms {where}\n")
    print("| operator | share | ms an update | calls an update |")
    print("|---|---|---|---|")
    for row in rows[:24]:
        print(f"| {row.key[:90]} | {own(row) / total:.1%} | {own(row):,.2f} | {row.count / arguments.updates:,.0f} |")


def _no_validation(_: object) -> Any:
    raise AssertionError("a benchmark does not validate")


def _resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# ---- one shape ------------------------------------------------------------------------------------------------------


def _compare(shape: str, max_tokens: int, folder: Path, arguments: argparse.Namespace) -> None:
    config, corpus, vocab = _prepare(shape, max_tokens, folder, arguments)
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


def _prepare(
    shape: str, max_tokens: int, folder: Path, arguments: argparse.Namespace
) -> tuple[Config, EncodedCorpus, int]:
    """Writes what the workers read: configuration, tokenizer, token ids and the plan of batches."""
    names = ("vocab", "precision", "device", "repeat")
    spec = SHAPES[shape] | {name: getattr(arguments, name) for name in names} | {"max_tokens": max_tokens}
    text = CONFIG.format(**spec)
    (folder / "mt.yaml").write_text(text)
    config = parse_config(text, "mt.yaml")
    files = (arguments.data / "train.en", arguments.data / "train.de")
    tokenizers = TokenizerPair.train(*map(TextFile, files), arguments.vocab, shared=True)
    (folder / "tokenizer").mkdir()
    for name, content in tokenizers.files().items():
        (folder / "tokenizer" / name).write_text(content, encoding="utf-8")
    encode_corpus(files, tokenizers, folder / "encoded", "bench", config.data.max_length)
    corpus = EncodedCorpus.open(folder / "encoded")
    vocab = max(arguments.vocab, tokenizers.target.vocab_size)  # a small corpus may have fewer pieces
    rounds = 1 if arguments.repeat else arguments.rounds
    updates = rounds * arguments.updates + (0 if arguments.repeat else arguments.warm_up)
    (folder / "spec.json").write_text(json.dumps(spec | {"vocab": vocab, "updates": updates}))
    plan = _plan(corpus, config, updates)
    arrays = {"plan": np.concatenate(plan), "plan_starts": np.cumsum([0] + [len(rows) for rows in plan])}
    for side in ("source", "target"):
        sentences = _sentences(corpus, side)
        arrays[side] = np.concatenate(sentences)
        arrays[f"{side}_starts"] = np.cumsum([0] + [len(sentence) for sentence in sentences])
    np.savez(folder / "corpus.npz", **arrays)
    return config, corpus, vocab


def _plan(corpus: EncodedCorpus, config: Config, updates: int) -> list[Any]:
    """The batches that the Trainer takes, over as many epochs as so many updates need."""
    plan: list[Any] = []
    for epoch in count():
        if len(plan) >= updates:
            break
        plan += plan_epoch(*corpus.lengths(), config.training.max_tokens, config.seed, epoch)
    return plan


def _sentences(corpus: EncodedCorpus, side: str) -> list[Any]:
    return [corpus.gather(side, np.array([i]))[0][0] for i in range(len(corpus))]


def _commands(folder: Path, arguments: argparse.Namespace) -> Iterator[tuple[str, list[str]]]:
    here = Path(__file__)
    for name in (name for name in OURS if name in arguments.only):
        yield name, [sys.executable, str(here), "--worker", str(folder), name]
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


def matrix_rate(device: torch.device, precision: str, sizes: Sequence[int] = ()) -> float:
    """The best rate seen for a product of large square matrices, in operations a second, by any library at hand."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    best = 0.0
    for size in sizes or ((1024, 2048, 3072) if device.type == "cpu" else (4096, 8192, 16384)):
        a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
        for multiply in (torch.mm, linear_without_grad):
            multiply(a, b)
            best = max(best, *(2 * size**3 / _timed(partial(multiply, a, b), device) for _ in range(3)))
    return best


def _timed(function: Any, device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    function()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


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
