"""Patterns: actions in all tenses, with objects, times and places."""

from typing import Literal

from phrasebook import english, italian_verbs, lexicon
from phrasebook.draw import Draw
from phrasebook.lexicon import Verb
from phrasebook.phrases import (
    Draft,
    Form,
    Phrase,
    clause,
    draft,
    noun_phrase,
    plain,
    sentence,
    with_preposition,
)

# The times that go with a tense: of everyday things, and of what is remembered for a year.
TIMES: dict[str, str] = {"present": "habit", "progressive": "present", "past": "recent", "future": "soon"}
_EVENT_TIMES = {**TIMES, "past": "past", "future": "future"}
SimpleTense = Literal["past", "present", "future"]
_FIRST_VERBS = ("buy", "find", "take", "choose", "bring")
_SECOND_VERBS = frozenset("eat drink read open wash cook cut use clean repair wear sell break".split())
_BROUGHT = frozenset({"eat", "drink", "open", "read"})
_PRONOUNS = {("m", False): "lo", ("f", False): "la", ("m", True): "li", ("f", True): "le"}


def transitive(draw: Draw, tense: english.Tense, *rest: Phrase, verb: Verb | None = None) -> Draft:
    """Draw somebody who does something to something, in any tense."""
    verb = verb or draw.verb("verb", progressive=tense == "progressive")
    subject, form = draw.speaker(animal=verb.lemma in {"eat", "drink"})
    return sentence(form, clause(subject, verb, tense, draw.object_of(verb, subject, form), *rest, form=form))


def past_time(draw: Draw, verb: Verb, probability: float = 0.5) -> Phrase:
    """Draw a past time or nothing: never for what lasts, always where "I read the book" would look like the present."""
    if "imperfect" in verb.grammar:
        return plain("")
    certain = verb.inflected.past == verb.inflected.base
    return draw.when("past" if "event" in verb.grammar else "recent", 1.0 if certain else probability)


def present(draw: Draw) -> Draft:
    """The old woman does not drink the water. — La vecchia donna non beve l'acqua."""
    return transitive(draw, "present")


def progressive(draw: Draw) -> Draft:
    """She is eating an apple. — Sta mangiando una mela."""
    return transitive(draw, "progressive", draw.when("present", 0.25))


def past(draw: Draw) -> Draft:
    """I bought a new car yesterday. — Ho comprato una nuova macchina ieri."""
    verb = draw.verb("verb")
    return transitive(draw, "past", past_time(draw, verb), verb=verb)


def future(draw: Draw) -> Draft:
    """Tomorrow you will meet my brother. — Domani incontrerai mio fratello."""
    verb = draw.rare([verb for verb in lexicon.verbs_of("verb") if "imperfect" not in verb.grammar])
    when = draw.when("future" if "event" in verb.grammar else "soon", 0.6)
    if not when.english or draw.chance(0.6):
        return transitive(draw, "future", when, verb=verb)
    subject = draw.subject()
    return draft(when, clause(subject, verb, "future", draw.object_of(verb, subject)))


def used_to(draw: Draw) -> Draft:
    """My uncle used to sell cars ... — Mio zio vendeva ..."""
    if draw.chance(0.6):
        return transitive(draw, "used", draw.when("habit", 0.3), verb=draw.verb("verb", progressive=True))
    verb = draw.verb("action")
    subject, form = draw.speaker()
    return sentence(form, clause(subject, verb, "used", draw.place_for(verb), form=form))


def habit(draw: Draw) -> Draft:
    """I never use the computer. — Non uso mai il computer."""
    adverb, subject = draw.word("often", kind="habit"), draw.subject()
    form: Form = "question" if adverb.lemma != "never" and draw.chance(0.25) else "statement"
    verb = draw.verb("action", "verb", progressive=True)
    if verb.part == "verb":
        rest = draw.object_of(verb, subject, "negative")
    else:
        rest = draw.place_for(verb) if draw.chance(0.5) else plain("")
    return sentence(form, clause(subject, verb, "present", rest, form=form, adverb=adverb))


def perfect(draw: Draw) -> Draft:
    """We have already read the book. — Abbiamo già letto il libro."""
    adverb, subject = draw.word("often", kind="perfect"), draw.subject()
    verb = draw.rare([verb for verb in lexicon.verbs_of("verb") if "imperfect" not in verb.grammar])
    form: Form = "question" if adverb.lemma == "already" and draw.chance(0.35) else "statement"
    thing = draw.object_of(verb, subject, "negative")
    return sentence(form, clause(subject, verb, "perfect", thing, form=form, adverb=adverb))


def action(draw: Draw) -> Draft:
    """The children are dancing in the square. — I bambini stanno ballando in piazza."""
    tense: english.Tense = draw.one(("present", "progressive", "past", "future"))
    verb = draw.verb("action")
    if draw.chance(0.5):
        subject, form = draw.speaker()
        return sentence(form, clause(subject, verb, tense, draw.place_for(verb), form=form))
    subject, form = draw.speaker(animal="animal" in verb.grammar)
    return sentence(form, clause(subject, verb, tense, draw.when(TIMES[tense], 0.7), form=form))


def manner(draw: Draw) -> Draft:
    """You all sing well. — Cantate bene."""
    tense: english.Tense = draw.one(("present", "present", "progressive", "past", "future"))
    verb = draw.rare([verb for verb in lexicon.verbs_of("action") if lexicon.words_of("how", kind=verb.lemma)])
    how = draw.manner(verb)
    subject, form = draw.speaker()
    while "together" in how.parts and not subject.plural:
        subject = draw.subject()
    return sentence(form, clause(subject, verb, tense, how, form=form))


