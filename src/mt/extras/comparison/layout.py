"""Compares systems, and lays out what was found: for people and for programs."""

from collections.abc import Iterator, Sequence
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
from mt.extras.comparison.significance import LEVEL, MetricTests, Tested, paired_tests
from mt.extras.comparison.systems import Comparison
from mt.metrics.scores import ter_metric

_NAMES = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER"}
_FEW = 100  # sentences below which a test set says little


@dataclass(frozen=True)
class Compared:
    """What was found in one language.

    Attributes:
        tests: one a metric.
        differences: of each system but the baseline.
    """

    comparison: Comparison
    tests: list[MetricTests]
    differences: list[SentenceDifferences]


def compare(comparison: Comparison, metrics: Sequence[str], samples: int, trials: int) -> Compared:
    """Tests each system against the baseline, and compares their sentences."""
    references, systems = comparison.text.references, comparison.systems
    if len(references) < _FEW:
        log.warning("only %d sentences: no test can tell much from so few", len(references))
    if "ter" in metrics and ter_metric(comparison.text.target_lang) is None:
        metrics = [metric for metric in metrics if metric != "ter"]
        log.warning("TER counts words, which %s does not part by spaces: left out", comparison.text.target_lang)
        if not metrics:
            raise InputError("--metrics ter: there is nothing else to compare in", "add bleu or chrf")
    log.info("testing the difference in %s", ", ".join(_NAMES[metric] for metric in metrics))
    tests = paired_tests(
        systems, references, metrics, comparison.tokenize, samples, trials, comparison.text.target_lang
    )
    baseline, *others = (system.hypotheses for system in systems)
    return Compared(comparison, tests, [sentence_differences(baseline, each, references) for each in others])


def comparison_text(compared: Compared, shown: int, marks: tuple[Mark, Mark]) -> str:
    """Tables, verdicts, and the sentences that differ most.

    Args:
        compared: what was found.
        shown: sentences in each direction.
        marks: how to mark what differs, in the baseline's sentence and in the other's.
    """
    text, systems = compared.comparison.text, compared.comparison.systems
    language = f" into {text.target_lang}" if text.target_lang else ""
    parts = [f"{len(text.references):,} sentences{language}; the baseline is {systems[0].name}"]
    parts += [_scores_table(tests) for tests in compared.tests]
    parts.append(_wins_table(compared))
    parts.append("\n".join(_verdicts(compared)))
    for number, differences in enumerate(compared.differences, 1):
        for title, sentences in (
            ("gains most over", differences.best(shown)),
            ("loses most against", differences.worst(shown)),
        ):
            if sentences:
                blocks = [_sentence(compared.comparison, number, one, marks) for one in sentences]
                parts.append("\n".join([f"{systems[number].name} {title} {systems[0].name}:", *blocks]))
    return "\n\n".join(parts)


def _scores_table(tests: MetricTests) -> str:
    header = [_NAMES[tests.metric], "score", "95 % interval", "difference", "p (bootstrap)", "p (randomisation)"]
    rows = [
        [
            one.name,
            f"{one.score:.1f}",
            f"{one.low:.1f} to {one.high:.1f}",
            "-" if one.difference is None else f"{one.difference:+.2f}",
            "-" if one.p_bootstrap is None else f"{one.p_bootstrap:.4f}",
            "-" if one.p_randomisation is None else f"{one.p_randomisation:.4f}",
        ]
        for one in tests.systems
    ]
    return "\n".join([table(header, rows), tests.bootstrap_signature, tests.randomisation_signature])


def _wins_table(compared: Compared) -> str:
    others = compared.comparison.systems[1:]
    rows = [
        [system.name, differences.wins, differences.ties, differences.losses]
        for system, differences in zip(others, compared.differences, strict=True)
    ]
    return table(["sentences by chrF", "wins", "ties", "losses"], rows)


