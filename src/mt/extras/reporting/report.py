"""The report of a training: one HTML file that needs nothing else."""

import html
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from mt.bundle.load_translator import open_model
from mt.config import Config
from mt.console import duration, log
from mt.data.eval_texts import read_texts
from mt.decoding.attention_weights import Attention, read_attention
from mt.decoding.engine import EngineChoice
from mt.errors import MtError
from mt.extras.reporting import attention_map
from mt.extras.reporting.charts import Line, bar_chart, histogram, line_chart
from mt.extras.reporting.facts import Event, Facts, TestSet, read_facts
from mt.extras.reporting.page import charts, page, table, titled
from mt.metrics.scores import bleu_tokenizer
from mt.storage import atomic
from mt.storage.manifest import read_manifest
from mt.storage.run_dir import RunDir
from mt.storage.stage import stage_key
from mt.text.languages import is_spaced

_SHOWN = 8  # worst and best sentences
_MAPS = 3  # sentences whose attention is shown
_MAP_CHARACTERS = 90
_BUCKETS = (5, 10, 15, 20, 30, 50)  # words of a source sentence, or characters
_STAGES = 12  # of a sentence's translations while training went on


def write_report(run: RunDir, output: Path | None = None) -> Path:
    """Writes the report of a run.

    Args:
        run: finished or not.
        output: where to; None is the run folder.

    Returns:
        where it is.

    Raises:
        InputError: the folder is no run's, or what is needed of it is missing.
    """
    path = output or run.report
    atomic.write_text(path, report_html(read_facts(run)))
    return path


def is_current(run: RunDir) -> bool:
    """Tell whether the run's report is of its present model, by the digest at the report's end."""
    try:
        return run.report.read_bytes().endswith(_signature(read_manifest(run.model.root)).encode())
    except OSError:
        return False


def update_report(run: RunDir) -> str:
    """Write the report unless it is of the present model; return its path, or why it was not written."""
    if is_current(run):
        return str(run.report)
    try:
        return str(write_report(run))
    except MtError as error:  # a training does not fail because its report does
        log.warning("report: not written: %s", error.message)
        return f"not written: {error.message}"


def _signature(manifest: dict[str, Any]) -> str:
    return f"<!-- model {stage_key(manifest)} -->\n"


def report_html(facts: Facts) -> str:
    """The page."""
    parts = [
        ("Result", _result(facts)),
        ("Training", _curves(facts)),
        ("Cost", _cost(facts)),
        ("Data", _data(facts)),
        ("Test set", "".join(_by_length(test, facts.config) + _extremes(test) for test in _last_of_each(facts.tests))),
        ("The same sentences as training went on", _stages(facts.of_kind("validation"))),
        ("Attention", _attention(facts)),
        ("Configuration", f"<pre>{html.escape(facts.config_text)}</pre>"),
    ]
    languages = f"{facts.config.data.source_lang} to {', '.join(facts.config.data.target_lang)}"
    whole = page(
        facts.config.name,
        "report",
        languages,
        [part for part in parts if part[1]],
        attention_map.STYLE,
        attention_map.SCRIPT,
    )
    return whole + _signature(facts.manifest)


def _result(facts: Facts) -> str:
    under_way = f"it is at step {facts.steps:,} of at most {facts.config.training.max_steps:,}."
    if not facts.manifest:
        return f"<p>This training has not finished; {under_way}</p>"
    of_before = f"The scores are those of the model made after step {facts.manifest['steps']:,}."
    before = f"<p>This training goes on; {under_way} {of_before}</p>" if facts.goes_on else ""
    return before + _scores(facts)


