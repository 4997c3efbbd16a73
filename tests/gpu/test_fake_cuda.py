"""The real model, training step and searches on fake CUDA tensors (scripts/bench/fake_cuda.py).

Torch looks for devices once, when it is imported, so these tests run in a pytest of their own, which imports the device
first. Their files are named `check_*.py` so that the usual collection passes them over. To run one test alone:

    PYTHONPATH=src:scripts/bench python -m pytest -p fake_cuda tests/gpu/check_step.py -k muon
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.mark.skipif(shutil.which("g++") is None, reason="fake CUDA needs g++")
@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="this torch has real CUDA: run `pytest -m gpu`")
@pytest.mark.parametrize("chosen", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_checks_on_fake_cuda_pass(chosen: str) -> None:
    checks = [str(HERE / "check_step.py"), str(HERE / "check_search.py")]
    paths = [str(ROOT / "scripts" / "bench"), str(ROOT / "src")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "fake_cuda", "-q", "--tb=short", "-m", chosen, *checks],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        pytest.fail(done.stdout + done.stderr, pytrace=False)
