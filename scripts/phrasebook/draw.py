"""Random but even choice of words and phrases: rarer words first, and only meaningful combinations."""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Literal, TypeVar

from phrasebook import lexicon
from phrasebook.italian import PRONOUNS, Pronoun, and_
from phrasebook.lexicon import Noun, Verb, Word
from phrasebook.phrases import Form, Phrase, noun_phrase, place, plain, pronoun_subject, region, said

T = TypeVar("T")
W = TypeVar("W", bound=Word)

POSSESSIVES = ("my", "your", "his", "her", "our", "their")
# What can be somebody's: not a river, a lion or a tourist.
_OWNABLE = frozenset(
    "family acquaintance pet food drink meal thing clothes vehicle home furniture dish holder instrument room".split()
)
# "You all" is half as frequent as the others, and one asks more about others than about oneself.
_SPEAKERS = tuple(pronoun for pronoun in PRONOUNS for _ in range(1 if pronoun.person == 4 else 2))
_ASKED = tuple(pronoun for pronoun in _SPEAKERS if pronoun.person not in {0, 3}) * 3 + (PRONOUNS[0], PRONOUNS[4])
# How often each determiner is drawn; "own" is a possessive, "number" a number.
_SINGULAR = {"the": 45, "a": 28, "this": 7, "that": 7, "own": 18}
_PLURAL = {"the": 45, "this": 7, "that": 7, "own": 15, "number": 10, "some": 10, "many": 4}
_MASS = {"the": 45, "some": 22, "this": 8, "own": 12, "a lot of": 6}
_FAMILY = {"own": 1}
_ODD_IF_NEGATED = frozenset({"some", "number", "many", "a lot of"})


