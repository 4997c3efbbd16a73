"""True word alignments of the phrasebook: links of content words, whose lemmas each sentence names.

Function words have no true counterpart in the other language, and are left out; so are words of several tokens.
"""

import re
from functools import cache

from phrasebook import english, italian, italian_verbs, lexicon
from phrasebook.corpus import Sentence
from phrasebook.lexicon import Noun, Verb, Word

_TOKEN = re.compile(r"\w+|[^\w\s]")
_AUXILIARIES = frozenset({"be", "have", "do"})


def tokens(text: str) -> list[str]:
    """Split a text into words and punctuation marks, in lower case."""
    return _TOKEN.findall(text.lower())


def true_links(sentence: Sentence) -> set[tuple[int, int]]:
    """Return (English token, Italian token) of each content word that occurs once on both sides, counted from 0."""
    sides = tokens(sentence.english), tokens(sentence.italian)
    links = set()
    for lemma in set(sentence.parts) - _AUXILIARIES:
        forms = _forms().get(lemma, ((), ()))
        places = [[i for i, token in enumerate(side) if token in form] for side, form in zip(sides, forms, strict=True)]
        if all(len(found) == 1 for found in places):
            links.add((places[0][0], places[1][0]))
    return links


@cache
def _forms() -> dict[str, tuple[frozenset[str], frozenset[str]]]:
    """Return the English and Italian forms of each lemma that has one meaning."""
    forms: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
    for word in (*lexicon.nouns(), *lexicon.verbs_of(*lexicon.VERB_PARTS), *lexicon.words_of(*_PARTS)):
        both = tuple(frozenset(form.lower() for form in side) for side in (_english(word), _italian(word)))
        forms[word.lemma] = tuple(a | b for a, b in zip(forms.get(word.lemma, both), both, strict=True))  # type: ignore[assignment]
    return forms


_PARTS = ("adjective", "nationality", "city", "country", "day", "game", "how", "month", "name", "season", "when")


def _english(word: Word) -> list[str]:
    if isinstance(word, Noun):
        return [word.english, word.english_plural]
    if isinstance(word, Verb):
        one = word.inflected
        return [one.base, one.past, one.participle, english.third_person(one.base), english.ing(one.base)]
    if word.part == "adjective":
        return [word.english, english.comparative(word.english), english.superlative(word.english)]
    return [word.english]


def _italian(word: Word) -> list[str]:
    if isinstance(word, Noun):
        return [word.italian, word.italian_plural, word.option("fem")]
    if isinstance(word, Verb):
        tenses: tuple[italian_verbs.Tense, ...] = ("present", "imperfect", "future", "conditional")
        finite = [italian_verbs.conjugate(word.italian, person, tense) for person in range(6) for tense in tenses]
        done = italian_verbs.participle(word.italian)
        return [*finite, word.italian, italian_verbs.gerund(word.italian), *(done[:-1] + ending for ending in "oaie")]
    if word.part in ("adjective", "nationality"):
        return [italian.agree(word.italian, gender, plural) for gender in "mf" for plural in (False, True)]
    return [word.italian]
