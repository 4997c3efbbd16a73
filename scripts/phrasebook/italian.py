"""Italian words in their right form: articles, plurals, agreement, prepositions, pronouns.

Everything here is a rule of school grammar; the verbs are in `italian_verbs`, numbers and clock times in
`italian_numbers`. Functions that put a short word in front of a phrase take the whole phrase, because Italian chooses
the form by the sound that follows, whatever word that is: "lo specchio" but "il vecchio specchio".
"""

import re
from typing import NamedTuple

_VOWELS = "aeiouàèéìòù"
_INVARIABLE_ADJECTIVES = frozenset({"blu", "rosa"})
# After l', un', d', quest' no space follows; after po' and va' it does.
_ELIDED = re.compile(r"(?<=[lndt])' ")
_FUSED_STEMS = {"di": "de", "a": "a", "da": "da", "in": "ne", "su": "su"}
_FUSED_ENDINGS = {"il": "l", "lo": "llo", "la": "lla", "i": "i", "gli": "gli", "le": "lle"}
_OWNERS = {"my": "mio", "your": "tuo", "his": "suo", "her": "suo", "our": "nostro", "their": "loro"}


class Pronoun(NamedTuple):
    """One person in all its roles; `person` counts from 0: io, tu, lui/lei, noi, voi, loro."""

    english: str
    english_object: str
    english_owner: str
    person: int
    gender: str
    direct: str
    indirect: str
    stressed: str


PRONOUNS = (
    Pronoun("I", "me", "my", 0, "m", "mi", "mi", "me"),
    Pronoun("you", "you", "your", 1, "m", "ti", "ti", "te"),
    Pronoun("he", "him", "his", 2, "m", "lo", "gli", "lui"),
    Pronoun("she", "her", "her", 2, "f", "la", "le", "lei"),
    Pronoun("we", "us", "our", 3, "m", "ci", "ci", "noi"),
    Pronoun("you all", "you all", "", 4, "m", "vi", "vi", "voi"),
    Pronoun("they", "them", "their", 5, "m", "li", "gli", "loro"),
)


def starts_with_vowel(text: str) -> bool:
    """Return whether the phrase begins with a vowel sound; h is silent."""
    return text[0].lower() in _VOWELS + "h"


def takes_lo(text: str) -> bool:
    """Return whether a masculine phrase takes "lo, uno": it begins with z, x, y, gn, ps, or s before a consonant."""
    word = text.lower()
    if word[0] in "zxy" or word[:2] in {"gn", "ps", "pn"}:
        return True
    return word[0] == "s" and word[1] not in _VOWELS


def join(*words: str) -> str:
    """Join words with spaces, leaving out empty ones; an elided word ("l'") clings to the next."""
    return _ELIDED.sub("'", " ".join(filter(None, words)))


def definite(phrase: str, gender: str, plural: bool = False) -> str:
    """Put the definite article in front: "l'acqua", "lo zaino", "gli amici"."""
    if plural:
        masculine = "gli" if starts_with_vowel(phrase) or takes_lo(phrase) else "i"
        return join("le" if gender == "f" else masculine, phrase)
    if starts_with_vowel(phrase):
        return join("l'", phrase)
    masculine = "lo" if takes_lo(phrase) else "il"
    return join("la" if gender == "f" else masculine, phrase)


def indefinite(phrase: str, gender: str) -> str:
    """Put the indefinite article in front: "un'amica", "uno zaino", "un amico"."""
    if gender == "f":
        return join("un'" if starts_with_vowel(phrase) else "una", phrase)
    return join("uno" if takes_lo(phrase) else "un", phrase)


def partitive(phrase: str, gender: str, plural: bool = False) -> str:
    """Put the partitive article, "some", in front: "del pane", "dell'acqua", "degli amici"."""
    return preposition("di", definite(phrase, gender, plural))


