"""Pronouns as objects: before the verb ("ti amo"), elided ("l'ho vista"), hung on ("dammi") or stressed ("con me")."""

from phrasebook import english, lexicon
from phrasebook.draw import Draw
from phrasebook.italian import PRONOUNS
from phrasebook.lexicon import Verb
from phrasebook.patterns.describing import be
from phrasebook.patterns.doing import past_time
from phrasebook.patterns.wanting import PLEASE, YOU, someone_verb, told
from phrasebook.phrases import Draft, Phrase, clause, draft, plain, sentence, with_preposition

_ALONE = frozenset({"sleep", "cry"})
_ME_OR_US = (PRONOUNS[0], PRONOUNS[4])


def sees_him(draw: Draw) -> Draft:
    """I love you very much. — Ti amo molto."""
    verb = someone_verb(draw)
    subject, form = draw.speaker(pronoun=0.6)
    them = draw.pronoun(other_than=subject)
    tense: english.Tense = draw.one(("present", "present", "present", "future"))
    often = None
    rest = draw.manner(verb, 0.6)
    if tense == "future" and not rest.english:
        rest = draw.when("soon", 0.4)
    elif tense == "present" and "no-ing" not in verb.grammar and draw.chance(0.4):
        tense = "progressive"
    elif tense == "present" and form == "statement" and draw.chance(0.25):
        often, rest = draw.word("often", kind="habit"), plain("")
    return sentence(form, clause(subject, verb, tense, rest, form=form, direct=them, adverb=often))


def saw_him(draw: Draw) -> Draft:
    """I saw her yesterday. — L'ho vista ieri."""
    verb = someone_verb(draw)
    subject, form = draw.speaker(pronoun=0.6)
    them = draw.pronoun(other_than=subject)
    return sentence(form, clause(subject, verb, "past", past_time(draw, verb), form=form, direct=them))


def giving_verb(draw: Draw) -> Verb:
    """Draw a verb that can be followed by "me the book"; "explain" cannot."""
    return draw.rare([verb for verb in lexicon.verbs_of("giving") if verb.lemma != "explain"])


def gives_him(draw: Draw) -> Draft:
    """I will give you the book. — Ti darò il libro."""
    return _gives(draw, draw.one(("present", "future", "progressive")))


def gave_him(draw: Draw) -> Draft:
    """She gave me a book. — Mi ha dato un libro."""
    return _gives(draw, "past")


def _gives(draw: Draw, tense: english.Tense) -> Draft:
    verb = giving_verb(draw)
    subject, form = draw.speaker(pronoun=0.6)
    thing = draw.object_of(verb, subject, form)
    when = past_time(draw, verb, 0.3) if tense == "past" else plain("")
    receiver = draw.pronoun(other_than=subject)
    return sentence(form, clause(subject, verb, tense, thing, when, form=form, indirect=receiver))


def gives_to(draw: Draw) -> Draft:
    """I gave the key to the girl. — Ho dato la chiave alla ragazza."""
    verb = draw.verb("giving")
    subject, form = draw.speaker(pronoun=0.6)
    unclear = verb.inflected.past == verb.inflected.base
    tense: english.Tense = draw.one(("present", "future", "future" if unclear else "past"))
    thing = draw.object_of(verb, subject, "negative")
    receiver = with_preposition("to", "a", draw.other(subject))
    return sentence(form, clause(subject, verb, tense, thing, receiver, form=form))


def give_me(draw: Draw) -> Draft:
    """Give me the key, please. — Dammi la chiave, per favore."""
    verb = giving_verb(draw)
    front = told(verb, draw.one(_ME_OR_US), dative=True)
    return draft(front, draw.object_of(verb, YOU), PLEASE if draw.chance(0.4) else plain(""))


def with_me(draw: Draw) -> Draft:
    """She is dancing with him. — Sta ballando con lui."""
    subject, form = draw.speaker()
    company = _company(draw, subject, "with", "con")
    tense: english.Tense = draw.one(("present", "progressive", "past", "future"))
    verb = draw.verb("motion", "action")
    while verb.lemma in _ALONE:
        verb = draw.verb("action")
    goal = draw.place("to") if verb.part == "motion" else plain("")
    return sentence(form, clause(subject, verb, tense, goal, company, form=form))


def is_for(draw: Draw) -> Draft:
    """This letter is for you. — Questa lettera è per te."""
    thing = draw.known(draw.noun("thing", "clothes", "drink", "single"), adjective=0.15)
    return be(thing, _company(draw, thing, "for", "per"), draw.form())


def _company(draw: Draw, subject: Phrase, english_word: str, italian_word: str) -> Phrase:
    """Draw with, or for, someone: a stressed pronoun or a person."""
    if draw.chance(0.6):
        pronoun = draw.pronoun(other_than=subject if subject.person not in {2, 5} else None)
        return plain(f"{english_word} {pronoun.english_object}", f"{italian_word} {pronoun.stressed}")
    return with_preposition(english_word, italian_word, draw.other(subject))
