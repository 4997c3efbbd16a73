"""The data of a run folder that a report shows."""

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mt.config import Config, parse_config
from mt.console import quoted
from mt.data.mixture import direction
from mt.data.token_store import EncodedCorpus
from mt.errors import InputError
from mt.storage.manifest import DamagedError, read_manifest
from mt.storage.run_dir import RunDir
from mt.text.lines import read_lines

_MAX_LENGTHS = 200_000  # training sentences whose lengths are counted; of more, an evenly spaced sample

# The fields of scores that a report shows
_FIELDS = "method bleu bleu_low bleu_high chrf ter exact_match length_ratio sentences_per_second signatures".split()

Event = dict[str, Any]


@dataclass(frozen=True)
class TestSet:
    """A scored test set, in one direction with one search method."""

    name: str  # of its files: `test`, or with several target languages `test.de`, or with several sources `test.en-de`
    scores: dict[str, Any]  # the public JSON object of the method
    sources: list[str]
    references: list[str]
    hypotheses: list[str]


class RunData:
    """The data of a run folder, of a training that has finished or not.

    Attributes:
        events: of the training that led to the result; steps lost in a crash are left out.
        manifest: of the finished model; empty before it is finished.
        pairs: by split.
        cleaning: training pairs by the outcome of cleaning.
        lengths: tokens of training sentences: source and target (N,) each.

    Raises:
        InputError: not a run folder, or a required file is missing or damaged.
    """

    def __init__(self, run: RunDir) -> None:
        self.run, self.config_text = run, _read(run, run.config)
        self.events = _without_lost_steps(parse_events(_read(run, run.metrics, errors="replace")))
        self.manifest, self.pairs, self.cleaning = dict[str, Any](), dict[str, int](), dict[str, int]()
        with contextlib.suppress(DamagedError):
            self.manifest = read_manifest(run.model.root)
        if run.text.is_dir() or not self.manifest:  # the data of a finished run may have been removed to save space
            remedy = "remove the run's data/ and run the same `mt train` again, which prepares it again"
            with _report_damage(run.prepared_counts, remedy):
                self.pairs = dict(json.loads(_read(run, run.prepared_counts))["pairs"])
            with _report_damage(run.cleaning, remedy):
                self.cleaning = dict(json.loads(_read(run, run.cleaning)))
        self.config = parse_config(self.config_text, str(run.config))
        self.lengths, self.tests = _lengths(run, self.config), list(_test_sets(run))

    @property
    def steps(self) -> int:
        """The last step of the training."""
        return last_step(self.events)

    @property
    def has_newer_steps(self) -> bool:
        """True if a finished training was extended and the model is of an earlier step."""
        return bool(self.manifest) and self.steps > self.manifest["steps"]

    @property
    def best_tests(self) -> list[TestSet]:
        """The test set in each direction as beam search, or the last method if there is none, translated it."""
        ranked = sorted(self.tests, key=lambda test: test.scores["method"] == "beam")
        return list({test.name: test for test in ranked}.values())

    def of_kind(self, kind: str) -> list[Event]:
        return [event for event in self.events if event["event"] == kind]


@contextlib.contextmanager
def _report_damage(path: Path, remedy: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path}: damaged", remedy) from None


def _read(run: RunDir, path: Path, errors: str = "strict") -> str:
    try:
        return path.read_text(encoding="utf-8", errors=errors)
    except FileNotFoundError:
        raise InputError(
            f"{run.root}: there is no {path.relative_to(run.root)} in it, so there is nothing to report",
            "give the folder of a run that has started training (runs/NAME)",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None


def read_history(run: RunDir) -> list[Event]:
    """Read the events of the training that led to the result; none before it has started."""
    text = run.metrics.read_text(encoding="utf-8", errors="replace") if run.metrics.is_file() else ""
    return _without_lost_steps(parse_events(text))


def parse_events(text: str) -> Iterator[Event]:
    """Parse a metrics.jsonl, without lines that a crash has truncated."""
    for line in text.split("\n"):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("step"), int) and "event" in event:
            yield event


def last_step(events: Iterable[Event]) -> int:
    """Return the last step of some events; 0 without any."""
    return max((event["step"] for event in events), default=0)


def _without_lost_steps(events: Iterable[Event]) -> list[Event]:
    """Drop the events after the checkpoint that a later process resumed from, repeated validations and earlier ends."""
    result: list[Event] = []
    for event in events:
        if event["event"] in ("start", "resume"):
            result = [earlier for earlier in result if earlier["step"] <= event["step"]]
        result.append(event)
    last = {event["step"]: event for event in result if event["event"] == "validation"}
    end = last_step(result)
    result = [event for event in result if event["event"] != "done" or event["step"] == end]
    return [event for event in result if event["event"] != "validation" or event is last[event["step"]]]


def _lengths(run: RunDir, config: Config) -> tuple[Any, Any]:
    try:
        corpus = EncodedCorpus.open(run.encoded("train"), config.model.source_format)
    except (OSError, StopIteration, ValueError):  # the data were removed to save space
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    step = max(1, -(-len(corpus) // _MAX_LENGTHS))
    return corpus.lengths(np.arange(0, len(corpus), step))


def _test_sets(run: RunDir) -> Iterator[TestSet]:
    """Read the run's own test set as it was last scored."""
    path = run.scores / "test.json"
    if not path.is_file():
        return
    remedy = f"score it again: mt eval --model {quoted(str(run.root))}"
    with _report_damage(path, remedy):
        results: Sequence[dict[str, Any]] = json.loads(path.read_bytes())["results"]
        directions = [direction(result.get("source_lang", ""), result["target_lang"]) for result in results]
        _ = [result[key] for result in results for key in _FIELDS]  # a missing one is damage
    for result, language in zip(results, directions, strict=True):
        name = f"test.{language}" if len(set(directions)) > 1 else "test"
        files = [run.scores / f"{name}.{suffix}" for suffix in ("source", "reference", result["method"])]
        if all(file.is_file() for file in files):
            sources, references, hypotheses = (list(read_lines(file)) for file in files)
            if not len(sources) == len(references) == len(hypotheses):
                raise InputError(f"{files[2]}: not as many lines as its source and reference", remedy)
            yield TestSet(name, result, sources, references, hypotheses)