def _scores(facts: Facts) -> str:
    scores = [test.scores for test in facts.tests] or facts.manifest.get("test", [])
    if not scores:
        return "<p>No test set was scored.</p>"
    rows = [
        [
            s.get("target_lang", ""),
            s["method"],
            _number(s["bleu"]),
            "-" if s["bleu_low"] is None else f"{s['bleu_low']:.1f} to {s['bleu_high']:.1f}",
            _number(s["chrf"]),
            _number(s["ter"]),
            _number(s["exact_match"]),
            f"{s['length_ratio']:.3f}",
            _number(s["sentences_per_second"]),
        ]
        for s in scores
    ]
    header = ["language", "method", "BLEU", "95 % interval", "chrF", "TER", "exact %", "length ratio", "sentences/s"]
    signatures = dict.fromkeys(f"{name}: {value}" for s in scores for name, value in s["signatures"].items())
    formats = facts.manifest.get("formats_table", "")
    listed = "".join(f"<li><code>{html.escape(signature)}</code></li>" for signature in signatures)
    measured = f"<p>Number formats on the validation set:</p><pre>{html.escape(formats)}</pre>" if formats else ""
    return f"{table(header, rows, 'numbers')}<ul>{listed}</ul>{measured}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _curves(facts: Facts) -> str:
    train, valid = facts.of_kind("train"), facts.of_kind("validation")
    if not train and not valid:
        return ""

    def line(name: str, events: list[Event], key: str) -> Line:
        points = [(event["step"], event[key]) for event in events if isinstance(event.get(key), int | float)]
        return Line(name, [x for x, _ in points], [y for _, y in points])

    return charts(
        titled(
            "Loss, nats a token (training's is smoothed)",
            line_chart("Loss", "step", [line("training", train, "loss"), line("validation", valid, "loss")]),
        ),
        titled(
            "Perplexity",
            line_chart(
                "Perplexity",
                "step",
                [line("training", train, "perplexity"), line("validation", valid, "perplexity")],
                logarithmic=True,
            ),
        ),
        titled(
            "BLEU on the validation set, greedy", line_chart("Validation BLEU", "step", [line("BLEU", valid, "bleu")])
        ),
        titled("Learning rate", line_chart("Learning rate", "step", [line("rate", train, "learning_rate")])),
        titled("Tokens a second", line_chart("Throughput", "step", [line("tokens/s", train, "tokens_per_second")])),
    )


def _cost(facts: Facts) -> str:
    done = (facts.of_kind("done") or [{}])[-1]
    counted = {kind: len(facts.of_kind(kind)) for kind in ("resume", "skipped_update", "out_of_memory")}
    rows: list[tuple[str, str]] = [("steps", f"{facts.steps:,}")]
    if "training_seconds" in facts.manifest and not facts.goes_on:
        rows.append(("time in training", duration(facts.manifest["training_seconds"])))
    if "tokens" in done:
        rows.append(("tokens trained on", f"{done['tokens']:,}"))
    if "peak_memory" in done:
        rows.append(("memory of the main process at most", f"{done['peak_memory'] / 1e9:.1f} GB"))
    rows += [("times gone on after a stop", f"{counted['resume']:,}")]
    rows += [("updates skipped, not finite", f"{counted['skipped_update']:,}")]
    rows += [("steps split for lack of memory", f"{counted['out_of_memory']:,}")]
    return table(["", ""], rows, "pairs")


