"""Languages, games, home and origin, and what one says when one meets."""

from dataclasses import replace

from phrasebook import english, italian, lexicon
from phrasebook.draw import POSSESSIVES, Draw
from phrasebook.patterns.describing import be
from phrasebook.patterns.doing import TIMES
from phrasebook.patterns.owning import where
from phrasebook.phrases import (
    Draft,
    Mark,
    Phrase,
    adjective_phrase,
    clause,
    draft,
    noun_phrase,
    place,
    plain,
    region,
    said,
    sentence,
    wh_question,
    with_preposition,
)

_LANGUAGE_VERBS = ("study", "understand", "learn", "teach")
_LEARNED_AT = ("school", "university", "library")


def speaks(draw: Draw) -> Draft:
    """Do you speak Italian? — Parli italiano?"""
    subject, form = draw.speaker(pronoun=0.6)
    language = draw.word("nationality")
    tense: english.Tense = draw.one(("present", "present", "past", "future"))
    how = said(lexicon.word("how", draw.one(("well", "badly")))) if draw.chance(0.4) else plain("")
    # "Parla bene italiano": the adverb stays with the verb.
    rest = Phrase(f"{language.english} {how.english}".strip(), f"{how.italian} {language.italian}".strip())
    rest = replace(rest, parts=(language.lemma, *how.parts))
    return sentence(form, clause(subject, lexicon.verb("speak"), tense, rest, form=form))


def learns(draw: Draw) -> Draft:
    """She is learning French at school. — Sta imparando il francese a scuola."""
    subject, form = draw.speaker(pronoun=0.6)
    verb, language = lexicon.verb(draw.one(_LANGUAGE_VERBS)), draw.word("nationality")
    tense: english.Tense = draw.one(("present", "past", "future", "progressive"))
    if tense == "progressive" and "no-ing" in verb.grammar:
        tense = "present"
    name = Phrase(language.english, italian.definite(language.italian, "m"), parts=(language.lemma,))
    site = place(lexicon.noun(draw.one(_LEARNED_AT)), "at") if draw.chance(0.35) else plain("")
    return sentence(form, clause(subject, verb, tense, name, site, form=form))


def plays(draw: Draw) -> Draft:
    """We play cards. — Giochiamo a carte."""
    subject, form = draw.speaker(pronoun=0.6)
    game = draw.word("game")
    tense: english.Tense = draw.one(("present", "progressive", "past", "future"))
    rest = draw.when(TIMES[tense], 0.5)
    if draw.chance(0.25):
        rest = with_preposition("with", "con", draw.other(subject))
    at_game = Phrase(game.english, f"a {game.italian}", parts=(game.lemma,))
    return sentence(form, clause(subject, lexicon.verb("play"), tense, at_game, rest, form=form))


def _friend_named(draw: Draw) -> Phrase:
    """Draw a person such as "my friend Anna", "la mia amica Anna": the name decides the gender."""
    name, noun = draw.named(), draw.noun("acquaintance")
    owner = draw.one(POSSESSIVES)
    title = noun.option("fem") if name.gender == "f" else noun.italian
    owned = italian.definite(f"{italian.possessive(owner, name.gender)} {title}", name.gender)
    english_words, italian_words = f"{owner} {noun.english} {name.english}", f"{owned} {name.italian}"
    return Phrase(english_words, italian_words, 2, name.gender, (noun.lemma, *name.parts))


def lives_in(draw: Draw) -> Draft:
    """My friend Anna lives in Rome. — La mia amica Anna abita a Roma."""
    subject, form = draw.speaker()
    if draw.chance(0.35):
        subject = _friend_named(draw)
    verb = lexicon.verb("live") if draw.chance(0.6) else lexicon.verb("work", "action")
    tense: english.Tense = draw.one(("present", "present", "used", "future"))
    site = region(draw.word("city", "country"), "at")
    if draw.chance(0.35):
        landmark = noun_phrase(draw.noun("landmark", "public"), "the")
        site = with_preposition("near", "vicino a", landmark, "near")
    return sentence(form, clause(subject, verb, tense, site, form=form))


