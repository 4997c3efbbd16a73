"""A training corpus from Python: its faults, its scores by models, and its cleaning."""

from collections.abc import Collection, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from mt.api.loading import Models, find_models, load
from mt.api.texts import known_names, several
from mt.api.training import ConfigLike, read_config, start
from mt.api.translation import Translator
from mt.config import Config, DataConfig, is_synthetic
from mt.console import log, quoted
from mt.data.prepare import drop_missing_sources
from mt.errors import InputError, contradict, require_package
from mt.extras.doctor import check, scoring
from mt.extras.doctor.bitexts import bitexts_of
from mt.extras.doctor.clean import CleanedText, check_output, dropping_rules, training_digests, write_clean
from mt.extras.doctor.pair_scores import (
    RAW,
    finished_summary,
    load_scores,
    mark_scores_folder,
    require_scores_folder,
    write_scores,
)
from mt.extras.doctor.rules import DROPPABLE
from mt.extras.doctor.scoring import Scorer, score_pairs, survey
from mt.extras.doctor.text_report import as_json
from mt.storage.manifest import folder_digests, read_manifest, stage_key, translating_files


def check_corpus(
    config: ConfigLike, *, examples: int = 3, runs: str | Path = "runs", overrides: Sequence[str] = ()
) -> dict[str, Any]:
    """Look for problems in training, validation and test text, and return what `mt data check --json` prints.

    Args:
        config: a YAML file, or its content as a mapping.
        examples: shown of each finding.
        runs: the folder of runs; one of the configuration's name may have a tokenizer.
        overrides: of the form `data.max_ratio=4`.

    Raises:
        InputError: the configuration is wrong. A text that training would refuse sets `refused` instead.
    """
    settings = drop_missing_sources(read_config(config, overrides))
    return as_json(check.check_corpus(settings, Path(runs), examples), in_words(config, overrides))


def clean_corpus(
    config: ConfigLike,
    output: str | Path,
    *,
    keep: str | Collection[str] = (),
    drop: str | Collection[str] = (),
    max_per_template: int | None = None,
    repair: bool = False,
    scores: str | Path | None = None,
    min_score: float | None = None,
    keep_share: float | Mapping[int, float] | None = None,
    by: str | None = None,
    runs: str | Path = "runs",
    overrides: Sequence[str] = (),
) -> CleanedText:
    """Write the training text without the pairs that `check_corpus` objects to.

    Args:
        config: a YAML file, or its content as a mapping.
        output: the folder to write: new, or an earlier cleaning.
        keep, drop: findings, such as "identical", whose pairs are kept, or dropped as well; one, or several.
        max_per_template: keep at most this many pairs of each template.
        repair: fix sentences, and put lines back in step, before judging.
        scores: the folder that `score_corpus` wrote: drop pairs with low scores.
        min_score: the lowest score to keep; None: the threshold that the scores suggest.
        keep_share: the share of pairs to keep, best first: of all sources, or by a source's number, from 1 (0: all
            others), in the `sources` of the scores.
        by: the column of the scores to select by; None: `score`.
        runs: the folder of runs; one of the configuration's name may have a tokenizer.
        overrides: of the form `data.max_ratio=4`.

    Returns:
        `counts` of the pairs kept and dropped, by reason; `repaired`, by repair; and `sources`, to be given to
        `mt.train` as `data={"train": sources}`.

    Raises:
        InputError: the text cannot be read, or none would be left; arguments contradict each other; `output` has
            other files.
    """
    contradict(min_score is not None and keep_share is not None, "--min-score", "--keep-share")
    settings, folder = drop_missing_sources(read_config(config, overrides)), Path(output)
    kept, dropped = set(known_names(keep, DROPPABLE, "--keep")), set(known_names(drop, DROPPABLE, "--drop"))
    contradict("template" in kept and max_per_template is not None, "--keep template", "--max-per-template")
    contradict("low-score" in kept and scores is not None, "--keep low-score", "--scores")
    if scores is None and ("low-score" in dropped or any(option is not None for option in (min_score, keep_share, by))):
        message = "--min-score, --keep-share, --by and --drop low-score select by scores"
        raise InputError(message, "add --scores, from mt data score")
    if not settings.data.drop_duplicates and "duplicate" not in dropped:
        kept.add("duplicate")
    if max_per_template is not None:
        dropped.add("template")
    if scores is not None:
        dropped.add("low-score")
    rules = dropping_rules(kept, dropped)
    check_output(folder, settings.data, *(() if isinstance(config, Mapping) else (Path(config),)))
    if repair:
        require_package("ftfy", "--repair")
    shares = keep_share if isinstance(keep_share, Mapping | None) else {0: keep_share}
    judged = None if scores is None else load_scores(Path(scores), by or "score", min_score, shares)
    digests = training_digests(settings.data)
    report = check.check_corpus(settings, Path(runs), 1, rules, repair, judged, max_per_template or 0)
    return write_clean(report, folder, rules, digests)


def in_words(config: ConfigLike, overrides: Sequence[str]) -> str:
    """Return the words of a command that name a configuration and its overrides."""
    name = "CONFIG" if isinstance(config, Mapping) else str(config)
    return quoted(name, *(word for override in several(overrides) for word in ("--set", override)))


