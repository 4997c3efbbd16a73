"""Patterns: likes and feelings, where Italian swaps subject and object."""

from phrasebook import english, italian, italian_verbs, lexicon
from phrasebook.draw import Draw
from phrasebook.italian import PRONOUNS, Pronoun
from phrasebook.lexicon import Noun
from phrasebook.patterns.asking import has_state
from phrasebook.phrases import Draft, Form, Phrase, clause, noun_phrase, plain, said, sentence

_LIKED = "food drink pet animal clothes pretty sight home tale song text vehicle instrument nature outdoors".split()
_NO_DEGREE = plain("")
_WHEN_IT_HURTS = (plain(""), plain("today", "oggi"), plain("now", "adesso"))


def likes(draw: Draw) -> Draft:
    """I like bread, she likes cats. — Mi piace il pane, le piacciono i gatti."""
    noun = draw.noun(*_LIKED)
    several = noun.has_plural and draw.chance(0.45)
    if several or "mass" in noun.grammar:
        return _likes(draw, in_general(noun))
    return _likes(draw, draw.known(noun))


def likes_doing(draw: Draw) -> Draft:
    """Do you like to dance? — Ti piace ballare?"""
    verb = draw.verb("action", "verb", progressive=True)
    thing = plain("")
    if verb.part == "verb":
        noun = draw.rare(lexicon.nouns_for(verb))
        general = noun.has_plural or "mass" in noun.grammar
        thing = in_general(noun) if general and "family" not in noun.kinds else draw.known(noun, adjective=0)
    english_words, italian_words = f"to {verb.english} {thing.english}", f"{verb.italian} {thing.italian}"
    return _likes(draw, Phrase(english_words.strip(), italian_words.strip(), parts=(verb.lemma, *thing.parts)))


def in_general(noun: Noun) -> Phrase:
    """Return a kind of thing: English bare "cats" and "bread", Italian with the article, "i gatti" and "il pane"."""
    bare, known = (noun_phrase(noun, determiner, noun.has_plural) for determiner in ("", "the"))
    return Phrase(bare.english, known.italian, known.person, known.gender, known.parts)


def _likes(draw: Draw, thing: Phrase) -> Draft:
    subject, form = draw.speaker(pronoun=0.7)
    degree = said(lexicon.word("how", "very much")) if draw.chance(0.2) else plain("")
    return pleases(subject, thing, form, degree)


def pleases(subject: Phrase, thing: Phrase, form: Form = "statement", degree: Phrase = _NO_DEGREE) -> Draft:
    """Build "somebody likes it": in Italian it pleases somebody, a pronoun or "a mio padre"."""
    english_side = clause(subject, lexicon.verb("like"), "present", thing, degree, form=form)
    clitic = next((pronoun.indirect for pronoun in PRONOUNS if pronoun.english == subject.english), "")
    finite = italian_verbs.verb_group(
        "piacere", thing.person, "present", clitic=clitic, dative=True, negative=form == "negative"
    )
    someone = "" if clitic else italian.preposition("a", subject.italian)
    italian_words = italian.join(someone, finite, degree.italian, thing.italian)
    return sentence(form, Phrase(english_side.english, italian_words, parts=english_side.parts))


def is_hungry(draw: Draw) -> Draft:
    """Are you cold? — Hai freddo?"""
    subject, form = draw.speaker()
    tense: english.Tense = draw.one(("present", "present", "past"))
    return sentence(form, has_state(subject, draw.word("state"), tense, form))


def hurts(draw: Draw) -> Draft:
    """My head hurts. — Mi fa male la testa."""
    noun, owner = draw.noun("body"), draw.one([pronoun for pronoun in PRONOUNS if pronoun.english_owner])
    form: Form = "statement" if owner.person == 0 else draw.form()
    return sentence(form, aches(owner, noun, noun.has_plural and draw.chance(0.55), form), draw.one(_WHEN_IT_HURTS))


def aches(owner: Pronoun, noun: Noun, plural: bool = False, form: Form = "statement") -> Phrase:
    """Return a clause about what hurts, in Italian "to me does bad the head"."""
    mine, body = (noun_phrase(noun, determiner, plural) for determiner in (owner.english_owner, "the"))
    english_side = clause(mine, lexicon.verb("hurt"), "present", form=form)
    group = italian_verbs.verb_group(
        "fare", body.person, "present", clitic=owner.indirect, dative=True, negative=form == "negative"
    )
    return Phrase(english_side.english, f"{group} male {body.italian}", parts=english_side.parts)
