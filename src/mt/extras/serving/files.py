"""Documents of clients: each translated by a child process, and kept for a while to be downloaded."""

import asyncio
import json
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

from mt.decoding.alignment import Unit
from mt.extras.serving.document_process import MAX_MEMORY, NO_MEMORY
from mt.extras.serving.limits import Limits, RequestError
from mt.extras.serving.service import Direction, Service
from mt.storage.atomic import explained

_CONCURRENT = 2  # documents in translation; others wait
_QUEUED_SENTENCES = 64  # of one document at a time, so that short requests need not wait long
_KEPT_SECONDS = 1800
# The bytes that requests in progress may send, and the bytes kept, as a multiple of the largest document
_TOTAL = 10


@dataclass(eq=False)
class Job:
    """A document to translate, and its progress."""

    path: Path
    source: str  # language code or `auto`
    target: str
    columns: str  # of a table; empty for its only one
    progress_name: str  # under which the client asks for the progress; may be empty
    direction: Direction | None = None  # None: it is in the target language
    detected: tuple[str, float] | None = None  # for `auto`: language and confidence in percent
    progress: dict[str, int] = field(default_factory=lambda: {"sentences": 0, "translated": 0})

    @property
    def output(self) -> Path:
        return self.path.with_stem(f"{self.path.stem}_{self.target}")


class Files:
    """Translate documents in a temporary folder, which `close` removes.

    Translations have names that cannot be guessed. They are removed after half an hour, or when there are too many.
    """

    def __init__(self, service: Service, limits: Limits) -> None:
        self._service, self._limits = service, limits
        self._root: tempfile.TemporaryDirectory[str] | None = None
        self._kept: dict[str, Path] = {}  # oldest first
        self._turns = asyncio.Semaphore(_CONCURRENT)
        self._received = 0  # bytes, by requests in progress
        self.progress: dict[str, dict[str, int]] = {}

    def close(self) -> None:
        if self._root is not None:
            self._root.cleanup()

    def path(self, name: str) -> Path:
        """Return the file of a translation; a RequestError (404) says that there is none of this name."""
        if name not in self._kept or not self._kept[name].exists():
            raise RequestError(404, "no such file; translations are kept for half an hour")
        return self._kept[name]

    @contextmanager
    def upload(self) -> Iterator[tuple[Path, Callable[[int], None]]]:
        """Provide a new folder, removed unless a translation in it is kept, and a function that counts bytes.

        The function raises a RequestError (503) if requests in progress have sent too many bytes.
        """
        received = 0

        def count(size: int) -> None:
            nonlocal received
            if self._received + size > _TOTAL * self._limits.file:
                raise RequestError(503, "too many documents at once; try again later", {"Retry-After": "10"})
            self._received += size
            received += size

        with explained(Path("temporary folder")):
            # Systems clear their temporary folders.
            if self._root is None or not Path(self._root.name).is_dir():
                self._root = tempfile.TemporaryDirectory(prefix="mt-serve-", ignore_cleanup_errors=True)
            folder = Path(self._root.name) / secrets.token_urlsafe(24)
            folder.mkdir()
        try:
            yield folder, count
        finally:
            self._received -= received
            if not any(path.parent == folder for path in self._kept.values()):
                shutil.rmtree(folder, ignore_errors=True)

    async def translate(self, job: Job) -> str:
        """Translate a document and return the name of the translation.

        Raises:
            RequestError: 400, not a document that can be translated; 503, not within the time.
        """
        if job.progress_name:
            self.progress[job.progress_name] = job.progress
        advice = "try again later"
        try:
            async with asyncio.timeout(self._limits.file_seconds), self._turns:
                advice = "split it"
                await self._run(job)
        except TimeoutError:
            message = f"{job.path.name}: no translation within {self._limits.file_seconds:g} s; {advice}"
            raise RequestError(503, message) from None
        finally:
            if self.progress.get(job.progress_name) is job.progress:  # not that of a later document of this name
                del self.progress[job.progress_name]
        job.path.unlink(missing_ok=True)
        name = f"{job.output.parent.name}.{job.output.name}"
        self._kept[name] = job.output
        asyncio.get_running_loop().call_later(_KEPT_SECONDS, self._discard, name)
        while sum(path.stat().st_size for path in self._kept.values() if path.exists()) > _TOTAL * self._limits.file:
            self._discard(next(iter(self._kept)))
        return name

    def _discard(self, name: str) -> None:
        if path := self._kept.pop(name, None):
            shutil.rmtree(path.parent, ignore_errors=True)

    async def _start(self, job: Job) -> asyncio.subprocess.Process:
        self._service.require_served(job.target)  # before it becomes part of a file name
        direction: Direction | None = None
        is_known = job.source != "auto"
        # There may be no model for the target language: the text may be in it already.
        with nullcontext() if is_known else suppress(RequestError):
            direction, _ = await self._service.direction("", job.source, job.target)
        language = direction.source if direction else job.target
        wanted = {"columns": job.columns or None, "languages": (language, job.target), "check_source": is_known}
        arguments = (job.path.name, job.output.name, str(self._limits.file_characters), json.dumps(wanted))
        paths = (str(Path(__file__).resolve().parents[3]), *filter(None, sys.path))
        # OpenBLAS takes 41 MB a thread, by default one a core, of the memory that the process may have.
        threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "mt.extras.serving.document_process", *arguments),
            cwd=job.path.parent,
            env={**os.environ, **threads, "PYTHONPATH": os.pathsep.join(paths)},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=16 * self._limits.file_characters + 1_000_000,  # of a line: JSON takes up to 12 bytes a character
            start_new_session=True,  # Ctrl-C is for the server
        )

    async def _run(self, job: Job) -> None:
        """Run the child process and translate for it (see `document_process`); it is killed when this is cancelled."""
        process = await self._start(job)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                message = json.loads(line)
                if isinstance(message, str):
                    job.direction, job.detected = await self._service.direction(message, job.source, job.target)
                    if job.direction is None:
                        job.path.replace(job.output)
                        return
                    continue
                if isinstance(message, dict):
                    if message:
                        raise RequestError(message["status"], message["error"])
                    return
                answer = await self._translated(job, *message)
                process.stdin.write(json.dumps(answer).encode() + b"\n")
            code = await process.wait()
        finally:
            with suppress(ProcessLookupError):
                process.kill()
        if code == NO_MEMORY or code < 0:
            message = f"{job.path.name}: it takes more than {MAX_MEMORY // 1_000_000} MB of memory; split it"
            raise RequestError(400, message)
        raise RuntimeError(f"the process of a document ended with {code}")

    async def _translated(self, job: Job, sentences: list[str], aligned: bool) -> list[tuple[str, Sequence[Unit]]]:
        assert job.direction is not None
        job.progress["sentences"] += len(sentences)
        translations: list[tuple[str, Sequence[Unit]]] = []
        for start in range(0, len(sentences), _QUEUED_SENTENCES):
            part = sentences[start : start + _QUEUED_SENTENCES]
            translations += await self._service.translate_sentences(part, job.direction, aligned)
            job.progress["translated"] += len(part)
        return translations
