"""Counts how many planted near copies the corpus check finds, and what it finds in the text as it is.

    python scripts/bench/near_copies.py --train train.en train.de --held-out test.en test.de --seeds 11 12 13

Copies of held-out pairs, and of training pairs, are appended to the training text with a word of both sides changed,
added, or left out; others with so many changes that they are different sentences (three words of ten). Sentences have
ten words or more, as one word is too large a part of shorter ones.
"""

import argparse
import random
import re
import sys
import tempfile
import time
from pathlib import Path

from mt.config import load_config
from mt.extras.doctor.check import CorpusReport, check_corpus
from mt.extras.doctor.rules import BIT
from mt.text.lines import read_lines

Pair = tuple[str, str]
CONFIG = """\
name: near
data:
  source_lang: {0}
  target_lang: {1}
  root: {2}
  train: {{source: train.{0}, target: train.{1}}}
  valid: {{from_train: 1}}
  test: {{source: test.{0}, target: test.{1}}}
"""
RULES = ("near-leak", "near-duplicate", "template")
COPIES = 300  # of each kind
_WORD = re.compile(r"[^\W\d_]+")


def main() -> int:
    """Print the findings in the text as it is, then a line for each seed."""
    arguments = _arguments()
    train, held_out = (
        list(zip(*map(read_lines, paths), strict=True)) for paths in (arguments.train, arguments.held_out)
    )
    languages = [path.suffix[1:] for path in arguments.train]
    started = time.perf_counter()
    report = check(train, held_out, languages, arguments.examples)
    natural = {rule: found(report, rule) for rule in RULES}
    counts = ", ".join(f"{len(lines):,} {rule}" for rule, lines in natural.items())
    print(f"{len(train):,} pairs in {time.perf_counter() - started:.1f} s; as they are: {counts}")
    for finding in report.findings:
        for example in finding.examples if finding.rule.name in RULES else ():
            print(f"  {finding.rule.name} {example.note}")
            for location in example.locations:
                print(f"    {location.line}: {location.text}")
    # A copy of a near duplicate may be no copy of the pair that stays.
    kept = [pair for index, pair in enumerate(train) if index not in natural["near-duplicate"]]
    for seed in arguments.seeds:
        rng = random.Random(seed)
        words = [list(dict.fromkeys(word for pair in train for word in _WORD.findall(pair[side]))) for side in (0, 1)]
        parts = {
            "near-leak": [near_copy(pair, words, rng, 1) for pair in sample(held_out, rng)],
            "near-duplicate": [near_copy(pair, words, rng, 1) for pair in sample(kept, rng)],
            "neither": [near_copy(pair, words, rng, 3) for pair in (*sample(held_out, rng), *sample(train, rng))],
        }
        report = check([*train, *(pair for part in parts.values() for pair in part)], held_out, languages, 0)
        start, results = len(train), []
        for rule, pairs in parts.items():
            planted, start = range(start, start + len(pairs)), start + len(pairs)
            if rule in RULES:
                results.append(f"{len(found(report, rule) & set(planted))} of {len(pairs)} {rule} found")
            else:
                wrong = (found(report, "near-leak") | found(report, "near-duplicate")) & set(planted)
                results.append(f"{len(wrong)} of {len(pairs)} different pairs taken for copies")
        print(f"seed {seed}: {', '.join(results)}")
    return 0


def check(train: list[Pair], held_out: list[Pair], languages: list[str], examples: int) -> CorpusReport:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for split, pairs in (("train", train), ("test", held_out)):
            for side, language in enumerate(languages):
                text = "".join(f"{pair[side]}\n" for pair in pairs)
                (folder / f"{split}.{language}").write_text(text, encoding="utf-8")
        (folder / "near.yaml").write_text(CONFIG.format(*languages, folder))
        return check_corpus(load_config(folder / "near.yaml", ()), folder, examples)


def found(report: CorpusReport, rule: str) -> set[int]:
    return {index for index, mask in enumerate(report.masks.tolist()) if mask & BIT[rule]}


def sample(pairs: list[Pair], rng: random.Random) -> list[Pair]:
    long = [pair for pair in pairs if min(len(set(map(str.casefold, _WORD.findall(side)))) for side in pair) >= 10]
    return rng.sample(long, min(COPIES, len(long)))


def near_copy(pair: Pair, words: list[list[str]], rng: random.Random, changes: int) -> Pair:
    """Return a pair with `changes` words of every ten (or one, if it is 1) changed, added or left out."""
    kind = rng.choice(["changed", "added", "left out"]) if changes == 1 else "changed"
    sides = []
    for side, known in zip(pair, words, strict=True):
        matches = list(_WORD.finditer(side))
        number = 1 if changes == 1 else -(-changes * len(matches) // 10)
        for match in sorted(rng.sample(matches, number), key=lambda match: -match.start()):
            new = rng.choice(known)
            text = {"changed": new, "added": f"{match.group()} {new}", "left out": ""}[kind]
            side = side[: match.start()] + text + side[match.end() :]
        sides.append(side)
    return sides[0], sides[1]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path, nargs=2, required=True)
    parser.add_argument("--held-out", type=Path, nargs=2, required=True)
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument("--examples", type=int, default=0, help="to show of each finding")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
