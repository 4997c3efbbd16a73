"""Atomic, durable writes of files and folders.

Everything is written under a temporary name, fsynced, and renamed, so that a reader finds all of it or nothing.
A folder also gets a `MANIFEST.json` with the size and SHA-256 of each file, which detects a disk that alters bytes.
"""

import contextlib
import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mt.errors import InputError, MachineError, is_disk_full
from mt.storage.manifest import sha256
from mt.storage.output_path import is_device
from mt.storage.run_dir import MANIFEST

if TYPE_CHECKING:
    import torch

PARTIAL = ".partial"  # suffix of everything unfinished; removed at the next start
_OLD = f".old{PARTIAL}"  # suffix of a complete folder while it is replaced; restored at the next start
# Windows cannot open folders, neither to sync nor to lock them. Nor can it rename or remove what is open.
POSIX_FILES = hasattr(os, "O_DIRECTORY")


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn an `OSError` while writing `path` into a `MachineError`: disk full, no permission, read-only or failing."""
    try:
        yield
    except OSError as error:
        if is_disk_full(error):
            hint = "free some space and run the same command"
            raise MachineError(f"{path}: no space left on the disk", hint) from None
        raise MachineError(f"{path}: cannot write here: {error.strerror or error}") from None


def failpoint(action: str, path: Path) -> None:
    """Do nothing before each write, sync and rename; tests replace this to fail or to kill the process."""


def sync(path: Path) -> None:
    """Make a file's content durable, or the names in a folder: otherwise a power cut could undo a rename."""
    failpoint("sync", path)
    if not POSIX_FILES and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDONLY if POSIX_FILES else os.O_RDWR)  # Windows syncs only what it may write
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Callable[[bytes], None]]:
    """Write a file atomically, or write through to a device or a pipe; yield a function that appends bytes.

    Raises:
        MachineError: it cannot be written.
    """
    durable = not is_device(path)
    final = Path(os.path.realpath(path)) if durable else path  # keeps a link a link
    partial = _partial(final, str(os.getpid())) if durable else path

    def write(content: bytes) -> None:
        with explained(path):
            file.write(content)

    try:
        with explained(path):
            if durable:
                final.parent.mkdir(parents=True, exist_ok=True)
            failpoint("write", partial)
            file = partial.open("wb")
        try:
            yield write
        finally:
            with explained(path):
                file.close()
        if durable:
            with explained(path):
                sync(partial)
                failpoint("rename", final)
                partial.replace(final)
                sync(final.parent)
    except BaseException:
        if durable:
            with contextlib.suppress(OSError):
                partial.unlink()
        raise


def _partial(final: Path, process: str) -> Path:
    """Return the temporary file of a process, so that two that write one file do not mix their bytes."""
    return final.with_name(f".{os.fsdecode(os.fsencode(final.name)[:200])}.{process}{PARTIAL}")  # 255 bytes at most


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    with new_file(path) as write:
        write(content)


def write_text(path: Path, content: str) -> None:
    write_bytes(path, content.encode(errors="backslashreplace"))  # as JSON escapes what is not UTF-8 in a file's name


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def append_line(path: Path, line: str) -> None:
    """Append one line in one write, after ending a line that a crash left incomplete."""
    with explained(path), path.open("ab+") as file:
        if file.tell() > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                line = "\n" + line
        failpoint("write", path)
        file.write((line + "\n").encode())


