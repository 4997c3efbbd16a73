"""Scores on a test set, with greedy search, beam search and other methods."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mt.config import Config
from mt.console import log, or_dash, table
from mt.data.eval_texts import EvalText
from mt.decoding.engine import SearchOptions
from mt.decoding.settings import TranslationSettings
from mt.decoding.text_translation import Translated, translate_texts
from mt.decoding.translator import Translator
from mt.metrics.scores import Scores, rounded, score
from mt.storage import atomic
from mt.text.language_id import wrong_language_share


@dataclass(frozen=True)
class Method:
    """A decoding method; `name` is for tables and files, `utility` the metric of minimum Bayes risk decoding."""

    name: str
    options: SearchOptions
    utility: str | None = None


@dataclass(frozen=True)
class MethodResult:
    """The scores of a decoding method on a test set in one direction.

    Attributes:
        wrong_language: percentage of translations in another of the model's languages than the target; None if the
            model has one target language, or languages cannot be identified.
        terms: of the sentences with terms of the glossary, the percentage whose translations have them, or None.
    """

    method: str
    scores: Scores
    sentences_per_second: float
    translated: Translated
    wrong_language: float | None = None
    terms: float | None = None

    @property
    def target_lang(self) -> str:
        return self.translated.text.target_lang

    @property
    def direction(self) -> str:
        """The direction as tables and files name it."""
        return self.translated.text.direction

    def as_dict(self) -> dict[str, Any]:
        """Return the fields of the public JSON object.

        COMET, fields of a model of several languages, and the share of terms are present only where they apply.
        """
        text = self.translated.text
        several = {"source_lang": text.source_lang, "zero_shot": text.zero_shot} if text.source_lang else {}
        shares = {"wrong_language": self.wrong_language, "terms": self.terms}
        scores = asdict(self.scores)
        signatures = scores.pop("signatures")
        if "comet" not in signatures:
            del scores["comet"]
        return {
            "method": self.method,
            "target_lang": self.target_lang,
            **several,
            **rounded({key: share for key, share in shares.items() if share is not None}),
            **rounded(scores),
            "sentences_per_second": round(self.sentences_per_second, 2),
            "signature": signatures.get("bleu"),
            "signatures": signatures,
        }


def search_options(config: Config, method: str = "beam", **changes: Any) -> SearchOptions:
    """Return the configured search options with changes (None: no change); greedy is a beam of one."""
    changes = {key: value for key, value in changes.items() if value is not None}
    if method == "greedy":
        changes["beam_size"] = 1
    return replace(TranslationSettings.of(config).search, **changes)


def configured_methods(config: Config, **changes: Any) -> list[Method]:
    """Return the configured methods with changes (None: no change); a change adds beam search if it is missing."""
    names = list(config.evaluation.methods)
    if "beam" not in names and any(value is not None for value in changes.values()):
        names.append("beam")
    return [Method(name, search_options(config, name, **changes)) for name in names]


def warn_long_lines(translator: Translator, texts: Sequence[EvalText]) -> None:
    """Log one warning per text with lines longer than the model's limit."""
    for text in texts:
        translator.for_text(text).warn_long_lines(text.sources, f"text to translate into {text.target_lang}")


def evaluate(
    translator: Translator,
    config: Config,
    texts: Sequence[EvalText],
    methods: Sequence[Method] | None = None,
) -> list[MethodResult]:
    """Translate and score a test set by direction and method (default: the configured ones)."""
    results, data = [], config.data
    languages = [*data.source_lang, *data.target_lang]
    for text in texts:
        warn_long_lines(translator, [text])
        for method in configured_methods(config) if methods is None else methods:
            origin = f"from {text.source_lang} " if text.source_lang else ""
            log.info("translating %d sentences %sinto %s, %s", len(text.sources), origin, text.target_lang, method.name)
            [translated] = translate_texts(translator, [text], method.options, method.utility)
            hypotheses = translated.hypotheses
            scores = score(hypotheses, text.references, config.evaluation, text.target_lang)
            rate = len(text.sources) / max(translated.seconds, 1e-9)
            terms = translator.for_text(text).term_share(text.sources, hypotheses)
            wrong = wrong_language_share(hypotheses, text.target_lang, languages) if len(data.target_lang) > 1 else None
            results.append(MethodResult(method.name, scores, rate, translated, wrong, terms))
    return results


