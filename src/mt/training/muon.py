"""Muon: momentum whose every update of a matrix is made orthogonal.

Jordan et al. 2024, kellerjordan.github.io/posts/muon.

A gradient's update is dominated by a few directions; made orthogonal, all directions of a matrix move alike, and a
Transformer learns in fewer steps. Only the matrices of linear layers are treated so; embeddings, the output layer,
norms and biases stay with Adam.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from mt.model.attention import CrossAttention, SelfAttention
from mt.model.layers import FeedForward

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the iteration; Jordan's choice
_ITERATIONS = 5


def orthogonal(x: Tensor) -> Tensor:
    """The nearest (semi-)orthogonal matrices to x (P, I, O), roughly: singular values end between 0.7 and 1.2.

    Newton and Schulz's iteration in its quintic form, which needs matrix products only.
    """
    a, b, c = _COEFFICIENTS
    wide = x if x.shape[1] <= x.shape[2] else x.mT
    wide = wide / wide.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(_ITERATIONS):
        gram = wide @ wide.mT
        wide = torch.baddbmm(wide, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return wide if x.shape[1] <= x.shape[2] else wide.mT


def matrices(model: nn.Module) -> Iterator[tuple[Tensor, int]]:
    """The weights of linear layers inside the blocks, and how many matrices each is: some are joined for speed."""
    for module in model.modules():
        if isinstance(module, SelfAttention):
            yield from ((module.in_proj.weight, 3), (module.out_proj.weight, 1))
        elif isinstance(module, CrossAttention):
            yield from ((module.q_proj.weight, 1), (module.kv_proj.weight, 2), (module.out_proj.weight, 1))
        elif isinstance(module, FeedForward):
            yield from ((module.up.weight, 2 if module.activation == "swiglu" else 1), (module.down.weight, 1))


class Muon(torch.optim.Optimizer):
    """Updates of matrices, of the size that Adam's usually have, so that one learning rate suits both.

    Args:
        weights: as `matrices` gives them.
        lr: the learning rate.
        momentum: of the average of gradients, with Nesterov's look ahead.
        weight_decay: decoupled, times the learning rate.
    """

    def __init__(self, weights: Iterator[tuple[Tensor, int]], lr: float, momentum: float, weight_decay: float) -> None:
        groups: dict[int, list[Tensor]] = {}
        for weight, parts in weights:
            groups.setdefault(parts, []).append(weight)
        super().__init__(
            [{"params": group, "parts": parts} for parts, group in groups.items()],
            {"lr": lr, "momentum": momentum, "weight_decay": weight_decay},
        )

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update of every matrix that has a gradient."""
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    state["momentum"] = torch.zeros_like(weight)
                average = state["momentum"].lerp_(weight.grad, 1 - group["momentum"])
                ahead = weight.grad.lerp(average, group["momentum"])
                parts = ahead.view(group["parts"], -1, weight.shape[1])
                # 0.2 is about the root mean square of Adam's updates (Liu et al. 2025, arXiv:2502.16982).
                size = 0.2 * max(parts.shape[1:]) ** 0.5
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.add_(orthogonal(parts).view_as(weight), alpha=-group["lr"] * size)


class Together:
    """Several optimisers, each with parameters of its own, as one."""

    def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
        self._optimizers = optimizers
        self.param_groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        self._owners = {
            parameter: optimizer
            for optimizer in optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        }

    @property
    def state(self) -> "Together":
        return self

    def __getitem__(self, parameter: Tensor) -> dict[str, Any]:
        found: dict[str, Any] = self._owners[parameter].state[parameter]
        return found

    def __setitem__(self, parameter: Tensor, state: dict[str, Any]) -> None:
        self._owners[parameter].state[parameter] = state

    def step(self) -> None:
        for optimizer in self._optimizers:
            optimizer.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for optimizer in self._optimizers:
            optimizer.zero_grad(set_to_none)
