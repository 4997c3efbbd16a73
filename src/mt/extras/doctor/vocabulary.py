"""What a tokenizer makes of the text: pieces a word, and characters that it has no piece for."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from mt.data.token_store import SIDES
from mt.data.tokenizer import BYTES, SPECIALS, BpeTokenizer, TokenizerPair, normalized
from mt.extras.doctor.characters import excerpt, visible
from mt.extras.doctor.chunks import Example, Examples, Place, Yardstick
from mt.extras.doctor.survey import Survey

RARE = "rare-characters"

_AT_ONCE = 4000  # sentences
_BYTES = range(len(SPECIALS), len(SPECIALS) + len(BYTES))
_UNSPACED = frozenset("Hani Hira Kana Thai Laoo Khmr Mymr Tibt".split())  # scripts without spaces between words
_NAMED = 10  # characters


@dataclass
class Usage:
    """What a tokenizer makes of one side of the training text's sample.

    Attributes:
        words: told by spaces; 0 in languages that have none.
        spelt: pieces that are bytes of a character.
    """

    side: str
    language: str
    sentences: int = 0
    words: int = 0
    characters: int = 0
    pieces: int = 0
    spelt: int = 0


@dataclass
class Vocabulary:
    """What the tokenizers make of the samples.

    Attributes:
        name: which tokenizers.
        examples: of such pairs.
        usages: of each side and language.
        judged: pairs that were looked at, by split.
        counts: those with characters spelt in bytes, by split.
        rare: such characters, and in how many sentences they are.
    """

    name: str
    examples: Examples
    usages: dict[tuple[str, str], Usage] = field(default_factory=dict)
    judged: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    rare: Counter[str] = field(default_factory=Counter)

    def rarest(self) -> str:
        """The most frequent of the characters that are spelt in bytes."""
        return " ".join(f"{visible(c)} ({count:,})" for c, count in self.rare.most_common(_NAMED))


def look_at(
    name: str, tokenizers: TokenizerPair, surveys: Sequence[Survey], yardsticks: dict[str, Yardstick], examples: int
) -> Vocabulary:
    """Encodes the samples.

    Args:
        name: what to call the tokenizers.
        tokenizers: of the two sides.
        surveys: the samples.
        yardsticks: of the languages.
        examples: sentences to show.
    """
    vocabulary = Vocabulary(name, Examples(examples))
    for survey in surveys:
        yardstick = yardsticks[survey.text.target_lang]
        vocabulary.judged[survey.text.split] += len(survey.sample)
        spelt: set[int] = set()
        for side, tokenizer in enumerate((tokenizers.source, tokenizers.target)):
            language = yardstick.languages[side]
            # Validation and test text is only looked at for characters that training does not have.
            usage = Usage(SIDES[side], language)
            if survey.text.split == "train":
                usage = vocabulary.usages.setdefault((SIDES[side], language), usage)
            spaced = _UNSPACED.isdisjoint(yardstick.scripts[side])
            for number in _encode(tokenizer, survey, side, usage, spaced):
                spelt.add(number)
                line, texts = survey.sample[number]
                text = normalized(texts[side])
                rare = [c for c in dict.fromkeys(text) if not _has(tokenizer, c)]
                vocabulary.rare.update(rare)
                shown = excerpt(text, max(map(text.find, rare[:1]), default=0))
                place = Place(survey.text.files[side], line, shown)
                vocabulary.examples.add(RARE, Example(survey.text.split, (place,), visible(" ".join(rare[:_NAMED]))))
        vocabulary.counts[survey.text.split] += len(spelt)
    return vocabulary


def _encode(tokenizer: BpeTokenizer, survey: Survey, side: int, usage: Usage, spaced: bool) -> list[int]:
    """Counts pieces; returns the numbers of the sentences with some that are bytes."""
    found = []
    for start in range(0, len(survey.sample), _AT_ONCE):
        texts = [pair[side] for _, pair in survey.sample[start : start + _AT_ONCE]]
        for number, (text, ids) in enumerate(zip(texts, tokenizer.encode_batch(texts), strict=True), start):
            spelt = sum(i in _BYTES for i in ids)
            usage.sentences += 1
            usage.words += len(text.split()) if spaced else 0
            usage.characters += len(text)
            usage.pieces += len(ids)
            usage.spelt += spelt
            if spelt:
                found.append(number)
    return found


def _has(tokenizer: BpeTokenizer, character: str) -> bool:
    return not any(i in _BYTES for i in tokenizer.encode(character))
