"""`mt serve`."""

import math
from pathlib import Path
from typing import Any

import click

from mt.cli.completing import run_folders
from mt.cli.options import debug_option, find_models, path_type, runs_option
from mt.console import set_up_logging
from mt.errors import InputError


@click.command()
@click.option(
    "--model",
    "models",
    type=path_type,
    multiple=True,
    shell_complete=run_folders,
    help="A run folder or a model folder; several serve several languages. Default: the newest finished run.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at; 0.0.0.0 is every network.")
@click.option("--port", type=click.IntRange(0, 65535), default=5000, show_default=True, help="0 takes a free one.")
@click.option("--api-keys", type=path_type, help="File of keys, one a line; clients must then name one as api_key.")
@click.option("--max-body", type=click.IntRange(min=100), default=65536, show_default=True, help="Bytes of a request.")
@click.option("--max-texts", type=click.IntRange(min=1), default=64, show_default=True, help="Texts of a request.")
@click.option("--max-characters", type=click.IntRange(min=1), default=5000, show_default=True, help="Of a request.")
@click.option(
    "--max-waiting", type=click.IntRange(min=1), default=2000, show_default=True, help="Sentences in the queue."
)
@click.option(
    "--timeout",
    type=click.FloatRange(0.1, 86_400),
    default=30.0,
    show_default=True,
    callback=lambda _, __, seconds: _number(seconds),
    help="Seconds for a request.",
)
@click.option(
    "--rate-limit",
    type=click.IntRange(min=0),
    default=600,
    show_default=True,
    help="Requests a minute of a client; 0: any.",
)
@click.option(
    "--forwarded-allow-ips",
    default="",
    help="Proxies whose X-Forwarded-For names the client: addresses or networks with commas. Default: none.",
)
@click.option("--device", default="auto", help="auto, cpu or cuda.")
@click.option("--compute-type", default="auto", help="Number format: auto, float32, int8, ...")
@click.option("--verbose", "-v", is_flag=True, help="Say more, such as which engine runs.")
@runs_option
@debug_option
def serve(
    models: tuple[Path, ...],
    host: str,
    port: int,
    api_keys: Path | None,
    runs: Path,
    verbose: bool,
    **given: Any,
) -> None:
    """Serve models: LibreTranslate's interface for programs, a web page for people, /metrics for Prometheus.

    Example: mt serve --model runs/en-de --model runs/de-en
    """
    set_up_logging(verbose)
    try:
        import py3langid  # noqa: F401

        from mt.extras.serving.app import create_app
        from mt.extras.serving.server import listen
        from mt.extras.serving.server import serve as answer
    except ImportError as error:
        raise InputError(
            f"mt serve needs a package that is not installed ({error.name})",
            "pip install '.[serve]' in mt's own folder",
        ) from None
    from mt.decoding.engine import EngineChoice
    from mt.extras.serving.limits import Limits
    from mt.extras.serving.service import open_directions

    limits = Limits(
        body=given["max_body"],
        texts=given["max_texts"],
        characters=given["max_characters"],
        waiting=given["max_waiting"],
        seconds=given["timeout"],
        requests_per_minute=given["rate_limit"],
    )
    keys = _keys(api_keys)
    bound = listen(host, port)  # before models are read: a port in use is known at once
    choice = EngineChoice(device=given["device"], compute_type=given["compute_type"])
    directions = open_directions(find_models(models, runs), choice)
    answer(
        create_app(directions, limits, keys),
        bound,
        drain_seconds=min(round(limits.seconds) + 1, 8),  # supervisors kill after 10 s
        forwarded_allow_ips=given["forwarded_allow_ips"],
    )


def _number(seconds: float) -> float:
    """Refuses what is within all bounds, and no number."""
    if math.isnan(seconds):
        raise InputError("--timeout nan: not a number of seconds")
    return seconds


def _keys(path: Path | None) -> list[str]:
    if path is None:
        return []
    from mt.text.lines import read_lines

    keys = [key.strip() for key in read_lines(path) if key.strip()]
    if not keys:
        raise InputError(f"{path}: no key in it", "write one a line, or leave out --api-keys")
    return keys
