"""Compilation of a model's layers with torch.compile."""

import sys
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from mt.console import duration, log
from mt.errors import MachineError, first_line
from mt.model.build import TranslationModel

_MIN_WIDTH = 1024  # d_model; narrower layers wait for kernel launches, compiled or not (docs/gpu.md)


def compile_layers(model: TranslationModel, setting: bool | Literal["auto"], precision: str = "fp32") -> None:
    """Compile the training pass of each layer in place; layers of one kind share a graph for any number of tokens.

    Validation and decoding stay as they are: their passes are other graphs, which would take longer to compile than
    they save. So do embeddings and loss.

    Args:
        model: on the device it trains on.
        setting: `training.compile`; auto: only a wide model on an NVIDIA or AMD GPU, if torch.compile works there.
        precision: the number format of matrix products.

    Raises:
        MachineError: `setting` is True, and torch.compile does not work on this machine.
    """
    is_wide = model.output.in_features >= _MIN_WIDTH
    if setting is False or (setting == "auto" and not (model.device.type == "cuda" and is_wide)):
        return
    if problem := _problem(model.device):
        if setting == "auto":
            log.warning("training.compile: torch.compile does not work here, so training is slower: %s", problem)
            return
        raise MachineError(
            f"training.compile: torch.compile does not work here: {problem}",
            "install a C++ compiler (for a GPU also triton), or set training.compile: false",
        )
    # This would split graphs at the limits of DDP's buckets; a layer's graph is small enough.
    torch._dynamo.config.optimize_ddp = False
    # torch 2.11's cache on disk takes layers compiled for one format for those of another: on an H200, fp16 after bf16
    # trained in bf16. Its keys leave autocast's format out.
    torch.compiler.config.cache_key_tag = f"mt {precision}"
    for layer in model.blocks:
        # Not the whole call, since FSDP's hooks around `forward` gather and free its weights.
        train_with(layer, torch.compile(layer.forward, dynamic=True))


def train_with(layer: nn.Module, forward: Callable[..., Tensor]) -> None:
    """Replace a layer's `forward` in passes that have a gradient."""
    plain = layer.forward
    layer.forward = lambda *args, **kwargs: (forward if torch.is_grad_enabled() else plain)(*args, **kwargs)


def _problem(device: torch.device) -> str:
    """Compile a trivial function; return the reason if that fails, otherwise an empty string."""
    try:
        torch.compile(torch.neg, dynamic=True)(torch.ones(2, device=device))
    except Exception as error:  # torch and the compilers below it raise nearly anything
        return _reason(error)
    return ""


def _reason(error: Exception) -> str:
    return first_line(getattr(error, "inner_exception", error))  # of torch's own exceptions


def refuse_uncompilable(error: Exception) -> None:
    """Raise a `MachineError` if an error in the middle of a training is one of torch.compile."""
    if type(error).__module__.startswith(("torch._dynamo.", "torch._inductor.")):
        raise MachineError(
            f"training.compile: torch.compile failed: {_reason(error)}",
            "set training.compile: false; the same command then resumes from the last checkpoint",
        ) from error


class CompilationLog:
    """Logs newly compiled graphs; at any time of a training, a new kind of batch may need one."""

    def __init__(self) -> None:
        self._graphs, self._seconds = _totals()

    def new_seconds(self) -> float:
        """Log what was compiled since the last call, and return the time it took."""
        graphs, seconds = _totals()
        new_graphs, new_seconds = graphs - self._graphs, seconds - self._seconds
        self._graphs, self._seconds = graphs, seconds
        if new_graphs:
            log.info("compiled %d graph%s in %s", new_graphs, "s"[: new_graphs != 1], duration(new_seconds))
        return new_seconds


def _totals() -> tuple[int, float]:
    """Return the number of graphs that this process has compiled, and the seconds it took."""
    if "torch._dynamo" not in sys.modules:  # the compiler, which takes a second to import
        return 0, 0.0
    from torch._dynamo.utils import calculate_time_spent, counters

    return counters["stats"]["unique_graphs"], calculate_time_spent()["total_wall_time"]
