"""Lookup of model folders: the newest finished run, a run, or the model folder itself; and the run around one."""

import os
from pathlib import Path

import pytest

from mt.errors import InputError
from mt.storage import atomic
from mt.storage.find_model import find_model, run_of, run_of_checkpoint
from mt.storage.run_dir import ModelDir, RunDir


def finished_run(runs: Path, name: str, finished_at: int = 0) -> RunDir:
    """Make a run with a model folder, finished some seconds into the epoch."""
    run = RunDir(runs / name)
    atomic.write_text(run.config, "name: x\n")
    with atomic.new_folder(run.model.root) as partial:
        (partial / "config.yaml").write_text("name: x\n")
    os.utime(run.model.manifest, (finished_at, finished_at))
    return run


def unfinished_run(runs: Path, name: str) -> RunDir:
    run = RunDir(runs / name)
    run.text.mkdir(parents=True)
    run.checkpoint(100).mkdir(parents=True)
    return run


def refusal(given: Path | None, runs: Path) -> str:
    with pytest.raises(InputError) as caught:
        find_model(given, runs)
    assert caught.value.hint
    return caught.value.message


def test_the_newest_finished_run_is_taken(tmp_path: Path) -> None:
    newest = [finished_run(tmp_path, name, at) for name, at in [("c", 200), ("b", 300), ("a", 100)]][1]
    unfinished_run(tmp_path, "d")
    (tmp_path / "a file").write_text("x")
    # A run touched later is still the one that finished earlier.
    (tmp_path / "a" / "eval").mkdir()
    assert find_model(None, tmp_path) == newest.model


def test_no_finished_run(tmp_path: Path) -> None:
    assert refusal(None, tmp_path / "runs") == f"{tmp_path / 'runs'}: no finished run here"
    run = unfinished_run(tmp_path, "a")
    half = RunDir(tmp_path / "half").model.root
    half.mkdir(parents=True)
    (half / "config.yaml").write_text("name: x\n")
    assert refusal(None, tmp_path) == f"{tmp_path}: no finished run here"
    assert refusal(run.root, tmp_path) == f"{run.root}: this run has not finished"
    run.checkpoint(100).rmdir()
    run.checkpoints.rmdir()
    assert refusal(run.root, tmp_path) == f"{run.root}: this run has not finished"
    (tmp_path / "file").write_text("x")
    for name in ("none", "file"):
        assert refusal(tmp_path / name, tmp_path) == f"{tmp_path / name}: there is no such folder"


def test_a_run_its_model_folder_and_a_moved_one_are_found(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "runs", "a", 1)
    finished_run(tmp_path / "runs", "b", 2)
    assert find_model(run.root, tmp_path) == find_model(run.model.root, tmp_path) == run.model
    moved = run.model.root.rename(tmp_path / "my model")
    assert find_model(moved, tmp_path / "runs") == ModelDir(moved)


def test_a_model_knows_its_run_only_inside_it(tmp_path: Path) -> None:
    run = finished_run(tmp_path, "a")
    assert run_of(run.model) == RunDir(run.root.resolve())
    away = tmp_path / "another disk"
    run.model.root.rename(away)
    run.model.root.symlink_to(away)
    assert run_of(run.model) == RunDir(run.root.absolute())
    assert run_of(ModelDir(away)) is None


def test_a_checkpoint_knows_its_run_through_a_link(tmp_path: Path) -> None:
    run = finished_run(tmp_path, "a")
    (tmp_path / "another disk" / "step-00000010").mkdir(parents=True)
    run.checkpoints.symlink_to(tmp_path / "another disk")
    assert run_of_checkpoint(ModelDir(run.checkpoint(10))) == RunDir(run.root.absolute())
    assert run_of_checkpoint(ModelDir(tmp_path / "another disk" / "step-00000010")) is None
