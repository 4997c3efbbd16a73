"""Request parsing and validation: JSON, forms and query strings."""

import asyncio
import codecs
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from fastapi import Request as HttpRequest
from python_multipart.multipart import Field, create_form_parser, parse_options_header
from starlette.requests import ClientDisconnect

from mt.extras.serving.limits import Limits, RequestError, disconnected
from mt.extras.serving.service import Request

_MOST_FIELDS = 100


async def fields_of(request: HttpRequest, limits: Limits) -> dict[str, Any]:
    """Read the fields of a request's body, or of its query string if the body is empty (as deep-translator sends them).

    Raises:
        RequestError: 413, too large; 408, too slow; 400, neither JSON nor a form, or truncated.
    """
    try:
        async with asyncio.timeout(limits.seconds):
            return await _fields(request, limits.body)
    except TimeoutError:
        raise RequestError(
            408, f"the body did not arrive within {limits.seconds:g} s", {"Connection": "close"}
        ) from None


async def _fields(request: HttpRequest, most_bytes: int) -> dict[str, Any]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await _body(request, most_bytes)
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


def _form(text: bytes, where: str) -> dict[str, Any]:
    try:
        fields = parse_qs(text.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise RequestError(400, f"{where} is not a form of at most {_MOST_FIELDS} fields in UTF-8") from None
    return _single(fields)


def _single(fields: Mapping[str, list[Any]]) -> dict[str, Any]:
    """Turn a field that occurs once into a value; a repeated field stays a list."""
    return {key: values[0] if len(values) == 1 else values for key, values in fields.items()}


async def _body(request: HttpRequest, most: int) -> bytes:
    """Read the body up to the limit."""
    too_large = RequestError(413, f"the body is larger than {most:,} bytes")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > most:
        raise too_large
    parts, size = [], 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise too_large
            parts.append(part)
    except ClientDisconnect:
        raise disconnected() from None
    return b"".join(parts)


def _multipart(content_type: str, body: bytes) -> dict[str, Any]:
    """Parse multipart/form-data in UTF-8; files are refused."""
    fields: dict[str, list[str]] = {}

    def take(field: Field) -> None:
        if sum(map(len, fields.values())) == _MOST_FIELDS:
            raise ValueError(f"more than {_MOST_FIELDS} fields")
        fields.setdefault((field.field_name or b"").decode(), []).append((field.value or b"").decode())

    def refuse(_: object) -> None:
        raise ValueError("files are not translated")

    charset = parse_options_header(content_type)[1].get(b"charset", b"utf-8").decode("latin-1")
    try:
        if codecs.lookup(charset).name != "utf-8":
            raise LookupError
        parser = create_form_parser({"Content-Type": content_type}, take, refuse)  # type: ignore[dict-item]
        parser.write(body)
        parser.finalize()
    except LookupError:
        raise RequestError(400, f"the form's charset is {charset!r:.50}; only UTF-8 is read") from None
    except UnicodeDecodeError:
        raise RequestError(400, "the body is not a form in UTF-8") from None
    except ValueError as error:  # python_multipart's own errors are ValueErrors
        raise RequestError(400, f"the body is not a form: {error}"[:200]) from None
    return _single(fields)


def translation_request(fields: dict[str, Any], limits: Limits) -> tuple[Request, bool]:
    """Validate the fields of /translate; the flag says whether `q` was a list.

    Raises:
        RequestError: 400, a field is missing, invalid or too large.
    """
    texts, is_list = _texts(fields, limits)
    form = _choice(fields, "format", "text")
    if form not in ("text", "html"):
        raise RequestError(400, f"format is {form!r:.50}, neither text nor html")
    request = Request(
        texts, _choice(fields, "source", "auto"), _choice(fields, "target"), form == "html", _number(fields, limits)
    )
    return request, is_list


def text_of(fields: dict[str, Any], limits: Limits) -> str:
    """Validate the field of /detect.

    Raises:
        RequestError: 400, it is missing, not a text or too long.
    """
    texts, _ = _texts(fields, limits)
    return "\n".join(texts)


def _texts(fields: dict[str, Any], limits: Limits) -> tuple[list[str], bool]:
    given = fields.get("q")
    if given is None:
        raise RequestError(400, "q, the text, is missing")
    texts = given if isinstance(given, list) else [given]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise RequestError(400, "q must be a text or a list of texts")
    if len(texts) > limits.texts:
        raise RequestError(400, f"q has {len(texts)} texts, more than the {limits.texts} allowed")
    characters = sum(map(len, texts))
    if characters > limits.characters:
        raise RequestError(400, f"q has {characters:,} characters, more than the {limits.characters:,} allowed")
    if any("\ud800" <= character <= "\udfff" for text in texts for character in text):
        raise RequestError(400, "q holds half of a surrogate pair")
    return texts, isinstance(given, list)


def _choice(fields: dict[str, Any], name: str, usual: str = "") -> str:
    value = fields.get(name) or usual
    if not value:
        raise RequestError(400, f"{name} is missing")
    if not isinstance(value, str):
        raise RequestError(400, f"{name} must be a text")
    if len(value) > 40 or not value.isprintable():
        raise RequestError(400, f"{name} is no language or format")
    return value


def _number(fields: dict[str, Any], limits: Limits) -> int:
    given = fields.get("alternatives") or 0
    number = int(given) if isinstance(given, str) and given.isdecimal() and len(given) < 9 else given
    if type(number) is not int or not 0 <= number <= limits.alternatives:
        raise RequestError(400, f"alternatives must be a whole number from 0 to {limits.alternatives}")
    return number
