"""Vocabulary coverage: pieces per word, and characters that the tokenizer encodes as bytes."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mt.data.token_store import SIDES
from mt.data.tokenizer import UNK_ID, normalized
from mt.data.tokenizer_kinds import TextTokenizer, TokenizerPair
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
    description: str, tokenizers: TokenizerPair, statistics: Sequence[BitextStatistics], findings: Findings
) -> Coverage:
    """Encode the samples and count their tokens; add rare characters to `findings`."""
    coverage = Coverage(description)
    for stats in statistics:
        split, languages = stats.bitext.split, stats.bitext.languages
        findings.checked[RARE][split] += len(stats.sample)
        with_bytes: set[int] = set()
        for side, tokenizer in enumerate(tokenizers):
            usage, spaced = SideUsage(SIDES[side], languages[side]), is_spaced(languages[side])
            if split == "train":  # of other text only the rare characters are reported
                usage = coverage.usages.setdefault((usage.side, usage.language), usage)
            byte_ids = {UNK_ID, *tokenizer.byte_ids}
            for index, (line, text, ids) in enumerate(_encoded(tokenizer, stats, side)):
                n_spelt = sum(i in byte_ids for i in ids)
                usage.sentences += 1
                usage.words += len(text.split()) if spaced else 0
                usage.characters += len(text)
                usage.pieces += len(ids)
                usage.spelt += n_spelt
                if n_spelt:
                    with_bytes.add(index)
                    text = normalized(text)
                    rare = [c for c in dict.fromkeys(text) if not byte_ids.isdisjoint(tokenizer.encode(c))]
                    coverage.rare.update(rare)
                    shown = excerpt(text, text.find(rare[0]) if rare else 0)
                    location = Location(stats.bitext.files[side], line, shown)
                    findings.show(RARE, Example(split, (location,), visible(" ".join(rare[:_MAX_LISTED]))))
        findings.counts[RARE][split] += len(with_bytes)
    return coverage


def _encoded(
    tokenizer: TextTokenizer, statistics: BitextStatistics, side: int
) -> Iterator[tuple[int, str, Sequence[int]]]:
    """Yield the line, the text and the token ids of each sentence of a side of the sample."""
    for start in range(0, len(statistics.sample), _BATCH):
        batch = [(line, pair[side]) for line, pair in statistics.sample[start : start + _BATCH]]
        encoded = tokenizer.encode_batch([text for _, text in batch])
        yield from ((line, text, ids) for (line, text), ids in zip(batch, encoded, strict=True))
