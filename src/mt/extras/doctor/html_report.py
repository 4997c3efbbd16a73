"""Corpus reports as one self-contained HTML page."""

import html

import numpy as np

from mt.extras.doctor.check import CorpusReport, Finding
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
from mt.extras.reporting.html import figures, page, table


def html_report(report: CorpusReport) -> str:
    """Return the page."""
    data = report.config.data
    sections = [("Texts", _texts(report))]
    if report.findings:
        rows = [finding_row(finding) for finding in report.findings]
        sections.append(("Findings", table(FINDINGS_HEADER, rows, "numbers")))
    sections += [(f"{one.rule.name} ({one.rule.severity})", _details(report, one)) for one in report.findings]
    subtitle = f"{data.source_lang} to {', '.join(data.target_lang)}; {summary(report)}"
    return page(report.config.name, "corpus", subtitle, sections)


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
    text = f"<p>{html.escape(f'{finding.rule.title}. {explanation(report, finding)}')}</p>"
    rows = [
        (f"{location.file}:{location.line}", location.text, "" if number else example.note)
        for example in finding.examples
        for number, location in enumerate(example.locations)
    ]
    notes = [f"<li>{html.escape(example.note)}</li>" for example in finding.examples if not example.locations]
    listing = f"<ul>{''.join(notes)}</ul>" if notes else ""
    return text + (table(("where", "text", "note"), rows, "texts") if rows else "") + listing
