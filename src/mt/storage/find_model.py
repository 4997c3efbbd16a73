"""Lookup of model folders: by path, the newest finished run, and the run of a folder."""

import os
from pathlib import Path

from mt.errors import InputError
from mt.storage.run_dir import ModelDir, RunDir


def find_model(path: Path | None, runs: Path) -> ModelDir:
    """Return the model of a run folder, a model folder or a checkpoint, or (None) of the newest finished run.

    Raises:
        InputError: there is no such folder, or no finished run.
    """
    if path is None:
        return _newest_model(runs)
    if not path.is_dir():
        raise InputError(f"{path}: there is no such folder", "give a run folder (runs/NAME) or a model folder")
    refuse_pipeline(path)
    run = RunDir(path)
    if run.model.root.is_dir():
        return run.model
    if run.checkpoints.exists() or (run.root / "data").exists():
        raise InputError(f"{path}: this run has not finished", "run its `mt train` command again to finish it")
    return ModelDir(path)


def _newest_model(runs: Path) -> ModelDir:
    models = [RunDir(path).model for path in (runs.iterdir() if runs.is_dir() else [])]
    # In a shared folder, other people's runs may be unreadable.
    finished = [model for model in models if os.access(model.manifest, os.R_OK) and model.manifest.is_file()]
    if not finished:
        hint = pipelines_hint(runs) or "train one (`mt demo` trains a small one), or give --model DIR"
        raise InputError(f"{runs}: no finished run here", hint)
    return max(finished, key=lambda model: model.manifest.stat().st_mtime_ns)


def refuse_pipeline(path: Path, hint: str = "") -> None:
    """Refuse the folder of a pipeline where that of a run is needed."""
    if os.access(RunDir(path).pipeline, os.F_OK):
        raise InputError(f"{path} is the folder of a pipeline", hint or f"give the run of a step: {path / 'STEP'}")


def pipelines_hint(runs: Path) -> str:
    """Return a hint at the folders of pipelines' runs; empty if there is no pipeline among the runs."""
    paths = sorted(runs.iterdir()) if runs.is_dir() else []
    steps = [str(path / "STEP") for path in paths if os.access(RunDir(path).pipeline, os.F_OK)]
    return f"each step of a pipeline has its own folder: {', '.join(steps)}" if steps else ""


def run_of(model: ModelDir) -> RunDir | None:
    """Return the run folder that holds a model folder; None if it was moved out."""
    for root in _paths(model):
        run = RunDir(root.parent)
        if run.model.root == root and run.config.is_file():
            return run
    return None


def run_of_checkpoint(folder: ModelDir) -> RunDir | None:
    """Return the run of a checkpoint; None if the folder is not a checkpoint."""
    for root in _paths(folder):
        run = RunDir(root.parent.parent)
        if root.parent == run.checkpoints and root.name.startswith("step-") and run.config.is_file():
            return run
    return None


def _paths(folder: ModelDir) -> tuple[Path, Path]:
    """Return the path as given and with links resolved, since part of a run may lie on another disk."""
    return folder.root.absolute(), folder.root.resolve()
