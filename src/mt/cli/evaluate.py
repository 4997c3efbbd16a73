"""`mt eval`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mt.cli.options import (
    Decoding,
    contradict,
    engine_choice,
    find_models,
    json_option,
    mbr_options,
    metrics_option,
    model_options,
    path_type,
    require_both,
)
from mt.cli.text import print_result
from mt.errors import InputError
from mt.storage.output_path import refuse_inputs, require_writable

if TYPE_CHECKING:
    from mt.config import Config
    from mt.data.eval_texts import EvalText
    from mt.decoding.engine import SearchOptions
    from mt.decoding.translator import Translator
    from mt.evaluation.test_set import Method, MethodResult
    from mt.metrics.comet import Comet
    from mt.storage.run_dir import ModelDir


@click.command(name="eval")
@click.option("--source", type=path_type, help="Test text; default: the run's test set.")
@click.option("--reference", type=path_type, help="Its translation, aligned by line.")
@json_option
@click.option("--output", type=path_type, help="Folder for hypotheses and scores.")
@metrics_option("bleu", "chrf", "ter", "comet")
@click.option("--comet-model", type=path_type, help="With --metrics comet: the folder of a COMET checkpoint.")
@click.option("--tune-length-penalty", is_flag=True, help="Try length penalties on the validation set; no test set.")
@mbr_options
@model_options
def evaluate_command(source: Path | None, reference: Path | None, to: str | None, **options: Any) -> None:
    """Score a model on a test set, greedy and beam: BLEU with interval and signature, chrF, TER.

    With --sample or --mbr, their translations are scored, too.

    Example: mt eval --model runs/demo
    """
    require_both(source, reference, "the run's own text")
    if options["output"] is not None:
        require_writable(options["output"] / "file", "--output")
    decoding, tune = Decoding.of(options), options["tune_length_penalty"]
    if tune:
        _check_tuning(options)
    from mt.bundle.load_translator import open_model, read_config
    from mt.evaluation.texts import pair_text, refuse_test_text, run_texts, texts_in
    from mt.metrics.scores import bleu_tokenizer, refuse_missing_tokenizer

    models = find_models(options["models"], options["runs"])
    config = read_config(models[0])
    languages = config.data.target_lang
    refuse_missing_tokenizer(*(bleu_tokenizer(config.evaluation.bleu_tokenize, language) for language in languages))
    if source is not None and reference is not None:
        texts = [pair_text(source, reference, languages, to)]
    else:
        texts = run_texts(models[0], "valid" if tune else "test", languages, to)
    if tune:
        for model in models:
            refuse_test_text(model, read_config(model).data.target_lang, texts)
    comet = _comet(options["metrics"], options["comet_model"], options["device"])
    opened = open_model(models[0], engine_choice(options), models[1:])
    texts = texts_in(opened.settings.target_langs, texts) if to is None else texts
    if tune:
        _tune(opened.translator, config, texts, decoding.beam, options["as_json"])
        return
    methods = _methods(config, decoding, opened.settings.search)
    folder, name = _output(models, config, decoding, source, to, options)
    if folder is not None:
        kinds = ("source", "reference", "json", *(method.name for method in methods))
        refuse_inputs([folder / f"{name}.{kind}" for kind in kinds], [source, reference])
    from mt.evaluation.test_set import evaluate

    results = evaluate(opened.translator, _with_metrics(config, options["metrics"]), texts, methods, comet)
    _print_and_write(results, options["as_json"], folder, name)


def _print_and_write(results: "list[MethodResult]", as_json: bool, folder: Path | None, name: str) -> None:
    from mt.evaluation.test_set import results_json, results_table, write_results

    try:
        # Printed first: an unwritable folder must not cost the scores, nor a closed pipe the files.
        print_result(json.dumps(results_json(results), ensure_ascii=False) if as_json else results_table(results))
    finally:
        if folder is not None:
            write_results(folder, name, results)


def _check_tuning(options: dict[str, Any]) -> None:
    contradict(options["length_penalty"] is not None, "--tune-length-penalty", "--length-penalty")
    for option in ("sample", "mbr", "output", "metrics"):
        contradict(bool(options[option]), "--tune-length-penalty", f"--{option}")


def _output(
    models: "list[ModelDir]",
    config: "Config",
    decoding: Decoding,
    source: Path | None,
    to: str | None,
    options: dict[str, Any],
) -> tuple[Path | None, str]:
    """Return the folder of the results, None if there is none, and the name of their files.

    In a run's own folder, neither another language, another text, nor other settings may take the place of the scores
    from the end of its training.
    """
    from mt.storage.find_model import run_of

    language = f".{to}" if to is not None and len(config.data.target_lang) > 1 else ""
    name = f"{source.stem if source else 'test'}{language}"
    if options["output"] is not None:
        return options["output"], name
    if source is not None and f"{source.stem}.".startswith("test."):
        name = f"other.{name}"
    if not _has_usual_settings(config, decoding, options):
        name = f"changed.{name}"
    run = run_of(models[0]) if len(models) == 1 else None
    return run.scores if run else None, name


def _has_usual_settings(config: "Config", decoding: Decoding, options: dict[str, Any]) -> bool:
    """Return True for search and metrics as at the end of a training, or with more metrics."""
    usual_search = decoding == Decoding(None, None, 1, None, None)
    usual_engine = options["engine"] == options["compute_type"] == "auto" and options["shortlist"] is None
    metrics = options["metrics"]
    return usual_search and usual_engine and (not metrics or set(config.evaluation.metrics) <= set(metrics))


def _methods(config: "Config", decoding: Decoding, defaults: "SearchOptions") -> "list[Method]":
    """Return the configured methods, changed by the options, and the method that the options add."""
    from mt.evaluation.test_set import Method, configured_methods

    methods = configured_methods(config, beam_size=decoding.beam, length_penalty=decoding.length_penalty)
    if decoding.sampling is not None or decoding.utility is not None:
        name = "sample" if decoding.utility is None else "mbr"
        methods.append(Method(name, decoding.search(defaults), decoding.utility))
    return methods


def _comet(metrics: tuple[str, ...], checkpoint: Path | None, device: str) -> "Comet | None":
    """Load the learned metric, before anything is translated."""
    if "comet" not in metrics:
        if checkpoint is not None:
            raise InputError("--comet-model belongs to --metrics comet", "add it, or leave this out")
        return None
    if checkpoint is None:
        raise InputError(
            "--metrics comet needs a checkpoint of your own; mt downloads none", "give --comet-model FOLDER"
        )
    from mt.metrics.comet import Comet
    from mt.system.devices import choose_device

    return Comet(checkpoint, gpu=choose_device(device, "--device").type == "cuda")


def _with_metrics(config: "Config", metrics: tuple[str, ...]) -> "Config":
    """Return a configuration with sacreBLEU's metrics in --metrics, unchanged without."""
    if not metrics:
        return config
    chosen = tuple(name for name in metrics if name != "comet")
    return config.model_copy(update={"evaluation": config.evaluation.model_copy(update={"metrics": chosen})})


def _tune(translator: "Translator", config: "Config", texts: "list[EvalText]", beam: int | None, as_json: bool) -> None:
    from mt.evaluation.length_penalty import penalties_json, penalties_table, try_length_penalties
    from mt.metrics.scores import bleu_signature

    if (beam or config.decoding.beam_size) == 1:
        raise InputError("--tune-length-penalty: greedy search has no length penalty", "give --beam 5")
    tried = try_length_penalties(translator, config, texts, beam)
    signature = bleu_signature(config.evaluation, [text.target_lang for text in texts])
    print_result(json.dumps(penalties_json(tried, signature)) if as_json else penalties_table(tried, signature))
