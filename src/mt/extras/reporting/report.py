"""The report of a training run: one self-contained HTML file."""

import html
import math
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from sacrebleu.metrics.bleu import BLEU

from mt.bundle.load_translator import open_model
from mt.config import Config
from mt.console import duration, log, or_dash
from mt.data.eval_texts import read_texts
from mt.decoding.attention_weights import Attention, read_attention
from mt.decoding.engine import EngineChoice
from mt.errors import MtError
from mt.extras.reporting import attention_map
from mt.extras.reporting.charts import Line, bar_chart, histogram, line_chart
from mt.extras.reporting.html import details, figures, headline, listing, page, table
from mt.extras.reporting.run_data import Event, RunData, TestSet
from mt.extras.reporting.verdict import judge
from mt.metrics.scores import bleu_tokenizer, sentence_chrf
from mt.storage import atomic
from mt.storage.manifest import read_manifest, stage_key
from mt.storage.run_dir import RunDir
from mt.text.languages import is_spaced, language_name

_NUMBERS = ("bleu", "chrf", "ter", "exact_match", "sentences_per_second")  # scores with one decimal
_EXTREMES = 8  # worst and best sentences
_EVENLY_SPACED = 6  # sentences of the test set
_CORPORA = 3  # named at the top
_MAPS = 3  # sentences whose attention is shown
_MAP_CHARACTERS = 90
_BUCKETS = (5, 10, 15, 20, 30, 50)  # words of a source sentence, or characters
_SAMPLES = 12  # validations whose sample translations are shown


def write_report(run: RunDir, output: Path | None = None) -> Path:
    """Write the report of a run, by default into its folder, and return its path; raises as `RunData` does."""
    path = output or run.report
    atomic.write_text(path, report_html(RunData(run)))
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
    sections = [
        ("Translations", "".join(_sentences(test) for test in data.best_tests)),
        ("Training", _curves(data)),
        ("Progress", _samples(data.of_kind("validation"))),
        ("Scores", _scores(data) + "".join(_bleu_by_length(test, data.config) for test in data.best_tests)),
        ("Attention", _attention(data)),
        ("Data", _data(data)),
        ("Cost", _cost(data)),
        ("Configuration", details("All settings", f'<div class="lines">{html.escape(data.config_text)}</div>')),
    ]
    texts, name = data.config.data, data.config.name
    languages = " to ".join(", ".join(map(language_name, codes)) for codes in (texts.source_lang, texts.target_lang))
    top, style, script = _headline(data), attention_map.STYLE, attention_map.SCRIPT
    return page(f"{name}: report", languages, _subtitle(data), top, sections, style, script) + _signature(data.manifest)


def _subtitle(data: RunData) -> str:
    """Return name, corpus and date of a training."""
    sources = [source.name for source in data.config.data.train]
    corpus = ", ".join(sources[:_CORPORA]) + (f" and {len(sources) - _CORPORA} more" if sources[_CORPORA:] else "")
    pairs = f", {data.pairs['train']:,} pairs" if "train" in data.pairs else ""
    date = f"trained {data.manifest['created'][:10]}" if data.manifest else "not finished"
    return f"{data.config.name}: {corpus}{pairs}; {date}"


def _headline(data: RunData) -> str:
    training = data.config.training
    most = f" of at most {training.max_steps:,}" if training.minutes is None else ""  # else max_steps is replanned
    state = f"it is at step {data.steps:,}{most}"
    if not data.manifest:
        return headline("warning", f"This training has not finished; {state}.")
    if data.has_newer_steps:
        model = f"The scores are those of the model made after step {data.manifest['steps']:,}."
        return headline("warning", f"This training goes on; {state}. {model}")
    verdict = judge(data)
    if verdict is None:
        return headline("", "No test set was scored with BLEU.")
    reasons = "".join(
        f"<li>{html.escape(check.reason)} <cite>({html.escape(check.source)})</cite></li>" for check in verdict.reasons
    )
    content = f"<ul>{reasons}</ul>" if reasons else ""
    content += f'<p>Next: {html.escape(verdict.advice)}</p><p class="soft">{html.escape(verdict.caveat)}.</p>'
    return headline("", verdict.words, content, f"{verdict.bleu:.1f}", "BLEU")


