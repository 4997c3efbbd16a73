"""`mt train`, `mt pipeline` and `mt demo`."""

from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mt.cli.options import common_options, config_options, set_option
from mt.cli.text import print_result
from mt.console import log, quoted
from mt.data.phrasebook import DEMO
from mt.errors import InputError, contradict
from mt.text.lines import refuse_pipe

if TYPE_CHECKING:
    from mt.api.runs import Run

_QUICK = tuple(  # overrides for fewer layers and steps, and a higher learning rate
    "name=demo-quick model.encoder_layers=2 model.decoder_layers=1 model.dropout=0 training.max_steps=500 "
    "training.validate_every=500 training.learning_rate=5.0e-3".split()
)
_SENTENCES = ("I love you very much", "The old woman does not drink the water.", "Where is your friend?")
_jobs_option = click.option(
    "--jobs", type=click.IntRange(1, 1000), default=1, show_default=True, help="Steps of a pipeline that run at once."
)


@click.command()
@config_options
@set_option
@_jobs_option
@click.option("--dry-run", is_flag=True, help="Check everything, estimate time and memory, and train nothing.")
@common_options
def train(config: Path, overrides: tuple[str, ...], jobs: int, dry_run: bool, runs: Path) -> None:
    """Train a model: every stage from raw text to a model folder; the same command again resumes.

    A file with `steps` is a pipeline (docs/pipelines.md), whose steps run in turn, or --jobs at once.

    On several GPUs or machines: torchrun --nproc-per-node 8 -m mt train --config FILE

    Example: mt train --config mine.yaml --set training.max_steps=2000
    """
    from mt.api import training
    from mt.extras.pipelines.loading import is_pipeline

    refuse_pipe(config)
    if is_pipeline(config):
        from mt.api import pipelines

        if dry_run:
            print_result(pipelines.show_plan(config, overrides, runs, jobs))
        else:
            print_result(pipelines.run_pipeline(config, overrides, runs=runs, jobs=jobs))
        return
    if jobs > 1:
        training.read_config(config, overrides)  # a file with a mistake may have been meant as a pipeline
        raise InputError("--jobs is for pipelines, and this file has no steps", "leave it out")
    if dry_run:
        print_result(training.dry_run(config, list(overrides), runs))
        return
    run = training.start(config, list(overrides), runs)
    if run.summary:  # empty in other ranks than 0
        _print_scores(run)


def _print_scores(run: "Run") -> None:
    print_result(run.summary)
    for line in run.verdict:
        log.info(line)


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
@_jobs_option
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
    contradict(emit is not None and jobs > 1, "--emit", "--jobs")
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

    A step is done, new, changed (its command or an input changed), lost (its output is gone) or waiting for others.

    Example: mt pipeline status student.yaml
    """
    from mt.api.pipelines import pipeline_status

    print_result(pipeline_status(config, overrides, runs))


@click.command()
@click.option("--quick", is_flag=True, help="Train for about a minute; the translations will have many mistakes.")
@set_option
@common_options
def demo(quick: bool, overrides: tuple[str, ...], runs: Path) -> None:
    """Train English to Italian on a small built-in corpus, score it and translate; the same command again resumes.

    The corpus is a synthetic phrasebook, so the scores say nothing about real text.

    Example: mt demo --quick
    """
    from mt.api.training import start

    run = start(DEMO, [*(_QUICK if quick else ()), *overrides], runs)
    if not run.summary:  # another rank than 0
        return
    _print_scores(run)
    translations = run.load().translate(list(_SENTENCES))
    print_result("\n".join(f"  {source} → {target}" for source, target in zip(_SENTENCES, translations, strict=True)))
    folder = quoted(str(run.path))
    print_result(
        f"the run is in {folder}; next: mt report {folder}, mt eval --model {folder} or mt serve --model {folder}\n"
        "your own text: mt init --name mine --train corpus.en corpus.de --output mine.yaml"
    )
