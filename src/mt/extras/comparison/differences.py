"""Differences between two systems, sentence by sentence and word by word within one."""

from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from typing import Any

from sacrebleu.metrics.chrf import CHRF

from mt.data.eval_texts import EvalText
from mt.extras.comparison.significance import System
from mt.text.languages import is_spaced

_EQUAL = 1e-9  # of two scores from 0 to 100


def sentence_differences(text: EvalText, baseline: System, system: System, shown: int) -> dict[str, Any]:
    """Compare two systems by the chrF of each sentence: unlike BLEU, it works for single sentences.

    Returns the public JSON object, with exact scores: the number of wins, ties and losses of the system, and the
    sentences that differ most, so many in each direction, the largest difference first.
    """
    chrf = CHRF()
    sources: Sequence[str | None] = text.sources or [None] * len(text.references)
    rows = zip(sources, text.references, baseline.hypotheses, system.hypotheses, strict=True)
    sentences: list[dict[str, Any]] = [
        {
            "line": line,
            "chrf_baseline": chrf.sentence_score(first, [reference]).score,
            "chrf": chrf.sentence_score(second, [reference]).score,
            "source": source,
            "reference": reference,
            "baseline": first,
            "translation": second,
        }
        for line, (source, reference, first, second) in enumerate(rows, 1)
    ]

    def gain(sentence: dict[str, Any]) -> float:
        return float(sentence["chrf"] - sentence["chrf_baseline"])

    wins = sorted((each for each in sentences if gain(each) > _EQUAL), key=gain, reverse=True)
    losses = sorted((each for each in sentences if gain(each) < -_EQUAL), key=gain)
    counts = {"wins": len(wins), "ties": len(sentences) - len(wins) - len(losses), "losses": len(losses)}
    return {"name": system.name, **counts, "gains_most": wins[:shown], "loses_most": losses[:shown]}


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
