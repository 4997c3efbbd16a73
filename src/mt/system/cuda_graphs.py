"""Capture of CUDA graphs: kernels that one call launches in the shapes and at the addresses of their capture."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mt.console import log
from mt.errors import is_out_of_memory


class GraphCapture:
    """Captures graphs that share their memory, and stops at the first that fails.

    Args:
        name: of the option, for the warning.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._pool: Any = None
        self._works = True

    def __call__(self, run: Callable[[], Tensor]) -> tuple[Any, Tensor] | None:
        """Return a graph of `run` and its result, which each replay overwrites; None where captures do not work.

        The function waits for nothing and reads no number that changes from the host. It ran before, so that its
        kernels are compiled.
        """
        if not self._works:
            return None
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool):
                result = run()
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            self._works = False
            log.warning("%s: nothing is captured: %s", self._name, str(error).partition("\n")[0])
            return None
        return graph, result
