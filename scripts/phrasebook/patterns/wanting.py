"""Patterns: abilities, duties and wishes, and orders."""

from phrasebook import english, italian, italian_verbs, lexicon
from phrasebook.draw import Draw
from phrasebook.italian import PRONOUNS, Pronoun
from phrasebook.lexicon import Verb
from phrasebook.phrases import (
    Draft,
    Form,
    Phrase,
    clause,
    draft,
    noun_phrase,
    plain,
    pronoun_subject,
    sentence,
)

PLEASE = plain(", please", ", per favore")
YOU = pronoun_subject(PRONOUNS[1])
_NOBODY_SUGGESTS = frozenset({"come", "cry", "love"})


def infinitive(draw: Draw, subject: Phrase) -> Phrase:
    """Draw something to do: "buy the bread", "comprare il pane"."""
    verb = draw.verb("verb", "verb", "verb", "action", "motion", progressive=True)
    rest = plain("")
    if verb.part == "verb":
        rest = draw.object_of(verb, subject, "negative")
    elif verb.part == "motion":
        rest = draw.place("to")
    elif draw.chance(0.4):
        rest = draw.place_for(verb)
    english_words, italian_words = f"{verb.english} {rest.english}", f"{verb.italian} {rest.italian}"
    return Phrase(english_words.strip(), italian_words.strip(), parts=(verb.lemma, *rest.parts))


def _modal_form(draw: Draw, modal: Verb, pronoun: float = 0.45) -> tuple[Phrase, Form]:
    """Draw the subject and form of a clause with a modal; nobody asks "must you?"."""
    subject, form = draw.speaker(pronoun=pronoun)
    return subject, "statement" if modal.lemma == "must" and form == "question" else form


def modal(draw: Draw) -> Draft:
    """I want to buy a car. — Voglio comprare una macchina."""
    verb = draw.verb("modal")
    subject, form = _modal_form(draw, verb)
    tense: english.Tense = "past" if verb.lemma == "want to" and draw.chance(0.3) else "present"
    return sentence(form, clause(subject, verb, tense, infinitive(draw, subject), form=form))


def want_to_see_him(draw: Draw) -> Draft:
    """Can you help me? — Puoi aiutarmi?"""
    verb = draw.verb("modal")
    subject, form = _modal_form(draw, verb, pronoun=0.6)
    done = someone_verb(draw, progressive=verb.lemma == "must")
    while "imperfect" in done.grammar:
        done = someone_verb(draw, progressive=verb.lemma == "must")
    rest = done_to(done, draw.pronoun(other_than=subject))
    return sentence(form, clause(subject, verb, "present", rest, form=form))


def done_to(verb: Verb, them: Pronoun) -> Phrase:
    """Return an infinitive with its object: "to see you", "vederti"."""
    english_words = f"{verb.english} {them.english_object}"
    return Phrase(english_words, italian_verbs.with_enclitic(verb.italian, them.direct), parts=(verb.lemma,))


def someone_verb(draw: Draw, *, progressive: bool = False) -> Verb:
    """Draw a verb whose object can be me, you, him ..."""
    verbs = [verb for verb in lexicon.verbs_of("verb") if "someone" in verb.grammar]
    return draw.rare([verb for verb in verbs if not (progressive and "no-ing" in verb.grammar)])


def wish(subject: Phrase, form: Form = "statement") -> Phrase:
    """Return subject and verb of "would like": "vorrei", "vorresti" ..."""
    opening = f"would {subject.english} like" if form == "question" else f"{subject.english} would like"
    finite = italian_verbs.conjugate("volere", subject.person, "conditional")
    return Phrase(opening, italian.join(subject.italian, finite), parts=(*subject.parts, "want"))


def would_like(draw: Draw) -> Draft:
    """We would like to go to the beach. — Vorremmo andare in spiaggia."""
    form: Form = draw.one(("statement", "statement", "question"))
    subject = draw.subject(pronoun=0.7, asked=form == "question")
    if draw.chance(0.5):
        return sentence(form, wish(subject, form), plain("to"), infinitive(draw, subject))
    noun = draw.noun("served", "single", "pet", "clothes", "vehicle", "text")
    thing = noun_phrase(noun, "a" if noun.has_singular else "some", not noun.has_singular)
    return sentence(form, wish(subject, form), thing)


def told(verb: Verb, them: Pronoun | None = None, *, dative: bool = False, negative: bool = False) -> Phrase:
    """Return an order to one friend: "open", "apri"; "do not follow me", "non seguirmi"; "give me", "dammi"."""
    italian_verb = verb.italian if negative else italian_verbs.imperative(verb.italian)
    if them:
        italian_verb = italian_verbs.with_enclitic(italian_verb, them.indirect if dative else them.direct)
    words = ("do not" if negative else "", verb.english, them.english_object if them else "")
    return Phrase(
        " ".join(filter(None, words)), italian.join("non" if negative else "", italian_verb), parts=(verb.lemma,)
    )


def order(draw: Draw) -> Draft:
    """Do not open the window, please. — Non aprire la finestra, per favore."""
    verb, negative = draw.verb("verb", progressive=True), draw.chance(0.35)
    thing = draw.object_of(verb, YOU, "negative" if negative else "statement")
    return draft(told(verb, negative=negative), thing, PLEASE if draw.chance(0.3) else plain(""))


def order_about_me(draw: Draw) -> Draft:
    """Listen to me, please. — Ascoltami, per favore."""
    them = draw.one([pronoun for pronoun in PRONOUNS if pronoun.person not in {1, 4}])
    front = told(someone_verb(draw, progressive=True), them, negative=draw.chance(0.3))
    return draft(front, draw.when("soon", 0.35), PLEASE if draw.chance(0.35) else plain(""))


def lets(draw: Draw) -> Draft:
    """Let's go to the beach. — Andiamo in spiaggia."""
    verb = draw.verb("verb", "verb", "action", "motion", progressive=True)
    while verb.lemma in _NOBODY_SUGGESTS:
        verb = draw.verb("verb", "verb", "action", "motion", progressive=True)
    if verb.part == "verb":
        rest = draw.object_of(verb, pronoun_subject(PRONOUNS[4]))
    else:
        rest = draw.place("to") if verb.part == "motion" else draw.when("soon", 0.5)
    finite = italian_verbs.conjugate(verb.italian, 3, "present")
    return draft(Phrase(f"let's {verb.english}", finite, parts=(verb.lemma,)), rest)
