"""torch's Adam and AdamW without torch._dynamo, whose import takes as long as that of torch.

Their `step` and the bookkeeping of every optimiser (`add_param_group`, `zero_grad`, `state_dict`, ...) import it at the
first call, to exclude themselves from compilation. No optimiser is compiled here: `training.compile` is about layers.
"""

from inspect import unwrap

import torch


class Adam(torch.optim.Adam):
    """Adam (Kingma and Ba 2015, arXiv:1412.6980)."""

    step = torch.no_grad()(unwrap(torch.optim.Adam.step))


class AdamW(torch.optim.AdamW):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019, arXiv:1711.05101)."""

    step = torch.no_grad()(unwrap(torch.optim.AdamW.step))


def _skip_dynamo_in_bookkeeping() -> None:
    for method in vars(torch.optim.Optimizer).values():
        if plain := getattr(method, "__wrapped__", None):
            vars(plain).setdefault("__dynamo_disable", plain)


_skip_dynamo_in_bookkeeping()