def _scores(data: RunData) -> str:
    scores = [test.scores for test in data.tests] or data.manifest.get("test", [])
    rows, several = [], any("wrong_language" in s for s in scores)
    for s in scores:
        bleu, *others, speed = (or_dash(s[name]) for name in _NUMBERS)
        interval = "-" if s["bleu_low"] is None else f"{s['bleu_low']:.1f} to {s['bleu_high']:.1f}"
        language, ratio = _direction(s), f"{s['length_ratio']:.3f}"
        wrong = [or_dash(s.get("wrong_language"))] * several
        rows.append([language, s["method"], bleu, interval, *others, *wrong, ratio, speed])
    header = ["language", "method", "BLEU", "95 % interval", "chrF", "TER", "exact %"]
    header += ["wrong language %"] * several + ["length ratio", "sentences/s"]
    content = table(header, rows, "numbers named") if rows else ""
    signatures = [f"{name}: {value}" for s in scores for name, value in s["signatures"].items()]
    if formats := data.manifest.get("formats_table"):
        *lines, signature = formats.splitlines()
        header, *rows = (re.split("  +", line) for line in lines)
        content += f"<h3>Number formats on the validation set</h3>{table(header, rows, 'numbers')}"
        signatures.append(f"validation, {signature}")
    return content + details("Signatures", listing(dict.fromkeys(signatures)))


def _direction(scores: dict[str, Any]) -> str:
    """Name the direction of a score: its target language, or the pair where there are several source languages."""
    target = language_name(scores["target_lang"])
    if "source_lang" not in scores:
        return target
    return f"{language_name(scores['source_lang'])} to {target}{' (zero-shot)' if scores['zero_shot'] else ''}"


def _curves(data: RunData) -> str:
    train, valid = data.of_kind("train"), data.of_kind("validation")
    if not train and not valid:
        return ""

    def line(name: str, events: list[Event], key: str) -> Line:
        points = [(event["step"], event[key]) for event in events if isinstance(event.get(key), int | float)]
        return Line(name, [x for x, _ in points], [y for _, y in points])

    bleu = [line("BLEU", valid, "bleu")]
    loss = [line("training", train, "loss"), line("validation", valid, "loss")]
    perplexity = [line("training", train, "perplexity"), line("validation", valid, "perplexity")]
    return figures(
        ("BLEU on the validation set, greedy", line_chart("Validation BLEU", bleu)),
        ("Loss, nats a token (training's is smoothed)", line_chart("Loss", loss)),
        ("Perplexity", line_chart("Perplexity", perplexity, logarithmic=True)),
        ("Learning rate", line_chart("Learning rate", [line("rate", train, "learning_rate")])),
        ("Tokens a second", line_chart("Throughput", [line("tokens/s", train, "tokens_per_second")])),
    )


def _cost(data: RunData) -> str:
    done = (data.of_kind("done") or [{}])[-1]
    rows = [("steps", f"{data.steps:,}")]
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
    rows += [(label, f"{len(data.of_kind(kind)):,}") for label, kind in kinds.items() if data.of_kind(kind)]
    return table(["cost", ""], rows, "numbers")


