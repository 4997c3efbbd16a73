"""Training with CUDA graphs on fake CUDA: captured operators are repeated on the same memory, as a GPU does."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fake_cuda import FakeGpu, fake_gpu  # isort: skip (before torch)
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mt.model.transformer import set_parameters
from training_helpers import Parts, take_steps

EXACT = ("training.compile=false", "training.precision=fp32", "model.dropout=0.0", "model.attention_bias=false")
DECODER_ONLY = "model={architecture: decoder_only, d_model: 16, n_heads: 2, d_ff: 32, decoder_layers: 1, norm: pre}"
CASES = {
    "accumulated": ["training.accumulate=2"],
    "muon": ["training.optimizer=muon", "data.max_length=12"],  # sinusoids grow with the length
    "learned positions": ["model.positions=learned", "model.norm=post", "data.max_length=20"],
    "decoder-only": [DECODER_ONLY, "model.dropout=0.0", "model.attention_bias=false"],
}
STEPS = 12


class Graph(TorchDispatchMode):
    """A CUDA graph: operators on twins, as they ran while it was captured."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[tuple[Any, Any, Any, list[Tensor]]] = []
        self.replays = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            self._calls.append((func, args, kwargs or {}, _tensors(result)))
        return result

    def replay(self) -> None:
        self.replays += 1
        for func, args, kwargs, results in self._calls:
            for mine, new in zip(results, _tensors(func(*args, **kwargs)), strict=True):
                if mine is not new:
                    mine.copy_(new)


def _tensors(tree: Any) -> list[Tensor]:
    return [x for x in tree_leaves(tree) if isinstance(x, Tensor)]


class Captures:
    """The graphs that are captured on fake CUDA while it is installed; in one, a wait raises."""

    def __init__(self, patch: pytest.MonkeyPatch, model: nn.Module) -> None:
        self.graphs: list[Graph] = []
        self._model, self._open = model, False
        run, wait = FakeGpu._run, FakeGpu._wait

        def recorded(gpu: FakeGpu, *arguments: Any) -> Any:
            with self.graphs[-1] if self._open else contextlib.nullcontext():
                return run(gpu, *arguments)

        def refused(gpu: FakeGpu, name: str) -> None:
            assert not self._open, f"a captured pass waits in {name}"
            wait(gpu, name)

        patch.setattr(FakeGpu, "_run", recorded)
        patch.setattr(FakeGpu, "_wait", refused)
        patch.setattr(torch.cuda, "CUDAGraph", Graph)
        patch.setattr(torch.cuda, "graph", self.capture)
        patch.setattr(torch.cuda, "graph_pool_handle", object)

    @contextlib.contextmanager
    def capture(self, graph: Graph, pool: object) -> Iterator[None]:
        """Record; operators run meanwhile, which a GPU's do not, so the gradients are restored."""
        gradients = [(p.grad.twin, p.grad.twin.clone()) for p in self._model.parameters()]
        self.graphs.append(graph)
        self._open = True
        yield
        self._open = False
        for gradient, before in gradients:
            gradient.copy_(before)


def trained(parts: Parts, initial: dict[str, Tensor]) -> list[Tensor]:
    set_parameters(parts.model, initial)
    for parameter in parts.model.parameters():
        parameter.grad = None
    trainer = parts.trainer()
    take_steps(trainer, STEPS)
    trainer.step_results.flush()
    assert trainer.state.skipped_updates == 0
    return [p.detach().twin.clone() for p in parts.model.parameters()]


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_replayed_passes_train_as_single_launches_do(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, changes: list[str]
) -> None:
    parts = Parts(tiny, *EXACT, *changes)
    with fake_gpu(values=True) as cuda:
        cuda.move(parts.model)
        initial = {name: p.detach().clone() for name, p in parts.model.named_parameters()}
        expected = trained(parts, initial)
        captures = Captures(monkeypatch, parts.model)
        parts.configure(*EXACT, *changes, "training.cuda_graphs=true")
        found = trained(parts, initial)
    assert 1 <= len(captures.graphs) <= 3
    assert sum(graph.replays for graph in captures.graphs) >= STEPS / 2
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)


def test_a_failed_capture_is_said_once_and_launches_go_on(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, notices: list[str]
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nmore")

    parts = Parts(tiny, *EXACT)
    with fake_gpu(values=True) as cuda:
        cuda.move(parts.model)
        initial = {name: p.detach().clone() for name, p in parts.model.named_parameters()}
        expected = trained(parts, initial)
        Captures(monkeypatch, parts.model)
        monkeypatch.setattr(torch.cuda, "graph", failing)
        parts.configure(*EXACT, "training.cuda_graphs=true")
        found = trained(parts, initial)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)
    [notice] = [notice for notice in notices if "cuda_graphs" in notice]
    assert notice.endswith("not captured: CUDA error: operation not permitted when stream is capturing")
