"""Documents of clients: translated by a child process each, and kept for a while to be downloaded."""

import asyncio
import json
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mt.extras.serving.document_process import MAX_MEMORY, NO_MEMORY
from mt.extras.serving.limits import Limits, RequestError
from mt.extras.serving.service import Direction, Service
from mt.storage.atomic import explained

_AT_ONCE = 2  # documents in translation; others wait
_SENTENCES = 64  # of a document in the queue, so that short requests need not wait long
_KEPT_SECONDS = 1800
_TOTAL = 10  # times the largest document: bytes that arrive at once, and bytes kept


@dataclass(frozen=True)
class DocumentRequest:
    """A validated request to translate a document."""

    path: Path
    source: str  # language code or `auto`
    target: str
    columns: str  # of a table; empty for its only one
    progress: str  # name under which the client asks for the progress, or empty


class Files:
    """Translate documents in a temporary folder, which is removed at the end.

    Translations have names that cannot be guessed. They are removed after half an hour, or when there are too many.
    """

    def __init__(self, service: Service, limits: Limits) -> None:
        self._service, self._limits = service, limits
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._kept: dict[str, Path] = {}  # oldest first
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._arriving = 0
        self.progress: dict[str, dict[str, int]] = {}

    def close(self) -> None:
        """Remove all files."""
        if self._folder is not None:
            self._folder.cleanup()

    def path(self, name: str) -> Path:
        """Return the file of a translation; it is a RequestError (404) if there is none of this name."""
        if name not in self._kept:
            raise RequestError(404, "no such file; translations are kept for half an hour")
        return self._kept[name]

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """Provide a new folder for one document; it is removed unless its translation is kept."""
        with explained(Path("temporary folder")):
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="mt-serve-", ignore_cleanup_errors=True)
            folder = Path(self._folder.name) / secrets.token_urlsafe(24)
            folder.mkdir()
        try:
            yield folder
        finally:
            if not any(path.parent == folder for path in self._kept.values()):
                shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def arriving(self) -> Iterator[Any]:
        """Provide a function that counts the bytes of a request, and refuses them where too many arrive at once."""
        received = 0

        def reserve(count: int) -> None:
            nonlocal received
            if self._arriving + count > _TOTAL * self._limits.file:
                raise RequestError(503, "too many documents at once; try again later", {"Retry-After": "10"})
            self._arriving += count
            received += count

        try:
            yield reserve
        finally:
            self._arriving -= received

    async def translate(self, request: DocumentRequest) -> tuple[str, tuple[str, float] | None]:
        """Return the name of the translation, and the detected language with its confidence in percent.

        Raises:
            RequestError: 400, not a document that can be translated; 503, not within the time.
        """
        job = _Job(self._service, self._limits, request)
        output = request.path.with_stem(f"{request.path.stem}_{request.target}")
        if request.progress:
            self.progress[request.progress] = job.progress
        try:
            async with asyncio.timeout(self._limits.file_seconds), self._turns:
                await job.run(output)
        except TimeoutError:
            message = f"{request.path.name}: no translation within {self._limits.file_seconds:g} s; split it"
            raise RequestError(503, message) from None
        finally:
            self.progress.pop(request.progress, None)
        request.path.unlink()
        name = f"{output.parent.name}.{output.name}"
        self._kept[name] = output
        asyncio.get_running_loop().call_later(_KEPT_SECONDS, self._discard, name)
        while sum(path.stat().st_size for path in self._kept.values()) > _TOTAL * self._limits.file:
            self._discard(next(iter(self._kept)))
        return name, job.detected

    def _discard(self, name: str) -> None:
        with suppress(KeyError):
            shutil.rmtree(self._kept.pop(name).parent, ignore_errors=True)


class _Job:
    """The translation of one document."""

    def __init__(self, service: Service, limits: Limits, request: DocumentRequest) -> None:
        self._service, self._limits, self._request = service, limits, request
        self._candidates = service.sources_of(request.source, request.target)
        self._direction: Direction | None = None
        self.detected: tuple[str, float] | None = None
        self.progress = {"sentences": 0, "translated": 0}

    async def run(self, output: Path) -> None:
        """Run the child process and answer its questions; it is killed when this is cancelled."""
        name = self._request.path.name
        arguments = (name, output.name, self._request.columns, self._candidates[0], self._request.target)
        paths = os.pathsep.join((str(Path(__file__).resolve().parents[3]), *filter(None, sys.path)))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "mt.extras.serving.document_process"),
            *(*arguments, str(self._limits.file_characters)),
            cwd=output.parent,
            env={**os.environ, "PYTHONPATH": paths},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=16 * self._limits.file_characters + 1_000_000,  # bytes of a line: JSON takes up to 12 a character
            start_new_session=True,  # Ctrl-C is for the server
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                message = json.loads(line)
                if isinstance(message, dict):
                    if "error" in message:
                        raise RequestError(message["status"], message["error"])
                    return
                process.stdin.write(json.dumps(await self._translated(message)).encode() + b"\n")
            code = await process.wait()
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if code == NO_MEMORY or code < 0:
            message = f"{name}: it takes more than {MAX_MEMORY // 1_000_000} MB of memory; split it"
            raise RequestError(400, message)
        raise RuntimeError(f"the process of a document ended with {code}")

    async def _translated(self, sentences: list[str]) -> list[str]:
        if not self.progress["sentences"]:
            sample = " ".join(sentences)[:10_000]
            self._direction, self.detected = await self._service.direction(
                sample, self._request.source, self._request.target
            )
        self.progress["sentences"] += len(sentences)
        translations: list[str] = []
        for start in range(0, len(sentences), _SENTENCES):
            part = sentences[start : start + _SENTENCES]
            deadline = time.monotonic() + 2 * self._limits.file_seconds  # later than that of the document
            translations += await self._service.translate_sentences(part, self._direction, deadline)
            self.progress["translated"] += len(part)
        return translations
