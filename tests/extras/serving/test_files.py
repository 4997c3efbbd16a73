"""Documents and suggestions over HTTP, with real documents, and with those that mean no good."""

import asyncio
import errno
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import docx
import pytest
from jsonschema import Draft4Validator

from command import mt
from mt.decoding.engine import SearchOptions
from mt.decoding.translator import Translator
from mt.errors import MachineError
from mt.extras.serving import files
from mt.extras.serving.app import create_app
from mt.extras.serving.files import Files, Job
from mt.extras.serving.limits import Limits, Metrics, RequestError
from mt.extras.serving.requests import file_name
from mt.extras.serving.service import Direction, Service
from serving_helpers import FORM, SLOW_SERVER, ServerProcess, form

EN_XX = {"source": "en", "target": "xx"}


@pytest.fixture(scope="module")
def model(two_languages: Path) -> Path:
    return two_languages / "runs" / "two"


@pytest.fixture(scope="module")
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The server's place for temporary files."""
    folder = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        yield folder


@pytest.fixture(scope="module")
def suggested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("suggested") / "better.jsonl"


@pytest.fixture(scope="module")
def server(model: Path, temporary: Path, suggested: Path) -> Iterator[ServerProcess]:
    options = ("--rate-limit", "0", "--max-file", "1000000", "--max-file-characters", "2000")
    with ServerProcess("--model", model, *options, "--suggestions", suggested, cwd=temporary) as process:
        yield process


def send(server: ServerProcess, name: str | None, content: bytes = b"", **fields: str) -> tuple[int, Any]:
    return server.ask("/translate_file", form(name, content, **(fields or EN_XX)), FORM)


def download(server: ServerProcess, name: str, content: bytes, **fields: str) -> bytes:
    status, answer = send(server, name, content, **fields)
    assert status == 200, answer
    with urllib.request.urlopen(answer["translatedFileUrl"], timeout=30) as found:
        return found.read()


def written(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def word_file(*paragraphs: str) -> bytes:
    document, content = docx.Document(), io.BytesIO()
    for text in paragraphs:
        document.add_paragraph(text)
    document.save(content)
    return content.getvalue()


def archive(compressed: bool = False, **parts: bytes) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED) as made:
        for name, part in parts.items():
            made.writestr(f"word/{name}.xml", part)
    return content.getvalue()


def test_a_document_comes_back_translated(server: ServerProcess) -> None:
    wanted = server.ask("/translate", {"q": ["a b c", "d e"], **EN_XX})[1]["translatedText"]
    found = download(server, "a report.docx", word_file("a b c", "d e", "123"))
    assert [one.text for one in docx.Document(io.BytesIO(found)).paragraphs] == [*wanted, "123"]
    assert download(server, "x.txt", "\ufeffa b c\r\n\r\n12\nd e".encode()).decode() == (
        f"\ufeff{wanted[0]}\r\n\r\n12\n{wanted[1]}"
    )
    table = download(server, "x.csv", b"en,xx\na b c,\nd e,kept\n", **EN_XX, columns="en:xx")
    assert table.decode() == f"en,xx\na b c,{wanted[0]}\nd e,kept\n"
    name = "a column's long name, with explanations"
    table = download(server, "x.csv", f'"{name}"\na b c\n'.encode(), **EN_XX, columns=f"{name}:its translation")
    assert table.decode().endswith(f'"a b c","{wanted[0]}"\n') or table.decode().endswith(f"a b c,{wanted[0]}\n")
    status, answer = send(server, "x.csv", b"a\nb\n", **EN_XX, columns="a" * 1001)
    assert (status, answer["error"]) == (400, "columns is too long or not printable")


def test_documents_come_in_after_the_temporary_folder_was_cleared(server: ServerProcess, temporary: Path) -> None:
    _, answer = send(server, "x.txt", b"a b c\n")
    for folder in temporary.glob("mt-serve-*"):
        shutil.rmtree(folder)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(answer["translatedFileUrl"], timeout=30)
    assert download(server, "x.txt", b"a b c\n")


