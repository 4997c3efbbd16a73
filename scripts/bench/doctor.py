"""Measures what `mt data check` costs: pairs a second, CPU seconds and peak memory.

    python scripts/bench/doctor.py --pairs 100000 1000000 --folder /somewhere/with/space

Writes text of that many sentence pairs, some of them with a fault, and examines it, each size in a process of its own.
Some words have umlauts, every tenth sentence a number. The peak is that of the main process and of the largest other
one. On a busy machine, only the CPU seconds are meaningful.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from random_text import LATIN, RandomText

CONFIG = """\
name: bench
data:
  source_lang: en
  target_lang: de
  root: {folder}
  train: {{source: train.en, target: train.de}}
  valid: {{source: valid.en, target: valid.de}}
  test: {{source: test.en, target: test.de}}
"""
# Faults that every thousandth line gets, in turn
FAULTS = ["", "same as before", " &amp;", "\u200b", "Ã¤", "\u2028", " привет мир", "?", " 12345", "\ufffd"]
_COLUMNS = ("pairs", "wall", "pairs/s", "CPU", "CPU µs a pair", "peak MB", "others' peak MB", "findings")


def main() -> None:
    """Print a table, one row a size."""
    arguments = _arguments()
    print("".join(f"{name:>17}" for name in _COLUMNS))
    for pairs in arguments.pairs:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            write_corpus(Path(folder), pairs, arguments.words)
            command = [sys.executable, __file__, "--measure", folder]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            print("".join(f"{cell:>17}" for cell in json.loads(done.stdout.splitlines()[-1])), flush=True)


def write_corpus(folder: Path, pairs: int, words: float) -> None:
    text = RandomText(LATIN + "äöüß", words)
    for name, number in (("valid", 1000), ("test", 1000), ("train", pairs)):
        for language in ("en", "de"):
            with (folder / f"{name}.{language}").open("w", encoding="utf-8") as file:
                for line, sentence in enumerate(text.sentences(number)):
                    fault = FAULTS[line // 1000 % len(FAULTS)] if line % 1000 == 0 else ""
                    digits = f" {line}" if line % 10 == 0 else ""
                    file.write(f"{sentence}{digits}{fault if language == 'de' else ''}.\n")
    (folder / "bench.yaml").write_text(CONFIG.format(folder=folder))


def _measure(folder: Path) -> None:
    """Print one size's figures as JSON; runs in a process of its own."""
    from mt.config import load_config
    from mt.extras.doctor.check import check_corpus
    from mt.extras.doctor.text_report import text_report

    before, cpu = time.perf_counter(), sum(os.times()[:4])
    report = check_corpus(load_config(folder / "bench.yaml", ()), folder / "runs", 3)
    text_report(report)
    wall, cpu = time.perf_counter() - before, sum(os.times()[:4]) - cpu
    pairs = sum(report.pairs.values())
    peaks = [resource.getrusage(who).ru_maxrss / 1000 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cells = (
        f"{pairs:,}",
        f"{wall:.1f} s",
        f"{pairs / wall:,.0f}",
        f"{cpu:.1f} s",
        f"{1e6 * cpu / pairs:.0f}",
        *(f"{peak:.0f}" for peak in peaks),
        len(report.findings),
    )
    print(json.dumps(cells))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, nargs="+", default=[100_000, 1_000_000], help="sizes")
    parser.add_argument("--words", type=float, default=12, help="mean words of a sentence")
    parser.add_argument("--folder", type=Path, help="where the text may lie; some 150 MB for a million pairs")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    if "--measure" in sys.argv:
        _measure(_arguments().measure)
    else:
        main()
