"""Which places of a source text the words of its translation come from, read from attention; without torch."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from mt.data.tokenizer import SPACE

# Words and single signs; of scripts without spaces single characters.
_UNIT = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|\w+|[^\w\s]")


class Unit(NamedTuple):
    """A word or sign of a translation: its place, text[start:end], and where in the source it comes from."""

    start: int
    end: int
    origin: int


def units_from(
    source: str,
    target: str,
    pieces: tuple[Sequence[str], Sequence[str]] | None = None,
    attention: Sequence[Sequence[float]] | None = None,
) -> list[Unit]:
    """Aligns the words of a translation.

    Args:
        source, target: the texts.
        pieces: the tokens of both.
        attention: of each target token to each source token (T, S). Where it is unknown, or the tokens do not spell the
            texts, a word comes from as far into the source as it stands in the target.
    """
    sources, targets = ([(m.start(), m.end()) for m in _UNIT.finditer(text)] for text in (source, target))
    if not sources:
        return [Unit(start, end, 0) for start, end in targets]
    owners = None if pieces is None else [_owners(*side) for side in zip((source, target), pieces, strict=True)]
    if owners is None or attention is None or None in owners:
        return [
            Unit(start, end, sources[number * len(sources) // len(targets)][0])
            for number, (start, end) in enumerate(targets)
        ]
    looks = [[0.0] * len(sources) for _ in targets]
    for row, target_unit in zip(attention, owners[1] or [], strict=False):  # the end's row has no token
        for weight, source_unit in zip(row, owners[0] or [], strict=True):
            looks[target_unit][source_unit] += weight
    found: list[Unit] = []
    for (start, end), look in zip(targets, looks, strict=True):
        # A word that no token begins in goes with the one before it.
        best = max(range(len(sources)), key=look.__getitem__) if any(look) else None
        origin = sources[best][0] if best is not None else found[-1].origin if found else 0
        found.append(Unit(start, end, origin))
    return found


def _owners(text: str, pieces: Sequence[str]) -> list[int] | None:
    """The unit that each token begins in; None where tokens are not what the text is made of."""
    units = [match.start() for match in _UNIT.finditer(text)]
    place, owners, unit = -1 if pieces and pieces[0].startswith(SPACE) else 0, [], 0
    for piece in pieces:
        spelt = piece.replace(SPACE, " ")
        begin = place + len(spelt) - len(spelt.lstrip())
        while unit + 1 < len(units) and units[unit + 1] <= begin:
            unit += 1
        if text[max(place, 0) : place + len(spelt)] != (spelt[1:] if place < 0 else spelt):
            return None
        owners.append(unit)
        place += len(spelt)
    return owners if place == len(text) else None