def results_json(results: Sequence[MethodResult]) -> dict[str, Any]:
    """Return the public JSON object of an evaluation."""
    sentences = {result.direction: len(result.translated.hypotheses) for result in results}
    return {"sentences": sum(sentences.values()), "results": [result.as_dict() for result in results]}


def results_table(results: Sequence[MethodResult]) -> str:
    """Format results as a table, with the signatures of all metrics; with several source languages, also means."""
    rows = [_row(result) for result in results]
    by_source = any(result.translated.text.source_lang for result in results)
    if by_source:
        rows += _mean_rows(results)
    hidden = set() if len({result.direction for result in results}) > 1 else {"language"}
    hidden |= {name for name in ("COMET", "wrong language %", "terms %") if all(row[name] == "-" for row in rows)}
    header = [name for name in rows[0] if name not in hidden]
    names = {"bleu": "BLEU", "chrf": "chrF2", "ter": "TER", "comet": "COMET"}
    signatures = [f"{names[metric]}: {signature}" for r in results for metric, signature in r.scores.signatures.items()]
    titles = ["pair" if name == "language" and by_source else name for name in header]
    return "\n".join([table(titles, [[row[name] for name in header] for row in rows]), *dict.fromkeys(signatures)])


def _row(result: MethodResult) -> dict[str, str]:
    s = result.scores
    return {
        "language": f"{result.direction}{' (zero-shot)' if result.translated.text.zero_shot else ''}",
        "method": result.method,
        "BLEU": or_dash(s.bleu),
        "95 % interval": "-" if s.bleu_low is None else f"{s.bleu_low:.1f} to {s.bleu_high:.1f}",
        "chrF": or_dash(s.chrf),
        "TER": or_dash(s.ter),
        "COMET": or_dash(s.comet, ".4f"),
        "exact %": or_dash(s.exact_match),
        "wrong language %": or_dash(result.wrong_language),
        "terms %": or_dash(result.terms),
        "length ratio": f"{s.length_ratio:.3f}",
        "sentences/s": or_dash(result.sentences_per_second),
    }


def _mean_rows(results: Sequence[MethodResult]) -> list[dict[str, str]]:
    """Return a row of means for each method over the trained pairs, and one over the zero-shot pairs."""
    rows = []
    for zero_shot in (False, True):
        for method in dict.fromkeys(result.method for result in results):
            chosen = [r for r in results if r.method == method and r.translated.text.zero_shot == zero_shot]
            if len(chosen) < 2:
                continue
            columns = {"BLEU": "bleu", "chrF": "chrf", "TER": "ter", "exact %": "exact_match"}
            means = {name: _mean([getattr(r.scores, key) for r in chosen]) for name, key in columns.items()}
            means["wrong language %"] = _mean([r.wrong_language for r in chosen])
            name = f"mean of {len(chosen)}{' (zero-shot)' if zero_shot else ''}"
            row = dict.fromkeys(_row(chosen[0]), "-") | {"language": name, "method": method}
            rows.append(row | {name: or_dash(mean) for name, mean in means.items()})
    return rows


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def write_results(folder: Path, name: str, results: Sequence[MethodResult]) -> None:
    """Write sources, references, hypotheses of each method, and scores to files named after the test set.

    With several directions, the names of text files contain the target language or the pair.
    """
    several = len({result.direction for result in results}) > 1
    for result in results:
        stem = f"{name}.{result.direction}" if several else name
        text = result.translated.text
        files = {"source": text.sources, "reference": text.references, result.method: result.translated.hypotheses}
        for suffix, lines in files.items():
            atomic.write_text(folder / f"{stem}.{suffix}", "".join(line + "\n" for line in lines))
    atomic.write_json(folder / f"{name}.json", results_json(results))
