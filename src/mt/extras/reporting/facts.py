"""What a run folder tells about its training."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mt.config import Config, parse_config
from mt.data.token_store import EncodedCorpus
from mt.errors import InputError
from mt.storage.manifest import DamagedError, read_manifest
from mt.storage.run_dir import RunDir
from mt.text.lines import read_lines

_LOOKED_AT = 200_000  # training sentences whose lengths are counted; of more, some at even distances

# Of a test set's scores, those that a report has a column for.
_SHOWN = "bleu bleu_low bleu_high chrf ter exact_match length_ratio sentences_per_second signatures".split()

Event = dict[str, Any]


@dataclass(frozen=True)
class TestSet:
    """What was translated and scored, in one language with one method.

    Attributes:
        name: of its files: `test`, or `test.de` of several languages.
        scores: the public JSON object of the method.
    """

    name: str
    scores: dict[str, Any]
    sources: list[str]
    references: list[str]
    hypotheses: list[str]


@dataclass(frozen=True)
class Facts:
    """All that a report shows.

    Attributes:
        events: of the training that led to the result: steps that a crash lost are left out.
        manifest: of the finished model; empty where there is none yet.
        cleaning: training pairs by what became of them.
        lengths: tokens of training sentences: source and target (N,) each.
    """

    run: RunDir
    config: Config
    config_text: str
    events: list[Event]
    manifest: dict[str, Any]
    cleaning: dict[str, int]
    pairs: dict[str, int]
    lengths: tuple[Any, Any]
    tests: list[TestSet]

    @property
    def steps(self) -> int:
        """How far training has come."""
        return max((event["step"] for event in self.events), default=0)

    @property
    def goes_on(self) -> bool:
        """True if the model is of an earlier step: a finished training was given more of them."""
        return bool(self.manifest) and self.steps > self.manifest["steps"]

    def of_kind(self, kind: str) -> list[Event]:
        """The events of a kind, in their order."""
        return [event for event in self.events if event["event"] == kind]


def read_facts(run: RunDir) -> Facts:
    """Reads a run folder, finished or not.

    Raises:
        InputError: it is no run folder, or what a report needs of it is missing or damaged.
    """
    text = _needed(run, run.config)
    events = list(_kept(whole_events(_needed(run, run.metrics, errors="replace"))))
    remedy = "remove the run's data/ and give the same `mt train` again, which makes it anew"
    try:
        manifest = read_manifest(run.model.root)
    except DamagedError:
        manifest = {}
    pairs, cleaning = {}, {}
    if run.text.is_dir() or not manifest:  # of a finished run it may have been removed to save space
        with _undamaged(run.prepared_counts, remedy):
            pairs = dict(json.loads(_needed(run, run.prepared_counts))["pairs"])
        with _undamaged(run.cleaning, remedy):
            cleaning = dict(json.loads(_needed(run, run.cleaning)))
    return Facts(
        run=run,
        config=parse_config(text, str(run.config)),
        config_text=text,
        events=events,
        manifest=manifest,
        cleaning=cleaning,
        pairs=pairs,
        lengths=_lengths(run),
        tests=list(_tests(run)),
    )


@contextlib.contextmanager
def _undamaged(path: Path, remedy: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path}: damaged", remedy) from None


def _needed(run: RunDir, path: Path, errors: str = "strict") -> str:
    try:
        return path.read_text(encoding="utf-8", errors=errors)
    except FileNotFoundError:
        raise InputError(
            f"{run.root}: there is no {path.relative_to(run.root)} in it, so there is nothing to report",
            "give the folder of a run whose training has begun (runs/NAME)",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None


def whole_events(text: str) -> Iterator[Event]:
    """The lines of a metrics.jsonl that are whole; a crash may have torn some, even within a letter."""
    for line in text.split("\n"):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("step"), int) and "event" in event:
            yield event


def _kept(events: Iterator[Event]) -> list[Event]:
    """Without what happened after the checkpoint that a later process went on from.

    That process may have made the validation of this step again.
    """
    kept: list[Event] = []
    validated: set[int] = set()
    for event in events:
        if event["event"] == "validation":
            if event["step"] in validated:
                kept = [one for one in kept if (one["event"], one["step"]) != ("validation", event["step"])]
            validated.add(event["step"])
        if event["event"] in ("start", "resume"):
            kept = [one for one in kept if one["step"] <= event["step"] and one["event"] != "done"]
        kept.append(event)
    return kept


def _lengths(run: RunDir) -> tuple[Any, Any]:
    try:
        corpus = EncodedCorpus.open(run.encoded("train"))
    except (OSError, StopIteration, ValueError):  # the data were removed to save space
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    step = max(1, -(-len(corpus) // _LOOKED_AT))
    return corpus.lengths(np.arange(0, len(corpus), step))


def _tests(run: RunDir) -> Iterator[TestSet]:
    """The run's own test set, as it was last scored."""
    path = run.scores / "test.json"
    if not path.is_file():
        return
    remedy = f"make it again: mt eval --model {run.root}"
    with _undamaged(path, remedy):
        results: Sequence[dict[str, Any]] = json.loads(path.read_bytes())["results"]
        kinds = [(result["method"], result.get("target_lang")) for result in results]
        for result in results:
            _ = [result[key] for key in _SHOWN]
    several = len({language for _, language in kinds}) > 1
    for result, (method, language) in zip(results, kinds, strict=True):
        name = f"test.{language}" if several else "test"
        files = [run.scores / f"{name}.{kind}" for kind in ("source", "reference", method)]
        if all(file.is_file() for file in files):
            source, reference, hypotheses = (list(read_lines(file)) for file in files)
            if not len(source) == len(reference) == len(hypotheses):
                raise InputError(f"{files[2]}: not as many lines as its source and reference", remedy)
            yield TestSet(name, result, source, reference, hypotheses)
