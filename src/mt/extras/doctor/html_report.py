"""Corpus reports as one self-contained HTML page."""

import html
import re
from importlib.resources import files
from math import inf

import numpy as np

from mt.extras.doctor.actions import Action, CorpusVerdict, judge, ranked
from mt.extras.doctor.check import CorpusReport, Finding
from mt.extras.doctor.findings import SPLITS
from mt.extras.doctor.map_figure import maps, score_distribution
from mt.extras.doctor.pair_scores import PairScores
from mt.extras.doctor.text_report import (
    COVERAGE_HEADER,
    coverage_rows,
    explanation,
    severity_counts,
    share_of,
    size_rows,
)
from mt.extras.reporting.charts import histogram
from mt.extras.reporting.html import figures, headline, listing, page, table
from mt.text.languages import language_name

_CODE = re.compile("`([^`]+)`")
_MAX_EXAMPLES = 100  # of a finding; the JSON document has all


def html_report(report: CorpusReport, config: str = "CONFIG") -> str:
    """Return the page; `config` is the configuration as a shell reads it."""
    data, verdict = report.config.data, judge(report, config)
    languages = " to ".join(", ".join(map(language_name, codes)) for codes in (data.source_lang, data.target_lang))
    sections = [
        ("Findings", _findings(report)),
        ("Map", maps(report)),
        ("Scores", _scores(report)),
        ("Texts", _texts(report)),
    ]
    name, subtitle = report.config.name, f"{report.config.name}: corpus of {report.pairs['train']:,} training pairs"
    return page(f"{name}: corpus", languages, subtitle, _headline(report, verdict), sections, *map(_web, ("css", "js")))


def _web(kind: str) -> str:
    return (files("mt.extras.doctor") / "web" / f"corpus.{kind}").read_text(encoding="utf-8")


def _headline(report: CorpusReport, verdict: CorpusVerdict) -> str:
    actions = "".join(map(_action, verdict.actions))
    content = f'<p>{html.escape(verdict.reason)}.</p><p class="soft">{severity_counts(report)}</p>'
    return headline(verdict.kind, verdict.words, f'{content}<ol class="actions">{actions}</ol>')


def _action(action: Action) -> str:
    title, command, gain = map(html.escape, (action.title, action.command, action.gain))
    button = f'<button type="button" class="copy" aria-label="Copy: {title}" hidden>Copy</button>'
    return f'<li><b>{title}</b><p class="command"><code>{command}</code>{button}</p><p>{gain}.</p></li>'


def _findings(report: CorpusReport) -> str:
    shares = [finding.counts.get("train", 0) / (finding.checked.get("train") or inf) for finding in ranked(report)]
    most = max(shares, default=0) or 1
    return "".join(_details(report, f, share / most) for f, share in zip(ranked(report), shares, strict=True))


def _scores(report: CorpusReport) -> str:
    if report.scores is None:
        return ""
    sources = [(one.bitext.files[0], one.pairs) for one in report.training]
    return score_distribution(report.scores.values, sources, report.scores.threshold)


def scores_page(scores: PairScores) -> str:
    """Return a page with the distribution of scores in each source."""
    sections = [("Distribution", score_distribution(scores.values, scores.sources, scores.threshold))]
    return page("scores", "Scores", f"{len(scores.values):,} training pairs", "", sections)


def _texts(report: CorpusReport) -> str:
    tables = table(("text", "pairs"), size_rows(report), "numbers")
    if report.coverage is not None:
        tables += table(COVERAGE_HEADER, coverage_rows(report), "numbers")
        tables += f"<p>Tokenizer: {html.escape(report.coverage.tokenizer)}.</p>"
    pairs = [pair for one in report.training for _, pair in one.sample]
    if not pairs:
        return tables
    sides = [np.array([len(pair[side]) for pair in pairs]) for side in (0, 1)]
    samples = list(zip(("source", "target"), sides, strict=True))
    chart = histogram("Lengths of training sentences", "characters", samples, 99.5)
    return tables + figures(("Lengths of training sentences in a sample, in characters", chart))


def _details(report: CorpusReport, finding: Finding, bar: float) -> str:
    """Return a finding with a bar of that length, from 0 to 1, and below it, folded, advice and examples."""
    rule, number = finding.rule, finding.counts.get("train", 0)
    title = rule.title if rule.title != rule.name else ""
    examples = finding.examples[:_MAX_EXAMPLES]
    rows = [
        (f"{location.file}:{location.line}", location.text, "" if number else example.note)
        for example in examples
        for number, location in enumerate(example.locations)
    ]
    advice = _CODE.sub(r"<code>\1</code>", html.escape(explanation(report, finding)))
    held_out = [f"{finding.counts[split]:,} in {split}" for split in SPLITS[1:] if finding.counts.get(split)]
    share = f'<i style="width:{100 * bar:.2f}%"></i>' if bar else ""
    return (
        f'<details id="{rule.name}" class="finding {rule.severity}"><summary>'
        f'<span class="badge {rule.severity}">{rule.severity}</span>'
        f'<span class="what"><b>{html.escape(rule.name)}</b>{html.escape(title)}</span>'
        f'<span class="bar">{share}</span><span class="number">{number:,} ({share_of(finding)})'
        f"<small>{', '.join(held_out)}</small></span></summary><p>{advice}</p>"
        f"{table(('where', 'text', 'note'), rows, 'texts') if rows else ''}"
        f"{listing(example.note for example in examples if not example.locations)}</details>"
    )
