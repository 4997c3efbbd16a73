"""Muon: momentum with orthogonalised updates (Jordan et al. 2024, kellerjordan.github.io/posts/muon).

A few directions dominate a gradient. Orthogonalised, an update moves all directions of a matrix equally, and a
Transformer learns in fewer steps. Muon updates only the matrices of linear layers; Adam updates embeddings, the output
layer, norms and biases.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from mt.model.linear import Linear
from mt.system.devices import has_bf16

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # Jordan's
_ITERATIONS = 5


def orthogonal(x: Tensor) -> Tensor:
    """Orthogonalise the rows of matrices x (P, I, O), I <= O, approximately: singular values end near 1.

    The quintic Newton-Schulz iteration, which needs matrix products only.
    """
    a, b, c = _COEFFICIENTS
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def matrices(model: nn.Module) -> Iterator[tuple[Tensor, int]]:
    """Return the weights of the blocks' linear layers, and the number of matrices that each joins for speed."""
    return ((module.weight, module.parts) for module in model.modules() if isinstance(module, Linear))


class Muon(torch.optim.Optimizer):
    """An optimiser for matrices; its updates have Adam's usual size, so that one learning rate suits both.

    Args:
        weights: from `matrices`.
        lr, momentum, weight_decay: Nesterov momentum; the decay is decoupled and multiplied by the learning rate.

    Attributes:
        found_inf: as in torch's fused optimisers, a scalar on the device: with 1.0 `step` changes nothing. None and 0.0
            have no effect.
    """

    found_inf: Tensor | None = None

    def __init__(self, weights: Iterable[tuple[Tensor, int]], lr: float, momentum: float, weight_decay: float) -> None:
        groups: dict[int, list[Tensor]] = {}
        for weight, parts in weights:
            groups.setdefault(parts, []).append(weight)
        super().__init__(
            [{"params": group, "parts": parts} for parts, group in groups.items()],
            {"lr": lr, "momentum": momentum, "weight_decay": weight_decay},
        )
        for weight in chain(*groups.values()):
            self.state[weight]["momentum"] = torch.zeros_like(weight)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update every matrix that has a gradient; matrices of one shape are orthogonalised as a batch."""
        # Weights of one shape, each with its direction, learning rate and decay.
        by_shape: dict[torch.Size, list[tuple[Tensor, Tensor, float, Tensor | float]]] = {}
        keep: Tensor | float = 1.0 if self.found_inf is None else 1 - self.found_inf
        skip = None if self.found_inf is None else self.found_inf > 0
        for group in self.param_groups:
            share, decay = (1 - group["momentum"]) * keep, 1 - group["lr"] * group["weight_decay"] * keep
            for weight in group["params"]:
                if weight.grad is not None:
                    if skip is not None:
                        weight.grad.masked_fill_(skip, 0.0)  # a product with 0 would keep NaN
                    wide = self._direction(weight, weight.grad, group, share)
                    by_shape.setdefault(wide.shape[1:], []).append((weight, wide, group["lr"], decay))
        for shape, updates in by_shape.items():
            weights, directions, rates, decays = zip(*updates, strict=True)
            batch = orthogonal(torch.cat(directions))
            if skip is not None:
                batch.mul_(keep)
            parts = torch.split(batch, [len(direction) for direction in directions])
            for weight, wide, lr, decay in zip(weights, parts, rates, decays, strict=True):
                is_tall = shape[1] > weight.shape[1]
                # 0.2 is about the RMS of Adam's updates (Liu et al. 2025, arXiv:2502.16982).
                update = (wide.mT if is_tall else wide).reshape(weight.shape)
                weight.mul_(decay).add_(update, alpha=-0.2 * shape[1] ** 0.5 * lr)

    def _direction(self, weight: Tensor, gradient: Tensor, group: dict[str, Any], share: Tensor | float) -> Tensor:
        """Average a share of the gradient into the momentum; return Nesterov's as wide matrices (P, I, O), I <= O."""
        average = self.state[weight]["momentum"].lerp_(gradient, share)
        ahead = gradient.lerp(average, group["momentum"]).view(group["parts"], -1, weight.shape[1])
        wide = ahead.mT if ahead.shape[1] > ahead.shape[2] else ahead
        # The iteration does not need single precision.
        return wide.to(torch.bfloat16 if has_bf16(weight.device) else torch.float32)


class CombinedOptimizer:
    """Several optimisers with disjoint parameters as one; `found_inf` as in `Muon`."""

    found_inf: Tensor | None = None

    def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
        self._optimizers = optimizers
        self.param_groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        self.state = {parameter: state for optimizer in optimizers for parameter, state in optimizer.state.items()}
        for optimizer in optimizers:
            optimizer.state = self.state  # type: ignore[assignment]

    def step(self) -> None:
        for optimizer in self._optimizers:
            optimizer.found_inf = self.found_inf  # type: ignore[attr-defined]
            optimizer.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for optimizer in self._optimizers:
            optimizer.zero_grad(set_to_none)


AnyOptimizer = torch.optim.Optimizer | CombinedOptimizer
