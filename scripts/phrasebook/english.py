"""English words in their right form: plurals, verbs with their auxiliaries, comparatives, numbers, clock times.

Spelling is American where it matters. Persons are counted as in `italian_verbs`: I, you, he/she, we, you all, they.
"""

import re
from collections.abc import Callable
from typing import Literal, NamedTuple

Tense = Literal["present", "past", "perfect", "used", "future", "progressive"]

_PRESENT_OF_BE = ("am", "are", "is", "are", "are", "are")
_PAST_OF_BE = ("was", "were", "was", "were", "were", "were")
_PURE_AUXILIARIES = frozenset({"can", "must"})
_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_CONTRACTIONS = (
    (r"\b([Cc])annot\b", r"\1an't"),
    (r"\bwill not\b", "won't"),
    (r"\b([Dd]o|[Dd]oes|[Dd]id|is|are|was|were|have|has) not\b", r"\1n't"),
    (r"\bI am\b", "I'm"),
    (r"\b([Yy]ou|[Ww]e|[Tt]hey) are\b", r"\1're"),
    (r"\b([Hh]e|[Ss]he|[Ii]t) is\b", r"\1's"),
    (r"\b(I|[Yy]ou|[Hh]e|[Ss]he|[Ww]e|[Tt]hey) will\b", r"\1'll"),
)


class Verb(NamedTuple):
    """The forms of an English verb that are not derived; of "look for" the first word is inflected."""

    base: str
    past: str
    participle: str


class Group(NamedTuple):
    """A verb cut in two where "not", an adverb, or the subject of a question goes."""

    auxiliary: str
    main: str


def verb(forms: str) -> Verb:
    """Read "eat/ate/eaten", "find/found", or a regular "use" whose past is derived."""
    base, *irregular = forms.split("/")
    past = irregular[0] if irregular else _inflect(base, _regular_past)
    return Verb(base, past, irregular[1] if len(irregular) > 1 else past)


def _inflect(base: str, rule: Callable[[str], str]) -> str:
    first, space, rest = base.partition(" ")
    return rule(first) + space + rest


def third_person(base: str) -> str:
    """Return the present of he, she, it: "eats", "goes", "studies", "looks for"."""
    return "has" + base[4:] if base.split()[0] == "have" else _inflect(base, _add_s)


def ing(base: str) -> str:
    """Return the present participle: "eating", "writing", "running", "looking for"."""

    def rule(word: str) -> str:
        if word.endswith("e") and word != "be" and not word.endswith("ee"):
            return word[:-1] + "ing"
        return _doubled(word) + "ing"

    return _inflect(base, rule)


def plural(noun: str) -> str:
    """Return the regular plural: "boxes", "stories", "books"; "ice cream" is inflected at its end."""
    return _add_s(noun)


def _add_s(word: str) -> str:
    if re.search(r"(s|x|z|ch|sh|go|do)$", word):
        return word + "es"
    return re.sub(r"(?<![aeiou])y$", "ie", word) + "s"


def _regular_past(word: str) -> str:
    if word.endswith("e"):
        return word + "d"
    return re.sub(r"(?<![aeiou])y$", "i", _doubled(word)) + "ed"


def _doubled(word: str) -> str:
    """Double the last consonant of a short syllable, as in "running" and "bigger"."""
    return word + word[-1] if re.fullmatch(r"[^aeiou]*[aeiou][^aeiouwxy]|forget|begin", word) else word


def comparative(adjective: str) -> str:
    """Return the comparative: "taller", "bigger", "heavier", but "more famous"."""
    if adjective.endswith("y"):
        return adjective[:-1] + "ier"
    if len(re.findall(r"[aeiou]+", adjective.removesuffix("e"))) > 1:
        return f"more {adjective}"
    return _doubled(adjective).removesuffix("e") + "er"


def superlative(adjective: str) -> str:
    """Return the superlative without "the": "tallest", "most famous"."""
    form = comparative(adjective)
    return f"most {adjective}" if form.startswith("more ") else form.removesuffix("er") + "est"


def a(phrase: str) -> str:
    """Put "a" or "an" in front, by the first sound of the phrase."""
    vowel = phrase[0].lower() in "aeiou" and not phrase.startswith("uni")
    return f"{'an' if vowel else 'a'} {phrase}"


def verb_group(word: Verb, person: int, tense: Tense, do_support: bool = False) -> Group:
    """Return the verb of a clause, cut after its auxiliary.

    Args:
        word: the verb; "can" and "must" are auxiliaries themselves.
        person: 0 to 5.
        tense: "used" is "used to eat".
        do_support: negations and questions need "do" where there is no other auxiliary.
    """
    third = person == 2
    if tense == "future":
        return Group("will", word.base)
    if tense == "perfect":
        return Group("has" if third else "have", word.participle)
    if tense == "progressive":
        return Group(_PRESENT_OF_BE[person], ing(word.base))
    if tense == "used":
        return Group("did", f"use to {word.base}") if do_support else Group("", f"used to {word.base}")
    if word.base == "be":
        return Group((_PRESENT_OF_BE if tense == "present" else _PAST_OF_BE)[person], "")
    if word.base in _PURE_AUXILIARIES:
        return Group(word.base, "")
    if tense == "past":
        return Group("did", word.base) if do_support else Group("", word.past)
    if do_support:
        return Group("does" if third else "do", word.base)
    return Group("", third_person(word.base) if third else word.base)


def statement(subject: str, word: Verb, person: int, tense: Tense, negative: bool = False, adverb: str = "") -> str:
    """Return subject and verb of a statement: "she does not always eat"."""
    group = verb_group(word, person, tense, do_support=negative)
    words = (subject, group.auxiliary, "not" if negative else "", adverb, group.main)
    return " ".join(filter(None, words)).replace("can not", "cannot")


def question(subject: str, word: Verb, person: int, tense: Tense, adverb: str = "") -> str:
    """Return subject and verb of a question: "does she always eat"."""
    group = verb_group(word, person, tense, do_support=True)
    return " ".join(filter(None, (group.auxiliary, subject, adverb, group.main)))


def contract(sentence: str) -> str:
    """Write "don't", "I'm", "she'll" and the like wherever that is possible."""
    for pattern, short in _CONTRACTIONS:
        sentence = re.sub(pattern, short, sentence)
    return sentence


def number(value: int) -> str:
    """Return a whole number from 0 to 100 in words: "twenty-one".

    Raises:
        ValueError: the number is out of range.
    """
    if not 0 <= value <= 100:
        raise ValueError(f"only numbers from 0 to 100 are known, not {value}")
    if value < len(_SMALL):
        return _SMALL[value]
    if value == 100:
        return "one hundred"
    tens, unit = divmod(value, 10)
    return f"{_TENS[tens]}-{_SMALL[unit]}" if unit else _TENS[tens]


def clock(hour: int, minute: int = 0) -> str:
    """Return a time of day: "three o'clock", "half past three", "ten to four", "noon"; see `italian_numbers.clock`."""
    if minute == 0 and hour in (0, 12):
        return "noon" if hour else "midnight"
    if minute > 30:
        return f"{_minutes(60 - minute)} to {number(hour % 12 + 1)}"
    return f"{_minutes(minute)} past {number(hour)}" if minute else f"{number(hour)} o'clock"


def _minutes(minute: int) -> str:
    return {15: "a quarter", 30: "half"}.get(minute) or number(minute)
