"""How weights are drawn before training."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from mt.config.model import ModelConfig
from mt.model.attention import CrossAttention, SelfAttention
from mt.model.layers import FeedForward, LearnedPositions
from mt.model.packing import PAD_ID


@torch.no_grad()
def initialize(model: nn.Module, config: ModelConfig) -> None:
    """Xavier-uniform matrices, or normal ones of std 0.02; zero biases; embeddings of std D^-0.5, so that their scaled
    sum starts at unit size."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            if module.bias is not None:
                nn.init.zeros_(module.bias)
            if config.init == "normal":
                nn.init.normal_(module.weight, std=0.02)
            else:
                nn.init.xavier_uniform_(module.weight)
    if config.init == "xavier":
        for module in model.modules():
            if isinstance(module, SelfAttention):
                _init_joined(module.in_proj.weight, 3, gain=2**-0.5)
            elif isinstance(module, CrossAttention):
                _init_joined(module.kv_proj.weight, 2, gain=2**-0.5)
            elif isinstance(module, FeedForward) and module.activation == "swiglu":
                _init_joined(module.up.weight, 2, gain=1.0)
    std = 0.02 if config.init == "normal" else config.d_model**-0.5
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=std)
            nn.init.zeros_(module.weight[PAD_ID])
        elif isinstance(module, LearnedPositions):
            nn.init.normal_(module.table, std=std)


class Unfilled(TorchFunctionMode):
    """A context in which modules are built without drawing their weights, because these come from a file.

    Drawing takes time; and on the `meta` device, which has no memory to fill, torch imports its compiler for it, which
    takes a second.
    """

    _DRAWS = (nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_, Tensor.normal_, Tensor.uniform_)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        if func in self._DRAWS:
            return args[0] if args else given["tensor"]
        return func(*args, **given)


def _init_joined(weight: Tensor, parts: int, gain: float) -> None:
    """Matrices that were joined for speed start as if they stood alone; attention has fairseq's smaller gain."""
    for part in weight.chunk(parts):
        nn.init.xavier_uniform_(part, gain=gain)
