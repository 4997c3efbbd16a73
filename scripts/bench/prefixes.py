"""Compares translations with forced prefixes by both engines.

    python scripts/bench/prefixes.py runs/single debian/test.en debian/test.fr

Each prefix is the beginning of a reference, cut anywhere, also inside a word. Prints for each search how many
translations begin with their prefix, and how many are the same by CTranslate2 and by torch in float32, beside that
share without prefixes.
"""

import argparse
import random
import sys
from pathlib import Path

from mt.api.loading import load
from mt.errors import InputError
from mt.text.lines import TextFile


def main() -> int:
    """Print a line for each search."""
    arguments = _arguments()
    rng = random.Random(arguments.seed)
    pairs = list(zip(TextFile(arguments.source), TextFile(arguments.reference), strict=True))[: arguments.lines]
    engines = [load(arguments.model, engine=name, compute_type="float32") for name in ("ctranslate2", "torch")]
    kept, prefixes = list[str](), list[str]()
    for source, reference in pairs:
        prefix = reference[: rng.randint(1, max(1, len(reference) // 2))]
        try:
            next(iter(engines[0].results([source], prefix=[prefix], scores=False, beam_size=1)))
        except InputError as error:  # a long line, or a character that the model lacks
            print(f"left out: {error.message}")
            continue
        kept.append(source)
        prefixes.append(prefix)
    for beam in arguments.beams:
        for forced in (None, prefixes):
            options = {} if forced is None else {"prefix": forced}
            results = [engine.translate(kept, beam_size=beam, **options) for engine in engines]
            same = sum(one == other for one, other in zip(*results, strict=True))
            label = "without prefixes" if forced is None else "with prefixes"
            print(f"beam {beam}, {label}: {same:,} of {len(kept):,} the same ({same / len(kept):.1%})", flush=True)
            for engine, translations in zip(engines, results if forced else (), strict=False):
                begins = sum(text.startswith(prefix) for text, prefix in zip(translations, prefixes, strict=True))
                print(f"    {engine.engine}: {begins:,} begin with their prefix", flush=True)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
