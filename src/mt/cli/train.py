"""`mt train` and `mt demo`."""

from pathlib import Path
from shlex import quote

import click

from mt.cli.options import common_options, config_options, set_option
from mt.cli.pipeline import jobs_option
from mt.cli.text import print_result
from mt.console import log

_QUICK = tuple(  # fewer layers and steps, learning faster
    "name=demo-quick model.encoder_layers=2 model.decoder_layers=1 model.dropout=0 training.max_steps=500 "
    "training.validate_every=500 training.learning_rate=5.0e-3".split()
)
_SENTENCES = ("I love you very much", "The old woman does not drink the water.", "Where is your friend?")


@click.command()
@config_options
@set_option
@jobs_option
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
    from mt.text.lines import refuse_pipe

    refuse_pipe(config)
    if is_pipeline(config):
        from mt.api import pipelines

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
    from mt.data.phrasebook import DEMO

    run = start(DEMO, [*(_QUICK if quick else ()), *overrides], runs)
    if not run.summary:  # another rank than 0
        return
    print_result(run.summary)
    translations = run.load().translate(list(_SENTENCES))
    print_result("\n".join(f"  {source} → {target}" for source, target in zip(_SENTENCES, translations, strict=True)))
    folder = quote(str(run.path))
    print_result(
        f"the run is in {folder}; next: mt report {folder}, mt eval --model {folder} or mt serve --model {folder}\n"
        "your own text: mt init --name mine --train corpus.en corpus.de --output mine.yaml"
    )
