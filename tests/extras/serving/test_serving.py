"""`mt serve`: LibreTranslate's interface, with its own client; limits; and every failure one JSON sentence."""

import asyncio
import logging
import os
import re
import signal
import socket
import threading
import time
import tracemalloc
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from libretranslatepy import LibreTranslateAPI

from command import mt
from conftest import CONFIG, made_once, write_corpus
from mt.decoding.alignment import Unit, align_units
from mt.decoding.candidates import Candidate
from mt.decoding.engine import SearchOptions
from mt.decoding.translator import Translator
from mt.extras.serving.app import create_app
from mt.extras.serving.batching import Batcher
from mt.extras.serving.connection import Connection
from mt.extras.serving.limits import Limits, Metrics, RequestError
from mt.extras.serving.requests import _multipart, read_fields
from mt.extras.serving.server import listen, serve
from mt.extras.serving.service import Direction, Service
from mt.extras.serving.service import Request as Asked
from serving_helpers import ServerProcess

JSON, URLENCODED = "application/json", "application/x-www-form-urlencoded"
ENGLISH = "Good morning, how are you today?"
LINES = ["a b c", "d e", "f g h i", "j", "c c a", "b e d"]


@pytest.fixture(scope="module")
def models(two_languages: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A model from en to xx and yy, and one back."""
    back = CONFIG.replace("source: ", "SIDE: ").replace("target: ", "source: ").replace("SIDE: ", "target: ")
    back = back.replace("source_lang: en", "source_lang: xx").replace("target_lang: xx", "target_lang: en")

    def make(folder: Path) -> None:
        write_corpus(folder)
        (folder / "tiny.yaml").write_text(back)
        mt("train", "--config", "tiny.yaml", "--set", "training.max_steps=16", cwd=folder)

    folder = made_once(tmp_path_factory, "back", make)
    return [two_languages / "runs" / "two", folder / "runs" / "tiny" / "model"]


@pytest.fixture(scope="module")
def expected(models: list[Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What `mt translate` says to some lines."""
    command = ("translate", "--model", models[0], "--to", "xx", *LINES)
    found = mt(*command, cwd=tmp_path_factory.mktemp("cwd")).stdout.split("\n")
    assert len(set(found)) == len(LINES) + 1, "too much alike to show a mistake"
    return dict(zip(LINES, found[:-1], strict=True))


@pytest.fixture(scope="module")
def server(models: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    options = ("--rate-limit", "0", "--max-characters", "500", "--max-texts", "8")
    words = [word for model in models for word in ("--model", model)]
    with ServerProcess(*words, *options, cwd=tmp_path_factory.mktemp("serve")) as process:
        yield process


def question(text: Any, **more: Any) -> dict[str, Any]:
    return {"q": text, "source": "en", "target": "xx", **more}


def test_libretranslates_own_client_is_served(server: ServerProcess, expected: dict[str, str]) -> None:
    client = LibreTranslateAPI(server.url)
    for line, translation in expected.items():
        assert client.translate(line, "en", "xx", timeout=60) == translation
    assert [language["code"] for language in client.languages()] == ["en", "xx", "yy"]
    assert client.detect(ENGLISH)[0]["language"] == "en"


def test_a_model_of_several_source_languages_serves_its_pairs(many_languages: Path) -> None:
    with ServerProcess("--model", many_languages / "runs" / "many", cwd=many_languages) as server:
        status, languages = server.ask("/languages")
        assert (status, {one["code"]: one["targets"] for one in languages}) == (
            200,
            {"en": ["de", "fr"], "de": ["en"], "fr": ["en"]},
        )
        german, english = "ein Hund mag das Haus und den Ball", "a dog likes the house and the ball"
        for source in ("de", "auto"):
            answer = server.ask("/translate", {"q": german, "source": source, "target": "en"})[1]
            assert answer["translatedText"] == english
        assert server.ask("/translate", {"q": german, "source": "de", "target": "fr"}) == (
            400,
            {"error": "no model here translates from de to fr"},
        )


def test_a_list_gives_a_list_and_a_text_a_text(server: ServerProcess, expected: dict[str, str]) -> None:
    assert server.ask("/translate", question(LINES)) == (200, {"translatedText": list(expected.values())})
    assert server.ask("/translate", question("a b c")) == (200, {"translatedText": expected["a b c"]})
    other = server.ask("/translate", question(LINES, target="yy"))[1]["translatedText"]
    assert not set(other) & set(expected.values())


def test_forms_are_read_as_json_is(server: ServerProcess, expected: dict[str, str]) -> None:
    form = urlencode(question("d e")).encode()
    part = '--x\r\nContent-Disposition: form-data; name="{}"\r\n\r\n{}\r\n'
    parts = "".join(part.format(*field) for field in question("d e").items()) + "--x--\r\n"
    two = part.format("q", "j") + parts
    for body, kind, answer in (
        (form, URLENCODED, expected["d e"]),
        (form + b"&api_key&", URLENCODED, expected["d e"]),
        (parts.encode(), "multipart/form-data; boundary=x", expected["d e"]),
        (two.encode(), "multipart/form-data; boundary=x", [expected["j"], expected["d e"]]),
    ):
        assert server.ask("/translate", body, kind) == (200, {"translatedText": answer})


@pytest.mark.parametrize("number", [150, 300])
def test_a_form_has_room_for_as_many_texts_as_a_request_may_have(number: int) -> None:
    fields = [*(("q", f"text {n}") for n in range(number)), ("target", "xx")]
    part = '--x\r\nContent-Disposition: form-data; name="{}"\r\n\r\n{}\r\n'
    parts = "".join(part.format(*field) for field in fields) + "--x--\r\n"
    for body, kind in ((urlencode(fields), URLENCODED), (parts, "multipart/form-data; boundary=x")):
        scope = {"type": "http", "query_string": b"", "headers": [(b"content-type", kind.encode())]}

        async def receive(body: bytes = body.encode()) -> dict[str, Any]:
            return {"type": "http.request", "body": body}

        read = read_fields(Request(scope, receive), Limits(texts=200))
        if number > 200:
            with pytest.raises(RequestError, match="not a form"):
                asyncio.run(read)
        else:
            assert len(asyncio.run(read)["q"]) == number


def test_unknown_charsets_are_not_kept_in_memory() -> None:
    tracemalloc.start()
    try:
        for number in range(100):
            with pytest.raises(RequestError, match="only UTF-8 is read"):
                _multipart(f"multipart/form-data; boundary=x; charset={number}{'x' * 50_000}", b"", 1)
        assert tracemalloc.get_traced_memory()[0] < 2_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("keys", [[], ["secret"]])
@pytest.mark.parametrize(("path", "kind"), [("/translate", JSON), ("/translate_file", "multipart/form-data")])
def test_requests_that_cannot_be_read_count_towards_the_rate(path: str, kind: str, keys: list[str]) -> None:
    directions = [Direction("en", "xx", Translator.__new__(Translator), SearchOptions())]
    app = create_app(directions, Limits(requests_per_minute=12), keys)
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "client": ("10.0.0.1", 1)}
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"nonsense"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    for _ in range(3):
        asyncio.run(app({**scope, "headers": [(b"content-type", kind.encode())]}, receive, send))
    assert statuses == [400, 400, 429]


def test_an_address_is_read_where_there_is_no_body(server: ServerProcess, expected: dict[str, str]) -> None:
    """The LibreTranslate client of deep-translator asks so."""
    found = server.ask("/translate?" + urlencode(question("d e", format="text", api_key="x")), b"", "")
    assert found == (200, {"translatedText": expected["d e"]})
    assert server.ask("/translate?q=%ff", b"", "")[0] == 400
    assert server.ask("/translate?q=j", question("d e"))[1] == {"translatedText": expected["d e"]}


def test_heads_are_answered_and_methods_named(server: ServerProcess) -> None:
    connection = server.connection()
    for path in ("/", "/health", "/languages", "/metrics", "/frontend/settings"):
        connection.request("HEAD", path)
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"")
    connection.request("GET", "/translate")
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Allow"]) == (405, "POST")
    connection.close()


