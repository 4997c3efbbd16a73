"""Phrases and clauses, built in both languages at once so that they always mean the same."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from phrasebook import english, italian, italian_numbers, italian_verbs
from phrasebook.italian import Pronoun
from phrasebook.lexicon import Noun, Verb, Word

Form = Literal["statement", "negative", "question"]
Mark = Literal[".", "?", "!", "wh"]

_TENSES: dict[english.Tense, italian_verbs.Tense] = {
    "present": "present",
    "past": "past",
    "perfect": "past",
    "used": "imperfect",
    "future": "future",
    "progressive": "progressive",
}
_PLURALS = {"this": "these", "that": "those"}
_QUANTITIES = {"many": "molto", "few": "poco", "too many": "troppo", "a lot of": "molto"}


@dataclass(frozen=True)
class Phrase:
    """Words that belong together.

    Attributes:
        english: the English words.
        italian: the Italian words; empty for a subject pronoun, which Italian drops.
        person: 0 to 5, for the verb.
        gender: "m" or "f", for what agrees.
        parts: the content lemmas, by their English names.
        owner: the possessive that refers back to it: "my", "his" ...
    """

    english: str
    italian: str
    person: int = 2
    gender: str = "m"
    parts: tuple[str, ...] = ()
    owner: str = ""

    @property
    def plural(self) -> bool:
        return self.person >= 3


@dataclass(frozen=True)
class Draft:
    """A sentence without its capital and its final mark; "wh" is a question whose mark may be missing."""

    english: str
    italian: str
    parts: tuple[str, ...]
    mark: Mark = "."


def draft(*phrases: Phrase, mark: Mark = ".") -> Draft:
    """Build a sentence of phrases that stand in the same order in both languages."""
    return Draft(
        " ".join(phrase.english for phrase in phrases if phrase.english).replace(" ,", ","),
        italian.join(*(phrase.italian for phrase in phrases)).replace(" ,", ","),
        parts_of(phrases),
        mark,
    )


def sentence(form: Form, *phrases: Phrase) -> Draft:
    """Build a sentence whose final mark follows from its form."""
    return draft(*phrases, mark="?" if form == "question" else ".")


def wh_question(asked: Phrase, subject: Phrase, verb: Verb, tense: english.Tense) -> Draft:
    """Build a question with who, what, when ...: in Italian the subject, if it is said at all, comes last."""
    silent = replace(subject, italian="")
    return draft(asked, clause(silent, verb, tense, form="question"), plain("", subject.italian), mark="wh")


def parts_of(phrases: Iterable[Phrase]) -> tuple[str, ...]:
    """Return the lemmas of some phrases, in order."""
    return tuple(part for phrase in phrases for part in phrase.parts)


def plain(english_words: str, italian_words: str = "") -> Phrase:
    """Return function words, which count as no part."""
    return Phrase(english_words, italian_words)


def said(entry: Word) -> Phrase:
    """Return a word that is used as it stands: an adverb, a name, a city."""
    return Phrase(entry.english, entry.italian, gender=entry.gender, parts=(entry.lemma,))


def pronoun_subject(pronoun: Pronoun) -> Phrase:
    """Return a subject pronoun: said in English, dropped in Italian."""
    return Phrase(pronoun.english, "", pronoun.person, pronoun.gender, owner=pronoun.english_owner)


def adjective_phrase(adjective: Word, subject: Phrase, degree: Phrase | None = None) -> Phrase:
    """Return an adjective that agrees with the subject: "very tired", "molto stanche"."""
    agreed = italian.agree(adjective.italian, subject.gender, subject.plural)
    front = degree or plain("")
    return Phrase(
        f"{front.english} {adjective.english}".strip(),
        italian.join(front.italian, agreed),
        parts=(*front.parts, adjective.lemma),
    )


def noun_phrase(noun: Noun, determiner: str, plural: bool = False, adjective: Word | None = None) -> Phrase:
    """Return a noun with its determiner and perhaps an adjective, the same in both languages.

    Args:
        noun: the noun.
        determiner: "the", "a", "some", "this", "that", "every", a possessive, a quantity such as "many", a number in
            digits, or nothing.
        plural: whether there are several.
        adjective: stands before the Italian noun or after it, as its entry says.
    """
    gender = noun.plural_gender if plural else noun.gender
    english_core = noun.english_plural if plural else noun.english
    italian_core = noun.italian_plural if plural else noun.italian
    parts: tuple[str, ...] = (noun.lemma,)
    if adjective:
        english_core = f"{adjective.english} {english_core}"
        if "before" in adjective.grammar:
            italian_core = italian.adjective_before(adjective.italian, italian_core, gender, plural)
        else:
            italian_core += " " + italian.agree(adjective.italian, gender, plural)
        parts = (adjective.lemma, noun.lemma)
    kinship = "family" in noun.kinds and not plural and not adjective
    return Phrase(
        _english_determiner(determiner, english_core, plural),
        _italian_determiner(determiner, italian_core, gender, plural, kinship),
        5 if plural else 2,
        gender,
        (*number_parts(int(determiner)), *parts) if determiner.isdigit() else parts,
        _owner(noun, plural),
    )


def _owner(noun: Noun, plural: bool) -> str:
    if plural:
        return "their"
    if noun.kinds & {"person", "family"}:
        return "her" if noun.gender == "f" else "his"
    return ""


def _english_determiner(determiner: str, core: str, plural: bool) -> str:
    if determiner == "a":
        return english.a(core)
    if determiner.isdigit():
        return f"{english.number(int(determiner))} {core}"
    return f"{_PLURALS.get(determiner, determiner) if plural else determiner} {core}".strip()


def _italian_determiner(determiner: str, core: str, gender: str, plural: bool, kinship: bool) -> str:
    match determiner:
        case "":
            return core
        case "the":
            return italian.definite(core, gender, plural)
        case "a":
            return italian.indefinite(core, gender)
        case "some":
            return italian.partitive(core, gender, plural)
        case "this":
            return italian.this(core, gender, plural)
        case "that":
            return italian.that(core, gender, plural)
        case "every":
            return f"ogni {core}"
        case "all the":
            return f"{italian.agree('tutto', gender, plural)} {italian.definite(core, gender, plural)}"
    if determiner.isdigit():
        return f"{italian_numbers.number(int(determiner))} {core}"
    if determiner in _QUANTITIES:
        return f"{italian.agree(_QUANTITIES[determiner], gender, plural)} {core}"
    owned = f"{italian.possessive(determiner, gender, plural)} {core}"
    # "mia madre" goes without the article; "la loro madre" and "i miei fratelli" keep it.
    return owned if kinship and determiner != "their" else italian.definite(owned, gender, plural)


def number_parts(value: int) -> tuple[str, ...]:
    """Return the lemmas of a number: twenty-one is made of twenty and one."""
    return tuple(english.number(value).split("-"))


def with_preposition(english_word: str, italian_word: str, phrase: Phrase, *parts: str) -> Phrase:
    """Return a phrase with a preposition: "on the table", "sul tavolo"."""
    italian_words = italian.preposition(italian_word, phrase.italian)
    return Phrase(f"{english_word} {phrase.english}".strip(), italian_words, parts=parts + phrase.parts)


def place(noun: Noun, direction: Literal["at", "to"]) -> Phrase:
    """Return a place to be at or go to, by the custom of each: "al ristorante", "in banca", "a scuola"."""
    english_word, _, italian_word = noun.option("at").partition("/")
    article = "" if english_word.endswith("-") else "the "
    english_word = "to" if direction == "to" else english_word.rstrip("-")
    if italian_word == "al":
        target = italian.preposition("a", italian.definite(noun.italian, noun.gender))
    else:
        target = f"{italian_word} {noun.italian}"
    return Phrase(f"{english_word} {article}{noun.english}", target, parts=(noun.lemma,))


def region(entry: Word, direction: Literal["at", "to"]) -> Phrase:
    """Return a city or country to be in or go to: "a Roma", "in Italia"."""
    italian_word = "a" if entry.part == "city" else "in"
    return with_preposition("to" if direction == "to" else "in", italian_word, said(entry))


def italian_tense(verb: Verb, tense: english.Tense) -> italian_verbs.Tense:
    """Return passato prossimo for the English past, but imperfetto for what lasts: "avevo un cane"."""
    return "imperfect" if tense == "past" and "imperfect" in verb.grammar else _TENSES[tense]


def clause(
    subject: Phrase,
    verb: Verb,
    tense: english.Tense,
    *rest: Phrase,
    form: Form = "statement",
    direct: Pronoun | None = None,
    indirect: Pronoun | None = None,
    adverb: Word | None = None,
) -> Phrase:
    """Return a whole clause.

    Args:
        subject: an empty Italian subject is a dropped pronoun.
        verb: conjugated for the subject.
        tense: the English tense; `italian_tense` says which Italian one that is.
        rest: what follows the verb, in the same order in both languages.
        form: "negative" says not; "question" is a yes/no question, which Italian marks with nothing but "?".
        direct: an object pronoun, before the verb in Italian.
        indirect: a pronoun for "to someone", before the verb in Italian.
        adverb: "always", "often" or "never", whose Italian also needs "non".
    """
    english_adverb, italian_adverb = (adverb.english, adverb.italian) if adverb else ("", "")
    if form == "question":
        opening = english.question(subject.english, verb.inflected, subject.person, tense, english_adverb)
    else:
        opening = english.statement(
            subject.english, verb.inflected, subject.person, tense, form == "negative", english_adverb
        )
    pronoun = direct or indirect
    clitic = direct.direct if direct else indirect.indirect if indirect else ""
    group = italian_verbs.verb_group(
        verb.italian,
        subject.person,
        italian_tense(verb, tense),
        auxiliary=verb.auxiliary,
        gender=subject.gender,
        clitic=clitic,
        dative=direct is None,
        negative=form == "negative" or english_adverb == "never",
        adverb=italian_adverb,
    )
    return Phrase(
        " ".join(filter(None, (opening, pronoun.english_object if pronoun else "", *(p.english for p in rest)))),
        italian.join(subject.italian, group, *(phrase.italian for phrase in rest)),
        parts=(*subject.parts, verb.lemma, *((adverb.lemma,) if adverb else ()), *parts_of(rest)),
    )
