"""Texts to score a model on: files that the user names, or a split of the model's run."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeGuard

from mt.config import DataConfig
from mt.data.eval_texts import EvalText, read_pair, read_texts
from mt.decoding.settings import TranslationSettings
from mt.errors import InputError
from mt.storage.find_model import run_of, run_of_checkpoint
from mt.storage.run_dir import ModelDir, RunDir
from mt.text.languages import chosen_language


def owner(folder: ModelDir) -> RunDir | None:
    """Return the run that a model folder or checkpoint lies in, or None if it was moved out."""
    return run_of(folder) or run_of_checkpoint(folder)


def has_split(run: RunDir | None, split: str) -> TypeGuard[RunDir]:
    """Return True if a run has a `valid` or `test` split."""
    return run is not None and run.text_file(split, "source").is_file()


def pair_text(source: Path, reference: Path, data: DataConfig, to: str | None, source_lang: str | None) -> EvalText:
    """Read two files as a text in a direction of a model; None stands for its only target, or an unknown source.

    Raises:
        InputError: they have different numbers of lines, or none, or the model lacks a language.
    """
    target = chosen_language(data.target_lang, to)
    if source_lang is not None:
        source_lang = chosen_language(data.source_lang, source_lang, "source")
    text = read_pair(source, reference, target)
    if source_lang is None:
        return text
    return replace(text, source_lang=data.own_source(source_lang), zero_shot=(source_lang, target) not in data.pairs)


def run_texts(
    folder: ModelDir, split: str, data: DataConfig, to: str | None, source_lang: str | None
) -> list[EvalText]:
    """Read the `valid` or `test` split of a model's run, in all directions or those of some languages.

    Raises:
        InputError: the model has no such split, or the split has no sentence.
    """
    if to is not None:
        chosen_language(data.target_lang, to)
    if source_lang is not None:
        source_lang = data.own_source(chosen_language(data.source_lang, source_lang, "source"))
    name, run = "validation" if split == "valid" else "test", owner(folder)
    if not has_split(run, split):
        raise InputError(f"{folder.root}: no {name} set beside this model", "give --source FILE --reference FILE")
    texts = [
        text
        for text in read_texts(run, split, data)
        if to in (None, text.target_lang) and source_lang in (None, text.source_lang)
    ]
    if not any(text.sources for text in texts):
        wanted = "".join(f" {word} {code}" for word, code in (("from", source_lang), ("in", to)) if code)
        raise InputError(f"{folder.root}: its {name} set has no sentence{wanted}")
    return texts


def results_name(data: DataConfig, source: Path | None, source_lang: str | None, to: str | None) -> str:
    """Return the name of the files with the scores of a text, in some languages of a model; None: its test set, all."""
    source_lang = source_lang if len(data.source_lang) > 1 else None
    to = to if len(data.target_lang) > 1 else None
    direction = f"from-{source_lang}" if source_lang and not to else "-".join(filter(None, (source_lang, to)))
    return f"{source.stem if source else 'test'}{f'.{direction}' if direction else ''}"


def texts_in(settings: TranslationSettings, texts: Sequence[EvalText]) -> list[EvalText]:
    """Return the texts whose languages an ensemble has, which may be fewer than the first model's."""
    sources, targets = ("", *settings.source_langs), settings.target_langs
    matching = [text for text in texts if text.source_lang in sources and text.target_lang in targets]
    if not matching:
        raise InputError("there is no text in a language that all of these models have", "leave some of them out")
    return matching


def refuse_test_text(folder: ModelDir, data: DataConfig, texts: Sequence[EvalText]) -> None:
    """Refuse to tune on the test set of a model's run: its score would then be worthless."""
    run = owner(folder)
    if not has_split(run, "test"):
        return
    for test in read_texts(run, "test", data):
        if any(text.sources == test.sources or text.references == test.references for text in texts):
            reason = f"this is the test set of {run.root}, and what is chosen on it cannot be scored on it"
            hint = "leave out --source and --reference to tune on the validation set"
            raise InputError(f"--tune-length-penalty: {reason}", hint)