def score_corpus(
    config: ConfigLike,
    output: str | Path,
    *,
    forward: Models = None,
    backward: Models = None,
    embeddings: str | Path | None = None,
    device: str = "auto",
    runs: str | Path = "runs",
    overrides: Sequence[str] = (),
) -> dict[str, Any]:
    """Score every training pair with a model of each direction, and return the summary; the same call resumes.

    Args:
        config: a YAML file, or its content as a mapping.
        output: the folder to write: scores.tsv, and scores.json with the summary.
        forward, backward: models from the source to the target language and back; of several target languages, models
            for all of them. Without any, a small one of each direction is trained on the clean part of the text.
        embeddings: a folder with a model of sentence-transformers, whose similarity also counts.
        device: auto, cpu, cuda or mps.
        runs: the folder of runs.
        overrides: of the form `data.max_ratio=4`.

    Raises:
        InputError: the text cannot be read, a model has other languages, or the folder has other files.
    """
    settings, folder = drop_missing_sources(read_config(config, overrides)), Path(output)
    require_scores_folder(folder, settings.data)
    if (forward is None) != (backward is None):
        raise InputError("scores take a model of each direction", "give both --forward and --backward, or neither")
    similarity = scoring.embedding_similarity(Path(embeddings), device) if embeddings else None
    if forward is None:
        forward, backward = _train_pair(settings, folder, device, Path(runs))
    folders = [find_models(models, runs) for models in (forward, backward)]
    load_once = cache(partial(load, engine="torch", device=device, runs=runs))
    translators = [[load_once(folder.root) for folder in models] for models in folders]
    bitexts = [bitext for bitext in bitexts_of(settings.data) if bitext.split == "train"]
    scorers = {
        bitext.direction: (
            _scorer(translators[0], "--forward", *bitext.languages),
            _scorer(translators[1], "--backward", *reversed(bitext.languages)),
        )
        for bitext in bitexts
    }
    facts = survey(bitexts)
    weights = [translating_files(read_manifest(model.path)["files"]) for models in translators for model in models]
    key = stage_key(facts.digest, facts.sizes, weights, folder_digests(Path(embeddings)) if embeddings else None)
    if (summary := finished_summary(folder, key)) is None:
        mark_scores_folder(folder)
        score_pairs(bitexts, facts, scorers, folder / RAW, key, similarity)
        sources = [{"file": bitext.files[0], "pairs": n} for bitext, n in zip(bitexts, facts.sizes, strict=True)]
        summary = write_scores(folder, {"key": key, "sources": sources})
    return summary


def _scorer(models: list[Translator], option: str, source: str, target: str) -> Scorer:
    model = next((model for model in models if source in model.source_langs and target in model.target_langs), None)
    if model is None:
        given = ", ".join(f"{model.path} ({model.direction})" for model in models)
        raise InputError(f"{option} {given}: not a model from {source} to {target}", "give one of the text's languages")
    return partial(model.score, to=target, source_lang=source if len(model.source_langs) > 1 else None)


def _train_pair(settings: Config, folder: Path, device: str, runs: Path) -> tuple[list[Path], list[Path]]:
    """Train small models, one each way for any two languages, on the clean part of the training text."""
    data = settings.data
    human = {frozenset(data.languages_of(source)) for source in data.train if not is_synthetic(source)}
    for pair in map(data.languages_of, data.train):
        if frozenset(pair) not in human:
            message = f"data.train: all text in {' and '.join(pair)} is synthetic, so no small model can be validated"
            raise InputError(message, "give --forward and --backward instead of --train")
    check_output(text := folder / "text", settings.data)
    mark_scores_folder(folder)
    rules, digests = dropping_rules((), ()), training_digests(data)
    cleaned = write_clean(check.check_corpus(settings, runs, 1, dropped_for=rules), text, rules, digests)
    models: tuple[list[Path], list[Path]] = ([], [])
    for pair, sources in sources_by_languages(data, cleaned.sources).items():
        for side, languages in enumerate((pair, pair[::-1])):
            name = "-".join(languages) + ("-back" if side and pair[0] == pair[1] else "")
            log.info("training %s, a small model that scores", folder / name)
            train = [_swapped(source) if side else source for source in sources]
            size = sum((Path(data.root) / source["target"]).stat().st_size for source in train)
            try:
                start(scoring.small_model(name, languages, data.root, train, size, device), [], folder)
            except InputError as error:
                hint = "name a new --output" if "cannot resume" in error.message else error.hint
                raise InputError(error.message, hint) from None
            models[side].append(folder / name)
    forward, backward = models
    return forward + backward, backward + forward  # a source may be in the opposite direction


def sources_by_languages(
    data: DataConfig, cleaned: Sequence[dict[str, Any]]
) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return the cleaned sources for small models by their languages, those of an opposite direction swapped."""
    by_languages: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for number, (source, cleaned_source) in enumerate(zip(data.train, cleaned, strict=True)):
        pair = data.languages_of(source)
        entry = {key: value for key, value in cleaned_source.items() if key in ("source", "target", "synthetic")}
        if any(source == before.opposite(data.languages_of(before)) for before in data.train[:number]):
            continue  # the same text, read both ways
        if pair[::-1] in by_languages:
            pair, entry = pair[::-1], _swapped(entry) if pair[0] != pair[1] else entry
        by_languages.setdefault(pair, []).append(entry)
    return by_languages


def _swapped(source: dict[str, Any]) -> dict[str, Any]:
    return {**source, "source": source["target"], "target": source["source"]}
