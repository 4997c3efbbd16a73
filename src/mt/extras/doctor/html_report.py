"""Corpus reports as one self-contained HTML page, with maps of the training texts."""

import base64
import html
import re
from io import BytesIO
from math import inf

import numpy as np
from matplotlib.image import imsave

from mt.data.ragged import Array
from mt.extras.doctor.actions import Action, judge, ranked
from mt.extras.doctor.block_checks import BINS, PositionMap
from mt.extras.doctor.characters import visible
from mt.extras.doctor.check import CorpusReport, Finding
from mt.extras.doctor.findings import SPLITS, bits
from mt.extras.doctor.pair_scores import PairScores
from mt.extras.doctor.rules import BIT
from mt.extras.doctor.text_report import (
    COVERAGE_HEADER,
    coverage_rows,
    explanation,
    severity_counts,
    share_of,
    size_rows,
)
from mt.extras.reporting.charts import histogram
from mt.extras.reporting.html import details, figures, headline, listing, page, table, web_file
from mt.text.languages import language_name

_CODE = re.compile("`([^`]+)`")
_MAX_EXAMPLES = 100  # of a finding; the JSON document has all
_MIN_PAIRS = 300  # fewer need no map
_MAX_MAPS, _OPEN_MAPS, _MAX_RULES, _MAX_BLOCKS = 12, 3, 8, 100
_ENDS = {  # of the vertical axes
    "evidence": ("translation", "unrelated"),
    "length ratio": ("target 4× longer", "4× shorter"),
    "score": ("better", "worse"),
}


def html_report(report: CorpusReport, config: str = "CONFIG") -> str:
    """Return the page; `config` as for `judge`."""
    data, verdict = report.config.data, judge(report, config)
    languages = " to ".join(", ".join(map(language_name, codes)) for codes in (data.source_lang, data.target_lang))
    sections = [
        ("Findings", _findings(report)),
        ("Map", _maps(report)),
        ("Scores", score_distribution(report.scores) if report.scores else ""),
        ("Texts", _texts(report)),
    ]
    content = f'<p>{html.escape(verdict.reason)}.</p><p class="soft">{severity_counts(report)}</p>'
    actions = "".join(map(_action, verdict.actions))
    top = headline(verdict.kind, verdict.words, f'{content}<ol class="actions">{actions}</ol>')
    name, subtitle = report.config.name, f"{report.config.name}: corpus of {report.pairs['train']:,} training pairs"
    style, script = (web_file(f"corpus.{kind}", "doctor") for kind in ("css", "js"))
    return page(f"{name}: corpus", languages, subtitle, top, sections, style, script)


def _action(action: Action) -> str:
    title, command, gain = map(html.escape, (action.title, action.command, action.gain))
    button = f'<button type="button" class="copy" aria-label="Copy: {title}" hidden>Copy</button>'
    return f'<li><b>{title}</b><p class="command"><code>{command}</code>{button}</p><p>{gain}.</p></li>'


def _findings(report: CorpusReport) -> str:
    findings = ranked(report)
    shares = [finding.counts["train"] / (finding.checked["train"] or inf) for finding in findings]
    most = max(shares, default=0) or 1
    return "".join(_details(report, f, share / most) for f, share in zip(findings, shares, strict=True))


def scores_page(scores: PairScores) -> str:
    """Return a page with the distribution of scores in each source."""
    subtitle = f"{len(scores.values):,} training pairs"
    return page("scores", "Scores", subtitle, "", [("Distribution", score_distribution(scores))])


def _texts(report: CorpusReport) -> str:
    tables = table(("text", "pairs"), size_rows(report), "numbers")
    if report.coverage is not None:
        tables += table(COVERAGE_HEADER, coverage_rows(report.coverage), "numbers")
        tables += f"<p>Tokenizer: {html.escape(report.coverage.tokenizer)}.</p>"
    pairs = [pair for stats in report.training for _, pair in stats.sample]
    if not pairs:
        return tables
    sides = [np.array([len(pair[side]) for pair in pairs]) for side in (0, 1)]
    samples = list(zip(("source", "target"), sides, strict=True))
    chart = histogram("Lengths of training sentences", "characters", samples, 99.5)
    return tables + figures(("Lengths of training sentences in a sample, in characters", chart))


def _details(report: CorpusReport, finding: Finding, bar: float) -> str:
    """Return a finding with a bar of length `bar`, from 0 to 1, and below it, folded, advice and examples."""
    rule, count = finding.rule, finding.counts["train"]
    title = rule.title if rule.title != rule.name else ""
    examples = finding.examples[:_MAX_EXAMPLES]
    rows = [
        (f"{location.file}:{location.line}", location.text, "" if number else example.note)
        for example in examples
        for number, location in enumerate(example.locations)
    ]
    advice = _CODE.sub(r"<code>\1</code>", html.escape(explanation(report, finding)))
    held_out = [f"{finding.counts[split]:,} in {split}" for split in SPLITS[1:] if finding.counts[split]]
    share = f'<i style="width:{100 * bar:.2f}%"></i>' if bar else ""
    return (
        f'<details id="{rule.name}" class="finding {rule.severity}"><summary>'
        f'<span class="badge {rule.severity}">{rule.severity}</span>'
        f'<span class="what"><b>{html.escape(rule.name)}</b>{html.escape(title)}</span>'
        f'<span class="bar">{share}</span><span class="number">{count:,} ({share_of(finding)})'
        f"<small>{', '.join(held_out)}</small></span></summary><p>{advice}</p>"
        f"{table(('where', 'text', 'note'), rows, 'texts') if rows else ''}"
        f"{listing(example.note for example in examples if not example.locations)}</details>"
    )


