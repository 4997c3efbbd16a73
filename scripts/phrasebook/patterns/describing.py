"""Patterns: descriptions with agreeing adjectives, comparisons, professions."""

from phrasebook import english, italian, lexicon
from phrasebook.draw import Draw
from phrasebook.lexicon import Noun, Word
from phrasebook.phrases import (
    Draft,
    Form,
    Phrase,
    adjective_phrase,
    clause,
    draft,
    noun_phrase,
    plain,
    sentence,
)

_VERY, _TOO, _A_LITTLE = plain("very", "molto"), plain("too", "troppo"), plain("a little", "un po'")
_GRADUAL = frozenset("sad tired sick angry strange dirty long slow cold hot expensive difficult noisy".split())
COLORS = frozenset({"red", "white", "black", "yellow", "green", "blue", "brown", "pink"})
# One is not very closed, nor more broken than another.
_ABSOLUTE = COLORS | {"closed", "broken", "new", "fresh", "full", "empty", "nationality"}
_UNGRADED = _ABSOLUTE | {"delicious", "ready", "alone"}
_COMPARED = frozenset(
    "tall short strong rich poor famous kind nice intelligent young old happy sad tired angry busy".split()
)
_CONTRASTS = (
    ("tired", "happy"),
    ("poor", "happy"),
    ("rich", "sad"),
    ("young", "strong"),
    ("old", "strong"),
    ("strange", "nice"),
    ("famous", "alone"),
    ("sick", "happy"),
    ("busy", "kind"),
    ("short", "strong"),
    ("rich", "kind"),
    ("intelligent", "poor"),
)


def be(subject: Phrase, rest: Phrase, form: Form = "statement", tense: english.Tense = "present") -> Draft:
    """Build a sentence with "to be"."""
    return sentence(form, clause(subject, lexicon.verb("be"), tense, rest, form=form))


def describable() -> list[Noun]:
    """Return the things and animals that some adjective fits."""
    people = {"person", "family"}
    return [noun for noun in lexicon.nouns() if noun.kinds.isdisjoint(people) and lexicon.adjectives_for(noun)]


def moods() -> list[Word]:
    """Return the adjectives for passing states of people."""
    return [word for word in lexicon.words_of("adjective") if "mood" in word.grammar]


def person_is(draw: Draw) -> Draft:
    """We are very tired. — Siamo molto stanchi."""
    subject, form = draw.speaker()
    tense: english.Tense = draw.one(("present", "present", "present", "past", "future"))
    # "The poor man is rich" and "she will be young" are avoided by speaking of moods there.
    described = tense != "present" or len(subject.parts) > 1
    adjective = draw.rare(moods() if described else lexicon.words_of("adjective", kind="person"))
    return be(subject, adjective_phrase(adjective, subject, _degree(draw, adjective, form)), form, tense)


def _degree(draw: Draw, adjective: Word, form: Form) -> Phrase | None:
    """Draw very, too, a little, or nothing: nobody is a little famous, or not a little tired."""
    if draw.chance(0.65) or adjective.lemma in _UNGRADED or adjective.part in _UNGRADED:
        return None
    some = form == "statement" and adjective.lemma in _GRADUAL
    return draw.one((_VERY, _TOO, _A_LITTLE) if some else (_VERY, _TOO))


def thing_is(draw: Draw) -> Draft:
    """The apples are not fresh. — Le mele non sono fresche."""
    noun = draw.rare(describable())
    subject, form = draw.known(noun, adjective=0), draw.form()
    adjective = draw.adjective(noun, predicate=True) or draw.rare(moods())
    tense: english.Tense = draw.one(("present", "present", "present", "past"))
    return be(subject, adjective_phrase(adjective, subject, _degree(draw, adjective, form)), form, tense)


def works_as(draw: Draw) -> Draft:
    """She is a student. — È una studentessa."""
    subject, form = draw.speaker(pronoun=0.4, roles=False)
    return be(subject, profession(draw.noun("profession"), subject), form)


def profession(noun: Noun, subject: Phrase) -> Phrase:
    """Return a profession: "a teacher", "un'insegnante" for a woman; no article in the plural."""
    singular = noun.option("fem") if subject.gender == "f" else noun.italian
    if not subject.plural:
        return Phrase(english.a(noun.english), italian.indefinite(singular, subject.gender), parts=(noun.lemma,))
    several = italian.plural_noun(singular, "f") if subject.gender == "f" else noun.italian_plural
    return Phrase(noun.english_plural, several, parts=(noun.lemma,))


def nationality(draw: Draw) -> Draft:
    """They are Italian. — Sono italiani."""
    subject, form = draw.speaker()
    return be(subject, adjective_phrase(draw.word("nationality"), subject), form)


def but_is(draw: Draw) -> Draft:
    """I am tired but happy. — Sono stanco ma felice."""
    subject = draw.subject()
    lemmas = draw.one(_CONTRASTS)
    first, second = (adjective_phrase(lexicon.word("adjective", lemma), subject) for lemma in lemmas)
    tense: english.Tense = draw.one(("present", "present", "past"))
    return draft(clause(subject, lexicon.verb("be"), tense, first, plain("but", "ma"), second))


