"""Request parsing and validation: JSON, forms and query strings."""

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from fastapi import Request as HttpRequest
from python_multipart.multipart import Field, File, create_form_parser, parse_options_header
from starlette.requests import ClientDisconnect

from mt.extras.serving.files import Job
from mt.extras.serving.limits import Limits, RequestError
from mt.extras.serving.service import Request
from mt.storage.atomic import explained

_OTHER_FIELDS = 36  # of a form, beside the texts


async def read_fields(request: HttpRequest, limits: Limits) -> dict[str, Any]:
    """Read the fields of a request's body, or of its query string if the body is empty (as deep-translator sends them).

    A field that is repeated in a form has a list as its value.

    Raises:
        RequestError: 413, too large; 408, too slow; 400, neither JSON nor a form, or truncated.
    """
    body, max_fields = await _body(request, limits.body, limits.seconds), limits.texts + _OTHER_FIELDS
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not body and request.url.query:
        return _form(request.url.query.encode(), "the address", max_fields)
    if kind == "multipart/form-data":
        return _multipart(request.headers["content-type"], body, max_fields)
    if kind == "application/x-www-form-urlencoded":
        return _form(body, "the body", max_fields)
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise RequestError(400, "the body is not JSON") from None
    if not isinstance(content, dict):
        raise RequestError(400, "the body is not a JSON object")
    return content


async def read_document(
    request: HttpRequest, limits: Limits, folder: Path, count: Callable[[int], None]
) -> dict[str, Any]:
    """Read a form with a document and write the document into a folder; the field `file` becomes its path.

    Args:
        count: called with the size of each part that arrives; may raise.

    Raises:
        RequestError: as from `read_fields`, or 400 for a form without a document.
        MachineError: the document cannot be written.
    """
    paths: list[Path] = []

    def save(file: File) -> None:
        if paths or file.field_name != b"file":
            raise RequestError(400, "a request has one document, in the field file")
        paths.append(folder / file_name((file.file_name or b"").decode(errors="replace")))
        if file.size == 0:
            raise RequestError(400, f"{paths[0].name}: empty")
        file.file_object.seek(0)
        with explained(paths[0]):
            paths[0].write_bytes(file.file_object.read())

    content_type = request.headers.get("content-type", "")
    if not content_type.lower().startswith("multipart/form-data"):
        raise RequestError(400, "a document is sent as multipart/form-data")
    body = await _body(request, limits.file, limits.file_seconds, count)
    fields = await asyncio.to_thread(_multipart, content_type, body, _OTHER_FIELDS, save)
    if not paths:
        raise RequestError(400, "file, the document, is missing")
    return {**fields, "file": paths[0]}


def file_name(name: str) -> str:
    """Return the last part of a path of any system, as a name that every file system takes."""
    last = "".join(filter(str.isprintable, re.split(r"[/\\]", name)[-1])).strip(". ")
    path = Path(re.sub(r'[<>:"|?*]', "_", last) or "document")
    stem, suffix = (part.encode()[:120].decode(errors="ignore") for part in (path.stem, path.suffix))
    return stem + suffix


async def _body(
    request: HttpRequest, max_bytes: int, seconds: float, count: Callable[[int], object] = lambda _: None
) -> bytes:
    too_large = RequestError(413, f"the body is larger than {max_bytes:,} bytes")
    length, body = request.headers.get("content-length", ""), bytearray()
    if length.isdecimal() and int(length) > max_bytes:
        raise too_large
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                count(len(chunk))
                body += chunk
                if len(body) > max_bytes:
                    raise too_large
    except TimeoutError:
        message = f"the body did not arrive within {seconds:g} s"
        raise RequestError(408, message, {"Connection": "close"}) from None
    except ClientDisconnect:
        raise RequestError(400, "the client has disconnected") from None
    return bytes(body)


