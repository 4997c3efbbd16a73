"""Translations within source text: how they are written, drawn from training pairs, and used by a translator."""

import random
from pathlib import Path

import numpy as np
import pytest

from data_helpers import encode_text, sentence_ids, whole_epoch
from engine_helpers import ENGLISH, GERMAN, configured, whole_folder
from mt.api.loading import load
from mt.data.augmented_corpus import AugmentedCorpus
from mt.data.inline_terms import annotate, draw_terms, encode_annotated, encode_with_terms
from mt.data.lexicon import Side, word_translations, words_in
from mt.data.sentencepiece_tokenizer import SentencePieceTokenizer
from mt.data.subword_sampling import BpeDropout
from mt.data.terms import Terms
from mt.data.tokenizer import BpeTokenizer
from mt.data.tokenizer_kinds import TokenizerPair
from mt.text.languages import TERM_TAGS

LEXICON = {"dog": ["katze", "hund"], "grass": ["gras"], "two": ["zwei"], "house": ["haus"], "the": ["das"]}
PAIRS = list(zip(ENGLISH, GERMAN, strict=True)) * 20


def tokenizer(kind: str = "bpe", tags: tuple[str, ...] = TERM_TAGS) -> BpeTokenizer | SentencePieceTokenizer:
    lines = [*ENGLISH, *GERMAN]
    return BpeTokenizer.train(lines, 300, tags) if kind == "bpe" else SentencePieceTokenizer.train(lines, 330, tags)


@pytest.mark.parametrize("kind", ["bpe", "sentencepiece"])
def test_annotated_text_as_tokens(kind: str) -> None:
    if kind == "sentencepiece":
        pytest.importorskip("sentencepiece")
    own = tokenizer(kind)
    text = "A dog runs over the grass."
    [ids] = encode_annotated(own, [annotate(text, [(2, 5, "Hund"), (20, 25, "Gras")])])
    pieces = own.tokens(ids)
    marks = [f"<2{tag}>" for tag in TERM_TAGS]
    assert [piece for piece in pieces if piece in marks] == marks * 2
    ends = [i for i, piece in enumerate(pieces) if piece in marks]
    parts = [own.decode(ids[start + 1 : end]) for start, end in zip([-1, *ends], [*ends, len(ids)], strict=True)]
    assert parts == ["A", "dog", "Hund", "runs over the", "grass", "Gras", "."]
    assert encode_annotated(own, [text]) == own.encode_batch([text])


def test_text_that_has_marks_stays_text() -> None:
    strange, terms = "A \ufdd0dog\ufdd1 \ufdd2", Terms({"dog": "Hund"})
    lines = [strange, "dog"]
    found = [terms.find(line) for line in lines]
    own, plain = tokenizer(), tokenizer(tags=())
    assert encode_with_terms(plain, lines, found, 99) == plain.encode_batch(lines)
    for with_terms in (found, [[], found[1]]):
        first, second = encode_with_terms(own, lines, with_terms, 99)
        assert first == own.encode(strange)
        assert own.tags["x-term"] in second


def test_training_text_that_has_marks_stays_text(tmp_path: Path) -> None:
    own, marked = tokenizer(), "A dog \ufdd0 runs."
    pair = TokenizerPair(own, own)
    encoded = encode_text(tmp_path, [marked, "A dog runs."], ["Ein Hund \ufdd1", "Ein Hund rennt."], pair)
    for kind in ("upper_case", "terms"):
        corpus = AugmentedCorpus(encoded, pair, {kind: 1.0}, 1, 999, [("en", "de")], (), LEXICON)
        found = whole_epoch(corpus, 0)
        assert [own.decode(sentence_ids(found, side)[0]) for side in ("source", "target")] == [
            marked,
            "Ein Hund \ufdd1",
        ]
        assert sentence_ids(found, "source")[1] != sentence_ids(encoded, "source")[1]


def test_text_that_would_be_too_long_stays_as_it_is() -> None:
    own, terms = tokenizer(), Terms({"dog": "Hund"})
    lines = ["A dog", "A cat"]
    found = [encode_with_terms(own, lines, [terms.find(line) for line in lines], limit) for limit in (99, 9)]
    assert len(found[0][0]) > 9 >= len(found[1][0])
    assert found[1] == own.encode_batch(lines)
    assert found[0][1] == found[1][1]


def test_drawn_terms_are_words_of_the_target() -> None:
    seen = set()
    for seed in range(50):
        for source, target in PAIRS[:3]:
            spans = draw_terms((source, target), LEXICON, random.Random(seed))
            assert spans == sorted(spans)
            assert len(spans) <= 3
            seen |= {(source[start:end], translation) for start, end, translation in spans}
    assert seen == {("dog", "Hund"), ("grass", "Gras"), ("the", "das"), ("house", "Haus"), ("Two", "Zwei")} | {
        ("The", "Das"),
        ("the", "Das"),
    }


