"""A stand-in for Windows on Linux: a process with this folder in PYTHONPATH imports it at its start.

What only POSIX has is gone. Folders cannot be opened, and open files neither renamed nor removed. The default encoding
of text is never relied on.
"""

import builtins
import contextlib
import errno
import mmap
import os
import shutil
import signal
import stat
import warnings
from pathlib import Path
from typing import Any

import filelock  # noqa: F401  (locks in its own way on Windows, here with fcntl)

MODULES = "fcntl grp pwd resource termios tty pty readline syslog".split()
NAMES = (
    "O_DIRECTORY fchmod fchown fork geteuid getgid getloadavg getpgid killpg mkfifo nice sched_getaffinity "
    "set_blocking setsid sysconf"
).split()


def _hide() -> None:
    plain = builtins.__import__

    def import_(name: str, names: Any = None, *more: Any, **options: Any) -> Any:
        if (
            name in MODULES and names and names.get("__name__", "").startswith("mt.")
        ):  # other packages know where they are
            raise ImportError(f"No module named {name!r}", name=name)
        return plain(name, names, *more, **options)

    builtins.__import__ = import_
    for name in NAMES:
        delattr(os, name)
    for name in ("SIGHUP", "SIGKILL", "SIGPIPE", "SIGUSR1", "SIGALRM"):
        delattr(signal, name)
    del mmap.MADV_DONTNEED


def _refuse(path: object, number: int = errno.EACCES) -> OSError:
    return OSError(number, os.strerror(number), str(path))


def _is_open(path: Any) -> bool:
    """Return True if this process has the file, or one in the folder, open or mapped."""
    wanted = os.path.realpath(path)
    with Path("/proc/self/maps").open(encoding="utf-8", errors="replace") as maps:
        names = {line.split(maxsplit=5)[5].strip() for line in maps if "/" in line}
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the one that lists them
            names.add(str(descriptor.readlink()))
    return any(name == wanted or name.startswith(f"{wanted}/") for name in names)


def _emulate(rename: Any = os.rename, replace: Any = os.replace, unlink: Any = os.unlink, open_: Any = os.open) -> None:
    fsync, kill, nameless = os.fsync, os.kill, os.O_TMPFILE

    def moved(move: Any, source: Any, target: Any, **options: Any) -> None:
        if _is_open(source) or _is_open(target):
            raise _refuse(source)
        if move is rename and os.path.lexists(target):
            raise _refuse(target, errno.EEXIST)
        move(source, target, **options)

    def removed(path: Any, **options: Any) -> None:
        if _is_open(path):
            raise _refuse(path)
        unlink(path, **options)

    def opened(path: Any, flags: int, *more: Any, **options: Any) -> int:
        if Path(path).is_dir() and flags & nameless != nameless:
            raise _refuse(path)
        return int(open_(path, flags, *more, **options))

    def synced(descriptor: int) -> None:
        if not os.get_inheritable(descriptor) and stat.S_ISREG(os.fstat(descriptor).st_mode):
            flags = Path(f"/proc/self/fdinfo/{descriptor}").read_text(encoding="utf-8").split("flags:")[1].split()[0]
            if int(flags, 8) & 3 == os.O_RDONLY:
                raise _refuse(descriptor, errno.EBADF)
        fsync(descriptor)

    def killed(process: int, number: int) -> None:
        assert number, "this would end the process"
        kill(process, number)

    os.rename, os.replace = lambda *a, **o: moved(rename, *a, **o), lambda *a, **o: moved(replace, *a, **o)
    os.unlink = os.remove = removed
    os.open, os.fsync, os.kill = opened, synced, killed
    shutil._use_fd_functions = False  # type: ignore[attr-defined]


_hide()
_emulate()
warnings.filterwarnings("error", category=EncodingWarning, module=r"mt\.")
