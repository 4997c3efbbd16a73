"""Atomic writes, manifests and locks: whole or absent whatever happens, damage is seen, one process at a time."""

import contextlib
import errno
import fcntl
import json
import os
import random
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from mt.cli.text import check_output
from mt.errors import InputError, MachineError
from mt.storage import atomic
from mt.storage import lock as run_lock
from mt.storage.manifest import DamagedError, read_manifest, sha256, translating_files, verify
from mt.storage.output_path import require_replaceable, require_writable
from mt.storage.resumable_file import ResumableFile
from mt.storage.run_dir import ModelDir


def start_python(program: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a program in another process, which prints a line when it is ready."""
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


def machine_error(act: Callable[[], object]) -> str:
    with pytest.raises(MachineError) as caught:
        act()
    assert caught.value.exit_code == 4
    return caught.value.message


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths synced and the calls of `replace` and `rename`, in order."""
    found: list[str] = []

    def note_fsync(descriptor: int, fsync: Callable[[int], None] = os.fsync) -> None:
        found.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note_fsync)
    for name in ("replace", "rename"):
        call = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *paths, name=name, call=call: (found.append(name), call(*paths)))
    return found


# One file


def test_a_file_is_replaced_and_its_folder_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "file"
    for content in (b"one", b"", b"two\r\n\x00"):
        atomic.write_bytes(path, content)
        assert path.read_bytes() == content
    atomic.write_text(path, "è\nb\r\n\u2028")
    assert path.read_bytes() == "è\nb\r\n\u2028".encode()
    atomic.write_json(path, {"è": [1, None]})
    assert json.loads(path.read_bytes()) == {"è": [1, None]}
    assert "è".encode() in path.read_bytes()
    assert names_in(path.parent) == ["file"]


