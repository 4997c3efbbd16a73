"""Corpus reports as text and as JSON."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from mt.console import harmless, table
from mt.extras.doctor.actions import dropped_by_training, judge
from mt.extras.doctor.check import CorpusReport, Finding
from mt.extras.doctor.coverage import Coverage
from mt.extras.doctor.findings import SPLITS
from mt.extras.doctor.rules import DROPPED_BY_CLEANING, SEVERITIES

COVERAGE_HEADER = ("tokenizer", "sentences", "pieces per word", "characters per piece", "as bytes")

_FORMAT = 1  # of the JSON document; raise it when a field changes its meaning


def text_report(report: CorpusReport, config: str = "CONFIG") -> str:
    """Return the verdict, tables, then examples; `config` as for `judge`."""
    verdict = judge(report, config)
    actions = [f"\n{n}. {action.command}\n   {action.gain}" for n, action in enumerate(verdict.actions, 1)]
    parts = [f"{verdict.words}. {verdict.reason}{''.join(actions)}", table(["text", "pairs"], size_rows(report))]
    if report.coverage is not None:
        header = (f"tokenizer {report.coverage.tokenizer}", *COVERAGE_HEADER[1:])
        parts.append(table(header, coverage_rows(report.coverage)))
    if report.findings:
        columns = ("finding", "severity", "train", "share", "valid", "test")
        parts.append(table(columns, [_row(finding) for finding in report.findings]))
        parts += ["\n".join(_details(report, finding)) for finding in report.findings]
    parts.append(f"{severity_counts(report)}: training would {'refuse' if report.refused else 'take'} this corpus")
    return harmless("\n\n".join(parts))


def size_rows(report: CorpusReport) -> list[tuple[str, str]]:
    """Return each bitext and its number of pairs, the training text first."""
    return [
        (f"{stats.bitext.split}: {' and '.join(dict.fromkeys(stats.bitext.files))}", f"{stats.pairs:,}")
        for stats in reversed(report.statistics)
    ]


def _row(finding: Finding) -> list[str]:
    train, *held_out = (f"{finding.counts[split]:,}" for split in SPLITS)
    return [finding.rule.name, finding.rule.severity, train, share_of(finding), *held_out]


def share_of(finding: Finding) -> str:
    """Return the share of the checked training pairs that have a finding."""
    checked = finding.checked["train"]
    return f"{100 * finding.counts['train'] / checked:.2f} %" if checked else "-"


def coverage_rows(coverage: Coverage) -> list[list[str]]:
    """Return the cells below `COVERAGE_HEADER`, a row for each side and language."""
    return [
        [
            f"{usage.side} {usage.language}",
            f"{usage.sentences:,}",
            f"{usage.pieces / usage.words:.2f}" if usage.words else "-",
            f"{usage.characters / max(usage.pieces, 1):.2f}",
            f"{100 * usage.spelt / max(usage.pieces, 1):.3f} %",
        ]
        for usage in coverage.usages.values()
    ]


def explanation(report: CorpusReport, finding: Finding) -> str:
    """Return the advice of a rule, who drops such pairs, and how many pairs were checked."""
    rule = finding.rule
    sentences = [rule.advice]
    if dropped_by_training(report, rule):
        sentences.append("`mt train` drops such training pairs.")
    elif rule.name in DROPPED_BY_CLEANING:
        sentences.append("`mt data clean` drops such training pairs.")
    if finding.repairable:
        sentences.append(f"`mt data clean --repair` fixes {finding.repairable:,} training pairs.")
    pairs = report.pairs
    if finding.checked and any(finding.checked.get(split, pairs[split]) < pairs[split] for split in SPLITS):
        checked = ", ".join(f"{number:,} of {split}" for split, number in finding.checked.items() if number)
        sentences.append(f"Pairs checked: {checked}.")
    if rule.name == "rare-characters" and report.coverage is not None:
        sentences.append(f"Most frequent (sentences): {report.coverage.most_frequent()}.")
    return " ".join(sentences)


def _details(report: CorpusReport, finding: Finding) -> Iterator[str]:
    yield f"{finding.rule.name} ({finding.rule.severity}): {finding.rule.title}. {explanation(report, finding)}"
    for example in finding.examples:
        if not example.locations:
            yield f"  {example.note}"
        for number, location in enumerate(example.locations):
            indent, note = ("    ", "") if number else ("  ", f"  [{example.note}]" if example.note else "")
            yield f"{indent}{location.file}:{location.line}: {location.text}{note}"


def severity_counts(report: CorpusReport) -> str:
    severities = Counter(finding.rule.severity for finding in report.findings)
    return ", ".join(f"{severities[name]} {name}{'' if severities[name] == 1 else 's'}" for name in SEVERITIES)


def as_json(report: CorpusReport, config: str = "CONFIG") -> dict[str, Any]:
    """Return the report as a JSON document; `config` as for `judge`."""
    coverage, verdict = report.coverage, judge(report, config)
    return {
        "format": _FORMAT,
        "name": report.config.name,
        "refused": report.refused,
        "verdict": f"{verdict.words}. {verdict.reason}",
        "actions": [{"command": action.command, "gain": action.gain} for action in verdict.actions],
        "pairs": report.pairs,
        "texts": [
            {
                "split": stats.bitext.split,
                "files": list(dict.fromkeys(stats.bitext.files)),
                "target_lang": stats.bitext.languages[1],
                "pairs": stats.pairs,
            }
            for stats in reversed(report.statistics)
        ],
        "findings": [_finding_as_json(finding) for finding in report.findings],
        "tokenizer": coverage
        and {
            "name": coverage.tokenizer,
            "sides": [asdict(usage) for usage in coverage.usages.values()],
            "rare_characters": dict(coverage.rare.most_common(100)),
        },
    }


def _finding_as_json(finding: Finding) -> dict[str, Any]:
    return {
        "name": finding.rule.name,
        "title": finding.rule.title,
        "seriousness": finding.rule.severity,
        "counts": {split: finding.counts[split] for split in SPLITS},
        "judged": dict(finding.checked),
        "repairable": finding.repairable,
        "examples": [
            {"split": example.split, "places": [asdict(place) for place in example.locations], "note": example.note}
            for example in finding.examples
        ],
    }
