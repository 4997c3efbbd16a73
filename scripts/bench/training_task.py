"""The task of training.py (configuration, corpus, batches), mt's worker in it, and the machine's matrix rate.

python training_task.py FOLDER mt           # or another of OURS; every line on stdin is a number of updates to do
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mt.config import Config, parse_config
from mt.data.batching import BatchStream, plan_epoch
from mt.data.encode import encode_corpus
from mt.data.token_store import EncodedCorpus
from mt.data.tokenizer_kinds import TokenizerPair
from mt.model.build import build
from mt.model.linear import linear_without_grad
from mt.storage.run_dir import RunDir
from mt.system.devices import choose_device
from mt.text.lines import TextFile
from mt.training.trainer import Trainer

OURS = {
    "mt": ["training.compile=false"],
    "mt compiled": ["training.compile=true"],
    "mt graphs": ["training.compile=true", "training.cuda_graphs=true"],
}
SHAPES = {
    "tiny": {"layers": 4, "d_model": 128, "d_ff": 256, "heads": 4, "dropout": 0.3},
    "base": {"layers": 6, "d_model": 512, "d_ff": 2048, "heads": 8, "dropout": 0.1},
    "big": {"layers": 6, "d_model": 1024, "d_ff": 4096, "heads": 16, "dropout": 0.1},
}
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


def prepare(
    shape: str, max_tokens: int, folder: Path, arguments: argparse.Namespace
) -> tuple[Config, EncodedCorpus, int]:
    """Write what the workers read: configuration, tokenizer, token ids and the plan of batches."""
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
    """Return the batches that the Trainer takes, over as many epochs as that many updates need."""
    plan: list[Any] = []
    for epoch in count():
        if len(plan) >= updates:
            break
        plan += plan_epoch(*corpus.lengths(), config.training.max_tokens, config.seed, epoch)
    return plan


def _sentences(corpus: EncodedCorpus, side: str) -> list[Any]:
    return [corpus.gather(side, np.array([i]))[0][0] for i in range(len(corpus))]


def make_trainer(folder: Path, spec: dict[str, Any], name: str) -> Trainer:
    """Return the Trainer that `mt train` uses, for the vocabulary size that was asked for."""
    config = parse_config((folder / "mt.yaml").read_text(), "mt.yaml", OURS[name])
    torch.manual_seed(config.seed)
    device = choose_device(config.training.device)
    model = build(config.model, spec["vocab"], spec["vocab"], config.data.max_length, True).to(device)
    return Trainer(config, RunDir(folder / "run"), model, EncodedCorpus.open(folder / "encoded"), _no_validation)


def serve(folder: Path, name: str) -> None:
    """Do as many updates as each line of stdin says, with mt's Trainer."""
    spec = json.loads((folder / "spec.json").read_text())
    trainer, corpus = make_trainer(folder, spec, name), EncodedCorpus.open(folder / "encoded")
    settings, seed = trainer.settings, trainer.config.seed
    plan, done = _plan(corpus, trainer.config, spec["updates"]), 0
    print(json.dumps({"parameters": sum(p.numel() for p in trainer.model.parameters())}), flush=True)
    for line in sys.stdin:
        if spec["repeat"]:
            trainer.batches, done = BatchStream(corpus, settings.max_tokens, seed), 0
        started = time.perf_counter()
        for _ in range(int(line)):
            trainer.step()
        synchronize(trainer.model.device)
        seconds = time.perf_counter() - started
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        peak = torch.cuda.max_memory_allocated() if settings.device == "cuda" else resident
        batches = [rows.tolist() for rows in plan[done : done + int(line)]]
        done += int(line)
        print(json.dumps({"seconds": seconds, "batches": batches, "peak": peak}), flush=True)


def _no_validation(_: object) -> Any:
    raise AssertionError("a benchmark does not validate")


def matrix_rate(device: torch.device, precision: str, sizes: Sequence[int] = ()) -> float:
    """Return the best rate of a product of large square matrices, in operations a second, by any library at hand."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    best = 0.0
    for size in sizes or ((1024, 2048, 3072) if device.type == "cpu" else (4096, 8192, 16384)):
        a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
        for multiply in (torch.mm, linear_without_grad):
            multiply(a, b)
            best = max(best, *(2 * size**3 / _timed(partial(multiply, a, b), device) for _ in range(3)))
    return best


def _timed(function: Any, device: torch.device) -> float:
    synchronize(device)
    started = time.perf_counter()
    function()
    synchronize(device)
    return time.perf_counter() - started


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has done its work; a CPU has."""
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.argv[2])
