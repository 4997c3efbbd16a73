"""Scores a translator on a test set, greedy and beam, and lays the results out."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mt import storage
from mt.config import Config
from mt.console import log, table
from mt.decoding.engine import SearchOptions
from mt.decoding.mbr import by_utility
from mt.decoding.settings import TranslationSettings
from mt.decoding.translator import Translator
from mt.evaluation.scores import Scores, score


@dataclass(frozen=True)
class Method:
    """A way to find translations.

    Attributes:
        name: what tables and files call it.
        options: how to search or draw.
        utility: chrf or bleu: of the n best choose by minimum Bayes risk; None: take the best.
    """

    name: str
    options: SearchOptions
    utility: str | None = None

    def translate(self, translator: Translator, sources: Sequence[str]) -> list[str]:
        if self.utility is None:
            return translator.best(sources, self.options)
        return [by_utility(found, self.utility)[0].text for found in translator.translate(sources, self.options)]


@dataclass(frozen=True)
class MethodResult:
    """What one search method reached on a test set."""

    method: str
    scores: Scores
    sentences_per_second: float
    hypotheses: list[str]

    def as_dict(self) -> dict[str, Any]:
        """The fields of the public JSON object."""
        numbers = {key: value for key, value in asdict(self.scores).items() if key != "signatures"}
        return {
            "method": self.method,
            **{key: value if value is None else round(value, 4) for key, value in numbers.items()},
            "sentences_per_second": round(self.sentences_per_second, 2),
            "signature": self.scores.signatures.get("bleu"),
            "signatures": self.scores.signatures,
        }


def search_options(config: Config, method: str = "beam", **changes: Any) -> SearchOptions:
    """The decoding section of a configuration as search options; greedy is a beam of one."""
    changes = {key: value for key, value in changes.items() if value is not None}
    if method == "greedy":
        changes["beam_size"] = 1
    return replace(TranslationSettings.of(config).search, **changes)


def configured_methods(config: Config, **changes: Any) -> list[Method]:
    """The methods that a configuration names; changes (None: no change) are for those that search with a beam."""
    return [
        Method(name, search_options(config, name, **({} if name == "greedy" else changes)))
        for name in config.evaluation.methods
    ]


def evaluate(
    translator: Translator,
    config: Config,
    sources: Sequence[str],
    references: Sequence[str],
    methods: Sequence[Method] | None = None,
) -> list[MethodResult]:
    """Translates a test set with each method and scores it.

    Args:
        translator: what to score.
        config: names the metrics.
        sources, references: raw text, aligned.
        methods: those to score instead of the configured ones.
    """
    results = []
    for method in configured_methods(config) if methods is None else methods:
        log.info("translating %d sentences, %s", len(sources), method.name)
        started = time.perf_counter()
        hypotheses = method.translate(translator, sources)
        seconds = time.perf_counter() - started
        scores = score(hypotheses, references, config.evaluation, config.data.target_lang)
        results.append(MethodResult(method.name, scores, len(sources) / max(seconds, 1e-9), hypotheses))
    return results


def results_json(results: Sequence[MethodResult], sentences: int) -> dict[str, Any]:
    """The public JSON object of an evaluation."""
    return {"sentences": sentences, "results": [result.as_dict() for result in results]}


def results_table(results: Sequence[MethodResult]) -> str:
    """One table of all methods, then the signatures."""
    header = ["method", "BLEU", "95 % interval", "chrF", "TER", "exact %", "length ratio", "sentences/s"]
    rows = []
    for result in results:
        s = result.scores
        interval = "-" if s.bleu_low is None else f"{s.bleu_low:.1f} to {s.bleu_high:.1f}"
        rows.append(
            [
                result.method,
                _number(s.bleu),
                interval,
                _number(s.chrf),
                _number(s.ter),
                _number(s.exact_match),
                f"{s.length_ratio:.3f}",
                _number(result.sentences_per_second),
            ]
        )
    names = {"bleu": "BLEU", "chrf": "chrF2", "ter": "TER"}
    signatures = [f"{names[metric]}: {signature}" for metric, signature in results[0].scores.signatures.items()]
    return "\n".join([table(header, rows), *signatures])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def write_results(
    folder: Path, name: str, results: Sequence[MethodResult], sources: Sequence[str], references: Sequence[str]
) -> None:
    """Writes sources, references, one hypothesis file a method, and the scores, all named after the test set."""
    storage.write_text(folder / f"{name}.source", _lines(sources))
    storage.write_text(folder / f"{name}.reference", _lines(references))
    for result in results:
        storage.write_text(folder / f"{name}.{result.method}", _lines(result.hypotheses))
    storage.write_json(folder / f"{name}.json", results_json(results, len(sources)))


def _lines(texts: Sequence[str]) -> str:
    return "".join(text + "\n" for text in texts)
