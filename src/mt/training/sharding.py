"""One training on several processes, by torch's own means: DistributedDataParallel, or FSDP2 for large models.

Both act around a module's call, so the loss is a module here.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mt.config import TrainingConfig
from mt.errors import InputError
from mt.model.build import TranslationModel
from mt.model.loss import fused_consistent_cross_entropy, fused_cross_entropy, fused_distilled_cross_entropy
from mt.model.packing import Packing
from mt.system.distributed import Distributed


class Objective(nn.Module):
    """A model and what it is trained for.

    Args:
        model: what learns.
        config: the loss.
        teachers: models whose word probabilities it learns, too.
    """

    def __init__(
        self, model: TranslationModel, config: TrainingConfig, teachers: Sequence[TranslationModel] = ()
    ) -> None:
        super().__init__()
        self.model = model
        self._teachers = tuple(teachers)  # in a tuple, where no optimiser and no other process looks for parameters
        self._smoothing, self._r_drop, self._distill_weight = (
            config.label_smoothing,
            config.r_drop,
            config.distill_weight,
        )
        compiled = torch.compile(model.states, dynamic=True) if config.compile else model.states
        self._states: Callable[[Tensor, Tensor, Packing, Packing], Tensor] = compiled

    def forward(
        self, src_tokens: Tensor, tgt_in: Tensor, labels: Tensor, src: Packing, tgt: Packing
    ) -> tuple[Tensor, Tensor]:
        """Tokens (B, S), (B, T) and labels (N,) to the sums of the loss and of the negative log-likelihood."""
        states = self._states(src_tokens, tgt_in, src, tgt)
        weight = self.model.output.weight
        if self._r_drop > 0:
            return fused_consistent_cross_entropy(states, weight, labels, self._smoothing, self._r_drop)
        if self._teachers:
            with torch.no_grad():
                taught = [(each.states(src_tokens, tgt_in, src, tgt), each.output.weight) for each in self._teachers]
            return fused_distilled_cross_entropy(states, weight, labels, self._smoothing, taught, self._distill_weight)
        return fused_cross_entropy(states, weight, labels, self._smoothing)


def refuse_unsharded(config: TrainingConfig, distributed: Distributed) -> None:
    """Refuses several processes that would each train a model of their own.

    Raises:
        InputError: there are several, and nothing is to join them.
    """
    if distributed.world_size > 1 and config.sharding == "none":
        raise InputError(
            f"training.sharding: it is none, but {distributed.world_size} processes were started",
            "set it to ddp, or start one process",
        )


def distributed(objective: Objective, config: TrainingConfig, distributed: Distributed) -> nn.Module:
    """The objective as it is for one process; for several as `training.sharding` says.

    With `fsdp` the parameters of its model become shards.

    Raises:
        InputError: there are several processes, and nothing is to join them.
    """
    refuse_unsharded(config, distributed)
    if distributed.world_size == 1:
        return objective
    if config.sharding == "ddp":
        from torch.nn.parallel import DistributedDataParallel

        # The tables of positions are everyone's own, and grow with the sentences that one meets.
        tables = [name for name, _ in objective.named_buffers()]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(  # type: ignore[no-untyped-call]
            objective, tables
        )
        return DistributedDataParallel(objective, gradient_as_bucket_view=True)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(objective.model.device.type, (distributed.world_size,))
    for layer in objective.model.blocks:
        fully_shard(layer, mesh=mesh)
    # The embeddings, used first and last, stay whole from the forward pass to the backward pass.
    fully_shard(objective, mesh=mesh, reshard_after_forward=False)
    return objective


@contextlib.contextmanager
def gradient_sync(module: nn.Module, wanted: bool) -> Iterator[None]:
    """Whether processes add up their gradients after a backward pass; before the last of a step it would be in vain."""
    some: Any = module
    if hasattr(module, "no_sync") and not wanted:  # DistributedDataParallel
        with some.no_sync():
            yield
        return
    if hasattr(module, "set_requires_gradient_sync"):  # FSDP2
        some.set_requires_gradient_sync(wanted)
    yield


def whole(x: Tensor) -> Tensor:
    """A tensor from the shards that all processes hold of it; one that is whole as it is."""
    return x.full_tensor() if is_sharded(x) else x  # type: ignore[attr-defined]


def is_sharded(x: Tensor) -> bool:
    return hasattr(x, "full_tensor")


def distribute_like(x: Tensor, like: Tensor) -> Tensor:
    """A whole tensor, known to all processes, on another's device and cut into shards as that one is."""
    x = x.to(like.device)
    if not is_sharded(like) or x.shape != like.shape:  # Adam's step counter is one number, which everyone has
        return x
    from torch.distributed.tensor import distribute_tensor

    sharded: Any = like
    return distribute_tensor(x, sharded.device_mesh, sharded.placements, src_data_rank=None)
