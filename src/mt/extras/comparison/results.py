"""Results of a comparison: computed, as text and as JSON."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mt.console import harmless, log, table
from mt.errors import InputError
from mt.extras.comparison.differences import (
    Mark,
    SentenceDifference,
    SentenceDifferences,
    marked_differences,
    sentence_differences,
)
from mt.extras.comparison.significance import LEVEL, MetricTests, SystemScore, paired_tests
from mt.extras.comparison.systems import Comparison
from mt.metrics.scores import ter_metric

_NAMES = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER"}
_FEW_SENTENCES = 100


@dataclass(frozen=True)
class ComparisonResult:
    """The result in one language: the tests of each metric, and the differences of each system but the baseline."""

    comparison: Comparison
    tests: list[MetricTests]
    differences: list[SentenceDifferences]


def compare(comparison: Comparison, metrics: Sequence[str], samples: int, trials: int) -> ComparisonResult:
    """Test each system against the baseline and compare their sentences; an InputError if no metric fits."""
    references, systems = comparison.text.references, comparison.systems
    language = comparison.text.target_lang
    if len(references) < _FEW_SENTENCES:
        log.warning("only %d sentences: too few for reliable tests", len(references))
    if "ter" in metrics and ter_metric(language) is None:
        metrics = [metric for metric in metrics if metric != "ter"]
        log.warning("TER is left out: it counts words, which %s does not separate by spaces", language)
        if not metrics:
            raise InputError("--metrics ter: no other metric to compare in", "add bleu or chrf")
    log.info("testing the difference in %s", ", ".join(_NAMES[metric] for metric in metrics))
    tests = paired_tests(systems, references, metrics, comparison.tokenize, samples, trials, language)
    baseline, *others = (system.hypotheses for system in systems)
    differences = [sentence_differences(baseline, hypotheses, references) for hypotheses in others]
    return ComparisonResult(comparison, tests, differences)


def comparison_text(result: ComparisonResult, shown: int, marks: tuple[Mark, Mark]) -> str:
    """Return tables, verdicts, and the sentences that differ most, so many in each direction.

    `marks` are functions that mark differences in the baseline's sentence and in the other's.
    """
    text, (baseline, *others) = result.comparison.text, result.comparison.systems
    language = f" into {text.target_lang}" if text.target_lang else ""
    counts = [
        [system.name, differences.wins, differences.ties, differences.losses]
        for system, differences in zip(others, result.differences, strict=True)
    ]
    parts = [
        f"{len(text.references):,} sentences{language}; the baseline is {baseline.name}",
        *map(_scores_table, result.tests),
        table(["sentences by chrF", "wins", "ties", "losses"], counts),
        _verdicts(result),
    ]
    for number, (system, differences) in enumerate(zip(others, result.differences, strict=True), 1):
        for title, sentences in (
            ("gains most over", differences.best(shown)),
            ("loses most against", differences.worst(shown)),
        ):
            if sentences:
                blocks = [_sentence(result.comparison, number, one, marks) for one in sentences]
                parts.append("\n".join([f"{system.name} {title} {baseline.name}:", *blocks]))
    return "\n\n".join(parts)


def _scores_table(tests: MetricTests) -> str:
    def optional(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    header = [_NAMES[tests.metric], "score", "95 % interval", "difference", "p (bootstrap)", "p (randomisation)"]
    rows = [
        [
            one.name,
            f"{one.score:.1f}",
            f"{one.low:.1f} to {one.high:.1f}",
            optional(one.difference, "+.2f"),
            optional(one.p_bootstrap, ".4f"),
            optional(one.p_randomisation, ".4f"),
        ]
        for one in tests.systems
    ]
    return "\n".join([table(header, rows), tests.bootstrap_signature, tests.randomisation_signature])


def _verdicts(result: ComparisonResult) -> str:
    """Return a sentence for each system."""
    baseline, *others = result.comparison.systems
    lines = [
        f"{system.name} against {baseline.name}: "
        + _verdict([(tests, tests.systems[number]) for tests in result.tests])
        for number, system in enumerate(others, 1)
    ]
    if len(others) > 1:
        lines.append(f"Each p is for one pair: of 20 pairs without any difference about one has p < {LEVEL} by chance.")
    return "\n".join(lines)


def _verdict(scores: list[tuple[MetricTests, SystemScore]]) -> str:
    by_kind: dict[str, list[str]] = {}
    for tests, one in scores:
        amount = f" ({one.difference:+.2f})" if one.difference else ""
        by_kind.setdefault(tests.verdict(one), []).append(f"{_NAMES[tests.metric]}{amount}")
    wording = {
        "better": f"significantly better in {{}} (p < {LEVEL} in both tests)",
        "worse": f"significantly worse in {{}} (p < {LEVEL} in both tests)",
        "undecided": "the tests disagree about {}, so do not count on it",
        "unclear": "no significant difference in {}: chance may explain it",
        "same": "no difference in {}",
    }
    listed = {kind: " and ".join(", ".join(names).rsplit(", ", 1)) for kind, names in by_kind.items()}
    return "; ".join(words.format(listed[kind]) for kind, words in wording.items() if kind in listed) + "."


def _sentence(comparison: Comparison, number: int, one: SentenceDifference, marks: tuple[Mark, Mark]) -> str:
    text, baseline, system = comparison.text, comparison.systems[0], comparison.systems[number]
    first, second = (harmless(each.hypotheses[one.index]) for each in (baseline, system))
    first, second = marked_differences(first, second, text.target_lang, marks)
    lines = [
        *([("source", harmless(text.sources[one.index]))] if text.sources else []),
        ("reference", harmless(text.references[one.index])),
        (baseline.name, first),
        (system.name, second),
    ]
    width = max(len(name) for name, _ in lines)
    head = f"  line {one.index + 1}: chrF {one.baseline:.1f} -> {one.system:.1f}"
    return "\n".join([head, *(f"    {name:>{width}}: {line}" for name, line in lines)])


def comparison_json(results: Sequence[ComparisonResult], shown: int) -> dict[str, Any]:
    """Return the public JSON object."""
    return {"comparisons": [_as_dict(result, shown) for result in results]}


def _as_dict(result: ComparisonResult, shown: int) -> dict[str, Any]:
    text, (baseline, *others) = result.comparison.text, result.comparison.systems

    def as_dict(number: int, one: SentenceDifference) -> dict[str, Any]:
        return {
            "line": one.index + 1,
            "chrf_baseline": round(one.baseline, 4),
            "chrf": round(one.system, 4),
            "source": text.sources[one.index] if text.sources else None,
            "reference": text.references[one.index],
            "baseline": baseline.hypotheses[one.index],
            "translation": others[number].hypotheses[one.index],
        }

    return {
        "target_lang": text.target_lang or None,
        "sentences": len(text.references),
        "baseline": baseline.name,
        "metrics": {tests.metric: _tests_as_dict(tests) for tests in result.tests},
        "sentence_chrf": [
            {
                "name": others[number].name,
                "wins": differences.wins,
                "ties": differences.ties,
                "losses": differences.losses,
                "gains_most": [as_dict(number, one) for one in differences.best(shown)],
                "loses_most": [as_dict(number, one) for one in differences.worst(shown)],
            }
            for number, differences in enumerate(result.differences)
        ],
    }


def _tests_as_dict(tests: MetricTests) -> dict[str, Any]:
    systems: list[dict[str, Any]] = []
    for one in tests.systems:
        rounded = {key: round(value, 6) if isinstance(value, float) else value for key, value in asdict(one).items()}
        systems.append({**rounded, "verdict": None if one.difference is None else tests.verdict(one)})
    return {
        "signature_bootstrap": tests.bootstrap_signature,
        "signature_randomisation": tests.randomisation_signature,
        "systems": systems,
    }
