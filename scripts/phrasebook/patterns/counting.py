"""Numbers: ages, prices, quantities; and orders at the table."""

from phrasebook import english, italian, italian_numbers, italian_verbs, lexicon
from phrasebook.draw import Draw
from phrasebook.lexicon import Noun
from phrasebook.patterns.wanting import PLEASE
from phrasebook.phrases import (
    Draft,
    Form,
    Phrase,
    clause,
    draft,
    noun_phrase,
    number_parts,
    place,
    plain,
    sentence,
    wh_question,
)

_AGES = (
    ({"child", "boy", "girl"}, (2, 15)),
    ({"son", "daughter", "student"}, (12, 30)),
    ({"grandmother", "grandfather"}, (60, 99)),
    ({"mother", "father", "parents", "uncle", "aunt", "husband", "wife"}, (31, 70)),
    ({noun.lemma for noun in lexicon.nouns_of("person")}, (18, 90)),
)
_PRICES = (({"food", "drink", "text", "single"}, (2, 20)), ({"dish"}, (2, 40)))
# Where so many of them can be.
_GATHERINGS = (
    ("person", "school university hospital station hotel restaurant church museum theater stadium zoo market".split()),
    ("text", "library school office university".split()),
    ("animal", "zoo park garden".split()),
    ("single", "market supermarket kitchen restaurant".split()),
    ("thing", "shop office school supermarket".split()),
)
_SEASONED = {
    "sugar": ("coffee", "tea", "milk"),
    "salt": ("meat", "rice", "pasta", "soup", "bread", "chicken", "carrot"),
    "oil": ("salad", "bread", "fish", "tomato", "pasta"),
}
_HOT_DRINKS = frozenset({"tea", "coffee"})


def _range(lemmas: tuple[str, ...], table: tuple[tuple[set[str], tuple[int, int]], ...]) -> tuple[int, int]:
    return next((limits for names, limits in table if names & set(lemmas)), (3, 99))


def age(draw: Draw) -> Draft:
    """My son is seven years old. — Mio figlio ha sette anni."""
    subject, form = draw.speaker(pronoun=0.4)
    low, high = _range(subject.parts, _AGES)
    return aged(subject, draw.number(low, min(high, 20) if low < 20 and draw.chance(0.4) else high), form)


def aged(subject: Phrase, years: int, form: Form = "statement") -> Draft:
    """Build a sentence about an age: in Italian one has years."""
    english_age = plain(f"{english.number(years)} years old")
    english_side = clause(subject, lexicon.verb("be"), "present", english_age, form=form)
    italian_age = plain("", italian_numbers.years_of_age(years))
    italian_side = clause(subject, lexicon.verb("have", "verb"), "present", italian_age, form=form)
    parts = (*subject.parts, *number_parts(years), "year")
    return sentence(form, Phrase(english_side.english, italian_side.italian, parts=parts))


def how_old(draw: Draw) -> Draft:
    """Question: how old is your brother? — Quanti anni ha tuo fratello?"""
    subject = draw.subject(pronoun=0.2, asked=True)
    asked = clause(subject, lexicon.verb("be"), "present", form="question")
    have = italian_verbs.conjugate("avere", subject.person, "present")
    italian_words = italian.join("quanti anni", have, subject.italian)
    return Draft(f"how old {asked.english}", italian_words, (*subject.parts, "year"), "wh")


def costs(draw: Draw) -> Draft:
    """The shirt costs forty euros. — La camicia costa quaranta euro."""
    noun, cost = draw.noun("food", "drink", "clothes", "dish", "text", "thing", "furniture"), lexicon.verb("cost")
    thing = draw.known(noun)
    if draw.chance(0.35):
        return wh_question(plain("how much", "quanto"), thing, cost, "present")
    euros = draw.number(*_range(tuple(noun.kinds), _PRICES))
    price = Phrase(f"{english.number(euros)} euros", f"{italian_numbers.number(euros)} euro", parts=number_parts(euros))
    form = draw.form()
    return sentence(form, clause(thing, cost, "present", price, form=form))


