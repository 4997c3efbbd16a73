"""`mt serve`."""

from ipaddress import ip_network
from pathlib import Path
from typing import Any

import click

from mt.cli import options
from mt.cli.options import path_type
from mt.errors import InputError
from mt.storage import atomic
from mt.storage.output_path import is_device, require_writable
from mt.text.lines import read_lines


def _limit(option: str, field: str, default: float, kind: Any, help_: str) -> options.Option:
    """Return an option whose value is a field of `Limits`."""
    return options.number_option(option, field, type=kind, default=default, show_default=True, help=help_)


@click.command()
@options.models_option(
    "A run folder or a model folder; may be repeated for other languages. Default: the newest finished run."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0: all interfaces.")
@click.option("--port", type=click.IntRange(0, 65535), default=5000, show_default=True, help="0 takes a free one.")
@click.option("--api-keys", type=path_type, help="File of keys, one a line; clients must then send one as api_key.")
@_limit("--max-body", "body", 65536, click.IntRange(min=100), "Bytes of a request.")
@_limit("--max-texts", "texts", 64, click.IntRange(min=1), "Texts of a request.")
@_limit("--max-characters", "characters", 5000, click.IntRange(min=1), "Characters of a request.")
@_limit("--max-waiting", "waiting", 2000, click.IntRange(min=1), "Sentences in the queue.")
@_limit("--timeout", "seconds", 30.0, click.FloatRange(0.1, 86_400), "Seconds for a request.")
@_limit("--rate-limit", "requests_per_minute", 600, click.IntRange(min=0), "Requests a minute per client; 0: no limit.")
@_limit("--max-file", "file", 10_000_000, click.IntRange(min=0), "Bytes of a document; 0: no documents.")
@_limit("--max-file-characters", "file_characters", 500_000, click.IntRange(min=1), "Characters of a document.")
@_limit("--file-timeout", "file_seconds", 300.0, click.FloatRange(1, 86_400), "Seconds for a document.")
@click.option("--suggestions", type=path_type, help="Take better translations (/suggest), appended to this JSONL file.")
@click.option(
    "--forwarded-allow-ips",
    default="",
    help="Proxies whose X-Forwarded-For is trusted: addresses or networks, comma-separated. Default: none.",
)
@options.glossary_options
@click.option("--device", default="auto", help="auto, cpu or cuda.")
@click.option("--compute-type", default="auto", help="Number format: auto, float32, int8, ...")
@options.verbose_option
@options.common_options
def serve(api_keys: Path | None, suggestions: Path | None, forwarded_allow_ips: str, **given: Any) -> None:
    """Serve models over HTTP: LibreTranslate's API, a web page, and /metrics for Prometheus.

    Example: mt serve --model runs/en-de --model runs/de-en
    """
    try:
        import py3langid  # noqa: F401

        from mt.extras.serving import app, server
    except ImportError as error:
        message = f"mt serve needs a package that is not installed ({error.name})"
        raise InputError(message, "pip install 'mt-train[serve]'") from None
    from mt.api.loading import find_models, glossary_of
    from mt.extras.serving.limits import Limits
    from mt.extras.serving.service import open_directions

    keys = _keys(api_keys)
    _check_proxies(forwarded_allow_ips)
    if suggestions is not None:
        _require_appendable(suggestions)
    terms = glossary_of(given["glossary"], given["keep"])
    socket = server.listen(given["host"], given["port"])  # before models are loaded: a port in use is reported at once
    choice = options.engine_choice({"engine": "auto", "shortlist": None, **given})
    directions = open_directions(find_models(given["model"], given["runs"]), choice, terms)
    limits = Limits(**{name: value for name, value in given.items() if name in Limits.__annotations__})
    server.serve(
        app.create_app(directions, limits, keys, suggestions),
        socket,
        drain_seconds=min(round(limits.seconds) + 1, 8),  # supervisors kill after 10 s
        forwarded_allow_ips=forwarded_allow_ips,
    )


def _check_proxies(proxies: str) -> None:
    for proxy in filter(None, map(str.strip, proxies.split(","))):
        try:
            ip_network(proxy if proxy != "*" else "::/0", strict=False)
        except ValueError:
            message = f"--forwarded-allow-ips {proxy}: neither an address nor a network"
            raise InputError(message, "name them as 10.0.0.2,192.168.0.0/16") from None


def _require_appendable(path: Path) -> None:
    """Create the file of suggestions, and its folder; raise an error if that is impossible."""
    require_writable(path, "--suggestions")
    if is_device(path):
        raise InputError(f"--suggestions {path}: not a regular file", "name another")
    with atomic.explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()


def _keys(path: Path | None) -> list[str]:
    if path is None:
        return []
    keys = [key.strip() for key in read_lines(path) if key.strip()]
    if not keys:
        raise InputError(f"{path}: no key in it", "write one a line, or leave out --api-keys")
    return keys
