"""`mt demo`."""

from pathlib import Path
from shlex import quote

import click

from mt.cli.options import debug_option, runs_option, set_option
from mt.cli.text import print_result

_QUICK = tuple(  # fewer layers and steps, learning faster
    "name=demo-quick model.encoder_layers=2 model.decoder_layers=1 model.dropout=0 training.max_steps=500 "
    "training.validate_every=500 training.learning_rate=5.0e-3".split()
)
_SENTENCES = ("I love you very much", "The old woman does not drink the water.", "Where is your friend?")


@click.command()
@click.option("--quick", is_flag=True, help="Train for about a minute; the translations will have many mistakes.")
@set_option
@runs_option
@debug_option
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
