"""Differences between two systems, sentence by sentence and word by word within one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from sacrebleu.metrics.chrf import CHRF

from mt.text.languages import is_spaced

_EQUAL = 1e-9  # of two scores from 0 to 100


@dataclass(frozen=True)
class SentenceDifference:
    """A sentence: its index in the test set and both systems' sentence chrF, 0 to 100."""

    index: int
    baseline: float
    system: float

    @property
    def gain(self) -> float:
        return self.system - self.baseline


@dataclass(frozen=True)
class SentenceDifferences:
    """All sentences of a test set, in order."""

    sentences: list[SentenceDifference]

    @property
    def wins(self) -> int:
        return sum(one.gain > _EQUAL for one in self.sentences)

    @property
    def losses(self) -> int:
        return sum(one.gain < -_EQUAL for one in self.sentences)

    @property
    def ties(self) -> int:
        return len(self.sentences) - self.wins - self.losses

    def best(self, number: int) -> list[SentenceDifference]:
        """Return the sentences where the system gains most, the largest gain first."""
        return [one for one in sorted(self.sentences, key=lambda one: -one.gain)[:number] if one.gain > _EQUAL]

    def worst(self, number: int) -> list[SentenceDifference]:
        """Return the sentences where it loses most, the largest loss first."""
        return [one for one in sorted(self.sentences, key=lambda one: one.gain)[:number] if one.gain < -_EQUAL]


def sentence_differences(
    baseline: Sequence[str], system: Sequence[str], references: Sequence[str]
) -> SentenceDifferences:
    """Score both systems' sentences by chrF, which, unlike BLEU, works for single sentences."""
    chrf = CHRF()
    triples = enumerate(zip(baseline, system, references, strict=True))
    return SentenceDifferences(
        [
            SentenceDifference(i, *(float(chrf.sentence_score(text, [reference]).score) for text in texts))
            for i, (*texts, reference) in triples
        ]
    )


Mark = Callable[[str], str]


def marked_differences(first: str, second: str, target_lang: str, marks: tuple[Mark, Mark]) -> tuple[str, str]:
    """Mark the words that only one of two texts has; in languages without spaces, the characters."""
    space = " " if is_spaced(target_lang) else ""
    one, other = (text.split() if space else list(text) for text in (first, second))
    pieces: tuple[list[str], list[str]] = ([], [])
    for tag, start, end, other_start, other_end in SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        for side, words in enumerate((one[start:end], other[other_start:other_end])):
            if words:
                piece = space.join(words)
                pieces[side].append(piece if tag == "equal" else marks[side](piece))
    return space.join(pieces[0]), space.join(pieces[1])
