"""The verdict on a corpus in words, and the most valuable things to do about it, each as a command.

The harm of a finding is the share of pairs that have it times the weight of its rule; the value of an action is the
harm that it removes. The weights and limits are this project's own, except that copied sentences are by far the worst
(Khayrallah and Koehn 2018).
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mt.config.loading import as_yaml
from mt.console import quoted
from mt.extras.doctor.check import CorpusReport, Finding
from mt.extras.doctor.clean import dropping_rules
from mt.extras.doctor.findings import SPLITS, Example, bits
from mt.extras.doctor.rules import (
    DROPPABLE,
    DROPPED_BY_TRAINING,
    ERROR,
    NOTE,
    PAIR_RULES,
    PREVENTING,
    WARNING,
    FindingRule,
)

_WEIGHTS = {ERROR: 100.0, WARNING: 1.0, NOTE: 0.01}
_RULE_WEIGHTS = {
    "identical": 10.0,
    **dict.fromkeys(("misaligned", "swapped", "wrong-language", "wrong-script", "language"), 3.0),
}
_HELD_OUT = SPLITS[1:]
_HELD_OUT_WEIGHT = 0.1  # of a fault in validation or test text: it blurs scores only
_LEAKS = ("leak", "near-leak", "side-leak")
_DOUBTFUL = ("numbers", "unusual-ratio", "short", "many-targets", "many-sources")  # perhaps no translations
_DOUBT_WEIGHT = 0.1
_GOOD, _FAIR = 0.002, 0.05  # harm below which nothing needs to be done, or little
_MIN_VALUE, _MAX_ACTIONS = 0.0005, 3


class Action(NamedTuple):
    """A thing to do: in words, as a command, with its gain in words and the harm that it removes."""

    title: str
    command: str
    gain: str
    value: float


class CorpusVerdict(NamedTuple):
    """The meaning of all findings; `kind` is good, warning or error, and the most valuable action comes first."""

    kind: str
    words: str
    reason: str
    actions: list[Action]


def judge(report: CorpusReport, config: str = "CONFIG") -> CorpusVerdict:
    """Judge a corpus; `config` is the configuration's path, quoted for a shell, and any further options."""
    total = sum(harm(report, finding) for finding in report.findings)
    actions = sorted(_actions(report, config), key=lambda action: -action.value)
    actions = [action for action in actions if action.value > _MIN_VALUE][:_MAX_ACTIONS]
    if report.refused:
        kind, words = ERROR, f"training would refuse this corpus: {report.findings[0].rule.title}"
    elif total < _GOOD or not actions:
        kind, words = "good", "training would take this corpus, and nothing needs to be done"
        actions = [Action("Train", f"mt train --config {config}", "trains on the text as it is", 0.0)]
    else:
        done = "cleaned" if any(action.command.startswith("mt data clean") for action in actions) else "corrected"
        advice = "; cleaning would help" if total < _FAIR else f", but it should be {done} first"
        kind, words = WARNING, f"training would take this corpus{advice}"
    return CorpusVerdict(kind, words, _reason(report), actions)


def ranked(report: CorpusReport) -> list[Finding]:
    """Return the findings, the most harmful of each severity first."""
    return sorted(
        report.findings, key=lambda f: (-_WEIGHTS[f.rule.severity], -harm(report, f), -sum(f.counts.values()))
    )


def harm(report: CorpusReport, finding: Finding, splits: Sequence[str] = SPLITS) -> float:
    """Return the harm of a finding; training pairs that training itself drops cause none."""
    rule, sizes, total = finding.rule, report.pairs, 0.0
    for split in splits:
        # A leak spoils a score by its share of the pairs that are scored.
        base = sizes["valid"] + sizes["test"] if rule.name in _LEAKS else finding.checked[split]
        share = 1.0 if rule.severity == ERROR else min(1.0, finding.counts[split] / max(base, 1))
        if finding.counts[split] and not (split == "train" and dropped_by_training(report, rule)):
            total += share * (1.0 if split == "train" or rule.severity == ERROR else _HELD_OUT_WEIGHT)
    return _RULE_WEIGHTS.get(rule.name, _WEIGHTS[rule.severity]) * total


def dropped_by_training(report: CorpusReport, rule: FindingRule) -> bool:
    """Report whether `mt train` drops such training pairs itself."""
    return rule.name in DROPPED_BY_TRAINING and (rule.name != "duplicate" or report.config.data.drop_duplicates)


def _reason(report: CorpusReport) -> str:
    serious = bits(*(rule.name for rule in PAIR_RULES if rule.severity != NOTE))
    affected, pairs = int(np.count_nonzero(report.masks & serious)), report.pairs["train"]
    words = f"{affected:,} of {pairs:,} training pairs ({100 * affected / max(pairs, 1):.2f} %) have a serious fault"
    worst = max(report.findings, key=lambda finding: harm(report, finding), default=None)
    if not affected or worst is None or worst.rule.severity == NOTE:
        return words
    return f"{words}; the worst: {worst.rule.title} ({sum(worst.counts.values()):,})"


