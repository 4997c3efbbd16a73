"""Downloads: resumed, checked, whole or absent."""

import errno
import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mt.errors import InputError, MachineError
from mt.storage.download import cache_folder, download
from mt.storage.lock import wait_for_lock
from web_helpers import Web, serving

CONTENT = bytes(range(256)) * 40


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    for name in ("MT_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    with serving(Web({"/a": CONTENT})) as web:
        yield web


def test_a_file_is_downloaded_once(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new" / "a"
    download(f"{web.address}/a", path, hashlib.md5(CONTENT).hexdigest())
    assert path.read_bytes() == CONTENT
    monkeypatch.setenv("MT_OFFLINE", "1")
    download(f"{web.address}/a", path)
    assert web.asked == [("/a", None)]
    assert [each.name for each in path.parent.iterdir() if "lock" not in each.name] == ["a"]


def test_a_broken_connection_is_resumed(web: Web, tmp_path: Path) -> None:
    path, web.cut = tmp_path / "a", 1000
    with pytest.raises(MachineError, match=r"ended after 1,000 of 10,240 bytes"):
        download(f"{web.address}/a", path)
    assert not path.exists()
    web.cut = None
    download(f"{web.address}/a", path)
    assert path.read_bytes() == CONTENT
    assert web.asked == [("/a", None), ("/a", "bytes=1000-")]


def test_a_download_killed_after_its_last_byte_recovers(web: Web, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.with_name("a.partial").write_bytes(CONTENT)
    path.with_name("a.partial.etag").write_text(web.etag)
    download(f"{web.address}/a", path)
    assert path.read_bytes() == CONTENT
    assert web.asked == [("/a", f"bytes={len(CONTENT)}-"), ("/a", None)]


def test_another_version_is_not_appended(web: Web, tmp_path: Path) -> None:
    path, web.cut = tmp_path / "a", 1000
    with pytest.raises(MachineError):
        download(f"{web.address}/a", path)
    web.cut, web.etag, web.files["/a"] = None, '"2"', CONTENT[::-1]
    download(f"{web.address}/a", path)
    assert path.read_bytes() == CONTENT[::-1]


def test_a_kill_never_mixes_two_contents(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has something else now; the process ends when it has noted that, and before the first byte."""
    path = tmp_path / "a"
    partial, mark = tmp_path / "a.partial", tmp_path / "a.partial.etag"
    partial.write_bytes(b"old content")
    mark.write_text('"of the old content"')

    def killed(**_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("mt.storage.download.progress", killed)
        with pytest.raises(KeyboardInterrupt):
            download(f"{web.address}/a", path)
    download(f"{web.address}/a", path)
    assert path.read_bytes() == CONTENT


def test_a_download_waits_for_that_of_another_process(web: Web, tmp_path: Path, notices: list[str]) -> None:
    path = tmp_path / "a"
    with ThreadPoolExecutor(1) as pool:
        with wait_for_lock(tmp_path / "a.partial.lock", "ours"):
            theirs = pool.submit(download, f"{web.address}/a", path)
            deadline = time.monotonic() + 60
            while not notices and time.monotonic() < deadline:
                time.sleep(0.01)
            path.write_bytes(b"of the other process")
        theirs.result()
    assert notices == [f"{path}: another process downloads it; waiting for it"]
    assert web.asked == []


def test_a_cache_may_be_on_a_disk_without_locks(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    download(f"{web.address}/a", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == CONTENT


def test_wrong_content_is_removed(web: Web, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not the expected content"):
        download(f"{web.address}/a", tmp_path / "a", "0" * 32)
    download(f"{web.address}/a", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == CONTENT


@pytest.mark.parametrize("variable", ["MT_OFFLINE", "HF_HUB_OFFLINE"])
def test_offline_nothing_is_asked(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "1")
    with pytest.raises(InputError, match=f"not in the cache, and {variable}"):
        download(f"{web.address}/a", tmp_path / "a")
    assert web.asked == []


def test_addresses_that_give_nothing(web: Web, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the server answers 404"):
        download(f"{web.address}/none", tmp_path / "a")
    with pytest.raises(MachineError, match="no connection"):
        download("http://127.0.0.1:1/a", tmp_path / "a")
    with pytest.raises(InputError, match="not a web address"):
        download(Path("/etc/passwd").as_uri(), tmp_path / "a")
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("code", [408, 429, 500, 503])
def test_a_server_in_trouble_is_not_the_users_mistake(web: Web, tmp_path: Path, code: int) -> None:
    web.error = code
    with pytest.raises(MachineError, match=f"the server answers {code} .*\n.*try again later"):
        download(f"{web.address}/none", tmp_path / "a")


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(web: Web, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(MachineError, match="cannot write here"):
        download(f"{web.address}/a", tmp_path / "a")


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MT_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_folder() == Path("/x/mt")
    monkeypatch.setenv("MT_CACHE", "/y")
    assert cache_folder() == Path("/y")


def test_without_a_home_the_cache_needs_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MT_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 987_654_321)  # as in a container, without an entry in passwd
    with pytest.raises(MachineError, match="no home folder"):
        cache_folder()
