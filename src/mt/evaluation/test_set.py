"""Scores a translator on a test set, greedy and beam, and lays the results out."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mt.config import Config
from mt.console import log, table
from mt.data.eval_texts import EvalText
from mt.decoding.engine import SearchOptions
from mt.decoding.mbr import by_utility
from mt.decoding.settings import TranslationSettings
from mt.decoding.translated import Translated
from mt.decoding.translator import Translator, distinct, lines_at_once
from mt.metrics.comet import Comet, CometScore
from mt.metrics.pairwise import utility_for
from mt.metrics.scores import Scores, score
from mt.storage import atomic


@dataclass(frozen=True)
class Method:
    """A way to find translations.

    Attributes:
        name: what tables and files call it.
        options: how to search or draw.
        utility: chrf or bleu: of the n best choose by minimum Bayes risk; None: take the best.

    Its translations are into the translator's language.
    """

    name: str
    options: SearchOptions
    utility: str | None = None

    def translate(self, translator: Translator, sources: Sequence[str]) -> list[str]:
        if self.utility is None:
            return translator.best(sources, self.options)
        utility = utility_for(self.utility, translator.target_lang)
        chosen = []
        at_once = lines_at_once(len(sources), self.options.n_best)
        for start in range(0, len(sources), at_once):
            translated = translator.translate(sources[start : start + at_once], self.options, None)
            pools = translated if self.options.sampling is not None else map(distinct, translated)
            chosen += [by_utility(pool, utility)[0].text for pool in pools]
        return chosen


@dataclass(frozen=True)
class MethodResult:
    """What one search method reached on a test set in one language."""

    method: str
    scores: Scores
    sentences_per_second: float
    translated: Translated
    comet: CometScore | None = None

    @property
    def target_lang(self) -> str:
        return self.translated.text.target_lang

    def as_dict(self) -> dict[str, Any]:
        """The fields of the public JSON object."""
        numbers = {key: value for key, value in asdict(self.scores).items() if key != "signatures"}
        if self.comet is not None:
            numbers["comet"] = self.comet.score
        return {
            "method": self.method,
            "target_lang": self.target_lang,
            **{key: value if value is None else round(value, 4) for key, value in numbers.items()},
            "sentences_per_second": round(self.sentences_per_second, 2),
            "signature": self.scores.signatures.get("bleu"),
            "signatures": self.signatures,
        }

    @property
    def signatures(self) -> dict[str, str]:
        """What a reader needs to reproduce the numbers, by metric."""
        return self.scores.signatures | ({} if self.comet is None else {"comet": self.comet.signature})


def search_options(config: Config, method: str = "beam", **changes: Any) -> SearchOptions:
    """The decoding section of a configuration as search options; greedy is a beam of one."""
    changes = {key: value for key, value in changes.items() if value is not None}
    if method == "greedy":
        changes["beam_size"] = 1
    return replace(TranslationSettings.of(config).search, **changes)


def configured_methods(config: Config, **changes: Any) -> list[Method]:
    """The methods that a configuration names; changes (None: no change) are for beam search, and ask for it."""
    asked = any(value is not None for value in changes.values())
    names = [*config.evaluation.methods, *(["beam"] if asked and "beam" not in config.evaluation.methods else [])]
    return [Method(name, search_options(config, name, **({} if name == "greedy" else changes))) for name in names]


def evaluate(
    translator: Translator,
    config: Config,
    texts: Sequence[EvalText],
    methods: Sequence[Method] | None = None,
    comet: Comet | None = None,
) -> list[MethodResult]:
    """Translates a test set with each method and scores it, language by language.

    Args:
        translator: what to score.
        config: names the metrics.
        texts: the test set.
        methods: those to score instead of the configured ones.
        comet: a learned metric beside the others.
    """
    results = []
    for text in texts:
        into = translator.to(text.target_lang)
        into.tell_of_long(text.sources, f"text to translate into {text.target_lang}")
        for method in configured_methods(config) if methods is None else methods:
            log.info("translating %d sentences into %s, %s", len(text.sources), text.target_lang, method.name)
            started = time.perf_counter()
            hypotheses = method.translate(into, text.sources)
            seconds = time.perf_counter() - started
            scores = score(hypotheses, text.references, config.evaluation, text.target_lang)
            rate = len(text.sources) / max(seconds, 1e-9)
            learned = None if comet is None else comet.score(text.sources, hypotheses, text.references)
            results.append(MethodResult(method.name, scores, rate, Translated(text, hypotheses), learned))
    return results


def results_json(results: Sequence[MethodResult]) -> dict[str, Any]:
    """The public JSON object of an evaluation."""
    sentences = {result.target_lang: len(result.translated.hypotheses) for result in results}
    return {"sentences": sum(sentences.values()), "results": [result.as_dict() for result in results]}


def results_table(results: Sequence[MethodResult]) -> str:
    """One table of all methods, then the signatures."""
    several = len({result.target_lang for result in results}) > 1
    learned = any(result.comet for result in results)
    header = [
        *(["language"] if several else []),
        "method",
        "BLEU",
        "95 % interval",
        "chrF",
        "TER",
        *(["COMET"] if learned else []),
        "exact %",
        "length ratio",
        "sentences/s",
    ]
    rows = []
    for result in results:
        s = result.scores
        interval = "-" if s.bleu_low is None else f"{s.bleu_low:.1f} to {s.bleu_high:.1f}"
        rows.append(
            [
                *([result.target_lang] if several else []),
                result.method,
                _number(s.bleu),
                interval,
                _number(s.chrf),
                _number(s.ter),
                *([f"{result.comet.score:.4f}" if result.comet else "-"] if learned else []),
                _number(s.exact_match),
                f"{s.length_ratio:.3f}",
                _number(result.sentences_per_second),
            ]
        )
    names = {"bleu": "BLEU", "chrf": "chrF2", "ter": "TER", "comet": "COMET"}
    signatures = [f"{names[metric]}: {signature}" for r in results for metric, signature in r.signatures.items()]
    return "\n".join([table(header, rows), *dict.fromkeys(signatures)])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def write_results(folder: Path, name: str, results: Sequence[MethodResult]) -> None:
    """Writes sources, references, one hypothesis file a method, and the scores, all named after the test set.

    Of several languages, the texts have the language in their names, too.
    """
    several = len({result.target_lang for result in results}) > 1
    for result in results:
        own = f"{name}.{result.target_lang}" if several else name
        atomic.write_text(folder / f"{own}.source", _lines(result.translated.text.sources))
        atomic.write_text(folder / f"{own}.reference", _lines(result.translated.text.references))
        atomic.write_text(folder / f"{own}.{result.method}", _lines(result.translated.hypotheses))
    atomic.write_json(folder / f"{name}.json", results_json(results))


def _lines(texts: Sequence[str]) -> str:
    return "".join(text + "\n" for text in texts)