def test_names_that_are_not_utf_8_are_escaped(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    atomic.write_json(tmp_path / "file", [name])
    assert json.loads((tmp_path / "file").read_bytes()) == [name]
    atomic.write_text(tmp_path / "file", name)
    assert (tmp_path / "file").read_text() == "caf\\udce9"


@pytest.mark.parametrize(
    ("name", "allowed"), [("file", {"."}), ("new/file", {"."}), ("link", {"other"}), ("pipe", {"pipe"})]
)
def test_permissions_that_a_write_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, allowed: set[str]
) -> None:
    """A file's folder, where a link leads to its folder, and nothing but a pipe itself."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to("other/real")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is a file, not a folder"):
        require_writable(tmp_path / "file" / "x", "--output")
    asked: set[str] = set()

    def access(path: Path, _: int) -> bool:
        asked.add(os.path.relpath(path, tmp_path))
        return False

    monkeypatch.setattr(os, "access", access)
    assert "cannot write here" in machine_error(lambda: require_writable(tmp_path / name, "--output"))
    assert asked == allowed


def test_a_mount_point_is_not_replaced() -> None:
    with pytest.raises(InputError, match="/dev/shm: a mount point cannot be replaced"):
        require_replaceable(Path("/dev/shm"), "mt data clean", "made_by")
    require_replaceable(Path("/dev/shm/new/folder"), "mt data clean", "made_by")


def test_a_folder_is_replaced_in_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").mkdir()
    require_replaceable(tmp_path / "out", "mt data clean", "made_by")
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != tmp_path)
    message = machine_error(lambda: require_replaceable(tmp_path / "out", "mt data clean", "made_by"))
    assert message == f"--output {tmp_path / 'out'}: cannot be replaced: no permission to write {tmp_path}"
    require_replaceable(tmp_path / "out" / "new" / "folder", "mt data clean", "made_by")


def test_files_of_file_managers_are_no_content(tmp_path: Path) -> None:
    (tmp_path / ".DS_Store").write_bytes(b"\0")
    require_replaceable(tmp_path, "mt export", "made_by")
    with atomic.new_folder(tmp_path / "out", made_by="mt export") as folder:
        (folder / "model").write_bytes(b"x")
    (tmp_path / "out" / "Thumbs.db").write_bytes(b"\0")
    require_replaceable(tmp_path / "out", "mt export", "made_by")
    (tmp_path / "out" / "mine").write_bytes(b"x")
    with pytest.raises(InputError, match="mine would be lost"):
        require_replaceable(tmp_path / "out", "mt export", "made_by")


def test_a_folder_of_others_is_refused_before_all_its_files_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").write_bytes(b"x")
    monkeypatch.setattr(os, "walk", lambda *_, **__: pytest.fail("this takes minutes in a home folder"))
    with pytest.raises(InputError, match="was not made by `mt export`"):
        require_replaceable(tmp_path, "mt export", "export")


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOSPC, "no space left on the disk"),
        (errno.EDQUOT, "no space left on the disk"),
        (errno.EIO, "cannot write here: Input/output error"),
        (errno.EACCES, "cannot write here: Permission denied"),
    ],
)
def test_a_failing_disk_leaves_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, number: int, reason: str
) -> None:
    path = tmp_path / "file"
    atomic.write_bytes(path, b"old")
    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail_with(number))
        assert machine_error(lambda: atomic.write_bytes(path, b"new")) == f"{path}: {reason}"
    assert path.read_bytes() == b"old"
    atomic.write_bytes(path, b"new")
    assert path.read_bytes() == b"new"


def test_content_is_durable_before_it_takes_the_name(tmp_path: Path, events: list[str]) -> None:
    atomic.write_bytes(tmp_path / "file", b"content")
    assert events == [str(tmp_path / f".file.{os.getpid()}.partial"), "replace", str(tmp_path)]


def test_a_path_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "folder", tmp_path / "file" / "below"):
        message = machine_error(lambda path=path: atomic.write_bytes(path, b"x"))
        assert message.startswith(f"{path}: cannot write here: ")


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


# A folder


def make_folder(folder: Path, **facts: object) -> None:
    with atomic.new_folder(folder, **facts) as partial:
        (partial / "one").write_bytes(b"content of one")
        (partial / "sub").mkdir()
        (partial / "sub" / "two").write_bytes(bytes(range(256)))
        (partial / "empty").write_bytes(b"")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_folder(tmp_path / "folder", version=1)
    return tmp_path / "folder"


def only_version(folder: Path) -> int:
    """Return the version of a folder that is undamaged and alone in its parent."""
    assert names_in(folder.parent) == [folder.name]
    return verify(folder)["version"]


def test_a_folder_comes_with_a_manifest_of_all_its_files(folder: Path) -> None:
    manifest = verify(folder)
    assert manifest == read_manifest(folder)
    sizes = {name: entry["bytes"] for name, entry in manifest["files"].items()}
    assert sizes == {"one": 14, "sub/two": 256, "empty": 0}
    assert only_version(folder) == 1


@pytest.mark.parametrize("failure", [ValueError("ours"), KeyboardInterrupt(), InputError("the user's")])
@pytest.mark.parametrize("replaced", [False, True])
def test_an_exception_half_way_leaves_what_was_there(tmp_path: Path, failure: BaseException, replaced: bool) -> None:
    if replaced:
        make_folder(tmp_path / "folder", version=1)
    with contextlib.suppress(type(failure)), atomic.new_folder(tmp_path / "folder", version=2) as partial:
        assert (tmp_path / "folder").exists() == replaced
        (partial / "one").write_bytes(b"x")
        raise failure
    if replaced:
        assert only_version(tmp_path / "folder") == 1
    else:
        assert names_in(tmp_path) == []


def test_a_folder_replaces_the_one_that_was_there(folder: Path) -> None:
    with atomic.new_folder(folder, version=2) as partial:
        (partial / "other").write_bytes(b"x")
    assert only_version(folder) == 2
    assert names_in(folder) == ["MANIFEST.json", "other"]


def test_two_processes_do_not_write_one_folder(tmp_path: Path) -> None:
    with atomic.new_folder(tmp_path / "folder", version=1) as partial:
        (partial / "a").write_text("x")
        with pytest.raises(InputError, match="another process is writing this folder"):
            make_folder(tmp_path / "folder", version=2)
        (partial / "b").write_text("y")
    assert verify(tmp_path / "folder")["files"].keys() == {"a", "b"}
    make_folder(tmp_path / "folder", version=2)
    assert only_version(tmp_path / "folder") == 2


def test_a_link_to_a_folder_stays_one(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "folder").symlink_to(tmp_path / "far")
    for version in (1, 2, 3):
        with atomic.new_folder(tmp_path / "folder", version=version):
            pass
    assert (tmp_path / "folder").is_symlink()
    assert read_manifest(tmp_path / "far")["version"] == 3
    assert names_in(tmp_path) == ["far", "folder"]


@pytest.mark.parametrize("before", [False, True])
def test_a_folder_that_a_living_process_writes_is_not_cleared(tmp_path: Path, before: bool) -> None:
    if before:
        make_folder(tmp_path / "folder", version=1)
    with atomic.new_folder(tmp_path / "folder", version=2) as partial:
        (partial / "a").write_text("x")
        if before:
            (tmp_path / "folder").rename(tmp_path / ".folder.old.partial")  # as between its two renames
        atomic.remove_partials(tmp_path)
        (partial / "b").write_text("y")
    assert verify(tmp_path / "folder")["files"].keys() == {"a", "b"}


def test_only_what_killed_processes_left_is_cleared(folder: Path) -> None:
    parent, living, gone = folder.parent, os.getppid(), subprocess.Popen(["true"])
    gone.wait()
    for process in (living, gone.pid, 2**80, os.getpid()):  # a process before may have had the same number as this one
        (parent / f".file.{process}.partial").write_bytes(b"x")
    for name in (".other.partial", ".folder.old.partial", "far"):
        (parent / name).mkdir()
    (parent / ".x.old.partial").symlink_to(parent / "far")
    (parent / ".file.partial").write_bytes(b"x")
    kept = {"user.partial", ".hidden", ".lock"}
    for name in kept:
        (parent / name).write_bytes(b"x")
    atomic.remove_partials(parent)
    assert set(names_in(parent)) == {*kept, "folder", "far", f".file.{living}.partial"}
    atomic.remove_partials(parent / "not there")


def test_what_killed_processes_left_of_an_output_is_cleared(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    kept = {f".out.{os.getppid()}.partial", f".out.de.{gone.pid}.partial", ".out.de.partial", f"out.{gone.pid}.partial"}
    for name in (*kept, f".out.{gone.pid}.partial"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "link").symlink_to("out")
    check_output(tmp_path / "link", force=False)
    assert set(names_in(tmp_path)) == {*kept, "link"}
    check_output(tmp_path / "none" / "out", force=False)


def test_weights_have_the_permissions_of_the_other_files(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with atomic.new_folder(tmp_path / "folder") as partial:
            atomic.write_tensors(partial / "a.safetensors", {"a": torch.ones(2)})
            atomic.write_text(partial / "b", "x")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "folder").iterdir()} == {0o640}


@pytest.mark.parametrize("again", ["start", "write"])
def test_a_folder_that_was_being_replaced_is_put_back(tmp_path: Path, again: str) -> None:
    make_folder(tmp_path / ".folder.old.partial", version=1)
    make_folder(tmp_path / ".folder.partial", version=2)
    if again == "start":
        atomic.remove_partials(tmp_path)
    else:
        with contextlib.suppress(ValueError), atomic.new_folder(tmp_path / "folder") as partial:
            assert names_in(partial) == []
            raise ValueError
    assert only_version(tmp_path / "folder") == 1


def test_every_file_of_a_folder_is_durable_before_it_takes_the_name(tmp_path: Path, events: list[str]) -> None:
    make_folder(tmp_path / "folder")
    before = {Path(name).name for name in events[: events.index("rename")]}
    assert before >= {"one", "two", "empty", "sub", f".MANIFEST.json.{os.getpid()}.partial", ".folder.partial"}
    assert events[-1] == str(tmp_path)


def test_removing_leaves_nothing(folder: Path) -> None:
    (folder.parent / ".folder.partial").mkdir()
    (folder.parent / ".folder.partial" / "left").write_bytes(b"x")
    atomic.remove(folder)
    atomic.remove(folder)
    assert names_in(folder.parent) == []


def test_translations_depend_on_what_is_learned(tmp_path: Path) -> None:
    folder = ModelDir(tmp_path)
    learned = {folder.weights.name, "tokenizer/source.json", folder.casing.name, folder.spelling.name}
    learned |= {"ctranslate2/int8/vmap.txt"}
    files = dict.fromkeys([*learned, "README.md", "config.yaml", "ctranslate2/int8/model.bin"])
    assert set(translating_files(files)) == learned


# Damage


def damage_of(folder: Path) -> str:
    with pytest.raises(DamagedError) as caught:
        verify(folder)
    return str(caught.value)


def test_every_flipped_bit_and_truncation_is_seen(folder: Path) -> None:
    rng = random.Random(0)
    for name in ("one", "sub/two"):
        path = folder / name
        whole = path.read_bytes()
        for _ in range(25):
            place, bit = rng.randrange(len(whole)), 1 << rng.randrange(8)
            path.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
            assert damage_of(folder) == f"{name} was altered (its sha256 differs from the manifest)"
        for other in (b"", whole[:1], whole[:-1], whole + b"\0"):
            path.write_bytes(other)
            assert damage_of(folder) == f"{name} has {len(other)} bytes instead of {len(whole)}"
        path.write_bytes(whole)
    verify(folder)


@pytest.mark.parametrize("name", ["one", "sub/two", "empty", "MANIFEST.json"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    assert damage_of(folder).replace("'", "") == f"{name} is missing"


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
def test_a_malformed_manifest(folder: Path, content: bytes) -> None:
    (folder / "MANIFEST.json").write_bytes(content)
    assert damage_of(folder) == "MANIFEST.json is not a manifest"


def test_an_endless_manifest(folder: Path) -> None:
    path = folder / "MANIFEST.json"
    for create in (
        lambda: path.symlink_to("/dev/zero"),
        lambda: os.mkfifo(path),
        lambda: (path.touch(), os.truncate(path, 2**40)),
    ):
        path.unlink()
        create()
        assert damage_of(folder) == "MANIFEST.json is not a manifest"


NAMES = ["../outside", "sub/../../outside", "{root}/outside", "link", "linked/outside", "loop"]
NAMES += ["", ".", "sub", "nul\0byte", "two\nlines", "a" * 5000, "\ud800", "fifo"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_outside_the_folder_or_of_no_file_is_missing(folder: Path, name: str) -> None:
    outside = folder.parent / "outside"
    outside.write_bytes(b"secret")
    (folder / "link").symlink_to(outside)
    (folder / "linked").symlink_to(folder.parent)
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "fifo")
    manifest = json.loads((folder / "MANIFEST.json").read_bytes())
    manifest["files"][name.format(root=folder.parent)] = {"bytes": 6, "sha256": sha256(outside)}
    (folder / "MANIFEST.json").write_text(json.dumps(manifest))
    assert damage_of(folder).endswith(" is missing")


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
    with contextlib.suppress(ValueError), run_lock.exclusive(lock):
        raise ValueError
    child = start_python(HOLD_LOCK, lock)
    message = f"{lock.parent}: another training (process {child.pid}) is working in this run folder"
    with pytest.raises(InputError) as caught, run_lock.exclusive(lock):
        pytest.fail("the lock was given twice")
    assert caught.value.message == message
    kill(child)
    with run_lock.exclusive(lock):
        assert lock.read_text() == str(os.getpid())


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_disk_without_locks_is_written_after_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notices: list[str], number: int
) -> None:
    run_lock._warn_once.cache_clear()
    monkeypatch.setattr(fcntl, "flock", fail_with(number))
    make_folder(tmp_path / "one" / "folder", version=1)
    with run_lock.exclusive(tmp_path / "run" / ".lock"), ResumableFile(tmp_path / "file", "key") as file:
        file.append(["line"])
        file.finish()
    assert only_version(tmp_path / "one" / "folder") == 1
    assert (tmp_path / "file").read_text() == "line\n"
    assert ["no file locks" in notice for notice in notices] == [True]
    monkeypatch.setattr(fcntl, "flock", fail_with(errno.EIO))
    assert "Input/output error" in machine_error(lambda: run_lock.refuse_locked(tmp_path / "run" / ".lock"))


def test_files_are_locked_as_nfs_demands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nfs_flock(descriptor: int, operation: int, flock: Callable[[int, int], None] = fcntl.flock) -> None:
        mode = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
        if stat.S_ISREG(os.fstat(descriptor).st_mode) and mode == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", nfs_flock)
    with run_lock.exclusive(tmp_path / ".lock"):
        pass
    run_lock.refuse_locked(tmp_path / ".lock")


# One line at a time


def test_lines_are_appended_and_a_torn_one_is_closed_first(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for line in ("one", "è", ""):
        atomic.append_line(path, line)
    assert path.read_bytes() == "one\nè\n\n".encode()
    path.write_bytes(b'{"a": 1}\n{"b": ')
    atomic.append_line(path, "next")
    atomic.append_line(path, "last")
    assert path.read_bytes() == b'{"a": 1}\n{"b": \nnext\nlast\n'
    nowhere = tmp_path / "none" / "log"
    message = machine_error(lambda: atomic.append_line(nowhere, "x"))
    assert message == f"{nowhere}: cannot write here: No such file or directory"


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
    assert machine_error(act) == f"{path}: no space left on the disk"


def test_a_full_disk_leaves_the_old_file_and_folder(tiny_disk: Path) -> None:
    folder = tiny_disk / "folder"
    make_folder(folder, version=1)

    def replace(write: Callable[[Path], object]) -> None:
        with atomic.new_folder(folder, version=2) as partial:
            write(partial / "large")

    full_disk(folder, lambda: replace(lambda path: path.write_bytes(bytes(100_000))))
    full_disk(folder, lambda: replace(lambda path: atomic.write_tensors(path, {"a": torch.zeros(100_000)})))
    assert only_version(folder) == 1
    path = tiny_disk / "file"
    atomic.write_bytes(path, b"old")
    full_disk(path, lambda: atomic.write_bytes(path, bytes(100_000)))
    assert path.read_bytes() == b"old"
    assert names_in(tiny_disk) == ["file", "folder"]


def test_a_full_disk_and_a_line(tiny_disk: Path) -> None:
    path = tiny_disk / "log"
    atomic.append_line(path, "one")
    fill(tiny_disk)
    full_disk(path, lambda: atomic.append_line(path, "x" * 9000))
    (tiny_disk / "filler").unlink()
    atomic.append_line(path, "two")
    lines = path.read_bytes().split(b"\n")
    assert (lines[0], lines[-2:]) == (b"one", [b"two", b""])


def test_a_full_disk_and_a_file_of_several_sessions(tiny_disk: Path) -> None:
    def write() -> None:
        with ResumableFile(tiny_disk / "file", "key") as file:
            file.append(["x" * 4000])
            fill(tiny_disk)
            file.append(["x" * 3000])  # less than the buffer, so that closing the file writes it again

    full_disk(tiny_disk / "file", write)
    with ResumableFile(tiny_disk / "file", "key") as file:
        assert file.lines == 1


def test_a_full_disk_and_a_lock(tiny_disk: Path) -> None:
    lock = tiny_disk / ".lock"
    lock.write_bytes(b"")
    fill(tiny_disk)

    def hold() -> None:
        with run_lock.exclusive(lock):
            pass

    full_disk(lock, hold)


def test_a_name_as_long_as_the_system_takes(tmp_path: Path) -> None:
    path = tmp_path / ("译" * 85)
    with atomic.new_file(path) as write:
        write(b"text")
    assert path.read_bytes() == b"text"
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
