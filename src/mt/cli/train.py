"""`mt train`."""

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mt.cli.completing import configurations
from mt.cli.options import debug_option, path_type, runs_option
from mt.cli.text import print_result
from mt.console import log
from mt.errors import InputError, MtError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mt.config import Config
    from mt.storage.run_dir import RunDir
    from mt.system.distributed import Distributed


@click.command()
@click.option("--config", type=path_type, required=True, shell_complete=configurations, help="The YAML configuration.")
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="Replace a value, as in model.d_model=256; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Check everything, estimate time and memory, and train nothing.")
@runs_option
@debug_option
def train(config: Path, changes: tuple[str, ...], dry_run: bool, runs: Path, debug: bool) -> None:
    """Train, or go on training: every stage from raw text to a model folder; the same command again resumes.

    On several GPUs or machines: torchrun --nproc-per-node 8 -m mt train --config FILE

    Example: mt train --config configs/demo.yaml --set training.max_steps=2000
    """
    from mt.system.distributed import init_distributed

    distributed = init_distributed(os.environ)
    if not distributed.is_main:
        log.setLevel(logging.ERROR)
    try:
        from mt.config import load_config
        from mt.data.optional import with_present_sources

        settings = load_config(config, changes)
        # One process looks for them: another machine may not have them, and they may come into being meanwhile.
        settings = distributed.broadcast(with_present_sources(settings) if distributed.is_main else settings)
        if dry_run:
            summary = _try(settings, runs, distributed)
        else:
            from mt.pipeline import run

            if settings.exports:
                from mt.extras.export.in_run import require_exports

                require_exports(settings)
            summary = run.run(settings, runs, distributed, _write_extras)
    except Exception as error:
        if not distributed.claims_error_report():  # another process has told the user
            sys.exit(error.exit_code if isinstance(error, MtError) else 1)
        raise
    distributed.destroy()
    if distributed.is_main:
        print_result(summary)


def _write_extras(config: "Config", run_dir: "RunDir") -> "Iterator[str]":
    """Write the exports and the report; yield lines of the summary."""
    from mt.extras.export.in_run import write_exports
    from mt.extras.reporting.report import update_report

    if config.exports:
        yield write_exports(config, run_dir)
    if config.training.report:
        yield f"report: {update_report(run_dir)}"


def _try(config: "Config", runs: Path, distributed: "Distributed") -> str:
    if distributed.world_size > 1:
        raise InputError("--dry-run is for one process", "start it without torchrun")
    from mt.extras.planning.dry_run import dry_run

    return dry_run(config, runs)
