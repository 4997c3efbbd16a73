"""Compares the model that `mt init --minutes` chooses with each of the shapes that it chooses from, in the same time.

    OMP_NUM_THREADS=1 taskset -c 0 python scripts/bench/shapes.py corpus en es --work shapes --minutes 20

The folder has train, valid and test in both languages. Each shape has the configuration that `mt init` would write if
there were no other, so dropout and number of steps fit it. Prints BLEU with beam search, and the minutes of
training, which leave out preparation and scoring. Resumes where it stopped.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from mt.cli import main as mt
from mt.config import load_config
from mt.extras.planning import first_config
from mt.extras.planning.recipe import SHAPES, Shape


def main() -> int:
    """Print a line for the choice of `mt init`, and one for each shape that is not its choice."""
    arguments = _arguments()
    arguments.work.mkdir(parents=True, exist_ok=True)
    chosen = _write_config("chosen", SHAPES, arguments)
    print("\td_model\tlayers\tdropout\tvalid\ttest\tminutes")
    print("chosen", *_train("chosen", arguments.work), sep="\t", flush=True)
    for shape in SHAPES:
        if shape.d_model <= arguments.largest and (shape.d_model, shape.encoder_layers) != chosen:
            name = f"d{shape.d_model}-{shape.encoder_layers}"
            _write_config(name, [shape], arguments)
            print(name, *_train(name, arguments.work), sep="\t", flush=True)
    return 0


def _write_config(name: str, shapes: Sequence[Shape], arguments: argparse.Namespace) -> tuple[int, int]:
    """Write a configuration, unless it is there; return its d_model and the number of the encoder's layers."""
    path = arguments.work / f"{name}.yaml"
    if not path.exists():
        if len(shapes) == 1:
            first_config.SHAPES, first_config.first_shape = tuple(shapes), lambda inputs: shapes[0]
            first_config.shape_for_few_steps = lambda shape, inputs: shape
        files = {
            option: [str(Path(f"{arguments.corpus / option}.{code}").resolve()) for code in arguments.languages]
            for option in ("train", "valid", "test")
        }
        options = [word for option, pair in files.items() for word in (f"--{option}", *pair)]
        sys.argv = ["mt", "init", *options, "--minutes", str(arguments.minutes), "--name", name, "--output", str(path)]
        try:
            mt()
        except SystemExit as end:
            if end.code:
                raise
    model = load_config(path).model
    return model.d_model, model.encoder_layers


def _train(name: str, work: Path) -> list[str]:
    """Train, unless it is done; return the cells of a line."""
    folder, path = work / "runs" / name, work / f"{name}.yaml"
    with (work / "bench.log").open("a") as log:
        command = [sys.executable, "-m", "mt", "train", "--config", path, "--runs", work / "runs"]
        subprocess.run(command, check=True, stdout=log, stderr=log)
    model = load_config(path).model
    manifest = json.loads((folder / "model" / "MANIFEST.json").read_text())
    test = next(result["bleu"] for result in manifest["test"] if result["method"] == "beam")
    [valid] = [result["valid_bleu"] for result in manifest["formats"] if result["compute_type"] == "float32"]
    layers = f"{model.encoder_layers}+{model.decoder_layers}"
    cells = (f"{model.d_model}", layers, f"{model.dropout}")
    return [*cells, *(f"{number:.1f}" for number in (valid, test, manifest["training_seconds"] / 60))]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("languages", nargs=2)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--largest", type=int, default=256, help="the largest d_model")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
