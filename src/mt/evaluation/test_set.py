"""Scores on a test set, with greedy search, beam search and other methods."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mt.config import Config
from mt.console import log, table
from mt.data.eval_texts import EvalText
from mt.decoding.engine import SearchOptions
from mt.decoding.settings import TranslationSettings
from mt.decoding.text_translation import Translated, translate_texts
from mt.decoding.translator import Translator
from mt.metrics.comet import Comet
from mt.metrics.scores import Scores, score
from mt.storage import atomic


@dataclass(frozen=True)
class Method:
    """A decoding method, by its name in tables and files; `utility` is of minimum Bayes risk, chrf or bleu."""

    name: str
    options: SearchOptions
    utility: str | None = None


@dataclass(frozen=True)
class MethodResult:
    """The scores of a decoding method on a test set in one language."""

    method: str
    scores: Scores
    sentences_per_second: float
    translated: Translated

    @property
    def target_lang(self) -> str:
        return self.translated.text.target_lang

    def as_dict(self) -> dict[str, Any]:
        """Return the fields of the public JSON object; COMET only where it was asked for."""
        scores = asdict(self.scores)
        signatures = scores.pop("signatures")
        if "comet" not in signatures:
            del scores["comet"]
        return {
            "method": self.method,
            "target_lang": self.target_lang,
            **{key: value if value is None else round(value, 4) for key, value in scores.items()},
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
    """Return the configured methods; changes (None: no change) apply to beam search, and add it if it is missing."""
    names = list(config.evaluation.methods)
    if "beam" not in names and any(value is not None for value in changes.values()):
        names.append("beam")
    return [Method(name, search_options(config, name, **({} if name == "greedy" else changes))) for name in names]


def warn_long_lines(translator: Translator, texts: Sequence[EvalText]) -> None:
    """Log one warning per text with lines longer than the model's limit."""
    for text in texts:
        translator.to(text.target_lang).warn_long_lines(text.sources, f"text to translate into {text.target_lang}")


def evaluate(
    translator: Translator,
    config: Config,
    texts: Sequence[EvalText],
    methods: Sequence[Method] | None = None,
    comet: Comet | None = None,
) -> list[MethodResult]:
    """Translate and score a test set by language and method (default: the configured ones), with COMET if given."""
    results = []
    for text in texts:
        warn_long_lines(translator, [text])
        for method in configured_methods(config) if methods is None else methods:
            log.info("translating %d sentences into %s, %s", len(text.sources), text.target_lang, method.name)
            [translated] = translate_texts(translator, [text], method.options, method.utility)
            hypotheses = translated.hypotheses
            scores = score(hypotheses, text.references, config.evaluation, text.target_lang)
            if comet is not None:
                learned = comet.score(text.sources, hypotheses, text.references)
                scores = replace(scores, comet=learned, signatures=scores.signatures | {"comet": comet.signature})
            rate = len(text.sources) / max(translated.seconds, 1e-9)
            results.append(MethodResult(method.name, scores, rate, translated))
    return results


def results_json(results: Sequence[MethodResult]) -> dict[str, Any]:
    """Return the public JSON object of an evaluation."""
    sentences = {result.target_lang: len(result.translated.hypotheses) for result in results}
    return {"sentences": sum(sentences.values()), "results": [result.as_dict() for result in results]}


def results_table(results: Sequence[MethodResult]) -> str:
    """Format results as a table, with the signatures of all metrics."""
    rows = []
    for result in results:
        s = result.scores
        rows.append(
            {
                "language": result.target_lang,
                "method": result.method,
                "BLEU": _one_decimal(s.bleu),
                "95 % interval": "-" if s.bleu_low is None else f"{s.bleu_low:.1f} to {s.bleu_high:.1f}",
                "chrF": _one_decimal(s.chrf),
                "TER": _one_decimal(s.ter),
                "COMET": "-" if s.comet is None else f"{s.comet:.4f}",
                "exact %": _one_decimal(s.exact_match),
                "length ratio": f"{s.length_ratio:.3f}",
                "sentences/s": _one_decimal(result.sentences_per_second),
            }
        )
    hidden = set() if len({result.target_lang for result in results}) > 1 else {"language"}
    hidden |= set() if any("comet" in result.scores.signatures for result in results) else {"COMET"}
    header = [name for name in rows[0] if name not in hidden]
    names = {"bleu": "BLEU", "chrf": "chrF2", "ter": "TER", "comet": "COMET"}
    signatures = [f"{names[metric]}: {signature}" for r in results for metric, signature in r.scores.signatures.items()]
    return "\n".join([table(header, [[row[name] for name in header] for row in rows]), *dict.fromkeys(signatures)])


def _one_decimal(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def write_results(folder: Path, name: str, results: Sequence[MethodResult]) -> None:
    """Write sources, references, hypotheses of each method, and scores to files named after the test set.

    With several languages, the names of text files contain the language.
    """
    several = len({result.target_lang for result in results}) > 1
    for result in results:
        stem = f"{name}.{result.target_lang}" if several else name
        text = result.translated.text
        files = {"source": text.sources, "reference": text.references, result.method: result.translated.hypotheses}
        for suffix, lines in files.items():
            atomic.write_text(folder / f"{stem}.{suffix}", "".join(line + "\n" for line in lines))
    atomic.write_json(folder / f"{name}.json", results_json(results))
