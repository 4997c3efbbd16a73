"""Examples and counts of findings."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Location:
    """A sentence to show: where it is, and an excerpt."""

    file: str
    line: int
    text: str


@dataclass(frozen=True)
class Example:
    """An example of a finding; one about a whole text has no locations."""

    split: str
    locations: tuple[Location, ...]
    note: str = ""


@dataclass
class Examples:
    """The first `limit` examples of each rule in each split."""

    limit: int
    by_rule: dict[str, dict[str, list[Example]]] = field(default_factory=dict)

    def wants(self, rule: str, split: str) -> bool:
        return len(self.by_rule.get(rule, {}).get(split, ())) < self.limit

    def add(self, rule: str, *examples: Example) -> None:
        """Add examples up to the limit."""
        for example in examples:
            if self.wants(rule, example.split):
                self.by_rule.setdefault(rule, {}).setdefault(example.split, []).append(example)

    def of(self, rule: str) -> list[Example]:
        """Return the examples of a rule, those of the training text first."""
        by_split = self.by_rule.get(rule, {})
        return [example for split in ("train", "valid", "test") for example in by_split.get(split, ())]


class Findings:
    """Counts of findings by rule and split, and examples."""

    def __init__(self, max_examples: int) -> None:
        self.examples = Examples(max_examples)
        self.counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.repairable: Counter[str] = Counter()  # training pairs that a repair would do away with, by rule
        self.pairs: Counter[str] = Counter()  # checked, by split
        self.firsts: dict[str, Example] = {}  # of each rule of whole texts, whatever the limit
        self.checked: defaultdict[str, Counter[str]] = defaultdict(Counter)  # of rules applied to a sample

    def add(self, rule: str, example: Example, count: int = 1) -> None:
        self.counts[rule][example.split] += count
        self.firsts.setdefault(rule, example)
        self.examples.add(rule, example)
