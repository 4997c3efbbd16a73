"""Wherever the disk fails or the process dies while writing, the same command ends in the same model."""

import shutil
import signal
from pathlib import Path

import pytest

from command import FAILPOINT, Done, mt
from mt.storage.manifest import sha256
from mt.storage.run_dir import RunDir

KINDS = ("SIGKILL", "ENOSPC", "EIO", "EACCES")
SETTINGS = ("training.max_steps=8", "training.validate_every=4", "training.save_every=2", "training.ema_decay=0.9")
SAMPLES = 12


def train(folder: Path, code: int | None = 0, settings: tuple[str, ...] = SETTINGS, **environment: str) -> Done:
    changes = [word for setting in settings for word in ("--set", setting)]
    return mt("train", "--config", "tiny.yaml", *changes, cwd=folder, code=code, **environment)


def weights(folder: Path) -> str:
    return sha256(RunDir(folder / "runs" / "tiny").model.weights)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A run, and every write, sync and rename that it did."""
    from conftest import make_project

    folder = make_project(tmp_path_factory.mktemp("undisturbed"))
    places = folder / "places"
    train(folder, **{FAILPOINT: f"count:{places}"})
    return folder, places.read_text().splitlines()


def check(undisturbed: tuple[Path, list[str]], folder: Path, place: int, kind: str) -> None:
    """Fails at one place, goes on with the same command, and compares the models."""
    expected, places = undisturbed
    for file in [*expected.glob("*.en"), *expected.glob("*.xx"), expected / "tiny.yaml"]:
        shutil.copy(file, folder)
    failed = train(folder, code=None, **{FAILPOINT: f"{place}:{kind}"})
    what = f"{kind} at {place}: {places[place]}\n{failed.stderr}"
    if kind == "SIGKILL":
        assert failed.code == -signal.SIGKILL, what
    else:
        assert failed.code == 4, what
        assert "Traceback" not in failed.stderr, what
        assert "mt: " in failed.stderr, what
    train(folder)
    assert weights(folder) == weights(expected), what
    run = folder / "runs" / "tiny"
    assert not list(run.rglob("*.partial*")), what
    shutil.rmtree(run)


def test_a_run_passes_many_places(undisturbed: tuple[Path, list[str]]) -> None:
    _, places = undisturbed
    assert len(places) > 100
    assert {place.split()[0] for place in places} == {"write", "sync", "rename"}


@pytest.mark.parametrize("sample", range(SAMPLES))
def test_a_failure_anywhere_changes_nothing(undisturbed: tuple[Path, list[str]], tmp_path: Path, sample: int) -> None:
    """Some places at even distances, with each kind of failure in turn."""
    place = (2 * sample + 1) * len(undisturbed[1]) // (2 * SAMPLES)
    check(undisturbed, tmp_path, place, KINDS[sample % len(KINDS)])


@pytest.mark.parametrize("kind", ["SIGKILL", "EIO"])
def test_the_only_checkpoint_outlives_its_own_replacement(tmp_path: Path, kind: str) -> None:
    """A run's last step is saved, validated, and saved once more; in between its folder is aside for a moment."""
    from conftest import make_project

    folder, once = make_project(tmp_path), ("training.max_steps=4", "training.validate_every=4")
    train(folder, settings=once, **{FAILPOINT: f"count:{folder / 'places'}"})
    expected = weights(folder)
    shutil.rmtree(folder / "runs")
    only = RunDir(folder / "runs" / "tiny").checkpoint(4)
    places = (folder / "places").read_text().splitlines()
    renames = [number for number, place in enumerate(places) if place == f"rename {only}"]
    assert len(renames) == 2
    train(folder, code=None, settings=once, **{FAILPOINT: f"{renames[1]}:{kind}"})
    assert only.exists() == (kind == "EIO")  # what is not killed puts it back itself
    assert "resuming after step 4" in train(folder, settings=once).stderr
    assert weights(folder) == expected
    assert not list(folder.rglob("*.partial*"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_at_each_place_changes_nothing(
    undisturbed: tuple[Path, list[str]], tmp_path: Path, kind: str
) -> None:
    for place in range(len(undisturbed[1])):
        check(undisturbed, tmp_path, place, kind)
