"""Device selection and memory."""

import sys
from types import SimpleNamespace

import pytest
import torch

from mt.extras.planning import dry_run
from mt.system.devices import choose_device, peak_memory


def test_cudnn_attention_is_out_of_the_order_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """It plans for each new shape, and on recent cards torch prefers it."""
    for name, result in (("is_available", True), ("device_count", 1), ("set_device", None)):
        monkeypatch.setattr(torch.cuda, name, lambda *_, result=result: result)
    assert torch.backends.cuda.cudnn_sdp_enabled()
    try:
        choose_device("cuda")
        assert not torch.backends.cuda.cudnn_sdp_enabled()
        assert torch.backends.cuda.flash_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)


def test_peak_memory_is_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 2**26 < peak_memory() < 2**36
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setitem(sys.modules, "resource", None)
    assert peak_memory() == 0
    assert dry_run._memory(SimpleNamespace(memory=peak_memory())) == "unknown on this system"  # type: ignore[arg-type]
