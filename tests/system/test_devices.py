"""Device selection."""

import pytest
import torch

from mt.system.devices import choose_device


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
