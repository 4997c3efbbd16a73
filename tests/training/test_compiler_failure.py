"""Compilers that fail in the middle of a training, or for one number format only."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mt.errors import MachineError
from mt.model import loss_rows
from training_helpers import Parts


@pytest.fixture
def failing_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A backend that manages the smallest function, but no layer."""

    def backend(graph: torch.fx.GraphModule, _: Sequence[Tensor]) -> Callable[..., object]:
        if len(graph.graph.nodes) > 5:
            raise ValueError("no kernel for these numbers\nand more about it")
        return graph.forward

    optimize_ddp = torch._dynamo.config.optimize_ddp
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    yield
    torch._dynamo.config.optimize_ddp = optimize_ddp
    torch._dynamo.reset()


@pytest.mark.usefixtures("failing_compiler")
def test_a_compiler_that_fails_in_training_is_one_sentence_with_a_remedy(tiny: Path) -> None:
    trainer = Parts(tiny, "training.compile=true").trainer()
    with pytest.raises(MachineError) as caught:
        trainer.step()
    assert caught.value.message == "training.compile: torch.compile failed: no kernel for these numbers"
    assert caught.value.hint.startswith("set training.compile: false")


def test_the_loss_kernel_is_tried_in_the_number_format_of_its_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that compiles for fp32 and not for bf16 is used for fp32 only."""
    loss_kernel = pytest.importorskip("mt.model.loss_kernel")

    def kernel(logits: Tensor, *_: object) -> None:
        if logits.dtype == torch.bfloat16:
            raise RuntimeError("unsupported type bf16")

    monkeypatch.setattr(loss_kernel, "cross_entropy_rows", kernel)
    cpu, rows = torch.device("cpu"), loss_rows.rows_function
    rows.cache_clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = [rows(cpu, dtype) for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.bfloat16)]
    rows.cache_clear()
    assert found == [kernel, kernel, loss_rows.plain_rows, loss_rows.plain_rows]
    [warning] = caught
    assert "unsupported type bf16" in str(warning.message)
