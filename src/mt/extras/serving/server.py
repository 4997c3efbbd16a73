"""The uvicorn server: listening, running and graceful shutdown."""

import errno
import logging
import os
import socket
import sys

import uvicorn
from fastapi import FastAPI

from mt.console import log
from mt.errors import InputError, MachineError
from mt.extras.serving.connection import Connection, connection_limits

_IDLE_SECONDS = 30  # for a connection that waits for its client


def listen(host: str, port: int) -> socket.socket:
    """Bind a socket; port 0 takes a free one.

    Raises:
        InputError: the host is not an address of this machine.
        MachineError: the port is in use or not permitted.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError) as error:
        hint = "127.0.0.1 is this machine only, 0.0.0.0 all its networks"
        raise InputError(f"--host {host}: {error}", hint) from None
    bound = socket.socket(family, kind, protocol)
    if sys.platform != "win32":  # there it would let two servers listen at one port
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise _cannot_listen(host, port, error) from None
    return bound


def _cannot_listen(host: str, port: int, error: OSError) -> MachineError:
    if error.errno == errno.EADDRINUSE:
        hint = "stop the program that uses it, or choose another --port"
        return MachineError(f"port {port} of {host} is in use", hint)
    return MachineError(f"cannot listen at {host}:{port}: {error.strerror or error}", "choose another --port")


def serve(app: FastAPI, bound: socket.socket, drain_seconds: int, forwarded_allow_ips: str = "") -> None:
    """Serve until SIGTERM or SIGINT; requests in flight are answered first.

    Args:
        app: the application.
        bound: the socket.
        drain_seconds: time limit for requests in flight at shutdown.
        forwarded_allow_ips: comma-separated proxies whose X-Forwarded-For is trusted.

    Raises:
        MachineError: another process has taken the port.
    """
    host, port = bound.getsockname()[:2]
    max_connections, backlog = connection_limits()
    try:
        bound.listen(backlog)  # early clients wait in the backlog
    except OSError as error:  # the port was taken while models were loading
        raise _cannot_listen(host, port, error) from None
    log.info("serving at http://%s:%d/ (Ctrl-C stops)", f"[{host}]" if ":" in host else host, port)
    uvicorn_log = logging.getLogger("uvicorn.error")
    uvicorn_log.setLevel(logging.WARNING)
    uvicorn_log.addFilter(_forward)
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # the client gets its errors
    config = uvicorn.Config(
        app,
        http=Connection,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=drain_seconds,
        timeout_keep_alive=_IDLE_SECONDS,
        server_header=False,
        limit_concurrency=max_connections,
        backlog=backlog,
        proxy_headers=bool(forwarded_allow_ips),
        forwarded_allow_ips=forwarded_allow_ips,
        ws="none",
        h11_max_incomplete_event_size=64 * 1024,
    )
    try:
        _Server(config).run(sockets=[bound])
    except (KeyboardInterrupt, SystemExit) as error:  # of SIGINT, SIGTERM or SIGHUP
        # Python would wait for the threads of abandoned batches.
        logging.shutdown()
        code = getattr(error, "code", 130)
        os._exit(code if isinstance(code, int) else 1)


class _Server(uvicorn.Server):
    """A server that shuts its application down even after a second Ctrl-C, at which uvicorn skips that."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if self.force_exit:
            await self.lifespan.shutdown()


def _forward(record: logging.LogRecord) -> bool:
    """Forward a warning of uvicorn to our log; of a traceback, attached or within the message, only its last line."""
    log.warning("%s", record.getMessage().strip().rpartition("\n")[2])
    return False
