"""Evaluation from Python: a model and a test set in, scores out."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from mt.api.loading import Models, find_models, glossary_of
from mt.api.search import Search, SearchRequest
from mt.api.texts import known_names
from mt.bundle.load_translator import OpenedModel, open_model, read_config
from mt.config import Config
from mt.data.eval_texts import EvalText
from mt.decoding.engine import EngineChoice, SearchOptions
from mt.errors import InputError, contradict
from mt.evaluation import test_set
from mt.evaluation.length_penalty import penalties_json, penalties_table, try_length_penalties
from mt.evaluation.texts import pair_text, refuse_test_text, results_name, run_texts, texts_in
from mt.extras.scoring.comet import Comet
from mt.extras.scoring.perturbation import evaluate_perturbed, perturbations_json, perturbations_table
from mt.metrics.scores import bleu_signature, bleu_tokenizer, refuse_missing_tokenizer
from mt.storage.find_model import run_of
from mt.storage.output_path import refuse_inputs
from mt.storage.run_dir import ModelDir

METRICS = ("bleu", "chrf", "ter", "comet")
_Files = tuple[Path | None, Path | None]  # source and reference
_Languages = tuple[str | None, str | None]  # source and target


@dataclass(frozen=True)
class Evaluation:
    """The scores of a model on a test set.

    Attributes:
        results: one item per direction and search method, with `method`, `target_lang`, `scores` and the translations.
        folder, name: where `write` puts the files; no folder for a model outside its run.
    """

    results: tuple[test_set.MethodResult, ...]
    folder: Path | None
    name: str

    def __str__(self) -> str:
        return test_set.results_table(self.results)

    def __getitem__(self, method: str) -> dict[str, Any]:
        """Return the scores of a method (`greedy`, `beam`, ...) as a dictionary, of the first direction."""
        for result in self.results:
            if result.method == method:
                return result.as_dict()
        raise KeyError(method)

    def as_dict(self) -> dict[str, Any]:
        """Return the public JSON object of an evaluation, as `mt eval --json` prints it."""
        return test_set.results_json(self.results)

    def write(self) -> None:
        """Write sources, references, hypotheses and scores to the folder, if there is one."""
        if self.folder is not None:
            test_set.write_results(self.folder, self.name, self.results)


def evaluate(
    model: Models = None,
    *,
    source: str | Path | None = None,
    reference: str | Path | None = None,
    to: str | None = None,
    source_lang: str | None = None,
    metrics: str | Sequence[str] | None = None,
    comet_model: str | Path | None = None,
    output: str | Path | None = None,
    force: bool = False,
    engine: str = "auto",
    compute_type: str = "auto",
    device: str = "auto",
    shortlist: bool | None = None,
    runs: str | Path = "runs",
    glossary: str | Path | None = None,
    keep: str | Sequence[str] = (),
    request: SearchRequest | None = None,
    **search: Unpack[Search],
) -> Evaluation:
    """Score a model on a test set with greedy and beam search, and with sampling or `mbr` where these are asked for.

    Args:
        model: as of `mt.load`.
        source, reference: a test set, two files aligned by line; None: the test set of the model's run.
        to: score this target language only.
        source_lang: score this source language only; with `source`, needed only by a model that has a tag for it.
        metrics: bleu, chrf, ter or comet, or several of them; default: the configured ones.
        comet_model: with the metric comet: the folder of a COMET checkpoint.
        output: the folder that `Evaluation.write` writes to; None: the run's `eval/`.
        force: replace files in `output`.
        engine, compute_type, device, shortlist, runs, glossary, keep: as of `mt.load`.
        request: a search that is checked already, instead of the arguments of `mt.api.search.Search`.

    Raises:
        InputError: there is no such model or text, the arguments contradict each other, or a file would be replaced.
    """
    source, reference = _path(source), _path(reference)
    request, terms = request or SearchRequest.of(search), glossary_of(glossary, keep)
    contradict(request.sampling is not None and terms is not None, request.name("sample"), "a glossary or text to keep")
    metrics = known_names(metrics, METRICS, "metrics")
    choice = EngineChoice(engine, device, compute_type, shortlist, sampling=request.sampling is not None)
    models, config, texts = _read(model, runs, (source, reference), (source_lang, to))
    comet = _comet(metrics, _path(comet_model), device)
    opened, texts = _open(models, choice, texts, to)
    if terms is not None and len({text.direction for text in texts}) > 1:
        terms.require_languages()
        terms = terms.optional()
    opened = opened.with_glossary(terms)
    methods = _methods(config, request, opened.settings.search)
    has_all_metrics = not metrics or set(config.evaluation.metrics) <= set(metrics)
    is_usual = terms is None and request.is_default and choice == EngineChoice(device=device) and has_all_metrics
    folder, name = _output(models, config, is_usual, source, (source_lang, to), _path(output))
    if folder is not None:
        stems = (name, *(f"{name}.{text.direction}" for text in texts))
        suffixes = ("source", "reference", "json", *(method.name for method in methods))
        files = [folder / f"{stem}.{suffix}" for stem in stems for suffix in suffixes]
        _refuse_overwriting(files, [source, reference], None if force else _path(output))
    results = test_set.evaluate(opened.translator, _with_metrics(config, metrics), texts, methods)
    if comet is not None:
        results = list(map(comet.added_to, results))
    return Evaluation(tuple(results), folder, name)


def _refuse_overwriting(files: Sequence[Path], inputs: Sequence[Path | None], output: Path | None) -> None:
    """Refuse files that are inputs, or that exist in a folder that the user named."""
    refuse_inputs(files, inputs)
    if output is not None and (existing := next(filter(Path.exists, files), None)):
        raise InputError(f"--output {output}: {existing} exists", "name another, or overwrite it with --force")


@dataclass(frozen=True)
class ScoreTable:
    """Scores of several searches or texts: as a table, and as the public JSON object."""

    table: str
    json: dict[str, Any]

    def __str__(self) -> str:
        return self.table


def evaluate_robustness(
    model: Models = None,
    *,
    source: str | Path | None = None,
    reference: str | Path | None = None,
    to: str | None = None,
    source_lang: str | None = None,
    engine: str = "auto",
    compute_type: str = "auto",
    device: str = "auto",
    shortlist: bool | None = None,
    runs: str | Path = "runs",
    request: SearchRequest | None = None,
    **search: Unpack[Search],
) -> ScoreTable:
    """Score a model on a test set under each of several perturbations: capitals, typos, spans to copy, ...

    Args:
        model, engine, compute_type, device, shortlist, runs: as of `mt.load`.
        source, reference, to, source_lang: as of `mt.evaluate`.
        request: a search that is checked already, instead of the arguments of `mt.api.search.Search`.

    Raises:
        InputError: there is no such model or text, or the arguments contradict each other.
    """
    request = request or SearchRequest.of(search)
    request.refuse_utility()
    choice = EngineChoice(engine, device, compute_type, shortlist, sampling=request.sampling is not None)
    models, config, texts = _read(model, runs, (_path(source), _path(reference)), (source_lang, to))
    opened, texts = _open(models, choice, texts, to)
    options, tokenize = request.options(opened.settings.search), config.evaluation.bleu_tokenize
    results = evaluate_perturbed(opened.translator, texts, options, config.data.source_lang[0], tokenize)
    signature = bleu_signature(config.evaluation, [text.target_lang for text in texts], is_mean=False)
    return ScoreTable(perturbations_table(results, signature), perturbations_json(results, signature))


def tune_length_penalty(
    model: Models,
    *,
    source: Path | None,
    reference: Path | None,
    to: str | None,
    source_lang: str | None,
    runs: Path,
    request: SearchRequest,
    **engine: Any,
) -> ScoreTable:
    """Try length penalties on a validation set; arguments as of `evaluate_robustness`.

    Raises:
        InputError: the text is the test set of a model's run, or the search is greedy.
    """
    models, config, texts = _read(model, runs, (source, reference), (source_lang, to), "valid")
    for folder in models:
        refuse_test_text(folder, read_config(folder).data, texts)
    opened, texts = _open(models, EngineChoice(**engine), texts, to)
    if (request.beam_size or config.decoding.beam_size) == 1:
        raise InputError("--tune-length-penalty: greedy search has no length penalty", "give --beam 5")
    tried = try_length_penalties(opened.translator, config, texts, request.beam_size)
    signature = bleu_signature(config.evaluation, [text.target_lang for text in texts])
    return ScoreTable(penalties_table(tried, signature), penalties_json(tried, signature))


def _path(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path)


def _read(
    model: Models, runs: str | Path, files: _Files, languages: _Languages, split: str = "test"
) -> tuple[list[ModelDir], Config, list[EvalText]]:
    """Find models, and read the first one's configuration and the text to score on: two files, or its run's split."""
    models = find_models(model, runs)
    config = read_config(models[0])
    (source, reference), (source_lang, to), data = files, languages, config.data
    if (source is None) != (reference is None):
        raise InputError("source and reference go together", "give both, or neither for the run's own text")
    refuse_missing_tokenizer(*(bleu_tokenizer(config.evaluation.bleu_tokenize, code) for code in data.target_lang))
    if source is not None and reference is not None:
        return models, config, [pair_text(source, reference, data, to, source_lang)]
    return models, config, run_texts(models[0], split, data, to, source_lang)


def _open(
    models: list[ModelDir], choice: EngineChoice, texts: list[EvalText], to: str | None
) -> tuple[OpenedModel, list[EvalText]]:
    """Open models as one, and return the texts in the languages that all of them have."""
    opened = open_model(models[0], choice, models[1:])
    return opened, texts if to is not None else texts_in(opened.settings, texts)


def _output(
    models: list[ModelDir],
    config: Config,
    is_usual: bool,
    source: Path | None,
    languages: _Languages,
    output: Path | None,
) -> tuple[Path | None, str]:
    """Return the folder of the results, None if there is none, and the stem of their files' names.

    In a run's folder, scores of other languages, texts or settings do not replace those from the end of its training.
    """
    name = results_name(config.data, source, *languages)
    if output is not None:
        return output, name
    if source is not None and f"{source.stem}.".startswith("test."):
        name = f"other.{name}"
    run = run_of(models[0]) if len(models) == 1 else None
    return run.scores if run else None, name if is_usual else f"changed.{name}"


def _methods(config: Config, request: SearchRequest, defaults: SearchOptions) -> list[test_set.Method]:
    """Return the configured methods with the request's settings, and the method that the request adds."""
    changed = ("beam_size", "length_penalty", "no_repeat_ngram_size")
    methods = test_set.configured_methods(config, **{name: getattr(request, name) for name in changed})
    if request.sampling is not None or request.utility is not None:
        name = "sample" if request.utility is None else "mbr"
        methods.append(test_set.Method(name, request.options(defaults), request.utility))
    return methods


def _comet(metrics: Sequence[str], checkpoint: Path | None, device: str) -> Comet | None:
    """Load COMET if it is among `metrics`, before anything is translated."""
    if "comet" not in metrics:
        if checkpoint is not None:
            raise InputError("--comet-model belongs to --metrics comet", "add it, or leave this out")
        return None
    if checkpoint is None:
        raise InputError(
            "--metrics comet needs a checkpoint of your own; mt downloads none", "give --comet-model FOLDER"
        )
    from mt.system.devices import choose_device  # imports torch

    return Comet(checkpoint, gpu=choose_device(device, "--device").type == "cuda")


def _with_metrics(config: Config, metrics: Sequence[str]) -> Config:
    """Return a configuration whose metrics are sacreBLEU's among `metrics`, or unchanged if that is empty."""
    if not metrics:
        return config
    chosen = tuple(name for name in metrics if name != "comet")
    return config.model_copy(update={"evaluation": config.evaluation.model_copy(update={"metrics": chosen})})
