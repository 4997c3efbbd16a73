"""The `augmentation` section of the configuration."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from mt.config.base import Rule, Section

# Shares of sentences: first guesses that cost little on Multi30k (docs/lab/robustness.md).
ROBUST = {
    "upper_case": 0.0,  # decoding.restore_case needs no training
    "title_case": 0.02,
    "lower_case": 0.02,
    "typos": 0.05,
    "punctuation": 0.02,
    "merge": 0.02,
    "copy_spans": 0.05,
    "noise": 0.01,
}
_CASES = ("upper_case", "title_case", "lower_case")

_Share = Annotated[float | None, Field(ge=0, le=1)]


class AugmentationConfig(Section):
    """Changes to training sentences such as users make; other sentences are chosen in each epoch.

    Each key is the share of sentences that get this change; null: 0, or with `robust` a share of a few percent.
    """

    robust: bool = False
    """Whether every kind of change below but `upper_case` and `terms` is on, unless its own key says otherwise."""
    upper_case: _Share = None
    """Share of pairs in capitals, on both sides."""
    title_case: _Share = None
    """Share of pairs in which every word begins with a capital, on both sides."""
    lower_case: _Share = None
    """Share of pairs whose source is in small letters; the target stays as it is."""
    typos: _Share = None
    """Share of pairs whose source has misspelt words: a neighbouring key, and letters swapped, left out or doubled."""
    punctuation: _Share = None
    """Share of pairs whose last punctuation mark is left out on both sides, or repeated in the source."""
    merge: _Share = None
    """Share of pairs that are joined with the next pair of the corpus, on both sides."""
    copy_spans: _Share = None
    """Share of pairs that get a URL, emoji, number or piece of code to copy, on both sides at the same place."""
    terms: _Share = None
    """Share of pairs in which up to three source words are followed by their translations in the target, which a
    lexicon of the training text finds; `--glossary` then gives terms to the model in this form. Not part of `robust`,
    and only for languages that are written with spaces between words."""
    noise: _Share = None
    """Share of pairs replaced by a line of such spans and symbols that is its own translation."""

    @property
    def shares(self) -> dict[str, float]:
        """The share of each kind of change that is on."""
        kinds = {kind: getattr(self, kind) for kind in ROBUST}
        shares = {kind: ROBUST[kind] * self.robust if share is None else share for kind, share in kinds.items()}
        shares["terms"] = self.terms or 0.0
        return {kind: share for kind, share in shares.items() if share > 0}

    @property
    def cases(self) -> dict[str, float]:
        """The shares of the kinds that need pieces of their own: capitals would be spelt letter by letter."""
        return {kind: share for kind, share in self.shares.items() if kind in _CASES}

    def broken_rules(self) -> Iterator[Rule]:
        total = sum(self.shares.values())
        if total > 1 + 1e-9:
            given = tuple(kind for kind in (*ROBUST, "terms") if getattr(self, kind)) or ("robust",)
            yield Rule(given, f"the shares add up to {total:.2f}, but each sentence has at most one change (1.0)")
