"""Device selection and memory."""

import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from mt.extras.planning import dry_run
from mt.system.devices import choose_device, peak_memory


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Torch's answers on a machine with two GPUs, of which the caller uses the second."""
    for name, result in (("is_available", True), ("device_count", 2), ("current_device", 1), ("set_device", None)):
        monkeypatch.setattr(torch.cuda, name, lambda *_, result=result: result)
    allows_tf32 = torch.backends.cuda.matmul.allow_tf32
    yield
    torch.backends.cuda.enable_cudnn_sdp(True)
    torch.backends.cuda.matmul.allow_tf32 = allows_tf32


@pytest.mark.usefixtures("two_gpus")
def test_cudnn_attention_is_out_of_the_order_on_a_gpu() -> None:
    """It plans for each new shape, and on recent cards torch prefers it."""
    assert torch.backends.cuda.cudnn_sdp_enabled()
    choose_device("cuda")
    assert not torch.backends.cuda.cudnn_sdp_enabled()
    assert torch.backends.cuda.flash_sdp_enabled()


@pytest.mark.usefixtures("two_gpus")
def test_the_callers_gpu_is_used_unless_there_is_one_for_each_process() -> None:
    assert choose_device("auto", "--device").index == 1
    assert choose_device("auto", local_rank=0).index == 0


def test_peak_memory_is_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 2**26 < peak_memory() < 2**36
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setitem(sys.modules, "resource", None)
    assert peak_memory() == 0
    assert dry_run._memory(SimpleNamespace(memory=peak_memory())) == "unknown on this system"  # type: ignore[arg-type]
