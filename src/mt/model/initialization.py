"""Initial weights."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from mt.config.model import ModelConfig
from mt.model.linear import Linear
from mt.model.packing import PAD_ID
from mt.model.positions import LearnedPositions


@torch.no_grad()
def initialize(model: nn.Module, config: ModelConfig) -> None:
    """Draw Xavier-uniform matrices, or normal ones of std 0.02, and embeddings; biases are zero.

    With Xavier, embeddings have std d_model^-0.5, so that they have unit size when scaled by its inverse.
    """
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
            if isinstance(module, Linear) and module.parts > 1:  # each as if it stood alone
                for matrix in module.weight.chunk(module.parts):
                    nn.init.xavier_uniform_(matrix, module.gain)
    std = 0.02 if config.init == "normal" else config.d_model**-0.5
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=std)
            nn.init.zeros_(module.weight[PAD_ID])
        elif isinstance(module, LearnedPositions):
            nn.init.normal_(module.table, std=std)


class SkipInit(TorchFunctionMode):
    """A context in which modules are built without drawing weights, because a file will fill them.

    Drawing takes time; on the `meta` device, which has no memory to fill, it also imports torch's compiler, which takes
    a second.
    """

    _DRAWS = (nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_, Tensor.normal_, Tensor.uniform_)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in self._DRAWS:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)