def motion(draw: Draw) -> Draft:
    """Tomorrow we will go to Rome. — Domani andremo a Roma."""
    tense: english.Tense = draw.one(("present", "progressive", "past", "past", "future"))
    subject, form = draw.speaker()
    when, moved = (
        draw.when(_EVENT_TIMES[tense], 0.5),
        clause(subject, draw.verb("motion"), tense, draw.place("to", rooms=True), form=form),
    )
    if form == "statement" and when.english and draw.chance(0.35):
        return draft(when, moved)
    return sentence(form, moved, when)


def move(draw: Draw) -> Draft:
    """The train left this morning. — Il treno è partito stamattina."""
    verb = draw.verb("move")
    tense: english.Tense = draw.one(("past", "past", "future", "present", "progressive"))
    subject, form = draw.speaker()
    if verb.lemma in {"arrive", "leave"} and draw.chance(0.35):
        subject = draw.known(draw.noun("ride"), adjective=0)
    times = TIMES if verb.lemma == "go out" else _EVENT_TIMES
    return sentence(form, clause(subject, verb, tense, draw.when(times[tense], 0.75), form=form))


def reflexive(draw: Draw) -> Draft:
    """She fell asleep this morning. — Si è addormentata stamattina."""
    tense: english.Tense = draw.one(("present", "past", "past", "future"))
    subject, form = draw.speaker()
    return sentence(form, clause(subject, draw.verb("reflexive"), tense, draw.when(TIMES[tense], 0.8), form=form))


def puts(draw: Draw) -> Draft:
    """She is putting the keys in the bag. — Sta mettendo le chiavi nella borsa."""
    noun = draw.noun("thing", "dish", "single", "clothes")
    entry = draw.rare([lexicon.word("where", lemma) for lemma in ("on", "in", "under", "next to")])
    target = draw.rare([other for other in lexicon.nouns_of(*entry.kinds) if other is not noun])
    site = with_preposition(entry.english, entry.italian, noun_phrase(target, "the"), entry.lemma)
    subject, form = draw.speaker()
    thing = draw.thing(noun, form, subject.owner, adjective=0.1)
    if draw.chance(0.3):
        return draft(Phrase("put", italian_verbs.imperative("mettere"), parts=("put",)), thing, site)
    tense: english.Tense = draw.one(("progressive", "past", "future"))
    when = draw.when("recent") if tense == "past" else plain("")
    return sentence(form, clause(subject, lexicon.verb("put"), tense, thing, site, when, form=form))


def needs(draw: Draw) -> Draft:
    """I need the key. — Ho bisogno della chiave."""
    subject, form = draw.speaker()
    noun = draw.noun("thing", "clothes", "vehicle", "acquaintance", "family", "tool", "furniture")
    thing = draw.thing(noun, "negative", subject.owner)
    rest = Phrase(thing.english, with_preposition("", "bisogno di", thing).italian, parts=thing.parts)
    tense: english.Tense = draw.one(("present", "present", "past"))
    return sentence(form, clause(subject, lexicon.verb("need"), tense, rest, form=form))


def talks_about(draw: Draw) -> Draft:
    """They are talking about the film. — Stanno parlando del film."""
    tense: english.Tense = draw.one(("present", "progressive", "past", "future"))
    subject, form = draw.speaker()
    noun = draw.noun("task", "tale", "event", "idea", "family", "text", "song", "sight", "animal", "role")
    about = with_preposition("about", "di", draw.thing(noun, "negative", subject.owner))
    return sentence(form, clause(subject, lexicon.verb("talk", "action"), tense, about, form=form))


def and_did_it(draw: Draw) -> Draft:
    """I bought the apple and ate it. — Ho comprato la mela e l'ho mangiata."""
    first = lexicon.verb(draw.one(_FIRST_VERBS), "verb")
    allowed = _BROUGHT if first.lemma == "bring" else _SECOND_VERBS
    seconds = [verb for verb in lexicon.verbs_of("verb") if verb.lemma in allowed]
    noun = draw.rare([n for n in lexicon.nouns_for(first) if any(n in lexicon.nouns_for(verb) for verb in seconds)])
    second = draw.rare([verb for verb in seconds if noun in lexicon.nouns_for(verb)])
    subject = draw.subject()
    thing = draw.thing(noun, "negative", subject.owner, adjective=0.1)
    tense: SimpleTense = draw.one(("past", "past", "present", "future"))
    return draft(clause(subject, first, tense, thing), and_it(subject, second, tense, thing))


def and_it(subject: Phrase, verb: Verb, tense: SimpleTense, thing: Phrase) -> Phrase:
    """Return the second of two verbs, whose object is a pronoun: "and ate it", "e l'ho mangiata"."""
    clitic = _PRONOUNS[thing.gender, thing.plural]
    group = italian_verbs.verb_group(verb.italian, subject.person, tense, clitic=clitic)
    # "Will buy it and eat it": English does not repeat "will".
    said = verb.english if tense == "future" else english.statement("", verb.inflected, subject.person, tense)
    return Phrase(f"and {said} {'them' if thing.plural else 'it'}", f"e {group}", parts=(verb.lemma,))
