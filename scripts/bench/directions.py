"""Trains one model for all directions between the languages of a corpus, and one model for each direction.

    python scripts/bench/directions.py multi30k --work directions --steps 1500

All models have one shape. The many-to-many model has the updates of all single ones together, or a `--share` of them.
Prints the test set's BLEU of both in each direction, the means, and the share of translations in a wrong language. The
folder holds train.*, val.* and test_2016_flickr.*. Resumes where it stopped.
"""

import argparse
import json
import subprocess
import sys
from itertools import permutations
from pathlib import Path
from typing import Any

import yaml

SPLITS = {"train": "train", "valid": "val", "test": "test_2016_flickr"}


def main() -> int:
    """Print a line for each direction, and the means."""
    arguments = _arguments()
    arguments.work.mkdir(parents=True, exist_ok=True)
    directions = list(permutations(arguments.languages, 2))
    single = {(s, t): _train(_config(f"{s}-{t}", [(s, t)], arguments), arguments.work) for s, t in directions}
    many = _train(_config("many", directions, arguments), arguments.work)
    print("direction\tmethod\tsingle\tmany\twrong language %")
    rows = []
    for result in many:
        pair, method = (result["source_lang"], result["target_lang"]), result["method"]
        alone = next(each["bleu"] for each in single[pair] if each["method"] == method)
        rows.append((f"{pair[0]}-{pair[1]}", method, alone, result["bleu"], result["wrong_language"]))
    for method in dict.fromkeys(row[1] for row in rows):
        chosen = [row[2:] for row in rows if row[1] == method]
        rows.append(("mean", method, *(sum(column) / len(chosen) for column in zip(*chosen, strict=True))))
    for name, method, *figures in rows:
        print(name, method, *(f"{figure:.2f}" for figure in figures), sep="\t")
    return 0


def _config(name: str, directions: list[tuple[str, str]], arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the configuration of a model for one direction, or for several."""
    several = len(directions) > 1
    texts: dict[str, Any] = {}
    for split, start in SPLITS.items():
        files = [{"source": f"{start}.{s}", "target": f"{start}.{t}"} for s, t in directions]
        tagged = [file | {"source_lang": s, "target_lang": t} for file, (s, t) in zip(files, directions, strict=True)]
        texts[split] = tagged if several else files[0]
    sources, targets = (list(dict.fromkeys(codes)) for codes in zip(*directions, strict=True))
    return {
        "name": name,
        "data": {
            "source_lang": sources if several else sources[0],
            "target_lang": targets if several else targets[0],
            "root": str(arguments.folder.resolve()),
            **texts,
        },
        "tokenizer": {"vocab_size": arguments.vocab_size * (len(arguments.languages) if several else 2)},
        "model": {
            "d_model": arguments.d_model,
            "n_heads": 4,
            "d_ff": 2 * arguments.d_model,
            "encoder_layers": arguments.layers,
            "decoder_layers": arguments.layers,
            "dropout": arguments.dropout,
            "norm": "pre",
        },
        "training": {
            "max_tokens": 2048,
            "max_steps": round(arguments.steps * (arguments.share * len(directions) if several else 1)),
            "optimizer": "muon",
            "learning_rate": 6.0e-3,
            "schedule": "cosine",
            "warmup_steps": 200,
            "validate_every": 1500 if several else 500,
        },
        "decoding": {"beam_size": 5, "length_penalty": 1.2},
    }


def _train(config: dict[str, Any], work: Path) -> list[dict[str, Any]]:
    """Train, unless it is done; return the results on the test set."""
    path = work / f"{config['name']}.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    with (work / "bench.log").open("a") as log:
        command = [sys.executable, "-m", "mt", "train", "--config", path, "--runs", work / "runs"]
        subprocess.run(command, check=True, stdout=log, stderr=log)
    results = json.loads((work / "runs" / config["name"] / "model" / "MANIFEST.json").read_text())["test"]
    print(config["name"], *(f"{each['method']} {each['bleu']:.1f}" for each in results), file=sys.stderr, flush=True)
    return list(results)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--languages", nargs="+", default=["en", "de", "fr"])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=1500, help="of a single model")
    parser.add_argument("--share", type=float, default=1.0, help="updates of the many-to-many model")
    parser.add_argument("--vocab-size", type=int, default=4000, help="pieces for each language")
    parser.add_argument("--d-model", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--dropout", type=float, default=0.1)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