def test_the_name_cannot_be_guessed_and_a_page_cannot_act(server: ServerProcess) -> None:
    urls = [
        send(server, name, b"<p>a b</p>")[1]["translatedFileUrl"] for name in ("../\u00fc \"a'.html", "C:\\u\\b.html")
    ]
    with urllib.request.urlopen(urls[0], timeout=30) as found:
        assert found.headers["Content-Disposition"].startswith("attachment; filename")
        assert found.headers["Content-Security-Policy"] == "sandbox"
    assert urls[1].endswith(".b_xx.html")
    token = urls[1].rsplit("/", 1)[1].partition(".")[0]
    assert len(token) == 32
    assert token not in urls[0]
    for other in ("", token, f"{token}.html", f"..%2f{token}%2fb_xx.html", "x" * 32 + ".b_xx.html"):
        assert server.ask(f"/download_file/{other}")[0] == 404
    for name in ("..", "", "/", "\n", "x/..", "a\\"):
        assert file_name(name) == "document"
    assert len(file_name("a" * 500 + "." + "\u00e9" * 300).encode()) <= 240


def test_the_command_of_the_documentation(server: ServerProcess, tmp_path: Path) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("no curl on this machine")
    (tmp_path / "notes.md").write_text("# a b c\n")
    words = [curl, "-s", "-F", "file=@notes.md", "-F", "source=en", "-F", "target=xx", f"{server.url}/translate_file"]
    answer = json.loads(subprocess.run(words, cwd=tmp_path, capture_output=True, check=True).stdout)
    subprocess.run([curl, "-sOJ", answer["translatedFileUrl"]], cwd=tmp_path, check=True)
    assert (tmp_path / "notes_xx.md").read_text().startswith("# ")


def test_auto_and_languages(server: ServerProcess) -> None:
    status, answer = send(server, "a.txt", b"Good morning, how are you today?", target="xx")
    assert (status, answer["detectedLanguage"]["language"]) == (200, "en")
    assert download(server, "a.txt", b"a b c", source="en", target="en") == b"a b c"
    english = b"Good morning, how are you today?"
    assert send(server, "a.txt", english, source="auto", target="de") == (400, {"error": "de is not supported"})
    assert (
        send(server, "a.txt", english, source="xx", target="yy")[1]["error"] == "no model here translates from xx to yy"
    )
    assert send(server, "a.txt", english, source="en")[1]["error"] == "target is missing"


