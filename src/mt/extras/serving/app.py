"""The HTTP interface: LibreTranslate's API, a web page and metrics.

https://docs.libretranslate.com describes the API; an error is {"error": "one sentence"} with a status code.
"""

import asyncio
import hmac
import time
from collections.abc import AsyncIterator, Awaitable, Collection
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mt.console import log
from mt.extras.serving import page
from mt.extras.serving.limits import Limits, RateLimit, RequestError, disconnected
from mt.extras.serving.metrics import Metrics
from mt.extras.serving.requests import fields_of, text_of, translation_request
from mt.extras.serving.service import Direction, Service, Translation
from mt.text.languages import language_name


def create_app(directions: list[Direction], limits: Limits, keys: Collection[str] = ()) -> FastAPI:
    """Create the ASGI application.

    Args:
        directions: the loaded models, by language pair.
        limits: bounds on requests.
        keys: API keys, one of which a client must send; none leaves the server open.
    """
    metrics = Metrics()
    service = Service(directions, limits, metrics)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(title="mt", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    _handle_errors(app)
    app.add_middleware(_Counting, metrics=metrics)
    app.add_middleware(CORSMiddleware, allow_origins=["*"], allow_methods=["GET", "POST"], allow_headers=["*"])
    guard = _Guard(RateLimit(limits.requests_per_minute), keys)

    _add_info_routes(app, service, metrics, limits, needs_key=bool(keys))

    @app.post("/translate")
    async def translate(request: Request) -> Response:
        fields = await fields_of(request, limits)
        guard.check(request, fields)
        wanted, is_list = translation_request(fields, limits)
        found = await _until_disconnect(request, service.translate(wanted))
        return JSONResponse(_as_json(found, is_list, wanted.alternatives > 0))

    @app.post("/detect")
    async def detect(request: Request) -> Response:
        fields = await fields_of(request, limits)
        guard.check(request, fields)
        text = text_of(fields, limits)
        return JSONResponse(await service.in_thread(lambda: service.detect(text)))

    return app


def _add_info_routes(app: FastAPI, service: Service, metrics: Metrics, limits: Limits, needs_key: bool) -> None:
    """Add the routes that take no text: the page, health, metrics, languages and settings."""
    get = partial(app.api_route, methods=["GET", "HEAD"])

    @get("/")
    async def show_page() -> HTMLResponse:
        return HTMLResponse(page.HTML, headers=page.HEADERS)

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
        first = service.first()
        return {
            "apiKeys": needs_key,
            "keyRequired": needs_key,
            "charLimit": limits.characters,
            "frontendTimeout": 500,
            "language": {
                "source": {"code": first.source, "name": language_name(first.source)},
                "target": {"code": first.target, "name": language_name(first.target)},
            },
            "suggestions": False,
            "filesTranslation": False,
            "supportedFilesFormat": [],
        }


def _as_json(found: list[Translation], is_list: bool, with_alternatives: bool) -> dict[str, Any]:
    """Build LibreTranslate's response; each value is a list if `q` was one."""
    answer: dict[str, Any] = {"translatedText": [one.text for one in found]}
    if with_alternatives:
        answer["alternatives"] = [one.alternatives for one in found]
    detected = [one.detected for one in found if one.detected is not None]
    if detected:
        answer["detectedLanguage"] = [{"confidence": share, "language": code} for code, share in detected]
    return answer if is_list else {key: values[0] for key, values in answer.items()}


class _Guard:
    """API keys and rate limits."""

    def __init__(self, rate: RateLimit, keys: Collection[str]) -> None:
        self._rate = rate
        self._keys = [key.encode() for key in keys]

    def check(self, request: Request, fields: dict[str, Any]) -> None:
        key = str(fields.get("api_key") or "")
        given = key.encode(errors="replace")  # JSON can spell what no text can hold
        address = request.client.host if request.client else ""
        if self._keys and not any(hmac.compare_digest(given, known) for known in self._keys):
            self._rate.take(address)  # or keys could be guessed at full speed
            raise RequestError(403, "an API key is needed" if not key else "this API key is not known here")
        self._rate.take(key if self._keys else address)


async def _until_disconnect(request: Request, work: Awaitable[list[Translation]]) -> list[Translation]:
    """Await the work, but cancel it when the client disconnects."""
    task = asyncio.ensure_future(work)
    while not (await asyncio.wait([task], timeout=1.0))[0]:
        if await request.is_disconnected():
            task.cancel()
            raise disconnected()
    return task.result()


def _handle_errors(app: FastAPI) -> None:
    """Answer every error as {"error": "one sentence"}."""

    @app.exception_handler(RequestError)
    async def on_request_error(_: Request, error: RequestError) -> JSONResponse:
        return JSONResponse({"error": error.sentence}, error.status, error.headers)

    @app.exception_handler(HTTPException)
    async def on_http_error(request: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse(
            {"error": f"{request.method} {request.url.path}: {error.detail}"[:200]}, error.status_code, error.headers
        )


class _Counting:
    """Middleware that counts and times requests and turns an unexpected exception into a JSON error and a log line.

    Plain ASGI, which costs less per request than a Starlette middleware.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 0

        async def send_noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_noting_status)
        except asyncio.CancelledError:  # uvicorn, when the time to finish at shutdown is over
            if status:
                raise
            await JSONResponse({"error": "the server is stopping"}, 503)(scope, receive, send_noting_status)
        except Exception as error:
            log.error("%s %s: %s: %s", scope["method"], scope["path"], type(error).__name__, error)
            if status:  # the response has started
                raise
            await JSONResponse({"error": "this is a bug of the server"}, 500)(scope, receive, send_noting_status)
        finally:
            path = getattr(scope.get("route"), "path", "other")  # unknown paths would be unbounded labels
            self._metrics.requests.labels(path, status).inc()
            self._metrics.seconds.labels(path).observe(time.perf_counter() - started)