def _data(facts: Facts) -> str:
    if not facts.cleaning:
        return ""
    total = sum(facts.cleaning.values()) or 1
    cleaned = [(reason, f"{n:,}", f"{100 * n / total:.1f} %") for reason, n in facts.cleaning.items()]
    splits = [(split, f"{number:,}") for split, number in facts.pairs.items()]
    tables = table(["training pairs", "count", "share"], cleaned, "numbers") + table(
        ["split after cleaning", "pairs"], splits, "numbers"
    )
    source, target = facts.lengths
    if not len(source):
        return tables
    most = int(max(np.percentile(source, 99.9), np.percentile(target, 99.9))) + 2
    width = -(-most // 50)  # whole numbers of tokens, the same in each bar
    edges = np.arange(0, most + width, width)
    counts = [
        (name, np.histogram(lengths, edges)[0].tolist()) for name, lengths in (("source", source), ("target", target))
    ]
    chart = histogram("Lengths of training sentences", "tokens", edges.tolist(), counts)
    return tables + charts(titled("Lengths of training sentences, in tokens with start and end", chart))


def _last_of_each(tests: Sequence[TestSet]) -> list[TestSet]:
    """Of each language beam search, or the last method where that was not asked for."""
    return list({test.name: test for test in sorted(tests, key=lambda test: test.scores["method"] == "beam")}.values())


def _by_length(test: TestSet, config: Config) -> str:
    tokenizer = bleu_tokenizer(config.evaluation.bleu_tokenize, test.scores.get("target_lang", ""))
    spaced = is_spaced(config.data.source_lang)
    unit = "words" if spaced else "characters"
    lengths = [len(source.split()) if spaced else len("".join(source.split())) for source in test.sources]
    try:
        metric = BLEU(tokenize=tokenizer)
    except (ImportError, RuntimeError, OSError) as error:  # it may need a package or a model that is not here
        log.warning("the report has no BLEU by length: %s", error)
        return ""
    bars = []
    for low, high in zip((0, *_BUCKETS), (*_BUCKETS, 10**9), strict=True):
        chosen = [i for i, length in enumerate(lengths) if low < length <= high]
        if not chosen:
            continue
        bleu = metric.corpus_score([test.hypotheses[i] for i in chosen], [[test.references[i] for i in chosen]])
        name = f"over {low}" if high > 10**6 else f"{low + 1}-{high}"
        bars.append((f"{name}\n({len(chosen)})", float(bleu.score)))
    title = f"BLEU of {test.name} ({test.scores['method']}) by {unit} of the source"
    return charts(titled(title, bar_chart(f"{test.name}: BLEU by length", f"{unit} (sentences)", bars))) if bars else ""


def _extremes(test: TestSet) -> str:
    metric = CHRF()
    scored = [
        (float(metric.sentence_score(hypothesis, [reference]).score), i)
        for i, (hypothesis, reference) in enumerate(zip(test.hypotheses, test.references, strict=True))
    ]
    ranked = sorted(scored)
    worst, best = ranked[:_SHOWN], ranked[::-1][: min(_SHOWN, len(ranked) // 2)]
    return "".join(
        f"<h3>{title} of {html.escape(test.name)} by chrF ({test.scores['method']})</h3>{_sentences(test, chosen)}"
        for title, chosen in (("Worst", worst), ("Best", best))
        if chosen
    )


def _sentences(test: TestSet, chosen: Sequence[tuple[float, int]]) -> str:
    rows = [[f"{score:.0f}", i + 1, test.sources[i], test.hypotheses[i], test.references[i]] for score, i in chosen]
    return table(["chrF", "line", "source", "translation", "reference"], rows, "texts")


def _stages(validations: Sequence[Event]) -> str:
    """A table for each sentence: what it became at some of the validations."""
    with_samples = [event for event in validations if event.get("samples")]
    if not with_samples:
        return ""
    step = max(1, -(-len(with_samples) // _STAGES))
    shown = [*with_samples[:-1:step], with_samples[-1]]
    tables = []
    for number in range(len(with_samples[-1]["samples"])):
        source, _, reference = with_samples[-1]["samples"][number]
        rows = [
            (f"{event['step']:,}", event["samples"][number][1]) for event in shown if len(event["samples"]) > number
        ]
        tables.append(
            f"<h3>{html.escape(source)}</h3>"
            + table(["step", "translation"], [*rows, ("reference", reference)], "texts")
        )
    return "".join(tables)


def _attention(facts: Facts) -> str:
    """Maps of a few sentences, by the finished model; nothing where it cannot be opened."""
    if not facts.manifest:
        return ""
    try:
        attentions = list(_read_attention(facts))
    except MtError as error:
        log.warning("the report has no attention maps: %s", error.message)
        return ""
    return attention_map.maps(attentions) if attentions else ""


def _read_attention(facts: Facts) -> Iterator[Attention]:
    opened = open_model(facts.run.model, EngineChoice("torch"))
    assert opened.model is not None, "one model, and torch runs it"
    split = "valid" if facts.config.data.test is None else "test"
    for text in read_texts(facts.run, split, facts.config.data.target_lang):
        fitting = [source for source in text.sources if len(source) <= _MAP_CHARACTERS][:_MAPS]
        found = opened.translator.to(text.target_lang).translate(fitting, opened.settings.search)
        for [candidate] in found:
            yield from read_attention(opened.model, opened.tokenizers, candidate)
