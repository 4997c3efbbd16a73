"""Measures what preparing a large corpus costs, and that its memory does not grow with it.

    python scripts/bench/corpus.py --millions 1 4 16 --folder /somewhere/with/space

Writes random text of that many sentence pairs, then does what `mt train` does until the first batch, each size in
processes of its own: cleaning, the tokenizer, token ids, the order of the first epoch.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from random_text import RandomText

MILLION = 10**6
CONFIG = """\
name: bench
data:
  source_lang: en
  target_lang: de
  root: {folder}
  train: {{source: train.en, target: train.de}}
  valid: {{source: valid.en, target: valid.de}}
tokenizer: {{vocab_size: 16000}}
training: {{max_tokens: 25000}}
"""


def main() -> None:
    """Print a table, one row a size."""
    arguments = _arguments()
    rows = []
    for millions in arguments.millions:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            _write_corpus(Path(folder), int(millions * MILLION), arguments.words)
            command = [sys.executable, __file__, "--measure", folder]
            rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
            _print(rows[-1], header=len(rows) == 1)
    first, last = rows[0], rows[-1]
    print(
        f"peak memory at {last['pairs']:,} pairs: {last['peak'] / first['peak']:.2f} times that at {first['pairs']:,}; "
        f"seconds a pair: {_per_pair(last) / _per_pair(first):.2f} times"
    )


def _write_corpus(folder: Path, pairs: int, words: float) -> None:
    text = RandomText(words=words)
    for name, number in (("valid", 100), ("train", pairs)):
        for language in ("en", "de"):
            with (folder / f"{name}.{language}").open("w") as file:
                file.writelines(f"{sentence}\n" for sentence in text.sentences(number))
    (folder / "bench.yaml").write_text(CONFIG.format(folder=folder))


def _measure(folder: Path) -> None:
    """Print one size's figures as JSON; runs in a process of its own."""
    from mt.bundle.pretrained import Pretrained
    from mt.config import load_config
    from mt.data.batching import BatchStream
    from mt.data.prepare import input_digests
    from mt.data.token_store import EncodedCorpus
    from mt.pipeline import data
    from mt.storage.run_dir import RunDir

    config = load_config(folder / "bench.yaml", ())
    run_dir = RunDir(folder / "runs" / config.name)
    times = [time.perf_counter()]

    def lap(_: object) -> None:
        times.append(time.perf_counter())

    lap(key := data.clean_text(config, run_dir, input_digests(config.data)))
    tokenizers, files = data.make_tokenizers(config, run_dir, key, Pretrained(config))
    lap(tokenizers)
    lap(data.encode(config, run_dir, tokenizers, files, key))
    corpus = EncodedCorpus.open(run_dir.encoded("train"))
    lap(BatchStream(corpus, config.training.max_tokens, config.seed).next())
    encoded = sum(path.stat().st_size for path in run_dir.encoded("train").iterdir())
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) * 1024
    seconds = dict(zip(("prepare", "tokenizer", "encode", "order"), np.diff(times).tolist(), strict=True))
    print(json.dumps({"pairs": len(corpus), "seconds": seconds, "bytes": encoded / len(corpus), "peak": peak}))


def _per_pair(row: dict) -> float:
    """Return the seconds a pair of the stages that read the whole corpus; the tokenizer learns from a sample."""
    return (row["seconds"]["prepare"] + row["seconds"]["encode"]) / row["pairs"]


def _print(row: dict, header: bool) -> None:
    columns = ("pairs", "prepare", "tokenizer", "encode", "pairs/s encoded", "first batch", "bytes a pair", "peak MB")
    if header:
        print("".join(f"{name:>16}" for name in columns))
    s = row["seconds"]
    cells = [
        f"{row['pairs']:,}",
        *(f"{s[stage]:.1f} s" for stage in ("prepare", "tokenizer", "encode")),
        f"{row['pairs'] / s['encode']:,.0f}",
        f"{s['order']:.2f} s",
        f"{row['bytes']:.0f}",
        f"{row['peak'] / 1e6:.0f}",
    ]
    print("".join(f"{cell:>16}" for cell in cells), flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millions", type=float, nargs="+", default=[1.0, 4.0, 16.0], help="sizes, in million pairs")
    parser.add_argument("--words", type=float, default=12, help="mean words of a sentence")
    parser.add_argument("--folder", type=Path, help="where temporary files may lie; some 10 GB for 16 million pairs")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    if "--measure" in sys.argv:
        _measure(_arguments().measure)
    else:
        main()
