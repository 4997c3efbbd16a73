"""Translators for the tests of documents."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mt.decoding.alignment import Unit
from mt.extras.documents.segments import PLACEHOLDER, Translate
from mt.extras.documents.translating import translate_document


def same(texts: list[str]) -> list[str]:
    return list(texts)


def shout(texts: list[str]) -> list[str]:
    """Translate into capitals, placeholders excepted."""
    return [re.sub(r"[a-zäöü]+", lambda found: found[0].upper(), text) if not PLACEHOLDER.search(text) else
            "".join(part if PLACEHOLDER.fullmatch(part) else part.upper()
                    for part in re.split(f"({PLACEHOLDER.pattern})", text, flags=re.VERBOSE) if part is not None)
            for text in texts]  # fmt: skip


Align = Callable[[list[str]], Sequence[tuple[str, Sequence[Unit]]]]


def translator(translate: Callable[[list[str]], list[str]], align: Align | None = None) -> Translate:
    """Return what documents are translated by; without `align`, they are translated piece by piece."""

    def translate_or_align(texts: list[str], aligned: bool) -> Sequence[tuple[str, Sequence[Unit]]]:
        if not aligned:
            return [(text, ()) for text in translate(texts)]
        return [("", ()) for _ in texts] if align is None else align(texts)

    return translate_or_align


def translated(
    path: Path, translate: Callable[[list[str]], list[str]], align: Align | None = None, **options: Any
) -> bytes:
    output = path.with_name(f"translated{path.suffix}")
    translate_document(path, output, translator(translate, align), **options)
    return output.read_bytes()