class Draw:
    """A source of random words; it counts the words that it returns, so that none is neglected."""

    def __init__(self, seed: str) -> None:
        self._rng = random.Random(seed)
        self._used: Counter[str] = Counter()

    def chance(self, probability: float) -> bool:
        """Return True with a probability."""
        return self._rng.random() < probability

    def one(self, options: Sequence[T]) -> T:
        """Draw one of the options, all equally likely."""
        return options[int(self._rng.random() * len(options))]

    def number(self, low: int, high: int) -> int:
        """Draw a whole number, both ends included."""
        return self._rng.randint(low, high)

    def rare(self, words: Sequence[W]) -> W:
        """Draw three words and return the one that was returned least so far, which keeps the corpus even."""
        chosen = self.one(words)
        for _ in range(2):
            other = self.one(words)
            if self._used[other.lemma] < self._used[chosen.lemma]:
                chosen = other
        self._used[chosen.lemma] += 1
        return chosen

    # --- single words

    def noun(self, *kinds: str) -> Noun:
        """Draw a noun of one of the kinds."""
        return self.rare(lexicon.nouns_of(*kinds))

    def verb(self, *parts: str, progressive: bool = False) -> Verb:
        """Draw a verb of one of the parts; with `progressive`, one that can stand in the progressive."""
        verbs = lexicon.verbs_of(self.one(parts))
        return self.rare([verb for verb in verbs if "no-ing" not in verb.grammar] if progressive else verbs)

    def word(self, *parts: str, kind: str = "") -> Word:
        """Draw an adverb, a city, a name ..."""
        return self.rare(lexicon.words_of(*parts, kind=kind))

    def adjective(self, noun: Noun, *, predicate: bool = False, barred: frozenset[str] = frozenset()) -> Word | None:
        """Draw an adjective that fits, if there is one; a predicate may be one that never stands beside a noun."""
        fitting = [word for word in lexicon.adjectives_for(noun) if predicate or "state" not in word.grammar]
        fitting = [word for word in fitting if word.lemma not in barred and word.part not in barred]
        return self.rare(fitting) if fitting else None

    def pronoun(self, *, other_than: Phrase | None = None) -> Pronoun:
        """Draw a pronoun; `other_than` excludes objects like the subject, as in "I see me" or "you see you all"."""
        barred = {other_than.person, (other_than.person + 3) % 6} - {2, 5} if other_than else set[int]()
        return self.one([pronoun for pronoun in PRONOUNS if pronoun.person not in barred])

    # --- adverbials

    def form(self) -> Form:
        """Draw statement, negation or yes/no question."""
        return self.one(("statement", "statement", "statement", "negative", "question"))

    def when(self, kind: str, probability: float = 1.0) -> Phrase:
        """Draw a time that goes with a tense, or nothing."""
        return said(self.word("when", kind=kind)) if self.chance(probability) else plain("")

    def manner(self, verb: Verb, probability: float = 1.0) -> Phrase:
        """Draw an adverb of manner, if one goes with the verb."""
        fitting = lexicon.words_of("how", kind=verb.lemma)
        return said(self.rare(fitting)) if fitting and self.chance(probability) else plain("")

    def place(self, direction: Literal["at", "to"], *, rooms: bool = False) -> Phrase:
        """Draw a place to be at or go to: a building, a city, a country; with `rooms`, also a kitchen and the like."""
        if self.chance(0.25):
            return region(self.word("city", "country"), direction)
        places = [site for site in lexicon.places() if rooms or "room" not in site.kinds]
        return place(self.rare(places), direction)

    def place_for(self, verb: Verb) -> Phrase:
        """Draw a place that goes with the verb: one swims at the lake."""
        sites = lexicon.nouns_for(verb)
        return place(self.rare(sites), "at") if sites else region(self.word("city", "country"), "at")

    # --- things

    def is_plural(self, noun: Noun) -> bool:
        """Draw singular or plural."""
        return not noun.has_singular or (noun.has_plural and self.chance(0.33))

    def owner(self, noun: Noun) -> str:
        """Draw a possessive that goes with the noun: "his wife" and "her husband", but not "our wife"."""
        barred = {"wife": {"her", "our", "their"}, "husband": {"his", "our", "their"}}.get(noun.lemma, set[str]())
        return self.one([owner for owner in POSSESSIVES if owner not in barred])

    def thing(self, noun: Noun, form: Form = "statement", owner: str = "", adjective: float = 0.22) -> Phrase:
        """Draw a noun phrase with a determiner that suits the noun.

        Args:
            noun: its noun.
            form: of the clause: "some" and numbers sound odd under a negation.
            owner: a possessive that is likelier than others, as in "I lost my keys".
            adjective: how often it has one.
        """
        plural = self.is_plural(noun)
        return noun_phrase(noun, self._determiner(noun, plural, form, owner), plural, self._attribute(noun, adjective))

    def known(self, noun: Noun, adjective: float = 0.25) -> Phrase:
        """Draw somebody or something both speakers know, fit to be a subject: "the", "my", sometimes "this"."""
        plural = self.is_plural(noun)
        options = ["the"] * 6 + ["this", "that"] + [""] * (0 if noun.kinds.isdisjoint(_OWNABLE) else 3)
        determiner = "" if "family" in noun.kinds else self.one(options)
        return noun_phrase(noun, determiner or self.owner(noun), plural, self._attribute(noun, adjective))

    def quantity(self, noun: Noun) -> Phrase:
        """Draw several of something: "three apples", "many friends"."""
        numbers = [str(number) for number in range(2, 6 if "family" in noun.kinds else 21)]
        return noun_phrase(noun, self.one(["many", "few", "too many", *numbers]), plural=True)

    def _attribute(self, noun: Noun, probability: float) -> Word | None:
        return self.adjective(noun) if "family" not in noun.kinds and self.chance(probability) else None

    def _determiner(self, noun: Noun, plural: bool, form: Form, owner: str) -> str:
        weights = _FAMILY if "family" in noun.kinds else _PLURAL if plural else _SINGULAR
        weights = _MASS if "mass" in noun.grammar else weights
        barred = set(_ODD_IF_NEGATED) if form == "negative" else {"number", "many"} if "pair" in noun.grammar else set()
        if noun.kinds.isdisjoint(_OWNABLE):
            barred.add("own")
        options = [option for option in weights if option not in barred]
        choice = self._rng.choices(options, [weights[option] for option in options])[0]
        if choice == "own":
            return owner if owner and self.chance(0.65) else self.owner(noun)
        return str(self.number(2, 12)) if choice == "number" else choice

    def object_of(self, verb: Verb, subject: Phrase, form: Form = "statement") -> Phrase:
        """Draw something that can be the object of the verb."""
        return self.thing(self.rare(lexicon.nouns_for(verb)), form, subject.owner)

    # --- people

    def subject(
        self, *, pronoun: float = 0.45, animal: bool = False, roles: bool = True, asked: bool = False
    ) -> Phrase:
        """Draw somebody: a pronoun, a name, two names, a relative, somebody at work; or an animal.

        Args:
            pronoun: how often it is one.
            animal: whether animals do such things, too.
            roles: whether it can be "the teacher", "the woman" and the like.
            asked: in a question one speaks rather of you and of others than of me.
        """
        if self.chance(pronoun):
            return pronoun_subject(self.one(_ASKED if asked else _SPEAKERS))
        kind = self._rng.random() * (1 if roles else 0.6)
        if kind < 0.25:
            return self.named()
        if kind < 0.32:
            return self.couple()
        if kind < 0.6:
            return self.known(self.noun("family"))
        return self.known(self.noun("animal" if animal and kind > 0.75 else "person"))

    def speaker(self, *, pronoun: float = 0.45, animal: bool = False, roles: bool = True) -> tuple[Phrase, Form]:
        """Draw a subject and the form of its clause; one rarely asks about oneself."""
        form = self.form()
        return self.subject(pronoun=pronoun, animal=animal, roles=roles, asked=form == "question"), form

    def other(self, than: Phrase) -> Phrase:
        """Draw somebody else, not a pronoun."""
        other = self.subject(pronoun=0)
        while set(other.parts) & set(than.parts):
            other = self.subject(pronoun=0)
        return other

    def named(self) -> Phrase:
        """Draw a person with a name."""
        name = self.word("name")
        owner = "her" if name.gender == "f" else "his"
        return Phrase(name.english, name.italian, 2, name.gender, (name.lemma,), owner)

    def couple(self) -> Phrase:
        """Draw two people with names: feminine only if both are."""
        first, second = self.named(), self.named()
        while first == second:
            second = self.named()
        gender = "f" if first.gender == second.gender == "f" else "m"
        english_names = f"{first.english} and {second.english}"
        return Phrase(
            english_names, and_(first.italian, second.italian), 5, gender, first.parts + second.parts, "their"
        )
