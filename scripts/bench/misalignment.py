"""Counts the planted misalignments that the corpus check finds and repairs, and those it sees in the text as it is.

    python scripts/bench/misalignment.py data/train.en data/train.de --seeds 1 2 3 --lines 3 15

Blocks of 20 to 200 target lines (or others, `--lines`) are shifted by one to three lines, swapped with others, or
overwritten by lines from another place. One is found if both its ends are within three lines, and the lines are paired
with those that belong to them. After the repair, the original pairs are counted among those kept, as a share of these
and of the original pairs that can still be found.
"""

import argparse
import random
import sys
import time
from pathlib import Path

from mt.extras.doctor.bitexts import RawPair, realigned
from mt.extras.doctor.misalignment import Block, misaligned_blocks, unpaired_lines
from mt.text.lines import read_lines

BLOCKS = 40  # planted together, or as many as there is room for


def main() -> int:
    """Print a line for the text as it is, and one for each seed."""
    arguments = _arguments()
    sources, targets = (list(read_lines(path)) for path in (arguments.source, arguments.target))
    started = time.perf_counter()
    alarms = list(misaligned_blocks(zip(sources, targets, strict=True)))
    print(f"{len(sources):,} pairs in {time.perf_counter() - started:.1f} s; as they are: {len(alarms)} blocks")
    for block in alarms:
        print(f"    lines {block.start + 1} to {block.end}: {_name(block)}")
    for seed in arguments.seeds:
        planted, changed = plant(targets, random.Random(seed), *arguments.lines)
        found = tuple(misaligned_blocks(zip(sources, changed, strict=True)))
        missed = [block for block in planted if not any(_same(block, other) for other in found)]
        more = [f for f in found if not any(f.start < b.end and f.end > b.start for b in (*planted, *alarms))]
        kept = repaired_pairs(sources, changed, found)
        originals, available = set(zip(sources, targets, strict=True)), set(changed)
        right = sum(pair in originals for pair in kept)
        possible = sum(target in available for target in targets)
        print(
            f"seed {seed}: {len(planted) - len(missed)} of {len(planted)} found, {len(more)} more; after the repair "
            f"{right / len(kept):.2%} of {len(kept):,} pairs are original, {right / possible:.2%} of those possible"
        )
        for block in more:
            print(f"    more {block.start + 1}-{block.end} {_name(block)}")
        for block in missed:
            near = [f"{f.start + 1}-{f.end} {_name(f)}" for f in found if f.start < block.end and f.end > block.start]
            print(f"    missed {block.start + 1}-{block.end} {_name(block)}; there: {', '.join(near) or 'nothing'}")
    return 0


def plant(
    targets: list[str], rng: random.Random, shortest: int = 20, longest: int = 200
) -> tuple[list[Block], list[str]]:
    """Return blocks and the lines with them."""
    lines, planted, taken = list(targets), list[Block](), list[tuple[int, int]]()

    def place(length: int) -> int | None:
        start = rng.randrange(10, len(lines) - length - 10)
        return start if all(start + length + 30 < low or start > high + 30 for low, high in taken) else None

    for _ in range(20 * BLOCKS):
        length, kind = rng.randint(shortest, min(longest, len(lines) // 20)), rng.choice(["shift", "swap", "elsewhere"])
        first, second = place(length), place(length)
        if first is None or second is None or abs(first - second) < length + 60 or len(planted) >= BLOCKS:
            continue
        here, there = slice(first, first + length), slice(second, second + length)
        taken.append((first, first + length))
        if kind == "shift":
            shift = rng.choice([-3, -2, -1, 1, 2, 3])
            lines[here] = targets[first - shift : first - shift + length]
            planted.append(Block(first, first + length, shift))
            continue
        planted.append(Block(first, first + length, second - first if kind == "swap" else None))
        lines[here] = targets[there]
        taken.append((second, second + length))
        if kind == "swap":
            lines[there] = targets[here]
            planted.append(Block(second, second + length, first - second))
    return planted, lines


def repaired_pairs(sources: list[str], targets: list[str], blocks: tuple[Block, ...]) -> list[tuple[str, str]]:
    """Return the pairs that a repair keeps, without those that it cannot be sure of."""
    raw = (RawPair(line, *pair, "") for line, pair in enumerate(zip(sources, targets, strict=True), 1))
    unpaired = unpaired_lines(blocks)
    return [pair.cleaned() for index, pair in enumerate(realigned(raw, blocks)) if index not in unpaired]


def _same(block: Block, other: Block) -> bool:
    close = abs(block.start - other.start) <= 3 and abs(block.end - other.end) <= 3
    return close and block.shift == other.shift


def _name(block: Block) -> str:
    return block.described("source", "target") if block.shift is None else f"shifted by {block.shift:+d}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument("--lines", type=int, nargs=2, default=[20, 200], metavar=("MIN", "MAX"), help="of a block")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