def _form(text: bytes, source: str, max_fields: int) -> dict[str, Any]:
    try:
        fields = parse_qs(text.decode(), keep_blank_values=True, errors="strict", max_num_fields=max_fields)
    except ValueError:
        raise RequestError(400, f"{source} is not a form of at most {max_fields} fields in UTF-8") from None
    return _unwrap_single(fields)


def _refuse(_: object) -> None:
    raise ValueError("files are for /translate_file")


def _multipart(
    content_type: str, body: bytes, max_fields: int, on_file: Callable[[File], None] = _refuse
) -> dict[str, Any]:
    fields: dict[str, list[str]] = {}

    def add(field: Field) -> None:
        if sum(map(len, fields.values())) == max_fields:
            raise ValueError(f"more than {max_fields} fields")
        fields.setdefault((field.field_name or b"").decode(), []).append((field.value or b"").decode())

    charset = parse_options_header(content_type)[1].get(b"charset", b"utf-8").decode("latin-1")
    if charset.lower() not in ("utf-8", "utf8", "utf_8"):  # `codecs.lookup` would keep every unknown name in memory
        raise RequestError(400, f"the form's charset is {charset!r:.50}; only UTF-8 is read")
    headers, config = {"Content-Type": content_type}, {"MAX_MEMORY_FILE_SIZE": len(body)}  # no temporary file
    try:
        parser = create_form_parser(headers, add, on_file, config)  # type: ignore[arg-type]
        parser.write(body)
        parser.finalize()
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
    alternatives = fields.get("alternatives") or 0
    if isinstance(alternatives, str) and alternatives.isdecimal() and len(alternatives) < 9:
        alternatives = int(alternatives)
    if type(alternatives) is not int or not 0 <= alternatives <= limits.alternatives:
        raise RequestError(400, f"alternatives must be a whole number from 0 to {limits.alternatives}")
    return Request(texts, source, target, form == "html", alternatives, is_list=isinstance(fields["q"], list))


def document_request(fields: dict[str, Any]) -> Job:
    """Validate the fields of /translate_file likewise."""
    longest = {"columns": 1000, "progress": 40}
    columns, progress = (_word(fields, name, "", longest[name]) if fields.get(name) else "" for name in longest)
    return Job(fields["file"], _word(fields, "source", "auto"), _word(fields, "target"), columns, progress)


def suggestion(fields: dict[str, Any], limits: Limits) -> dict[str, str]:
    """Validate the fields of /suggest likewise: a text, its better translation, and their languages."""
    for name in ("q", "s"):
        texts_of(fields, limits, name)
        if not isinstance(fields[name], str) or not fields[name].strip():
            raise RequestError(400, f"{name} must be a text")
    return {"q": fields["q"], "s": fields["s"], "source": _word(fields, "source"), "target": _word(fields, "target")}


def texts_of(fields: dict[str, Any], limits: Limits, name: str = "q") -> list[str]:
    """Validate a field that is a text or a list of texts likewise; return the texts."""
    value = fields.get(name)
    if value is None:
        raise RequestError(400, f"{name}, the text, is missing")
    texts = value if isinstance(value, list) else [value]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise RequestError(400, f"{name} must be a text or a list of texts")
    if len(texts) > limits.texts:
        raise RequestError(400, f"{name} has {len(texts)} texts, more than the {limits.texts} allowed")
    characters = sum(map(len, texts))
    if characters > limits.characters:
        raise RequestError(400, f"{name} has {characters:,} characters, more than the {limits.characters:,} allowed")
    if any("\ud800" <= character <= "\udfff" for text in texts for character in text):
        raise RequestError(400, f"{name} holds half of a surrogate pair")
    return texts


def _word(fields: dict[str, Any], name: str, default: str = "", max_length: int = 40) -> str:
    """Return a short field, such as a language or a format."""
    value = fields.get(name) or default
    if not value:
        raise RequestError(400, f"{name} is missing")
    if not isinstance(value, str):
        raise RequestError(400, f"{name} must be a text")
    if len(value) > max_length or not value.isprintable():
        raise RequestError(400, f"{name} is too long or not printable")
    return value
