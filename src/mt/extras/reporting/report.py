"""The report of a training: one self-contained HTML file."""

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
from mt.extras.reporting.html import figures, page, table
from mt.extras.reporting.run_data import Event, RunData, TestSet, read_run_data
from mt.metrics.scores import bleu_tokenizer
from mt.storage import atomic
from mt.storage.manifest import read_manifest
from mt.storage.run_dir import RunDir
from mt.storage.stage import stage_key
from mt.text.languages import is_spaced

_NUMBERS = ("bleu", "chrf", "ter", "exact_match", "sentences_per_second")  # scores with one decimal
_EXTREMES = 8  # worst and best sentences
_MAPS = 3  # sentences whose attention is shown
_MAP_CHARACTERS = 90
_BUCKETS = (5, 10, 15, 20, 30, 50)  # words of a source sentence, or characters
_SAMPLES = 12  # validations whose sample translations are shown


def write_report(run: RunDir, output: Path | None = None) -> Path:
    """Write the report of a run, by default into its folder, and return its path.

    Raises:
        InputError: not a run folder, or a required file is missing or damaged.
    """
    path = output or run.report
    atomic.write_text(path, report_html(read_run_data(run)))
    return path


def update_report(run: RunDir) -> str:
    """Write the report unless it is of the present model; return its path, or why it was not written."""
    try:
        if run.report.read_bytes().endswith(_signature(read_manifest(run.model.root)).encode()):
            return str(run.report)
    except OSError:
        pass
    try:
        return str(write_report(run))
    except MtError as error:  # a training does not fail because its report does
        log.warning("report: not written: %s", error.message)
        return f"not written: {error.message}"


def _signature(manifest: dict[str, Any]) -> str:
    return f"<!-- model {stage_key(manifest)} -->\n"


def report_html(data: RunData) -> str:
    """Return the page."""
    # Of each language beam search, or the last method if there is none
    by_name = {test.name: test for test in sorted(data.tests, key=lambda test: test.scores["method"] == "beam")}
    sections = [
        ("Result", _result(data)),
        ("Training", _curves(data)),
        ("Cost", _cost(data)),
        ("Data", _data(data)),
        ("Test set", "".join(_bleu_by_length(test, data.config) + _extremes(test) for test in by_name.values())),
        ("The same sentences as training went on", _samples(data.of_kind("validation"))),
        ("Attention", _attention(data)),
        ("Configuration", f"<pre>{html.escape(data.config_text)}</pre>"),
    ]
    languages = f"{data.config.data.source_lang} to {', '.join(data.config.data.target_lang)}"
    written = [section for section in sections if section[1]]
    content = page(data.config.name, "report", languages, written, attention_map.STYLE, attention_map.SCRIPT)
    return content + _signature(data.manifest)


def _result(data: RunData) -> str:
    state = f"it is at step {data.steps:,} of at most {data.config.training.max_steps:,}."
    if not data.manifest:
        return f"<p>This training has not finished; {state}</p>"
    model = f"The scores are those of the model made after step {data.manifest['steps']:,}."
    return (f"<p>This training goes on; {state} {model}</p>" if data.has_newer_steps else "") + _scores(data)


def _scores(data: RunData) -> str:
    scores = [test.scores for test in data.tests] or data.manifest.get("test", [])
    if not scores:
        return "<p>No test set was scored.</p>"
    rows = []
    for s in scores:
        bleu, *others, speed = ("-" if s[name] is None else f"{s[name]:.1f}" for name in _NUMBERS)
        interval = "-" if s["bleu_low"] is None else f"{s['bleu_low']:.1f} to {s['bleu_high']:.1f}"
        language, ratio = s.get("target_lang", ""), f"{s['length_ratio']:.3f}"
        rows.append([language, s["method"], bleu, interval, *others, ratio, speed])
    header = ["language", "method", "BLEU", "95 % interval", "chrF", "TER", "exact %", "length ratio", "sentences/s"]
    signatures = dict.fromkeys(f"{name}: {value}" for s in scores for name, value in s["signatures"].items())
    formats = data.manifest.get("formats_table", "")
    items = "".join(f"<li><code>{html.escape(signature)}</code></li>" for signature in signatures)
    measured = f"<p>Number formats on the validation set:</p><pre>{html.escape(formats)}</pre>" if formats else ""
    return f"{table(header, rows, 'numbers')}<ul>{items}</ul>{measured}"


def _curves(data: RunData) -> str:
    train, valid = data.of_kind("train"), data.of_kind("validation")
    if not train and not valid:
        return ""

    def line(name: str, events: list[Event], key: str) -> Line:
        points = [(event["step"], event[key]) for event in events if isinstance(event.get(key), int | float)]
        return Line(name, [x for x, _ in points], [y for _, y in points])

    loss = [line("training", train, "loss"), line("validation", valid, "loss")]
    perplexity = [line("training", train, "perplexity"), line("validation", valid, "perplexity")]
    return figures(
        ("Loss, nats a token (training's is smoothed)", line_chart("Loss", "step", loss)),
        ("Perplexity", line_chart("Perplexity", "step", perplexity, logarithmic=True)),
        (
            "BLEU on the validation set, greedy",
            line_chart("Validation BLEU", "step", [line("BLEU", valid, "bleu")]),
        ),
        ("Learning rate", line_chart("Learning rate", "step", [line("rate", train, "learning_rate")])),
        ("Tokens a second", line_chart("Throughput", "step", [line("tokens/s", train, "tokens_per_second")])),
    )


