"""Draws BLEU on the validation set against the minutes a training has taken.

    python scripts/time_to_quality.py --output docs/images/time_to_quality.png NAME=runs/multi30k-en-de-fast ...

The times are those of a clock, from the training's first step on, pauses between two sessions left out and validations
counted. Points that were measured elsewhere can be added: --points "MarianMTModel=5:5.8,10:8.1,15:13.9".
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from mt.extras.reporting.run_data import parse_events
from mt.storage.run_dir import RunDir

Curve = list[tuple[float, float]]


def curve(run: Path) -> Curve:
    """Return (minutes, greedy BLEU on the validation set) at each validation of a run.

    What a crash lost is left out; the time that it took is not.
    """
    points: dict[int, tuple[float, float]] = {}
    spent = session_start = last = 0.0
    for event in parse_events(RunDir(run).metrics.read_text(encoding="utf-8", errors="replace")):
        if event["event"] in ("start", "resume"):
            spent += last - session_start
            session_start = event["time"]
            points = {step: point for step, point in points.items() if step <= event["step"]}
        last = event["time"]
        if event["event"] == "validation":
            points[event["step"]] = (spent + last - session_start) / 60, event["bleu"]
    return list(points.values())


def read_points(text: str) -> tuple[str, Curve]:
    """Parse `NAME=5:5.8,10:8.1` into a name and points."""
    name, _, values = text.partition("=")
    pairs = (value.partition(":")[::2] for value in values.split(","))
    return name, [(float(minutes), float(bleu)) for minutes, bleu in pairs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", metavar="NAME=RUN", help="a label and a run folder")
    parser.add_argument("--points", action="append", default=[], help="a label and points measured elsewhere")
    parser.add_argument("--output", type=Path, required=True, help="the picture")
    parser.add_argument("--title", default="Multi30k English to German, 2 CPU cores")
    arguments = parser.parse_args()
    curves = [(name, curve(Path(path))) for name, _, path in (run.partition("=") for run in arguments.runs)]
    figure, axes = plt.subplots(figsize=(8, 5))
    for name, points in curves:
        axes.plot(*zip(*points, strict=True), marker="o", markersize=4, label=name)
        print(f"{name}: " + ", ".join(f"{minutes:.1f} min {bleu:.1f}" for minutes, bleu in points))
    for name, points in map(read_points, arguments.points):
        axes.plot(*zip(*points, strict=True), marker="s", markersize=4, linestyle="--", label=name)
    axes.set(xlabel="minutes of training", ylabel="BLEU on the validation set", title=arguments.title)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(arguments.output, dpi=150)


if __name__ == "__main__":
    main()
