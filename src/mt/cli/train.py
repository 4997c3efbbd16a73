"""`mt train`."""

from pathlib import Path

import click

from mt.cli.options import config_options, debug_option, runs_option, set_option
from mt.cli.pipeline import jobs_option
from mt.cli.text import print_result
from mt.console import log


@click.command()
@config_options
@set_option
@jobs_option
@click.option("--dry-run", is_flag=True, help="Check everything, estimate time and memory, and train nothing.")
@runs_option
@debug_option
def train(config: Path, overrides: tuple[str, ...], jobs: int, dry_run: bool, runs: Path) -> None:
    """Train a model: every stage from raw text to a model folder; the same command again resumes.

    A file with `steps` is a pipeline (docs/pipelines.md), whose steps run in turn, or --jobs at once.

    On several GPUs or machines: torchrun --nproc-per-node 8 -m mt train --config FILE

    Example: mt train --config mine.yaml --set training.max_steps=2000
    """
    from mt.api import pipelines, training
    from mt.text.lines import refuse_pipe

    refuse_pipe(config)
    if pipelines.is_pipeline(config):
        if dry_run:
            print_result(pipelines.show_plan(config, overrides, runs, jobs))
        else:
            print_result(pipelines.run_pipeline(config, overrides, runs=runs, jobs=jobs))
        return
    if dry_run:
        print_result(training.dry_run(config, list(overrides), runs))
        return
    run = training.start(config, list(overrides), runs)
    if run.summary:  # empty in other ranks than 0
        print_result(run.summary)
        for line in run.verdict:
            log.info(line)
