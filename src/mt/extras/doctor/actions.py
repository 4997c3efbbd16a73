"""The verdict on a corpus in words, and the most valuable things to do about it, each as a command.

The harm of a finding is the share of pairs that have it times the weight of its rule; an action is worth the harm that
it undoes. The weights and limits are this project's own, except that copied sentences are by far the worst
(Khayrallah and Koehn 2018).
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mt.config import PairFiles
from mt.extras.doctor.check import CorpusReport, Finding
from mt.extras.doctor.clean import PREVENTING, dropping_rules
from mt.extras.doctor.examples import Example
from mt.extras.doctor.rules import BIT, DROPPABLE, ERROR, NOTE, PAIR_RULES, WARNING, FindingRule

_WEIGHTS = {ERROR: 100.0, WARNING: 1.0, NOTE: 0.01}
_RULE_WEIGHTS = {
    "identical": 10.0,
    **dict.fromkeys(("leak", "near-leak", "misaligned", "wrong-script", "language"), 3.0),
}
_HELD_OUT_WEIGHT = 0.1  # of a fault in validation or test text: it blurs scores only
_LEAKS = ("leak", "near-leak", "side-leak")
_DOUBTFUL = ("numbers", "unusual-ratio", "short", "many-targets", "many-sources")  # perhaps no translations
_DOUBT_WEIGHT = 0.1
_GOOD, _FAIR = 0.002, 0.05  # harm below which nothing, or little, needs to be done
_MIN_VALUE, _MAX_ACTIONS = 0.0005, 3


@dataclass(frozen=True)
class Action:
    """A thing to do: in words, as a command, with its gain and the harm that it undoes."""

    title: str
    command: str
    gain: str
    value: float


@dataclass(frozen=True)
class CorpusVerdict:
    """The meaning of all findings; `kind` is good, warning or error."""

    kind: str
    words: str
    reason: str
    actions: list[Action]  # the most valuable first

    def lines(self) -> list[str]:
        """Return it for a terminal."""
        actions = [f"{n}. {action.command}\n   {action.gain}" for n, action in enumerate(self.actions, 1)]
        return [f"{self.words}. {self.reason}", *actions]


def judge(report: CorpusReport, config: str = "CONFIG") -> CorpusVerdict:
    """Judge a corpus; `config` is the configuration's path as a shell reads it, with other options behind it."""
    total = sum(harm(report, finding) for finding in report.findings)
    actions = sorted(_actions(report, config), key=lambda action: -action.value)
    actions = [action for action in actions if action.value > _MIN_VALUE][:_MAX_ACTIONS]
    if report.refused:
        kind, words = ERROR, f"training would refuse this corpus: {report.findings[0].rule.title}"
    elif total < _GOOD:
        kind, words = "good", "training would take this corpus, and nothing needs to be done"
        actions = [Action("Train", f"mt train --config {config}", "trains on the text as it is", 0.0)]
    else:
        advice = "; cleaning would help" if total < _FAIR else ", but it should be cleaned first"
        kind, words = WARNING, f"training would take this corpus{advice}"
    return CorpusVerdict(kind, words, _reason(report), actions)


def ranked(report: CorpusReport) -> list[Finding]:
    """Return the findings, the most harmful of each severity first."""
    return sorted(
        report.findings, key=lambda f: (-_WEIGHTS[f.rule.severity], -harm(report, f), -sum(f.counts.values()))
    )


def harm(report: CorpusReport, finding: Finding, splits: Iterable[str] = ("train", "valid", "test")) -> float:
    """Return the harm of a finding; training pairs that training drops by itself, and no others, do none."""
    rule, sizes, total = finding.rule, report.pairs, 0.0
    for split in splits:
        # A leak spoils a score by its share of the pairs that are scored.
        base = sizes["valid"] + sizes["test"] if rule.name in _LEAKS else finding.checked.get(split, 0)
        share = 1.0 if rule.severity == ERROR else min(1.0, finding.counts.get(split, 0) / max(base, 1))
        if finding.counts.get(split) and not (split == "train" and dropped_by_training(report, rule)):
            total += share * (1.0 if split == "train" or rule.severity == ERROR else _HELD_OUT_WEIGHT)
    return _RULE_WEIGHTS.get(rule.name, _WEIGHTS[rule.severity]) * total


def dropped_by_training(report: CorpusReport, rule: FindingRule) -> bool:
    return rule.in_training and (rule.name != "duplicate" or report.config.data.drop_duplicates)


def _reason(report: CorpusReport) -> str:
    serious = np.uint64(sum(BIT[rule.name] for rule in PAIR_RULES if rule.severity != NOTE))
    affected, pairs = int(np.count_nonzero(report.masks & serious)), report.pairs["train"]
    words = f"{affected:,} of {pairs:,} training pairs ({100 * affected / max(pairs, 1):.2f} %) have a serious fault"
    worst = max(report.findings, key=lambda finding: harm(report, finding), default=None)
    if not affected or worst is None or worst.rule.severity == NOTE:
        return words
    return f"{words}; the worst: {worst.rule.title} ({sum(worst.counts.values()):,})"


