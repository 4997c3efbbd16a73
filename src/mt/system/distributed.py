"""The processes that train together, as torchrun starts them. One alone runs none of torch's distributed code.

rank  the number of a process; the main one has 0      size  how many there are
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from mt.errors import InputError, MachineError

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")

# The others have to wait while the main process prepares a large corpus. One that dies is noticed at once all the same.
_PATIENCE = timedelta(days=7)


@dataclass(frozen=True)
class World:
    """This process among those that train together, and what they tell each other.

    All processes must call a method that communicates, in the same order.

    Attributes:
        rank, size: its number, and how many there are.
        local_rank: its number on this machine, which is that of its GPU.
        group: of torch.distributed, for what lies in the memory of CPUs; None where there is one process only.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    group: Any = None

    @property
    def is_main(self) -> bool:
        """True in the one process that writes files and talks to the user."""
        return self.rank == 0

    def wait(self) -> None:
        """Returns when all processes have come here."""
        self.any(False)

    def any(self, flag: bool) -> bool:
        """True if any process says so."""
        return any(self.gather([flag])) if self.size > 1 else flag

    def from_main(self, value: T) -> T:
        """What the main process gave."""
        if self.size == 1:
            return value
        import torch.distributed as dist

        box = [value]
        with lost_explained():
            dist.broadcast_object_list(box, src=0, group=self.group)
        return box[0]

    def share(self, values: Sequence[T]) -> Sequence[T]:
        """This process's part of some work: every `size`-th."""
        return values[self.rank :: self.size]

    def gather(self, own: Sequence[T]) -> list[T]:
        """What all processes made of their shares, in the order of the whole."""
        if self.size == 1:
            return list(own)
        import torch.distributed as dist

        shares: list[list[T]] = [[] for _ in range(self.size)]
        with lost_explained():
            dist.all_gather_object(shares, list(own), group=self.group)
        whole: list[Any] = [None] * sum(map(len, shares))
        for rank, found in enumerate(shares):
            whole[rank :: self.size] = found
        return whole

    def sum(self, x: "Tensor") -> "Tensor":
        """Adds up the tensors of all processes, in place."""
        if self.size > 1:
            import torch.distributed as dist

            with lost_explained():
                dist.all_reduce(x)
        return x

    def leave(self) -> None:
        """Parts from the other processes, when all is done."""
        if self.size > 1:
            import torch.distributed as dist

            dist.destroy_process_group()

    def speaks(self) -> bool:
        """True in the first process that asks: where several fail, one tells the user why."""
        if self.size == 1:
            return True
        import torch.distributed as dist

        try:
            # It lies in the launcher and outlives the processes.
            store = dist.distributed_c10d._get_default_store()
            return bool(store.add("failures", 1) == 1)
        except (RuntimeError, ValueError):
            return True


ALONE = World()

_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


def join(environment: Mapping[str, str]) -> World:
    """Meets the other processes that torchrun started; without it there are none.

    Args:
        environment: has the variables that torchrun sets.

    Raises:
        InputError: the variables are damaged.
        MachineError: the processes do not find each other.
    """
    if "WORLD_SIZE" not in environment:
        return ALONE
    try:
        rank, size, local_rank, local_size = (int(environment[name]) for name in _VARIABLES)
    except (KeyError, ValueError):
        raise InputError(f"the environment must have {', '.join(_VARIABLES)} together, as torchrun sets them") from None
    if size == 1:
        return ALONE
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    try:
        store = None
        if size == local_size:
            # The launcher keeps its store when it starts processes again, with the addresses of those that died
            # (https://github.com/pytorch/pytorch/issues/135712). It counts the starts for one machine only; on several,
            # TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 keeps them apart.
            everyones, _, _ = next(rendezvous("env://"))
            store = PrefixStore(f"start {environment.get('TORCHELASTIC_RESTART_COUNT', '0')}", everyones)
        dist.init_process_group(_backend(local_size), store=store, rank=rank, world_size=size)
        return World(rank, size, local_rank, dist.new_group(backend="gloo", timeout=_PATIENCE))
    except (RuntimeError, ValueError) as error:
        raise MachineError(f"the {size} processes of this training do not find each other: {error}") from None


def _backend(local_size: int) -> str:
    """NCCL between GPUs, unless processes have to share one, which it refuses; gloo everywhere else."""
    import torch

    if not torch.cuda.is_available():
        return "gloo"
    return "cpu:gloo,cuda:nccl" if local_size <= torch.cuda.device_count() else "cpu:gloo,cuda:gloo"


@contextlib.contextmanager
def lost_explained() -> Iterator[None]:
    """Turns the failure to reach another process into one sentence for the user.

    Raises:
        MachineError: another process has died or cannot be reached.
    """
    try:
        yield
    except RuntimeError as error:
        if not _is_loss(error):
            raise
        raise MachineError(
            "another process of this training has died, or cannot be reached any more",
            "the launcher stops them all; the same command goes on from the last checkpoint",
        ) from error


def _is_loss(error: RuntimeError) -> bool:
    """True for what the backends raise when a connection ends; gloo has no type of its own for it."""
    import torch.distributed as dist

    signs = ("Connection closed by peer", "Connection reset", "Broken pipe", "gloo", "NCCL")
    return isinstance(error, dist.DistError) or any(sign in str(error) for sign in signs)