def _verdicts(compared: Compared) -> Iterator[str]:
    """One sentence a system: what is significant and what is not."""
    for number in range(1, len(compared.comparison.systems)):
        yield _verdict([(tests, tests.systems[number]) for tests in compared.tests], compared)
    if len(compared.differences) > 1:
        yield f"Each p is for one pair: of 20 pairs without any difference about one has p < {LEVEL} by chance."


def _verdict(results: list[tuple[MetricTests, Tested]], compared: Compared) -> str:
    by_kind: dict[str, list[str]] = {}
    for tests, one in results:
        amount = f" ({one.difference:+.2f})" if one.difference else ""
        by_kind.setdefault(tests.verdict(one), []).append(f"{_NAMES[tests.metric]}{amount}")
    wording = {
        "better": f"significantly better in {{}} (p < {LEVEL} in both tests)",
        "worse": f"significantly worse in {{}} (p < {LEVEL} in both tests)",
        "undecided": "the tests disagree about {}, so do not count on it",
        "unclear": "no significant difference in {}: chance may explain it",
        "same": "no difference in {}",
    }
    said = [words.format(_listed(by_kind[kind])) for kind, words in wording.items() if kind in by_kind]
    return f"{results[0][1].name} against {compared.comparison.systems[0].name}: {'; '.join(said)}."


def _listed(words: list[str]) -> str:
    return " and ".join(", ".join(words).rsplit(", ", 1))


def _sentence(comparison: Comparison, number: int, one: SentenceDifference, marks: tuple[Mark, Mark]) -> str:
    text, systems = comparison.text, comparison.systems
    first, second = marked_differences(
        harmless(systems[0].hypotheses[one.number]),
        harmless(systems[number].hypotheses[one.number]),
        text.target_lang,
        marks,
    )
    lines = [
        *([("source", harmless(text.sources[one.number]))] if text.sources else []),
        ("reference", harmless(text.references[one.number])),
        (systems[0].name, first),
        (systems[number].name, second),
    ]
    width = max(len(name) for name, _ in lines)
    head = f"  line {one.number + 1}: chrF {one.baseline:.1f} -> {one.system:.1f}"
    return "\n".join([head, *(f"    {name:>{width}}: {line}" for name, line in lines)])


def comparison_json(compared: Sequence[Compared], shown: int) -> dict[str, Any]:
    """The public JSON object."""
    return {"comparisons": [_as_dict(one, shown) for one in compared]}


def _as_dict(compared: Compared, shown: int) -> dict[str, Any]:
    text, systems = compared.comparison.text, compared.comparison.systems
    return {
        "target_lang": text.target_lang or None,
        "sentences": len(text.references),
        "baseline": systems[0].name,
        "metrics": {tests.metric: _tests_as_dict(tests) for tests in compared.tests},
        "sentence_chrf": [
            {
                "name": system.name,
                "wins": differences.wins,
                "ties": differences.ties,
                "losses": differences.losses,
                "gains_most": [_sentence_as_dict(compared.comparison, n, one) for one in differences.best(shown)],
                "loses_most": [_sentence_as_dict(compared.comparison, n, one) for one in differences.worst(shown)],
            }
            for n, (system, differences) in enumerate(zip(systems[1:], compared.differences, strict=True), 1)
        ],
    }


def _tests_as_dict(tests: MetricTests) -> dict[str, Any]:
    return {
        "signature_bootstrap": tests.bootstrap_signature,
        "signature_randomisation": tests.randomisation_signature,
        "systems": [
            {**_rounded(asdict(one)), "verdict": None if one.difference is None else tests.verdict(one)}
            for one in tests.systems
        ],
    }


def _sentence_as_dict(comparison: Comparison, number: int, one: SentenceDifference) -> dict[str, Any]:
    text, systems = comparison.text, comparison.systems
    return {
        "line": one.number + 1,
        "chrf_baseline": round(one.baseline, 4),
        "chrf": round(one.system, 4),
        "source": text.sources[one.number] if text.sources else None,
        "reference": text.references[one.number],
        "baseline": systems[0].hypotheses[one.number],
        "translation": systems[number].hypotheses[one.number],
    }


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {key: round(value, 6) if isinstance(value, float) else value for key, value in values.items()}
