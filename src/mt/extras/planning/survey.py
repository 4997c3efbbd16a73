"""What a corpus holds, read once from its beginning to its end without keeping it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from mt.config import DataConfig, HubDataset, Source, TokenizerConfig
from mt.console import log, progress
from mt.data.cleaning import Cleaner
from mt.data.corpus import Pair, read_pairs
from mt.data.tokenizer import TokenizerPair
from mt.errors import InputError
from mt.text.languages import BACK_TRANSLATION_TAG

SAMPLE = 20_000  # pairs that are looked at closely
_HUB_ROWS = 2_000  # of a data set on the hub, which may be far away


@dataclass(frozen=True)
class Survey:
    """The pairs of some sources.

    Attributes:
        pairs: of each source, in their order.
        kept: those of each that cleaning keeps.
        tagged: those of each whose source sentence begins with the tag of back-translations.
        counts: all of them, by what cleaning makes of them; duplicates are not looked for.
        sample: some of the clean ones, at even distances.
        whole: False where only the beginning of a source was read.
    """

    pairs: list[int]
    kept: list[int]
    tagged: list[int]
    counts: dict[str, int]
    sample: list[Pair]
    whole: bool = True

    @property
    def clean(self) -> int:
        """Pairs that cleaning keeps."""
        return sum(self.kept)

    def left(self, taken: int) -> list[int]:
        """Pairs of each source that training sees when cleaning, and so many held-out pairs, are gone; about."""
        share = max(0, self.clean - taken) / max(self.clean, 1)
        return [round(number * share) for number in self.kept]

    def words(self) -> tuple[float, float]:
        """Words of a source and a target sentence, on average."""
        source, target = (sum(len(pair[side].split()) for pair in self.sample) for side in (0, 1))
        return source / max(len(self.sample), 1), target / max(len(self.sample), 1)

    def bytes_per_pair(self) -> float:
        """Bytes of both sentences with their line ends, on average."""
        total = sum(len(text.encode()) + 1 for pair in self.sample for text in pair)
        return total / max(len(self.sample), 1)

    def letters(self) -> tuple[Counter[str], Counter[str]]:
        """How often each letter occurs on either side of the sample."""
        return _letters(src for src, _ in self.sample), _letters(tgt for _, tgt in self.sample)

    def shared_letters(self) -> float:
        """The part of the letters that both sides have in common: 1 for one alphabet, 0 for two."""
        source, target = self.letters()
        n_source, n_target = max(source.total(), 1), max(target.total(), 1)
        return sum(min(source[c] / n_source, target[c] / n_target) for c in source)


def _letters(texts: Iterable[str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    return Counter({character: number for character, number in counts.items() if character.isalpha()})


def survey(sources: Sequence[Source], data: DataConfig) -> Survey:
    """Reads all pairs, as the first stage of a training does.

    Of a data set on the hub it reads the beginning only.

    Raises:
        InputError: a source is missing, damaged, or its two sides have different numbers of lines.
    """
    cleaner, sample = Cleaner(data), _Sample()
    pairs, kept, tagged, whole = [0] * len(sources), [0] * len(sources), [0] * len(sources), True
    for number, source in enumerate(sources):
        for pair in _pairs(source, data):
            pairs[number] += 1
            tagged[number] += pair[0].startswith(f"{BACK_TRANSLATION_TAG} ")
            if cleaner.keeps(*pair):
                kept[number] += 1
                sample.add(pair)
        whole = whole and not (isinstance(source, HubDataset) and pairs[number] == _HUB_ROWS)
    return Survey(pairs, kept, tagged, dict(cleaner.counts), sample.pairs, whole)


def learned_tokenizers(settings: TokenizerConfig, sample: Sequence[Pair], tags: Sequence[str] = ()) -> TokenizerPair:
    """Tokenizers that learned from a sample only: quickly made, and much like those of all the text."""
    log.info("learning %d pieces from %d pairs", settings.vocab_size, len(sample))
    source, target = ([pair[side] for pair in sample] for side in (0, 1))
    return TokenizerPair.train(source, target, settings.vocab_size, settings.shared, tags)


def _pairs(source: Source, data: DataConfig) -> Iterator[Pair]:
    if isinstance(source, HubDataset):
        yield from _beginning(source, data)
    else:
        yield from progress(iterable=read_pairs(source, data), unit="pair", desc="reading", unit_scale=True)


def _beginning(source: HubDataset, data: DataConfig) -> list[Pair]:
    """Some rows, without storing the rest where that is possible."""
    streamed = source.model_copy(update={"streaming": True})
    try:
        return list(islice(read_pairs(streamed, data), _HUB_ROWS))
    except InputError as error:
        log.info("%s; trying the cache", error.message)
        return list(islice(read_pairs(source, data), _HUB_ROWS))


class _Sample:
    """Every so-manieth of a stream of unknown length: when there are too many, every other is left out."""

    def __init__(self) -> None:
        self.pairs: list[Pair] = []
        self._every, self._seen = 1, 0

    def add(self, pair: Pair) -> None:
        if self._seen % self._every == 0:
            self.pairs.append(pair)
            if len(self.pairs) > SAMPLE:
                self.pairs = self.pairs[::2]
                self._every *= 2
        self._seen += 1
