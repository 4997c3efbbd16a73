"""Names of the files in a step's folder that other steps may read."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from mt.config import Config, FromTrain
from mt.data.mixture import direction
from mt.evaluation.texts import results_name
from mt.extras.pipelines.plan import Plan, Step
from mt.extras.pipelines.schema import Eval
from mt.storage.run_dir import RunDir, tokenizer_names

SCORE_NAMES = ["scores.tsv", "scores.json", "scores.html"]


def name_in(step: Step, path: Path) -> str:
    """Return the name of a file that a step writes, relative to its folder."""
    return Path(os.path.relpath(os.path.realpath(path), os.path.realpath(step.output))).as_posix()


def train_names(step: Step) -> list[str]:
    """Return the names of the texts and tokenizers that a training writes."""
    assert step.config is not None
    run, data, tests = RunDir(Path()), step.config.data, list[str]()
    if data.test is not None:
        tests = _result_names("test", _test_pairs(step.config), step.config, step.config.evaluation.methods)
    splits = [split for split in ("train", "valid", "test") if getattr(data, split) is not None]
    files = [run.scores / name for name in tests]
    files += [run.text_file(split, side) for split in splits for side in ("source", "target")]
    tokenizers = dict.fromkeys(tokenizer_names(step.config.tokenizer.shared))
    files += [folder / name for folder in (run.tokenizer, run.model.tokenizer) for name in tokenizers]
    return [file.as_posix() for file in files]


def eval_names(plan: Plan, step: Step) -> list[str]:
    """Return the names of the files that an evaluation writes.

    Raises:
        InputError: there is no such model.
    """
    settings, source, configs = step.settings, step.text("source"), list(map(plan.config_of, step.models()))
    assert isinstance(settings, Eval)
    config, chosen = configs[0], (settings.from_, settings.to)
    pairs = [] if source else evaluated_pairs(settings, configs)
    added = {"beam": settings.beam or settings.length_penalty is not None, "mbr": settings.mbr}
    added["sample"] = settings.sample and not settings.mbr
    methods = dict.fromkeys([*config.evaluation.methods, *(method for method, is_added in added.items() if is_added)])
    return _result_names(results_name(config.data, source, *chosen), pairs, config, methods)


def evaluated_pairs(settings: Eval, configs: Sequence[Config]) -> list[tuple[str, str]]:
    """Return the pairs of languages of the first model's test set that an evaluation of these models scores."""
    chosen = settings.from_, settings.to
    known = [[(s, t) for s in each.data.source_lang for t in each.data.target_lang] for each in configs]
    return [
        pair
        for pair in _test_pairs(configs[0])
        if all(pair in each for each in known) and all(a in (None, b) for a, b in zip(chosen, pair, strict=True))
    ]


def _test_pairs(config: Config) -> list[tuple[str, str]]:
    """Return the pairs of languages of a test set."""
    data, test = config.data, config.data.test
    return list(map(data.languages_of, test)) if isinstance(test, tuple) else list(data.pairs)


def _result_names(name: str, pairs: list[tuple[str, str]], config: Config, methods: Iterable[str]) -> list[str]:
    """Return the names of the files with the scores of a text in these pairs of languages."""
    directions = list(dict.fromkeys(direction(config.data.own_source(source), target) for source, target in pairs))
    stems = [name] if len(directions) < 2 else [f"{name}.{each}" for each in directions]
    if isinstance(config.data.test, FromTrain) and len(directions) > 1:
        stems.append(name)  # the pairs that are split off may all be of one direction
    return [f"{name}.json", *(f"{stem}.{suffix}" for stem in stems for suffix in ("source", "reference", *methods))]
