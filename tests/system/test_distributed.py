"""Connecting the processes of a training: those that cannot meet say so in one sentence, within a bounded time."""

import os
import socket
import subprocess
import sys
from datetime import timedelta

import pytest
from torch.distributed import TCPStore

from mt.system import distributed

CONNECT = """\
import os
from datetime import timedelta
from mt.errors import MtError
from mt.system import distributed

distributed._CONNECTION_TIMEOUT = timedelta(seconds=1)
try:
    distributed.init_distributed(os.environ)
except MtError as error:
    print(error.exit_code, error)
"""


@pytest.mark.parametrize(
    ("rank", "reason"), [(0, "waiting for clients"), pytest.param(1, "timed out", marks=pytest.mark.slow)]
)
def test_a_process_that_stays_alone_gives_up(rank: int, reason: str) -> None:
    """Rank 0 waits for the other machine; rank 1 finds nobody at the address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    variables = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    environment = os.environ | variables | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    done = subprocess.run([sys.executable, "-c", CONNECT], env=environment, capture_output=True, text=True, timeout=120)
    first, *_ = done.stdout.splitlines()
    assert first.startswith("4 the 2 processes of this training cannot connect to each other: ")
    assert reason in first.lower()


def start(code: str, rank: int, store: TCPStore) -> subprocess.Popen[str]:
    """Start one of two processes as torchrun does, which keeps the store through which they meet."""
    variables = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    return subprocess.Popen(
        [sys.executable, "-c", code], env=os.environ | variables | meeting, stdout=subprocess.PIPE, text=True
    )


STUCK = "import time, torch.distributed as dist\ndist.new_group = lambda **_: time.sleep(60)\n" + CONNECT


@pytest.mark.parametrize(
    "other",
    [pytest.param(None, id="meets only", marks=pytest.mark.slow), pytest.param(STUCK, id="in the first group only")],
)
def test_processes_that_meet_and_cannot_connect_give_up(other: str | None) -> None:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    stuck = start(other, 1, store) if other else None
    try:
        told, _ = start(CONNECT.replace("seconds=1", "seconds=5"), 0, store).communicate(timeout=60)
    finally:
        if stuck is not None:
            stuck.kill()
            stuck.communicate()
    assert told.startswith("4 the 2 processes of this training cannot connect to each other: ")
    assert "timeout" in told.lower()


AGREE = (
    CONNECT.replace("    distributed.init", "    d = distributed.init").replace("seconds=1", "seconds=60")
    + """
import torch, torch.distributed as dist

def refuse(*_, **__):
    raise AssertionError("objects are pickled")

dist.all_gather_object = dist.broadcast_object_list = refuse
answers = [d.any(False), d.any(d.rank == 1), d.any(True)]
d.barrier()
limits = [group._get_backend(torch.device("cpu")).options._timeout for group in (d.gloo, dist.group.WORLD)]
print(answers, d.all_reduce(torch.ones(2)).tolist(), *limits, sep="; ")
d.destroy()
"""
)


def test_ranks_agree_without_pickling_and_wait_longer_than_for_a_connection() -> None:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    both = [start(AGREE, rank, store) for rank in (0, 1)]
    told = [each.communicate(timeout=60)[0] for each in both]
    assert told == ["[False, True, True]; [2.0, 2.0]; 7 days, 0:00:00; 0:30:00\n"] * 2


MIXED = CONNECT.replace("seconds=1", "seconds=60").replace(
    "    distributed.init_distributed(os.environ)\n",
    """\
    d = distributed.init_distributed(os.environ)
    for kind in ("cpu", ("cpu", "cuda")[d.rank]):
        distributed.refuse_mixed_devices(kind, d)
""",
)


def test_processes_with_different_devices_are_refused() -> None:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    both = [start(MIXED, rank, store) for rank in (0, 1)]
    told = [each.communicate(timeout=60)[0] for each in both]
    reason = "2 training.device: the processes have different ones: 1 of 2 cpu, 1 of 2 cuda"
    assert told == [f"{reason}\n  set it to cuda to see which has no usable GPU, or to cpu\n"] * 2


AGAIN = """\
import os, torch
from mt.system.distributed import init_distributed

for _ in range(2):
    d = init_distributed(os.environ)
    print(d.all_reduce(torch.ones(1)).item())
    d.destroy()
"""


def test_processes_connect_again_for_another_training() -> None:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    both = [start(AGAIN, rank, store) for rank in (0, 1)]
    try:
        assert [each.communicate(timeout=60)[0] for each in both] == ["2.0\n2.0\n"] * 2
    finally:
        for each in both:
            each.kill()
            each.communicate()


def test_the_time_to_connect_is_bounded_to_minutes() -> None:
    assert timedelta(minutes=10) >= distributed._CONNECTION_TIMEOUT
