"""`mt train`."""

from pathlib import Path

import click

from mt.cli.options import debug_option, path_type, runs_option
from mt.cli.text import print_result


@click.command()
@click.option("--config", type=path_type, required=True, help="The YAML configuration.")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Replace a value, as in model.d_model=256.")
@runs_option
@debug_option
def train(config: Path, changes: tuple[str, ...], runs: Path, debug: bool) -> None:
    """Train, or go on training: every stage from raw text to a model folder; the same command again resumes.

    Example: mt train --config configs/demo.yaml --set training.max_steps=2000
    """
    from mt.config import load_config

    settings = load_config(config, changes)
    from mt import pipeline

    print_result(pipeline.run(settings, runs))
