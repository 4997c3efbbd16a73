"""Counts how many planted blocks in another language the corpus check finds, and how many it sees in the text as it is.

    python scripts/bench/languages.py data/train.en data/train.de --third data/train.fr --seeds 1 2 3

Blocks of 20 to 200 lines are planted: source lines in place of their translations (copy) or of others (elsewhere),
lines of a third language, and the two sides swapped. With --words, all lines are cut to 2 to 5 words before. A block is
found if both its ends are within three lines, and side and language are right. The languages are the endings of the
files.
"""

import argparse
import random
import sys
import time
from collections import Counter
from pathlib import Path

from mt.extras.doctor.language_blocks import LanguageBlock, language_blocks
from mt.text.lines import read_lines

BLOCKS = 40  # planted together, or as many as there is room for
KINDS = ("copy", "elsewhere", "third", "swap")
Pairs = list[tuple[str, str]]


def main() -> int:
    """Print a line for the text as it is, and one for each seed."""
    arguments = _arguments()
    languages = (arguments.source.suffix[1:], arguments.target.suffix[1:])
    third = (list(read_lines(arguments.third)), arguments.third.suffix[1:])
    pairs = list(zip(read_lines(arguments.source), read_lines(arguments.target), strict=True))
    if arguments.words:
        pairs = [_cut(pair, random.Random(number)) for number, pair in enumerate(pairs)]
        third = ([_cut((line, ""), random.Random(number))[0] for number, line in enumerate(third[0])], third[1])
    started = time.process_time()
    alarms = language_blocks(pairs, languages)
    print(f"{len(pairs):,} pairs in {time.process_time() - started:.1f} s; as they are: {len(alarms)} blocks")
    for block in alarms:
        print(f"    {_name(block)}")
    found_of, planted_of, n_false = Counter[str](), Counter[str](), 0
    for seed in arguments.seeds:
        planted, changed = plant(pairs, languages, third, random.Random(seed))
        found = language_blocks(changed, languages)
        missed = [(kind, block) for kind, block in planted if not any(same(block, other) for other in found)]
        expected = [*(block for _, block in planted), *alarms]
        false = [f for f in found if not any(f.overlap(block.start, block.end) for block in expected)]
        n_false += len(false)
        planted_of.update(kind for kind, _ in planted)
        found_of.update([kind for kind, _ in planted])
        found_of.subtract(kind for kind, _ in missed)
        print(f"seed {seed}: {len(planted) - len(missed)} of {len(planted)} found, {len(false)} false")
        for kind, block in missed:
            near = [_name(other) for other in found if other.overlap(block.start, block.end)]
            print(f"    missed {kind} {_name(block)}; there: {', '.join(near) or 'nothing'}")
        for block in false:
            print(f"    false {_name(block)}")
    print(", ".join(f"{kind} {found_of[kind]} of {planted_of[kind]}" for kind in KINDS), f"; {n_false} false")
    return 0


def plant(
    pairs: Pairs, languages: tuple[str, str], third: tuple[list[str], str], rng: random.Random
) -> tuple[list[tuple[str, LanguageBlock]], Pairs]:
    """Return blocks with their kinds, and the pairs with them."""
    changed, planted = list(pairs), list[tuple[str, LanguageBlock]]()
    for _ in range(20 * BLOCKS):
        length, kind = rng.randint(20, min(200, len(pairs) // 20)), rng.choice(KINDS)
        start, elsewhere = (rng.randrange(len(pairs) - length) for _ in range(2))
        foreign = rng.randrange(len(third[0]) - length)
        apart = all(start + length + 30 < block.start or start > block.end + 30 for _, block in planted)
        if not apart or len(planted) >= BLOCKS:
            continue
        side = None if kind == "swap" else 1
        language = {"third": third[1], "swap": ""}.get(kind, languages[0])
        planted.append((kind, LanguageBlock(start, start + length, side, language)))
        for line in range(start, start + length):
            source, target = pairs[line]
            new = {
                "copy": (source, source),
                "elsewhere": (source, pairs[line - start + elsewhere][0]),
                "third": (source, third[0][line - start + foreign]),
                "swap": (target, source),
            }
            changed[line] = new[kind]
    return planted, changed


def same(block: LanguageBlock, other: LanguageBlock) -> bool:
    close = abs(block.start - other.start) <= 3 and abs(block.end - other.end) <= 3
    return close and (block.side, block.language) == (other.side, other.language)


def _cut(pair: tuple[str, str], rng: random.Random) -> tuple[str, str]:
    """Leave the first words of a pair."""
    size = rng.randint(2, 5)
    return " ".join(pair[0].split()[:size]), " ".join(pair[1].split()[:size])


def _name(block: LanguageBlock) -> str:
    side = "swapped" if block.side is None else f"{('source', 'target')[block.side]} in {block.language}"
    return f"{block.start + 1}-{block.end} {side} ({block.evidence:.0f})"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--third", type=Path, required=True, help="text of another language")
    parser.add_argument("--words", action="store_true", help="cut all lines to 2 to 5 words")
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
