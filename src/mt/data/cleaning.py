"""Which training pairs are dropped, and why. Validation and test sets never pass through here."""

from collections import Counter
from hashlib import blake2b

from mt.config import DataConfig
from mt.console import table

# Short sentences differ in length for good reasons ("Yes." - "Ja, das stimmt."): characters that the ratio forgives.
GRACE = 10


class Cleaner:
    """Decides pair by pair what stays in the training text, and counts the rest by reason.

    Duplicates are found through a 64-bit hash of the pair, so memory is one number a pair, not its text.
    """

    def __init__(self, data: DataConfig) -> None:
        self._max_ratio = data.max_ratio
        self._drop_duplicates = data.drop_duplicates
        self._seen: set[bytes] = set()
        self.counts: Counter[str] = Counter()

    def keeps(self, src: str, tgt: str) -> bool:
        """True if the pair stays; otherwise its reason is counted."""
        reason = self._reason(src, tgt)
        self.counts[reason or "kept"] += 1
        return reason is None

    def _reason(self, src: str, tgt: str) -> str | None:
        if not src or not tgt:
            return "empty"
        longer, shorter = max(len(src), len(tgt)), min(len(src), len(tgt))
        if self._max_ratio is not None and longer + GRACE > self._max_ratio * (shorter + GRACE):
            return "badly proportioned"
        if self._drop_duplicates:
            key = blake2b(f"{src}\n{tgt}".encode(), digest_size=8).digest()
            if key in self._seen:
                return "duplicate"
            self._seen.add(key)
        return None


def cleaning_table(counts: dict[str, int]) -> str:
    """The counts by reason as a table, and what share of all pairs read that is."""
    total = sum(counts.values()) or 1
    rows = [(reason, f"{count:,}", f"{100 * count / total:.1f} %") for reason, count in counts.items()]
    return table(["training pairs", "count", "share"], rows)
