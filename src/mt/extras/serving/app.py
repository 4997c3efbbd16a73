"""The HTTP interface: LibreTranslate's API, a web page and metrics.

https://docs.libretranslate.com describes the API; an error is {"error": "one sentence"} with a status code.
"""

import asyncio
import hashlib
import hmac
import json
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import anyio
from fastapi import FastAPI, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mt.console import log
from mt.errors import MachineError
from mt.extras.documents.formats import FORMATS
from mt.extras.serving import requests
from mt.extras.serving.files import Files
from mt.extras.serving.limits import Limits, Metrics, RateLimit, RequestError
from mt.extras.serving.service import Direction, Service
from mt.text.languages import language_name

_T = TypeVar("_T")
_GET = ["GET", "HEAD"]
_Admit = Callable[[Request, Awaitable[dict[str, Any]]], Awaitable[dict[str, Any]]]


def create_app(
    directions: list[Direction], limits: Limits, keys: Collection[str] = (), suggestions: Path | None = None
) -> FastAPI:
    """Create the ASGI application of the loaded models.

    Without API keys the server is open. Suggestions are appended to a file, or refused if there is none.
    """
    metrics = Metrics()
    service = Service(directions, limits, metrics)
    documents = Files(service, limits)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # Starlette's connection checks need anyio's backend, whose import would delay other requests by half a second.
        anyio.CancelScope()
        yield
        documents.close()
        service.close()

    app = FastAPI(title="mt", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_exception_handler(HTTPException, _on_error)
    app.add_exception_handler(MachineError, _on_machine_error)
    app.add_middleware(_RequestMetrics, metrics=metrics)
    app.add_middleware(CORSMiddleware, allow_origins=["*"], allow_methods=["GET", "POST"], allow_headers=["*"])
    rate = RateLimit(limits.requests_per_minute)

    async def admit(request: Request, reading: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        """Read the fields of a request; refuse it without one of the API keys, if any, or beyond the rate limit."""
        address = request.client.host if request.client else ""
        try:
            fields = await reading
            key = str(fields.get("api_key") or "")
            encoded = key.encode(errors="replace")  # JSON can contain lone surrogates
            if keys and not any(hmac.compare_digest(encoded, known.encode()) for known in keys):
                raise RequestError(403, "this API key is not known here" if key else "an API key is needed")
        except RequestError:
            rate.take(address)  # or keys could be guessed at full speed
            raise
        rate.take(key if keys else address)
        return fields

    _add_pages(app)
    _add_info_routes(app, service, metrics, limits, {"keyRequired": bool(keys), "suggestions": suggestions is not None})
    _add_text_routes(app, service, limits, admit, suggestions)
    _add_document_routes(app, documents, limits, admit)
    return app


def _add_text_routes(app: FastAPI, service: Service, limits: Limits, admit: _Admit, suggestions: Path | None) -> None:
    """Add the routes that take text: translate, detect, suggest."""

    async def fields_of(request: Request) -> dict[str, Any]:
        return await admit(request, requests.read_fields(request, limits))

    @app.post("/translate")
    async def translate(request: Request) -> Response:
        wanted = requests.translation_request(await fields_of(request), limits)
        return JSONResponse(await _until_disconnect(request, service.translate(wanted)))

    @app.post("/detect")
    async def detect(request: Request) -> Response:
        texts = requests.texts_of(await fields_of(request), limits)
        return JSONResponse(await service.detect("\n".join(texts)))

    @app.post("/suggest")
    async def suggest(request: Request) -> dict[str, bool]:
        suggestion = requests.suggestion(await fields_of(request), limits)
        if suggestions is None:
            raise RequestError(403, "this server takes no suggestions")
        await service.suggest(suggestion, suggestions)
        return {"success": True}


def _add_document_routes(app: FastAPI, documents: Files, limits: Limits, admit: _Admit) -> None:
    """Add the routes of documents: translate one, ask for the progress, download the translation."""

    @app.post("/translate_file")
    async def translate_file(request: Request) -> dict[str, Any]:
        if limits.file == 0:
            raise RequestError(403, "this server translates no documents")
        with documents.upload() as (folder, count):
            fields = await admit(request, requests.read_document(request, limits, folder, count))
            job = requests.document_request(fields)
            name = await _until_disconnect(request, documents.translate(job))
        answer: dict[str, Any] = {"translatedFileUrl": f"{request.base_url}download_file/{quote(name)}"}
        if job.detected is not None:
            answer["detectedLanguage"] = {"confidence": job.detected[1], "language": job.detected[0]}
        return answer

    @app.api_route("/file_progress/{name}", methods=_GET)
    async def progress(name: str) -> dict[str, int]:
        return documents.progress.get(name, {"sentences": 0, "translated": 0})

    @app.api_route("/download_file/{name}", methods=_GET)
    async def download_file(name: str) -> FileResponse:
        path = documents.path(name)
        headers = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox"}
        return FileResponse(path, filename=path.name, headers=headers)


def _add_pages(app: FastAPI) -> None:
    """Add the web page, and the description of the API for people and for programs."""
    pages = {"/": _web_page("page"), "/docs": _web_page("docs")}
    description: dict[str, Any] = json.loads(_content("spec.json"))

    @app.api_route("/", methods=_GET)
    @app.api_route("/docs", methods=_GET)
    async def show_page(request: Request) -> HTMLResponse:
        page, headers = pages[request.scope["route"].path]
        return HTMLResponse(page, headers=headers)

    @app.api_route("/spec", methods=_GET)
    async def spec() -> dict[str, Any]:
        return description


def _web_page(name: str) -> tuple[str, dict[str, str]]:
    """Return a web page, one self-contained file, and its headers with a strict content security policy."""
    page, style, script = (_content(file) for file in (f"{name}.html", "page.css", f"{name}.js"))
    style_hash, script_hash = (
        f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in (style, script)
    )
    return page.replace("STYLE", style).replace("SCRIPT", script), {
        "Content-Security-Policy": f"default-src 'none'; style-src {style_hash}; script-src {script_hash}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }


def _content(name: str) -> str:
    return (files("mt.extras.serving") / "web" / name).read_text(encoding="utf-8")


def _add_info_routes(
    app: FastAPI, service: Service, metrics: Metrics, limits: Limits, switches: dict[str, bool]
) -> None:
    """Add the routes that take no text: health, metrics, languages and settings."""

    @app.api_route("/health", methods=_GET)
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.api_route("/metrics", methods=_GET)
    async def show_metrics() -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.api_route("/languages", methods=_GET)
    async def languages() -> list[dict[str, Any]]:
        return service.languages()

    @app.api_route("/frontend/settings", methods=_GET)
    async def settings() -> dict[str, Any]:
        default = service.default
        return {
            **switches,
            "apiKeys": switches["keyRequired"],
            "charLimit": limits.characters,
            "frontendTimeout": 500,
            "language": {
                side: {"code": code, "name": language_name(code)}
                for side, code in (("source", default.source), ("target", default.target))
            },
            "filesTranslation": limits.file > 0,
            "supportedFilesFormat": [f".{kind}" for kind in ("txt", *FORMATS)] if limits.file else [],
            "fileLimit": limits.file,
            "models": service.models(),
        }


async def _until_disconnect(request: Request, work: Awaitable[_T]) -> _T:
    """Await the work, but cancel it when the client disconnects."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait([task], timeout=1.0))[0]:
            if await request.is_disconnected():
                raise RequestError(400, "the client has disconnected")  # not sent, but counted
    finally:
        task.cancel()
    return task.result()


async def _on_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    is_ours = isinstance(error, RequestError)
    sentence = error.detail if is_ours else f"{request.method} {request.url.path}: {error.detail}"[:200]
    return JSONResponse({"error": sentence}, error.status_code, error.headers)


async def _on_machine_error(_: Request, error: Exception) -> JSONResponse:
    log.error("%s", error)
    return JSONResponse({"error": "the server cannot write files now; try again later"}, 503)


class _RequestMetrics:
    """Middleware that counts and times requests and turns an unexpected exception into a JSON error and a log line.

    Plain ASGI, which costs less per request than a Starlette middleware.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        started, status = time.perf_counter(), 0

        async def record_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, record_status)
        except asyncio.CancelledError:  # from uvicorn, when the time to finish at shutdown is over
            if status:
                raise
            await JSONResponse({"error": "the server is stopping"}, 503)(scope, receive, record_status)
        except Exception as error:
            log.error("%s %s: %s: %s", scope["method"], scope["path"], type(error).__name__, error)
            if status:  # the response has started
                raise
            await JSONResponse({"error": "this is a bug of the server"}, 500)(scope, receive, record_status)
        finally:
            path = getattr(scope.get("route"), "path", "other")  # unknown paths would be unbounded labels
            self._metrics.requests.labels(path, status).inc()
            self._metrics.seconds.labels(path).observe(time.perf_counter() - started)
