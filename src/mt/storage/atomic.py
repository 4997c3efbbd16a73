"""The only writer: everything that must survive a crash goes through here.

A file or folder is written aside, fsynced, and renamed into place, so that a reader finds the whole of it or nothing
of it. Folders carry a `MANIFEST.json` with the size and sha256 of every file, because a rename protects from a crash
but not from a disk that alters bytes.
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

from mt.errors import MachineError, is_disk_full
from mt.storage.manifest import DamagedError, read_manifest, sha256, verify
from mt.storage.output_path import is_device
from mt.storage.run_dir import MANIFEST
from mt.storage.temporary import clear, take

if TYPE_CHECKING:
    import torch

# What a folder's manifest is written for; readers find it here, beside what wrote it.
__all__ = ["DamagedError", "read_manifest", "sha256", "verify"]

PARTIAL = ".partial"  # suffix of everything not yet whole; removed at the next start
_OLD = f".old{PARTIAL}"  # suffix of a whole folder that is just being replaced; put back at the next start


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turns an `OSError` met while writing `path` into one sentence for the user.

    Raises:
        MachineError: disk full, no permission, read-only or failing disk.
    """
    try:
        yield
    except OSError as error:
        if is_disk_full(error):
            raise MachineError(
                f"{path}: no space left on the disk", "free some space and run the same command"
            ) from None
        raise MachineError(f"{path}: cannot write here: {error.strerror or error}") from None


def failpoint(action: str, path: Path) -> None:
    """Comes before each write, sync and rename; tests put something here that fails or kills the process."""


def sync_dir(path: Path) -> None:
    """Makes the names inside a folder durable; a rename is lost in a power cut without it."""
    failpoint("sync", path)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    failpoint("sync", path)
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Callable[[bytes], None]]:
    """A file that comes into being whole: a reader sees the old content or the new, never a part.

    Yields:
        a function that adds to it. Into a device or a pipe it writes at once.

    Raises:
        MachineError: it cannot be written.
    """
    lasting = not is_device(path)
    place = Path(os.path.realpath(path)) if lasting else path  # a link stays one
    # Two processes that write the same file must not write into one another's.
    partial = place.with_name(f".{place.name}.{os.getpid()}{PARTIAL}") if lasting else path
    try:
        with explained(path):
            if lasting:
                place.parent.mkdir(parents=True, exist_ok=True)
            failpoint("write", partial)
            file = partial.open("wb")
        try:

            def write(content: bytes) -> None:
                with explained(path):
                    file.write(content)

            yield write
            with explained(path):
                file.flush()
                if lasting:
                    failpoint("sync", partial)
                    os.fsync(file.fileno())
        finally:
            with contextlib.suppress(OSError):  # which a flush has told of
                file.close()
        if lasting:
            with explained(path):
                failpoint("rename", place)
                partial.replace(place)
                sync_dir(place.parent)
    except BaseException:
        if lasting:
            with contextlib.suppress(OSError):
                partial.unlink()
        raise


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file that comes into being whole."""
    with new_file(path) as write:
        write(content)


def write_text(path: Path, content: str) -> None:
    write_bytes(path, content.encode())


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_tensors(path: Path, tensors: "dict[str, torch.Tensor]", **facts: str) -> None:
    """Writes one safetensors file (inside a `new_folder`, which makes it durable), with facts in its header."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    failpoint("write", path)
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(tensors, path, facts or None)
        path.chmod(mode)  # the library makes a file that nobody but its owner can read
    except SafetensorError as error:  # the library reports a full disk as text; give it its number back
        number = re.search(r"os error (\d+)", str(error))
        raise OSError(int(number[1]) if number else errno.EIO, str(error)) from None