LAUGHS = b'<!DOCTYPE x [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><w:document>&b;</w:document>'
BAD: list[tuple[str, bytes, str]] = [
    ("a.docx", b"", "a.docx: empty"),
    ("a.txt", b"caf\xe8", "a.txt:1: not valid UTF-8"),
    ("a.pdf", b"%PDF-1.7", "a.pdf: a .pdf file cannot be translated"),
    ("a.txt", b"%PDF-1.7", "a.txt: a .pdf file cannot be translated"),
    ("a.bin", b"a b", "a.bin: the kind of this document is unknown; name it with one of .txt, .csv, .docx, "),
    ("a.docx", b"no archive", "a.docx: damaged, or no .docx file"),
    ("a.docx", word_file("a b")[:-2000], "a.docx: damaged, or no .docx file"),
    ("a.docx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500), "a.docx: protected by a password"),
    ("a.docx", archive(document=LAUGHS), "a.docx: word/document.xml: declares entities"),
    (
        "a.tmx",
        b'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><tmx>&a;</tmx>',
        "a.tmx: declares entities",
    ),
    ("a.txt", b"ab " * 700, "a.txt: 2,099 characters, more than the 2,000 allowed"),
    ("a.csv", b"x,y\na,b\n", "a.csv: which of its 2 columns is to be translated; give columns SOURCE:TARGET"),
]


@pytest.mark.parametrize(("name", "content", "sentence"), BAD, ids=[sentence for _, _, sentence in BAD])
def test_bad_documents(server: ServerProcess, temporary: Path, name: str, content: bytes, sentence: str) -> None:
    before = written(temporary)
    status, answer = send(server, name, content)
    assert (status, answer["error"][: len(sentence)]) == (400, sentence)
    assert str(temporary) not in answer["error"]
    assert "\n" not in answer["error"]
    assert written(temporary) == before


def test_a_zip_bomb_meets_the_limits_of_packing_and_of_memory(server: ServerProcess, temporary: Path) -> None:
    before = written(temporary)
    same = b"<w:p><w:r><w:t>a b</w:t></w:r></w:p>" * 1_500_000
    different = b"".join(b"<w:p><w:r><w:t>%d</w:t></w:r></w:p>" % (number // 16) for number in range(2_000_000))
    for paragraphs, sentence in (
        (same, "a.docx: unpacks to more than 200 times its size, which no text does; pack it again"),
        (different, "a.docx: it takes more than 600 MB of memory; split it"),
    ):
        document = b"<w:document xmlns:w='w'>" + paragraphs + b"</w:document>"
        answer = send(server, "a.docx", archive(compressed=True, document=document))
        assert answer == (400, {"error": sentence})
    assert written(temporary) == before


def test_bad_requests(server: ServerProcess, temporary: Path) -> None:
    before = written(temporary)
    for body, kind, status, sentence in (
        (form(None, **EN_XX), FORM, 400, "file, the document, is missing"),
        (form(None, file="a b", **EN_XX), FORM, 400, "file, the document, is missing"),
        (form("a.txt", b"a", **EN_XX)[:-40], FORM, 400, "target is missing"),
        (form("a.txt", b"a")[:-10] + form("b.txt", b"b"), FORM, 400, "a request has one document, in the field file"),
        (form("a.txt", b"a").replace(b'"file"', b'"data"'), FORM, 400, "a request has one document, in the field file"),
        (b'{"q": "a"}', "application/json", 400, "a document is sent as multipart/form-data"),
        (b"a", FORM.partition(";")[0], 400, "the body is not a form: No boundary given"),
        (form("a.txt", b"a"), f"{FORM}; charset=latin-1", 400, "the form's charset is 'latin-1'; only UTF-8 is read"),
        (form("a.txt", b"a" * 1_000_000), FORM, 413, "the body is larger than 1,000,000 bytes"),
    ):
        found, answer = server.ask("/translate_file", body, kind)
        assert (found, answer) == (status, {"error": sentence})
    assert server.ask("/translate", form("a.txt", b"a"), FORM)[0] == 400
    assert written(temporary) == before


def test_documents_can_be_switched_off_and_need_a_key(model: Path, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("secret\n")
    options = ("--api-keys", "keys", "--rate-limit", "1", "--file-timeout", "60")
    with ServerProcess("--model", model, *options, cwd=tmp_path) as server:
        assert send(server, "a.txt", b"a") == (403, {"error": "an API key is needed"})
        fields = {**EN_XX, "api_key": "secret"}
        assert [send(server, "a.txt", b"a", **fields)[0] for _ in range(2)] == [200, 429]
    with ServerProcess("--model", model, "--max-file", "0", cwd=tmp_path) as server:
        assert send(server, "a.txt", b"a") == (403, {"error": "this server translates no documents"})
        settings = server.ask("/frontend/settings")[1]
        assert (settings["filesTranslation"], settings["supportedFilesFormat"]) == (False, [])
        suggestion = {"q": "a", "s": "b", **EN_XX}
        assert server.ask("/suggest", suggestion) == (403, {"error": "this server takes no suggestions"})


def lines(count: int) -> bytes:
    """A document of so many different lines; equal ones would be translated once."""
    return "".join(f"<p>line {n}</p>" for n in range(count)).encode()


LONG = lines(1500)
VERY_LONG = lines(10_000)  # takes the slow server about 8 s


@pytest.fixture
def empty_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def until_translating(server: ServerProcess, name: str) -> None:
    deadline = time.monotonic() + 60
    while server.ask(f"/file_progress/{name}")[1]["translated"] == 0:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_long_document_leaves_room_for_short_requests(empty_temporary: Path) -> None:
    with ServerProcess("60", cwd=empty_temporary, program=SLOW_SERVER) as server, ThreadPoolExecutor(3) as pool:
        documents = [pool.submit(send, server, "a.html", LONG, **EN_XX, progress=f"n{n}") for n in range(3)]
        until_translating(server, "n0")
        progress = [server.ask(f"/file_progress/n{n}")[1] for n in range(3)]
        short = [server.ask("/translate", {"q": "a", **EN_XX}) for _ in range(3)]
        assert short == [(200, {"translatedText": "A"})] * 3
        assert any(0 < one["translated"] < one["sentences"] == 1500 for one in progress)
        assert min(one["translated"] for one in progress) == 0  # two documents at a time
        [url, *_] = [one.result()[1]["translatedFileUrl"] for one in documents]
        with urllib.request.urlopen(url, timeout=30) as found:
            assert found.read() == LONG.replace(b"line", b"LINE")
    assert list(empty_temporary.iterdir()) == []


def test_the_progress_of_a_later_document_outlives_an_earlier_one_of_its_name(empty_temporary: Path) -> None:
    with ServerProcess("60", cwd=empty_temporary, program=SLOW_SERVER) as server, ThreadPoolExecutor(2) as pool:
        earlier = pool.submit(send, server, "a.html", LONG, **EN_XX, progress="same")
        until_translating(server, "same")
        later = pool.submit(send, server, "b.html", lines(4000), **EN_XX, progress="same")
        assert earlier.result()[0] == 200
        while server.ask("/file_progress/same")[1]["sentences"] == 0 and not later.done():
            time.sleep(0.02)  # its process is still starting
        assert server.ask("/file_progress/same")[1]["sentences"] == 4000
        assert later.result()[0] == 200
        assert server.ask("/file_progress/same")[1]["sentences"] == 0


def test_a_document_whose_client_is_gone_is_dropped(empty_temporary: Path) -> None:
    with ServerProcess("60", cwd=empty_temporary, program=SLOW_SERVER) as server:
        body = form("a.html", VERY_LONG, **EN_XX, progress="gone")
        with closing(server.connection()) as connection:
            connection.request("POST", "/translate_file", body, {"Content-Type": FORM})
            until_translating(server, "gone")
        deadline = time.monotonic() + 60
        children = Path(f"/proc/{server.command.process.pid}/task/{server.command.process.pid}/children")
        while any(empty_temporary.glob("*/*")) or children.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_a_document_takes_no_more_than_its_time(empty_temporary: Path) -> None:
    with ServerProcess("0.2", cwd=empty_temporary, program=SLOW_SERVER) as server:
        sentence = "a.html: no translation within 0.2 s; split it"
        assert send(server, "a.html", LONG) == (503, {"error": sentence})
        assert written(empty_temporary) == []


def test_a_stop_ends_what_is_being_translated(empty_temporary: Path) -> None:
    server = ServerProcess("60", cwd=empty_temporary, program=SLOW_SERVER)
    found: list[tuple[int, Any]] = []
    asking = threading.Thread(target=lambda: found.append(send(server, "a.html", VERY_LONG, **EN_XX, progress="stop")))
    asking.start()
    until_translating(server, "stop")
    server.stop()
    asking.join()
    assert found == [(503, {"error": "the server is stopping"})]
    assert list(empty_temporary.iterdir()) == []


def test_a_second_ctrl_c_removes_the_documents(empty_temporary: Path) -> None:
    server = ServerProcess("60", cwd=empty_temporary, program=SLOW_SERVER)
    assert send(server, "a.txt", b"a b c\n")[0] == 200
    assert written(empty_temporary) == ["a_xx.txt"]
    with closing(server.connection()) as connection:
        body = form("a.html", VERY_LONG, **EN_XX, progress="held")
        connection.request("POST", "/translate_file", body, {"Content-Type": FORM})
        until_translating(server, "held")
        server.command.signal(signal.SIGINT)
        time.sleep(0.5)  # uvicorn counts the signals that it has handled
        server.command.signal(signal.SIGINT)
        done = server.command.wait(60)
    assert done.code == 130
    assert "Traceback" not in done.stderr
    assert list(empty_temporary.iterdir()) == []


def test_translations_are_kept_for_a_while(empty_temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def kept() -> list[bool]:
        stored = Files(None, Limits(file=100))  # type: ignore[arg-type]

        async def write(job: Job) -> None:
            job.output.write_bytes(bytes(400))

        monkeypatch.setattr(stored, "_run", write)
        names = []
        for n in range(4):
            with stored.upload() as (folder, count):
                count(900)
                job = Job(folder / f"{n}.txt", "en", "xx", "", "")
                job.path.write_bytes(b"a")
                names.append(await stored.translate(job))
                with pytest.raises(RequestError, match="too many documents at once"):
                    count(101)

        def present() -> list[bool]:
            return [name in stored._kept and stored.path(name).exists() for name in names]

        first = present()
        async with asyncio.timeout(60):
            while any(present()):
                await asyncio.sleep(0.05)
        stored.close()
        return first

    monkeypatch.setattr(files, "_KEPT_SECONDS", 4)
    assert asyncio.run(kept()) == [False, False, True, True]
    assert list(empty_temporary.iterdir()) == []


def test_a_document_that_waited_in_vain_need_not_be_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def answers() -> list[BaseException | str]:
        stored = Files(None, Limits(file_seconds=0.1))  # type: ignore[arg-type]
        monkeypatch.setattr(stored, "_run", lambda job: asyncio.sleep(60))
        jobs = [Job(tmp_path / f"{n}.txt", "en", "xx", "", "") for n in range(3)]
        return await asyncio.gather(*map(stored.translate, jobs), return_exceptions=True)

    details = [answer.detail for answer in asyncio.run(answers()) if isinstance(answer, RequestError)]
    assert [detail.partition("; ")[2] for detail in details] == ["split it", "split it", "try again later"]


def into_english(content: bytes, *pair: str, target: str = "en") -> bytes:
    """Translate a page from a detected language, with a model of this pair that fails when it is asked."""

    async def translated() -> bytes:
        service = Service([Direction(*pair, Translator.__new__(Translator), SearchOptions())], Limits(), Metrics())
        stored = Files(service, Limits())
        try:
            with stored.upload() as (folder, _):
                job = Job(folder / "a.html", "auto", target, "", "")
                job.path.write_bytes(content)
                return stored.path(await stored.translate(job)).read_bytes()
        finally:
            await asyncio.sleep(0.2)  # until the loop has seen the end of the process
            stored.close()
            service.close()

    return asyncio.run(translated())


@pytest.mark.parametrize("pair", [("de", "en"), ("en", "de")])
def test_a_document_in_the_wanted_language_keeps_its_bytes(pair: tuple[str, str]) -> None:
    """Also where no model writes that language."""
    page = b"<p>Good&nbsp;morning, how <b>are</b> you\n  today? We wait for you in the caf&eacute;.</p>"
    assert into_english(page, *pair) == page


@pytest.mark.parametrize("target", ["fr", "zh/TW"])
def test_a_document_into_a_language_that_is_not_served(target: str) -> None:
    """The code would become part of a file name."""
    with pytest.raises(RequestError, match=f"{target} is not supported"):
        into_english(b"<p>Good morning</p>", "de", "en", target=target)


def test_the_process_of_a_document_has_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one a core, numpy would need more memory than the process may have."""
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\nenv > "$5"\necho "{}"\n')  # instead of a translation
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    environment = into_english(b"", "de", "en").decode().splitlines()
    assert {"OPENBLAS_NUM_THREADS=1", "OMP_NUM_THREADS=1"} <= set(environment)


@pytest.mark.parametrize("closed", ["stdin", "stdout"])
def test_the_process_of_a_document_ends_silently_with_the_server_and_not_before(tmp_path: Path, closed: str) -> None:
    (tmp_path / "a.txt").write_text("a b c")
    options = json.dumps({"columns": None, "languages": ["en", "xx"], "check_source": True})
    program = [sys.executable, "-m", "mt.extras.serving.document_process", "a.txt", "b.txt", "100", options]
    pipe = subprocess.PIPE
    with subprocess.Popen(program, cwd=tmp_path, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        if closed == "stdin":
            process.stdout.readline()
            process.terminate()  # as systemd does, which also stops the server
            time.sleep(0.5)
            process.stdin.close()
        else:
            process.stdout.close()
        assert (process.wait(120), process.stderr.read()) == (1, b"")


def test_a_full_disk_is_the_machines_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    async def attempt() -> None:
        with Files(None, Limits()).upload():  # type: ignore[arg-type]
            pass

    monkeypatch.setattr(files.tempfile, "TemporaryDirectory", full)
    with pytest.raises(MachineError, match="no space left"):
        asyncio.run(attempt())


def test_suggestions_are_appended_to_a_file(server: ServerProcess, suggested: Path) -> None:
    texts = [f"a\n\u2028\u00fc {n}" for n in range(20)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda q: server.ask("/suggest", {"q": q, "s": "b", **EN_XX}), texts))
    assert answers == [(200, {"success": True})] * 20
    lines = suggested.read_bytes().decode().split("\n")
    assert lines.pop() == ""
    assert sorted(lines) == sorted(json.dumps({"q": q, "s": "b", **EN_XX}, ensure_ascii=False) for q in texts)
    for fields, sentence in (
        ({"q": "a"}, "s, the text, is missing"),
        ({"q": ["a"], "s": "b"}, "q must be a text"),
        ({"q": "a", "s": " "}, "s must be a text"),
        ({"q": "a", "s": "b" * 5001}, "s has 5,001 characters, more than the 5,000 allowed"),
        ({"q": "a", "s": "b", "source": "auto"}, "auto is not supported"),
        ({"q": "a\ud800", "s": "b"}, "q holds half of a surrogate pair"),
    ):
        assert server.ask("/suggest", {**EN_XX, **fields}) == (400, {"error": sentence})
    assert suggested.read_bytes().count(b"\n") == 20
    for size, status in ((100_000_001, 503), (0, 200)):
        os.truncate(suggested, size)
        assert server.ask("/suggest", {"q": "a", "s": "b", **EN_XX})[0] == status


def test_the_file_of_suggestions_is_checked_at_the_start(model: Path, tmp_path: Path) -> None:
    refused = mt("serve", "--model", model, "--suggestions", tmp_path, cwd=tmp_path, code=2)
    assert "this is a folder" in refused.stderr
    refused = mt("serve", "--model", model, "--suggestions", "/dev/null", cwd=tmp_path, code=2)
    assert "--suggestions /dev/null: not a regular file" in refused.stderr
    refused = mt("serve", "--model", model, "--forwarded-allow-ips", "10.0.0.0/99", cwd=tmp_path, code=2)
    assert "10.0.0.0/99: neither an address nor a network" in refused.stderr
    with ServerProcess("--model", model, "--suggestions", "new/s.jsonl", cwd=tmp_path) as server:
        assert server.ask("/suggest", {"q": "a", "s": "b", **EN_XX})[0] == 200
    assert (tmp_path / "new" / "s.jsonl").read_text().count("\n") == 1


def test_the_description_is_what_the_server_does(server: ServerProcess) -> None:
    """Each path exists, and each example is answered as described."""
    spec = server.ask("/spec")[1]
    assert {"title", "version"} <= set(spec["info"])
    described = {(path, method) for path, methods in spec["paths"].items() for method in methods}
    app = create_app([Direction("en", "xx", Translator.__new__(Translator), SearchOptions())], Limits())
    routes = {(route.path, method.lower()) for route in app.routes for method in route.methods} - {("/", "get")}
    assert described == {(path, method) for path, method in routes if method != "head" and path not in ("/docs",)}
    for path, method in sorted(described):
        if path in ("/metrics", "/download_file/{name}"):
            continue
        operation, body, kind = spec["paths"][path][method], None, ""
        if method == "post":
            [(kind, content)] = operation["requestBody"]["content"].items()
            fields = {name: one["example"] for name, one in content["schema"]["properties"].items() if "example" in one}
            fields |= {"target": "xx"} if "target" in fields else {}
            body = fields if kind == "application/json" else form("a.txt", b"a b", **EN_XX)
        status, answer = server.ask(path, body, FORM if kind == "multipart/form-data" else kind)
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
        assert status == 200, answer
        Draft4Validator({**schema, "components": spec["components"]}).validate(answer)
    error = {**spec["components"]["schemas"]["Error"], "additionalProperties": False}
    Draft4Validator(error).validate(server.ask("/translate", {"q": "a"})[1])