def _actions(report: CorpusReport, config: str) -> Iterator[Action]:
    errors = [finding for finding in report.findings if finding.rule.severity == ERROR]
    unusable = (*PREVENTING, "no-pairs")
    if not any(e.split == "train" for f in errors if f.rule.name in unusable for e in f.examples):
        yield from _cleanings(report, config)
    for finding in errors:
        in_train_only = {split for split, count in finding.counts.items() if count} == {"train"}
        if not (in_train_only and finding.rule.name in ("row", "encoding")):
            yield _correction(report, finding, config)
    yield from _held_out(report, config)
    if report.scores is None:
        count = int(np.count_nonzero(report.masks & np.uint64(sum(BIT[name] for name in _DOUBTFUL))))
        yield Action(
            "Judge the pairs by models",
            f"mt data score {config} --forward MODEL --backward MODEL",
            f"scores every pair; {count:,} have doubtful numbers, lengths or translations",
            _DOUBT_WEIGHT * count / max(len(report.masks), 1),
        )


def _cleanings(report: CorpusReport, config: str) -> Iterator[Action]:
    """Yield a cleaning by the default rules, and one that drops all pairs with a warning."""
    rules = dropping_rules(() if report.config.data.drop_duplicates else ("duplicate",), ())
    repaired, dropped, more = dict[str, int](), _first_faults(report, rules), dict[str, int]()
    value = more_value = 0.0
    for finding in report.findings:
        name, count = finding.rule.name, finding.counts.get("train", 0)
        if not count:
            continue
        undone = 1.0 if name in rules or name == "row" else finding.repairable / count
        damage = harm(report, finding, ("train",))
        value += undone * damage
        repaired[name] = finding.repairable
        dropped[name] = max(0, dropped.get(name, count if name == "row" else 0) - finding.repairable)
        if finding.rule.severity == WARNING and name in DROPPABLE and undone < 1:
            more[name] = round((1 - undone) * count * report.pairs["train"] / finding.checked["train"])
            more_value += (1 - undone) * damage
    gains = [f"repairs {_listed(repaired, 'fault')}"] if any(repaired.values()) else []
    gains += [f"drops {_listed(dropped, 'pair')}"] if any(dropped.values()) else []
    command = f"mt data clean {config} --output cleaned" + (" --repair" if any(repaired.values()) else "")
    yield Action("Clean the training text", command, "; ".join(gains), value)
    command += "".join(f" --drop {name}" for name in more)
    gain = f"drops {_listed(more, 'more pair')}; look at their examples first"
    yield Action("Drop doubtful pairs, too", command, gain, more_value)


def _correction(report: CorpusReport, finding: Finding, config: str) -> Action:
    """Return the way to do away with an error that cleaning leaves."""
    example = next(iter(finding.examples), Example("train", ()))
    where = example.note or "; ".join(f"{place.file}:{place.line}: {place.text}" for place in example.locations)
    title = f"Correct {finding.rule.title}"
    gain = f"{where}. {finding.rule.advice}"
    if finding.rule.name == "line-counts":
        for one in report.statistics:
            source, target = one.bitext.files
            if isinstance(one.bitext.source, PairFiles) and example.note.startswith(f"{source} has "):
                output = f"{Path(target).stem}.tsv"
                gain = f"{example.note}; pairs the sentences again, for data.{example.split}: {{file: {output}}}"
                return Action(title, shlex.join(["mt", "data", "align", source, target, "--output", output]), gain, 100)
    return Action(title, f"mt data check {config}", f"{gain} Then check again", _WEIGHTS[ERROR])


def _held_out(report: CorpusReport, config: str) -> Iterator[Action]:
    for split in ("valid", "test"):
        found = [f for f in report.findings if f.rule.severity == WARNING and f.counts.get(split)]
        faults = _listed({finding.rule.name: finding.counts[split] for finding in found}, "fault")
        gain = f"names the lines of {faults}, which cleaning leaves as they are"
        value = sum(harm(report, finding, (split,)) for finding in found)
        yield Action(f"Correct data.{split}", f"mt data check {config} --examples 100", gain, value)


def _first_faults(report: CorpusReport, rules: frozenset[str]) -> dict[str, int]:
    """Return the training pairs by the first of the rules that they break."""
    counts, left = dict[str, int](), report.masks
    for rule in PAIR_RULES:
        if rule.name in rules:
            broken = (left & np.uint64(BIT[rule.name])) != 0
            counts[rule.name], left = int(np.count_nonzero(broken)), left[~broken]
    return counts


def _listed(counts: Mapping[str, int], noun: str) -> str:
    found = sorted(((count, name) for name, count in counts.items() if count), reverse=True)
    total = sum(count for count, _ in found)
    return f"{total:,} {noun}{'' if total == 1 else 's'} ({', '.join(f'{name} {count:,}' for count, name in found)})"
