"""`mt eval`."""

import json
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
    models_option,
    path_type,
    runs_option,
    search_options,
)
from mt.cli.text import print_result
from mt.console import set_up_logging
from mt.errors import InputError

if TYPE_CHECKING:
    from mt.config import Config
    from mt.decoding.translator import Translator
    from mt.run_dir import ModelDir, RunDir


@click.command(name="eval")
@click.option("--source", type=path_type, help="Test text; default: the run's test set.")
@click.option("--reference", type=path_type, help="Its translation, aligned by line.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
@click.option("--output", type=path_type, help="Folder for hypotheses and scores.")
@click.option("--tune-length-penalty", is_flag=True, help="Try length penalties on the validation set; no test set.")
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
    tune_length_penalty: bool,
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
    decoding = Decoding.of(given)
    if tune_length_penalty:
        for option in ("sample", "mbr", "length_penalty"):
            contradict(bool(given[option]), "--tune-length-penalty", f"--{option.replace('_', '-')}")
        contradict(output is not None, "--tune-length-penalty", "--output")
    from mt.bundle.open import open_model, read_config
    from mt.evaluate import Method, configured_methods, evaluate, results_json, results_table, write_results
    from mt.run_dir import run_of, run_of_checkpoint

    first, *others = find_models(models, runs)
    run = run_of(first)
    owner = run or run_of_checkpoint(first)
    given_files = None if source is None or reference is None else (source, reference)
    sources, references = _read(given_files or _own_text(first, owner, "valid" if tune_length_penalty else "test"))
    config = read_config(first)
    if tune_length_penalty:
        _refuse_test_text(owner, sources, references)
    opened = open_model(first, engine_choice(given), others)
    if tune_length_penalty:
        _tune(opened.translator, config, sources, references, decoding.beam, as_json)
        return
    methods = configured_methods(config, beam_size=decoding.beam, length_penalty=decoding.length_penalty)
    if decoding.sampling is not None or decoding.utility is not None:
        name = "sample" if decoding.utility is None else "mbr"
        utility = decoding.utility_for(config.data.target_lang)
        methods.append(Method(name, decoding.search(opened.settings.search), utility))
    results = evaluate(opened.translator, config, sources, references, methods)
    where = output or (run.scores if run and not others else None)
    if where is not None:
        write_results(where, "test" if source is None else source.stem, results, sources, references)
    as_object = json.dumps(results_json(results, len(sources)), ensure_ascii=False)
    print_result(as_object if as_json else results_table(results))


def _tune(
    translator: "Translator",
    config: "Config",
    sources: list[str],
    references: list[str],
    beam: int | None,
    as_json: bool,
) -> None:
    from mt.tuning import penalties_json, penalties_table, try_length_penalties

    tried = try_length_penalties(translator, config, sources, references, beam)
    print_result(json.dumps(penalties_json(tried)) if as_json else penalties_table(tried))


def _read(files: tuple[Path, Path]) -> tuple[list[str], list[str]]:
    """Sources and references."""
    from mt.data.lines import read_parallel

    pairs = list(read_parallel(*files))
    if not pairs:
        raise InputError(f"{files[0]}: no line in it", "a set to score on needs at least one sentence")
    return [source for source, _ in pairs], [reference for _, reference in pairs]


def _own_text(folder: "ModelDir", run: "RunDir | None", split: str) -> tuple[Path, Path]:
    """The test or validation text of the run that a model belongs to."""
    if run is not None and run.text_file(split, "source").is_file():
        return run.text_file(split, "source"), run.text_file(split, "target")
    kind = "validation" if split == "valid" else "test"
    raise InputError(f"{folder.root}: no {kind} set beside this model", "give --source FILE --reference FILE")


def _refuse_test_text(run: "RunDir | None", sources: list[str], references: list[str]) -> None:
    """A setting chosen on the test set would make its score worthless."""
    from mt.data.lines import read_lines

    for side, texts in ("source", sources), ("target", references):
        own = None if run is None else run.text_file("test", side)
        if own is not None and own.is_file() and list(read_lines(own)) == texts:
            raise InputError(
                "--tune-length-penalty: this is the run's test set, and what is chosen on it cannot be scored on it",
                "leave out --source and --reference to tune on the validation set",
            )
