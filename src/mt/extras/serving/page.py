"""The web page: one self-contained file with a strict content security policy."""

import hashlib
from base64 import b64encode
from importlib.resources import files


def _source(value: str) -> str:
    """Return the hash source of an inline style or script for the content security policy."""
    return f"'sha256-{b64encode(hashlib.sha256(value.encode()).digest()).decode()}'"


_WEB = files("mt.extras.serving") / "web"
_STYLE, _SCRIPT = ((_WEB / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))

HTML = (_WEB / "page.html").read_text(encoding="utf-8").replace("STYLE", _STYLE).replace("SCRIPT", _SCRIPT)
HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; style-src {_source(_STYLE)}; script-src {_source(_SCRIPT)}; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
