"""Systems to compare: translations stored in eval/ of runs, plain files, or new translations of a text."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from mt.bundle.load_translator import open_model, read_config
from mt.config import DataConfig
from mt.console import log, quoted
from mt.data.eval_texts import EvalText, nfc_lines, read_pair
from mt.data.mixture import direction
from mt.decoding.engine import EngineChoice
from mt.errors import InputError
from mt.evaluation.test_set import search_options
from mt.extras.comparison.significance import System
from mt.metrics.scores import bleu_tokenizer, refuse_missing_tokenizer
from mt.storage.find_model import find_model, run_of
from mt.text.languages import chosen_language
from mt.text.lines import read_lines

_OTHER_TEXT = "give --source FILE --reference FILE, and all models translate that"


@dataclass(frozen=True)
class Comparison:
    """A test text in one language and the systems' translations, the baseline first."""

    text: EvalText  # without sources if only references are known
    systems: list[System]
    tokenize: str  # BLEU's tokenizer


def stored_translations(
    paths: Sequence[Path], runs: Path, test_set: str, method: str | None, chosen: tuple[str | None, str | None]
) -> list[Comparison]:
    """Read the translations of a test set in the runs' eval/, one comparison a direction.

    Args:
        paths: run folders and files of translations, the baseline first.
        runs: the folder that holds the run folders.
        test_set, method: the name of its files, and the search method; by default beam if all have it.
        chosen: source and target language to compare; None: all.

    Raises:
        InputError: a run has no such translations, or those of another text.
    """
    by_path = {path: _StoredTestSet(path, runs, test_set) for path in paths if _is_folder(path)}
    if not by_path:
        raise InputError("translations alone cannot be compared", "give --reference FILE, aligned with them by line")
    stored = list(by_path.values())
    first = stored[0]
    method = _common_method(stored, method)
    directions = _common_directions(stored, *chosen)
    if len(directions) > 1 and not by_path.keys() >= set(paths):
        text = first.texts[directions[0]]
        raise InputError(
            f"{first.path}: the test set is in {', '.join(directions)}; the language of the files is unknown",
            f"choose with {f'--from {text.source_lang} ' if text.source_lang else ''}--to {text.target_lang}",
        )
    comparisons = []
    for name in directions:
        text = first.text(name)
        for other in stored[1:]:
            _require_same_text(text, first.path, other, name)
        hypotheses = (by_path[path].lines(name, method) if path in by_path else _read(path) for path in paths)
        systems = [System(str(path), lines) for path, lines in zip(paths, hypotheses, strict=True)]
        tokenize = bleu_tokenizer(first.config.evaluation.bleu_tokenize, text.target_lang)
        _check(text, systems, tokenize)
        comparisons.append(Comparison(text, systems, tokenize))
    return comparisons


def new_translations(
    paths: Sequence[Path],
    runs: Path,
    source: Path | None,
    reference: Path,
    method: str | None,
    chosen: tuple[str | None, str | None],
    choice: EngineChoice,
) -> Comparison:
    """Translate a text with each model; files among the paths are translations of it already.

    Args:
        paths, runs: as for `stored_translations`; paths may be model folders, too.
        source, reference: the text, not needed for files alone, and its translation, aligned by line.
        method: greedy or beam (default).
        chosen: source and target language of the text; the source is needed only for models with a tag for it.

    Raises:
        InputError: the files are not aligned, or options do not fit the systems.
    """
    source_lang, to = chosen
    models = {path: find_model(path, runs) for path in paths if _is_folder(path)}
    if models and source is None:
        raise InputError(f"--reference alone gives {next(iter(models))} nothing to translate", "give --source")
    if method not in (None, "greedy", "beam"):
        raise InputError(f"--method {method}: new translations are made by greedy or beam")
    if not models:
        _refuse_options({"method": method, "from": source_lang, **vars(choice)})
    text = EvalText("", [], _read(reference)) if source is None else read_pair(source, reference, "")
    systems = {path: System(str(path), _read(path)) for path in paths if path not in models}
    configs = {path: read_config(model) for path, model in models.items()}
    languages = {chosen_language(config.data.target_lang, to) for config in configs.values()}
    if len(languages) > 1:
        raise InputError(f"the models translate into different languages: {', '.join(sorted(languages))}")
    language = next(iter(languages), to or "")
    tokenize = bleu_tokenizer(next((c.evaluation.bleu_tokenize for c in configs.values()), "auto"), language)
    _check(text, systems.values(), tokenize)
    for model in list(models.values())[1:]:  # an error should not come after the others have translated
        open_model(model, choice).translator.to(language, source_lang)
    for path, model in models.items():
        log.info("translating %d sentences with %s", len(text.sources), path)
        translator = open_model(model, choice).translator.to(language, source_lang)
        translator.warn_long_lines(text.sources, str(source))
        hypotheses = translator.best(text.sources, search_options(configs[path], method or "beam"))
        systems[path] = System(str(path), hypotheses)
    return Comparison(replace(text, target_lang=language), [systems[path] for path in paths], tokenize)


def _refuse_options(options: dict[str, object]) -> None:
    """Refuse options of the translator, as there are only files to compare."""
    unset = vars(EngineChoice())
    for name in sorted(name for name, value in options.items() if value != unset.get(name)):
        raise InputError(f"--{name.replace('_', '-')}: nothing is translated here", "leave it out, or compare models")


def _is_folder(path: Path) -> bool:
    if not path.exists():
        raise InputError(f"{path}: there is no such folder or file", "give run folders, model folders or translations")
    return path.is_dir()


def _read(path: Path) -> list[str]:
    return nfc_lines(read_lines(path), path)


