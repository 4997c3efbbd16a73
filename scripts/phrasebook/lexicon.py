"""The words, read from `lexicon.tsv`, which explains its columns."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from phrasebook import english, italian


@dataclass(frozen=True, eq=False)
class Word:
    """One row of the table: a lemma in both languages, with what the patterns need to know about it."""

    part: str
    lemma: str
    english: str
    italian: str
    grammar: frozenset[str]
    kinds: frozenset[str]

    def option(self, name: str) -> str:
        """Return the value of an entry such as `fem:studentessa` in the grammar column, or nothing."""
        return next((entry.partition(":")[2] for entry in self.grammar if entry.startswith(f"{name}:")), "")

    @property
    def gender(self) -> str:
        return "f" if "f" in self.grammar else "m"


@dataclass(frozen=True, eq=False)
class Noun(Word):
    """A noun with its plurals; `plural_gender` differs from `gender` for a few ("l'uovo", "le uova")."""

    english_plural: str
    italian_plural: str

    @property
    def plural_gender(self) -> str:
        return self.option("plural") or self.gender

    @property
    def has_plural(self) -> bool:
        return not self.grammar & {"mass", "one"}

    @property
    def has_singular(self) -> bool:
        return "pair" not in self.grammar


@dataclass(frozen=True, eq=False)
class Verb(Word):
    """A verb; `inflected` holds its English forms."""

    inflected: english.Verb

    @property
    def auxiliary(self) -> str:
        return "essere" if "essere" in self.grammar else "avere"


VERB_PARTS = frozenset({"verb", "action", "motion", "move", "reflexive", "giving", "special", "modal"})


def _parse(row: str) -> Word:
    part, english_forms, italian_forms, grammar, kinds = row.split("\t")
    lemma = english_forms.split("/")[0]
    word_kinds = frozenset(kinds.split()) - {"-"}
    word_grammar = frozenset(grammar.split()) - {"-"}
    if part in VERB_PARTS:
        forms = english.verb(english_forms)
        return Verb(part, lemma, forms.base, italian_forms, word_grammar, word_kinds, forms)
    if part != "noun":
        return Word(part, lemma, english_forms, italian_forms, word_grammar, word_kinds)
    return _parse_noun(lemma, english_forms, italian_forms, word_grammar, word_kinds)


def _parse_noun(
    lemma: str, english_forms: str, italian_forms: str, grammar: frozenset[str], kinds: frozenset[str]
) -> Noun:
    singular, _, plural = english_forms.partition("/")
    italian_singular, _, italian_plural = italian_forms.partition("/")
    gender = "f" if "f" in grammar else "m"
    if "pair" in grammar:
        plural, italian_plural = singular, italian_singular
    return Noun(
        "noun",
        lemma,
        singular,
        italian_singular,
        grammar,
        kinds,
        plural or english.plural(singular),
        italian_plural or italian.plural_noun(italian_singular, gender),
    )


@cache
def _rows() -> tuple[Word, ...]:
    text = Path(__file__).with_name("lexicon.tsv").read_text(encoding="utf-8")
    return tuple(_parse(row) for row in text.splitlines() if row and not row.startswith("#"))


@cache
def nouns() -> tuple[Noun, ...]:
    """Return all nouns; like every collection here, in the order of the table, so that drawing is reproducible."""
    return tuple(row for row in _rows() if isinstance(row, Noun))


@cache
def nouns_of(*kinds: str) -> tuple[Noun, ...]:
    """Return the nouns that have one of the kinds."""
    return tuple(noun for noun in nouns() if not noun.kinds.isdisjoint(kinds))


@cache
def places() -> tuple[Noun, ...]:
    """Return the nouns one can be at and go to."""
    return tuple(noun for noun in nouns() if noun.option("at"))


@cache
def nouns_for(chooser: Word) -> tuple[Noun, ...]:
    """Return the nouns that a verb can have as its object, or an adjective can describe."""
    return tuple(noun for noun in nouns() if not chooser.kinds.isdisjoint(noun.kinds | {noun.lemma}))


@cache
def adjectives_for(noun: Noun) -> tuple[Word, ...]:
    """Return the adjectives that can describe a noun."""
    return tuple(word for word in words_of("adjective", "nationality") if noun in nouns_for(word))


@cache
def verbs_of(*parts: str) -> tuple[Verb, ...]:
    """Return the verbs of some parts: "verb", "action", "motion", "giving" ..."""
    return tuple(row for row in _rows() if isinstance(row, Verb) and row.part in parts)


@cache
def words_of(*parts: str, kind: str = "") -> tuple[Word, ...]:
    """Return other words: "adjective", "when", "city" ..., all of them or those of a kind."""
    return tuple(row for row in _rows() if row.part in parts and (not kind or kind in row.kinds))


@cache
def noun(lemma: str) -> Noun:
    """Return one noun by name."""
    return next(entry for entry in nouns() if entry.lemma == lemma)


@cache
def verb(lemma: str, part: str = "special") -> Verb:
    """Return one verb by name; the part tells "play" an instrument from "play" a game."""
    return next(entry for entry in verbs_of(part) if entry.lemma == lemma)


@cache
def word(part: str, lemma: str) -> Word:
    """Return one other word by name."""
    return next(entry for entry in words_of(part) if entry.lemma == lemma)
