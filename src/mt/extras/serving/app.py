"""The HTTP interface: LibreTranslate's API, a web page and metrics.

https://docs.libretranslate.com describes the API; an error is {"error": "one sentence"} with a status code.
"""

import asyncio
import hashlib
import hmac
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Collection
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mt.console import log
from mt.extras.serving import requests
from mt.extras.serving.limits import Limits, Metrics, RateLimit, RequestError
from mt.extras.serving.service import Direction, Service, Translation
from mt.text.languages import language_name


def create_app(directions: list[Direction], limits: Limits, keys: Collection[str] = ()) -> FastAPI:
    """Create the ASGI application of the loaded models; without API keys the server is open."""
    metrics = Metrics()
    service = Service(directions, limits, metrics)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(title="mt", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_exception_handler(HTTPException, _on_error)
    app.add_middleware(_RequestMetrics, metrics=metrics)
    app.add_middleware(CORSMiddleware, allow_origins=["*"], allow_methods=["GET", "POST"], allow_headers=["*"])
    rate = RateLimit(limits.requests_per_minute)
    _add_info_routes(app, service, metrics, limits, needs_key=bool(keys))

    async def fields_of(request: Request) -> dict[str, Any]:
        fields = await requests.read_fields(request, limits)
        _admit(request, str(fields.get("api_key") or ""), keys, rate)
        return fields

    @app.post("/translate")
    async def translate(request: Request) -> Response:
        wanted = requests.translation_request(await fields_of(request), limits)
        translations = await _until_disconnect(request, service.translate(wanted))
        return JSONResponse(_as_json(translations, wanted.is_list, wanted.alternatives > 0))

    @app.post("/detect")
    async def detect(request: Request) -> Response:
        texts = requests.texts_of(await fields_of(request), limits)
        return JSONResponse(await service.detect("\n".join(texts)))

    return app


def _add_info_routes(app: FastAPI, service: Service, metrics: Metrics, limits: Limits, needs_key: bool) -> None:
    """Add the routes that take no text: the web page, health, metrics, languages and settings."""
    get = partial(app.api_route, methods=["GET", "HEAD"])
    page, page_headers = web_page()

    @get("/")
    async def show_page() -> HTMLResponse:
        return HTMLResponse(page, headers=page_headers)

    @get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @get("/metrics")
    async def show_metrics() -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @get("/languages")
    async def languages() -> list[dict[str, Any]]:
        return service.languages()

    @get("/frontend/settings")
    async def settings() -> dict[str, Any]:
        default = service.default
        return {
            "apiKeys": needs_key,
            "keyRequired": needs_key,
            "charLimit": limits.characters,
            "frontendTimeout": 500,
            "language": {
                side: {"code": code, "name": language_name(code)}
                for side, code in (("source", default.source), ("target", default.target))
            },
            "suggestions": False,
            "filesTranslation": False,
            "supportedFilesFormat": [],
        }


def web_page() -> tuple[str, dict[str, str]]:
    """Return the web page, one self-contained file, and its headers with a strict content security policy."""
    web = files("mt.extras.serving") / "web"
    page, style, script = ((web / name).read_text(encoding="utf-8") for name in ("page.html", "page.css", "page.js"))
    style_hash, script_hash = (
        f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in (style, script)
    )
    return page.replace("STYLE", style).replace("SCRIPT", script), {
        "Content-Security-Policy": f"default-src 'none'; style-src {style_hash}; script-src {script_hash}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }


def _as_json(translations: list[Translation], is_list: bool, with_alternatives: bool) -> dict[str, Any]:
    """Build LibreTranslate's response; each value is a list if `q` was one."""
    response: dict[str, Any] = {"translatedText": [one.text for one in translations]}
    if with_alternatives:
        response["alternatives"] = [one.alternatives for one in translations]
    detected = [one.detected for one in translations if one.detected is not None]
    if detected:
        response["detectedLanguage"] = [{"confidence": share, "language": code} for code, share in detected]
    return response if is_list else {key: values[0] for key, values in response.items()}


def _admit(request: Request, key: str, keys: Collection[str], rate: RateLimit) -> None:
    """Refuse a request without one of the API keys, if there are any, or beyond the rate limit."""
    encoded = key.encode(errors="replace")  # JSON can contain lone surrogates
    address = request.client.host if request.client else ""
    if keys and not any(hmac.compare_digest(encoded, known.encode()) for known in keys):
        rate.take(address)  # or keys could be guessed at full speed
        raise RequestError(403, "this API key is not known here" if key else "an API key is needed")
    rate.take(key if keys else address)


async def _until_disconnect(request: Request, work: Awaitable[list[Translation]]) -> list[Translation]:
    """Await the work, but cancel it when the client disconnects."""
    task = asyncio.ensure_future(work)
    while not (await asyncio.wait([task], timeout=1.0))[0]:
        if await request.is_disconnected():
            task.cancel()
            raise RequestError(400, "the client has disconnected")  # not sent, but counted
    return task.result()


async def _on_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    is_ours = isinstance(error, RequestError)
    sentence = error.detail if is_ours else f"{request.method} {request.url.path}: {error.detail}"[:200]
    return JSONResponse({"error": sentence}, error.status_code, error.headers)


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
