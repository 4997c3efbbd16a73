"""Vocabulary coverage: pieces per word, and characters that the tokenizer encodes as bytes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from mt.data.token_store import SIDES
from mt.data.tokenizer import UNK_ID, TokenizerPair, normalized
from mt.data.tokenizer_kinds import TextTokenizer
from mt.extras.doctor.characters import excerpt, visible
from mt.extras.doctor.findings import Example, Findings, Location
from mt.extras.doctor.statistics import BitextStatistics
from mt.text.languages import is_spaced

RARE = "rare-characters"

_BATCH = 4000  # sentences
_MAX_LISTED = 10  # characters


@dataclass
class SideUsage:
    """Token counts of one side of the training sample, under the names of the JSON report."""

    side: str
    language: str
    sentences: int = 0
    words: int = 0  # split at spaces; 0 in languages without them
    characters: int = 0
    pieces: int = 0
    spelt: int = 0  # pieces that are bytes of a character


@dataclass
class Coverage:
    """Coverage of the samples by the tokenizers."""

    tokenizer: str  # its description
    usages: dict[tuple[str, str], SideUsage] = field(default_factory=dict)  # by side and language
    rare: Counter[str] = field(default_factory=Counter)  # sentences with each character that is encoded as bytes

    def most_frequent(self) -> str:
        """Return the most frequent of the characters encoded as bytes."""
        return " ".join(f"{visible(c)} ({count:,})" for c, count in self.rare.most_common(_MAX_LISTED))


def measure_coverage(
    description: str,
    tokenizers: TokenizerPair,
    statistics: Sequence[BitextStatistics],
    findings: Findings,
) -> Coverage:
    """Encode the samples and count their tokens; add rare characters to `findings`."""
    coverage = Coverage(description)
    for stats in statistics:
        split, languages = stats.bitext.split, stats.bitext.languages
        findings.checked[RARE][split] += len(stats.sample)
        with_bytes: set[int] = set()
        for side, tokenizer in enumerate((tokenizers.source, tokenizers.target)):
            usage = SideUsage(SIDES[side], languages[side])
            if split == "train":  # of other text only the rare characters are reported
                usage = coverage.usages.setdefault((usage.side, usage.language), usage)
            for index in _encode(tokenizer, stats, side, usage, is_spaced(languages[side])):
                with_bytes.add(index)
                line, pair = stats.sample[index]
                text = normalized(pair[side])
                spelt = {UNK_ID, *tokenizer.byte_ids}
                rare = [c for c in dict.fromkeys(text) if not spelt.isdisjoint(tokenizer.encode(c))]
                coverage.rare.update(rare)
                shown = excerpt(text, text.find(rare[0]) if rare else 0)
                location = Location(stats.bitext.files[side], line, shown)
                findings.show(RARE, Example(split, (location,), visible(" ".join(rare[:_MAX_LISTED]))))
        findings.counts[RARE][split] += len(with_bytes)
    return coverage


def _encode(
    tokenizer: TextTokenizer, statistics: BitextStatistics, side: int, usage: SideUsage, spaced: bool
) -> list[int]:
    """Update `usage`; return the indices of the sentences that need bytes or the unknown token."""
    with_bytes = []
    for start in range(0, len(statistics.sample), _BATCH):
        texts = [pair[side] for _, pair in statistics.sample[start : start + _BATCH]]
        for index, (text, ids) in enumerate(zip(texts, tokenizer.encode_batch(texts), strict=True), start):
            spelt = sum(i in tokenizer.byte_ids or i == UNK_ID for i in ids)
            usage.sentences += 1
            usage.words += len(text.split()) if spaced else 0
            usage.characters += len(text)
            usage.pieces += len(ids)
            usage.spelt += spelt
            if spelt:
                with_bytes.append(index)
    return with_bytes
