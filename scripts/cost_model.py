"""Estimates the cost of a training: time by the number of GPUs, and a corpus's disk, memory and hours.

    python scripts/cost_model.py --config configs/wmt14_en_de_big.yaml --gpus 1 8 64 512 --pairs 4e8

    step time = compute(tokens / N) + 2 (N - 1) / N * bytes of the gradients / bandwidth

Compute is the model's operations (`flops.py`) over the rate that a device reaches, not the one on its data sheet;
the exchange is a ring all-reduce of 32-bit gradients. They do not overlap here, so the estimate is conservative. More
GPUs do not pay once the exchange takes as long as the compute: half of every GPU is then wasted.
`bench/scaling.py` compares the same formula with measured steps.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from flops import training_flops
from mt.config import load_config
from mt.model.build import build


def main() -> None:
    """Print both tables."""
    arguments = _arguments()
    config = load_config(arguments.config)
    vocab = config.tokenizer.vocab_size
    with torch.device("meta"):
        model = build(config.model, vocab, vocab, config.data.max_length, config.tokenizer.shared)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    length = np.array([arguments.tokens_a_side])
    sentence = training_flops(config.model, vocab, length + 2, length + 1)
    sentences = arguments.batch_tokens / (arguments.tokens_a_side + 1)
    compute = sentences * sentence / arguments.flops
    speed = f"{arguments.flops / 1e12:,.0f} TFLOP/s a GPU, {arguments.bandwidth / 1e9:,.0f} GB/s"
    print(f"{parameters / 1e6:,.0f} million parameters, {sentence / 1e9:,.1f} GFLOP a pair, {speed}")
    print(f"\n{'GPUs':>6} {'compute':>10} {'exchange':>10} {'step':>10} {'pairs/s':>10} {'of ideal':>9} {'epoch':>9}")
    for number in arguments.gpus:
        exchange = 2 * (number - 1) / number * 4 * parameters / arguments.bandwidth
        step = compute / number + exchange
        rate = sentences / step
        print(
            f"{number:>6} {_ms(compute / number)} {_ms(exchange)} {_ms(step)} {rate:>10,.0f} "
            f"{compute / number / step:>9.0%} {arguments.pairs / rate / 3600:>7,.1f} h"
        )
    stops = compute / (8 * parameters / arguments.bandwidth)
    print(f"\nthe exchange takes as long as the compute from {stops:,.0f} GPUs on")
    _corpus(arguments, vocab)


def _corpus(arguments: argparse.Namespace, vocab: int) -> None:
    pairs, tokens = arguments.pairs, arguments.tokens_a_side
    identifier = 2 if vocab <= 2**16 else 4
    text = pairs * 2 * arguments.bytes_a_side
    encoded = pairs * 2 * (tokens * identifier + 8)
    # The permutation of blocks of 256 sentences, 8 bytes each, and two windows of 2^20 sentences with their sort keys.
    order = pairs / 256 * 8 + 2**20 * 64
    print(f"\n{pairs:,.0f} pairs of {arguments.bytes_a_side} bytes and {tokens} tokens a side:")
    print(
        f"  disk: text {_gb(text)}; beside it up to {_gb(max(2 * text, text + 2 * encoded))} while it is prepared, "
        f"then {_gb(text + encoded)}: its cleaned copy and {_gb(encoded)} of token ids"
    )
    print(f"  memory for the order of an epoch: {order / 1e6:,.0f} MB, {order / pairs:.2f} bytes a pair")
    hours = pairs / arguments.prepared_a_minute / 60
    print(f"  preparing it at {arguments.prepared_a_minute:,.0f} pairs a minute: {hours:,.0f} hours")


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:>7,.1f} ms"


def _gb(size: float) -> str:
    return f"{size / 1e9:,.0f} GB"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64, 128])
    parser.add_argument("--batch-tokens", type=float, default=400_000, help="target tokens of a step, of all GPUs")
    parser.add_argument("--tokens-a-side", type=int, default=27, help="pieces of a sentence")
    parser.add_argument("--bytes-a-side", type=int, default=130, help="of a sentence's text")
    parser.add_argument("--flops", type=float, default=300e12, help="operations a second that a GPU reaches")
    parser.add_argument("--bandwidth", type=float, default=50e9, help="bytes a second out of each GPU")
    parser.add_argument("--pairs", type=float, default=4e8, help="of the corpus")
    parser.add_argument("--prepared-a-minute", type=float, default=600_000, help="pairs from raw text to token ids")
    return parser.parse_args()


if __name__ == "__main__":
    main()