def _actions(report: CorpusReport, config: str) -> Iterator[Action]:
    errors = [finding for finding in report.findings if finding.rule.severity == ERROR]
    unusable = [finding for finding in errors if finding.rule.name in (*PREVENTING, "no-pairs")]
    if not any(finding.counts["train"] for finding in unusable):
        yield from _cleanings(report, config)
    for finding in errors:
        held_out = any(finding.counts[split] for split in _HELD_OUT)
        if held_out or finding.rule.name not in ("row", "encoding"):  # cleaning drops these
            yield _correction(report, finding, config)
    warnings = [finding for finding in report.findings if finding.rule.severity == WARNING]
    counts = {finding.rule.name: sum(finding.counts[split] for split in _HELD_OUT) for finding in warnings}
    gain = f"names the lines of {_listed(counts, 'fault')}, which cleaning leaves as they are"
    value = sum(harm(report, finding, _HELD_OUT) for finding in warnings)
    yield Action("Correct validation and test text", f"mt data check {config} --examples 100", gain, value)
    if report.scores is None:
        doubtful = int(np.count_nonzero(report.masks & bits(*_DOUBTFUL)))
        command = f"mt data score {config} --train --output scores"
        gain = f"scores every pair; {doubtful:,} have doubtful numbers, lengths or translations"
        yield Action("Judge the pairs by models", command, gain, _DOUBT_WEIGHT * doubtful / max(len(report.masks), 1))


def _cleanings(report: CorpusReport, config: str) -> Iterator[Action]:
    """Yield a cleaning by the default rules, and one that drops all pairs with a warning."""
    rules = dropping_rules(() if report.config.data.drop_duplicates else ("duplicate",), ())
    repaired, dropped, more = dict[str, int](), _first_faults(report, rules), dict[str, int]()
    value = more_value = 0.0
    for finding in report.findings:
        name, count, damage = finding.rule.name, finding.counts["train"], harm(report, finding, ("train",))
        if name == "row":
            dropped[name] = count
        repaired[name] = finding.repairable
        dropped[name] = max(0, dropped.get(name, 0) - finding.repairable)
        removed = 1.0 if name in rules or name == "row" or not count else finding.repairable / count
        value += removed * damage
        if finding.rule.severity == WARNING and name in DROPPABLE and removed < 1:
            more[name] = count - finding.repairable
            more_value += (1 - removed) * damage
    if sum(count for name, count in dropped.items() if name != "row") >= report.pairs["train"]:  # a row is no pair
        gain = "shows what is wrong; cleaning would leave no pair, so name other texts in data.train"
        yield Action("Name other texts", f"mt data check {config} --examples 100", gain, value)
        return
    gains = [f"repairs {_listed(repaired, 'fault')}"] if any(repaired.values()) else []
    gains += [f"drops {_listed(dropped, 'pair')}"] if any(dropped.values()) else []
    command = f"mt data clean {config} --output cleaned" + (" --repair" if any(repaired.values()) else "")
    yield Action("Clean the training text", command, "; ".join(gains), value)
    command += "".join(f" --drop {name}" for name in more)
    gain = f"drops about {_listed(more, 'more pair')}; look at their examples first"
    yield Action("Drop doubtful pairs, too", command, gain, more_value)


def _correction(report: CorpusReport, finding: Finding, config: str) -> Action:
    """Return the action that corrects an error which cleaning leaves."""
    rule, example = finding.rule, finding.first or Example("train", ())
    where = example.note or "; ".join(f"{place.file}:{place.line}: {place.text}" for place in example.locations)
    command, gain = f"mt data check {config}", f"{where}. {rule.advice} Then check again"
    for bitext in [stats.bitext for stats in report.statistics if rule.name == "line-counts"]:
        for source, target in [pair for pair in bitext.texts if where.startswith(f"{pair[0]} has ")]:
            if source.member is None:
                root, output = Path(bitext.data.root), target.path.with_name(f"{target.path.stem}.tsv")
                command = quoted("mt", "data", "align", str(source), str(target), "--output", str(output))
                file = str(output.relative_to(root) if output.is_relative_to(root) else output)
                table = {"file": file, "source_column": "source", "target_column": "target", **bitext.options}
                gain = f"{where}; pairs the sentences again, for data.{bitext.split}: {as_yaml(table)}"
            elif bitext.split == "train" and len(bitext.texts) == 1:
                command = f"mt data clean {config} --output cleaned --repair"
                gain = f"{where}; aligns their lines"
            else:
                gain = f"{where}. Unpack {source.path}, and align the two with `mt data align`"
    return Action(f"Correct {rule.title}", command, gain, _WEIGHTS[ERROR])


def _first_faults(report: CorpusReport, rules: frozenset[str]) -> dict[str, int]:
    """Count the training pairs by the first of the rules that they break."""
    counts, masks = dict[str, int](), report.masks
    for rule in [rule for rule in PAIR_RULES if rule.name in rules]:
        broken = (masks & bits(rule.name)) != 0
        counts[rule.name], masks = int(np.count_nonzero(broken)), masks[~broken]
    return counts


def _listed(counts: Mapping[str, int], noun: str) -> str:
    ranked = sorted(((count, name) for name, count in counts.items() if count), reverse=True)
    total = sum(count for count, _ in ranked)
    return f"{total:,} {noun}{'' if total == 1 else 's'} ({', '.join(f'{name} {count:,}' for count, name in ranked)})"