def _check(text: EvalText, systems: Iterable[System], tokenize: str) -> None:
    """Refuse translations that are not aligned with the text, one too short to test, and an unusable tokenizer."""
    expected = len(text.references)
    for system in systems:
        if len(system.hypotheses) != expected:
            message = f"{system.name}: {len(system.hypotheses)} translations, but the reference has {expected} lines"
            raise InputError(message, "line n of each must belong to line n of the reference")
    refuse_missing_tokenizer(tokenize)
    if expected < 2:
        raise InputError("a single sentence is too little to compare systems on", "give a larger test set")


class _StoredTestSet:
    """The translations of a test set that `mt eval` or a training stored in a run folder.

    `texts`, by direction, have languages but no sentences; `text` reads these.
    """

    def __init__(self, path: Path, runs: Path, test_set: str) -> None:
        model = find_model(path, runs)
        run = run_of(model)
        if run is None:
            raise InputError(f"{path}: no run folder, so there are no translations in it to compare", _OTHER_TEXT)
        self.path, self.config, self._stem = path, read_config(model), run.scores / test_set
        data, file = self.config.data, run.scores / f"{test_set}.json"
        self._hint = f"score it again: mt eval --model {quoted(str(path))}"
        try:
            results = [
                (result["method"], result.get("source_lang", ""), result["target_lang"])
                for result in json.loads(file.read_bytes())["results"]
            ]
        except FileNotFoundError:
            raise _not_scored(path, file, test_set, data) from None
        except (ValueError, TypeError, KeyError):
            results = []
        if not results or not all(isinstance(text, str) for result in results for text in result):
            raise InputError(f"{file}: not a score file of `mt eval`", self._hint)
        self.methods = list(dict.fromkeys(method for method, _, _ in results))
        self.texts = {direction(*languages): EvalText(languages[1], [], [], languages[0]) for _, *languages in results}

    def text(self, name: str) -> EvalText:
        sources, references = (self.lines(name, side) for side in ("source", "reference"))
        if len(sources) != len(references):
            sizes = f"{len(sources)} and {len(references)} lines"
            raise InputError(f"{self.path}: source and reference of its test set have {sizes}", self._hint)
        return replace(self.texts[name], sources=sources, references=references)

    def lines(self, name: str, suffix: str) -> list[str]:
        language = f".{name}" if len(self.texts) > 1 else ""
        return _read(Path(f"{self._stem}{language}.{suffix}"))


def _not_scored(path: Path, file: Path, test_set: str, data: DataConfig) -> InputError:
    """Return the error for a missing score file, with the command that makes it."""
    name, _, language = test_set.partition(".")
    if test_set.startswith("changed."):
        arguments = " and the settings to be compared"
    elif name != "test":
        files = [quoted(f"{test_set}.{codes[0]}") for codes in (data.source_lang, data.target_lang)]
        arguments = f" --source {files[0]} --reference {files[1]}"
    elif data.test is None:
        return InputError(f"{path}: its configuration has no test set, so it has no translations of one", _OTHER_TEXT)
    else:
        options = {f"from-{code}": f" --from {code}" for code in data.source_lang}
        pairs = product(data.source_lang, data.target_lang)
        options |= {direction(*pair): f" --from {pair[0]} --to {pair[1]}" for pair in pairs}
        arguments = options.get(language, f" --to {language}") if language else ""
    return InputError(
        f"{path}: no translations of its test set ({file} is missing)",
        f"make them with `mt eval --model {quoted(str(path))}{arguments}`; or {_OTHER_TEXT}",
    )


def _common_method(stored: Sequence[_StoredTestSet], method: str | None) -> str:
    common = [name for name in stored[0].methods if all(name in run.methods for run in stored)]
    if not common or method not in (None, *common):
        wanted = f", not by {method}" if method else ""
        others = [run for run in stored if method not in run.methods]
        reasons = (f"{run.path}: its test set was translated by {', '.join(run.methods)}{wanted}" for run in others)
        hint = "choose another --method, or --test-set changed.test for what `mt eval` made with other settings"
        raise InputError("; ".join(reasons), hint if method else "translate with `mt eval` by the same method")
    return method or ("beam" if "beam" in common else common[0])


def _common_directions(stored: Sequence[_StoredTestSet], source_lang: str | None, to: str | None) -> list[str]:
    """Return the names of the directions that all have in common, from `source_lang` and into `to` if given."""
    texts, data = stored[0].texts, stored[0].config.data
    if source_lang is not None:
        source_lang = data.own_source(chosen_language(data.source_lang, source_lang, "source"))
    single = all(len(run.texts) == 1 for run in stored)  # direction in each run; its codes may differ
    common = [
        name
        for name, text in texts.items()
        if (single or all(name in run.texts for run in stored))
        and source_lang in (None, text.source_lang)
        and to in (None, text.target_lang)
    ]
    if not common:
        tested = "; ".join(f"{run.path} was tested on {', '.join(run.texts)}" for run in stored)
        wanted = "".join(f" {word} {code}" for word, code in (("from", source_lang), ("into", to)) if code)
        raise InputError(f"no direction in common{wanted}: {tested}")
    return common


def _require_same_text(text: EvalText, path: Path, other: _StoredTestSet, name: str) -> None:
    """Refuse a test set with another text in the direction `name` than `text`, which is that of `path`."""
    for side, ours in (("reference", text.references), ("source", text.sources)):
        theirs = other.lines(name, side)
        if ours == theirs:
            continue
        position = f"{len(ours)} and {len(theirs)} lines"
        if len(ours) == len(theirs):
            line = next(i for i, (a, b) in enumerate(zip(ours, theirs, strict=True), 1) if a != b)
            position = f"line {line} is the first"
        raise InputError(
            f"{path} and {other.path} were tested on different texts: their {side}s differ ({position})",
            _OTHER_TEXT,
        )
