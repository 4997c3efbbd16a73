"""Results of a comparison: tests and differences between sentences, as text and as JSON."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from typing import Any

from mt.console import harmless, log, or_dash, table
from mt.data.eval_texts import EvalText
from mt.errors import InputError
from mt.extras.comparison.significance import LEVEL, MetricTests, System, SystemScore, paired_tests
from mt.extras.comparison.systems import Comparison
from mt.metrics.scores import metrics_for, rounded, sentence_chrf
from mt.text.languages import is_spaced

Mark = Callable[[str], str]
_NAMES = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER"}
_FEW_SENTENCES = 100
_EQUAL = 1e-9  # of two scores from 0 to 100


@dataclass(frozen=True)
class ComparisonResult:
    """The result in one direction: the tests of each metric, and the differences of each system but the baseline."""

    comparison: Comparison
    tests: list[MetricTests]
    differences: list[dict[str, Any]]  # see `sentence_differences`


def compare(comparison: Comparison, metrics: Sequence[str], samples: int, trials: int, shown: int) -> ComparisonResult:
    """Test each system against the baseline and compare their sentences; an InputError if no metric fits.

    Args:
        metrics: some of bleu, chrf and ter; ter is left out for languages without spaces.
        samples, trials: as for `paired_tests`.
        shown: number of sentences shown that differ most, in each direction.
    """
    references, systems = comparison.text.references, comparison.systems
    language = comparison.text.target_lang
    if len(references) < _FEW_SENTENCES:
        log.warning("only %d sentences: too few for reliable tests", len(references))
    known = metrics_for(language, comparison.tokenize)
    usable = {name: known[name] for name in metrics if name in known}
    if "ter" in metrics and "ter" not in usable:
        log.warning("TER is left out: it counts words, which %s does not separate by spaces", language)
        if not usable:
            raise InputError("--metrics ter: no other metric to compare in", "add bleu or chrf")
    log.info("testing the difference in %s", ", ".join(_NAMES[name] for name in usable))
    tests = paired_tests(systems, references, usable, samples, trials)
    differences = [sentence_differences(comparison.text, systems[0], system, shown) for system in systems[1:]]
    return ComparisonResult(comparison, tests, differences)


def sentence_differences(text: EvalText, baseline: System, system: System, shown: int) -> dict[str, Any]:
    """Compare two systems by the chrF of each sentence.

    Returns the public JSON object, with exact scores: the number of wins, ties and losses of the system, and the
    `shown` sentences that differ most in each direction, the largest difference first.
    """
    columns: dict[str, Sequence[Any]] = {
        "line": range(1, len(text.references) + 1),
        "chrf_baseline": sentence_chrf(baseline.hypotheses, text.references),
        "chrf": sentence_chrf(system.hypotheses, text.references),
        "source": text.sources or [None] * len(text.references),
        "reference": text.references,
        "baseline": baseline.hypotheses,
        "translation": system.hypotheses,
    }
    sentences = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def gain(sentence: dict[str, Any]) -> float:
        return float(sentence["chrf"] - sentence["chrf_baseline"])

    wins = sorted((sentence for sentence in sentences if gain(sentence) > _EQUAL), key=gain, reverse=True)
    losses = sorted((sentence for sentence in sentences if gain(sentence) < -_EQUAL), key=gain)
    counts = {"wins": len(wins), "ties": len(sentences) - len(wins) - len(losses), "losses": len(losses)}
    return {"name": system.name, **counts, "gains_most": wins[:shown], "loses_most": losses[:shown]}


def comparison_text(result: ComparisonResult, marks: tuple[Mark, Mark]) -> str:
    """Return tables, verdicts, and the sentences that differ most.

    `marks` are functions that mark differences in the baseline's sentence and in the other's.
    """
    text, baseline = result.comparison.text, result.comparison.systems[0].name
    language = "".join(
        f" {word} {code}" for word, code in (("from", text.source_lang), ("into", text.target_lang)) if code
    )
    counts = [[system[key] for key in ("name", "wins", "ties", "losses")] for system in result.differences]
    parts = [
        f"{len(text.references):,} sentences{language}; the baseline is {baseline}",
        *map(_scores_table, result.tests),
        table(["sentences by chrF", "wins", "ties", "losses"], counts),
        _verdicts(result),
    ]
    for system in result.differences:
        for title, key in (("gains most over", "gains_most"), ("loses most against", "loses_most")):
            if sentences := system[key]:
                names = baseline, system["name"]
                blocks = [_sentence(sentence, text.target_lang, names, marks) for sentence in sentences]
                parts.append("\n".join([f"{system['name']} {title} {baseline}:", *blocks]))
    return "\n\n".join(parts)


def _scores_table(tests: MetricTests) -> str:
    header = [_NAMES[tests.metric], "score", "95 % interval", "difference", "p (bootstrap)", "p (randomisation)"]
    rows = [
        [
            system.name,
            f"{system.score:.1f}",
            f"{system.low:.1f} to {system.high:.1f}",
            or_dash(system.difference, "+.2f"),
            or_dash(system.p_bootstrap, ".4f"),
            or_dash(system.p_randomisation, ".4f"),
        ]
        for system in tests.systems
    ]
    return "\n".join([table(header, rows), tests.bootstrap_signature, tests.randomisation_signature])


def _verdicts(result: ComparisonResult) -> str:
    """Return a sentence for each system."""
    baseline, *others = result.comparison.systems
    lines = [
        f"{system.name} against {baseline.name}: "
        + _verdict([(tests.metric, tests.systems[number]) for tests in result.tests])
        for number, system in enumerate(others, 1)
    ]
    if len(others) > 1:
        lines.append(f"Each p is for one pair: of 20 pairs without any difference about one has p < {LEVEL} by chance.")
    return "\n".join(lines)


def _verdict(scores: list[tuple[str, SystemScore]]) -> str:
    by_kind: dict[str | None, list[str]] = {}
    for metric, score in scores:
        amount = f" ({score.difference:+.2f})" if score.difference else ""
        by_kind.setdefault(score.verdict, []).append(f"{_NAMES[metric]}{amount}")
    wording = {
        "better": f"significantly better in {{}} (p < {LEVEL} in both tests)",
        "worse": f"significantly worse in {{}} (p < {LEVEL} in both tests)",
        "undecided": "the tests disagree about {}, so do not count on it",
        "unclear": "no significant difference in {}: chance may explain it",
        "same": "no difference in {}",
    }
    listed = {kind: " and ".join(", ".join(names).rsplit(", ", 1)) for kind, names in by_kind.items()}
    return "; ".join(words.format(listed[kind]) for kind, words in wording.items() if kind in listed) + "."


def _sentence(sentence: dict[str, Any], target_lang: str, names: tuple[str, str], marks: tuple[Mark, Mark]) -> str:
    first, second = (harmless(sentence[key]) for key in ("baseline", "translation"))
    first, second = marked_differences(first, second, target_lang, marks)
    lines = [
        *([] if sentence["source"] is None else [("source", harmless(sentence["source"]))]),
        ("reference", harmless(sentence["reference"])),
        (names[0], first),
        (names[1], second),
    ]
    width = max(len(name) for name, _ in lines)
    head = f"  line {sentence['line']}: chrF {sentence['chrf_baseline']:.1f} -> {sentence['chrf']:.1f}"
    return "\n".join([head, *(f"    {name:>{width}}: {line}" for name, line in lines)])


def marked_differences(first: str, second: str, target_lang: str, marks: tuple[Mark, Mark]) -> tuple[str, str]:
    """Mark the words that only one of two texts has; in languages without spaces, the characters."""
    space = " " if is_spaced(target_lang) else ""
    tokens, others = (text.split() if space else list(text) for text in (first, second))
    pieces: tuple[list[str], list[str]] = ([], [])
    for tag, start, end, other_start, other_end in SequenceMatcher(None, tokens, others).get_opcodes():
        for side, words in enumerate((tokens[start:end], others[other_start:other_end])):
            if words:
                piece = space.join(words)
                pieces[side].append(piece if tag == "equal" else marks[side](piece))
    return space.join(pieces[0]), space.join(pieces[1])


def comparison_json(results: Sequence[ComparisonResult]) -> dict[str, Any]:
    """Return the public JSON object."""
    return {"comparisons": [_as_dict(result) for result in results]}


def _as_dict(result: ComparisonResult) -> dict[str, Any]:
    text = result.comparison.text
    metrics = {
        tests.metric: {
            "signature_bootstrap": tests.bootstrap_signature,
            "signature_randomisation": tests.randomisation_signature,
            "systems": [rounded(asdict(score), 6) for score in tests.systems],
        }
        for tests in result.tests
    }
    return {
        "target_lang": text.target_lang or None,
        **({"source_lang": text.source_lang} if text.source_lang else {}),
        "sentences": len(text.references),
        "baseline": result.comparison.systems[0].name,
        "metrics": metrics,
        "sentence_chrf": [
            {**system, **{key: [rounded(row) for row in system[key]] for key in ("gains_most", "loses_most")}}
            for system in result.differences
        ],
    }
