"""The optimiser, its learning-rate schedules, the number format, and the randomness of dropout."""

import math
from contextlib import AbstractContextManager

import numpy as np
import torch
from torch import nn

from mt.config import TrainingConfig
from mt.system.devices import has_bf16
from mt.training.muon import Muon, CombinedOptimizer, matrices

MUON_MOMENTUM = 0.95


def make_optimizer(model: nn.Module, config: TrainingConfig) -> torch.optim.Optimizer | CombinedOptimizer:
    """Adam or AdamW in torch's fused form: all parameters in one kernel; or Muon, with AdamW for what it leaves."""
    kind = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
    weights = list(matrices(model)) if config.optimizer == "muon" else []
    taken = {id(weight) for weight, _ in weights}
    adam = kind(
        [parameter for parameter in model.parameters() if id(parameter) not in taken],
        lr=config.learning_rate,
        betas=config.betas,
        eps=config.eps,
        weight_decay=config.weight_decay,
        fused=True,
    )
    if not weights:
        return adam
    return CombinedOptimizer(Muon(iter(weights), config.learning_rate, MUON_MOMENTUM, config.weight_decay), adam)


def learning_rate(step: int, config: TrainingConfig, d_model: int) -> float:
    """The learning rate of an update, counted from 1.

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


def seed_dropout(seed: int, *where: int) -> None:
    """Starts torch's random numbers from a place in training, so that a resumed step draws what the lost one drew."""
    torch.manual_seed(int(np.random.SeedSequence([seed, *where]).generate_state(1, np.uint64)[0]) >> 1)


def autocast(device: torch.device, precision: str) -> AbstractContextManager[object]:
    """bf16 arithmetic where asked for, or where `auto` finds a GPU that has it; the weights stay in fp32."""
    enabled = precision == "bf16" or (precision == "auto" and device.type == "cuda" and has_bf16(device))
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled)
