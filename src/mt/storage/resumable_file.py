"""A text file written over several sessions, which gets its name when it is complete.

Until then its lines are in a hidden file, and a note beside that counts the durable ones.
"""

import contextlib
import json
import os
from pathlib import Path
from typing import Self

from mt.console import log
from mt.errors import InputError
from mt.storage import atomic
from mt.storage.lock import try_lock
from mt.storage.output_path import is_device


class ResumableFile:
    """A file that grows by durable blocks of lines; `lines` is their number.

    The key is a digest of all that the content depends on; a session with the same key resumes, another starts again.
    """

    def __init__(self, path: Path, key: str) -> None:
        if is_device(path):
            raise InputError(f"{path}: not a regular file, so it cannot be resumed", "name a file")
        path = Path(os.path.realpath(path))  # keeps a link a link
        self._path, self._key = path, key
        self._unfinished = path.with_name(f".{path.name}.unfinished")
        self._note = path.with_name(f".{path.name}.unfinished.json")
        self.lines = 0

    def __enter__(self) -> Self:
        with atomic.explained(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._unfinished.open("ab")
        if not self._lock():
            self._file.close()
            hint = "wait for it, stop it, or name another output"
            raise InputError(f"{self._path}: another process is writing it", hint)
        self.lines, size = self._durable()
        with atomic.explained(self._path):
            if self.lines == 0:  # a note of another key must not lie beside lines of this one
                self._note.unlink(missing_ok=True)
                atomic.sync(self._path.parent)
            self._file.truncate(size)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # `append` has synced what counts, or raised a better error
            self._file.close()

    def append(self, lines: list[str]) -> None:
        """Append a block durably."""
        with atomic.explained(self._path):
            self._file.write("".join(line + "\n" for line in lines).encode())
            self._file.flush()
            os.fsync(self._file.fileno())
            self.lines += len(lines)
            atomic.write_json(self._note, {"key": self._key, "lines": self.lines, "bytes": self._file.tell()})

    def finish(self) -> None:
        """Give the complete file its name."""
        with atomic.explained(self._path):
            if not atomic.POSIX_FILES:  # an open file keeps its name
                self._file.close()
            self._unfinished.replace(self._path)
            self._note.unlink(missing_ok=True)
            atomic.sync(self._path.parent)

    def _lock(self) -> bool:
        """Take the lock; return False if another process holds it or has just finished the file."""
        try:
            locked = try_lock(self._file.fileno())
            return locked and os.path.samestat(self._unfinished.stat(), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            return False

    def _durable(self) -> tuple[int, int]:
        """Return the numbers of durable lines and bytes of an earlier session with this key; 0 without one."""
        try:
            note = json.loads(self._note.read_bytes())
            size = self._unfinished.stat().st_size
            if note["key"] == self._key and 0 <= int(note["bytes"]) <= size:
                return int(note["lines"]), int(note["bytes"])
            if size:  # if empty, a crash came between the rename and the removal of the note
                reason = "lines were written with a different model, text or option"
                log.warning("%s: restarting: %d %s", self._path, int(note["lines"]), reason)
        except (OSError, ValueError, TypeError, KeyError):
            pass
        return 0, 0
