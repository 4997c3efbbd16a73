"""Request parsing and validation: JSON, forms and query strings."""

import asyncio
import codecs
import json
from typing import Any
from urllib.parse import parse_qs

from fastapi import Request as HttpRequest
from python_multipart.multipart import Field, create_form_parser, parse_options_header
from starlette.requests import ClientDisconnect

from mt.extras.serving.limits import Limits, RequestError
from mt.extras.serving.service import Request

_MAX_FIELDS = 100


async def read_fields(request: HttpRequest, limits: Limits) -> dict[str, Any]:
    """Read the fields of a request's body, or of its query string if the body is empty (as deep-translator sends them).

    A field that is repeated in a form has a list as its value.

    Raises:
        RequestError: 413, too large; 408, too slow; 400, neither JSON nor a form, or truncated.
    """
    body = await _body(request, limits)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not body and request.url.query:
        return _form(request.url.query.encode(), "the address")
    if kind == "multipart/form-data":
        return _multipart(request.headers["content-type"], body)
    if kind == "application/x-www-form-urlencoded":
        return _form(body, "the body")
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise RequestError(400, "the body is not JSON") from None
    if not isinstance(content, dict):
        raise RequestError(400, "the body is not a JSON object")
    return content


async def _body(request: HttpRequest, limits: Limits) -> bytes:
    too_large = RequestError(413, f"the body is larger than {limits.body:,} bytes")
    length, body = request.headers.get("content-length", ""), bytearray()
    if length.isdecimal() and int(length) > limits.body:
        raise too_large
    try:
        async with asyncio.timeout(limits.seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limits.body:
                    raise too_large
    except TimeoutError:
        message = f"the body did not arrive within {limits.seconds:g} s"
        raise RequestError(408, message, {"Connection": "close"}) from None
    except ClientDisconnect:
        raise RequestError(400, "the client has disconnected") from None
    return bytes(body)


def _form(text: bytes, source: str) -> dict[str, Any]:
    try:
        fields = parse_qs(text.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise RequestError(400, f"{source} is not a form of at most {_MAX_FIELDS} fields in UTF-8") from None
    return _unwrap_single(fields)


def _multipart(content_type: str, body: bytes) -> dict[str, Any]:
    """Parse multipart/form-data in UTF-8; files are refused."""
    fields: dict[str, list[str]] = {}

    def add(field: Field) -> None:
        if sum(map(len, fields.values())) == _MAX_FIELDS:
            raise ValueError(f"more than {_MAX_FIELDS} fields")
        fields.setdefault((field.field_name or b"").decode(), []).append((field.value or b"").decode())

    def refuse(_: object) -> None:
        raise ValueError("files are not translated")

    charset = parse_options_header(content_type)[1].get(b"charset", b"utf-8").decode("latin-1")
    try:
        if codecs.lookup(charset).name != "utf-8":
            raise LookupError
        parser = create_form_parser({"Content-Type": content_type}, add, refuse)  # type: ignore[dict-item]
        parser.write(body)
        parser.finalize()
    except LookupError:
        raise RequestError(400, f"the form's charset is {charset!r:.50}; only UTF-8 is read") from None
    except UnicodeDecodeError:
        raise RequestError(400, "the body is not a form in UTF-8") from None
    except ValueError as error:  # python_multipart's own errors are ValueErrors
        raise RequestError(400, f"the body is not a form: {error}"[:200]) from None
    return _unwrap_single(fields)


def _unwrap_single(fields: dict[str, list[str]]) -> dict[str, Any]:
    return {key: values[0] if len(values) == 1 else values for key, values in fields.items()}


def translation_request(fields: dict[str, Any], limits: Limits) -> Request:
    """Validate the fields of /translate; a RequestError (400) names one that is missing, invalid or too large."""
    texts = texts_of(fields, limits)
    form = _word(fields, "format", "text")
    if form not in ("text", "html"):
        raise RequestError(400, f"format is {form!r:.50}, neither text nor html")
    source, target = _word(fields, "source", "auto"), _word(fields, "target")
    number = fields.get("alternatives") or 0
    if isinstance(number, str) and number.isdecimal() and len(number) < 9:
        number = int(number)
    if type(number) is not int or not 0 <= number <= limits.alternatives:
        raise RequestError(400, f"alternatives must be a whole number from 0 to {limits.alternatives}")
    return Request(texts, source, target, form == "html", number, is_list=isinstance(fields["q"], list))


def texts_of(fields: dict[str, Any], limits: Limits) -> list[str]:
    """Validate the field `q`, a text or a list of texts, likewise."""
    value = fields.get("q")
    if value is None:
        raise RequestError(400, "q, the text, is missing")
    texts = value if isinstance(value, list) else [value]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise RequestError(400, "q must be a text or a list of texts")
    if len(texts) > limits.texts:
        raise RequestError(400, f"q has {len(texts)} texts, more than the {limits.texts} allowed")
    characters = sum(map(len, texts))
    if characters > limits.characters:
        raise RequestError(400, f"q has {characters:,} characters, more than the {limits.characters:,} allowed")
    if any("\ud800" <= character <= "\udfff" for text in texts for character in text):
        raise RequestError(400, "q holds half of a surrogate pair")
    return texts


def _word(fields: dict[str, Any], name: str, default: str = "") -> str:
    """Return a language or format."""
    value = fields.get(name) or default
    if not value:
        raise RequestError(400, f"{name} is missing")
    if not isinstance(value, str):
        raise RequestError(400, f"{name} must be a text")
    if len(value) > 40 or not value.isprintable():
        raise RequestError(400, f"{name} is no language or format")
    return value
