"""Counts how many sentence pairs `mt data align` finds again after lines were left out, merged and split.

    python scripts/bench/alignment.py data/train.en data/train.de --pairs 6000 --seed 5

With --missing, target lines are left out, and the pairs of lines that `mt data clean --repair` keeps are counted.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from mt.data.paired_texts import LineText
from mt.extras.doctor.align_files import line_links, lines_in_step
from mt.extras.doctor.alignment import align
from mt.extras.doctor.bitexts import MIN_SCORE
from mt.text.lines import read_lines

Links = set[tuple[tuple[int, int], tuple[int, int]]]


def main() -> int:
    """Print recall and precision."""
    arguments = _arguments()
    texts = [list(read_lines(path))[: arguments.pairs] for path in (arguments.source, arguments.target)]
    if arguments.missing:
        measure_missing(*texts, arguments.missing, random.Random(arguments.seed))
        return 0
    sources, targets, truth = disturb(*texts, random.Random(arguments.seed))
    started = time.perf_counter()
    found = {(link.source, link.target) for link in align(sources, targets)}
    seconds, right = time.perf_counter() - started, len(found & truth)
    print(f"{len(sources):,} and {len(targets):,} lines, {len(truth):,} links, {seconds:.1f} s")
    print(f"recall {right / len(truth):.4f}, precision {right / len(found):.4f}")
    return 0


def disturb(sources: list[str], targets: list[str], rng: random.Random) -> tuple[list[str], list[str], Links]:
    """Leave out 3 % of the lines on each side, and merge two lines of 2 % on each side; return the links left."""
    src, tgt, truth, i = list[str](), list[str](), Links(), 0
    while i < len(sources):
        chance = rng.random()
        n = 2 if 0.06 <= chance < 0.1 and i + 1 < len(sources) else 1
        before = len(src), len(tgt)
        if chance >= 0.03:
            tgt += [" ".join(targets[i : i + 2])] if n == 2 and chance < 0.08 else targets[i : i + n]
        if chance < 0.03 or chance >= 0.06:
            src += [" ".join(sources[i : i + 2])] if n == 2 and chance >= 0.08 else sources[i : i + n]
        if chance >= 0.06:
            truth.add(((before[0], len(src)), (before[1], len(tgt))))
        i += n
    return src, tgt, truth


def measure_missing(sources: list[str], targets: list[str], kind: str, rng: random.Random) -> None:
    """Leave out 300 target lines in one place, or 1 % of them everywhere, and print the pairs kept by a repair."""
    start = rng.randrange(len(targets) - 300)
    block = set(range(start, start + 300))
    missing = block if kind == "block" else set(rng.sample(range(len(targets)), len(targets) // 100))
    left = [line for number, line in enumerate(targets) if number not in missing]
    with tempfile.TemporaryDirectory() as folder:
        paths = Path(folder) / "source", Path(folder) / "target"
        for path, lines in zip(paths, (sources, left), strict=True):
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        texts = LineText(paths[0]), LineText(paths[1])
        print(f"missing from line {min(missing) + 1}; found out of step from line {lines_in_step(*texts) + 1}")
        links = line_links(*texts)
    pairs = [
        (" ".join(sources[slice(*link.source)]), " ".join(left[slice(*link.target)]))
        for link in links
        if link.score >= MIN_SCORE
    ]
    originals, before = set(zip(sources, targets, strict=True)), links[0].source[0]
    right = sum(pair in originals for pair in pairs) + before
    print(
        f"kept {right / len(left):.2%} of the pairs left; {right / (len(pairs) + before):.2%} of those kept are right"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--pairs", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--missing", choices=["block", "lines"], help="300 lines in one place, or 1 %% everywhere")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
