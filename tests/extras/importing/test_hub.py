"""Models of the Hugging Face hub, from a local server that answers as the hub does."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from huggingface_hub import constants

from export_helpers import random_job
from import_helpers import marian
from mt.extras.export.huggingface import write_huggingface
from mt.extras.importing.importing import find_folder
from mt.text.spelling import Spelling

NAME = "opus/opus-mt-en-de"
PULL_REQUESTS = [(3, "a-stranger", "open"), (4, "SFconvertbot", "closed"), (5, "SFconvertbot", "open")]


def _digest(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


@contextmanager
def hub(revisions: dict[str, dict[str, bytes]], pull_requests: list[tuple[int, str, str]]) -> Iterator[str]:
    """Serve the files of a model's revisions, and its pull requests: number, author and status."""
    commits = {_digest(revision.encode()): files for revision, files in revisions.items()}

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            path, query = url.path.replace("%2F", "/"), parse_qs(url.query)
            if path == f"/api/models/{NAME}/discussions":
                self._answer(json.dumps(self._discussions(query)).encode())
            elif path.startswith(f"/api/models/{NAME}/revision/"):
                revision = path.split("/revision/")[1]
                commit = _digest(revision.encode())
                self._answer(json.dumps({"id": NAME, "sha": commit}).encode())
            elif path.startswith(f"/api/models/{NAME}/tree/"):
                files = commits[path.split("/tree/")[1]]
                names = [
                    {"type": "file", "path": name, "size": len(content), "oid": _digest(content)}
                    for name, content in files.items()
                ]
                self._answer(json.dumps(names).encode())
            else:
                commit, name = path.split("/resolve/")[1].split("/", 1)
                self._answer(commits[commit][name], commit)

        def _discussions(self, query: dict[str, list[str]]) -> dict[str, object]:
            found = [
                {
                    "title": "Adding `safetensors` variant of this model",
                    "num": number,
                    "author": {"name": author},
                    "createdAt": "2024-01-01T00:00:00.000Z",
                    "isPullRequest": True,
                    "status": status,
                    "repo": {"name": NAME, "type": "model"},
                }
                for number, author, status in pull_requests
                if query["author"] == [author] and query["status"] == [status]
            ]
            return {"discussions": found, "count": len(found), "start": 0}

        def _answer(self, content: bytes, commit: str = "") -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("ETag", f'"{_digest(content)}"')
            self.send_header("X-Repo-Commit", commit)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def import_from(endpoint: str, folder: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mt", "import", NAME, "--output", "ours"]
    environment = os.environ | {"HF_ENDPOINT": endpoint, "HF_HOME": str(folder / "cache"), "HF_HUB_OFFLINE": "0"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done


def test_a_model_is_downloaded_and_named_as_on_the_hub(tmp_path: Path) -> None:
    marian(tmp_path / "theirs")
    with hub({"main": files_of(tmp_path / "theirs")}, []) as endpoint:
        assert import_from(endpoint, tmp_path).stdout == "en to de, 64 pieces\nours\n"
    assert "name: opus-mt-en-de\n" in (tmp_path / "ours" / "config.yaml").read_text()


def test_an_export_of_ours_is_downloaded_with_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    write_huggingface(random_job(), tmp_path / "theirs", "# A model\n")
    (tmp_path / "theirs" / "mt" / "spelling.txt").write_text(Spelling(("dog",), 1).text())
    with hub({"main": files_of(tmp_path / "theirs")}, []) as endpoint:
        import_from(endpoint, tmp_path)
    assert (tmp_path / "ours" / "spelling.txt").is_file()


@pytest.mark.slow
def test_pickled_weights_are_replaced_by_the_hubs_own_conversion(tmp_path: Path) -> None:
    marian(tmp_path / "theirs")
    converted = files_of(tmp_path / "theirs")
    pickled = {name: content for name, content in converted.items() if not name.endswith(".safetensors")}
    pickled["pytorch_model.bin"] = b"pickle"
    revisions = {"main": pickled, "refs/pr/3": {}, "refs/pr/4": {}, "refs/pr/5": pickled | converted}
    with hub(revisions, PULL_REQUESTS) as endpoint:
        assert import_from(endpoint, tmp_path).stdout == "en to de, 64 pieces\nours\n"
    assert not list((tmp_path / "cache").rglob("pytorch_model.bin"))


@pytest.mark.parametrize("switch", ["MT_OFFLINE", "HF_HUB_OFFLINE"])
def test_the_conversion_in_the_cache_is_found_offline(
    switch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = tmp_path / f"models--{NAME.replace('/', '--')}"
    for revision, name in (("main", "config.json"), ("refs/pr/5", "model.safetensors")):
        snapshot = cached / "snapshots" / _digest(revision.encode())
        for path, content in ((cached / "refs" / revision, snapshot.name), (snapshot / name, "")):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv(switch, "1")
    assert find_folder(NAME) == cached / "snapshots" / _digest(b"refs/pr/5")


@pytest.mark.parametrize(
    "pull_requests",
    [pytest.param([], id="none", marks=pytest.mark.slow), pytest.param(PULL_REQUESTS[:2], id="of-others")],
)
def test_weights_that_are_only_pickled_are_refused(tmp_path: Path, pull_requests: list[tuple[int, str, str]]) -> None:
    marian(tmp_path / "theirs")
    pickled = {name: content for name, content in files_of(tmp_path / "theirs").items() if name.endswith(".json")}
    with hub({"main": pickled | {"pytorch_model.bin": b"pickle"}}, pull_requests) as endpoint:
        done = import_from(endpoint, tmp_path, code=2)
    assert f"{NAME}: the hub has no safetensors of it, and other weights can run code when read" in done.stderr
    assert f"hf download {NAME} --local-dir FOLDER" in done.stderr
    assert not (tmp_path / "ours").exists()
