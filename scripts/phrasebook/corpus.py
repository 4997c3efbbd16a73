"""The sentences of all patterns, split into training, validation and test text."""

import itertools
import random
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, cast

from phrasebook import english, lexicon
from phrasebook.draw import Draw
from phrasebook.patterns import PATTERNS, Pattern
from phrasebook.phrases import Mark

VALID_SIZE = 500
TEST_SIZE = 500
UNSEEN_TEST_SIZE = 250  # test sentences with a word combination that train never contains

_TRAIN_START = VALID_SIZE + 2 * TEST_SIZE  # the ordinary test sentences are taken from a pool twice the size of test
_HELD_OUT_ONE_IN = 40
_LONGEST = 12  # words
_TRIES = 4  # draws of a pattern before it gives up on finding a new sentence
_TWICE = 0.2  # share of training sentences that come both with and without their final mark
_CONTRACTED = 0.4  # share of sentences with "don't" for "do not"
_VERB_PARTS = ("verb", "action", "motion", "move", "reflexive", "giving")


@dataclass(frozen=True)
class Sentence:
    """A finished sentence pair.

    Attributes:
        english: with its capital and, if it has one, its final mark.
        italian: likewise.
        pattern: the name of the pattern that made it.
        parts: its content lemmas, by their English names.
    """

    english: str
    italian: str
    pattern: str
    parts: tuple[str, ...]


class _Body(NamedTuple):
    """A sentence without its capital and its final mark; "wh" stands for a question whose mark may be missing."""

    english: str
    italian: str
    pattern: str
    parts: tuple[str, ...]
    mark: Mark


def table() -> str:
    """Return the whole corpus as TSV without a header: split, English, Italian."""
    rows = (f"{split}\t{one.english}\t{one.italian}\n" for split, text in corpus().items() for one in text)
    return "".join(rows)


def held_out_combinations(parts: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return the pairs of a noun and a verb or adjective among some lemmas that only test sentences may contain.

    One pair in forty is held out, chosen by a checksum of the two words.
    """
    nouns, others = _nouns_and_companions()
    pairs = itertools.product((p for p in parts if p in nouns), (p for p in parts if p in others))
    return [pair for pair in pairs if zlib.crc32("+".join(pair).encode()) % _HELD_OUT_ONE_IN == 0]


@cache
def _nouns_and_companions() -> tuple[frozenset[str], frozenset[str]]:
    companions = (*lexicon.verbs_of(*_VERB_PARTS), *lexicon.words_of("adjective"))
    return frozenset(noun.lemma for noun in lexicon.nouns()), frozenset(word.lemma for word in companions)


@cache
def corpus() -> dict[str, tuple[Sentence, ...]]:
    """Generate all sentences by split; test candidates with a word that train lacks are dropped."""
    rng = random.Random("splits 1")
    bodies = _bodies()
    rng.shuffle(bodies)
    known: list[_Body] = []
    unseen: list[_Body] = []
    for body in bodies:
        (unseen if held_out_combinations(body.parts) else known).append(body)
    valid, spare = known[:VALID_SIZE], known[VALID_SIZE:_TRAIN_START]
    train = known[_TRAIN_START:] + _phrases()
    vocabulary = {word for body in train for word in _words(body)}
    unseen_test = itertools.islice(_within(unseen, vocabulary), UNSEEN_TEST_SIZE)
    known_test = itertools.islice(_within(spare, vocabulary), TEST_SIZE - UNSEEN_TEST_SIZE)
    test = [*unseen_test, *known_test]
    lines = [sentence for body in train for sentence in _variants(body, rng)]
    rng.shuffle(lines)
    return {
        "train": tuple(lines),
        "valid": tuple(_finish(body, _mark(body, rng), rng) for body in valid),
        "test": tuple(_finish(body, _mark(body, rng), rng) for body in test),
    }


def _within(bodies: Iterable[_Body], vocabulary: set[str]) -> Iterator[_Body]:
    """Select the bodies whose words are all known."""
    return (body for body in bodies if vocabulary.issuperset(_words(body)))


def _phrases() -> list[_Body]:
    """Return the set phrases, which are learned by heart and therefore all in train."""
    rows = lexicon.words_of("phrase")
    return [_Body(row.english, row.italian, "phrase", (), cast(Mark, min(row.grammar))) for row in rows]


def _bodies() -> list[_Body]:
    """Draw the quota of every pattern, each English sentence once.

    Raises:
        ValueError: two patterns translate the same English differently.
    """
    draw = Draw("phrasebook 1")
    translations = {phrase.english.lower(): phrase.italian.lower() for phrase in _phrases()}
    bodies: list[_Body] = []
    for pattern in _schedule():
        for _ in range(_TRIES):
            draft = pattern(draw)
            key, italian = draft.english.lower(), draft.italian.lower()
            if translations.get(key, italian) != italian:
                raise ValueError(f"{key!r} is {translations[key]!r} and {italian!r}")
            if key not in translations and len(key.split()) <= _LONGEST:
                translations[key] = italian
                bodies.append(_Body(draft.english, draft.italian, pattern.__name__, draft.parts, draft.mark))
                break
    return bodies


def _schedule() -> list[Pattern]:
    """Return every pattern as often as its quota, shuffled so that rare words are spread evenly over the patterns."""
    schedule = [pattern for pattern, quota in PATTERNS for _ in range(quota)]
    random.Random("schedule 1").shuffle(schedule)
    return schedule


def _words(body: _Body) -> list[str]:
    return re.findall(r"\w+'?", f"{body.english} {body.italian}".lower())


def _variants(body: _Body, rng: random.Random) -> list[Sentence]:
    """Return a training sentence once, or twice: with and without its final mark."""
    mark = _mark(body, rng)
    variants = [_finish(body, mark, rng)]
    if body.pattern == "phrase" or (body.mark in {".", "wh"} and rng.random() < _TWICE):
        variants.append(_finish(body, "" if mark else body.mark.replace("wh", "?"), rng))
    return variants


def _mark(body: _Body, rng: random.Random) -> str:
    """Draw the final mark: three of five statements have one, most wh-questions, and all other sentences."""
    share = {".": 0.6, "wh": 0.8}.get(body.mark, 1.0)
    return body.mark.replace("wh", "?") if rng.random() < share else ""


def _finish(body: _Body, mark: str, rng: random.Random) -> Sentence:
    """Add the capital and the final mark on both sides, and sometimes contract the English."""
    english_text = english.contract(body.english) if rng.random() < _CONTRACTED else body.english
    return Sentence(
        english_text[0].upper() + english_text[1:] + mark,
        body.italian[0].upper() + body.italian[1:] + mark,
        body.pattern,
        body.parts,
    )
