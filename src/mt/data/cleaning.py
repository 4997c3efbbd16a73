"""Which training pairs are dropped, and why. Validation and test sets never pass through here."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import islice
from pathlib import Path

from mt.config import DataConfig
from mt.console import table
from mt.data.duplicates import Duplicates
from mt.data.mixture import Part, languages
from mt.text.lines import nfc

# Short sentences differ in length for good reasons ("Yes." - "Ja, das stimmt."): characters that the ratio forgives.
GRACE = 10

EMPTY, BADLY_PROPORTIONED = "empty", "badly proportioned"


class Cleaner:
    """Decides pair by pair what stays in the training text, and counts the rest by reason."""

    def __init__(self, data: DataConfig) -> None:
        self._max_ratio = data.max_ratio
        self.counts: Counter[str] = Counter()

    def keeps(self, src: str, tgt: str) -> bool:
        """True if the pair stays; otherwise its reason is counted."""
        reason = reason_to_drop(src, tgt, self._max_ratio)
        self.counts[reason or "kept"] += 1
        return reason is None


def reason_to_drop(src: str, tgt: str, max_ratio: float | None) -> str | None:
    """Why a pair on its own has no place in the training text; None if it has.

    Args:
        src: its source sentence.
        tgt: its target sentence.
        max_ratio: of their lengths in characters; None is any.
    """
    if not src or not tgt:
        return EMPTY
    longer, shorter = max(len(src), len(tgt)), min(len(src), len(tgt))
    if max_ratio is not None and longer + GRACE > max_ratio * (shorter + GRACE):
        return BADLY_PROPORTIONED
    return None


def pair_hash(src: str, tgt: str, target_lang: str) -> bytes:
    """Hash a pair into 8 bytes: pairs of one target language are equal where they are so in Unicode's normal form C."""
    return blake2b(f"{nfc(src)}\n{nfc(tgt)}\n".encode(), digest_size=8, key=target_lang.encode()).digest()


def drop_duplicates(text: tuple[Path, Path], parts: Sequence[Part], folder: Path) -> list[Part]:
    """Leaves the first of equal pairs in two aligned files and takes the others out.

    Pairs are equal in one target language only. They are compared by a hash of 64 bits: of 400 million, two different
    ones agree with a chance of 0.4 %.

    Args:
        text: the source and the target file.
        parts: what they are made of.
        folder: where temporary files may lie.

    Returns:
        what they are made of afterwards.
    """
    with Duplicates(folder) as duplicates:
        for pair, language in zip(_raw_pairs(text), languages(parts), strict=True):
            src_text, tgt_text = (line.decode().removesuffix("\n") for line in pair)
            duplicates.add(int.from_bytes(pair_hash(src_text, tgt_text, language), "little"))
        later = duplicates.later()
    if not later.count:
        return list(parts)
    partials = [path.with_name(f"{path.name}.partial") for path in text]
    left = []
    with partials[0].open("wb") as source, partials[1].open("wb") as target:
        pairs = enumerate(_raw_pairs(text))
        for part in parts:
            kept = 0
            for number, (src, tgt) in islice(pairs, part.pairs):
                if number not in later:
                    source.write(src)
                    target.write(tgt)
                    kept += 1
            left.append(replace(part, pairs=kept))
    for partial, path in zip(partials, text, strict=True):
        partial.replace(path)
    return left


def _raw_pairs(text: tuple[Path, Path]) -> Iterator[tuple[bytes, bytes]]:
    with text[0].open("rb") as source, text[1].open("rb") as target:
        yield from zip(source, target, strict=True)


def cleaning_table(counts: dict[str, int]) -> str:
    """The counts by reason as a table, and what share of all pairs read that is."""
    total = sum(counts.values()) or 1
    rows = [(reason, f"{count:,}", f"{100 * count / total:.1f} %") for reason, count in counts.items()]
    return table(["training pairs", "count", "share"], rows)
