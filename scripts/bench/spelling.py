"""Shows what the correction of spelling does to a test text, as it is and with the typos of `mt eval --perturb`.

    python scripts/bench/spelling.py multi30k/train.en multi30k/test_2016_flickr.en --lines 3000

Prints the share of misspelt words that are set right and that are set wrong, and of the words of the text as it is
that are changed, with examples.
"""

import argparse
import random
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

from mt.data.augmentation import add_typos
from mt.extras.scoring.perturbation import TYPO_SHARE
from mt.text.casing import WORD
from mt.text.lines import TextFile
from mt.text.spelling import Spelling


def main() -> int:
    """Print the table's row of one text."""
    arguments = _arguments()
    spelling = Spelling.learn(islice(TextFile(arguments.train), arguments.lines))
    if spelling is None:
        raise SystemExit(f"{arguments.train}: a script without case")
    changed, outcomes, words = Counter[str](), Counter[str](), 0
    for row, line in enumerate(TextFile(arguments.test)):
        typos = add_typos(line, random.Random(f"1 typos {row}"), TYPO_SHARE)
        texts = line, spelling.corrected(line), typos, spelling.corrected(typos)
        for right, same, misspelt, corrected in zip(*map(WORD.findall, texts), strict=True):
            words += 1
            if same != right:
                changed[f"{right} -> {same}"] += 1
            if misspelt != right:
                outcomes["set right" if corrected == right else "left" if corrected == misspelt else "set wrong"] += 1
    for outcome, count in outcomes.most_common():
        print(f"misspelt words {outcome}\t{100 * count / outcomes.total():.1f} %")
    print(f"words changed in clean text\t{100 * changed.total() / words:.2f} %\t{', '.join(list(changed)[:10])}")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--lines", type=int, help="of the training text, from its beginning")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