def friend_is(draw: Draw) -> Draft:
    """Our neighbor Maria went to Rome. — La nostra vicina Maria è andata a Roma."""
    subject, form = _friend_named(draw), draw.form()
    verb = draw.verb("motion", "move", "reflexive")
    tense: english.Tense = draw.one(("past", "past", "present", "future"))
    rest = draw.place("to") if verb.part == "motion" else draw.when(TIMES[tense], 0.7)
    return sentence(form, clause(subject, verb, tense, rest, form=form))


def where_lives(draw: Draw) -> Draft:
    """Question: where does your father live? — Dove abita tuo padre?"""
    verb = lexicon.verb("live") if draw.chance(0.6) else lexicon.verb("work", "action")
    return wh_question(plain("where", "dove"), draw.subject(asked=True), verb, "present")


def comes_from(draw: Draw) -> Draft:
    """She is from Rome, we come from Italy. — È di Roma, veniamo dall'Italia."""
    subject, form = draw.speaker()
    home = draw.word("city", "country")
    if home.part == "city":
        return be(subject, with_preposition("from", "di", said(home)), form)
    country = Phrase(home.english, italian.definite(home.italian, "f"), parts=(home.lemma,))
    origin = with_preposition("from", "da", country)
    return sentence(form, clause(subject, lexicon.verb("come", "motion"), "present", origin, form=form))


def how_is(draw: Draw) -> Draft:
    """Question: how is your mother? — Come sta tua madre?"""
    subject = draw.subject(pronoun=0)
    are, stanno = ("are", "stanno") if subject.plural else ("is", "sta")
    return Draft(f"how {are} {subject.english}", f"come {stanno} {subject.italian}", subject.parts, "wh")


def excuse_me(draw: Draw) -> Draft:
    """Excuse me, where is the station? — Scusa, dov'è la stazione?"""
    asked = where(noun_phrase(draw.noun("public", "sight", "person", "room"), "the"))
    return Draft(f"excuse me, {asked.english}", f"scusa, {asked.italian}", asked.parts, "?")


def thanks_for(draw: Draw) -> Draft:
    """Thank you for the flowers. — Grazie per i fiori."""
    much = draw.chance(0.3)
    words = ("thank you very much for", "grazie mille per") if much else ("thank you for", "grazie per")
    opening = Phrase(*words, parts=("thank you",))
    thing = draw.known(draw.noun("thing", "food", "drink", "meal", "tale"), adjective=0.3)
    name = draw.named()
    address = Phrase(f", {name.english}", f", {name.italian}", parts=name.parts) if draw.chance(0.4) else plain("")
    return draft(opening, thing, address, mark=draw.one((".", "!")))


def greets(draw: Draw) -> Draft:
    """Good morning, Anna, how are you? — Buongiorno, Anna, come stai?"""
    greeting, name = draw.word("greeting"), draw.couple() if draw.chance(0.35) else draw.named()
    hello, goal = said(greeting), plain("")
    if greeting.lemma == "welcome":
        hello = adjective_phrase(greeting, name)
        goal = region(draw.word("city", "country"), "to")
    opening = draft(hello, goal, Phrase(f", {name.english}", f", {name.italian}", parts=name.parts))
    if "question" in greeting.kinds and draw.chance(0.7):
        asked = how_is(draw) if name.plural or draw.chance(0.7) else Draft("how are you", "come stai", ())
        return _and_then(opening, asked, "?")
    if "parting" in greeting.kinds and draw.chance(0.7):
        day = draw.word("day")
        return _and_then(opening, Draft(f"see you on {day.english}", f"ci vediamo {day.italian}", (day.lemma,)), ".")
    return replace(opening, mark=draw.one((".", "!")))


def _and_then(first: Draft, second: Draft, mark: Mark) -> Draft:
    """Join two sentences by a comma."""
    english_words, italian_words = f"{first.english}, {second.english}", f"{first.italian}, {second.italian}"
    return Draft(english_words, italian_words, first.parts + second.parts, mark)
