"""CUDA graphs on fake CUDA: captured operators are repeated on the same memory, as a GPU does."""

import contextlib
from collections.abc import Iterator
from typing import Any

from fake_cuda import FakeGpu  # isort: skip (before torch)
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


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
        gradients = [(p.grad.twin, p.grad.twin.clone()) for p in self._model.parameters() if p.grad is not None]
        self.graphs.append(graph)
        self._open = True
        yield
        self._open = False
        for gradient, before in gradients:
            gradient.copy_(before)
