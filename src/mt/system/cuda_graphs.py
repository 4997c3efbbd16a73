"""Capture of CUDA graphs: kernels that one call launches in the shapes and at the addresses of their capture."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mt.errors import MachineError, first_line, is_out_of_memory


class GraphCapture:
    """Captures graphs that share their memory; the name of the option and the hint are for a capture that fails."""

    def __init__(self, name: str, hint: str) -> None:
        self._name, self._hint = name, hint
        self._pool: Any = None

    def __call__(self, run: Callable[[], Tensor]) -> tuple[Any, Tensor]:
        """Return a graph of `run` and its result, which each replay overwrites.

        The function must not synchronise, and must read no number from the host that changes. It must have run before,
        so that its kernels are compiled. Raises MachineError if the capture fails: torch's generator and stream stay in
        it, so nothing else can run.
        """
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool):
                result = run()
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            raise MachineError(f"{self._name}: a capture failed: {first_line(error)}", self._hint) from error
        return graph, result
