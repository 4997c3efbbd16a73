"""Measures how fast batches are put together on one core, and how much of them is padding.

    python scripts/bench/batching.py
    python scripts/bench/batching.py --source big.en --target big.de --max-tokens 8192 --epochs 5

Trains a tokenizer on the two files, encodes them as `mt train` does, then plans and assembles whole epochs. Reading and
tokenizing are not part of the figure: they are done once a corpus, not once an epoch.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

# One core is what is measured; the libraries read these when they are imported.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"

from mt.data.batching import assemble, plan_epoch
from mt.data.encode import encode_corpus
from mt.data.token_store import EncodedCorpus
from mt.data.tokenizer_kinds import TokenizerPair
from mt.errors import MtError
from mt.text.lines import TextFile


def main() -> int:
    """Print one line an epoch and the best of them."""
    arguments = _arguments()
    try:
        _measure(arguments)
    except MtError as error:
        print(f"batching: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _measure(arguments: argparse.Namespace) -> None:
    text = (arguments.source, arguments.target)
    tokenizers = TokenizerPair.train(*map(TextFile, text), arguments.vocab_size, shared=True)
    with tempfile.TemporaryDirectory() as folder:
        encode_corpus(text, tokenizers, Path(folder) / "encoded", "bench", arguments.max_length)
        corpus = EncodedCorpus.open(Path(folder) / "encoded")
        print(f"{len(corpus):,} pairs, {int(sum(n.sum() for n in corpus.lengths())):,} tokens")
        best = max(_epoch(corpus, arguments.max_tokens, epoch) for epoch in range(arguments.epochs))
    print(f"best: {best / 1e6:.1f} million tokens a second (source + target, no padding)")


def _epoch(corpus: EncodedCorpus, max_tokens: int, epoch: int) -> float:
    """Go through one epoch and return its tokens a second."""
    start = time.perf_counter()
    plan = plan_epoch(*corpus.lengths(), max_tokens, seed=1, epoch=epoch)
    planned = time.perf_counter() - start
    tokens = sum(batch.n_src + batch.n_tgt for batch in (assemble(corpus, indices) for indices in plan))
    seconds = time.perf_counter() - start
    source, target = corpus.lengths()
    padded = sum(len(batch) * int(source[batch].max() + target[batch].max()) for batch in plan)
    padding = 1 - int(source.sum() + target.sum()) / padded
    print(
        f"epoch {epoch}: {len(plan):,} batches of at most {max_tokens:,} tokens a side, padding {padding:.2%}, "
        f"plan {planned:.3f} s, all {seconds:.3f} s, {tokens / seconds / 1e6:.1f} million tokens a second"
    )
    return tokens / seconds


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, default=Path("data/multi30k/train.en"), help="text file, .gz too")
    parser.add_argument("--target", type=Path, default=Path("data/multi30k/train.de"), help="its translation")
    parser.add_argument("--vocab-size", type=int, default=10_000)
    parser.add_argument("--max-tokens", type=int, default=4096, help="size of a batch, longer side, with padding")
    parser.add_argument("--max-length", type=int, default=256, help="longer pairs are left out")
    parser.add_argument("--epochs", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
