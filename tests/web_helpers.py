"""A web server in the shape of OPUS: its API, and archives that can be fetched in parts."""

import io
import json
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass
class Web:
    """What the server has, what it was asked for, and how it fails.

    Attributes:
        files: contents by path.
        corpora: entries of the API, whose `url` is a path.
        cut: bytes after which an answer breaks off.
        error: code of its answer for other paths.
        asked: paths, with the header Range if there was one.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    corpora: list[dict[str, Any]] = field(default_factory=list)
    cut: int | None = None
    error: int = 404
    etag: str = '"1"'
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    address: str = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(request.path)
        if parts.path == "/opusapi/":
            content = self._entries(parse_qs(parts.query))
        elif parts.path in self.files:
            content = self.files[parts.path]
        else:
            request.send_error(self.error)
            return
        spec = request.headers.get("Range")
        self.asked.append((parts.path, spec))
        same = request.headers.get("If-Range") == self.etag
        start = int(spec.removeprefix("bytes=").rstrip("-")) if spec and same else 0
        if start and start >= len(content):
            request.send_error(416)
            return
        request.send_response(206 if start else 200)
        request.send_header("Content-Length", str(len(content) - start))
        request.send_header("ETag", self.etag)
        request.end_headers()
        request.wfile.write(content[start : self.cut])

    def _entries(self, query: dict[str, list[str]]) -> bytes:
        keys = ("corpus", "source", "target", "preprocessing")
        found = [each for each in self.corpora if all(each[key] == query[key][0] for key in keys)]
        version = query["version"][0]
        found = [each for each in found if version in (each["version"], each["latest"] == "True" and "latest")]
        return json.dumps({"corpora": [each | {"url": self.address + each["url"]} for each in found]}).encode()

    def add_corpus(self, content: bytes, version: str = "v1", latest: str = "True", **more: str) -> None:
        """Add a version of Books in English and Italian, in the words of the real API."""
        url = f"/OPUS-Books/{version}/moses/en-it.txt.zip"
        self.files[url] = content
        entry = {"alignment_pairs": 2, "corpus": "Books", "documents": "", "id": 31736, "latest": latest}
        entry |= {"preprocessing": "moses", "size": 3, "source": "en", "source_tokens": 4, "target": "it"}
        self.corpora.append(entry | {"target_tokens": 4, "url": url, "version": version} | more)


@contextmanager
def serving(web: Web) -> Iterator[Web]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            web.answer(self)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web.address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield web
    finally:
        server.shutdown()
        server.server_close()


def zipped(texts: dict[str, str]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            archive.writestr(name, text)
    return content.getvalue()
