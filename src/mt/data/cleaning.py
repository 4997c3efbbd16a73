"""Cleaning of the training text. Validation and test sets are never cleaned."""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import replace
from hashlib import blake2b
from itertools import compress
from pathlib import Path

import numpy as np

from mt.console import table
from mt.data.duplicates import find_repeated
from mt.data.mixture import MixturePart, part_of_each
from mt.text.lines import nfc

# Characters added to both lengths before their ratio: short sentences may differ more ("Yes." - "Ja, das stimmt.").
GRACE = 10
CHANCE_CORRELATION = 0.15  # of the lengths of unrelated lines, at most

EMPTY, BADLY_PROPORTIONED = "empty", "badly proportioned"


def reason_to_drop(src: str, tgt: str, max_ratio: float | None) -> str | None:
    """Return the reason to drop a pair from the training text, or None.

    `max_ratio` limits the ratio of the sentences' lengths in characters; None is no limit.
    """
    if not src or not tgt:
        return EMPTY
    longer, shorter = max(len(src), len(tgt)), min(len(src), len(tgt))
    if max_ratio is not None and longer + GRACE > max_ratio * (shorter + GRACE):
        return BADLY_PROPORTIONED
    return None


def pair_hash(src: str, tgt: str, direction: str) -> bytes:
    """Hash a pair of a direction into 8 bytes; texts that are equal in Unicode normal form C have the same hash."""
    return blake2b(f"{nfc(src)}\n{nfc(tgt)}\n".encode(), digest_size=8, key=direction.encode()[:64]).digest()


def drop_duplicates(text: tuple[Path, Path], parts: Sequence[MixturePart], folder: Path) -> list[MixturePart]:
    """Remove all but the first of equal pairs from a source and a target file, within each direction; return the parts.

    Pairs are compared by a 64-bit hash: among 400 million different pairs, a collision has a probability of 0.4 %.
    `folder` holds temporary files.
    """
    hashes = (
        pair_hash(src.decode().removesuffix("\n"), tgt.decode().removesuffix("\n"), part.direction)
        for (src, tgt), part in zip(_raw_pairs(text), part_of_each(parts), strict=True)
    )
    repeated = find_repeated((int.from_bytes(value, "little") for value in hashes), folder)
    if not repeated.any():
        return list(parts)
    partials = [path.with_name(f"{path.name}.partial") for path in text]
    # `closing`, since Windows cannot replace an open file.
    with partials[0].open("wb") as source, partials[1].open("wb") as target, closing(_raw_pairs(text)) as raw_pairs:
        for src, tgt in compress(raw_pairs, ~repeated):
            source.write(src)
            target.write(tgt)
    for partial, path in zip(partials, text, strict=True):
        partial.replace(path)
    by_part = np.split(~repeated, np.cumsum([part.pairs for part in parts])[:-1])
    return [replace(part, pairs=int(unique.sum())) for part, unique in zip(parts, by_part, strict=True)]


def _raw_pairs(text: tuple[Path, Path]) -> Generator[tuple[bytes, bytes], None, None]:
    with text[0].open("rb") as source, text[1].open("rb") as target:
        yield from zip(source, target, strict=True)


def cleaning_table(counts: dict[str, int]) -> str:
    """Format the counts by reason as a table, with their share of all pairs."""
    total = sum(counts.values()) or 1
    rows = [(reason, f"{count:,}", f"{100 * count / total:.1f} %") for reason, count in counts.items()]
    return table(["training pairs", "count", "share"], rows)