def test_lines_stay_lines_and_nothing_stays_nothing(server: ServerProcess, expected: dict[str, str]) -> None:
    text = "a b c\n\n  d e \r\n--\n"
    answer = f"{expected['a b c']}\n\n  {expected['d e']} \r\n--\n"
    assert server.ask("/translate", question(text))[1] == {"translatedText": answer}
    for empty in ("", " ", "\n", "...", "\u2028"):
        assert server.ask("/translate", question(empty))[1] == {"translatedText": empty}


def test_html_keeps_its_tags(server: ServerProcess, expected: dict[str, str]) -> None:
    html = '<p title="a b c">d\ne<br>\n<code>a b c</code> <b translate=no>j <i>j</i></b></p><!-- a b c -->&amp;'
    status, answer = server.ask("/translate", question(html, format="html"))
    assert status == 200
    assert answer["translatedText"] == html.replace(">d\ne<", f">{expected['d e']}<")


def test_tags_inside_of_a_sentence_go_with_their_words(server: ServerProcess) -> None:
    """With the attention of the engine that serves; the model translates letter by letter, in their order."""
    html = '<p>a b <b>c <i title="d">d</i></b> e <a href="/x">f</a></p>'
    _, answer = server.ask("/translate", question([html, "a b c d e f"], format="html"))
    tagged, plain = answer["translatedText"]
    assert re.sub("<[^>]*>", "", tagged) == plain
    one, two, three, four, five, six = plain.split()
    assert tagged == f'<p>{one} {two} <b>{three} <i title="d">{four}</i></b> {five} <a href="/x">{six}</a></p>'


