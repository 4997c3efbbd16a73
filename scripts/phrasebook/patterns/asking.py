"""Questions with who, what, where, when and why, and sentences with a second clause."""

from phrasebook import english, lexicon
from phrasebook.draw import Draw
from phrasebook.italian import PRONOUNS
from phrasebook.lexicon import Word
from phrasebook.patterns.describing import be, moods
from phrasebook.patterns.wanting import someone_verb
from phrasebook.phrases import (
    Draft,
    Form,
    Phrase,
    adjective_phrase,
    clause,
    draft,
    noun_phrase,
    plain,
    pronoun_subject,
    said,
    sentence,
    wh_question,
)

_WHAT_VERBS = frozenset("eat drink buy sell read write cook bring take choose draw prepare watch sing want see".split())
_WHERE, _WHEN, _WHY = plain("where", "dove"), plain("when", "quando"), plain("why", "perché")
_WHAT, _WHO = plain("what", "che cosa"), plain("who", "chi")
# Why one does such a thing ...
_REASONS = {
    "eat": ("hungry",),
    "drink": ("thirsty",),
    "sleep": ("tired", "sick", "sleepy"),
    "cry": ("sad", "tired", "afraid"),
    "smile": ("happy",),
    "laugh": ("happy",),
    "sing": ("happy",),
    "dance": ("happy",),
    "run": ("in a hurry", "afraid", "cold"),
    "walk": ("sad", "happy"),
}
# ... and why one does not do it, if it is something one ought to do.
_DUTIES = frozenset("work walk run swim sing dance study eat cook travel talk".split())
_EXCUSES = ("tired", "sick", "busy", "sad", "angry", "sleepy", "in a hurry", "cold", "hot", "afraid")


def asks_what(draw: Draw) -> Draft:
    """Question: what is your mother cooking? — Che cosa sta cucinando tua madre?"""
    verb = draw.rare([verb for verb in lexicon.verbs_of("verb") if verb.lemma in _WHAT_VERBS])
    if draw.chance(0.25):
        verb = lexicon.verb("do")
    tense: english.Tense = draw.one(("present", "progressive", "past", "future"))
    if tense == "progressive" and "no-ing" in verb.grammar:
        tense = "present"
    return wh_question(_WHAT, draw.subject(asked=True), verb, tense)


def asks_who(draw: Draw) -> Draft:
    """Who did you see? — Chi hai visto?"""
    tense: english.Tense = draw.one(("present", "past", "future"))
    return wh_question(_WHO, draw.subject(pronoun=1, asked=True), someone_verb(draw), tense)


def asks_where(draw: Draw) -> Draft:
    """When did Anna arrive? — Quando è arrivata Anna?"""
    verb = draw.verb("action", "move", "move")
    asked = draw.one((_WHERE, _WHEN)) if verb.part == "action" else _WHEN
    tense: english.Tense = draw.one(("present", "past", "future"))
    return wh_question(asked, draw.subject(asked=True), verb, tense)


def asks_where_bought(draw: Draw) -> Draft:
    """Question: where did you buy the hat? — Dove hai comprato il cappello?"""
    verb = draw.rare([verb for verb in lexicon.verbs_of("verb") if "imperfect" not in verb.grammar])
    subject = draw.subject(pronoun=1, asked=True)
    thing = draw.object_of(verb, subject, "negative")
    return draft(draw.one((_WHERE, _WHEN, _WHY)), clause(subject, verb, "past", thing, form="question"), mark="wh")


def who_did(draw: Draw) -> Draft:
    """Who bought the bread? — Chi ha comprato il pane?"""
    if draw.chance(0.35):
        return draft(clause(_WHO, someone_verb(draw), "past", direct=draw.pronoun()), mark="wh")
    tense: english.Tense = draw.one(("past", "past", "present", "future", "progressive"))
    verb = draw.verb("verb", progressive=tense == "progressive")
    return draft(clause(_WHO, verb, tense, draw.object_of(verb, _WHO, "negative")), mark="wh")