def test_a_lexicon_has_the_likeliest_translation_first() -> None:
    nouns = [("dog", "Hund"), ("cat", "Katze"), ("cow", "Kuh"), ("hen", "Henne")]
    lines = [(f"a {noun} {verb}", f"so {own} {verb}t") for noun, own in nouns for verb in "abcdefgh"]
    lexicon = word_translations(*(Side(side) for side in zip(*lines, strict=True)))
    assert [lexicon[word][0] for word in ("dog", "cat")] == ["hund", "katze"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("The old-fashioned café costs 1,50 Euro", "the old fashioned café costs 1 50 euro"),
        ("हिन्दी में", "हिन्दी में"),
        ("tiếng Việt: ếch", "tiếng việt ếch"),
        ("Cafe\u0301 ọ̀rọ̀", "café ọ̀rọ̀"),
        ("كِتَابٌ جديد", "كِتَابٌ جديد"),
        ("ქართული ენა", "ქართული ენა"),
        ("中文词 ABC", "中文 文词 abc"),
        ("한국어 말", "한국 국어 말"),
    ],
)
def test_words_are_whole_in_scripts_with_spaces(line: str, words: str) -> None:
    assert words_in(line) == words.split()


def test_terms_of_words_with_vowel_signs_are_drawn() -> None:
    spans = draw_terms(("यह हिन्दी है", "This is cafe\u0301"), {"हिन्दी": ["café"]}, random.Random(1))
    assert spans == [(3, 9, "cafe\u0301")]


@pytest.mark.parametrize("sampled", [False, True])
def test_a_corpus_with_terms(tmp_path: Path, sampled: bool) -> None:
    own = tokenizer()
    pair = TokenizerPair(own, own)
    sides = [list(side) for side in zip(*PAIRS, strict=True)]
    encoded = encode_text(tmp_path, *sides, pair)
    segmenters = [BpeDropout(own, 0.3)] * 2 if sampled else []

    def epoch(number: int, limit: int = 999) -> list[list[int]]:
        shares = {"terms": 0.5}
        corpus = AugmentedCorpus(encoded, pair, shares, 1, limit, [("en", "de")], segmenters, LEXICON)
        found = whole_epoch(corpus, number)
        assert sentence_ids(found, "target") == sentence_ids(encoded, "target")
        return sentence_ids(found, "source")

    first, second = epoch(0), epoch(1)
    assert first == epoch(0) != second
    ends = [row.count(own.tags["x-end"]) for row in first]
    assert 0.3 < np.mean(np.array(ends) > 0) < 0.7
    assert max(ends) == 3
    for row, (source, target) in zip(first, PAIRS, strict=True):
        if own.tags["x-end"] in row:
            places = [row.index(own.tags[tag]) for tag in TERM_TAGS]
            assert own.decode(row[places[0] + 1 : places[1]]) in source
            assert own.decode(row[places[1] + 1 : places[2]]) in target
    assert max(map(len, epoch(0, 20))) <= 20


def test_a_model_that_was_trained_so_reads_them(tmp_path: Path) -> None:
    (tmp_path / "terms.tsv").write_text("dog\tHund\n")
    own = tokenizer()
    pair = TokenizerPair(own, own)
    folder = whole_folder(tmp_path / "model", "augmentation.terms=0.3", pair=pair).root
    for engine in ("torch", "ctranslate2"):
        model = load(folder, engine=engine, glossary=tmp_path / "terms.tsv")
        found = model.translate(["A dog.", "A cat."], details=True)
        assert [f"<2{tag}>" in found[0].source_tokens for tag in TERM_TAGS] == [True] * 3
        assert not {f"<2{tag}>" for tag in TERM_TAGS} & {*found[1].source_tokens}
        assert "Hund" in found[0].text.split()
    model = load(folder, engine="torch", glossary=tmp_path / "terms.tsv")
    assert "<2x-term>" not in model.translate("A dog.", details=True, attention=True).source_tokens
    # The tags alone, as of the tokenizer of a teacher, do not tell that a model can read them.
    for change, reads in (("training.init_from=teacher", True), ("training.distill_from=[teacher]", False)):
        folder = whole_folder(tmp_path / change, change, pair=pair).root
        model = load(folder, engine="torch", glossary=tmp_path / "terms.tsv")
        found = model.translate("A dog.", details=True)
        assert ("<2x-term>" in found.source_tokens) == reads
        assert "Hund" in found.text.split()


def test_the_configuration() -> None:
    config = configured("augmentation.terms=0.3", "augmentation.robust=false")
    assert config.tags == TERM_TAGS
    assert config.augmentation.shares == {"terms": 0.3}
    assert configured().tags == ()
