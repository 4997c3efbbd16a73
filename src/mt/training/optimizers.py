"""The optimiser and its learning-rate schedules."""

import math

import torch
from torch import nn

from mt.config import TrainingConfig
from mt.training.adam import Adam, AdamW
from mt.training.muon import CombinedOptimizer, Muon, matrices

MUON_MOMENTUM = 0.95


def make_optimizer(model: nn.Module, config: TrainingConfig) -> torch.optim.Optimizer | CombinedOptimizer:
    """Build fused Adam or AdamW; or Muon for the matrices of the blocks, with AdamW for the other parameters."""
    kind = Adam if config.optimizer == "adam" else AdamW
    weights = [each for each in matrices(model) if each[0].requires_grad] if config.optimizer == "muon" else []
    taken = {id(weight) for weight, _ in weights}
    adam = kind(
        [parameter for parameter in model.parameters() if parameter.requires_grad and id(parameter) not in taken],
        lr=config.learning_rate,
        betas=config.betas,
        eps=config.eps,
        weight_decay=config.weight_decay,
        fused=True,
    )
    # Allocated before the first step, which would otherwise be the first to need so much memory.
    for parameter in adam.param_groups[0]["params"]:
        moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
        adam.state[parameter] = {"step": torch.zeros((), device=parameter.device), **moments}
    if not weights:
        return adam
    return CombinedOptimizer(Muon(iter(weights), config.learning_rate, MUON_MOMENTUM, config.weight_decay), adam)


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
