"""The web pages, self-contained files, and the description of the API."""

import hashlib
import json
from base64 import b64encode
from importlib.resources import files
from typing import Any


def web_page(name: str) -> tuple[str, dict[str, str]]:
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


def api_description() -> dict[str, Any]:
    """Return the API in OpenAPI's format."""
    description: dict[str, Any] = json.loads(_content("spec.json"))
    return description


def _content(name: str) -> str:
    return (files("mt.extras.serving") / "web" / name).read_text(encoding="utf-8")
