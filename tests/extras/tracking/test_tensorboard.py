"""Logging to TensorBoard, which must not stop a training."""

import resource
import sys
from functools import partial
from pathlib import Path

import pytest

from mt.errors import MachineError
from mt.extras.tracking.trackers import TensorBoard, start_trackers
from mt.training.trainer import Trainer
from training_helpers import Parts


def tracked(parts: Parts) -> Trainer:
    trainer = parts.trainer()
    trainer.metrics.start_trackers = partial(start_trackers, parts.config, parts.run)
    return trainer


def test_what_is_over_begins_no_curves(tiny: Path) -> None:
    parts = Parts(tiny, "training.tensorboard=true", "training.max_steps=2")
    for _ in range(2):
        trainer = tracked(parts)
        trainer.run()
        trainer.metrics.close()
    assert len(list(parts.run.root.rglob("*tfevents*"))) == 1


def test_a_broken_tensorboard_stops_no_training(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, notices: list[str]
) -> None:
    parts = Parts(tiny, "training.tensorboard=true", "training.max_steps=1")
    (tiny / "tensorboard").mkdir()
    (tiny / "tensorboard" / "__init__.py").write_text("raise ImportError('of another numpy')\n")
    for name in [name for name in sys.modules if name.startswith(("tensorboard", "torch.utils.tensorboard"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tiny))
    tracked(parts).run()
    assert "training.tensorboard: no curves are written, the package is not usable" in "".join(notices)
    assert not list(parts.run.root.rglob("*tfevents*"))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # tensorboard's own thread
def test_curves_that_cannot_be_written_name_their_folder(tiny: Path) -> None:
    run = Parts(tiny).run
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(MachineError) as caught:
            TensorBoard(run)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(caught.value).startswith(f"{run.tensorboard}: cannot write here: ")
