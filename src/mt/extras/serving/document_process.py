"""Child process that translates one document, so that a hostile one cannot exhaust the server's memory or time.

It writes lines of JSON: first the beginning of the text as a string; then [sentences, whether to align them], which the
server answers with a list of [translation, words]; at the end an object, which is empty if all went well.
"""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mt.errors import InputError, MtError
from mt.extras.documents.formats import FORMATS, decode_utf8, document_format
from mt.extras.documents.segments import Segment, Translate, translate_segments
from mt.extras.documents.translating import translate_document
from mt.storage import atomic

if TYPE_CHECKING:
    from mt.decoding.alignment import Unit

MAX_MEMORY = 600_000_000  # bytes
NO_MEMORY = 12  # exit code


def main(name: str, output: str, characters: str, options: str) -> None:
    """Translate a document of the current directory; a failure is an object with `error` and `status`.

    Args:
        name, output: the files.
        characters: the most that may be translated in one call.
        options: of `translate_document`, as JSON.
    """

    def send(message: Any) -> None:
        print(json.dumps(message), flush=True)

    def translate(texts: list[str], aligned: bool) -> "list[tuple[str, Sequence[Unit]]]":
        if (length := sum(map(len, texts))) > int(characters):
            raise InputError(f"{name}: {length:,} characters, more than the {int(characters):,} allowed", "split it")
        send([texts, aligned])
        answer: list[tuple[str, list[Any]]] = json.loads(input())
        if not aligned:
            return [(text, ()) for text, _ in answer]
        from mt.decoding.alignment import Unit  # only now, as it takes memory

        return [(text, [Unit(*unit) for unit in units]) for text, units in answer]

    outcome: dict[str, Any] = {}
    try:
        with contextlib.suppress(ImportError):  # Windows has no such limits
            import resource

            resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY, MAX_MEMORY))
        source, arguments = Path(name), json.loads(options)
        if document_format(source) is None:
            _translate_plain(source, Path(output), translate, arguments["languages"], send)
        else:
            translate_document(source, Path(output), translate, **arguments, show_sample=send)
    except MtError as error:
        sentence = "; ".join(filter(None, (error.message.removesuffix("?"), error.hint)))
        outcome = {"error": sentence.replace("--", ""), "status": 400 if isinstance(error, InputError) else 503}
    except MemoryError:
        os._exit(NO_MEMORY)
    send(outcome)


def _translate_plain(
    source: Path,
    output: Path,
    translate: Translate,
    languages: tuple[str, str],
    show_sample: Callable[[str], None],
) -> None:
    """Translate plain text, whose line breaks stay; `InputError` if the name does not end in .txt."""
    if source.suffix.lower() != ".txt":
        endings = ", ".join(f".{kind}" for kind in ("txt", *FORMATS))
        raise InputError(f"{source}: the kind of this document is unknown", f"name it with one of {endings}")
    text = decode_utf8(source.read_bytes(), str(source))
    body = text.removeprefix("\ufeff")
    lines = body.splitlines(keepends=True)
    new = translate_segments([Segment((line,), "") for line in lines], translate, languages, show_sample).texts
    pieces = (texts[0] if texts else line for texts, line in zip(new, lines, strict=True))
    atomic.write_bytes(output, (text[: len(text) - len(body)] + "".join(pieces)).encode())


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # systemd sends it to all processes; the server ends this one
    try:
        main(*sys.argv[1:])
    except (EOFError, BrokenPipeError):  # the server has died
        os._exit(1)
