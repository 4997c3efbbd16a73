"""The only writer: whole or absent whatever happens, damage is seen, and one process at a time."""

import contextlib
import errno
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from mt.errors import InputError, MachineError
from mt.storage import atomic
from mt.storage import lock as run_lock
from mt.storage.manifest import DamagedError, read_manifest, sha256, verify
from mt.storage.output_path import require_writable


def start_python(program: str, *arguments: object) -> subprocess.Popen[str]:
    """Starts a program in another process, which says a line when it is ready."""
    child = subprocess.Popen([sys.executable, "-c", program, *map(str, arguments)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def kill(child: subprocess.Popen[str]) -> None:
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert child.stdout is not None
    child.stdout.close()


def fail_with(number: int) -> Callable[..., None]:
    def failing(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return failing


def path_of(descriptor: int) -> str:
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())


# One file


def test_a_file_is_replaced_and_its_folder_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "file"
    for content in (b"one", b"", b"two\r\n\x00"):
        atomic.write_bytes(path, content)
        assert path.read_bytes() == content
    assert [p.name for p in path.parent.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("name", "allowed"), [("file", {"."}), ("new/file", {"."}), ("link", {"other"}), ("pipe", {"pipe"})]
)
def test_what_must_allow_a_file_to_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, allowed: set[str]
) -> None:
    """A file's folder, where a link leads to its folder, and nothing but a pipe itself."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to("other/real")
    os.mkfifo(tmp_path / "pipe")
    asked: set[str] = set()

    def access(path: Path, _: int) -> bool:
        asked.add(os.path.relpath(path, tmp_path))
        return False

    monkeypatch.setattr(os, "access", access)
    with pytest.raises(MachineError, match="cannot write here"):
        require_writable(tmp_path / name, "--output")
    assert asked == allowed


def test_a_file_is_no_folder_to_write_into(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="is a file, not a folder"):
        require_writable(tmp_path / "file" / "x", "--output")


def test_text_and_json_are_utf8_with_lf(tmp_path: Path) -> None:
    atomic.write_text(tmp_path / "a.txt", "è\nb\r\n\u2028")
    assert (tmp_path / "a.txt").read_bytes() == "è\nb\r\n\u2028".encode()
    atomic.write_json(tmp_path / "a.json", {"è": [1, None]})
    assert json.loads((tmp_path / "a.json").read_bytes()) == {"è": [1, None]}
    assert "è".encode() in (tmp_path / "a.json").read_bytes()


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "no space left on the disk"),
        (errno.EDQUOT, "no space left on the disk"),
        (errno.EIO, "cannot write here: Input/output error"),
        (errno.EROFS, "cannot write here: Read-only file system"),
        (errno.EACCES, "cannot write here: Permission denied"),
    ],
)
def test_a_failing_disk_leaves_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, number: int, said: str
) -> None:
    path = tmp_path / "file"
    atomic.write_bytes(path, b"old")
    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail_with(number))
        with pytest.raises(MachineError) as caught:
            atomic.write_bytes(path, b"new")
    assert caught.value.message == f"{path}: {said}"
    assert caught.value.exit_code == 4
    assert path.read_bytes() == b"old"
    atomic.write_bytes(path, b"new")
    assert path.read_bytes() == b"new"


def test_content_is_durable_before_it_takes_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (events.append(path_of(fd)), fsync(fd)))
    monkeypatch.setattr(os, "replace", lambda *names: (events.append("replace"), replace(*names)))
    atomic.write_bytes(tmp_path / "file", b"content")
    assert events == [str(tmp_path / f".file.{os.getpid()}.partial"), "replace", str(tmp_path)]


def test_a_path_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "folder", tmp_path / "file" / "below"):
        with pytest.raises(MachineError) as caught:
            atomic.write_bytes(path, b"x")
        assert caught.value.message.startswith(f"{path}: cannot write here: ")


def test_a_reader_never_sees_a_part(tmp_path: Path) -> None:
    path, done = tmp_path / "file", threading.Event()
    contents = {b"a" * 300_000, b"b" * 200_000}
    atomic.write_bytes(path, min(contents))
    seen: list[bool] = []

    def read() -> None:
        while not done.is_set():
            seen.append(path.read_bytes() in contents)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(15):
        for content in contents:
            atomic.write_bytes(path, content)
    done.set()
    reader.join()
    assert len(seen) > 10
    assert all(seen)


WRITE_FOREVER = """
import sys
from pathlib import Path
from mt.storage import atomic
from mt.storage.manifest import DamagedError, read_manifest, sha256, verify
root = Path(sys.argv[1])
print("ready", flush=True)
number = 0
while True:
    number += 1
    atomic.write_bytes(root / "file", str(number % 10).encode() * 100_000)
    with atomic.new_folder(root / "folder", number=number) as partial:
        for name in "abc":
            (partial / name).write_bytes(str(number % 10).encode() * 30_000)
"""


def test_a_killed_writer_leaves_whole_things_only(tmp_path: Path) -> None:
    rng = random.Random(0)
    for _ in range(6):
        child = start_python(WRITE_FOREVER, tmp_path)
        time.sleep(0.05 + 0.1 * rng.random())
        kill(child)
        atomic.remove_partials(tmp_path)
        assert {path.name for path in tmp_path.iterdir()} <= {"file", "folder"}
        content = (tmp_path / "file").read_bytes()
        assert content == content[:1] * 100_000
        if (tmp_path / "folder").exists():
            number = verify(tmp_path / "folder")["number"]
            assert {(tmp_path / "folder" / name).read_bytes()[:1] for name in "abc"} == {str(number % 10).encode()}


# A folder


def make_folder(folder: Path, **facts: object) -> None:
    with atomic.new_folder(folder, **facts) as partial:
        (partial / "one").write_bytes(b"content of one")
        (partial / "sub").mkdir()
        (partial / "sub" / "two").write_bytes(bytes(range(256)))
        (partial / "empty").write_bytes(b"")


def test_a_folder_comes_with_a_manifest_of_all_its_files(tmp_path: Path) -> None:
    make_folder(tmp_path / "folder", key="k", step=3)
    manifest = verify(tmp_path / "folder")
    assert (manifest["key"], manifest["step"]) == ("k", 3)
    assert {name: entry["bytes"] for name, entry in manifest["files"].items()} == {
        "one": 14,
        "sub/two": 256,
        "empty": 0,
    }
    assert manifest == read_manifest(tmp_path / "folder")


def test_a_folder_is_not_there_before_it_is_whole(tmp_path: Path) -> None:
    with atomic.new_folder(tmp_path / "folder") as partial:
        (partial / "one").write_bytes(b"x")
        assert not (tmp_path / "folder").exists()
    assert (tmp_path / "folder" / "one").read_bytes() == b"x"
    assert not partial.exists()


@pytest.mark.parametrize("failure", [ValueError("ours"), KeyboardInterrupt(), InputError("the user's")])
def test_an_exception_half_way_leaves_no_folder(tmp_path: Path, failure: BaseException) -> None:
    with contextlib.suppress(type(failure)), atomic.new_folder(tmp_path / "folder") as partial:
        (partial / "one").write_bytes(b"x")
        raise failure
    assert list(tmp_path.iterdir()) == []


def test_an_exception_half_way_leaves_the_folder_that_was_there(tmp_path: Path) -> None:
    make_folder(tmp_path / "folder", version=1)
    with contextlib.suppress(ValueError), atomic.new_folder(tmp_path / "folder", version=2) as partial:
        (partial / "one").write_bytes(b"x")
        raise ValueError
    assert verify(tmp_path / "folder")["version"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_folder_replaces_the_one_that_was_there(tmp_path: Path) -> None:
    make_folder(tmp_path / "folder", version=1)
    with atomic.new_folder(tmp_path / "folder", version=2) as partial:
        (partial / "other").write_bytes(b"x")
    assert verify(tmp_path / "folder")["version"] == 2
    assert {path.name for path in (tmp_path / "folder").iterdir()} == {"other", "MANIFEST.json"}
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_two_processes_do_not_write_one_folder(tmp_path: Path) -> None:
    with atomic.new_folder(tmp_path / "folder", version=1) as partial:
        (partial / "a").write_text("x")
        with (
            pytest.raises(InputError, match="another process is writing this folder"),
            atomic.new_folder(tmp_path / "folder", version=2),
        ):
            pass
        (partial / "b").write_text("y")
    assert verify(tmp_path / "folder")["files"].keys() == {"a", "b"}
    with atomic.new_folder(tmp_path / "folder", version=2):
        pass
    assert read_manifest(tmp_path / "folder")["version"] == 2


def test_a_link_to_a_folder_stays_one(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "folder").symlink_to(tmp_path / "far")
    for version in (1, 2, 3):
        with atomic.new_folder(tmp_path / "folder", version=version):
            pass
    assert (tmp_path / "folder").is_symlink()
    assert read_manifest(tmp_path / "far")["version"] == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["far", "folder"]


def test_a_link_that_was_left_over_is_cleared_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / ".x.old.partial").symlink_to(tmp_path / "far")
    atomic.remove_partials(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["far"]


@pytest.mark.parametrize("before", [False, True])
def test_what_a_living_process_writes_is_not_cleared(tmp_path: Path, before: bool) -> None:
    if before:
        make_folder(tmp_path / "folder", version=1)
    with atomic.new_folder(tmp_path / "folder", version=2) as partial:
        (partial / "a").write_text("x")
        if before:
            (tmp_path / "folder").rename(tmp_path / ".folder.old.partial")  # as between its two renames
        atomic.remove_partials(tmp_path)
        (partial / "b").write_text("y")
    assert verify(tmp_path / "folder")["files"].keys() == {"a", "b"}


def test_a_file_that_a_living_process_writes_is_not_cleared(tmp_path: Path) -> None:
    living, gone, own = os.getppid(), subprocess.Popen(["true"]), os.getpid()
    gone.wait()
    for process in (living, gone.pid, 2**80, own):  # one of before may have had the same number as this one
        (tmp_path / f".file.{process}.partial").write_bytes(b"x")
    atomic.remove_partials(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [f".file.{living}.partial"]


def test_weights_may_be_read_by_whoever_may_read_the_rest(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with atomic.new_folder(tmp_path / "folder") as partial:
            atomic.write_tensors(partial / "a.safetensors", {"a": torch.ones(2)})
            atomic.write_text(partial / "b", "x")
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "folder").iterdir()}
    assert modes == {0o640}


@pytest.mark.parametrize("again", ["start", "write"])
def test_a_folder_that_was_being_replaced_is_put_back(tmp_path: Path, again: str) -> None:
    make_folder(tmp_path / ".folder.old.partial", version=1)
    make_folder(tmp_path / ".folder.partial", version=2)
    if again == "start":
        atomic.remove_partials(tmp_path)
    else:
        with contextlib.suppress(ValueError), atomic.new_folder(tmp_path / "folder"):
            raise ValueError
    assert verify(tmp_path / "folder")["version"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_what_a_killed_process_left_does_not_get_into_a_new_folder(tmp_path: Path) -> None:
    left = tmp_path / ".folder.partial"
    left.mkdir()
    (left / "left").write_bytes(b"x")
    make_folder(tmp_path / "folder")
    assert "left" not in verify(tmp_path / "folder")["files"]


@pytest.mark.parametrize("step", ["fsync", "rename"])
def test_a_disk_that_fails_at_the_end_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail_with(errno.ENOSPC))
        with pytest.raises(MachineError) as caught:
            make_folder(tmp_path / "folder")
    assert caught.value.exit_code == 4
    assert not (tmp_path / "folder").exists()


def test_every_file_of_a_folder_is_durable_before_it_takes_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fsync, rename = os.fsync, os.rename
    monkeypatch.setattr(os, "fsync", lambda fd: (events.append(path_of(fd)), fsync(fd)))
    monkeypatch.setattr(os, "rename", lambda *names: (events.append("rename"), rename(*names)))
    make_folder(tmp_path / "folder")
    before = {Path(name).name for name in events[: events.index("rename")]}
    assert before >= {"one", "two", "empty", "sub", f".MANIFEST.json.{os.getpid()}.partial", ".folder.partial"}
    assert events[-1] == str(tmp_path)


def test_removing_leaves_nothing(tmp_path: Path) -> None:
    make_folder(tmp_path / "folder")
    (tmp_path / ".folder.partial").mkdir()
    (tmp_path / ".folder.partial" / "left").write_bytes(b"x")
    atomic.remove(tmp_path / "folder")
    atomic.remove_if_exists(tmp_path / "folder")
    assert list(tmp_path.iterdir()) == []


def test_only_partial_things_are_cleared(tmp_path: Path) -> None:
    make_folder(tmp_path / "folder")
    (tmp_path / ".other.partial").mkdir()
    (tmp_path / ".file.partial").write_bytes(b"x")
    (tmp_path / ".folder.old.partial").mkdir()
    kept = {"folder", "user.partial", ".hidden", ".lock"}
    for name in kept - {"folder"}:
        (tmp_path / name).write_bytes(b"x")
    atomic.remove_partials(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == kept
    atomic.remove_partials(tmp_path / "not there")


# Damage


def damage_of(folder: Path) -> str:
    with pytest.raises(DamagedError) as caught:
        verify(folder)
    return str(caught.value)


def test_every_flipped_bit_is_seen(tmp_path: Path) -> None:
    make_folder(tmp_path / "folder")
    rng = random.Random(0)
    for name in ("one", "sub/two"):
        path = tmp_path / "folder" / name
        whole = path.read_bytes()
        for _ in range(25):
            place, bit = rng.randrange(len(whole)), 1 << rng.randrange(8)
            path.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
            assert damage_of(tmp_path / "folder") == f"{name} was altered (its sha256 differs from the manifest)"
        path.write_bytes(whole)
    verify(tmp_path / "folder")


def test_every_truncation_is_seen(tmp_path: Path) -> None:
    make_folder(tmp_path / "folder")
    path = tmp_path / "folder" / "sub" / "two"
    whole = path.read_bytes()
    for size in (0, 1, 128, 255):
        path.write_bytes(whole[:size])
        assert damage_of(tmp_path / "folder") == f"sub/two has {size} bytes instead of 256"
    path.write_bytes(whole + b"\0")
    assert damage_of(tmp_path / "folder") == "sub/two has 257 bytes instead of 256"


@pytest.mark.parametrize("name", ["one", "sub/two", "empty", "MANIFEST.json"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    make_folder(tmp_path / "folder")
    (tmp_path / "folder" / name).unlink()
    assert damage_of(tmp_path / "folder").replace("'", "") == f"{name} is missing"


def test_a_folder_that_is_not_there_is_damaged(tmp_path: Path) -> None:
    assert damage_of(tmp_path / "none") == "MANIFEST.json is missing"


MANIFESTS = {
    "empty": b"",
    "cut": b'{"files": {"one": {"bytes": 14',
    "no json": b"\xff\x00",
    "a list": b"[]",
    "no files": b"{}",
    "files a list": b'{"files": []}',
    "an entry without sum": b'{"files": {"one": {"bytes": 14}}}',
    "bytes as text": b'{"files": {"one": {"bytes": "14", "sha256": "x"}}}',
    "sum as number": b'{"files": {"one": {"bytes": 14, "sha256": 1}}}',
    "an entry that is null": b'{"files": {"one": null}}',
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("content", MANIFESTS.values(), ids=MANIFESTS)
def test_a_manifest_that_is_none(tmp_path: Path, content: bytes) -> None:
    make_folder(tmp_path / "folder")
    (tmp_path / "folder" / "MANIFEST.json").write_bytes(content)
    assert damage_of(tmp_path / "folder") == "MANIFEST.json is not a manifest"


def add_to_manifest(folder: Path, name: str, size: int, digest: str) -> None:
    path = folder / "MANIFEST.json"
    manifest = json.loads(path.read_bytes())
    manifest["files"][name] = {"bytes": size, "sha256": digest}
    path.write_text(json.dumps(manifest))


@pytest.mark.parametrize("trick", ["../outside", "sub/../../outside", "{root}/outside", "link", "linked/outside"])
def test_a_manifest_cannot_lead_out_of_its_folder(tmp_path: Path, trick: str) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"secret")
    folder = tmp_path / "folder"
    make_folder(folder)
    (folder / "link").symlink_to(outside)
    (folder / "linked").symlink_to(tmp_path)
    name = trick.format(root=tmp_path)
    add_to_manifest(folder, name, 6, sha256(outside))
    assert damage_of(folder).endswith(" is missing")


@pytest.mark.parametrize("name", ["", ".", "sub", "nul\0byte", "two\nlines", "a" * 5000, "\ud800", "fifo"])
def test_a_name_that_is_no_file_is_missing(tmp_path: Path, name: str) -> None:
    make_folder(tmp_path / "folder")
    os.mkfifo(tmp_path / "folder" / "fifo")
    add_to_manifest(tmp_path / "folder", name, 0, "")
    assert damage_of(tmp_path / "folder").endswith(" is missing")


# One process at a time

HOLD_LOCK = """
import sys, time
from pathlib import Path
from mt.storage import lock as run_lock
with run_lock.exclusive(Path(sys.argv[1])):
    print("ready", flush=True)
    time.sleep(60)
"""


def test_a_lock_refuses_another_process_until_that_is_killed(tmp_path: Path) -> None:
    lock = tmp_path / "run" / ".lock"
    child = start_python(HOLD_LOCK, lock)
    with pytest.raises(InputError) as caught, run_lock.exclusive(lock):
        pytest.fail("the lock was given twice")
    assert caught.value.exit_code == 2
    assert caught.value.message == (
        f"{lock.parent}: another training (process {child.pid}) is working in this run folder"
    )
    kill(child)
    with run_lock.exclusive(lock):
        assert lock.read_text() == str(os.getpid())


def test_a_lock_is_free_again_after_it_was_left(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    for _ in range(2):
        with contextlib.suppress(ValueError), run_lock.exclusive(lock):
            raise ValueError
    child = start_python(HOLD_LOCK, lock)
    kill(child)


# One line at a time


def test_lines_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for line in ("one", "è", ""):
        atomic.append_line(path, line)
    assert path.read_bytes() == "one\nè\n\n".encode()


def test_a_torn_line_is_closed_before_the_next(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b'{"a": 1}\n{"b": ')
    atomic.append_line(path, "next")
    atomic.append_line(path, "last")
    assert path.read_bytes() == b'{"a": 1}\n{"b": \nnext\nlast\n'


def test_a_line_that_cannot_be_appended(tmp_path: Path) -> None:
    with pytest.raises(MachineError) as caught:
        atomic.append_line(tmp_path / "none" / "log", "x")
    assert caught.value.message == f"{tmp_path / 'none' / 'log'}: cannot write here: No such file or directory"


# A disk that is really full


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("mounting a small file system needs root")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def full_disk(path: Path, act: Callable[[], object]) -> None:
    with pytest.raises(MachineError) as caught:
        act()
    assert caught.value.exit_code == 4
    assert caught.value.message == f"{path}: no space left on the disk"


def test_a_full_disk_leaves_the_old_file(tiny_disk: Path) -> None:
    path = tiny_disk / "file"
    atomic.write_bytes(path, b"old")
    full_disk(path, lambda: atomic.write_bytes(path, bytes(100_000)))
    assert path.read_bytes() == b"old"


def test_a_full_disk_leaves_the_old_folder(tiny_disk: Path) -> None:
    make_folder(tiny_disk / "folder", version=1)

    def replace() -> None:
        with atomic.new_folder(tiny_disk / "folder", version=2) as partial:
            (partial / "large").write_bytes(bytes(100_000))

    full_disk(tiny_disk / "folder", replace)
    assert verify(tiny_disk / "folder")["version"] == 1
    assert [path.name for path in tiny_disk.iterdir()] == ["folder"]


def test_a_full_disk_and_tensors(tiny_disk: Path) -> None:
    import torch

    def write() -> None:
        with atomic.new_folder(tiny_disk / "folder") as partial:
            atomic.write_tensors(partial / "x.safetensors", {"a": torch.zeros(100_000)})

    full_disk(tiny_disk / "folder", write)
    assert list(tiny_disk.iterdir()) == []


def test_a_full_disk_and_a_line(tiny_disk: Path) -> None:
    path = tiny_disk / "log"
    atomic.append_line(path, "one")
    fill(tiny_disk)
    full_disk(path, lambda: atomic.append_line(path, "x" * 9000))
    (tiny_disk / "filler").unlink()
    atomic.append_line(path, "two")
    lines = path.read_bytes().split(b"\n")
    assert (lines[0], lines[-2:]) == (b"one", [b"two", b""])


def test_a_full_disk_and_a_lock(tiny_disk: Path) -> None:
    lock = tiny_disk / ".lock"
    lock.write_bytes(b"")
    fill(tiny_disk)

    def hold() -> None:
        with run_lock.exclusive(lock):
            pass

    full_disk(lock, hold)
