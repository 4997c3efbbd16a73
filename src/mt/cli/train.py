"""`mt train`."""

import logging
import os
import sys
from pathlib import Path

import click

from mt.cli.options import debug_option, path_type, runs_option
from mt.cli.text import print_result
from mt.console import log
from mt.errors import MtError


@click.command()
@click.option("--config", type=path_type, required=True, help="The YAML configuration.")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Replace a value, as in model.d_model=256.")
@runs_option
@debug_option
def train(config: Path, changes: tuple[str, ...], runs: Path, debug: bool) -> None:
    """Train, or go on training: every stage from raw text to a model folder; the same command again resumes.

    On several GPUs or machines: torchrun --nproc-per-node 8 -m mt train --config FILE

    Example: mt train --config configs/demo.yaml --set training.max_steps=2000
    """
    from mt.world import join

    world = join(os.environ)
    if not world.is_main:
        log.setLevel(logging.ERROR)
    try:
        from mt.config import load_config

        settings = load_config(config, changes)
        from mt import pipeline

        summary = pipeline.run(settings, runs, world)
    except Exception as error:
        if not world.speaks():  # another process has told the user
            sys.exit(error.exit_code if isinstance(error, MtError) else 1)
        raise
    world.leave()
    if world.is_main:
        print_result(summary)
