"""Failures at every write: the same command, run again, ends in the same model."""

import shutil
import signal
from pathlib import Path

import pytest

from command import FAILPOINT
from conftest import made_once, make_project
from resume_helpers import events, run_of, train, weights

KINDS = ("SIGKILL", "ENOSPC", "EIO", "EACCES")
SETTINGS = ("training.max_steps=8", "training.validate_every=4", "training.save_every=2", "training.ema_decay=0.9")
SAMPLES = 12


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A run, and every write, sync and rename that it did."""

    def make(folder: Path) -> None:
        train(make_project(folder), *SETTINGS, **{FAILPOINT: f"count:{folder / 'places'}"})

    folder = made_once(tmp_path_factory, "undisturbed", make)
    return folder, (folder / "places").read_text().splitlines()


def check(undisturbed: tuple[Path, list[str]], folder: Path, place: int, kind: str) -> None:
    """Fail at one place, run the same command again, and compare the models."""
    expected, places = undisturbed
    for file in [*expected.glob("*.en"), *expected.glob("*.xx"), expected / "tiny.yaml"]:
        shutil.copy(file, folder)
    failed = train(folder, *SETTINGS, code=None, **{FAILPOINT: f"{place}:{kind}"})
    context = f"{kind} at {place}: {places[place]}\n{failed.stderr}"
    if kind == "SIGKILL":
        assert failed.code == -signal.SIGKILL, context
    else:
        assert failed.code == 4, context
        assert "Traceback" not in failed.stderr, context
        assert "mt: " in failed.stderr, context
    train(folder, *SETTINGS)
    assert weights(folder) == weights(expected), context
    assert events(folder)[-1].keys() == events(expected)[-1].keys(), context
    run = run_of(folder).root
    assert not list(run.rglob("*.partial*")), context
    shutil.rmtree(run)


def test_a_run_passes_many_places(undisturbed: tuple[Path, list[str]]) -> None:
    _, places = undisturbed
    assert len(places) > 100
    assert {place.split()[0] for place in places} == {"write", "sync", "rename"}


@pytest.mark.parametrize("sample", [pytest.param(n, marks=[pytest.mark.slow] * (n % 2)) for n in range(SAMPLES)])
def test_a_failure_anywhere_changes_nothing(undisturbed: tuple[Path, list[str]], tmp_path: Path, sample: int) -> None:
    """Places at even distances, with each kind of failure in turn."""
    place = (2 * sample + 1) * len(undisturbed[1]) // (2 * SAMPLES)
    check(undisturbed, tmp_path, place, KINDS[sample % len(KINDS)])


def test_the_event_of_a_finished_model_is_written_even_after_a_failure(
    undisturbed: tuple[Path, list[str]], tmp_path: Path
) -> None:
    assert undisturbed[1][-1] == "write runs/tiny/metrics.jsonl"
    check(undisturbed, tmp_path, len(undisturbed[1]) - 1, "ENOSPC")


@pytest.mark.parametrize("kind", ["SIGKILL", "EIO"])
def test_the_only_checkpoint_outlives_its_own_replacement(tmp_path: Path, kind: str) -> None:
    """A run's last step is saved, validated and saved again; its old folder is renamed meanwhile."""
    folder, once = make_project(tmp_path), ("training.max_steps=4", "training.validate_every=4")
    train(folder, *once, **{FAILPOINT: f"count:{folder / 'places'}"})
    expected = weights(folder)
    shutil.rmtree(folder / "runs")
    only = run_of(folder).checkpoint(4)
    places = (folder / "places").read_text().splitlines()
    renames = [number for number, place in enumerate(places) if place == f"rename {only}"]
    assert len(renames) == 2
    train(folder, *once, code=None, **{FAILPOINT: f"{renames[1]}:{kind}"})
    assert only.exists() == (kind == "EIO")  # unless it is killed, the process puts it back
    assert "resuming after step 4" in train(folder, *once).stderr
    assert weights(folder) == expected
    assert not list(folder.rglob("*.partial*"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_at_each_place_changes_nothing(
    undisturbed: tuple[Path, list[str]], tmp_path: Path, kind: str
) -> None:
    for place in range(len(undisturbed[1])):
        check(undisturbed, tmp_path, place, kind)
