"""Where two systems differ: sentence by sentence, and word by word within one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from sacrebleu.metrics.chrf import CHRF

from mt.text.languages import is_spaced

_EQUAL = 1e-9  # of two scores from 0 to 100


@dataclass(frozen=True)
class SentenceDifference:
    """One sentence: its number in the test set, from 0, and both systems' sentence chrF, 0 to 100."""

    number: int
    baseline: float
    system: float

    @property
    def gain(self) -> float:
        return self.system - self.baseline


@dataclass(frozen=True)
class SentenceDifferences:
    """All sentences of a test set, in their order."""

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
        """Those where the system gains most, the largest gain first; none where it gains nothing."""
        ranked = sorted(self.sentences, key=lambda one: (-one.gain, one.number))
        return [one for one in ranked[:number] if one.gain > _EQUAL]

    def worst(self, number: int) -> list[SentenceDifference]:
        """Those where it loses most, the largest loss first."""
        ranked = sorted(self.sentences, key=lambda one: (one.gain, one.number))
        return [one for one in ranked[:number] if one.gain < -_EQUAL]


def sentence_differences(
    baseline: Sequence[str], system: Sequence[str], references: Sequence[str]
) -> SentenceDifferences:
    """Scores both systems' sentences by chrF, which works for single sentences as BLEU does not."""
    chrf = CHRF()
    return SentenceDifferences(
        [
            SentenceDifference(
                number,
                float(chrf.sentence_score(first, [reference]).score),
                float(chrf.sentence_score(second, [reference]).score),
            )
            for number, (first, second, reference) in enumerate(zip(baseline, system, references, strict=True))
        ]
    )


Mark = Callable[[str], str]


def marked_differences(first: str, second: str, target_lang: str, marks: tuple[Mark, Mark]) -> tuple[str, str]:
    """Two texts with marks around what the other lacks: words, or characters in languages without spaces.

    Args:
        first, second: the texts.
        target_lang: their language.
        marks: how to mark a piece of the first, and of the second.
    """
    space = " " if is_spaced(target_lang) else ""
    one, other = (text.split() if space else list(text) for text in (first, second))
    pieces: tuple[list[str], list[str]] = ([], [])
    for tag, start, end, other_start, other_end in SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        for side, words in enumerate((one[start:end], other[other_start:other_end])):
            if words:
                piece = space.join(words)
                pieces[side].append(piece if tag == "equal" else marks[side](piece))
    return space.join(pieces[0]), space.join(pieces[1])
