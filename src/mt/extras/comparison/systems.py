"""What is compared: translations that runs have in their eval/, plain files, or new translations of a given text."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mt.bundle.load_translator import open_model, read_config
from mt.config.data import DataConfig
from mt.console import log
from mt.data.eval_texts import EvalText, nfc_lines
from mt.decoding.engine import EngineChoice
from mt.errors import InputError
from mt.evaluation.test_set import search_options
from mt.extras.comparison.significance import System
from mt.metrics.scores import bleu_tokenizer, refuse_missing_tokenizer
from mt.storage.find_model import find_model, run_of
from mt.storage.run_dir import RunDir
from mt.text.languages import chosen_language
from mt.text.lines import read_lines

_OTHER_TEXT = "give --source FILE --reference FILE, and all models translate that"


@dataclass(frozen=True)
class Comparison:
    """A test text in one language and what each system made of it, the baseline first.

    Attributes:
        text: without sources where only references are known.
        tokenize: BLEU's tokenizer.
    """

    text: EvalText
    systems: list[System]
    tokenize: str


def stored_translations(
    paths: Sequence[Path], runs: Path, test_set: str, method: str | None, to: str | None
) -> list[Comparison]:
    """What the runs' eval/ has of a test set, and files beside it, one comparison a language.

    Args:
        paths: run folders and files of translations, the baseline first.
        runs: the folder that holds the run folders.
        test_set: the name of its files.
        method: the search method; None takes beam where all have it.
        to: one language only.

    Raises:
        InputError: a run has no such translations, or those of another text.
    """
    stored = {number: _Stored.find(path, runs, test_set) for number, path in enumerate(paths) if _is_folder(path)}
    if not stored:
        raise InputError("translations alone cannot be compared", "give --reference FILE, aligned with them by line")
    first = next(iter(stored.values()))
    chosen = _common_method(list(stored.values()), method)
    languages = _common_languages(list(stored.values()), to)
    if len(languages) > 1 and len(stored) < len(paths):
        raise InputError(
            f"{paths[0]}: the test set is in {', '.join(languages)}; which of them the files are in is not said",
            f"choose with --to {languages[0]}",
        )
    comparisons = []
    for language in languages:
        text = first.text(language)
        for other in stored.values():
            _same_text(first, other, language)
        systems = [
            System(str(path), stored[number].hypotheses(language, chosen) if number in stored else _lines_of(path))
            for number, path in enumerate(paths)
        ]
        tokenize = bleu_tokenizer(first.bleu_tokenize, language)
        comparisons.append(_checked(Comparison(text, systems, tokenize)))
    return comparisons


def new_translations(
    paths: Sequence[Path],
    runs: Path,
    source: Path | None,
    reference: Path,
    method: str | None,
    to: str | None,
    choice: EngineChoice,
) -> Comparison:
    """Translations of a given text by each model; files among the paths are such translations already.

    Args:
        paths: run and model folders, and files, the baseline first.
        runs: the folder that holds the run folders.
        source: what to translate; not needed for files alone.
        reference: aligned with it by line.
        method: greedy or beam; None is beam.
        to: the language, where models have several.
        choice: the engine.
    """
    models = {number: find_model(path, runs) for number, path in enumerate(paths) if _is_folder(path)}
    if models and source is None:
        raise InputError(f"--reference alone gives {paths[next(iter(models))]} nothing to translate", "give --source")
    searched = _searched(method)
    if method is not None and not models:
        raise InputError("--method: nothing is translated here", "leave it out, or compare models")
    sources = [] if source is None else list(read_lines(source))
    references = nfc_lines(read_lines(reference), reference)
    if source is not None and len(sources) != len(references):
        raise InputError(f"{source} has {len(sources)} lines but {reference} has {len(references)}")
    configs = {number: read_config(model) for number, model in models.items()}
    languages = {chosen_language(config.data.target_lang, to) for config in configs.values()}
    if len(languages) > 1:
        raise InputError(f"the models translate into different languages: {', '.join(sorted(languages))}")
    language = next(iter(languages), to or "")
    systems = []
    for number, path in enumerate(paths):
        if number in models:
            log.info("translating %d sentences with %s", len(sources), path)
            options = search_options(configs[number], searched)
            translator = open_model(models[number], choice).translator.to(language)
            translator.warn_long_lines(sources, str(source))
            systems.append(System(str(path), translator.best(sources, options)))
        else:
            systems.append(System(str(path), _lines_of(path)))
    tokenize = next((config.evaluation.bleu_tokenize for config in configs.values()), "auto")
    return _checked(Comparison(EvalText(language, sources, references), systems, bleu_tokenizer(tokenize, language)))


def _searched(method: str | None) -> str:
    if method not in (None, "greedy", "beam"):
        raise InputError(f"--method {method}: new translations are made by greedy or beam")
    return method or "beam"


def _is_folder(path: Path) -> bool:
    if not path.exists():
        raise InputError(f"{path}: there is no such folder or file", "give run folders, model folders or translations")
    return path.is_dir()


def _lines_of(path: Path) -> list[str]:
    return nfc_lines(read_lines(path), path)


def _checked(comparison: Comparison) -> Comparison:
    """Refuses what is not aligned, or too little to test anything on."""
    expected = len(comparison.text.references)
    for system in comparison.systems:
        if len(system.hypotheses) != expected:
            raise InputError(
                f"{system.name}: {len(system.hypotheses)} translations, but the reference has {expected} lines",
                "line n of each must belong to line n of the reference",
            )
    refuse_missing_tokenizer(comparison.tokenize)
    if expected < 2:
        raise InputError("a single sentence is too little to compare systems on", "give a larger test set")
    return comparison


@dataclass(frozen=True)
class _Stored:
    """What `mt eval` or a training left of a test set in a run folder.

    Attributes:
        path: as the user wrote it.
        files: the beginning of the files' names, by language.
        methods: the search methods of which there are translations.
    """

    path: Path
    folder: Path
    files: dict[str, str]
    methods: list[str]
    bleu_tokenize: str

    @classmethod
    def find(cls, path: Path, runs: Path, test_set: str) -> "_Stored":
        model = find_model(path, runs)
        run = run_of(model)
        if run is None:
            raise InputError(f"{path}: no run folder, so there are no translations in it to compare", _OTHER_TEXT)
        config = read_config(model)
        results = _results(path, run, test_set, config.data)
        # Score files of models of one language did not name it at first.
        languages = dict.fromkeys(result.get("target_lang", config.data.target_lang[0]) for result in results)
        return cls(
            path,
            run.scores,
            {code: f"{test_set}.{code}" if len(languages) > 1 else test_set for code in languages},
            list(dict.fromkeys(result["method"] for result in results)),
            config.evaluation.bleu_tokenize,
        )

    def text(self, language: str) -> EvalText:
        name = self._name(language)
        return EvalText(language, *(_lines_of(self.folder / f"{name}.{side}") for side in ("source", "reference")))

    def hypotheses(self, language: str, method: str) -> list[str]:
        return _lines_of(self.folder / f"{self._name(language)}.{method}")

    def _name(self, language: str) -> str:
        # Two runs of one language each may write its code differently.
        return self.files.get(language) or next(iter(self.files.values()))


def _results(path: Path, run: RunDir, test_set: str, data: DataConfig) -> list[dict[str, Any]]:
    """The entries of a score file."""
    file = run.scores / f"{test_set}.json"
    try:
        results = json.loads(file.read_bytes())["results"]
        texts = [text for result in results for text in (result["method"], result.get("target_lang", ""))]
        if not texts or not all(isinstance(text, str) for text in texts):
            raise TypeError
    except FileNotFoundError:
        raise _missing(path, file, test_set, data) from None
    except (ValueError, TypeError, KeyError):
        raise InputError(f"{file}: not a score file of `mt eval`", f"make it again: mt eval --model {path}") from None
    return list(results)


def _missing(path: Path, file: Path, test_set: str, data: DataConfig) -> InputError:
    """There is no score file; what makes one depends on what the run was tested on."""
    own, _, language = test_set.partition(".")
    if test_set.startswith("changed."):
        words = " and the settings to be compared"
    elif own != "test":
        words = f" --source {test_set}.{data.source_lang} --reference {test_set}.{data.target_lang[0]}"
    elif data.test is None:
        return InputError(f"{path}: its configuration has no test set, so it has no translations of one", _OTHER_TEXT)
    else:
        words = f" --to {language}" if language else ""
    return InputError(
        f"{path}: no translations of its test set ({file} is missing)",
        f"make them with `mt eval --model {path}{words}`; or {_OTHER_TEXT}",
    )


def _common_method(stored: Sequence[_Stored], wanted: str | None) -> str:
    for one in stored:
        if wanted is not None and wanted not in one.methods:
            raise InputError(
                f"{one.path}: its test set was translated by {', '.join(one.methods)}, not by {wanted}",
                "choose another --method, or --test-set changed.test for what `mt eval` made with other settings",
            )
    common = [method for method in stored[0].methods if all(method in one.methods for one in stored)]
    if not common:
        raise InputError(
            "; ".join(f"{one.path} was translated by {', '.join(one.methods)}" for one in stored),
            "make translations by the same method with `mt eval`",
        )
    return wanted or ("beam" if "beam" in common else common[0])


def _common_languages(stored: Sequence[_Stored], to: str | None) -> list[str]:
    first = stored[0]
    if all(len(one.files) == 1 for one in stored) and to in (None, *first.files):
        return list(first.files)
    common = [code for code in first.files if all(code in one.files for one in stored) and to in (None, code)]
    if not common:
        raise InputError(
            f"no language in common{f' that is {to}' if to else ''}: "
            + "; ".join(f"{one.path} was tested on {', '.join(one.files)}" for one in stored)
        )
    return common


def _same_text(first: _Stored, other: _Stored, language: str) -> None:
    one, two = first.text(language), other.text(language)
    for what, ours, theirs in (
        ("references", one.references, two.references),
        ("sources", one.sources, two.sources),
    ):
        if ours != theirs:
            where = f"{len(ours)} and {len(theirs)} lines"
            if len(ours) == len(theirs):
                line = next(i for i, pair in enumerate(zip(ours, theirs, strict=True), 1) if pair[0] != pair[1])
                where = f"line {line} is the first"
            raise InputError(
                f"{first.path} and {other.path} were tested on different texts: their {what} differ ({where})",
                _OTHER_TEXT,
            )