def _data(data: RunData) -> str:
    if not data.cleaning:
        return ""
    total = sum(data.cleaning.values()) or 1
    cleaned = [(reason, f"{n:,}", f"{100 * n / total:.1f} %") for reason, n in data.cleaning.items()]
    kept = data.cleaning["kept"]
    splits = [(split, f"{number:,}") for split, number in {**data.pairs, "train": kept}.items()]
    tables = table(["training pairs", "count", "share"], cleaned, "numbers")
    tables += table(["split after cleaning", "pairs"], splits, "numbers")
    source, target = data.lengths
    if not len(source):
        return tables
    chart = histogram("Lengths of training sentences", "tokens", [("source", source), ("target", target)], 99.9)
    sentences = f"{len(source):,} evenly spaced training sentences" if len(source) < kept else "training sentences"
    return tables + figures((f"Lengths of {sentences}, in tokens with start and end", chart))


def _bleu_by_length(test: TestSet, config: Config) -> str:
    tokenizer = bleu_tokenizer(config.evaluation.bleu_tokenize, test.scores["target_lang"])
    spaced = is_spaced(test.scores.get("source_lang", config.data.source_lang[0]))
    unit = "words" if spaced else "characters"
    lengths = [len(source.split()) if spaced else len("".join(source.split())) for source in test.sources]
    try:
        metric = BLEU(tokenize=tokenizer)
    except (ImportError, RuntimeError, OSError) as error:  # a package or a model may be missing
        log.warning("the report has no BLEU by length: %s", error)
        return ""
    bars = []
    for low, high in pairwise((0, *_BUCKETS, math.inf)):
        chosen = [i for i, length in enumerate(lengths) if low < length <= high]
        if chosen:
            bleu = metric.corpus_score([test.hypotheses[i] for i in chosen], [[test.references[i] for i in chosen]])
            name = f"over {low}" if high == math.inf else f"{low + 1}-{high}"
            bars.append((f"{name}\n({len(chosen)})", float(bleu.score)))
    if not bars:
        return ""
    title = f"BLEU of {test.name} ({test.scores['method']}) by {unit} of the source"
    return figures((title, bar_chart(f"{test.name}: BLEU by length", f"{unit} (sentences)", bars)))


def _sentences(test: TestSet) -> str:
    """Return some sentences at even distances, and below them the worst and the best ones."""
    scores = sentence_chrf(test.hypotheses, test.references)
    ranked = sorted(range(len(scores)), key=lambda i: (scores[i], i))
    even = range(0, len(scores), -(-len(scores) // _EVENLY_SPACED) or 1)
    chosen = {"Evenly spaced sentences": even, "Worst by chrF": ranked[:_EXTREMES]}
    chosen["Best by chrF"] = ranked[::-1][: min(_EXTREMES, len(ranked) // 2)]
    content = ""
    for title, lines in chosen.items():
        rows = [[test.sources[i], test.hypotheses[i], test.references[i], f"{scores[i]:.0f}", i + 1] for i in lines]
        shown = table(["source", "translation", "reference", "chrF", "line"], rows, "texts") if rows else ""
        content += details(f"{title} of {test.name} ({test.scores['method']})", shown, is_open=not content)
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
        history = table(["step", "translation"], [*rows, ("reference", reference)], "texts narrow")
        content += f"<div><h3>{html.escape(source)}</h3>{history}</div>"
    return f'<div class="columns">{content}</div>'


def _attention(data: RunData) -> str:
    """Return the attention maps of a few sentences; empty if there is no finished model or it cannot be opened."""
    if not data.manifest:
        return ""
    attentions: list[Attention] = []
    try:
        opened = open_model(data.run.model, EngineChoice("torch"))
        assert opened.model is not None, "a single model that torch runs"
        split = "valid" if data.config.data.test is None else "test"
        for text in read_texts(data.run, split, data.config.data):
            sources = [source for source in text.sources if len(source) <= _MAP_CHARACTERS][:_MAPS]
            translator = opened.translator.for_text(text)
            for [candidate] in translator.translate(sources, opened.settings.search):
                attentions += read_attention(opened.model, opened.tokenizers, candidate, translator.tags)
    except MtError as error:
        log.warning("the report has no attention maps: %s", error.message)
        return ""
    return attention_map.map_element(attentions) if attentions else ""
