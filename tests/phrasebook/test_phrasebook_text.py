"""The demo corpus: the shipped text is the generator's, its splits are clean, its Italian follows the conventions."""

import itertools
import re

import pytest

from mt.data.phrasebook import sentence_pairs
from phrasebook import lexicon
from phrasebook.corpus import Sentence, corpus, table

SHIPPED = {split: list(sentence_pairs(split)) for split in ("train", "valid", "test")}
PAIRS = [pair for pairs in SHIPPED.values() for pair in pairs]

# One pair or more for each convention in the docstring of the generator.
CONVENTIONS = {
    "I love you very much.": "Ti amo molto.",
    "You all repaired the windows last week.": "Avete riparato le finestre la settimana scorsa.",
    "His friend Giulia did not arrive this morning.": "La sua amica Giulia non è arrivata stamattina.",
    "She is a teacher.": "È un'insegnante.",
    "We had a cheap violin.": "Avevamo un violino economico.",
    "Marco used to eat at the beach.": "Marco mangiava in spiaggia.",
    "He is eating the tomatoes with oil": "Sta mangiando i pomodori con l'olio",
    "She can see you.": "Può vederti.",
    "I didn't help her": "Non l'ho aiutata",
    "His daughter will wait for her.": "Sua figlia la aspetterà.",
    "He did not invite us.": "Non ci ha invitato.",
    "She brought them a glass of milk": "Gli ha portato un bicchiere di latte",
    "What a beautiful island!": "Che bell'isola!",
    "Give us that cheap ring": "Dacci quell'anello economico",
    "Do you speak Italian?": "Parli italiano?",
    "Where does her father live?": "Dove abita suo padre?",
    "Her knees hurt.": "Le fanno male le ginocchia.",
    "The waiter is twenty years old": "Il cameriere ha vent'anni",
    "Their mother doesn't need a bed.": "La loro madre non ha bisogno di un letto.",
    "Giulia and Elena need a new newspaper": "Giulia ed Elena hanno bisogno di un nuovo giornale",
}
# Unfused prepositions and articles before the wrong sound.
IMPOSSIBLE = re.compile(
    r"\b(di|a|da|su) (il|lo|la|i|gli|l')\b|\bin (il|lo|la|i|gli|le|l')\b"
    r"|\b(il|i|del|al|nel|sul|dal|quel|bel) [aeiou]|\b(il|i|un|del|al|nel|sul|dal|quel|bel) (s[^aeiou]|z|ps|gn|y)"
    r"|(?<!')\buna [aeiou]|\bl'[^aeiouhAEIOUè]|\b(lo|la|mi|ti|ci|vi|si) (lo|la|mi|ti|ci|vi|si)\b"
)


def normalized(english: str) -> str:
    """The sentence in lower case without final mark and contractions."""
    text = english.rstrip(".!?").lower().replace("can't", "cannot").replace("won't", "will not").replace("n't", " not")
    return re.sub(r"'(m|re|ll)\b", lambda match: {"m": " am", "re": " are", "ll": " will"}[match[1]], text)


def combinations(sentence: Sentence) -> set[tuple[str, str]]:
    """All pairs of a noun with a verb or an adjective."""
    nouns = {noun.lemma for noun in lexicon.nouns()}
    others = {verb.lemma for verb in lexicon.verbs_of("verb", "action", "motion", "move", "reflexive", "giving")}
    others |= {adjective.lemma for adjective in lexicon.words_of("adjective")}
    return set(itertools.product(nouns & set(sentence.parts), others & set(sentence.parts)))


@pytest.mark.slow
def test_the_generator_writes_the_shipped_text() -> None:
    shipped = "".join(f"{split}\t{en}\t{it}\n" for split, pairs in SHIPPED.items() for en, it in pairs)
    assert table() == shipped, "run `python -m phrasebook` in the folder scripts"
    assert {split: len(pairs) for split, pairs in SHIPPED.items()} == {"train": 25_685, "valid": 500, "test": 500}


def test_no_sentence_is_in_two_splits() -> None:
    train, valid, test = ({normalized(english) for english, _ in pairs} for pairs in SHIPPED.values())
    assert train.isdisjoint(valid)
    assert test.isdisjoint(train | valid)
    assert len(valid) == len(test) == 500


def test_half_of_test_combines_words_in_new_ways_but_has_no_new_word() -> None:
    sentences = corpus()
    shown = set().union(*map(combinations, sentences["train"] + sentences["valid"]))
    assert sum(bool(combinations(sentence) - shown) for sentence in sentences["test"]) >= 250
    for side in (0, 1):
        train, test = (
            {word for pair in SHIPPED[split] for word in re.findall(r"[\w-]+'?", pair[side].lower())}
            for split in ("train", "test")
        )
        assert test <= train


def test_one_english_has_one_italian() -> None:
    translations: dict[str, str] = {}
    for english, italian in PAIRS:
        bare = italian.rstrip(".!?").lower()
        assert translations.setdefault(normalized(english), bare) == bare


def test_both_sides_have_the_same_final_mark_and_are_well_formed() -> None:
    for pair in PAIRS:
        marks = {re.sub(r".*?([.!?]*)$", r"\1", text) for text in pair}
        assert len(marks) == 1
        assert marks <= {"", ".", "!", "?"}
        for text in pair:
            assert text[0].isupper()
            assert re.fullmatch(r"[\w'’,. !?-]+", text)
            assert not re.search(r"  | ,|' |^ | $", text.replace("po' ", "po "))


def test_the_italian_follows_the_conventions() -> None:
    assert not CONVENTIONS.items() - set(PAIRS)
    assert not [italian for _, italian in PAIRS if IMPOSSIBLE.search(italian)]
