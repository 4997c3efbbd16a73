"""`mt eval`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mt.cli.options import (
    Decoding,
    contradict,
    debug_option,
    engine_choice,
    engine_options,
    find_models,
    mbr_options,
    metrics_option,
    models_option,
    path_type,
    runs_option,
    search_options,
    to_option,
)
from mt.cli.text import print_result
from mt.console import set_up_logging
from mt.errors import InputError
from mt.storage.output_path import refuse_inputs, require_writable

if TYPE_CHECKING:
    from mt.config import Config
    from mt.data.eval_texts import EvalText
    from mt.decoding.engine import SearchOptions
    from mt.decoding.translator import Translator
    from mt.evaluation.test_set import Method, MethodResult
    from mt.metrics.comet import Comet
    from mt.storage.run_dir import ModelDir, RunDir


@click.command(name="eval")
@click.option("--source", type=path_type, help="Test text; default: the run's test set.")
@click.option("--reference", type=path_type, help="Its translation, aligned by line.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
@click.option("--output", type=path_type, help="Folder for hypotheses and scores.")
@metrics_option("bleu", "chrf", "ter", "comet")
@click.option("--comet-model", type=path_type, help="With --metrics comet: the folder of a COMET checkpoint.")
@click.option("--tune-length-penalty", is_flag=True, help="Try length penalties on the validation set; no test set.")
@to_option
@models_option
@search_options
@mbr_options
@engine_options
@runs_option
@debug_option
def evaluate_command(
    source: Path | None,
    reference: Path | None,
    as_json: bool,
    output: Path | None,
    metrics: tuple[str, ...],
    comet_model: Path | None,
    tune_length_penalty: bool,
    to: str | None,
    models: tuple[Path, ...],
    runs: Path,
    verbose: bool,
    **given: Any,
) -> None:
    """Score a model on a test set, greedy and beam: BLEU with interval and signature, chrF, TER.

    With --sample or --mbr translations that are found so are scored, too.

    Example: mt eval --model runs/demo
    """
    set_up_logging(verbose)
    if (source is None) != (reference is None):
        raise InputError("--source and --reference go together", "give both, or neither for the run's own text")
    if output is not None:
        require_writable(output / "file", "--output")
    decoding = Decoding.of(given)
    if tune_length_penalty:
        _allow_tuning({**given, "output": output, "metrics": metrics})
    from mt.bundle.load_translator import open_model, read_config
    from mt.evaluation.test_set import evaluate
    from mt.metrics.scores import bleu_tokenizer, refuse_missing_tokenizer
    from mt.storage.find_model import run_of, run_of_checkpoint

    first, *others = find_models(models, runs)
    owner = (run := run_of(first)) or run_of_checkpoint(first)
    own_config = read_config(first)
    config = _with_metrics(own_config, metrics)
    refuse_missing_tokenizer(
        *(bleu_tokenizer(config.evaluation.bleu_tokenize, lang) for lang in config.data.target_lang)
    )
    if source is not None and reference is not None:
        texts = _given_texts(source, reference, config, to)
    else:
        texts = _own_texts(first, owner, "valid" if tune_length_penalty else "test", config, to)
    if tune_length_penalty:
        for model in (first, *others):
            _refuse_test_text(run_of(model) or run_of_checkpoint(model), texts, read_config(model))
    comet = _comet(metrics, comet_model, given["device"])
    opened = open_model(first, engine_choice(given), others)
    texts = _in_languages(texts, opened.settings.target_langs) if to is None else texts
    if tune_length_penalty:
        _tune(opened.translator, config, texts, decoding.beam, as_json)
        return
    methods = _methods(config, decoding, opened.settings.search)
    usual = output is not None or _is_usual(decoding, metrics, own_config, given)
    name = ("" if usual else "changed.") + _name_of(source, to, config, beside_own=output is None)
    folder = output or (run.scores if run and not others else None)
    if folder is not None:
        kinds = ("source", "reference", "json", *(method.name for method in methods))
        refuse_inputs([folder / f"{name}.{kind}" for kind in kinds], [source, reference])
    results = evaluate(opened.translator, config, texts, methods, comet)
    _print_and_keep(results, as_json, folder, name)


def _in_languages(texts: "list[EvalText]", known: Sequence[str]) -> "list[EvalText]":
    """Several models together have fewer languages than the first."""
    found = [text for text in texts if text.target_lang in known]
    if not found:
        raise InputError("there is no text in a language that all of these models have", "leave some of them out")
    return found


def _print_and_keep(results: "list[MethodResult]", as_json: bool, folder: Path | None, name: str) -> None:
    from mt.evaluation.test_set import results_json, results_table, write_results

    try:
        # Printed first: a folder that cannot be written must not cost the scores, nor a closed pipe the files.
        print_result(json.dumps(results_json(results), ensure_ascii=False) if as_json else results_table(results))
    finally:
        if folder is not None:
            write_results(folder, name, results)


def _is_usual(decoding: Decoding, metrics: tuple[str, ...], config: "Config", given: dict[str, Any]) -> bool:
    """True where a model's own test set is searched and scored as at the end of its training, or with more metrics."""
    complete = not metrics or set(config.evaluation.metrics) <= set(metrics)
    engine = given["engine"] == given["compute_type"] == "auto" and given["shortlist"] is None
    drawn = decoding.sampling is not None or decoding.utility is not None
    return decoding.beam is None and decoding.length_penalty is None and not drawn and complete and engine


