"""Runs: their state, scores and history, read from the run folder."""

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mt.api.loading import load
from mt.api.translation import Translator
from mt.bundle.model_card import direction_options
from mt.config import load_config
from mt.config.loading import as_yaml
from mt.console import quoted
from mt.errors import InputError, MtError
from mt.extras.reporting.run_data import RunData, last_step, read_history
from mt.extras.reporting.verdict import judge
from mt.storage.find_model import pipelines_hint, refuse_pipeline
from mt.storage.manifest import DamagedError, read_manifest
from mt.storage.run_dir import RunDir


@dataclass(frozen=True)
class Run:
    """The folder of a training, finished or not.

    Attributes:
        path: the folder.
        summary: the lines that `mt train` prints at the end; empty for a run that was only listed.
    """

    path: Path
    summary: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))  # may be given as a string, as everywhere in this API

    @property
    def name(self) -> str:
        return self.path.absolute().name

    @property
    def _dir(self) -> RunDir:
        return RunDir(self.path)

    @property
    def model(self) -> Path:
        """The model folder; it exists once the run is finished."""
        return self._dir.model.root

    @property
    def report(self) -> Path:
        """The report, an HTML page."""
        return self._dir.report

    @property
    def is_finished(self) -> bool:
        """True when the model folder is complete."""
        return self._dir.model.manifest.is_file()

    @property
    def config(self) -> dict[str, Any]:
        """The configuration, all defaults included.

        Raises:
            InputError: it is missing or invalid.
        """
        return load_config(self._dir.config).model_dump()

    @property
    def scores(self) -> list[dict[str, Any]]:
        """The scores on the test set, one dictionary per direction and search method; empty without them."""
        path = self._dir.scores / "test.json"
        try:
            results = json.loads(path.read_bytes())["results"]
            return list(results) if all(map(_is_score, results)) else []
        except (OSError, ValueError, KeyError, TypeError):
            return []

    @property
    def bleu(self) -> float | None:
        """The mean BLEU over the trained directions of beam search, or of the only method; None without scores."""
        beam = [score for score in self.scores if score.get("method") == "beam"] or self.scores
        values = [score["bleu"] for score in beam if score.get("bleu") is not None and not score.get("zero_shot")]
        return sum(values) / len(values) if values else None

    @property
    def verdict(self) -> list[str]:
        """A judgement of the scores in words, with reasons and what to try next; empty without scores."""
        try:
            verdict = judge(RunData(self._dir))
        except MtError:  # a damaged run has none
            return []
        return verdict.lines() if verdict else []

    @property
    def history(self) -> list[dict[str, Any]]:
        """The events of the training in order: `train` and `validation` have the numbers of a curve.

        Steps that were repeated after a crash appear only once. `pandas.DataFrame(run.history)` is a table.
        """
        return read_history(self._dir)

    @property
    def steps(self) -> int:
        """The last step of the training."""
        return last_step(self.history)

    def load(self, **options: Any) -> Translator:
        """Load the model; the options are those of `mt.load`."""
        return load(self.path, **options)

    def facts(self) -> dict[str, Any]:
        """Return the run's row of a table of runs; a value that cannot be read is None, 0 or empty.

        A finished training that is extended is unfinished until it has a new model; its score is that of the old one.

        Returns:
            name, state (finished, unfinished, damaged or unreadable), source_lang (a list if several), target_langs,
            bleu, steps, megabytes (of the model folder) and time (of its last change, in seconds since the epoch).
        """
        facts: dict[str, Any] = {"name": self.name, "state": "unreadable", "source_lang": None, "target_langs": []}
        facts |= {"bleu": None, "steps": 0, "megabytes": None, "time": self.path.stat().st_mtime}
        with contextlib.suppress(OSError):  # another user's run, in a shared folder
            facts |= self._read_facts()
        return facts

    def _read_facts(self) -> dict[str, Any]:
        steps = self.steps
        is_done = self.is_finished and not self._is_extended(steps)
        try:
            data = self.config["data"]
            state = "finished" if is_done else "unfinished"
        except MtError:
            data, state = {}, "damaged"
        languages = data.get("target_lang", ())
        newest = self._dir.model.manifest if is_done else self._dir.metrics
        model_bytes = sum(path.stat().st_size for path in self.model.rglob("*") if path.is_file())
        return {
            "state": state,
            "source_lang": data.get("source_lang"),
            "target_langs": [languages] if isinstance(languages, str) else list(languages),
            "bleu": self.bleu,
            "steps": steps,
            "megabytes": round(model_bytes / 1e6, 1) if self.is_finished else None,
            "time": newest.stat().st_mtime if newest.exists() else self.path.stat().st_mtime,
        }

    def _is_extended(self, steps: int) -> bool:
        """Return True if a finished training was extended: it is at `steps`, and its model at an earlier step."""
        try:
            return bool(steps > read_manifest(self.model)["steps"])
        except (DamagedError, MtError, KeyError, TypeError):
            return False


def list_runs(runs: str | Path = "runs") -> list[Run]:
    """Return the runs in a folder, finished or not, sorted by name; other folders in it are left out."""
    folder = Path(runs)
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return [Run(path) for path in paths if _is_run(path)]


def find_run(name: str | Path, runs: str | Path = "runs") -> Run:
    """Return a run by its name in `runs`, or by its folder; `InputError` if there is none."""
    for path in (Path(runs, name), Path(name)):
        if _is_run(path):
            return Run(path)
        refuse_pipeline(path)
    known = ", ".join(run.name for run in list_runs(runs))
    hint = f"known: {known}" if known else pipelines_hint(Path(runs)) or f"{runs} holds no run"
    raise InputError(f"{name}: there is no such run", hint)


def next_command(run: Run, state: str) -> str:
    """Return the command to go on with, by the state that `Run.facts` gives; empty for a damaged or unreadable run."""
    config = RunDir(run.path).config
    if state == "finished":
        return f'mt translate --model {quoted(str(run.path))} {direction_options(load_config(config))}"..."'
    if state in ("damaged", "unreadable"):
        return ""
    runs, usual = run.path.absolute().parent, Path(os.environ.get("MT_RUNS") or "runs").absolute()
    elsewhere = "" if runs == usual else f" --runs {quoted(str(runs))}"
    command = f"mt train --config {quoted(str(config))}{elsewhere}"
    if run.config["name"] != run.name:  # the folder was copied or renamed
        return f"{command} --set {quoted(f'name={as_yaml(run.name)}')}"
    return f"its `mt train` command continues it, or {command}"


def _is_run(path: Path) -> bool:
    config = RunDir(path).config
    return os.access(config, os.R_OK) and config.is_file()  # others' runs in a shared folder may be unreadable


def _is_score(value: Any) -> bool:
    if not (isinstance(value, dict) and isinstance(value["method"], str) and isinstance(value["target_lang"], str)):
        return False
    numbers = [value.get(key) for key in ("bleu", "bleu_low", "bleu_high")]
    return all(isinstance(number, float | int | None) for number in numbers) and numbers[1:].count(None) != 1
