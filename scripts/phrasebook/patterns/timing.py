"""Clock times, days, months, seasons, and the weather."""

from phrasebook import english, italian, italian_numbers, lexicon
from phrasebook.draw import Draw
from phrasebook.lexicon import Verb
from phrasebook.patterns.describing import be
from phrasebook.patterns.doing import TIMES
from phrasebook.phrases import (
    Draft,
    Phrase,
    adjective_phrase,
    clause,
    draft,
    noun_phrase,
    plain,
    region,
    said,
    sentence,
    wh_question,
)

_MINUTES = (0, 0, 15, 30, 30, 45, 5, 10, 20, 40, 50, 55)
_CLOCK_WORDS = frozenset({"a", "past", "to", "o'clock"})
# What one does at a fixed hour.
_SCHEDULED = frozenset("eat cook work study sleep walk swim".split())
_DAYS = (plain("today is", "oggi è"), plain("tomorrow is", "domani è"), plain("yesterday was", "ieri era"))
_IT = plain("it")


def clock_time(draw: Draw) -> Phrase:
    """Draw a time of day: "half past three", "le tre e mezza"."""
    hour, minute = draw.number(1, 12), draw.one(_MINUTES)
    if draw.chance(0.12):
        hour, minute = draw.one((0, 12)), 0  # midnight and noon
    words = english.clock(hour, minute)
    parts = tuple(word for word in words.split() if word not in _CLOCK_WORDS)
    return Phrase(words, italian_numbers.clock(hour, minute), parts=parts)


def at_clock_time(draw: Draw) -> Phrase:
    """Draw a time by the clock: "at half past three", "alle tre e mezza"."""
    time = clock_time(draw)
    return Phrase(f"at {time.english}", italian_numbers.at_time(time.italian), parts=time.parts)


def it_is(draw: Draw) -> Draft:
    """It is half past three. — Sono le tre e mezza."""
    time = clock_time(draw)
    now = plain("now", "adesso") if draw.chance(0.3) else plain("")
    return draft(now, Phrase(f"it is {time.english}", italian_numbers.it_is(time.italian), parts=time.parts))


def _scheduled(draw: Draw, asked: bool) -> tuple[Phrase, Verb]:
    """Draw somebody who gets up, or a train that leaves."""
    verb = draw.verb("reflexive", "move", "move", "action")
    while verb.lemma in {"have fun", "relax"} or (verb.part == "action" and verb.lemma not in _SCHEDULED):
        verb = draw.verb("reflexive", "move", "move", "action")
    if verb.lemma in {"leave", "arrive"} and draw.chance(0.5):
        return draw.known(draw.noun("ride"), adjective=0), verb
    return draw.subject(asked=asked), verb


def at_a_time(draw: Draw) -> Draft:
    """The train leaves at half past eight. — Il treno parte alle otto e mezza."""
    form = draw.form()
    subject, verb = _scheduled(draw, asked=form == "question")
    tense: english.Tense = draw.one(("present", "present", "past", "future"))
    return sentence(form, clause(subject, verb, tense, at_clock_time(draw), form=form))


def what_time(draw: Draw) -> Draft:
    """Question: what time does the train leave? — A che ora parte il treno?"""
    subject, verb = _scheduled(draw, asked=True)
    tense: english.Tense = draw.one(("present", "past", "future"))
    return wh_question(plain("what time", "a che ora"), subject, verb, tense)


def today_is(draw: Draw) -> Draft:
    """Yesterday was Sunday. — Ieri era domenica."""
    return draft(draw.one(_DAYS), said(draw.word("day")))


def goes(draw: Draw, when: Phrase) -> Draft:
    """Draw somebody who goes somewhere, leaves, or does something at a given time."""
    verb = draw.verb("action", "motion", "move")
    goal = draw.place("to") if verb.part == "motion" else plain("")
    tense: english.Tense = draw.one(("present", "past", "future"))
    subject, form = draw.speaker()
    return sentence(form, clause(subject, verb, tense, goal, when, form=form))


def on_a_day(draw: Draw) -> Draft:
    """The museum is closed on Monday. — Il museo è chiuso lunedì."""
    day = draw.word("day")
    on_day = Phrase(f"on {day.english}", day.italian, parts=(day.lemma,))
    if draw.chance(0.7):
        return goes(draw, on_day)
    shop = noun_phrase(draw.noun("shop"), "the")
    closed = adjective_phrase(lexicon.word("adjective", "closed"), shop)
    form = draw.form()
    tense: english.Tense = draw.one(("present", "future"))
    return sentence(form, clause(shop, lexicon.verb("be"), tense, closed, on_day, form=form))


def in_a_month(draw: Draw) -> Draft:
    """My birthday is in May. — Il mio compleanno è a maggio."""
    when = said(draw.word("season"))
    if draw.chance(0.75):
        month = draw.word("month")
        when = Phrase(f"in {month.english}", italian.preposition("a", month.italian), parts=(month.lemma,))
    style = draw.one(("birthday", "travel", "travel", "weather"))
    if style == "travel":
        return goes(draw, when)
    form = draw.form()
    if style == "birthday":
        birthday = lexicon.noun("birthday")
        return be(noun_phrase(birthday, draw.owner(birthday)), when, form)
    verb, site = lexicon.verb(draw.one(("rain", "snow"))), region(draw.word("city", "country"), "at")
    return sentence(form, clause(_IT, verb, draw.one(("present", "future")), site, when, form=form))


def rains(draw: Draw) -> Draft:
    """It is raining in Rome. — Sta piovendo a Roma."""
    site = region(draw.word("city", "country"), "at") if draw.chance(0.6) else plain("")
    tense: english.Tense = draw.one(("progressive", "past", "future"))
    when, form = draw.when(TIMES[tense], 0.6), draw.form()
    return sentence(form, clause(_IT, lexicon.verb(draw.one(("rain", "snow"))), tense, site, when, form=form))


def is_hot(draw: Draw) -> Draft:
    """It is very hot today. — Fa molto caldo oggi."""
    state = lexicon.word("state", draw.one(("hot", "cold")))
    very = draw.chance(0.4)
    weather = Phrase(
        f"{'very ' if very else ''}{state.english}", f"{'molto ' if very else ''}{state.italian}", parts=(state.lemma,)
    )
    form = draw.form()
    english_side = clause(_IT, lexicon.verb("be"), "present", weather, form=form)
    italian_side = clause(_IT, lexicon.verb("do"), "present", weather, form=form)
    both = Phrase(english_side.english, italian_side.italian, parts=weather.parts)
    site = region(draw.word("city", "country"), "at") if draw.chance(0.6) else plain("")
    return sentence(form, both, site, draw.when("present", 0.5))
