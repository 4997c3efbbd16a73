"""Mismatches 30 % of a corpus's pairs at random, scores and cleans it, and trains on the result and on clean text.

    python scripts/bench/filtering.py multi30k/train multi30k/val multi30k/test_2016_flickr en de --work filtering
    python scripts/bench/filtering.py debian/train debian/valid debian/test en fr --work filtering --steps 4000

Everything goes through the command line, and resumes where it was interrupted. The models that score are trained on
the dirty text by `mt data score --train`. `clean` is the text as it was, `dirty` with the wrong pairs, `filtered` what
`mt data clean --scores` leaves of that, `ideal` the dirty text without exactly the wrong pairs. `recovered` is
`filtered` and the target sentences of the pairs dropped for their score, translated back by the model that judged them.
"""

import argparse
import csv
import json
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

SHARE = 0.3
SIDES = ("source", "target")
SYSTEMS = ("clean", "filtered", "recovered", "ideal", "dirty")
SHAPE = {"d_model": 128, "n_heads": 4, "d_ff": 256, "encoder_layers": 4, "decoder_layers": 4, "dropout": 0.1}


def main() -> int:
    """Print how many pairs of each kind were dropped, and the BLEU of each training."""
    arguments = _arguments()
    folder = arguments.work / f"{arguments.train.parent.name}-{arguments.languages[1]}-{arguments.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    sides = [Path(f"{arguments.train}.{code}").read_text(encoding="utf-8").splitlines() for code in arguments.languages]
    wrong, targets = plant(sides[1], random.Random(arguments.seed))
    ideal = [side for index, side in enumerate(zip(*sides, strict=True)) if index not in wrong]
    texts = {
        "clean": sides,
        "dirty": [sides[0], targets],
        "ideal": [list(side) for side in zip(*ideal, strict=True)],
    }
    for name, text in texts.items():
        for code, lines in zip(arguments.languages, text, strict=True):
            (folder / f"{name}.{code}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name in SYSTEMS:
        _write_config(folder, name, arguments)
    if {"filtered", "recovered", "scores"} & set(arguments.systems):
        _score(folder, wrong, sides[0])
    if "recovered" in arguments.systems:
        _translate_back(folder, *arguments.languages)
    for name in arguments.systems:
        if name in SYSTEMS:
            print(f"{name}: {_train(folder, name)}", flush=True)
    return 0


def plant(targets: list[str], rng: random.Random) -> tuple[set[int], list[str]]:
    """Return the indices of wrong pairs and the targets with them: each gets the target of another."""
    chosen = rng.sample(range(len(targets)), round(SHARE * len(targets)))
    changed = list(targets)
    for index, other in zip(chosen, [*chosen[1:], chosen[0]], strict=True):
        changed[index] = targets[other]
    return set(chosen), changed


def _score(folder: Path, wrong: set[int], sources: list[str]) -> None:
    started = time.perf_counter()
    if not (folder / "scores" / "scores.tsv").exists():
        _mt("data", "score", folder / "dirty.yaml", "--train", "--output", folder / "scores")
    summary = json.loads((folder / "scores" / "scores.json").read_text())
    with (folder / "scores" / "scores.tsv").open(encoding="utf-8") as table:
        column = next(table).split("\t").index("score")
        scores = [float(row.split("\t")[column]) for row in table]
    low = {index for index, score in enumerate(scores) if score < summary["min_score"]}
    clean = len(scores) - len(wrong)
    print(f"trained and scored in {time.perf_counter() - started:.0f} s; threshold {summary['min_score']}")
    print(f"dropped: {100 * len(low & wrong) / len(wrong):.2f} % of the wrong pairs, ", end="")
    print(f"{100 * len(low - wrong) / clean:.2f} % of the clean ones", flush=True)
    short = set(sorted(range(len(scores)), key=lambda index: len(sources[index]))[: len(scores) // 10]) - wrong
    print(f"of the shortest tenth of the clean pairs: {100 * len(low & short) / len(short):.2f} %", flush=True)
    _mt("data", "clean", folder / "dirty.yaml", "--scores", folder / "scores", "--output", folder / "cleaned")


def _translate_back(folder: Path, source: str, target: str) -> None:
    with (folder / "cleaned" / "dropped" / "low-score.tsv").open(encoding="utf-8", newline="") as table:
        lines = [row["target"] for row in csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE)]
    (folder / f"dropped.{target}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    model, output = folder / "scores" / f"{target}-{source}", folder / f"dropped.{source}"
    _mt("backtranslate", "--force", "--model", model, "--input", folder / f"dropped.{target}", "--output", output)


def _train(folder: Path, name: str) -> str:
    _mt("train", "--config", folder / f"{name}.yaml", "--runs", folder / "runs")
    manifest = json.loads((folder / "runs" / name / "model" / "MANIFEST.json").read_text())
    return ", ".join(f"{each['method']} {each['bleu']:.1f}" for each in manifest["test"])


def _write_config(folder: Path, name: str, arguments: argparse.Namespace) -> None:
    text = folder / "cleaned" / "train" if name in ("filtered", "recovered") else folder / name
    texts = {
        split: _files(path, arguments.languages)
        for split, path in (("valid", arguments.valid), ("test", arguments.test))
    }
    train: Any = _files(text, arguments.languages)
    if name == "recovered":
        train = [train, {**_files(folder / "dropped", arguments.languages), "synthetic": True}]
    config: dict[str, Any] = {
        "name": name,
        "seed": arguments.seed,
        "data": {
            "source_lang": arguments.languages[0],
            "target_lang": arguments.languages[1],
            "root": "/",
            "train": train,
            **texts,
        },
        "tokenizer": {"vocab_size": 10000},
        "model": {**SHAPE, "norm": "pre"},
        "training": {
            "max_tokens": 2048,
            "max_steps": arguments.steps,
            "optimizer": "muon",
            "learning_rate": 6.0e-3,
            "schedule": "cosine",
            "warmup_steps": 200,
            "validate_every": 500,
        },
        "decoding": {"beam_size": 5, "length_penalty": 1.2},
    }
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")


def _files(path: Path, languages: Sequence[str]) -> dict[str, str]:
    return {side: str(Path(f"{path}.{code}").resolve()) for side, code in zip(SIDES, languages, strict=True)}


def _mt(*words: object) -> None:
    with (Path(str(words[-1])).parent / "bench.log").open("a") as log:
        subprocess.run([sys.executable, "-m", "mt", *map(str, words)], check=True, stdout=log, stderr=log)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=Path, help="without the language")
    parser.add_argument("valid", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("languages", nargs=2)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1, help="of the wrong pairs and of the trainings")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--systems", nargs="+", default=["clean", "filtered"], choices=[*SYSTEMS, "scores"])
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
