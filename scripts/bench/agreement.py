"""Compares word alignments of a real text, which has no true ones, with those of another aligner.

    python scripts/bench/agreement.py all.en all.de --write-text tokens     # for the other aligner: "a b ||| c d"
    eflomal-align --input tokens --forward-links forward --reverse-links reverse
    python scripts/bench/agreement.py all.en all.de --links forward reverse --last 1014 --models runs/plain runs/guided

The other's links of both directions are joined by grow-diag-final-and and taken for true: prints the alignment error
rate (Och and Ney 2003) of the lexicon aligner on the whole text, and on its last lines also that of each model's
attention, given the translations. No model should have been trained on these lines.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from aligners import Links, attention_links, lexicon_links, parsed

from mt.data.word_alignment import grow_diag_final_and
from mt.text.lines import TextFile

sys.path.insert(0, str(Path(__file__).parents[1]))

from phrasebook.links import tokens


def main() -> int:
    """Print error rates."""
    arguments = _arguments()
    pairs = list(zip(*map(TextFile, arguments.texts), strict=True))
    if arguments.write_text:
        rows = (" ||| ".join(" ".join(tokens(text)) for text in pair) for pair in pairs)
        arguments.write_text.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    if arguments.links:
        both = [[set(parsed(line)) for line in path.read_text().splitlines()] for path in arguments.links]
        truth = [grow_diag_final_and(*links) for links in zip(*both, strict=True)]
        found = lexicon_links(pairs)
        print(f"lexicon aligner: {error_rate(truth, found)}", flush=True)
        part = slice(-arguments.last, None)
        print(f"lexicon aligner, last {arguments.last:,} lines: {error_rate(truth[part], found[part])}", flush=True)
        for path in arguments.models:
            rate = error_rate(truth[part], attention_links(path, pairs[part]))
            print(f"{path.name}, last {arguments.last:,} lines: {rate}", flush=True)
    return 0


def error_rate(truth: Sequence[Links], found: Sequence[Links]) -> str:
    """Compare links with those that count as true."""
    right = n_found = n_true = 0
    for links, others in zip(truth, found, strict=True):
        one, other = set(links), set(others)
        right, n_true, n_found = right + len(one & other), n_true + len(one), n_found + len(other)
    rate = 1 - 2 * right / (n_found + n_true)
    return f"AER {rate:.1%} (precision {right / n_found:.1%}, recall {right / n_true:.1%}, {n_true:,} links)"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=Path, nargs=2, help="source and target")
    parser.add_argument("--write-text", type=Path, help="write the tokens for another aligner")
    parser.add_argument("--links", type=Path, nargs=2, help="of the other aligner, forward and reverse")
    parser.add_argument("--last", type=int, default=1000, help="lines at the end, held out from the models")
    parser.add_argument("--models", type=Path, nargs="*", default=[], help="run folders")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