def _allow_tuning(given: dict[str, Any]) -> None:
    contradict(given["length_penalty"] is not None, "--tune-length-penalty", "--length-penalty")
    for option in ("sample", "mbr", "output", "metrics"):
        contradict(bool(given[option]), "--tune-length-penalty", f"--{option}")


def _name_of(source: Path | None, to: str | None, config: "Config", beside_own: bool) -> str:
    """What the files of results are called: neither one language's nor another text's may take the place of the run's
    own test set's."""
    language = f".{to}" if to is not None and len(config.data.target_lang) > 1 else ""
    if source is None:
        return f"test{language}"
    other = "other." if beside_own and f"{source.stem}.".startswith("test.") else ""
    return f"{other}{source.stem}{language}"


def _methods(config: "Config", decoding: Decoding, usual: "SearchOptions") -> "list[Method]":
    """The configured methods, with what the options change of them, and what the options add."""
    from mt.evaluation.test_set import Method, configured_methods

    methods = configured_methods(config, beam_size=decoding.beam, length_penalty=decoding.length_penalty)
    if decoding.sampling is not None or decoding.utility is not None:
        name = "sample" if decoding.utility is None else "mbr"
        methods.append(Method(name, decoding.search(usual), decoding.utility))
    return methods


def _comet(metrics: tuple[str, ...], checkpoint: Path | None, device: str) -> "Comet | None":
    """The learned metric, opened before anything is translated."""
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
    """A configuration with the metrics of sacreBLEU that were asked for; without any it stays as it is."""
    if not metrics:
        return config
    chosen = tuple(name for name in metrics if name != "comet")
    return config.model_copy(update={"evaluation": config.evaluation.model_copy(update={"metrics": chosen})})


def _tune(
    translator: "Translator",
    config: "Config",
    texts: "list[EvalText]",
    beam: int | None,
    as_json: bool,
) -> None:
    from mt.evaluation.length_penalty import penalties_json, penalties_table, try_length_penalties
    from mt.metrics.scores import bleu_signature

    if (beam or config.decoding.beam_size) == 1:
        raise InputError("--tune-length-penalty: greedy search has no length penalty", "give --beam 5")
    tried = try_length_penalties(translator, config, texts, beam)
    signature = bleu_signature(config.evaluation, [text.target_lang for text in texts])
    print_result(json.dumps(penalties_json(tried, signature)) if as_json else penalties_table(tried, signature))


def _given_texts(source: Path, reference: Path, config: "Config", to: str | None) -> "list[EvalText]":
    from mt.data.eval_texts import read_pair
    from mt.text.languages import chosen_language

    return [read_pair(source, reference, chosen_language(config.data.target_lang, to))]


def _own_texts(
    folder: "ModelDir", run: "RunDir | None", split: str, config: "Config", to: str | None
) -> "list[EvalText]":
    """The test or validation text of the run that a model belongs to, in one language or all."""
    from mt.data.eval_texts import read_texts
    from mt.text.languages import chosen_language

    languages = config.data.target_lang
    if to is not None:
        chosen_language(languages, to)
    kind = "validation" if split == "valid" else "test"
    if run is None or not run.text_file(split, "source").is_file():
        raise InputError(f"{folder.root}: no {kind} set beside this model", "give --source FILE --reference FILE")
    texts = [text for text in read_texts(run, split, languages) if to in (None, text.target_lang)]
    if not any(text.sources for text in texts):
        raise InputError(f"{folder.root}: its {kind} set has no sentence{f' in {to}' if to else ''}")
    return texts


def _refuse_test_text(run: "RunDir | None", texts: "list[EvalText]", config: "Config") -> None:
    """A setting chosen on the test set of any of the models would make its score worthless."""
    from mt.data.eval_texts import read_texts

    if run is None or not run.text_file("test", "source").is_file():
        return
    own = read_texts(run, "test", config.data.target_lang)
    for text in texts:
        if any(text.sources == test.sources or text.references == test.references for test in own):
            raise InputError(
                f"--tune-length-penalty: this is the test set of {run.root}, and what is chosen on it cannot be "
                "scored on it",
                "leave out --source and --reference to tune on the validation set",
            )