def write_tensors(path: Path, tensors: "dict[str, torch.Tensor]", **facts: str) -> None:
    """Write a safetensors file inside a `new_folder`, which makes it durable; the facts go into its header."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    failpoint("write", path)
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(tensors, path, facts or None)
        path.chmod(mode)  # the library removes the group's permissions
    except SafetensorError as error:  # the library reports a full disk as text only
        number = re.search(r"os error (\d+)", str(error))
        raise OSError(int(number[1]) if number else errno.EIO, str(error)) from None


@contextlib.contextmanager
def new_folder(
    final: Path, facts: dict[str, Any] | None = None, check: Callable[[], None] = lambda: None, **manifest: Any
) -> Iterator[Path]:
    """Write a folder atomically, replacing one of the same name; yield the temporary folder to write into.

    Its manifest records `manifest` and `facts` beside sizes and checksums; facts can be added until the end. Just
    before the rename, `check` is called.

    Raises:
        InputError: another process is writing the folder.
        MachineError: it cannot be written.
    """
    final = Path(os.path.realpath(final))  # keeps a link a link
    partial, old = (final.with_name(f".{final.name}{suffix}") for suffix in (PARTIAL, _OLD))
    with explained(final), contextlib.ExitStack() as held:
        try:
            _remove_unlocked(partial)
            partial.mkdir(parents=True)
            held.enter_context(_locked(partial))
        except BlockingIOError:
            message = f"{final}: another process is writing this folder"
            raise InputError(message, "wait for it, or name another") from None
        try:
            _restore(old)
            yield partial
            _seal(partial, {**manifest, **(facts or {})})
            check()
            _rename(partial, final, old)
            sync(final.parent)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


def _remove_unlocked(partial: Path) -> None:
    """Remove the temporary folder of a killed process; raises BlockingIOError if a living one holds it."""
    with contextlib.suppress(FileNotFoundError), _locked(partial):
        shutil.rmtree(partial, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder, or on Windows a file beside it; raises BlockingIOError if a living process holds the lock."""
    from mt.storage.lock import try_lock  # not at the top: readers lock nothing and start faster without filelock

    file = folder.with_name(f"{folder.name.removesuffix(PARTIAL)}.lock{PARTIAL}")
    descriptor = os.open(folder, os.O_RDONLY) if POSIX_FILES else os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
    if not try_lock(descriptor):
        os.close(descriptor)
        raise BlockingIOError
    try:
        yield
    finally:
        os.close(descriptor)
        if not POSIX_FILES:
            with contextlib.suppress(OSError):  # another process has locked it meanwhile
                file.unlink()


def _rename(partial: Path, final: Path, old: Path) -> None:
    """Give a complete folder its final name.

    Between the two renames of a replacement, the previous folder is called `old`; after a failure it is restored at
    once, after a kill at the next start.
    """
    if final.exists():
        shutil.rmtree(old, ignore_errors=True)
        failpoint("rename", old)
        final.rename(old)
    try:
        failpoint("rename", final)
        partial.rename(final)
    finally:
        _restore(old)


def _restore(old: Path) -> None:
    """Give a folder that was being replaced its name back, or remove it if its replacement has that name."""
    final = old.with_name(old.name.removeprefix(".").removesuffix(_OLD))
    if final.exists():
        shutil.rmtree(old, ignore_errors=True)
    elif old.exists():
        old.rename(final)


def _seal(folder: Path, facts: dict[str, Any]) -> None:
    """Fsync everything, then write the manifest, whose presence says that the folder is complete."""
    files = {}
    for path in sorted(folder.rglob("*")):
        sync(path)
        if path.is_file():
            files[path.relative_to(folder).as_posix()] = {"bytes": path.stat().st_size, "sha256": sha256(path)}
    write_json(folder / MANIFEST, {**facts, "files": files})


def remove(folder: Path) -> None:
    """Remove a folder, if it exists, so that a crash half-way leaves nothing that looks complete."""
    if not folder.exists():
        return
    doomed = folder.with_name(f".{folder.name}{PARTIAL}")
    shutil.rmtree(doomed, ignore_errors=True)
    failpoint("rename", doomed)
    folder.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def remove_partials(parent: Path) -> None:
    """Remove what killed processes left in a folder, but not what a living one, such as an export, is writing.

    Call it only while holding the run's lock.
    """
    for path in [path for path in parent.glob(f".*{PARTIAL}") if not path.name.endswith(_OLD)]:
        if path.is_dir() and not path.is_symlink():
            with contextlib.suppress(BlockingIOError):
                _remove_unlocked(path)
        elif not _is_alive(path.name.removesuffix(PARTIAL).rpartition(".")[2]):
            with contextlib.suppress(FileNotFoundError if POSIX_FILES else OSError):
                path.unlink()
    for path in parent.glob(f".*{_OLD}"):
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
        elif not path.with_name(path.name.removesuffix(_OLD) + PARTIAL).exists():  # else a living process replaces it
            _restore(path)


def remove_partials_of(path: Path) -> None:
    """Remove the temporary files of killed processes that were writing a file."""
    final = Path(os.path.realpath(path))
    for partial in final.parent.glob(f".*{PARTIAL}"):
        process = partial.name.removesuffix(PARTIAL).rpartition(".")[2]
        if process.isdecimal() and partial == _partial(final, process) and not _is_alive(process):
            with contextlib.suppress(OSError):  # another user's
                partial.unlink()


def _is_alive(process: str) -> bool:
    """Return True if there is another process with the number that `new_file` puts into a name."""
    # Windows cannot ask without ending that process, but does not remove the file that it writes either.
    if not POSIX_FILES or not process.isdecimal() or int(process) == os.getpid():
        return False
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's
        pass
    return True
