"""`mt pipeline`."""

from itertools import combinations
from pathlib import Path

import click

from mt.cli.options import common_options, config_options, set_option
from mt.cli.text import print_result
from mt.errors import contradict

jobs_option = click.option(
    "--jobs", type=click.IntRange(1, 1000), default=1, show_default=True, help="Steps of a pipeline that run at once."
)


class _DefaultRun(click.Group):
    """A group whose command `run` needs no name: `mt pipeline FILE`, or `mt pipeline --jobs 2 FILE`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = not args or args[0] in (*self.commands, *ctx.help_option_names)
        return super().parse_args(ctx, args if named else ["run", *args])


@click.group(cls=_DefaultRun)
def pipeline() -> None:
    """Run a recipe of several steps, described in one file; `mt train --config FILE` does it, too.

    Example: mt pipeline student.yaml --jobs 2
    """


@pipeline.command()
@config_options
@set_option
@click.option("--step", help="Run this step only; those that it needs must be done.")
@click.option("--dry-run", is_flag=True, help="Check everything, estimate time and disk, and run nothing.")
@click.option("--emit", type=click.Choice(["slurm"]), help="Print a script that submits each step as a job instead.")
@jobs_option
@common_options
def run(
    config: Path, overrides: tuple[str, ...], step: str | None, dry_run: bool, emit: str | None, jobs: int, runs: Path
) -> None:
    """Run the steps of a pipeline that are not done; the same command again resumes.

    CONFIG is a file with `steps`. Everything is checked before anything runs, and the plan is shown.

    Example: mt pipeline run student.yaml --jobs 2
    """
    from mt.api import pipelines

    given = {"--step": step is not None, "--dry-run": dry_run, "--emit": emit is not None}
    for one, other in combinations(given, 2):
        contradict(given[one] and given[other], one, other)
    if emit is not None:
        print_result(pipelines.slurm_script(config, overrides, runs))
    elif dry_run:
        print_result(pipelines.show_plan(config, overrides, runs, jobs))
    else:
        print_result(pipelines.run_pipeline(config, overrides, runs=runs, jobs=jobs, only=step))


@pipeline.command()
@config_options
@set_option
@common_options
def status(config: Path, overrides: tuple[str, ...], runs: Path) -> None:
    """Show the steps of a pipeline with their states, scores and costs.

    A step is done, new, changed (its command or input is another one now), lost (its output is) or waiting for others.

    Example: mt pipeline status student.yaml
    """
    from mt.api.pipelines import pipeline_status

    print_result(pipeline_status(config, overrides, runs))
