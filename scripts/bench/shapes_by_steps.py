"""Compares the shapes that `mt init --minutes` chooses from, each after the steps that a CPU makes in some minutes.

    python scripts/bench/shapes_by_steps.py corpus en es --work shapes --minutes 14 45 120 --seeds 3 \\
        --step-seconds 0.636 0.77 1.11 --pass-steps 337 --jobs 16 --set training.device=cuda training.cuda_graphs=true

So a GPU can tell in minutes what is worth training on a CPU for hours. `--step-seconds` is the time that a step of each
of the first shapes takes on the CPU, 0 leaves a shape out; `--pass-steps`, the number of steps that read the text once.
The folder has train, valid and test in both languages. Each training has the configuration that `mt init` would write
for the shape and the time. Prints BLEU with beam search on the test set, of each seed. Resumes where it stopped.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from mt.extras.planning.corpus_sample import sample_corpus
from mt.extras.planning.first_config import new_model_text
from mt.extras.planning.init_options import InitOptions, validated_data
from mt.extras.planning.recipe import SHAPES, Length, PlanInputs, rounded

FIXED = [
    *("decoding.compute_type=float32", "decoding.tune_length_penalty=false"),  # no CTranslate2, fewer searches
    "training.log_every=1000",
]


@dataclass(frozen=True)
class Training:
    """One training: a shape, a time and a seed."""

    shape: int  # of SHAPES
    minutes: float
    seed: int
    steps: int

    @property
    def name(self) -> str:
        shape = SHAPES[self.shape]
        return f"d{shape.d_model}-{shape.encoder_layers}-{self.minutes:g}min-{self.seed}"


def main() -> int:
    """Train everything, the longest first, and print a line for each shape and time."""
    arguments = _arguments()
    arguments.work.mkdir(parents=True, exist_ok=True)
    options = _options(arguments)
    sample = sample_corpus(validated_data(options).train, validated_data(options))
    trainings = sorted(_trainings(arguments), key=lambda training: -training.minutes)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for training in trainings:
            inputs = PlanInputs(sample, "cpu", 1, training.minutes, precision="bf16")
            length = Length(training.steps, training.steps / arguments.pass_steps, validations=4)
            path = arguments.work / f"{training.name}.yaml"
            own = replace(options, name=training.name)
            path.write_text(new_model_text(own, inputs, SHAPES[training.shape], length))
        futures = [pool.submit(_train, training, arguments) for training in trainings]
        try:
            code = max(future.result() for future in futures)
        except KeyboardInterrupt:  # the trainings get it, too, and save their state
            pool.shutdown(cancel_futures=True)
            code = 130
    _print_table(trainings, arguments)
    return code


def _trainings(arguments: argparse.Namespace) -> Iterator[Training]:
    for minutes in arguments.minutes:
        for shape, seconds in enumerate(arguments.step_seconds):
            for seed in range(1, (arguments.seeds if seconds else 0) + 1):
                yield Training(shape, minutes, seed, rounded(60 * minutes / seconds))


def _options(arguments: argparse.Namespace) -> InitOptions:
    source, target = arguments.languages
    train, valid, test = (
        [{"source": str(arguments.corpus / f"{split}.{source}"), "target": str(arguments.corpus / f"{split}.{target}")}]
        for split in ("train", "valid", "test")
    )
    return InitOptions("shapes", source, target, train, valid, test, None, "cpu")


def _train(training: Training, arguments: argparse.Namespace) -> int:
    """Train, unless it is done; return the exit code."""
    runs, path = arguments.work / "runs", arguments.work / f"{training.name}.yaml"
    manifest = runs / training.name / "model" / "MANIFEST.json"
    if manifest.exists():
        return 0
    changes = [*FIXED, f"seed={training.seed}", *arguments.set]
    command = [sys.executable, "-m", "mt", "train", "--config", path, "--runs", runs]
    for change in changes:
        command += ["--set", change]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with (arguments.work / f"{training.name}.log").open("a") as log:
        code = subprocess.run(command, stdout=log, stderr=log, env=environment).returncode
    print(f"# {training.name}: " + (f"exit code {code}" if code else f"{_beam(manifest)} BLEU"), flush=True)
    return code


def _print_table(trainings: list[Training], arguments: argparse.Namespace) -> None:
    scores: dict[tuple[float, int, int], list[float]] = defaultdict(list)
    for training in trainings:
        manifest = arguments.work / "runs" / training.name / "model" / "MANIFEST.json"
        if manifest.exists():
            scores[training.minutes, training.shape, training.steps].append(_beam(manifest))
    print("minutes\td_model\tlayers\tsteps\tpasses\tmean\teach")
    for (minutes, number, steps), found in sorted(scores.items()):
        shape = SHAPES[number]
        layers = f"{shape.encoder_layers}+{shape.decoder_layers}"
        cells = [f"{minutes:g}", f"{shape.d_model}", layers, f"{steps}", f"{steps / arguments.pass_steps:.1f}"]
        each = " ".join(f"{score:.2f}" for score in found)
        print(*cells, f"{sum(found) / len(found):.2f}", each, sep="\t")


def _beam(manifest: Path) -> float:
    results = json.loads(manifest.read_text())["test"]
    return next(float(result["bleu"]) for result in results if result["method"] == "beam")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("languages", nargs=2)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--minutes", type=float, nargs="+", default=[45])
    parser.add_argument("--step-seconds", type=float, nargs="+", required=True, help="of a shape, the smallest first")
    parser.add_argument("--pass-steps", type=float, required=True)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="trainings at once")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="further changes")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
