"""A text file that is written over as many sessions as it takes, and appears under its name when it is whole.

Beside it lie its lines so far and a note of how many are safe; whoever starts again with the same key goes on there.
"""

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from filelock import lock_descriptor

from mt.console import log
from mt.errors import InputError
from mt.storage import atomic
from mt.storage.output_path import is_device


class GrowingFile:
    """Takes blocks of lines; each is on the disk before the next is asked for.

    Args:
        path: where the whole file shall be.
        key: identifies everything that its content depends on. What another key left behind is not continued.

    Attributes:
        lines: how many are safe.
    """

    def __init__(self, path: Path, key: str) -> None:
        if is_device(path):
            raise InputError(f"{path}: this is no file, and could not be gone on with", "name a file")
        path = Path(os.path.realpath(path))  # a link stays one
        self._path, self._key = path, key
        self._unfinished = path.with_name(f".{path.name}.unfinished")
        self._note = path.with_name(f".{path.name}.unfinished.json")
        self.lines = 0

    def __enter__(self) -> Self:
        if self._path.is_dir():
            raise InputError(f"{self._path}: this is a folder, not a file")
        with atomic.explained(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._unfinished.open("ab")
        if not self._locked():
            self._file.close()
            raise InputError(
                f"{self._path}: another process is writing it", "wait for it, stop it, or name another output"
            )
        self.lines, size = self._safe()
        with atomic.explained(self._path):
            if self.lines == 0:  # the note of another key must not be found beside lines of this one
                self._note.unlink(missing_ok=True)
                atomic.sync_dir(self._path.parent)
            self._file.truncate(size)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._file.close()

    def append(self, lines: list[str]) -> None:
        """Adds a block."""
        with atomic.explained(self._path):
            self._file.write("".join(line + "\n" for line in lines).encode())
            self._file.flush()
            os.fsync(self._file.fileno())
            self.lines += len(lines)
            note = {"key": self._key, "lines": self.lines, "bytes": self._file.tell()}
            atomic.write_json(self._note, note)

    def finish(self) -> None:
        """Gives the file its name."""
        with atomic.explained(self._path):
            self._unfinished.replace(self._path)
            self._note.unlink(missing_ok=True)
            atomic.sync_dir(self._path.parent)

    def _locked(self) -> bool:
        """Takes the lock; False where another process has it, or has just given the file its name."""
        try:
            locked = lock_descriptor(self._file.fileno(), blocking=False)
            return locked and os.path.samestat(self._unfinished.stat(), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            return False

    def _safe(self) -> tuple[int, int]:
        """Lines and bytes that an earlier session with the same key left; of another key's it says that they go."""
        try:
            note = json.loads(self._note.read_bytes())
            size = self._unfinished.stat().st_size
            if note["key"] == self._key and 0 <= int(note["bytes"]) <= size:
                return int(note["lines"]), int(note["bytes"])
            if size:  # else the file was given its name, and a crash came before the note was removed
                log.warning(
                    "%s: begun anew: its %d finished lines were made with another model, text or option",
                    self._path,
                    int(note["lines"]),
                )
        except (OSError, ValueError, TypeError, KeyError):
            pass
        return 0, 0
