"""Measures the speed and memory of `mt data score`.

    python scripts/bench/scoring.py data/train en de --forward runs/en-de --backward runs/de-en --pairs 20000 100000

The text is repeated or cut to each number of pairs. Loading the models and the first reading of the text count.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path

CONFIG = """\
name: scoring
data:
  source_lang: {0}
  target_lang: {1}
  train: {{source: train.{0}, target: train.{1}}}
  valid: {{from_train: 100}}
  test: null
"""


def main() -> int:
    """Print a line for each size."""
    arguments = _arguments()
    print("pairs\tseconds\tpairs/s\tCPU seconds\tMB")
    for pairs in arguments.pairs:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for code in arguments.languages:
                lines = Path(f"{arguments.text}.{code}").read_text(encoding="utf-8").splitlines()
                text = "".join(f"{line}\n" for line in islice(cycle(lines), pairs))
                (folder / f"train.{code}").write_text(text, encoding="utf-8")
            (folder / "scoring.yaml").write_text(CONFIG.format(*arguments.languages))
            models = [f"--{way}={getattr(arguments, way).resolve()}" for way in ("forward", "backward")]
            command = [sys.executable, "-m", "mt", "data", "score", "scoring.yaml", "--output", "scores", *models]
            before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            subprocess.run(command, cwd=folder, check=True, capture_output=True)
            seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            # The largest of all children so far: sizes in ascending order show whether memory grows.
            print(
                f"{pairs:,}\t{seconds:.1f}\t{pairs / seconds:,.0f}\t{cpu:.1f}\t{after.ru_maxrss / 1024:,.0f}",
                flush=True,
            )
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="without the language")
    parser.add_argument("languages", nargs=2)
    parser.add_argument("--forward", type=Path, required=True)
    parser.add_argument("--backward", type=Path, required=True)
    parser.add_argument("--pairs", type=int, nargs="+", default=[20_000, 100_000])
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
