"""Connecting the processes of a training: those that cannot meet say so in one sentence, within a bounded time."""

import os
import socket
import subprocess
import sys
from datetime import timedelta

import pytest

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


@pytest.mark.parametrize(("rank", "reason"), [(0, "waiting for clients"), (1, "timed out")])
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


def test_the_time_to_connect_is_bounded_to_minutes() -> None:
    assert timedelta(minutes=10) >= distributed._CONNECTION_TIMEOUT
