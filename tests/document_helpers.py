"""Translators for the tests of documents."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mt.extras.documents.segments import PLACEHOLDER
from mt.extras.documents.translating import translate_document


def same(texts: list[str]) -> list[str]:
    return list(texts)


def shout(texts: list[str]) -> list[str]:
    """Translate into capitals, placeholders excepted."""
    return [re.sub(r"[a-zäöü]+", lambda found: found[0].upper(), text) if not PLACEHOLDER.search(text) else
            "".join(part if PLACEHOLDER.fullmatch(part) else part.upper()
                    for part in re.split(f"({PLACEHOLDER.pattern})", text, flags=re.VERBOSE) if part is not None)
            for text in texts]  # fmt: skip


def translated(path: Path, translate: Callable[[list[str]], list[str]], **options: Any) -> bytes:
    output = path.with_name(f"translated{path.suffix}")
    translate_document(path, output, translate, **options)
    return output.read_bytes()