def test_alternatives_differ(server: ServerProcess, expected: dict[str, str]) -> None:
    _, answer = server.ask("/translate", question("f g h i", alternatives=3))
    assert len({answer["translatedText"], *answer["alternatives"]}) == 1 + len(answer["alternatives"])
    assert answer["alternatives"]
    _, answer = server.ask("/translate", question(["a b c", "d e"], alternatives=1))
    assert [len(each) for each in answer["alternatives"]] == [1, 1]


def test_auto_takes_the_model_that_fits(server: ServerProcess, expected: dict[str, str]) -> None:
    _, answer = server.ask("/translate", question("a b c", source="auto"))
    assert answer["translatedText"] == expected["a b c"]
    assert answer["detectedLanguage"]["language"] == "en"
    _, answer = server.ask("/translate", question(["a b c", "j"], source="auto"))
    assert [one["language"] for one in answer["detectedLanguage"]] == ["en", "en"]


def test_what_is_in_the_wanted_language_already_stays_as_it_is(server: ServerProcess) -> None:
    _, answer = server.ask("/translate", {"q": [ENGLISH, "a b c"], "source": "auto", "target": "en"})
    assert answer["translatedText"][0] == ENGLISH
    assert [one["language"] for one in answer["detectedLanguage"]] == ["en", "xx"]  # "a b c" is too short to be sure
    _, answer = server.ask("/translate", {"q": "c c", "source": "en", "target": "en", "alternatives": 2})
    assert answer == {"translatedText": "c c", "alternatives": []}


def test_a_server_of_one_direction_with_a_limit_of_its_own(models: list[Path], tmp_path: Path) -> None:
    """A language that no model writes can still be the wanted one."""
    with ServerProcess("--model", models[0], "--max-body", "300", cwd=tmp_path) as server:
        for source in ("auto", "en"):
            _, answer = server.ask("/translate", {"q": ENGLISH, "source": source, "target": "en"})
            assert answer["translatedText"] == ENGLISH
        status, answer = server.ask("/translate", {"q": "xyz", "source": "xx", "target": "en"})
        assert (status, answer["error"]) == (400, "no model here translates from xx to en")
        assert server.ask("/translate", question("a" * 100))[0] == 200
        status, answer = server.ask("/translate", question("a" * 300))
        assert (status, answer["error"][:33]) == (413, "the body is larger than 300 bytes")


def test_detected_languages_have_the_codes_that_are_served() -> None:
    copying = Copying(lambda _: None)
    pairs = [("por_Latn", "pt_BR"), ("eng_Latn", "pt_BR"), ("pt_BR", "eng_Latn")]
    service = Service([Direction(*pair, copying, SearchOptions()) for pair in pairs], Limits(), Metrics())
    texts = {ENGLISH: "eng_Latn", "O comboio parte amanh\u00e3 de manh\u00e3.": "por_Latn", "Der Zug geht.": "de"}
    for text, code in texts.items():
        assert asyncio.run(service.detect(text))[0]["language"] == code
    service.close()