def asks_why(draw: Draw) -> Draft:
    """Why are you crying? — Perché stai piangendo?"""
    subject = draw.subject(pronoun=0.7, asked=True)
    if draw.chance(0.5):
        tense: english.Tense = draw.one(("progressive", "past", "present"))
        return draft(_WHY, clause(subject, draw.verb("action"), tense, form="question"), mark="wh")
    mood = adjective_phrase(draw.rare([word for word in moods() if word.lemma != "ready"]), subject)
    tense = draw.one(("present", "past"))
    return draft(_WHY, clause(subject, lexicon.verb("be"), tense, mood, form="question"), mark="wh")


def has_state(subject: Phrase, state: Word, tense: english.Tense = "present", form: Form = "statement") -> Phrase:
    """Return a clause such as "I am not hungry", "non ho fame": in Italian one has it."""
    english_side = clause(subject, lexicon.verb("be"), tense, said(state), form=form)
    italian_side = clause(subject, lexicon.verb("have", "verb"), tense, said(state), form=form)
    return Phrase(english_side.english, italian_side.italian, parts=(*subject.parts, state.lemma))


def feels(subject: Phrase, lemma: str) -> Phrase:
    """Return a clause that says that somebody is tired, or hungry."""
    if any(state.lemma == lemma for state in lexicon.words_of("state")):
        return has_state(subject, lexicon.word("state", lemma))
    adjective = lexicon.word("adjective", lemma)
    return clause(subject, lexicon.verb("be"), "present", adjective_phrase(adjective, subject))


def because(draw: Draw) -> Draft:
    """I am not working because I am tired. — Non sto lavorando perché sono stanco."""
    subject = pronoun_subject(draw.one(PRONOUNS))
    tense: english.Tense = draw.one(("present", "progressive"))
    if draw.chance(0.5):
        verb = draw.rare([verb for verb in lexicon.verbs_of("action") if verb.lemma in _REASONS])
        effect, reason = clause(subject, verb, tense), draw.one(_REASONS[verb.lemma])
    else:
        verb = draw.rare([verb for verb in lexicon.verbs_of("action") if verb.lemma in _DUTIES])
        verb = draw.verb("motion") if draw.chance(0.35) else verb
        goal = draw.place("to") if verb.part == "motion" else plain("")
        effect, reason = clause(subject, verb, tense, goal, form="negative"), draw.one(_EXCUSES)
    return draft(effect, plain("because", "perché"), feels(subject, reason))


def knows_that(draw: Draw) -> Draft:
    """I know that you are tired. — So che sei stanco."""
    verb = lexicon.verb(draw.one(("know", "say")))
    subject, form = draw.speaker(pronoun=0.75)
    somebody = draw.subject(pronoun=0.6)
    while somebody == subject:
        somebody = draw.subject(pronoun=0.6)
    if draw.chance(0.5):
        fact = feels(somebody, draw.one((*_EXCUSES, "happy", "hungry", "thirsty", "right")))
    else:
        inner = draw.verb("verb")
        fact = clause(somebody, inner, "present", draw.object_of(inner, somebody))
    return sentence(form, clause(subject, verb, "present", plain("that", "che"), fact, form=form))


def who_works(draw: Draw) -> Draft:
    """The woman who works at the bank is Italian. — La donna che lavora in banca è italiana."""
    noun = draw.noun("person")
    person = noun_phrase(noun, draw.one(("the", "the", "that")), draw.is_plural(noun))
    verb = draw.verb("action", "verb")
    rest = draw.object_of(verb, person) if verb.part == "verb" else draw.place_for(verb)
    relative = clause(Phrase("", "", person.person, person.gender), verb, "present", rest)
    subject = Phrase(
        f"{person.english} who {relative.english}",
        f"{person.italian} che {relative.italian}",
        person.person,
        person.gender,
        person.parts + relative.parts,
    )
    traits = [word for word in lexicon.words_of("adjective", kind="person") if "mood" not in word.grammar]
    adjective = draw.word("nationality") if draw.chance(0.3) else draw.rare(traits)
    return be(subject, adjective_phrase(adjective, subject), draw.one(("statement", "statement", "negative")))
