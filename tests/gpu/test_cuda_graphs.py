"""Training with CUDA graphs: on fake CUDA, whose graphs repeat their operators, and on a GPU."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mt.system.devices import choose_device
from training_helpers import Parts, take_steps

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="fake CUDA needs g++")
@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="this torch has real CUDA: run `pytest -m gpu`")
def test_checks_on_fake_cuda_pass() -> None:
    paths = os.pathsep.join([str(ROOT / "scripts" / "bench"), str(ROOT / "src")])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "fake_cuda", "-q", "--tb=short", str(HERE / "check_graphs.py")],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        pytest.fail(done.stdout + done.stderr, pytrace=False)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_graphs_train_as_single_launches_do(tiny: Path, precision: str) -> None:
    choose_device("cuda")
    exact = f"training.precision={precision}", "model.dropout=0.0", "training.accumulate=2", "training.compile=false"
    parts = Parts(tiny, *exact)
    parts.model.cuda()
    initial, losses = parts.weights(), []
    for graphs in ("false", "true"):
        parts.configure(*exact, f"training.cuda_graphs={graphs}")
        for parameter, before in zip(parts.model.parameters(), initial, strict=True):
            parameter.data.copy_(before)
            parameter.grad = None
        trainer = parts.trainer()
        take_steps(trainer, 20)
        losses.append(trainer.step_results.summary(1.0)["loss"])
    assert losses[1] == pytest.approx(losses[0], rel=1e-3 if precision == "fp32" else 2e-2)