def test_markup_is_no_language(server: ServerProcess) -> None:
    german = '<a href="https://example.com/read-more-about-the-house" class="button primary" title="x">Hier klicken</a>'
    _, answer = server.ask("/translate", {"q": german, "source": "auto", "target": "en", "format": "html"})
    assert answer["detectedLanguage"]["language"] == "xx"


def test_what_clients_ask_first(server: ServerProcess) -> None:
    assert server.ask("/health") == (200, {"status": "ok"})
    assert server.ask("/languages")[1] == [
        {"code": "en", "name": "English", "targets": ["xx", "yy"]},
        {"code": "xx", "name": "xx", "targets": ["en"]},
        {"code": "yy", "name": "yy", "targets": []},
    ]
    _, settings = server.ask("/frontend/settings")
    assert settings["charLimit"] == 500
    assert settings["language"]["source"] == {"code": "en", "name": "English"}
    assert settings["keyRequired"] is False
    with urllib.request.urlopen(server.url + "/") as page:
        assert "default-src 'none'" in page.headers["Content-Security-Policy"]
        assert b"<textarea" in page.read()


@pytest.mark.parametrize(
    ("body", "kind", "sentence"),
    [
        (b'{"q":', JSON, "the body is not JSON"),
        (b"[1]", JSON, "the body is not a JSON object"),
        (b"[" * 60_000, JSON, "the body is not JSON"),
        (b"\xff=1", URLENCODED, "the body is not a form"),
        (b"q=%ff&target=xx", URLENCODED, "the body is not a form"),
        (b"nonsense", "multipart/form-data; boundary=x", "the body is not a form"),
        ({"source": "en", "target": "xx"}, JSON, "q, the text, is missing"),
        ({"q": "a", "source": "en"}, JSON, "target is missing"),
        (question(5), JSON, "q must be a text or a list of texts"),
        (question(["a", 5]), JSON, "q must be a text or a list of texts"),
        (question([]), JSON, "q must be a text or a list of texts"),
        (question("a", target="de"), JSON, "de is not supported"),
        (question("a", source="fr"), JSON, "fr is not supported"),
        (question("a", source="zz", target="zz"), JSON, "zz is not supported"),
        (question("a", source="auto", target="zz"), JSON, "zz is not supported"),
        (question("a", source=["en"]), JSON, "source must be a text"),
        (question("a", source="xx", target="yy"), JSON, "no model here translates from xx to yy"),
        (question("a", format="pdf"), JSON, "format is 'pdf', neither text nor html"),
        (question("a", alternatives=11), JSON, "alternatives must be a whole number from 0 to 10"),
        (question("a", alternatives="x"), JSON, "alternatives must be a whole number from 0 to 10"),
        (question("a" * 501), JSON, "q has 501 characters, more than the 500 allowed"),
        (question(["a"] * 9), JSON, "q has 9 texts, more than the 8 allowed"),
        (question("\ud800"), JSON, "q holds half of a surrogate pair"),
    ],
)
def test_a_bad_request_is_one_sentence(server: ServerProcess, body: Any, kind: str, sentence: str) -> None:
    status, answer = server.ask("/translate", body, kind)
    assert (status, list(answer)) == (400, ["error"])
    assert answer["error"].startswith(sentence)


def test_other_errors_are_sentences_too(server: ServerProcess) -> None:
    large = server.ask("/translate", question("a" * 70_000))
    assert large == (413, {"error": "the body is larger than 65,536 bytes"})
    assert server.ask("/translate") == (405, {"error": "GET /translate: Method Not Allowed"})
    assert server.ask("/nothing") == (404, {"error": "GET /nothing: Not Found"})
    assert server.ask("/detect", {"q": None}) == (400, {"error": "q, the text, is missing"})


def test_a_body_that_does_not_say_its_size_is_read_no_further_than_allowed(server: ServerProcess) -> None:
    connection = server.connection()
    connection.putrequest("POST", "/translate")
    connection.putheader("Transfer-Encoding", "chunked")
    connection.putheader("Content-Type", "application/json")
    connection.endheaders()
    for _ in range(3):
        connection.send(b"7000\r\n" + b"x" * 0x7000 + b"\r\n")
    assert connection.getresponse().status == 413
    connection.close()


