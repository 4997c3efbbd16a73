"""Data-parallel training: DistributedDataParallel, or FSDP2 to shard a model's state."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from mt.training.objective import Objective
from mt.training.precision import DTYPES


def wrap(objective: Objective, sharding: str, world_size: int, precision: str = "fp32") -> nn.Module:
    """Wrap the objective in DDP or FSDP for the initialised process group.

    FSDP gathers the layers' weights in the number format of matrix products, `precision`. Embeddings and output layer
    stay in fp32, in which the loss adds up their gradient.
    """
    if sharding == "ddp":
        from torch.nn.parallel import DistributedDataParallel

        # Not to be broadcast: each rank's table of positions grows with the longest sentence that it has seen.
        tables = [name for name, _ in objective.named_buffers()]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(  # type: ignore[no-untyped-call]
            objective, tables
        )
        return DistributedDataParallel(objective, gradient_as_bucket_view=True)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(objective.model.device.type, (world_size,))
    policy = MixedPrecisionPolicy(DTYPES[precision], reduce_dtype=torch.float32, cast_forward_inputs=False)
    for layer in objective.model.blocks:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    # The embeddings are used first and last, so they stay gathered between the forward and the backward pass.
    fully_shard(objective, mesh=mesh, reshard_after_forward=False)
    return objective


@contextlib.contextmanager
def gradient_sync(module: nn.Module, enabled: bool) -> Iterator[None]:
    """Switch the exchange of gradients after a backward pass; only the last one of a step needs it."""
    wrapped: Any = module
    if hasattr(module, "no_sync") and not enabled:  # DistributedDataParallel
        with wrapped.no_sync():
            yield
        return
    if hasattr(module, "set_requires_gradient_sync"):  # FSDP2
        wrapped.set_requires_gradient_sync(enabled)
    yield


def full_tensor(x: Tensor) -> Tensor:
    """Gather a tensor from its shards; return one that is not sharded as it is."""
    return x.full_tensor() if is_sharded(x) else x  # type: ignore[attr-defined]


def is_sharded(x: Tensor) -> bool:
    return hasattr(x, "full_tensor")


def distribute_like(x: Tensor, like: Tensor) -> Tensor:
    """Move a full tensor, which every rank holds, to the device of `like`, sharded in the same way."""
    x = x.to(like.device)
    if not is_sharded(like) or x.shape != like.shape:  # Adam's step counter is a scalar, which every rank keeps
        return x
    from torch.distributed.tensor import distribute_tensor

    sharded: Any = like
    return distribute_tensor(x, sharded.device_mesh, sharded.placements, src_data_rank=None)
