"""`mt serve` under clients that mean no good: connections, stuck requests, forged addresses, costly markup."""

import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from serving_helpers import SLOW_SERVER, ServerProcess

FEW_FILES = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from mt.cli import main
main()
"""
HALF_A_REQUEST = b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n{"


@pytest.fixture(scope="module")
def model(trained: Path) -> Path:
    return trained / "runs" / "tiny"


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess("--model", model, "--rate-limit", "0", cwd=tmp_path_factory.mktemp("serve")) as process:
        yield process


def sent(server: ServerProcess, content: bytes) -> bytes:
    """The whole answer to some bytes."""
    with socket.create_connection(server.address, timeout=20) as connection:
        connection.sendall(content)
        return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.mark.slow
def test_more_connections_than_open_files_leave_the_others_answered(model: Path, tmp_path: Path) -> None:
    with ServerProcess("serve", "--port", "0", "--model", model, cwd=tmp_path, program=FEW_FILES) as server:
        kept = server.connection()
        kept.request("GET", "/health")
        assert kept.getresponse().read()
        idle = [socket.create_connection(server.address, timeout=10) for _ in range(400)]
        time.sleep(0.5)
        kept.request("GET", "/health")
        assert kept.getresponse().read() == b'{"status":"ok"}'
        closed = 0
        for connection in idle:
            connection.settimeout(0.001)
            try:
                closed += connection.recv(1) == b""
            except ConnectionResetError:
                closed += 1
            except TimeoutError:
                pass
            connection.close()
        assert 400 - 128 <= closed < 300
        time.sleep(0.2)
        assert server.ask("/health")[0] == 200
        log = server.command.printed().partition(server.url)[2]
        assert log.count("\n") == 2, log[:2000]
        assert "127 connections are open" in log or "128 connections are open" in log


def test_a_shutdown_waits_for_no_stuck_client(model: Path, tmp_path: Path) -> None:
    """Neither for the rest of a request, nor for a client that does not read its answers."""
    server = ServerProcess("--model", model, cwd=tmp_path)
    with socket.create_connection(server.address) as half, socket.create_connection(server.address) as deaf:
        half.sendall(HALF_A_REQUEST)
        deaf.settimeout(1)
        with pytest.raises(TimeoutError):
            deaf.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 1_000_000)
        started = time.monotonic()
        assert server.stop() in (0, -signal.SIGTERM, 128 + signal.SIGTERM)
        assert time.monotonic() - started < 15


@pytest.mark.parametrize("believed", [False, True])
def test_the_address_that_a_client_claims_is_believed_from_named_proxies_only(
    model: Path, tmp_path: Path, believed: bool
) -> None:
    options = ["--forwarded-allow-ips", "127.0.0.1"] if believed else []
    with ServerProcess("--model", model, "--rate-limit", "6", *options, cwd=tmp_path) as server:
        asked = [server.ask("/detect", {"q": "a"}, **{"X-Forwarded-For": f"10.0.0.{n}"})[0] for n in range(3)]
    assert asked == ([200, 200, 200] if believed else [200, 429, 429])


@pytest.mark.parametrize(
    ("kind", "text", "sentence"),
    [
        ("", b"caff\xe8", "the body is not a form in UTF-8"),
        ("; charset=nope", b"caf\xc3\xa9", "the form's charset is 'nope'; only UTF-8 is read"),
    ],
)
def test_multipart_text_is_strict_utf_8(server: ServerProcess, kind: str, text: bytes, sentence: str) -> None:
    part, form = b'--x\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n', "multipart/form-data; boundary=x"
    body = part % (b"q", text) + part % (b"target", b"xx") + b"--x--\r\n"
    assert server.ask("/translate", body, form + kind) == (400, {"error": sentence})
    assert server.ask("/translate", body.replace(text, b"a"), f"{form}; charset=UTF8")[0] == 200
    assert server.ask("/translate", body.replace(b'"q"', b'"q"; filename="a.txt"'), form)[0] == 400
    many = part % (b"q", b"a") * 101 + b"--x--\r\n"
    assert "more than 100 fields" in server.ask("/translate", many, form)[1]["error"]


@pytest.mark.parametrize(
    "content", [b"\x00\xff\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", HALF_A_REQUEST.replace(b"500", b"x")]
)
def test_what_is_not_http_is_answered_in_json(server: ServerProcess, content: bytes) -> None:
    head, _, body = sent(server, content).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"application/json" in head
    assert list(json.loads(body)) == ["error"]


def test_clients_cannot_fill_the_log(tmp_path: Path) -> None:
    upgrade = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close, Upgrade\r\nUpgrade: h2c\r\n\r\n"
    with ServerProcess("60", cwd=tmp_path, program=SLOW_SERVER) as server:
        before = server.command.printed()
        assert sent(server, upgrade).startswith(b"HTTP/1.1 200 ")
        assert server.ask("/translate", b"no form", "multipart/form-data; boundary=x")[0] == 400
        assert server.command.printed() == before


def test_costly_markup_does_not_hold_up_other_requests(server: ServerProcess) -> None:
    html = "".join(f"<b>{'abcdefghij'[n % 10]}</b> " for n in range(600))[:5000]
    request = {"q": html, "source": "en", "target": "xx", "format": "html", "alternatives": 10}
    waits: list[float] = []
    done = threading.Event()

    def look() -> None:
        with closing(server.connection()) as connection:
            while not done.is_set():
                asked = time.monotonic()
                connection.request("GET", "/health")
                connection.getresponse().read()
                waits.append(time.monotonic() - asked)
                time.sleep(0.01)

    looking = threading.Thread(target=look)
    looking.start()
    started = time.monotonic()
    try:
        with ThreadPoolExecutor(6) as pool:
            answers: list[tuple[int, Any]] = list(pool.map(lambda _: server.ask("/translate", request), range(6)))
    finally:
        done.set()
        looking.join()
    assert {status for status, _ in answers} == {200}
    assert max(waits) < 0.3 * (time.monotonic() - started)  # on the event loop, the markup takes 0.6 of it