def how_many(draw: Draw) -> Draft:
    """Question: how many brothers do you have? — Quanti fratelli hai?"""
    verb = lexicon.verb(draw.one(("have", "have", "buy", "see")), "verb")
    countable = [noun for noun in lexicon.nouns_for(verb) if noun.has_plural and noun.has_singular]
    noun = draw.noun("many") if verb.lemma == "have" and draw.chance(0.4) else draw.rare(countable)
    several = noun_phrase(noun, "", plural=True)
    asked = Phrase(
        f"how many {several.english}",
        f"{italian.agree('quanto', several.gender, plural=True)} {several.italian}",
        parts=several.parts,
    )
    tense: english.Tense = "present" if verb.lemma == "have" else "past"
    return wh_question(asked, draw.subject(pronoun=0.6, asked=True), verb, tense)


def counts(draw: Draw) -> Draft:
    """There are thirty-two students at the museum. — Ci sono trentadue studenti al museo."""
    noun = draw.noun("person", "animal", "thing", "single", "text")
    while not noun.has_singular:
        noun = draw.noun("person")
    several = noun_phrase(noun, str(draw.number(*draw.one(((2, 99), (11, 20))))), plural=True)
    opening = plain("there were", "c'erano") if draw.chance(0.25) else plain("there are", "ci sono")
    return draft(opening, several, _gathering(draw, noun))


def _gathering(draw: Draw, noun: Noun) -> Phrase:
    sites = next(lemmas for kind, lemmas in _GATHERINGS if kind in noun.kinds)
    return place(draw.rare([lexicon.noun(lemma) for lemma in sites]), "at")


def _amount(draw: Draw) -> Phrase:
    vessel, drink = draw.noun("vessel"), draw.noun("drink")
    while (vessel.lemma == "cup") != (drink.lemma in _HOT_DRINKS):
        vessel, drink = draw.noun("vessel"), draw.noun("drink")
    plural = draw.chance(0.3)
    return measure(noun_phrase(vessel, str(draw.number(2, 6)) if plural else "a", plural), drink)


def measure(vessel: Phrase, drink: Noun) -> Phrase:
    """Return an amount of a drink: "two glasses of water", "due bicchieri d'acqua"."""
    english_words, italian_words = f"{vessel.english} of {drink.english}", italian.elided_di(drink.italian)
    return Phrase(english_words, f"{vessel.italian} {italian_words}", parts=(*vessel.parts, drink.lemma))


def glass_of_water(draw: Draw) -> Draft:
    """I would like a glass of water, please. — Vorrei un bicchiere d'acqua, per favore."""
    amount, style = _amount(draw), draw.one(("wish", "have", "give", "order"))
    if style == "wish":
        wish = draw.one((plain("I would like", "vorrei"), plain("we would like", "vorremmo")))
        return draft(wish, amount, PLEASE if draw.chance(0.6) else plain(""))
    if style == "have":
        verb = lexicon.verb(draw.one(("drink", "buy", "want")), "verb")
        subject, form = draw.speaker()
        return sentence(form, clause(subject, verb, draw.one(("present", "past")), amount, form=form))
    if style == "give":
        subject, verb = draw.subject(), lexicon.verb(draw.one(("bring", "give", "offer")), "giving")
        return draft(clause(subject, verb, "past", amount, indirect=draw.pronoun(other_than=subject)))
    return draft(amount, PLEASE)


def without(draw: Draw) -> Draft:
    """I drink the coffee without sugar. — Bevo il caffè senza zucchero."""
    spice = draw.noun("spice")
    food = lexicon.noun(draw.one(_SEASONED[spice.lemma]))
    thing = noun_phrase(food, "the", food.has_plural)
    seasoning = Phrase(f"without {spice.english}", f"senza {spice.italian}", parts=(spice.lemma,))
    if draw.chance(0.4):
        seasoning = Phrase(f"with {spice.english}", f"con {noun_phrase(spice, 'the').italian}", parts=(spice.lemma,))
    verb = lexicon.verb("drink" if "drink" in food.kinds else "eat", "verb")
    if "cook" in food.kinds and draw.chance(0.4):
        verb = lexicon.verb("cook", "verb")
    subject, form = draw.speaker()
    tense: english.Tense = draw.one(("present", "progressive", "past"))
    return sentence(form, clause(subject, verb, tense, thing, seasoning, form=form))
