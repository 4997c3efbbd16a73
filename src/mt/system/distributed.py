"""The processes of a training, as torchrun starts them; a single one runs none of torch's distributed code."""

import contextlib
import itertools
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from mt.errors import InputError, MachineError, first_line

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")

# Long, since other ranks wait while rank 0 prepares a large corpus. A rank that dies is noticed at once all the same.
_TIMEOUT = timedelta(days=7)
_STEP_TIMEOUT = timedelta(minutes=30)  # of the exchange between GPUs
_CONNECTION_TIMEOUT = timedelta(minutes=5)


@dataclass(frozen=True)
class Distributed:
    """This process's rank and its collectives, named as in torch; every rank must call them in the same order."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0  # on this machine, the index of the rank's GPU
    gloo: Any = None  # the process group for objects in CPU memory; None with one process

    @property
    def is_main(self) -> bool:
        """True in rank 0, which alone writes files and talks to the user."""
        return self.rank == 0

    def barrier(self) -> None:
        """Wait until every rank has called it."""
        self.any(False)

    def any(self, flag: bool) -> bool:
        """Return True on all ranks if the flag is True on any."""
        if self.world_size == 1:
            return flag
        import torch
        import torch.distributed as dist

        box = torch.tensor(float(flag))
        dist.all_reduce(box, group=self.gloo)
        return bool(box)

    def broadcast(self, value: T) -> T:
        """Return rank 0's value."""
        if self.world_size == 1:
            return value
        import torch.distributed as dist

        box = [value]
        dist.broadcast_object_list(box, src=0, group=self.gloo)
        return box[0]

    def shard(self, values: Sequence[T]) -> Sequence[T]:
        """Return this rank's part of the values: every `world_size`-th."""
        return values[self.rank :: self.world_size]

    def all_gather(self, shard: Sequence[T]) -> list[T]:
        """Join the ranks' results for their `shard`s, in the order of the unsharded values."""
        if self.world_size == 1:
            return list(shard)
        import torch.distributed as dist

        shards: list[list[T]] = [[] for _ in range(self.world_size)]
        dist.all_gather_object(shards, list(shard), group=self.gloo)
        gathered: list[Any] = [None] * sum(map(len, shards))
        for rank, values in enumerate(shards):
            gathered[rank :: self.world_size] = values
        return gathered

    def all_reduce(self, x: "Tensor") -> "Tensor":
        """Sum a tensor over all ranks, in place."""
        if self.world_size > 1:
            import torch.distributed as dist

            dist.all_reduce(x)
        return x

    def destroy(self) -> None:
        """Destroy the process group."""
        if self.world_size > 1:
            import torch.distributed as dist

            dist.destroy_process_group()

    def claims_error_report(self) -> bool:
        """Return True in the first process that asks, so that one of several failing ranks tells the user why."""
        if self.world_size == 1:
            return True
        import torch.distributed as dist

        try:
            # The store lives in the launcher and outlives the ranks.
            store = dist.distributed_c10d._get_default_store()
            return bool(store.add("failures", 1) == 1)
        except (RuntimeError, ValueError):
            return True


SINGLE_PROCESS = Distributed()


def refuse_mixed_devices(kind: str, distributed: Distributed) -> None:
    """Raise InputError if ranks have different kinds of devices: NCCL and gloo would wait for each other."""
    counts = Counter(distributed.all_gather([kind]))
    if len(counts) > 1:
        raise InputError(
            "training.device: the processes have different ones: "
            + ", ".join(f"{count} of {distributed.world_size} {kind}" for kind, count in sorted(counts.items())),
            "set it to cuda to see which has no usable GPU, or to cpu",
        )


_trainings = itertools.count()  # of this process
_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


def read_ranks(environment: Mapping[str, str]) -> list[int]:
    """Return torchrun's variables: rank and world size, and those of this machine; without them those of one process.

    Raises InputError if the variables are incomplete or not numbers.
    """
    if "WORLD_SIZE" not in environment:
        return [0, 1, 0, 1]
    try:
        return [int(environment[name]) for name in _VARIABLES]
    except (KeyError, ValueError):
        raise InputError(f"the environment must have {', '.join(_VARIABLES)} together, as torchrun sets them") from None


def init_distributed(environment: Mapping[str, str]) -> Distributed:
    """Initialise the process group from torchrun's variables; without them there is one process.

    Raises as `read_ranks` does, and MachineError if the ranks cannot connect.
    """
    rank, size, local_rank, local_size = read_ranks(environment)
    if size == 1:
        return SINGLE_PROCESS
    # Otherwise each failed attempt to connect logs a warning of 20 lines. torch reads the variable on its first import.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    import torch
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    try:
        store, _, _ = next(rendezvous("env://", timeout=_CONNECTION_TIMEOUT))
        # The launcher's store still holds the addresses of the last group, if this process has trained before.
        store = PrefixStore(f"training {next(_trainings)}", store)
        if size == local_size:
            # A restarted launcher keeps its store, with the addresses of the dead ranks
            # (https://github.com/pytorch/pytorch/issues/135712). The prefix separates the starts on one machine; on
            # several, TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 does.
            store = PrefixStore(f"start {environment.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        # Both groups connect all processes with each other, which fails where a firewall lets only the store through.
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_CONNECTION_TIMEOUT)
        gloo = dist.new_group(backend="gloo", timeout=_CONNECTION_TIMEOUT)
        for group, timeout in ((dist.group.WORLD, _STEP_TIMEOUT), (gloo, _TIMEOUT)):
            dist.distributed_c10d._set_pg_timeout(timeout, group)
        return Distributed(rank, size, local_rank, gloo)
    except (RuntimeError, ValueError) as error:
        raise MachineError(
            f"the {size} processes of this training cannot connect to each other: {first_line(error)}",
            "start all of them within minutes; each must reach MASTER_ADDR, and each other on any port",
        ) from None


@contextlib.contextmanager
def explain_lost_process() -> Iterator[None]:
    """Turn a failed collective, anywhere in a training, into a MachineError: another process died or is unreachable."""
    try:
        yield
    except RuntimeError as error:
        import torch.distributed as dist

        # Gloo has no exception type of its own for a closed connection.
        signs = ("Connection closed by peer", "Connection reset", "Broken pipe", "gloo", "NCCL")
        if not isinstance(error, dist.DistError) and not any(sign in str(error) for sign in signs):
            raise
        raise MachineError(
            "another process of this training has died or can no longer be reached",
            "the launcher stops them all; the same command resumes from the last checkpoint",
        ) from error