def everybody_is(draw: Draw) -> Draft:
    """All the students are happy. — Tutti gli studenti sono felici."""
    noun = draw.noun("person", "animal", "clothes", "dish", "room", "public")
    all_of_them = noun_phrase(noun, "all the", plural=True)
    subject = noun_phrase(noun, "every") if noun.has_singular and draw.chance(0.35) else all_of_them
    adjective = draw.adjective(noun, predicate=True) or draw.rare(moods())
    return be(subject, adjective_phrase(adjective, subject), draw.one(("statement", "statement", "question")))


def compares_people(draw: Draw) -> Draft:
    """Anna is taller than me. — Anna è più alta di me."""
    subject, form = draw.speaker()
    adjective = draw.rare([word for word in lexicon.words_of("adjective") if word.lemma in _COMPARED])
    if draw.chance(0.35):
        pronoun = draw.pronoun(other_than=subject)
        return comparison(subject, adjective, plain(pronoun.english_object, pronoun.stressed), form)
    return comparison(subject, adjective, draw.other(subject), form)


def compares_things(draw: Draw) -> Draft:
    """The table is heavier than the chair. — Il tavolo è più pesante della sedia."""
    things = describable()
    while True:
        noun = draw.rare(things)
        adjective = draw.adjective(noun, barred=_UNGRADED | {"good"})
        if adjective:
            similar = [other for other in lexicon.nouns_for(adjective) if other.kinds & noun.kinds]
            others = [other for other in similar if other is not noun and other in things]
            if others:
                break
    subject, other = draw.known(noun, adjective=0), draw.known(draw.rare(others), adjective=0)
    return comparison(subject, adjective, other, draw.form())


def comparison(subject: Phrase, adjective: Word, other: Phrase, form: Form = "statement") -> Draft:
    """Build a comparison: "bigger than", "più grande di"."""
    agreed = italian.agree(adjective.italian, subject.gender, subject.plural)
    rest = Phrase(
        f"{english.comparative(adjective.english)} than {other.english}",
        f"più {agreed} {italian.preposition('di', other.italian)}",
        parts=(adjective.lemma, *other.parts),
    )
    return be(subject, rest, form)


def superlative(draw: Draw) -> Draft:
    """This is the oldest church in Rome. — Questa è la chiesa più vecchia di Roma."""
    noun = draw.noun("public", "sight", "home")
    while noun.lemma in {"city", "island"}:
        noun = draw.noun("public", "sight", "home")
    adjective = draw.adjective(noun, barred=_ABSOLUTE | {"good"}) or lexicon.word("adjective", "big")
    city = draw.word("city")
    superlative_words = f"the {english.superlative(adjective.english)} {noun.english} in {city.english}"
    agreed = italian.agree(adjective.italian, noun.gender)
    italian_words = f"{italian.definite(noun.italian, noun.gender)} più {agreed} di {city.italian}"
    thing = Phrase(superlative_words, italian_words, 2, noun.gender, (adjective.lemma, noun.lemma, city.lemma))
    return be(pointer(thing, draw.chance(0.6)), thing, draw.form())


def pointer(thing: Phrase, near: bool = True) -> Phrase:
    """Return the pronoun that points at a thing and agrees with it: "this, these", "questa, questi"."""
    singular, several = ("this", "these") if near else ("that", "those")
    agreed = italian.agree("questo" if near else "quello", thing.gender, thing.plural)
    return Phrase(several if thing.plural else singular, agreed, thing.person, thing.gender)


def what_a(draw: Draw) -> Draft:
    """Exclamation: what a beautiful house! — Che bella casa!"""
    noun = draw.rare([noun for noun in describable() if "mass" not in noun.grammar])
    adjective = draw.adjective(noun, barred=_ABSOLUTE | {"modern"}) or lexicon.word("adjective", "strange")
    plural = draw.is_plural(noun)
    english_side = noun_phrase(noun, "" if plural else "a", plural, adjective)
    italian_side = noun_phrase(noun, "", plural, adjective)
    return Draft(f"what {english_side.english}", f"che {italian_side.italian}", english_side.parts, "!")


def what_color(draw: Draw) -> Draft:
    """Question: what color is your car? — Di che colore è la tua macchina?"""
    thing = draw.known(draw.noun("clothes", "vehicle", "holder", "pet", "home"), adjective=0)
    several, single = plain("what color are", "di che colore sono"), plain("what color is", "di che colore è")
    return draft(several if thing.plural else single, thing, mark="wh")


def who_is(draw: Draw) -> Draft:
    """Who is that man? — Chi è quell'uomo?"""
    noun = draw.noun("person")
    adjective = draw.adjective(noun) if draw.chance(0.5) else None
    person = noun_phrase(noun, draw.one(("this", "that", "the")), draw.is_plural(noun), adjective)
    return draft(plain("who are", "chi sono") if person.plural else plain("who is", "chi è"), person, mark="wh")
