"""Patterns: possessions, owners and places of things."""

from phrasebook import english, italian, lexicon
from phrasebook.draw import POSSESSIVES, Draw
from phrasebook.lexicon import Noun
from phrasebook.patterns.describing import be, pointer
from phrasebook.phrases import (
    Draft,
    Phrase,
    adjective_phrase,
    clause,
    draft,
    noun_phrase,
    place,
    plain,
    sentence,
    with_preposition,
)

_MINE = {"my": "mine", "your": "yours", "his": "his", "her": "hers", "our": "ours", "their": "theirs"}
_FEATURES = {
    "eye": ("green", "blue", "brown"),
    "tooth": ("white", "yellow"),
    "leg": ("long", "strong"),
    "arm": ("long", "strong"),
    "hand": ("big", "small"),
    "foot": ("big", "small"),
    "ear": ("big", "small"),
}
_THERE_IS = {
    ("present", False): plain("there is", "c'è"),
    ("present", True): plain("there are", "ci sono"),
    ("past", False): plain("there was", "c'era"),
    ("past", True): plain("there were", "c'erano"),
}


def has(draw: Draw) -> Draft:
    """I have two sisters. — Ho due sorelle."""
    subject, form = draw.speaker()
    have = lexicon.verb("have", "verb")
    tense: english.Tense = draw.one(("present", "present", "present", "past", "future"))
    noun = draw.rare(lexicon.nouns_for(have)) if draw.chance(0.6) or tense == "future" else draw.noun("many")
    if form == "statement" and draw.chance(0.5):
        thing = draw.quantity(noun)
    else:
        adjective = draw.adjective(noun) if "many" not in noun.kinds and draw.chance(0.35) else None
        thing = noun_phrase(noun, "a", adjective=adjective)
    return sentence(form, clause(subject, have, tense, thing, form=form))


def has_eyes(draw: Draw) -> Draft:
    """She has green eyes. — Ha gli occhi verdi."""
    subject, form = draw.speaker()
    noun = draw.rare([noun for noun in lexicon.nouns_of("body") if noun.lemma in _FEATURES])
    adjective = lexicon.word("adjective", draw.one(_FEATURES[noun.lemma]))
    gender = noun.plural_gender
    agreed = italian.agree(adjective.italian, gender, plural=True)
    features = Phrase(
        f"{adjective.english} {noun.english_plural}",
        f"{italian.definite(noun.italian_plural, gender, plural=True)} {agreed}",
        parts=(adjective.lemma, noun.lemma),
    )
    return sentence(form, clause(subject, lexicon.verb("have", "verb"), "present", features, form=form))


def this_is(draw: Draw) -> Draft:
    """This is my sister. — Questa è mia sorella."""
    noun = draw.noun(
        "family", "thing", "clothes", "vehicle", "home", "acquaintance", "pet", "furniture", "sight", "idea"
    )
    plural, family = draw.is_plural(noun), "family" in noun.kinds
    owned = plural or family or (draw.chance(0.5) and not noun.kinds & {"sight"})
    adjective = draw.adjective(noun) if not family and draw.chance(0.35) else None
    thing = noun_phrase(noun, draw.owner(noun) if owned else "a", plural, adjective)
    return be(pointer(thing, draw.chance(0.6)), thing, draw.form())


def belonging(owner: Phrase, noun: Noun, plural: bool = False) -> Phrase:
    """Return somebody's thing: "Maria's house", "la casa di Maria"."""
    thing = noun_phrase(noun, "the", plural)
    return Phrase(
        f"{owner.english}'s {noun.english_plural if plural else noun.english}",
        f"{thing.italian} {italian.preposition('di', owner.italian)}",
        thing.person,
        thing.gender,
        owner.parts + thing.parts,
    )


def belonging_is(draw: Draw) -> Draft:
    """My brother's car is new. — La macchina di mio fratello è nuova."""
    owner, noun = draw.named(), draw.noun("thing", "clothes", "vehicle", "home", "pet")
    relative = draw.noun("family", "acquaintance")
    if relative.has_singular and draw.chance(0.55):
        owner = noun_phrase(relative, draw.owner(relative))
    thing = belonging(owner, noun, draw.is_plural(noun))
    adjective = draw.adjective(noun, predicate=True)
    style = draw.one(("this is", "where", "is", "is"))
    if style == "this is":
        return be(pointer(thing, draw.chance(0.6)), thing, draw.form())
    if style == "where" or adjective is None:
        return where(thing)
    return be(thing, adjective_phrase(adjective, thing), draw.form())


