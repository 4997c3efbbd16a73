"""The server's interface: LibreTranslate's, a page for people, and metrics.

https://docs.libretranslate.com describes the requests; an error is {"error": "one sentence"} with a status code.
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
from mt.extras.serving.limits import Limits, RateLimit
from mt.extras.serving.metrics import Metrics
from mt.extras.serving.problems import RequestError, gone
from mt.extras.serving.requests import fields_of, text_of, translation_request
from mt.extras.serving.service import Direction, Service, Translation
from mt.text.languages import language_name


def create_app(directions: list[Direction], limits: Limits, keys: Collection[str] = ()) -> FastAPI:
    """The server as an ASGI application.

    Args:
        directions: what it can translate.
        limits: what it allows.
        keys: those that clients must name one of; none: anybody may ask.
    """
    metrics = Metrics()
    service = Service(directions, limits, metrics)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(title="mt", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    _handle_problems(app)
    app.add_middleware(_Counting, metrics=metrics)
    app.add_middleware(CORSMiddleware, allow_origins=["*"], allow_methods=["GET", "POST"], allow_headers=["*"])
    guard = _Guard(RateLimit(limits.requests_per_minute), keys)

    _answer_questions_about_itself(app, service, metrics, limits, needs_key=bool(keys))

    @app.post("/translate")
    async def translate(request: Request) -> Response:
        fields = await fields_of(request, limits)
        guard.check(request, fields)
        wanted, is_list = translation_request(fields, limits)
        found = await _unless_gone(request, service.translate(wanted))
        return JSONResponse(_as_json(found, is_list, wanted.alternatives > 0))

    @app.post("/detect")
    async def detect(request: Request) -> Response:
        fields = await fields_of(request, limits)
        guard.check(request, fields)
        text = text_of(fields, limits)
        return JSONResponse(await service.in_thread(lambda: service.detect(text)))

    return app


def _answer_questions_about_itself(
    app: FastAPI, service: Service, metrics: Metrics, limits: Limits, needs_key: bool
) -> None:
    """What needs no text: the page, and what programs ask before they send one."""
    look = partial(app.api_route, methods=["GET", "HEAD"])

    @look("/")
    async def show_page() -> HTMLResponse:
        return HTMLResponse(page.HTML, headers=page.HEADERS)

    @look("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @look("/metrics")
    async def show_metrics() -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @look("/languages")
    async def languages() -> list[dict[str, Any]]:
        return service.languages()

    @look("/frontend/settings")
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
    """LibreTranslate's answer: each value is a list where the question was one."""
    answer: dict[str, Any] = {"translatedText": [one.text for one in found]}
    if with_alternatives:
        answer["alternatives"] = [one.alternatives for one in found]
    detected = [one.detected for one in found if one.detected is not None]
    if detected:
        answer["detectedLanguage"] = [{"confidence": share, "language": code} for code, share in detected]
    return answer if is_list else {key: values[0] for key, values in answer.items()}


class _Guard:
    """Lets in who may ask, as often as they may."""

    def __init__(self, rate: RateLimit, keys: Collection[str]) -> None:
        self._rate = rate
        self._keys = [key.encode() for key in keys]

    def check(self, request: Request, fields: dict[str, Any]) -> None:
        key = str(fields.get("api_key") or "")
        given = key.encode(errors="replace")  # JSON can spell what no text can hold
        address = request.client.host if request.client else ""
        if self._keys and not any(hmac.compare_digest(given, known) for known in self._keys):
            self._rate.take(address)  # or keys could be guessed without end
            raise RequestError(403, "an API key is needed" if not key else "this API key is not known here")
        self._rate.take(key if self._keys else address)


async def _unless_gone(request: Request, work: Awaitable[list[Translation]]) -> list[Translation]:
    """Does the work, but for a client that has hung up: nobody would read the answer."""
    task = asyncio.ensure_future(work)
    while not (await asyncio.wait([task], timeout=1.0))[0]:
        if await request.is_disconnected():
            task.cancel()
            raise gone()
    return task.result()


def _handle_problems(app: FastAPI) -> None:
    """Every failure is {"error": "one sentence"}."""

    @app.exception_handler(RequestError)
    async def explained(_: Request, problem: RequestError) -> JSONResponse:
        return JSONResponse({"error": problem.sentence}, problem.status, problem.headers)

    @app.exception_handler(HTTPException)
    async def not_there(request: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse(
            {"error": f"{request.method} {request.url.path}: {error.detail}"[:200]}, error.status_code, error.headers
        )


class _Counting:
    """Counts and times every request; a bug of ours is an answer, too, and a line in the log.

    Written against ASGI itself, since it is in the way of every request.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except asyncio.CancelledError:  # uvicorn, when the time to finish at shutdown is over
            if status:
                raise
            await JSONResponse({"error": "the server is stopping"}, 503)(scope, receive, noting)
        except Exception as error:
            log.error("%s %s: %s: %s", scope["method"], scope["path"], type(error).__name__, error)
            if status:  # an answer was begun, and cannot be taken back
                raise
            await JSONResponse({"error": "this is a bug of the server"}, 500)(scope, receive, noting)
        finally:
            path = getattr(scope.get("route"), "path", "other")  # a path that is none of ours could be anything
            self._metrics.requests.labels(path, status).inc()
            self._metrics.seconds.labels(path).observe(time.perf_counter() - started)
