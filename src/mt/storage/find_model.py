"""Lookup of model folders: by path, the newest finished run, and the run of a folder."""

import os
from pathlib import Path

from mt.errors import InputError
from mt.storage.run_dir import ModelDir, RunDir


def find_model(given: Path | None, runs: Path) -> ModelDir:
    """The model folder a user means.

    Args:
        given: a run folder, a model folder or a checkpoint; None means the newest finished run under `runs`.

    Raises:
        InputError: there is no such folder, or no finished run.
    """
    if given is None:
        return _newest_model(runs)
    if not given.is_dir():
        raise InputError(f"{given}: there is no such folder", "give a run folder (runs/NAME) or a model folder")
    run = RunDir(given)
    if run.model.root.is_dir():
        return run.model
    if run.checkpoints.exists() or (run.root / "data").exists():
        raise InputError(f"{given}: this run has not finished", "run its `mt train` command again to finish it")
    return ModelDir(given)


def _newest_model(runs: Path) -> ModelDir:
    models = [RunDir(path).model for path in (runs.iterdir() if runs.is_dir() else [])]
    # Where several people share the folder, some of their runs may be closed to others.
    finished = [model for model in models if os.access(model.manifest, os.R_OK) and model.manifest.is_file()]
    if not finished:
        raise InputError(
            f"{runs}: no finished run here", "train one with `mt train --config configs/demo.yaml`, or give --model DIR"
        )
    return max(finished, key=lambda model: model.manifest.stat().st_mtime_ns)


def run_of(model: ModelDir) -> RunDir | None:
    """The run folder a model folder lies in, or None where it was moved out on its own."""
    for root in _places(model):
        parent = RunDir(root.parent)
        if parent.model.root == root and parent.config.is_file():
            return parent
    return None


def run_of_checkpoint(folder: ModelDir) -> RunDir | None:
    """The run that a checkpoint belongs to; None where the folder is not a checkpoint."""
    for root in _places(folder):
        run = RunDir(root.parent.parent)
        if root.parent == run.checkpoints and root.name.startswith("step-") and run.config.is_file():
            return run
    return None


def _places(folder: ModelDir) -> tuple[Path, Path]:
    """Where a folder is, as it is named and without links: part of a run may lie on another disk."""
    return folder.root.absolute(), folder.root.resolve()
