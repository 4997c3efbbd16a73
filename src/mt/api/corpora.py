"""Judgement of a training corpus by models, from Python."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mt.api.loading import Models, find_models, load
from mt.api.training import ConfigLike, read_config, start
from mt.api.translation import Translator
from mt.console import log
from mt.errors import InputError

if TYPE_CHECKING:
    from mt.config import Config
    from mt.extras.doctor.scoring import Scorer


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
    from mt.data.prepare import drop_missing_sources
    from mt.extras.doctor.bitexts import bitexts_of
    from mt.extras.doctor.pair_scores import RAW, finished_summary, require_scores_folder, write_scores
    from mt.extras.doctor.scoring import score_pairs, survey
    from mt.extras.doctor.scoring_models import embedding_similarity
    from mt.storage.manifest import learned_files, read_manifest
    from mt.storage.stage import stage_key

    settings, folder = drop_missing_sources(read_config(config, overrides)), Path(output)
    require_scores_folder(folder, settings.data)
    if (forward is None) != (backward is None):
        raise InputError("scores take a model of each direction", "give both --forward and --backward, or neither")
    similarity = embedding_similarity(Path(embeddings), device) if embeddings else None
    if forward is None:
        forward, backward = _train_pair(settings, folder, device, Path(runs))
    loaded = [
        [load(each.root, engine="torch", device=device, runs=runs) for each in find_models(models, runs)]
        for models in (forward, backward)
    ]
    bitexts = [bitext for bitext in bitexts_of(settings.data) if bitext.split == "train"]
    scorers = {bitext.direction: _scorers(loaded, *bitext.languages) for bitext in bitexts}
    facts = survey(bitexts)
    weights = [learned_files(read_manifest(each.path)["files"]) for models in loaded for each in models]
    key = stage_key(facts.digest, weights, str(embeddings))
    if (summary := finished_summary(folder, key)) is None:
        score_pairs(bitexts, facts, scorers, folder / RAW, key, similarity)
        sources = [{"file": bitext.files[0], "pairs": n} for bitext, n in zip(bitexts, facts.sizes, strict=True)]
        summary = write_scores(folder, {"key": key, "sources": sources})
    return summary


def _scorers(loaded: "list[list[Translator]]", source_lang: str, target_lang: str) -> "tuple[Scorer, Scorer]":
    forward, backward = loaded
    return (
        _scorer(forward, "--forward", source_lang, target_lang),
        _scorer(backward, "--backward", target_lang, source_lang),
    )


def _scorer(models: "list[Translator]", option: str, own: str, other: str) -> "Scorer":
    fitting = [each for each in models if own in each.source_langs and other in each.target_langs]
    if not fitting:
        given = ", ".join(f"{each.path} ({each.direction})" for each in models)
        raise InputError(f"{option} {given}: not a model from {own} to {other}", "give one of the text's languages")
    chosen: dict[str, Any] = {"to": other, "source_lang": own if len(fitting[0].source_langs) > 1 else None}
    return partial(fitting[0].score, **chosen)


def _train_pair(settings: "Config", folder: Path, device: str, runs: Path) -> tuple[list[Path], list[Path]]:
    """Train a small model each way, for each pair of languages, on the clean part of the training text."""
    from mt.extras.doctor.check import check_corpus
    from mt.extras.doctor.clean import dropping_rules, write_clean
    from mt.extras.doctor.scoring_models import small_model

    text = folder / "text"
    rules = dropping_rules((), ())
    cleaned = write_clean(check_corpus(settings, runs, 1, dropped_for=rules), text, rules)
    data = settings.data
    models: tuple[list[Path], list[Path]] = ([], [])
    keys = ("source_lang", "target_lang")
    for pair in data.pairs:
        sources = [
            each
            for each in cleaned.sources
            if all(each.get(key, code) == code for key, code in zip(keys, pair, strict=True))
        ]
        for side, (own, other) in enumerate((pair, pair[::-1])):
            name = f"{own}-{other}"
            log.info("training %s, a small model that scores", folder / name)
            files = ("source", "target") if side == 0 else ("target", "source")
            train = [dict(zip(("source", "target"), (each[k] for k in files), strict=True)) for each in sources]
            size = sum((Path(data.root) / each["target"]).stat().st_size for each in train)
            start(small_model(name, (own, other), data.root, train, size, device), [], folder)
            models[side].append(folder / name)
    return models