def is_mine(draw: Draw) -> Draft:
    """This book is mine. — Questo libro è mio."""
    noun = draw.noun("thing", "clothes", "vehicle", "pet", "home", "holder")
    thing = noun_phrase(noun, draw.one(("the", "this", "that")), draw.is_plural(noun))
    owner = draw.one(POSSESSIVES)
    return be(thing, plain(_MINE[owner], italian.possessive(owner, thing.gender, thing.plural)), draw.form())


def whose(draw: Draw) -> Draft:
    """Whose shoes are these? — Di chi sono queste scarpe?"""
    noun = draw.noun("thing", "clothes", "vehicle", "pet", "home", "holder")
    thing = noun_phrase(noun, draw.one(("this", "that")), draw.is_plural(noun))
    pointing, _, bare = thing.english.partition(" ")
    are, sono = ("are", "sono") if thing.plural else ("is", "è")
    return Draft(f"whose {bare} {are} {pointing}", f"di chi {sono} {thing.italian}", thing.parts, "wh")


def where(thing: Phrase) -> Draft:
    """Question: where is the station? — Dov'è la stazione?"""
    return draft(plain("where are", "dove sono") if thing.plural else plain("where is", "dov'è"), thing, mark="wh")


def where_is(draw: Draw) -> Draft:
    """Question: where are my keys? — Dove sono le mie chiavi?"""
    kinds = ("family", "person", "public", "thing", "clothes", "pet", "sight", "room", "vehicle")
    return where(draw.known(draw.noun(*kinds)))


def location(draw: Draw, noun: Noun) -> Phrase:
    """Draw a place that suits a thing: small ones on a table, people in the kitchen, buildings near the station."""
    small = bool(noun.kinds & {"thing", "dish", "clothes", "single"})
    if not small and "public" not in noun.kinds and draw.chance(0.7):
        return _site(draw, noun)
    around = {"furniture", "surface", "holder"} if small else {"landmark", "spot"}
    entry = draw.rare([word for word in lexicon.words_of("where") if word.kinds & around])
    target = draw.rare([other for other in lexicon.nouns_of(*(entry.kinds & around)) if other is not noun])
    owned = small and draw.chance(0.2)
    site = noun_phrase(target, draw.owner(target) if owned else "the")
    return with_preposition(entry.english, entry.italian, site, entry.lemma)


def _site(draw: Draw, noun: Noun) -> Phrase:
    """Draw a usual place of people, pets and vehicles."""
    kinds = {"room", "outdoors"} if "pet" in noun.kinds else {"nature", "sight"} if "vehicle" in noun.kinds else set()
    places = [site for site in lexicon.places() if not kinds or site.kinds & kinds]
    return place(draw.rare(places), "at")


def is_somewhere(draw: Draw) -> Draft:
    """The keys are on the table. — Le chiavi sono sul tavolo."""
    noun = draw.noun("thing", "dish", "clothes", "single", "pet", "person", "family", "public", "vehicle")
    tense: english.Tense = draw.one(("present", "present", "past"))
    return be(draw.known(noun, adjective=0.15), location(draw, noun), draw.form(), tense)


def there_is(draw: Draw) -> Draft:
    """There are two books in the bag. — Ci sono due libri nella borsa."""
    noun = draw.noun("thing", "dish", "clothes", "single", "pet", "person", "public", "vehicle")
    plural = draw.is_plural(noun)
    if plural and "pair" not in noun.grammar and "public" not in noun.kinds and draw.chance(0.6):
        thing = draw.quantity(noun)
    elif plural:
        thing = noun_phrase(noun, "some", plural=True)
    else:
        thing = noun_phrase(noun, "a", adjective=draw.adjective(noun) if draw.chance(0.3) else None)
    opening = _THERE_IS[draw.one(("present", "present", "past")), plural]
    if draw.chance(0.25):
        there, be_form = opening.english.split()
        return draft(plain(f"{be_form} {there}", opening.italian), thing, location(draw, noun), mark="?")
    return draft(opening, thing, location(draw, noun))
