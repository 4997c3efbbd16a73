"""Records of finished steps: a key of the command and its inputs, digests of the outputs, costs and scores."""

import contextlib
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from mt.config import load_config
from mt.data.prepare import drop_missing_sources, input_digests
from mt.errors import InputError
from mt.evaluation.texts import owner
from mt.extras.pipelines.output_names import name_in, train_names
from mt.extras.pipelines.plan import Plan, Step
from mt.extras.pipelines.schema import Score as ScoreSettings
from mt.storage import atomic, manifest
from mt.storage.find_model import find_model
from mt.storage.run_dir import ModelDir, RunDir
from mt.text.archives import file_state

_PATH_KEYS = frozenset("root source target file folder source_file target_file init_from distill_from".split())
_EVAL_SUFFIXES = frozenset((".json", ".source", ".reference", ".greedy", ".beam", ".sample", ".mbr"))
Score = dict[str, str | float | None]
State = Literal["done", "new", "changed", "lost", "waiting"]


@dataclass(frozen=True)
class Record:
    """A finished step."""

    key: str  # of its command and inputs
    digest: str  # of what it wrote
    seconds: float  # in all attempts with this key that were not killed
    core_seconds: float  # likewise, of all its processes
    disk: int  # bytes of its output
    scores: list[Score] = field(default_factory=list)  # those of `mt eval`, or of a training's test set


_RECORD, _SCORES = TypeAdapter(Record), TypeAdapter(list[Score])  # which refuse damaged values


def read_record(plan: Plan, step: Step) -> Record | None:
    """Return the record of a step, None if it never finished."""
    return _read(plan.records / f"{step.name}.json")


def _read(path: Path) -> Record | None:
    try:
        return _RECORD.validate_json(path.read_bytes())
    except (OSError, ValueError):
        return None


def has_records(plan: Plan) -> bool:
    """Return True if any step has finished."""
    return any(map(_read, plan.records.glob("*.json")))


def write_record(plan: Plan, step: Step, key: str) -> Record:
    """Write the record of a step that has just finished."""
    attempts = [each for each in _attempts(plan, step) if each["key"] == key]
    seconds, cores = (round(sum(each[name] for each in attempts), 2) for name in ("seconds", "core_seconds"))
    output = _digest(step)
    if output is None:
        raise InputError(f"step {step.name}: {step.output} was not written", "run the same command again")
    files = step.output.rglob("*") if step.output.is_dir() else [step.output]
    disk = sum(path.stat().st_size for path in files if path.is_file())
    record = Record(key, output, seconds, cores, disk, _scores(step))
    atomic.write_json(plan.records / f"{step.name}.json", asdict(record))
    for path, place in _lost_files(plan, step):
        hint = f"correct `file` there, or remove {RunDir(step.output).model.root}, which is rebuilt, and run again"
        raise InputError(f"{place}: step {step.name} has not written {path}", hint)
    return record


def note_attempt(plan: Plan, step: Step, key: str, started: float, **costs: float | str) -> None:
    """Append the start of an attempt, with its cores and text, or its end, with its costs."""
    line = {"key": key, "started": started, "output": os.path.realpath(step.output), **costs}
    atomic.append_line(plan.records / f"{step.name}.attempts", json.dumps(line))


def may_write(plan: Plan, step: Step) -> bool:
    """Return False if a step's output is a file or folder that no attempt of it has written."""
    if not step.output.exists() or (step.output.is_dir() and not any(step.output.iterdir())):
        return True
    real, record = os.path.realpath(step.output), read_record(plan, step)
    if record is not None and record.digest == output_digest(plan, step):  # its folder may have moved since
        return True
    # The attempts move with the folder of the steps, but not with an output elsewhere.
    is_inside = getattr(step.settings, "output", None) is None
    return any(is_inside or attempt.get("output") == real for attempt in _attempts(plan, step))