def preposition(word: str, phrase: str) -> str:
    """Put a preposition in front and fuse it with the article that may follow.

    "a" + "la casa" is "alla casa", "vicino a" + "l'albero" is "vicino all'albero", "di" + "mia madre" stays "di mia
    madre". A plain "a" becomes "ad" before another a, as in "ad Anna".
    """
    lead, _, last = word.rpartition(" ")
    stem = _FUSED_STEMS.get(last)
    first, _, rest = phrase.partition(" ")
    if stem and first in _FUSED_ENDINGS:
        return join(lead, stem + _FUSED_ENDINGS[first], rest)
    if stem and phrase.startswith("l'"):
        return join(lead, f"{stem}l{phrase}")
    if last == "a" and phrase[0] in "aA":
        return join(lead, "ad", phrase)
    return join(word, phrase)


def elided_di(phrase: str) -> str:
    """Put "of" without an article in front, as in measures: "un bicchiere d'acqua", "una tazza di tè"."""
    return join("d'" if starts_with_vowel(phrase) else "di", phrase)


def and_(first: str, second: str) -> str:
    """Join two phrases with "e", which is "ed" before another e."""
    return f"{first} {'ed' if second[0] in 'eE' else 'e'} {second}"


def plural_noun(noun: str, gender: str) -> str:
    """Return the regular plural: "libri", "case", "amiche", "camicie"; accented and consonant endings stay."""
    ending, stem = noun[-1], noun[:-1]
    if ending == "a" and gender == "f":
        return _feminine_plural(stem)
    if ending in "ae":
        return stem + "i"
    if ending == "o" and gender == "m":
        return _masculine_plural(stem)
    return noun


def _feminine_plural(stem: str) -> str:
    if stem[-1] in "cg":
        return stem + "he"
    # "arancia" loses its silent i and "camicia" keeps it: what counts is the letter before c or g.
    if stem[-2:] in {"ci", "gi"} and stem[-3] not in _VOWELS:
        return stem[:-1] + "e"
    return stem + "e"


def _masculine_plural(stem: str) -> str:
    if stem[-1] in "cg":
        return stem + "hi"
    return stem if stem[-1] == "i" else stem + "i"


def agree(adjective: str, gender: str, plural: bool = False) -> str:
    """Make an adjective or a participle agree: "rosso, rossa, rossi, rosse"; "felice, felici"; "blu"."""
    if adjective in _INVARIABLE_ADJECTIVES:
        return adjective
    if adjective.endswith("e"):
        return adjective[:-1] + "i" if plural else adjective
    stem = adjective[:-1]
    if not plural:
        return stem + ("a" if gender == "f" else "o")
    if gender == "f":
        return stem + ("he" if stem[-1] in "cg" else "e")
    # "simpatico, simpatici", but "stanco, stanchi" and "lungo, lunghi".
    return stem + "i" if stem.endswith("ic") else _masculine_plural(stem)


def adjective_before(adjective: str, noun: str, gender: str, plural: bool = False) -> str:
    """Put an adjective before its noun; there "bello" behaves like the article and "buono" loses its -o."""
    if adjective == "bello":
        return join(_article_like("be", noun, gender, plural), noun)
    if adjective == "buono" and gender == "m" and not plural and not takes_lo(noun):
        return f"buon {noun}"
    return f"{agree(adjective, gender, plural)} {noun}"


def that(phrase: str, gender: str, plural: bool = False) -> str:
    """Put "that, those" in front: "quel libro", "quello zaino", "quell'amica", "quei cani", "quegli amici"."""
    return join(_article_like("que", phrase, gender, plural), phrase)


def _article_like(stem: str, phrase: str, gender: str, plural: bool) -> str:
    """Return the form of "quello" or "bello", which ends like a fused preposition."""
    return preposition("di", definite(phrase, gender, plural)).removesuffix(phrase).strip().replace("de", stem, 1)


def this(phrase: str, gender: str, plural: bool = False) -> str:
    """Put "this, these" in front: "questo libro", "quest'anno", "queste case"."""
    if not plural and starts_with_vowel(phrase):
        return f"quest'{phrase}"
    return f"{agree('questo', gender, plural)} {phrase}"


def possessive(owner: str, gender: str, plural: bool = False) -> str:
    """Return the possessive that agrees with the thing owned, as "mia"; `owner` is the English "my", "your" ..."""
    word = _OWNERS[owner]
    if word == "loro":
        return word
    if gender == "m" and plural:
        return {"mio": "miei", "tuo": "tuoi", "suo": "suoi"}.get(word, "nostri")
    return agree(word, gender, plural)
