"""Corpus reports as one self-contained HTML page."""

import html
import re

import numpy as np

from mt.extras.doctor.check import CorpusReport, Finding
from mt.extras.doctor.rules import ERROR, NOTE, WARNING
from mt.extras.doctor.text_report import (
    COVERAGE_HEADER,
    FINDINGS_HEADER,
    coverage_rows,
    explanation,
    finding_row,
    size_rows,
    summary,
)
from mt.extras.reporting.charts import histogram
from mt.extras.reporting.html import Html, figures, headline, listing, page, table
from mt.text.languages import language_name

_CODE = re.compile("`([^`]+)`")


def html_report(report: CorpusReport) -> str:
    """Return the page."""
    data = report.config.data
    rows = [
        [Html(f'<a href="#{name}">{name}</a>'), Html(_badge(severity)), *cells]
        for name, severity, *cells in map(finding_row, report.findings)
    ]
    sections = [
        ("Findings", table(FINDINGS_HEADER, rows, "numbers named") if rows else ""),
        ("Examples", "".join(_details(report, finding) for finding in report.findings)),
        ("Texts", _texts(report)),
    ]
    languages = f"{language_name(data.source_lang)} to {', '.join(map(language_name, data.target_lang))}"
    name = report.config.name
    return page(f"{name}: corpus", f"Corpus check: {name}", languages, _headline(report), sections)


def _headline(report: CorpusReport) -> str:
    kinds = {finding.rule.severity for finding in report.findings}
    kind = next((severity for severity in (ERROR, WARNING) if severity in kinds), "good")
    outcome, _, counts = reversed(summary(report).partition(": "))
    return headline(kind, outcome, f'<p class="soft">{counts}</p>')


def _badge(severity: str) -> str:
    return f'<span class="badge {severity}">{severity}</span>'


def _texts(report: CorpusReport) -> str:
    tables = table(("text", "pairs"), size_rows(report), "numbers")
    if report.coverage is not None:
        tables += table(COVERAGE_HEADER, coverage_rows(report), "numbers")
        tables += f"<p>Tokenizer: {html.escape(report.coverage.tokenizer)}.</p>"
    pairs = [pair for one in report.statistics if one.bitext.split == "train" for _, pair in one.sample]
    if not pairs:
        return tables
    sides = [np.array([len(pair[side]) for pair in pairs]) for side in (0, 1)]
    samples = list(zip(("source", "target"), sides, strict=True))
    chart = histogram("Lengths of training sentences", "characters", samples, 99.5)
    return tables + figures(("Lengths of training sentences in a sample, in characters", chart))


def _details(report: CorpusReport, finding: Finding) -> str:
    """Return the examples of a finding; a note is folded, as training goes on with it."""
    rule = finding.rule
    rows = [
        (f"{location.file}:{location.line}", location.text, "" if number else example.note)
        for example in finding.examples
        for number, location in enumerate(example.locations)
    ]
    advice = _CODE.sub(r"<code>\1</code>", html.escape(explanation(report, finding)))
    return (
        f'<details id="{rule.name}" class="finding {rule.severity}"{"" if rule.severity == NOTE else " open"}>'
        f"<summary>{_badge(rule.severity)}<b>{html.escape(rule.name)}</b>{html.escape(rule.title)}</summary>"
        f"<p>{advice}</p>"
        f"{table(('where', 'text', 'note'), rows, 'texts') if rows else ''}"
        f"{listing(example.note for example in finding.examples if not example.locations)}</details>"
    )
