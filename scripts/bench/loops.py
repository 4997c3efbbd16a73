"""Counts translations of single words and short fragments that run away, with and without a second search.

    python scripts/bench/loops.py runs/single --texts multi30k/train.en debian/train.en --number 10000

A third each of the inputs are different words of the texts, fragments of two words and of three. What runs away is
defined by `mt.decoding.runaway`: far more tokens than the source, or a phrase that follows itself four times or more.
"""

import argparse
import random
import sys
import time
from dataclasses import replace
from pathlib import Path

from mt.bundle.load_translator import open_model
from mt.decoding.runaway import is_runaway
from mt.storage.find_model import find_model
from mt.text.lines import TextFile


def main() -> int:
    """Print a line for each search."""
    arguments = _arguments()
    inputs = fragments(arguments.texts, arguments.number, random.Random(arguments.seed))
    opened = open_model(find_model(arguments.model, Path("runs")))
    print(f"{len(inputs):,} inputs, {opened.engine}")
    for beam in arguments.beams:
        for retried in (False, True):
            options = replace(opened.settings.search, beam_size=beam, retry_loops=retried, scores=False)
            started = time.perf_counter()
            found = opened.translator.translate(inputs, options, None)
            seconds = time.perf_counter() - started
            runaway = [
                (text, best.text)
                for text, [best, *_] in zip(inputs, found, strict=True)
                if any(is_runaway(part.source, part.target) for part in best.parts)
            ]
            search = f"beam {beam}, {'searched again' if retried else 'one search'}"
            print(
                f"{search}: {len(runaway):,} run away ({len(runaway) / len(inputs):.2%}), {seconds:.1f} s", flush=True
            )
            for text, translation in runaway[: arguments.show]:
                print(f"    {text} -> {translation[:100]}")
    return 0


def fragments(paths: list[Path], number: int, rng: random.Random) -> list[str]:
    """Draw different words, and fragments of two and three words, from the lines of some texts."""
    lines = [line.split() for path in paths for line in TextFile(path)]
    drawn: dict[str, None] = {}
    for size in (1, 2, 3):
        aim = number * size // 3
        while len(drawn) < aim:
            words = rng.choice(lines)
            if len(words) >= size:
                start = rng.randrange(len(words) - size + 1)
                drawn[" ".join(words[start : start + size])] = None
    return list(drawn)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--texts", type=Path, nargs="+", required=True, help="lines of text")
    parser.add_argument("--number", type=int, default=10_000, help="inputs")
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--show", type=int, default=5, help="examples")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