def test_a_connection_that_asks_nothing_is_closed() -> None:
    """One without a word, one that sends its head byte by byte, one whose body never comes; none that is answered."""

    app = FastAPI()

    @app.get("/slow")
    async def slow() -> str:
        await asyncio.sleep(2.5)
        return "done"

    @app.post("/read")
    async def read(request: Request) -> JSONResponse:
        try:
            return JSONResponse(await read_fields(request, Limits(seconds=1.0)))
        except RequestError as error:
            return JSONResponse(error.detail, error.status_code)

    bound = listen("127.0.0.1", 0)
    bound.listen()
    address = bound.getsockname()

    def first_bytes(sent: bytes, drip: bytes = b"") -> bytes:
        with socket.create_connection(address, timeout=10) as connection:
            connection.sendall(sent)
            connection.settimeout(0.3)
            for _ in range(25):
                try:
                    return connection.recv(12)
                except TimeoutError:
                    connection.sendall(drip)
            return b"still open"

    server = uvicorn.Server(uvicorn.Config(app, http=Connection, timeout_keep_alive=1, log_config=None))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    head = b"POST /read HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n{"
    try:
        with ThreadPoolExecutor(4) as pool:
            silent, dripping, bodiless, slow_one = pool.map(
                first_bytes,
                (b"", b"GET / HT", head, b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"),
                (b"", b"T", b"", b""),
            )
    finally:
        server.should_exit = True
        thread.join(30)
    assert (silent, dripping, bodiless, slow_one) == (b"", b"", b"HTTP/1.1 408", b"HTTP/1.1 200")


def test_many_clients_each_get_their_own_answer(server: ServerProcess, expected: dict[str, str]) -> None:
    def ask(number: int) -> bool:
        line = LINES[number % len(LINES)]
        return server.ask("/translate", question(line)) == (200, {"translatedText": expected[line]})

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(200)))
    metrics = server.metrics()
    assert 'mt_requests_total{path="/translate",status="200"}' in metrics
    assert "mt_waiting_sentences 0.0" in metrics


