"""Word alignment of a translation to its source, from attention; without torch."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mt.data.tokenizer import SPACE
from mt.text.words import WORD, word_starts


class Unit(NamedTuple):
    """A word or punctuation mark of a translation, text[start:end]; `origin` is the start of its source word.

    `shares` are the source words' shares of its attention, by their start, if known; the origin has the largest.
    """

    start: int
    end: int
    origin: int
    shares: tuple[tuple[int, float], ...] = ()

    def moved(self, positions: Sequence[int] | Mapping[int, int]) -> "Unit":
        """Return the same unit for a source in which each character has another position."""
        shares = tuple((positions[word], share) for word, share in self.shares)
        return self._replace(origin=positions[self.origin], shares=shares)


def align_units(
    source: str,
    target: str,
    pieces: tuple[Sequence[str], Sequence[str]] | None = None,
    attention: Sequence[Sequence[float]] | None = None,
) -> list[Unit]:
    """Align each word of a translation to a word of its source.

    The attention (T, S) of the target's pieces to the source's is summed over words. Where it is missing, or the pieces
    do not spell the texts, words are aligned by their relative positions.
    """
    sources, targets = ([match.span() for match in WORD.finditer(text)] for text in (source, target))
    if not sources:
        return [Unit(start, end, 0) for start, end in targets]
    source_units = target_units = None
    if pieces is not None:
        source_units, target_units = (_units_of_pieces(*side) for side in zip((source, target), pieces, strict=True))
    if attention is None or source_units is None or target_units is None:
        return [Unit(*span, sources[i * len(sources) // len(targets)][0]) for i, span in enumerate(targets)]
    weights = [[0.0] * len(sources) for _ in targets]
    for row, target_unit in zip(attention, target_units, strict=False):  # the row of EOS has no token
        for weight, source_unit in zip(row, source_units, strict=True):
            weights[target_unit][source_unit] += weight
    units: list[Unit] = []
    for span, row in zip(targets, weights, strict=True):
        total = sum(row)
        shares = {word: weight / total for (word, _), weight in zip(sources, row, strict=True) if weight > 0}
        if shares:
            units.append(Unit(*span, max(shares, key=shares.__getitem__), tuple(shares.items())))
        else:  # no token begins in this word: it shares the previous word's
            units.append(Unit(*span, *(units[-1][2:] if units else (0,))))
    return units


def _units_of_pieces(text: str, pieces: Sequence[str]) -> list[int] | None:
    """Return the unit that each token begins in; None where the tokens do not spell the text."""
    starts = word_starts(text)
    position, unit, units = -1 if pieces and pieces[0].startswith(SPACE) else 0, 0, []
    for piece in pieces:
        spelled = piece.replace(SPACE, " ")
        end, begin = position + len(spelled), position + len(spelled) - len(spelled.lstrip())
        while unit + 1 < len(starts) and starts[unit + 1] <= begin:
            unit += 1
        if text[max(position, 0) : end] != (spelled[1:] if position < 0 else spelled):
            return None
        units.append(unit)
        position = end
    return units if position == len(text) else None
