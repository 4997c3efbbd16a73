"""A diagnosis as a page: one HTML file that needs nothing else."""

import html

import numpy as np

from mt.extras.doctor.diagnosis import Diagnosis, Finding
from mt.extras.doctor.report import (
    FINDINGS_HEADER,
    VOCABULARY_HEADER,
    explanation,
    finding_row,
    pair_rows,
    summary,
    vocabulary_rows,
)
from mt.extras.reporting.charts import histogram
from mt.extras.reporting.html import figures, page, table


def html_report(diagnosis: Diagnosis) -> str:
    """The page."""
    data = diagnosis.config.data
    parts = [("Texts", _texts(diagnosis))]
    if diagnosis.findings:
        rows = [finding_row(finding) for finding in diagnosis.findings]
        parts.append(("Findings", table(FINDINGS_HEADER, rows, "numbers")))
    parts += [(_heading(finding), _details(diagnosis, finding)) for finding in diagnosis.findings]
    languages = f"{data.source_lang} to {', '.join(data.target_lang)}; {summary(diagnosis)}"
    return page(diagnosis.config.name, "corpus", languages, parts)


def _heading(finding: Finding) -> str:
    return f"{finding.kind.name} ({finding.kind.seriousness})"


def _texts(diagnosis: Diagnosis) -> str:
    tables = table(("text", "pairs"), [*pair_rows(diagnosis)], "numbers")
    if diagnosis.vocabulary is not None:
        tables += table(VOCABULARY_HEADER, vocabulary_rows(diagnosis), "numbers")
        tables += f"<p>Tokenizer: {html.escape(diagnosis.vocabulary.name)}.</p>"
    pairs = [pair for survey in diagnosis.surveys if survey.text.split == "train" for _, pair in survey.sample]
    if not pairs:
        return tables
    sides = [np.array([len(pair[side]) for pair in pairs]) for side in (0, 1)]
    samples = list(zip(("source", "target"), sides, strict=True))
    chart = histogram("Lengths of training sentences", "characters", samples, 99.5)
    return tables + figures(("Lengths of training sentences in a sample, in characters", chart))


def _details(diagnosis: Diagnosis, finding: Finding) -> str:
    said = f"<p>{html.escape(f'{finding.kind.title}. {explanation(diagnosis, finding)}')}</p>"
    rows = [
        (f"{place.file}:{place.line}", place.text, "" if number else example.note)
        for example in finding.examples
        for number, place in enumerate(example.places)
    ]
    notes = [example.note for example in finding.examples if not example.places]
    listed = f"<ul>{''.join(f'<li>{html.escape(note)}</li>' for note in notes)}</ul>" if notes else ""
    return said + (table(("where", "text", "note"), rows, "texts") if rows else "") + listed
