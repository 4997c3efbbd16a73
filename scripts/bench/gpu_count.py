"""Counts operators, bytes and arithmetic of a training step on a GPU, at true size and without one.

    python scripts/bench/gpu_count.py configs/wmt14_en_de_base.yaml configs/wmt14_en_de_big.yaml

Bytes are those of the tensors that operators read and write, as if no cache held any; an operator may launch several
kernels. The step is the second, since the first allocates the optimiser's state.
"""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from fake_cuda import FakeGpu, Operator, fake_gpu  # isort: skip (before torch)
import numpy as np
import torch

from mt.config import Config, parse_config
from mt.data.batching import Batch
from mt.model.build import build
from mt.model.initialization import SkipInit
from mt.training import objective
from mt.training.step import TrainStep

PLAIN = ("training.precision=bf16", "training.compile=false")  # a compiler fuses operators, so they cannot be counted
PHASES = ("forward", "loss", "backward", "update")  # copies, clipping and the optimiser are the update


def draw_batch(tokens: int, vocab: int, mean_length: int = 32) -> Batch:
    """Draw sentences of similar lengths, as in a real batch, with about the given number of tokens on each side."""
    random = np.random.default_rng(0)
    lengths = mean_length + random.integers(-2, 3, (2, tokens // mean_length))
    columns = np.arange(lengths.max())
    src_tokens, tgt_in = (np.where(columns < side[:, None], random.integers(4, vocab), 0) for side in lengths)
    return Batch(src_tokens, tgt_in, tgt_in, int(lengths[0].sum()), int(lengths[1].sum()))


def count_step(config: Config, vocab: int, batch: Batch) -> list[Operator]:
    """Return the operators of one update from one micro-batch, with one vocabulary on both sides."""
    with SkipInit():
        model = build(config.model, vocab, vocab, config.data.max_length, shared_vocab=True)
    model.train()
    with fake_gpu() as cuda, _phases(cuda, model):
        cuda.move(model)
        step = TrainStep(config, model, precision=config.training.precision)
        step([batch], 0)
        cuda.operators.clear()
        step([batch], 1)
    return cuda.operators


@contextmanager
def _phases(cuda: FakeGpu, model: Any) -> Iterator[None]:
    def during(phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            before, cuda.phase = cuda.phase, phase
            try:
                return function(*args, **kwargs)
            finally:
                cuda.phase = before

        return call

    cuda.phase = "update"
    with (
        mock.patch.object(model, "states", during("forward", model.states)),
        mock.patch.object(objective, "fused_cross_entropy", during("loss", objective.fused_cross_entropy)),
        mock.patch.object(torch.autograd, "backward", during("backward", torch.autograd.backward)),
    ):
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="+", type=Path)
    parser.add_argument("--tokens", type=int, default=24_000, help="on each side")
    parser.add_argument("--vocab", type=int, default=32_000)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="changes to the configurations")
    options = parser.parse_args()
    batch = draw_batch(options.tokens, options.vocab)
    print(
        f"{batch.n_src:,} source and {batch.n_tgt:,} target tokens, {options.vocab:,} words, torch {torch.__version__}"
    )
    for path in options.configs:
        config = parse_config(path.read_text(encoding="utf-8"), str(path), [*PLAIN, *options.set])
        operators = count_step(config, options.vocab, batch)
        print(f"\n| {path.stem} | operators | GB | TFLOP |\n|---|---|---|---|")
        for phase in (*PHASES, "total"):
            chosen = [each for each in operators if phase in (each.phase, "total")]
            size, flops = sum(each.bytes for each in chosen), sum(each.flops for each in chosen)
            print(f"| {phase} | {len(chosen):,} | {size / 1e9:.1f} | {flops / 1e12:.2f} |")


if __name__ == "__main__":
    main()
