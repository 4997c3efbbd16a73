"""Computes the largest `training.max_tokens` that GPUs of some sizes hold, from bytes counted without a GPU.

    python scripts/bench/memory_table.py configs/wmt14_en_de_base.yaml configs/wmt14_en_de_big.yaml

Counted at true size on tensors without memory (fake_cuda.py): what the forward pass of a batch keeps for the backward
pass, uncompiled. Added to it: 16 bytes a parameter for weights, gradients and Adam's moments, 2 for their copies in
bf16, the loss's largest block, and a reserve for CUDA itself and for fragmentation.
"""

import argparse
from pathlib import Path

from fake_cuda import GpuTensor, fake_gpu  # isort: skip (before torch)
import torch
from gpu_count import PLAIN, draw_batch
from torch import Tensor

from mt.config import Config, parse_config
from mt.model.build import build
from mt.model.initialization import SkipInit
from mt.training.step import TrainStep

SIZES = (8, 12, 16, 24, 40, 80)  # GB
RESERVE_BYTES, RESERVE_SHARE = 0.8e9, 0.1
PARAMETER_BYTES = 18
LOSS_BLOCK_BYTES = 2**29  # logits of a block in fp32, of which bf16 needs half, and its products


def kept_bytes(config: Config, vocab: int, tokens: int) -> tuple[int, int]:
    """Return the bytes that a forward pass keeps beside the weights, and the number of parameters."""
    with SkipInit():
        model = build(config.model, vocab, vocab, config.data.max_length, shared_vocab=True)
    model.train()
    kept: dict[int, int] = {}

    def keep(x: Tensor) -> Tensor:
        if isinstance(x, GpuTensor) and not isinstance(x, torch.nn.Parameter):
            storage = x.twin.untyped_storage()
            kept[storage._cdata] = storage.nbytes()
        return x

    with fake_gpu() as cuda, torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        cuda.move(model)
        step = TrainStep(config, model, precision="bf16")
        weights = {p.twin.untyped_storage()._cdata for p in model.parameters()}  # type: ignore[attr-defined]
        step.accumulate_gradients([draw_batch(tokens, vocab)], 0)
    parameters = sum(p.numel() for p in model.parameters())
    return sum(size for storage, size in kept.items() if storage not in weights), parameters


def largest_max_tokens(config: Config, vocab: int) -> list[int]:
    """Return the largest `max_tokens`, in hundreds, for which a step fits into each of `SIZES`; 0 if none does."""
    (few, parameters), (many, _) = (kept_bytes(config, vocab, tokens) for tokens in (2_000, 8_000))
    per_token = (many - few) / 6_000
    fixed = few - 2_000 * per_token + PARAMETER_BYTES * parameters + LOSS_BLOCK_BYTES + RESERVE_BYTES
    usable = [gigabytes * 1e9 * (1 - RESERVE_SHARE) for gigabytes in SIZES]
    return [max(0, int((size - fixed) / per_token) // 100 * 100) for size in usable]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="+", type=Path)
    parser.add_argument("--vocab", type=int, default=32_000)
    options = parser.parse_args()
    print("| | " + " | ".join(f"{size} GB" for size in SIZES) + " |")
    print("|---" * (len(SIZES) + 1) + "|")
    for path in options.configs:
        config = parse_config(path.read_text(encoding="utf-8"), str(path), PLAIN)
        row = " | ".join(f"{tokens:,}" for tokens in largest_max_tokens(config, options.vocab))
        print(f"| {path.stem} | {row} |", flush=True)


if __name__ == "__main__":
    main()
