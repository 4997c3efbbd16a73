"""`mt train`."""

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mt.cli.completion import configurations
from mt.cli.options import debug_option, path_type, runs_option, set_option
from mt.cli.text import print_result
from mt.console import log
from mt.errors import InputError, MtError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mt.config import Config
    from mt.storage.run_dir import RunDir


@click.command()
@click.option("--config", type=path_type, required=True, shell_complete=configurations, help="The YAML configuration.")
@set_option
@click.option("--dry-run", is_flag=True, help="Check everything, estimate time and memory, and train nothing.")
@runs_option
@debug_option
def train(config: Path, overrides: tuple[str, ...], dry_run: bool, runs: Path) -> None:
    """Train a model: every stage from raw text to a model folder; the same command again resumes.

    On several GPUs or machines: torchrun --nproc-per-node 8 -m mt train --config FILE

    Example: mt train --config configs/demo.yaml --set training.max_steps=2000
    """
    from mt.system.distributed import init_distributed

    distributed = init_distributed(os.environ)
    if not distributed.is_main:
        log.setLevel(logging.ERROR)
    try:
        from mt.config import load_config
        from mt.data.prepare import drop_missing_sources

        settings = load_config(config, overrides)
        # Only rank 0 looks for optional sources: other machines may lack them, and they may appear meanwhile.
        settings = distributed.broadcast(drop_missing_sources(settings) if distributed.is_main else settings)
        if dry_run:
            summary = _dry_run(settings, runs, distributed.world_size)
        else:
            if settings.exports:
                from mt.extras.export.exporting import require_packages

                require_packages(*settings.exports)
            from mt.pipeline import run

            summary = run.run(settings, runs, distributed, _write_extras)
    except Exception as error:
        if not distributed.claims_error_report():  # another rank reports it
            sys.exit(error.exit_code if isinstance(error, MtError) else 1)
        raise
    distributed.destroy()
    if distributed.is_main:
        print_result(summary)


def _write_extras(config: "Config", run_dir: "RunDir") -> "Iterator[str]":
    """Write the exports and the report; yield lines of the summary."""
    from mt.extras.export.exporting import write_exports
    from mt.extras.reporting.report import update_report

    if config.exports:
        yield write_exports(config, run_dir)
    if config.training.report:
        yield f"report: {update_report(run_dir)}"


def _dry_run(config: "Config", runs: Path, world_size: int) -> str:
    if world_size > 1:
        raise InputError("--dry-run is for one process", "start it without torchrun")
    from mt.extras.planning.dry_run import dry_run

    return dry_run(config, runs)