def _maps(report: CorpusReport) -> str:
    """Draw the maps of the longest training texts, folded from the fourth on."""
    sizes = np.array([positions.pairs for positions in report.maps])
    ends, content = np.cumsum(sizes), ""
    for number in np.argsort(-sizes, kind="stable")[:_MAX_MAPS].tolist():
        if sizes[number] >= _MIN_PAIRS:
            names, pairs = report.training[number].bitext.files, slice(ends[number] - sizes[number], ends[number])
            figure = _map(report, report.maps[number], names, pairs, f"map{number}")
            name = f"{' and '.join(dict.fromkeys(names))}, {sizes[number]:,} pairs"
            content += details(name, figure, is_open=content.count("<figure") < _OPEN_MAPS)
    return content


def score_distribution(scores: PairScores) -> str:
    """Draw the distribution of scores by source, and their threshold."""
    parts = np.split(scores.values, np.cumsum([pairs for _, pairs in scores.sources])[:-1])
    named = [(visible(name), part[np.isfinite(part)]) for (name, _), part in zip(scores.sources, parts, strict=True)]
    named = sorted((sample for sample in named if len(sample[1])), key=lambda sample: -len(sample[1]))
    if len(named) > 3:
        named[2:] = [(f"{len(named) - 2} others", np.concatenate([part for _, part in named[2:]]))]
    if not named:
        return ""
    caption = "Scores of the training pairs, % of each source"
    if scores.threshold is not None:
        share = np.mean(scores.values[np.isfinite(scores.values)] < scores.threshold)
        caption += f"; {100 * share:.1f} % are below {scores.threshold:g}"
    return figures((caption, histogram("Scores", "score", named, 99.5, scores.threshold)))


def _map(report: CorpusReport, positions: PositionMap, names: tuple[str, str], pairs: slice, name: str) -> str:
    counts, masks = dict(positions.counts), report.masks[pairs]
    if report.scores and np.isfinite(scores := report.scores.values[pairs]).any():
        low, high = np.nanpercentile(scores, (1, 99)).tolist()
        counts["score"] = positions.density(0, scores, low, high + 1e-6)
    longest = sorted(positions.blocks, key=lambda block: block.start - block.end)[:_MAX_BLOCKS]
    described = {block: block.described(*names) for block in sorted(longest, key=lambda block: block.start)}
    scale = positions.n_columns / positions.pairs
    marks = "".join(
        f'<rect x="{block.start * scale:.1f}" width="{max(1.0, (block.end - block.start) * scale):.1f}" '
        f'height="{BINS}"><title>{html.escape(text)}</title></rect>'
        for block, text in described.items()
    )
    rows, rules = "", [finding.rule for finding in ranked(report)]
    for rule in [rule for rule in rules if rule.name in BIT and np.any(masks & bits(rule.name))][:_MAX_RULES]:
        ink = _ink((masks & bits(rule.name)) != 0, positions.n_columns)
        picture = _picture(ink[None], f"{name}-{rule.name}", f"{rule.name} by position", rule.severity)
        rows += f'<a href="#{rule.name}">{rule.name}</a>{picture}'
    for value, numbers in counts.items():
        high_end, low_end = _ENDS[value]
        ink = np.sqrt(numbers[::-1] / np.percentile(numbers[numbers > 0], 99)).clip(0, 1)
        picture = _picture(ink, f"{name}-{value[0]}", f"{value} by position", "", f'<g class="blocks">{marks}</g>')
        rows += f'<div class="axis"><span>{high_end}</span><b>{value}</b><span>{low_end}</span></div>{picture}'
    ends = "".join(f"<span>{number:,}</span>" for number in (1, positions.pairs // 2, positions.pairs))
    return (
        "<figure><figcaption>Pairs by position; the stronger the colour, the more of them</figcaption>"
        f'<div class="map" data-pairs="{positions.pairs}">{rows}<span>pair</span>'
        f'<div class="positions">{ends}</div></div></figure>'
        f"{details(f'Blocks out of step: {len(positions.blocks):,}', listing(described.values()))}"
    )


def _ink(mask: Array, n_columns: int) -> Array:
    """Return the darkness of each column (C,), from 0 to 1, by its share of pairs in the mask (N,); one is visible."""
    starts = -(-np.arange(n_columns) * len(mask) // n_columns)
    shares = np.add.reduceat(mask, starts, dtype=np.int64) / np.diff(starts, append=len(mask))
    return np.where(shares > 0, 0.4 + 0.6 * np.sqrt(shares), 0.0)


def _picture(ink: Array, name: str, label: str, kind: str, below: str = "") -> str:
    """Draw darkness from 0 to 1 (rows, C) in a colour of the page, as the mask of a rectangle."""
    buffer = BytesIO()
    imsave(buffer, ink, cmap="gray", vmin=0, vmax=1, format="png")
    height, width = ink.shape
    size = f'width="{width}" height="{height}"'
    image = f'href="data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"'
    view = f'viewBox="0 0 {width} {height}" preserveAspectRatio="none" role="img" aria-label="{label}"'
    return (
        f'<svg class="{kind}" {view}>{below}'
        f'<mask id="{name}"><image {size} preserveAspectRatio="none" {image}/></mask>'
        f'<rect {size} fill="currentColor" mask="url(#{name})"/></svg>'
    )