def test_a_client_that_hangs_up_harms_nobody(server: ServerProcess, expected: dict[str, str]) -> None:
    for sent in (b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n{", b"GET", b"\x00\xff\r\n\r\n"):
        with socket.create_connection(server.address, timeout=10) as connection:
            connection.sendall(sent)
    assert server.ask("/translate", question("d e"))[1] == {"translatedText": expected["d e"]}
    assert 'status="500"' not in server.metrics()


def test_keys_rates_and_a_full_queue(models: list[Path], tmp_path: Path, expected: dict[str, str]) -> None:
    (tmp_path / "keys").write_text("secret\n\nother\n")
    options = ("--api-keys", "keys", "--rate-limit", "60", "--max-waiting", "3")
    with ServerProcess("--model", models[0], *options, cwd=tmp_path) as server:
        assert server.ask("/translate", question("j")) == (403, {"error": "an API key is needed"})
        assert server.ask("/translate", question("j", api_key="x"))[0] == 403
        assert server.ask("/translate", question("j", api_key="\ud800"))[0] == 403
        assert server.ask("/detect", {"q": "j"})[0] == 403
        client = LibreTranslateAPI(server.url, api_key="secret")
        assert client.translate("d e", "en", "xx", timeout=60) == expected["d e"]
        assert server.ask("/frontend/settings")[1]["keyRequired"] is True

        many = question(["f g h i"] * 3, api_key="other")
        with ThreadPoolExecutor(8) as pool:
            found = [status for status, _ in pool.map(lambda _: server.ask("/translate", many), range(8))]
        assert set(found) <= {200, 503}
        assert 200 in found
        for key, first in (("secret", 200), ("guessed", 403)):
            statuses = [server.ask("/translate", question("j", api_key=key))[0] for _ in range(15)]
            assert statuses[0] == first
            assert 429 in statuses


def test_sigterm_lets_begun_requests_end(models: list[Path], tmp_path: Path) -> None:
    server = ServerProcess("--model", models[0], "--max-characters", "60000", cwd=tmp_path)
    long_text = "\n".join(["a b c d e f g h i j"] * 400)
    answers: list[tuple[int, Any]] = []
    asking = threading.Thread(target=lambda: answers.append(server.ask("/translate", question(long_text))))
    asking.start()
    deadline = time.monotonic() + 30
    while "mt_waiting_sentences 0.0" in server.metrics():
        assert time.monotonic() < deadline
    code = server.stop()
    asking.join()
    assert code in (0, -signal.SIGTERM, 128 + signal.SIGTERM)
    [(status, answer)] = answers
    assert status == 200
    assert answer["translatedText"].count("\n") == 399


STUCK_SERVER = """
import signal, sys, time
from mt.console import set_up_logging
from mt.decoding.engine import SearchOptions
from mt.decoding.translator import Translator
from mt.extras.serving.app import create_app
from mt.extras.serving.limits import Limits
from mt.extras.serving.server import listen, serve
from mt.extras.serving.service import Direction

class Stuck(Translator):
    def __init__(self): self.separator = " "
    def translate(self, *_): time.sleep(100)

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as `mt` does
set_up_logging()
app = create_app([Direction("en", "xx", Stuck(), SearchOptions())], Limits(seconds=0.3))
serve(app, listen("127.0.0.1", 0), drain_seconds=1)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_does_not_wait_for_a_batch_that_nobody_waits_for(number: signal.Signals, code: int) -> None:
    server = ServerProcess(cwd=Path(), program=STUCK_SERVER)
    assert server.ask("/translate", question("a"))[0] == 503
    started = time.monotonic()
    assert server.stop(number) == code
    assert time.monotonic() - started < 30


class Copying(Translator):
    """A translator that copies its lines, after some work."""

    def __init__(self, work: Callable[[list[str]], object]) -> None:
        self._work = work

    def translate(
        self, lines: Sequence[str], options: SearchOptions, first_line: int | None = 1
    ) -> list[list[Candidate]]:
        self._work(list(lines))
        return [[Candidate(line, 0.0, 0.0)] for line in lines]


def test_a_batch_that_nobody_waits_for_does_not_keep_the_server() -> None:
    held = threading.Event()

    async def ask() -> None:
        batcher, stuck = Batcher(10, Metrics()), Copying(lambda _: held.wait(60))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(batcher.translate(stuck, ["a"], SearchOptions()), 0.1)
        batcher.close()

    started = time.monotonic()
    try:
        asyncio.run(ask())
        assert time.monotonic() - started < 30
    finally:
        held.set()


def test_requests_take_turns_and_what_nobody_waits_for_is_not_begun() -> None:
    batches: list[list[str]] = []

    def record(lines: list[str]) -> None:
        batches.append(lines)
        time.sleep(0.02)

    async def ask() -> list[list[list[Candidate]]]:
        batcher, one, other = Batcher(10_000, Metrics()), Copying(record), Copying(record)
        gone = asyncio.create_task(batcher.translate(one, ["gone"] * 2000, SearchOptions()))
        lines = [f"large {n}" for n in range(500)]
        large = asyncio.create_task(batcher.translate(one, lines, SearchOptions()))
        small = asyncio.create_task(batcher.translate(other, ["small"], SearchOptions()))
        await asyncio.sleep(0.01)
        gone.cancel()
        found = [await large, await small]
        batcher.close()
        return found

    large, small = asyncio.run(ask())
    assert [candidate.text for [candidate] in large] == [f"large {n}" for n in range(500)]
    assert [candidate.text for [candidate] in small] == ["small"]
    assert sum(batch[0] == "gone" for batch in batches) == 1
    assert batches.index(["small"]) <= 2
    assert max(map(len, batches)) <= 128


def test_long_sentences_fill_a_batch() -> None:
    batches: list[list[str]] = []

    async def ask() -> list[list[list[Candidate]]]:
        batcher, translator = Batcher(10_000, Metrics()), Copying(batches.append)
        found = await asyncio.gather(*(batcher.translate(translator, [line] * 20, SearchOptions()) for line in lines))
        batcher.close()
        return found

    lines = ["a" * 1000, "b" * 10_000, "c"]
    assert [[c.text for [c] in answer] for answer in asyncio.run(ask())] == [[line] * 20 for line in lines]
    assert max(len("".join(batch[:-1])) for batch in batches) < 8000
    assert max(map(len, batches)) > 20


def test_tags_of_a_text_do_not_change_the_search_of_another() -> None:
    class Naming(Copying):
        """A translator that adds to each line whether its attention was asked for."""

        separator = " "

        def translate(self, lines: Sequence[str], options: SearchOptions, *_: Any) -> list[list[Candidate]]:
            return [[Candidate(f"{line} {options.attention}", 0.0, 0.0)] for line in lines]

        def align(self, line: str, candidate: Candidate) -> list[Unit]:
            return align_units(line, candidate.text)

    texts = ["a", "b <i>c</i> d", "", "e", "f <b>g</b> h"]
    directions = [Direction("en", "xx", Naming(lambda _: None), SearchOptions())]
    service = Service(directions, Limits(), Metrics())
    answer = asyncio.run(service.translate(Asked(texts, "en", "xx", is_html=True, alternatives=0, is_list=True)))
    service.close()
    found = [re.sub("<[^>]*>", "", text) for text in answer["translatedText"]]
    assert found == ["a False", "b c d True", "", "e False", "f g h True"]


def test_a_full_queue_takes_the_next_part_of_a_document() -> None:
    async def ask() -> list[list[Candidate]]:
        batcher, slow = Batcher(2, Metrics()), Copying(lambda _: time.sleep(0.05))
        first = asyncio.create_task(batcher.translate(slow, ["a", "b"], SearchOptions()))
        await asyncio.sleep(0)
        with pytest.raises(RequestError, match="too busy"):
            await batcher.translate(slow, ["c"], SearchOptions())
        found = await batcher.translate(slow, ["c"], SearchOptions(), even_if_full=True)
        await first
        batcher.close()
        return found

    assert [candidate.text for [candidate] in asyncio.run(ask())] == ["c"]


def test_two_batches_are_translated_side_by_side_and_no_more() -> None:
    running, most = [0], [0]

    def count(_: list[str]) -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        time.sleep(0.05)
        running[0] -= 1

    async def ask() -> list[list[list[Candidate]]]:
        batcher, translator = Batcher(10_000, Metrics()), Copying(count)
        found = []
        for turn in range(3):  # after a pause, too
            asked = [batcher.translate(translator, [f"{turn} {n}"] * 100, SearchOptions()) for n in range(5)]
            found += await asyncio.gather(*asked)
        batcher.close()
        return found

    found = asyncio.run(ask())
    assert [[c.text for [c] in answer] for answer in found] == [[f"{t} {n}"] * 100 for t in range(3) for n in range(5)]
    assert most == [2]


@pytest.mark.parametrize(("given", "code"), [(None, 1), ("a reason", 1), (0, 0), (129, 129)])
def test_the_exit_code_of_a_server_is_a_number(given: object, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise SystemExit(given)

    codes: list[int] = []
    monkeypatch.setattr(uvicorn.Server, "run", stopped)
    monkeypatch.setattr(os, "_exit", codes.append)
    monkeypatch.setattr(logging, "shutdown", lambda: None)
    with listen("127.0.0.1", 0) as bound:
        serve(FastAPI(), bound, 1)
    assert codes == [code]


def test_what_keeps_a_server_from_starting(models: list[Path], tmp_path: Path) -> None:
    def refused(*arguments: str | Path, code: int) -> str:
        return mt("serve", *arguments, cwd=tmp_path, code=code).stderr

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"port {port} of 127.0.0.1 is in use" in refused("--model", models[0], "--port", port, code=4)
    assert "there is no such folder" in refused("--model", "nowhere", "--port", "0", code=2)
    assert "so does" in refused("--model", models[0], "--model", models[0] / "model", "--port", "0", code=2)
    for seconds in ("nan", "inf"):
        for option in ("--timeout", "--file-timeout"):
            assert option in refused("--model", models[0], "--port", "0", option, seconds, code=2)
    assert "--host" in refused("--model", models[0], "--host", "no.such.host.invalid", code=2)
    (tmp_path / "keys").write_text("\n")
    assert "no key in it" in refused("--model", models[0], "--api-keys", "keys", code=2)
    (tmp_path / "empty").mkdir()
    assert "not a complete model folder" in refused("--model", "empty", "--port", "0", code=2)
