"""Downloads into a cache: resumed where an earlier one ended, checked, and complete or absent."""

import contextlib
import hashlib
import http.client
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mt.console import log, progress
from mt.errors import InputError, MachineError
from mt.storage import atomic
from mt.storage.lock import wait_for_lock

_BLOCK = 2**20  # bytes
_TIMEOUT = 60  # seconds without a byte
_OFFLINE = ("MT_OFFLINE", "HF_HUB_OFFLINE")


class _RangeError(InputError):
    """The server has no bytes from the requested one on."""


def offline_switch() -> str | None:
    """Return the environment variable that switches the network off, if there is one."""
    return next((name for name in _OFFLINE if os.environ.get(name, "0").lower() not in ("", "0", "false")), None)


def cache_folder() -> Path:
    """Return `MT_CACHE`, or `mt` in the user's folder for caches."""
    mt_cache, user_cache = os.environ.get("MT_CACHE"), os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(mt_cache) if mt_cache else Path(user_cache or Path.home() / ".cache") / "mt"
    except RuntimeError:
        raise MachineError("no home folder to keep downloads in", "set MT_CACHE to a folder") from None


def download(url: str, path: Path, md5: str | None = None) -> None:
    """Download a file unless it is there.

    Raises:
        InputError: the server has no such file, its content is not what was expected, or the network is switched off.
        MachineError: no connection, it broke, or the server is busy; the next call resumes where this one ended.
    """
    partial = path.with_name(f"{path.name}{atomic.PARTIAL}")
    if path.exists():
        return
    with atomic.explained(path), wait_for_lock(Path(f"{partial}.lock"), f"{path}: another process downloads it"):
        if path.exists():
            return
        try:
            _fetch(url, partial)
        except _RangeError:  # killed after the last byte, or the server's file is shorter now
            partial.unlink()
            _fetch(url, partial)
        if md5 and hashlib.md5(partial.read_bytes(), usedforsecurity=False).hexdigest() != md5:
            partial.unlink()
            raise InputError(f"{url}: not the expected content (MD5)", "try again, or report it to sacreBLEU")
        atomic.sync(partial)
        partial.replace(path)
        atomic.sync(path.parent)


def fetch_bytes(url: str, limit: int) -> bytes:
    """Return the first `limit` bytes of a response; errors as of `download`."""
    with _response(url, {}) as response:
        return bytes(response.read(limit))


def _fetch(url: str, partial: Path) -> None:
    """Append to a partial file if the server's file is still the same (ETag), or else start again."""
    etag_file = partial.with_name(f"{partial.name}.etag")
    done = partial.stat().st_size if partial.exists() and etag_file.exists() else 0
    resume = {"Range": f"bytes={done}-", "If-Range": etag_file.read_text()} if done else {}
    with _response(url, resume) as response:
        done = done if response.status == 206 else 0
        length = response.headers.get("Content-Length")
        total = done + int(length) if length else None
        etag = response.headers.get("ETag") or response.headers.get("Last-Modified")
        if not done:
            partial.unlink(missing_ok=True)  # before the ETag says that these bytes are of this content
        etag_file.write_text(etag) if etag else etag_file.unlink(missing_ok=True)
        log.info("downloading %s%s", url, f" from byte {done:,} on" if done else "")
        bar = progress(total=total, initial=done, unit="B", unit_scale=True, desc="downloading")
        with bar, partial.open("ab" if done else "wb") as file:
            while block := response.read(_BLOCK):
                file.write(block)
                bar.update(len(block))
    size = partial.stat().st_size
    if total is not None and size != total:
        raise MachineError(f"{url}: the connection ended after {size:,} of {total:,} bytes", "run the command again")
    etag_file.unlink(missing_ok=True)


@contextlib.contextmanager
def _response(url: str, headers: dict[str, str]) -> Iterator[Any]:
    if switch := offline_switch():
        raise InputError(f"{url}: not in the cache, and {switch} switches the network off", f"unset {switch}")
    if not url.startswith(("http://", "https://")):
        raise InputError(f"{url}: not a web address", "check it")
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT) as response:
            yield response
    except urllib.error.HTTPError as error:
        if error.code >= 500 or error.code in (408, 429):
            raise MachineError(f"{url}: the server answers {error.code} {error.reason}", "try again later") from None
        kind = _RangeError if error.code == 416 and "Range" in headers else InputError
        raise kind(f"{url}: the server answers {error.code} {error.reason}", "check the name") from None
    except (urllib.error.URLError, http.client.HTTPException, ssl.SSLError, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", None) or error
        raise MachineError(f"{url}: no connection ({reason})", "check the network; the cache works offline") from None