@contextlib.contextmanager
def new_folder(final: Path, facts: dict[str, Any] | None = None, **manifest: Any) -> Iterator[Path]:
    """A folder that comes into being whole, or not at all.

    Args:
        final: where it shall be; a folder already there is replaced.
        facts: what to record in its `MANIFEST.json` beside the sizes and checksums; it is read at the end, so what
            shows while the folder is written can still be added.
        manifest: more of them.

    Yields:
        the temporary folder to write into.
    """
    final = Path(os.path.realpath(final))  # a link stays one
    partial = final.with_name(f".{final.name}{PARTIAL}")
    with explained(final):
        lock = take(partial, final)
        try:
            _put_back(_aside(final))
            yield partial
            _seal(partial, {**manifest, **(facts or {})})
            _put_in_place(partial, final)
            sync_dir(final.parent)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        finally:
            os.close(lock)


def _put_in_place(partial: Path, final: Path) -> None:
    """Gives a whole folder its name; one that has it already goes.

    A full folder cannot be replaced in one rename. Between the two the old one is aside, and whole: what fails or is
    killed there puts it back, at once or at the next start.
    """
    if not final.exists():
        failpoint("rename", final)
        partial.rename(final)
        return
    replaced = _aside(final)
    shutil.rmtree(replaced, ignore_errors=True)
    failpoint("rename", replaced)
    final.rename(replaced)
    try:
        failpoint("rename", final)
        partial.rename(final)
    finally:
        _put_back(replaced)


def _aside(final: Path) -> Path:
    return final.with_name(f".{final.name}{_OLD}")


def _put_back(replaced: Path) -> None:
    """Gives a folder that was being replaced its name again, unless what replaces it has the name already."""
    final = replaced.with_name(replaced.name.removeprefix(".").removesuffix(_OLD))
    if final.exists():
        shutil.rmtree(replaced, ignore_errors=True)
    elif replaced.exists():
        replaced.rename(final)


def _seal(folder: Path, facts: dict[str, Any]) -> None:
    """Fsyncs every file, then writes the manifest: its presence says that the rest is complete."""
    files = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        sync_file(path)
        files[path.relative_to(folder).as_posix()] = {"bytes": path.stat().st_size, "sha256": sha256(path)}
    for directory in [p for p in folder.rglob("*") if p.is_dir()]:
        sync_dir(directory)
    write_json(folder / MANIFEST, {**facts, "files": files})


def remove(folder: Path) -> None:
    """Removes a folder so that a crash half-way leaves nothing that looks whole."""
    doomed = folder.with_name(f".{folder.name}{PARTIAL}")
    shutil.rmtree(doomed, ignore_errors=True)
    failpoint("rename", doomed)
    folder.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def remove_if_there(folder: Path) -> None:
    if folder.exists():
        remove(folder)


def remove_partials(parent: Path) -> None:
    """Clears what a killed process left behind, and leaves what a living one (an export, say) is writing.

    Call it only while holding the run's lock.
    """
    left = [path for path in parent.glob(f".*{PARTIAL}") if not path.name.endswith(_OLD)]
    for path in left:
        if path.is_dir() and not path.is_symlink():
            with contextlib.suppress(BlockingIOError):
                clear(path)
        elif not _is_alive(path.name.removesuffix(PARTIAL).rpartition(".")[2]):
            path.unlink(missing_ok=True)
    for path in parent.glob(f".*{_OLD}"):
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
        elif not path.with_name(path.name.removesuffix(_OLD) + PARTIAL).exists():  # or a living process replaces it
            _put_back(path)


def _is_alive(process: str) -> bool:
    """Whether there is another process of this number, as `new_file` writes it into a name."""
    if not process.isdecimal() or int(process) == os.getpid():
        return False
    try:
        os.kill(int(process), 0)
    except PermissionError:  # somebody else's
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def append_line(path: Path, line: str) -> None:
    """Appends one line in one write; a line torn by an earlier crash is closed first."""
    with explained(path), path.open("ab+") as file:
        if file.tell() > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                line = "\n" + line
        failpoint("write", path)
        file.write((line + "\n").encode())
