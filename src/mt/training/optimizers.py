"""The optimiser and its learning-rate schedules.

torch's Adam is used without torch._dynamo, whose import takes as long as that of torch. Its `step` and the bookkeeping
of every optimiser (`add_param_group`, `zero_grad`, `state_dict`, ...) import it at the first call, to exclude
themselves from compilation. No optimiser is compiled here: `training.compile` is about layers.
"""

import math
from inspect import unwrap

import torch
from torch import nn

from mt.config import TrainingConfig
from mt.training.muon import AnyOptimizer, CombinedOptimizer, Muon, matrices

MUON_MOMENTUM = 0.95


class Adam(torch.optim.Adam):
    """Adam (Kingma and Ba 2015, arXiv:1412.6980); AdamW (Loshchilov and Hutter 2019, arXiv:1711.05101) if decoupled."""

    step = torch.no_grad()(unwrap(torch.optim.Adam.step))


def _skip_dynamo_in_bookkeeping() -> None:
    for method in vars(torch.optim.Optimizer).values():
        if plain := getattr(method, "__wrapped__", None):
            vars(plain).setdefault("__dynamo_disable", plain)


_skip_dynamo_in_bookkeeping()


def make_optimizer(model: nn.Module, config: TrainingConfig) -> AnyOptimizer:
    """Build fused Adam or AdamW; or Muon for the matrices of the blocks, with AdamW for the other parameters."""
    weights = [pair for pair in matrices(model) if pair[0].requires_grad] if config.optimizer == "muon" else []
    in_muon = {id(weight) for weight, _ in weights}
    adam = Adam(
        [parameter for parameter in model.parameters() if parameter.requires_grad and id(parameter) not in in_muon],
        lr=config.learning_rate,
        betas=config.betas,
        eps=config.eps,
        weight_decay=config.weight_decay,
        decoupled_weight_decay=config.optimizer != "adam",
        fused=True,
    )
    # Allocated now, so that a batch that fits into memory in the first step fits in the later ones.
    for parameter in adam.param_groups[0]["params"]:
        moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
        adam.state[parameter] = {"step": torch.zeros((), device=parameter.device), **moments}
    if not weights:
        return adam
    return CombinedOptimizer(Muon(weights, config.learning_rate, MUON_MOMENTUM, config.weight_decay), adam)


def learning_rate(step: int, config: TrainingConfig, d_model: int) -> float:
    """Compute the learning rate of an update, counted from 1.

    All schedules rise linearly over the warm-up. `inverse_sqrt` and `noam` then fall with the square root of the step
    (`noam` is section 5.3 of "Attention Is All You Need": factor * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5));
    `cosine` and `linear` reach zero at max_steps.
    """
    peak, warmup = config.learning_rate, config.warmup_steps
    if config.schedule == "noam":
        return float(peak * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5))
    if step < warmup:
        return peak * step / warmup
    if config.schedule == "constant":
        return peak
    if config.schedule == "inverse_sqrt":
        return peak * math.sqrt(warmup / step)
    done = min(1.0, (step - warmup) / (config.max_steps - warmup))
    return peak * (1 - done) if config.schedule == "linear" else peak * (1 + math.cos(math.pi * done)) / 2