def _cost(data: RunData) -> str:
    done = (data.of_kind("done") or [{}])[-1]
    rows: list[tuple[str, str]] = [("steps", f"{data.steps:,}")]
    if "training_seconds" in data.manifest and not data.has_newer_steps:
        rows.append(("time in training", duration(data.manifest["training_seconds"])))
    if "tokens" in done:
        rows.append(("tokens trained on", f"{done['tokens']:,}"))
    if done.get("peak_memory"):  # 0: unknown
        rows.append(("peak memory of the main process", f"{done['peak_memory'] / 1e9:.1f} GB"))
    kinds = {
        "times resumed": "resume",
        "updates skipped, not finite": "skipped_update",
        "steps split for lack of memory": "out_of_memory",
    }
    rows += [(label, f"{len(data.of_kind(kind)):,}") for label, kind in kinds.items()]
    return table(["", ""], rows, "pairs")


def _data(data: RunData) -> str:
    if not data.cleaning:
        return ""
    total = sum(data.cleaning.values()) or 1
    cleaned = [(reason, f"{n:,}", f"{100 * n / total:.1f} %") for reason, n in data.cleaning.items()]
    splits = [(split, f"{number:,}") for split, number in data.pairs.items()]
    tables = table(["training pairs", "count", "share"], cleaned, "numbers")
    tables += table(["split after cleaning", "pairs"], splits, "numbers")
    source, target = data.lengths
    if not len(source):
        return tables
    chart = histogram("Lengths of training sentences", "tokens", [("source", source), ("target", target)], 99.9)
    return tables + figures(("Lengths of training sentences, in tokens with start and end", chart))


def _bleu_by_length(test: TestSet, config: Config) -> str:
    tokenizer = bleu_tokenizer(config.evaluation.bleu_tokenize, test.scores.get("target_lang", ""))
    spaced = is_spaced(config.data.source_lang)
    unit = "words" if spaced else "characters"
    lengths = [len(source.split()) if spaced else len("".join(source.split())) for source in test.sources]
    try:
        metric = BLEU(tokenize=tokenizer)
    except (ImportError, RuntimeError, OSError) as error:  # a package or a model may be missing
        log.warning("the report has no BLEU by length: %s", error)
        return ""
    bars = []
    for low, high in zip((0, *_BUCKETS), (*_BUCKETS, None), strict=True):
        chosen = [i for i, length in enumerate(lengths) if low < length and (high is None or length <= high)]
        if chosen:
            bleu = metric.corpus_score([test.hypotheses[i] for i in chosen], [[test.references[i] for i in chosen]])
            name = f"over {low}" if high is None else f"{low + 1}-{high}"
            bars.append((f"{name}\n({len(chosen)})", float(bleu.score)))
    if not bars:
        return ""
    title = f"BLEU of {test.name} ({test.scores['method']}) by {unit} of the source"
    return figures((title, bar_chart(f"{test.name}: BLEU by length", f"{unit} (sentences)", bars)))


def _extremes(test: TestSet) -> str:
    metric = CHRF()
    pairs = zip(test.hypotheses, test.references, strict=True)
    scores = [float(metric.sentence_score(hypothesis, [reference]).score) for hypothesis, reference in pairs]
    ranked = sorted((score, i) for i, score in enumerate(scores))
    content = ""
    for title, chosen in (("Worst", ranked[:_EXTREMES]), ("Best", ranked[::-1][: min(_EXTREMES, len(ranked) // 2)])):
        rows = [[f"{score:.0f}", i + 1, test.sources[i], test.hypotheses[i], test.references[i]] for score, i in chosen]
        if rows:
            content += f"<h3>{title} of {html.escape(test.name)} by chrF ({test.scores['method']})</h3>"
            content += table(["chrF", "line", "source", "translation", "reference"], rows, "texts")
    return content


def _samples(validations: Sequence[Event]) -> str:
    """Return a table for each sample sentence: its translations at some of the validations."""
    with_samples = [event for event in validations if event.get("samples")]
    if not with_samples:
        return ""
    step = max(1, -(-len(with_samples) // _SAMPLES))
    shown = [*with_samples[:-1:step], with_samples[-1]]
    content = ""
    for number, (source, _, reference) in enumerate(with_samples[-1]["samples"]):
        rows = [
            (f"{event['step']:,}", event["samples"][number][1]) for event in shown if len(event["samples"]) > number
        ]
        content += f"<h3>{html.escape(source)}</h3>"
        content += table(["step", "translation"], [*rows, ("reference", reference)], "texts")
    return content


def _attention(data: RunData) -> str:
    """Return the attention maps of a few sentences; empty if there is no finished model or it cannot be opened."""
    if not data.manifest:
        return ""
    attentions: list[Attention] = []
    try:
        opened = open_model(data.run.model, EngineChoice("torch"))
        assert opened.model is not None, "a single model that torch runs"
        split = "valid" if data.config.data.test is None else "test"
        for text in read_texts(data.run, split, data.config.data.target_lang):
            sources = [source for source in text.sources if len(source) <= _MAP_CHARACTERS][:_MAPS]
            for [candidate] in opened.translator.to(text.target_lang).translate(sources, opened.settings.search):
                attentions += read_attention(opened.model, opened.tokenizers, candidate)
    except MtError as error:
        log.warning("the report has no attention maps: %s", error.message)
        return ""
    return attention_map.map_element(attentions) if attentions else ""