def earlier_scorers(plan: Plan, step: Step) -> list[Path]:
    """Return the runs of small models that a scoring step has trained on an earlier text."""
    if step.config is None or not (isinstance(step.settings, ScoreSettings) and step.settings.train):
        return []
    key = text_key(step)
    if all(attempt.get("text", key) == key for attempt in list(_attempts(plan, step))[-1:]):
        return []
    directions = [direction for pair in step.config.data.pairs for direction in (pair, pair[::-1])]
    runs = [RunDir(step.output / f"{src}-{tgt}{back}") for src, tgt in directions for back in ("", "-back")]
    return [run.root for run in dict.fromkeys(runs) if run.config.is_file()]


def text_key(step: Step) -> str:
    """Return the key of the text that a step's configuration names, and of the settings that its result depends on."""
    return manifest.stage_key(*_text(step))


def _attempts(plan: Plan, step: Step) -> Iterable[dict[str, Any]]:
    """Return the attempts at a step; a killed one has costs of zero, since its end was not noted."""
    path = plan.records / f"{step.name}.attempts"
    by_start = defaultdict[float, dict[str, Any]](lambda: {"seconds": 0.0, "core_seconds": 0.0})
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else ():
        with contextlib.suppress(ValueError, TypeError, KeyError):  # a kill has truncated the line
            attempt = json.loads(line)
            by_start[attempt["started"]] |= attempt
    return by_start.values()


def step_key(step: Step) -> str:
    """Return the key of a step whose inputs all exist; it does not depend on how their paths are spelled."""
    values, digests = _text(step)
    excluded = {"config", "set", "output", "embeddings", *step.places}
    options = step.settings.model_dump(exclude_defaults=True, exclude=excluded)
    given: dict[str, Any] = {key: len(paths) for key, paths in step.places.items()}
    teachers = step.config.training.distill_from if step.kind == "train" and step.config is not None else ()
    if teachers:  # tells them apart from init_from among the models that it reads
        given["distill_from"] = len(teachers)
    if embeddings := getattr(step.settings, "embeddings", None):
        given["embeddings"] = manifest.folder_digests(Path(embeddings), cached_sha256)
    if step.kind == "eval" and step.text("source") is None:
        given["test"] = _test_set(find_model(step.models()[0], Path()))
    return manifest.stage_key(step.kind, options, values, digests, given, [input_digest(path) for path in step.reads])


def _text(step: Step) -> tuple[Any, dict[str, Any]]:
    """Return the values of a step's configuration that matter to it, without paths, and the digests of its texts."""
    if step.config is None:
        return {}, {}
    config = drop_missing_sources(step.config)
    # Cleaning and scoring depend on these settings alone.
    include: Any = None if step.kind == "train" else {"data": True, "tokenizer": True, "model": {"source_format"}}
    dumped = config.model_dump(mode="json", exclude_defaults=True, include=include)
    return _without_paths(dumped), input_digests(config.data, cached_sha256)


def _test_set(model: ModelDir) -> dict[str, Any] | None:
    """Identify the test set of a model, on which it is scored if no other text is given."""
    run = owner(model)
    if run is None:
        return None
    try:
        data = load_config(run.config).data.model_copy(update={"train": (), "valid": None})
        return input_digests(data, cached_sha256)
    except InputError:  # a file is gone, but the run has its own copy
        return None


def _without_paths(values: Any) -> Any:
    """Return the values of a configuration without paths of files, whose digests count."""
    if isinstance(values, dict):
        return {key: _without_paths(value) for key, value in values.items() if key not in _PATH_KEYS}
    return [_without_paths(value) for value in values] if isinstance(values, list) else values


def input_digest(path: Path) -> str:
    """Return the digest of a file, of what a model has learned, or of scores of pairs."""
    if path.is_file():
        return cached_sha256(path)
    if (table := path / "scores.tsv").is_file():
        return input_digest(table)
    return _model_digest(find_model(path, path.parent))


def cached_sha256(path: Path) -> str:
    """Return the digest of a file, read again only if it has been replaced or written to."""
    return _sha256(path, *file_state(path))


