"""`mt distill` and `mt backtranslate`: training text that a model makes."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from mt.cli.options import (
    Command,
    Decoding,
    contradict,
    debug_option,
    engine_choice,
    engine_options,
    find_models,
    models_option,
    path_type,
    runs_option,
    search_options,
    to_option,
)
from mt.cli.text import checked, print_result
from mt.console import set_up_logging
from mt.errors import InputError
from mt.text.languages import BACK_TRANSLATION_TAG


def _command(name: str, *more: Any) -> Callable[[Command], click.Command]:
    """The options that both commands have."""

    def decorate(command: Command) -> click.Command:
        for option in (
            debug_option,
            runs_option,
            engine_options,
            search_options,
            models_option,
            to_option,
            *more,
            click.option("--greedy", is_flag=True, help="Greedy search: a beam of one, and much faster."),
            click.option("--output", type=path_type, required=True, help="Where the translations go, aligned by line."),
            click.option("--input", "input_", type=path_type, required=True, help="The text to translate."),
        ):
            command = option(command)
        return click.command(name=name)(command)

    return decorate


_closest = click.option(
    "--closest-to", "references", type=path_type, help="The references: of the n best, take the one most like them."
)
_n_best = click.option(
    "--n-best", type=click.IntRange(1, 1000), help="With --closest-to: of how many; default: the whole beam."
)


@_command("distill", _n_best, _closest)
def distill(references: Path | None, n_best: int | None, **given: Any) -> None:
    """Translate training text with a teacher, for a student (Kim and Rush 2016); the same command resumes.

    The translations are often easier to learn than the references. List both as sources of a configuration:
    train: [{source: train.en, target: train.de}, {source: train.en, target: train.distilled.de, synthetic: true}]

    With --closest-to, of all that the teacher finds likely it is the translation nearest to what people wrote, by
    sentence BLEU (their "sequence-level interpolation").

    Example: mt distill --model runs/teacher --input train.en --output train.distilled.de
    """
    if references is None and n_best is not None:
        raise InputError("--n-best belongs to --closest-to", "add --closest-to FILE, or leave it out")
    contradict(given["greedy"] and references is not None, "--greedy", "--closest-to")
    if references is not None and n_best is None and given["sample"]:
        raise InputError("--closest-to needs to know how many translations to draw", "add --n-best N")
    _synthesize(given, "", 1 if references is None else n_best, references)


_tag = click.option(
    "--tag", default=BACK_TRANSLATION_TAG, show_default=True, help="Word before every translation; '' for none."
)


@_command("backtranslate", _tag)
def backtranslate(tag: str, **given: Any) -> None:
    """Translate monolingual target text back with a model of the opposite direction; the same command resumes.

    The result is the source side of pairs: train: [..., {source: mono.bt.en, target: mono.de, synthetic: true}]. A tag
    marks it, so that a model can tell it from what people wrote (Caswell et al. 2019). --sample makes more varied
    sources than search does (Edunov et al. 2018).

    Example: mt backtranslate --model runs/de-en --input mono.de --output mono.bt.en --sample
    """
    checked(tag, "--tag")
    if tag != tag.strip() or len(tag.split()) > 1:
        raise InputError(f"--tag: '{tag}' is not one word")
    _synthesize(given, tag)


def _synthesize(given: dict[str, Any], tag: str, n_best: int | None = 1, references: Path | None = None) -> None:
    set_up_logging(given["verbose"])
    decoding = Decoding.of(given, given["greedy"], n_best or 1)
    from mt.bundle.load_translator import open_model
    from mt.bundle.pretrained import learned_files
    from mt.decoding.synthesis import synthesize
    from mt.storage.manifest import read_manifest

    folders = find_models(given["models"], given["runs"])
    opened = open_model(folders[0], engine_choice(given), folders[1:])
    options = decoding.search(opened.settings.search, scores=False)
    if n_best is None:
        options = replace(options, n_best=options.beam_size)
    if references is not None and options.n_best < 2:
        raise InputError("--closest-to needs more than one translation to choose from", "add --beam N, or --n-best N")
    translator = opened.translator.to(given["to"])
    model_key = [
        opened.engine,
        translator.target_lang,
        *(learned_files(read_manifest(folder.root)["files"]) for folder in folders),
    ]
    lines = synthesize(translator, options, given["input_"], given["output"], model_key, tag, references=references)
    print_result(f"{given['output']}: {lines:,} lines")
