"""The loss's Triton kernel: in Triton's interpreter on a CPU, compiled on a GPU."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
CHECKS = Path(__file__).with_name("check_loss_kernel.py")


def check(**environment: str) -> None:
    """Run the checks in a process of their own: Triton reads its environment when it is imported."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CHECKS)]
    root = CHECKS.parent.parent.parent
    done = subprocess.run(command, env=os.environ | environment, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_kernel_in_the_interpreter() -> None:
    check(TRITON_INTERPRET="1", CUDA_VISIBLE_DEVICES="")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
def test_kernel_on_a_gpu() -> None:
    check()