@cache
def _sha256(path: Path, *state: int) -> str:
    return manifest.sha256(path)


def _model_digest(model: ModelDir) -> str:
    try:
        files = manifest.read_manifest(model.root)["files"]
    except manifest.DamagedError as error:
        raise InputError(f"{model.root}: no text, scores or model in it: {error}") from None
    settings = {name: each for name, each in files.items() if name.endswith("settings.json") or name == "config.yaml"}
    return manifest.stage_key(manifest.learned_files(files), settings)


def output_digest(plan: Plan, step: Step) -> str | None:
    """Return the digest of what a step wrote; None if it, or a file in it that another step reads, is not there."""
    return None if any(_lost_files(plan, step)) else _digest(step)


def _digest(step: Step) -> str | None:
    output = step.output
    try:
        if step.kind == "train":
            model = RunDir(output).model
            _check_files(model.root, model.readme.name)  # which users may edit
            return _model_digest(model)
        if step.kind in ("clean", "export"):
            return manifest.stage_key(_check_files(output))
        if step.kind == "score":
            return manifest.stage_key([cached_sha256(output / name) for name in ("scores.tsv", "scores.json")])
        if step.kind == "eval":
            files = sorted(path for path in output.iterdir() if path.suffix in _EVAL_SUFFIXES)
            return manifest.stage_key({path.name: cached_sha256(path) for path in files})
        return input_digest(output)
    except (manifest.DamagedError, InputError, OSError):
        return None


def _check_files(folder: Path, ignored: str | None = None) -> dict[str, Any]:
    """Compare a folder with its manifest, but for a file that is ignored; return the manifest's entries by name."""
    files: dict[str, Any] = manifest.read_manifest(folder)["files"]
    for name, file in files.items():
        if name != ignored and input_digest(folder / name) != file["sha256"]:
            raise manifest.DamagedError(f"{name} was altered")
    return files


def remove_altered(folder: Path) -> None:
    """Remove the files of a folder that differ from its manifest, which its command would refuse to replace."""
    with contextlib.suppress(manifest.DamagedError):
        files = manifest.read_manifest(folder)["files"]
        for path in [path for path in folder.rglob("*") if path.is_file()]:
            name = path.relative_to(folder).as_posix()
            if name in files and input_digest(path) != files[name]["sha256"]:
                path.unlink()


def _lost_files(plan: Plan, step: Step) -> Iterator[tuple[Path, str]]:
    """Yield the files of a training, besides its model, that others read and that are gone, with the keys' places."""
    for other in plan.steps.values() if step.kind == "train" else ():
        for path, key in other.inputs().items() if step.name in other.needs else ():
            if plan.writer(path) is step and not path.exists() and name_in(step, path) in train_names(step):
                yield path, plan.pipeline.origin(*plan.problem(other, "", key).path)


def _scores(step: Step) -> list[Score]:
    """Return the scores that a step wrote, without those of damaged files."""
    scores = list[Score]()
    names = ("target_lang", "method", "bleu", "bleu_low", "bleu_high", "chrf", "ter")
    paths = {"train": RunDir(step.output).scores.glob("test.json"), "eval": step.output.glob("*.json")}
    for path in paths.get(step.kind, ()):
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
            results = json.loads(path.read_bytes())["results"]
            scores += _SCORES.validate_python([{name: result.get(name) for name in names} for result in results])
    return scores


def states(plan: Plan) -> dict[str, State]:
    """Return the state of each step; `changed`: done with other inputs; `lost`: its output is gone or was altered."""
    by_step: dict[str, State] = {}
    for name, step in plan.steps.items():
        record = read_record(plan, step)
        if any(by_step[other] != "done" for other in step.needs):
            by_step[name] = "waiting"
        elif record is None:
            by_step[name] = "new"
        else:
            by_step[name] = "changed"
            with contextlib.suppress(InputError):  # an input is gone
                if record.key == step_key(step):
                    by_step[name] = "done" if record.digest == output_digest(plan, step) else "lost"
    return by_step
