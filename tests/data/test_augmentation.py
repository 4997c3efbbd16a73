"""Augmentation: each kind of change on real lines, and corpora that are a function of seed, epoch and sentence."""

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_helpers import encode_text, make_config, sentence_ids, whole_epoch
from mt.config import parse_config
from mt.config.augmentation import ROBUST, AugmentationConfig
from mt.data import phrasebook
from mt.data.augmentation import (
    SPAN_KINDS,
    add_typos,
    augment,
    draw_span,
    insert,
    lower_case,
    noise_line,
    title_case,
    upper_case,
)
from mt.data.augmented_corpus import AugmentedCorpus, CasedLines, choose_kinds
from mt.data.batching import BatchStream
from mt.data.bidirectional import BidirectionalCorpus
from mt.data.mixture import Share
from mt.data.ragged import Indices, Ragged
from mt.data.sentence_format import SentenceFormat
from mt.data.shuffle import ShuffledWindows
from mt.data.subword_sampling import BpeDropout, SampledCorpus
from mt.data.token_store import EncodedCorpus
from mt.data.tokenizer import EOS_ID, UNK_ID, BpeTokenizer, normalized
from mt.data.tokenizer_kinds import TokenizerPair
from mt.errors import InputError
from mt.storage.run_dir import RunDir
from resume_helpers import resumes, run_of, train, weights
from training_helpers import kill_training, prepare_run, project_copy

EN_IT = ("en", "it")
PAIRS = [(normalized(en), normalized(it)) for en, it in phrasebook.sentence_pairs("valid")][:400]
SOURCE, TARGET = map(list, zip(*PAIRS, strict=True))


def changed(kind: str, pair: tuple[str, str], seed: int = 0, languages: tuple[str, str] = EN_IT) -> tuple[str, str]:
    return augment(kind, pair, ("Next.", "Dopo."), random.Random(seed), languages)


# Text ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "text", "language", "expected"),
    [
        (upper_case, "Die Straße, 5 Äpfel!", "de", "DIE STRASSE, 5 ÄPFEL!"),
        (upper_case, "ılık iki", "tr", "ILIK İKİ"),
        (upper_case, "ılık iki", "de", "ILIK IKI"),
        (upper_case, "\ufb01ne \u0149a", "en", "\ufb01NE \u0149A"),  # ﬁ and ŉ would become two letters
        (upper_case, "ὀδυσσεύς", "el", "ὈΔΥΣΣΕΎΣ"),
        (upper_case, "人 и дом", "zh-Hans", "人 И ДОМ"),
        (lower_case, "ILIK İKİ", "tr-TR", "ılık iki"),
        (lower_case, "İKI", "en", "İki"),  # i with a dot would become two characters
        (title_case, "a dog's (old) house: 3rd", "en", "A Dog's (Old) House: 3rd"),
        (title_case, "iki ev", "tr", "İki Ev"),
        (title_case, "二 人", "zh", "二 人"),
        (title_case, "კარგი დღე", "ka", "კარგი დღე"),  # Georgian capitals are for whole words
        (title_case, "\ufb01ne ßa \u01c6a", "de", "\ufb01ne Ssa \u01c5a"),
    ],
)
def test_case_is_that_of_the_language(
    function: Callable[[str, str], str], text: str, language: str, expected: str
) -> None:
    assert function(text, language) == expected


def test_each_kind_of_change() -> None:
    pair = "Two dogs, one old, are running.", "Due cani, uno vecchio, corrono."
    upper = "TWO DOGS, ONE OLD, ARE RUNNING.", "DUE CANI, UNO VECCHIO, CORRONO."
    assert changed("upper_case", pair) == upper
    assert changed("title_case", pair) == ("Two Dogs, One Old, Are Running.", "Due Cani, Uno Vecchio, Corrono.")
    assert changed("lower_case", upper) == (pair[0].lower(), upper[1])
    assert changed("merge", pair) == (f"{pair[0]} Next.", f"{pair[1]} Dopo.")
    assert changed("merge", ("Two.", "二。"), languages=("en", "zh")) == ("Two. Next.", "二。Dopo.")
    marks = {changed("punctuation", pair, seed) for seed in range(40)}
    assert marks == {(pair[0][:-1], pair[1][:-1]), (f"{pair[0]}.", pair[1]), (f"{pair[0]}..", pair[1])}
    assert changed("punctuation", ("No mark", "Nessuno.")) == ("No mark", "Nessuno.")
    several = 'Really?!"', "Davvero ..."
    marks = {changed("punctuation", several, seed) for seed in range(40)}
    assert marks == {('Really"', "Davvero"), ('Really?!!"', several[1]), ('Really?!!!"', several[1])}
    noise = {changed("noise", pair, seed) for seed in range(40)}
    assert len(noise) > 35
    assert all(source == target and not {"dogs", "cani"} & set(source.split()) for source, target in noise)


@pytest.mark.parametrize("kind", sorted(ROBUST))
def test_the_tag_of_back_translations_stays(kind: str) -> None:
    for seed in range(9):
        plain, tagged = (
            augment(kind, (f"{tag}Two dogs.", "Due cani."), (f"{tag}Next.", "Dopo."), random.Random(seed), EN_IT)
            for tag in ("", "<BT> ")
        )
        assert tagged == (f"<BT> {plain[0]}", plain[1])


def test_pairs_of_which_one_is_back_translated_are_not_merged() -> None:
    pairs = [("<BT> Two dogs.", "Due cani."), ("A cat.", "Un gatto.")]
    for own, other in (pairs, pairs[::-1]):
        assert augment("merge", own, other, random.Random(0), EN_IT) == own
    joined = ("<BT> Two dogs. Two dogs.", "Due cani. Due cani.")
    assert augment("merge", pairs[0], pairs[0], random.Random(0), EN_IT) == joined


@pytest.mark.parametrize("character", [".", " "])
def test_final_marks_are_found_in_linear_time(character: str) -> None:
    text = f"x{character * 100_000}x"
    assert changed("punctuation", (text, text)) == (text, text)


def test_typos_are_single_slips_within_words() -> None:
    rng, words, misspelt, kinds = random.Random(1), 0, 0, set()
    for line in SOURCE:
        new = add_typos(line, rng, 0.2)
        words += len(line.split(" "))
        for before, after in zip(line.split(" "), new.split(" "), strict=True):
            if before != after:
                misspelt += 1
                assert before[0] == after[0]
                assert sum(map(str.isalpha, before)) >= 4
                kinds.add(len(after) - len(before))
                if len(before) == len(after):
                    wrong = [i for i in range(len(before)) if before[i] != after[i]]
                    assert len(wrong) == 1 or (sorted(before) == sorted(after) and wrong[1] == wrong[0] + 1)
    assert kinds == {-1, 0, 1}
    assert 0.15 < misspelt / words < 0.21
    assert add_typos("²³²² 12345 a.b@c.de abc", rng, 1.0) == "²³²² 12345 a.b@c.de abc"


@given(st.text(max_size=60), st.text(max_size=60), st.sampled_from(sorted(ROBUST)), st.integers(0, 99))
def test_any_text_can_be_changed(source: str, target: str, kind: str, seed: int) -> None:
    for languages in (EN_IT, ("tr", "ja"), ("", "")):
        assert changed(kind, (source, target), seed, languages) == changed(kind, (source, target), seed, languages)


@pytest.mark.parametrize("languages", [EN_IT, ("en", "ja")], ids=str)
def test_spans_are_put_whole_into_both_sides(languages: tuple[str, str]) -> None:
    pair, places = ("One, two and three are old.", "Uno, due e tre sono vecchi."), set()
    for seed in range(200):
        span = draw_span(rng := random.Random(seed), SPAN_KINDS[seed % 4])
        new = insert(pair, span, rng, languages)
        for before, after in zip(pair, new, strict=True):
            start, _, end = after.partition(span)
            assert (start + end).replace(" ", "") == before.replace(" ", "")
        places.add(new[0].index(span))
    assert len(places) > 4


def test_spans_and_noise_survive_the_tokenizer() -> None:
    lines = [draw_span(random.Random(n), SPAN_KINDS[n % 4]) for n in range(400)]
    lines += [noise_line(random.Random(n)) for n in range(400)]
    assert usual().decode_batch(usual().encode_batch(lines)) == lines
    assert len({line for line in lines if re.fullmatch(r"\W+", line)}) > 80, "too few emoji"


# Corpora ------------------------------------------------------------------------------------------------------------


@cache
def usual() -> BpeTokenizer:
    return BpeTokenizer.train([*SOURCE, *TARGET], 700)


MakeCorpus = Callable[..., AugmentedCorpus]


@pytest.fixture
def make(tmp_path: Path) -> MakeCorpus:
    pair = TokenizerPair(usual(), usual())
    encoded = encode_text(tmp_path, SOURCE, TARGET, pair)

    def make(
        shares: dict[str, float],
        seed: int = 1,
        max_length: int = 10_000,
        kind: str = "",
        languages: tuple[str, str] = EN_IT,
    ) -> AugmentedCorpus:
        segmenters = [BpeDropout(t, 0.3) for t in pair] if kind == "sampled" else []
        corpus = SampledCorpus(encoded, pair, segmenters, seed, max_length, tmp_path) if segmenters else encoded
        if kind == "bidirectional":
            corpus = BidirectionalCorpus(encoded, 1, seed, max_length)
        return AugmentedCorpus(corpus, pair, shares, seed, max_length, [languages], segmenters)

    return make


def texts(corpus: EncodedCorpus) -> list[tuple[str, str]]:
    sides = (usual().decode_batch(sentence_ids(corpus, side)) for side in ("source", "target"))
    return list(zip(*sides, strict=True))


def both(corpus: EncodedCorpus) -> list[list[int]]:
    return sentence_ids(corpus, "source") + sentence_ids(corpus, "target")


@pytest.mark.parametrize("kind", ["", "sampled", "bidirectional"])
def test_an_epoch_depends_on_its_number_and_seed_only(make: MakeCorpus, kind: str) -> None:
    corpus = make(ROBUST, seed=4, kind=kind)
    epochs = [both(whole_epoch(corpus, n)) for n in range(3)]
    random.random(), np.random.random()
    assert [both(whole_epoch(make(ROBUST, seed=4, kind=kind), n)) for n in (2, 0)] == [epochs[2], epochs[0]]
    for first, second in pairwise([*epochs, both(whole_epoch(make(ROBUST, seed=5, kind=kind)))]):
        assert sum(a != b for a, b in zip(first, second, strict=True)) > len(first) / 5


def test_a_share_of_the_sentences_is_changed_and_the_rest_is_not(make: MakeCorpus) -> None:
    shares = {"upper_case": 0.1, "merge": 0.2}
    found = texts(whole_epoch(make(shares), 1))
    kinds = choose_kinds(np.arange(len(PAIRS)), shares, 1, 1)
    following = [*PAIRS[1:], PAIRS[0]]
    for kind, own, other, new in zip(kinds, PAIRS, following, found, strict=True):
        upper, merged = tuple(map(str.upper, own)), tuple(f"{a} {b}" for a, b in zip(own, other, strict=True))
        assert new == (upper, merged, own)[kind]
    counts = np.bincount(kinds, minlength=3) / len(PAIRS)
    assert counts == pytest.approx([0.1, 0.2, 0.7], abs=0.06)


@pytest.mark.parametrize("kind", sorted(ROBUST))
def test_changes_are_those_of_the_text_and_fit(make: MakeCorpus, kind: str) -> None:
    limit = 24
    plain, found = whole_epoch(make({})), whole_epoch(make({kind: 1.0}, max_length=limit))
    changes = sum(a != b for a, b in zip(PAIRS, texts(found), strict=True))
    assert changes > 40
    for before, after in zip(zip(*plain.lengths(), strict=True), zip(*found.lengths(), strict=True), strict=True):
        assert max(after) <= limit or after == before
    if kind in ("lower_case", "typos"):
        assert sentence_ids(found, "target") == sentence_ids(plain, "target")


def test_subword_regularisation_extends_to_changed_sentences(make: MakeCorpus) -> None:
    found = whole_epoch(make({"upper_case": 1.0}, kind="sampled"))
    assert texts(found) == [(a.upper(), b.upper()) for a, b in PAIRS]
    whole = whole_epoch(make({"upper_case": 1.0}))
    assert sum(map(len, both(found))) > 1.02 * sum(map(len, both(whole)))


def test_typos_are_in_the_source_of_reversed_pairs(make: MakeCorpus) -> None:
    found = texts(whole_epoch(make({"typos": 1.0}, kind="bidirectional")))
    reversed_pairs = 0
    for (source, target), new in zip(PAIRS, found, strict=True):
        assert new[1] in (source, target)
        reversed_pairs += new[1] == source and new[0] not in (source, target)
    assert reversed_pairs > len(PAIRS) / 4


@pytest.mark.parametrize("languages", [EN_IT, ("en", "ja")], ids=str)
def test_pairs_of_opposite_directions_are_not_merged(make: MakeCorpus, languages: tuple[str, str]) -> None:
    plain = texts(whole_epoch(make({}, kind="bidirectional")))
    found = texts(whole_epoch(make({"merge": 1.0}, kind="bidirectional", languages=languages)))
    spaces = [" " if language != "ja" else "" for language in languages]
    merged = 0
    for own, other, new in zip(plain, [*plain[1:], plain[0]], found, strict=True):
        straight = own in PAIRS
        joined = [f"{a}{space}{b}" for a, b, space in zip(own, other, spaces[:: 1 if straight else -1], strict=True)]
        expected = tuple(joined) if straight == (other in PAIRS) else own
        assert new == expected
        merged += expected != own
    assert merged > len(PAIRS) / 3


@dataclass
class CountedCorpus:
    """A corpus of the same tokens in each epoch that counts the sentences read."""

    corpus: EncodedCorpus
    read: int = 0

    def in_epoch(self, epoch: int) -> "CountedCorpus":
        return self

    def __len__(self) -> int:
        return len(self.corpus)

    def select(self, indices: Indices) -> EncodedCorpus:
        self.read += len(indices)
        return self.corpus.select(indices)


def test_only_the_sentences_of_a_window_are_read_and_changed(make: MakeCorpus) -> None:
    expected, counted, rows = whole_epoch(make(ROBUST)), CountedCorpus(make(ROBUST).corpus), []
    shares = Share(10), Share(len(PAIRS) - 10, 0.1)
    stream = BatchStream(replace(make(ROBUST), corpus=counted), 400, seed=1, shares=shares)
    while not stream.epochs_done:
        rows += [row[: row.index(EOS_ID)] for row in stream.next().tgt_out.tolist()]
    window = ShuffledWindows(shares, seed=1, epoch=0).indices(0)
    assert sorted(rows) == sorted(sentence_ids(expected, "target", window))
    assert 49 == len(rows) <= counted.read < 70  # and those that some are merged with
    some = np.array([7, 3, 250, 399, 0])
    assert both(make(ROBUST).in_epoch(0).select(some)) == both(expected.select(some))


def test_the_language_of_each_part_decides_on_its_spaces(make: MakeCorpus) -> None:
    corpus = replace(make({"merge": 1.0}), languages=[EN_IT, ("en", "ja")], ends=[200, 400])
    found = texts(whole_epoch(corpus))
    for row, space in ((5, " "), (198, " "), (200, ""), (398, "")):
        (source, target), (next_source, next_target) = PAIRS[row : row + 2]
        assert found[row] == (f"{source} {next_source}", f"{target}{space}{next_target}")
    assert [found[row] for row in (199, 399)] == [PAIRS[row] for row in (199, 399)]  # before one of other languages


def test_language_tags_stay_and_pairs_of_two_languages_are_not_merged(tmp_path: Path) -> None:
    tokenizer = BpeTokenizer.train([*SOURCE, *TARGET], 700, ["it", "es"])
    pair = TokenizerPair(tokenizer, tokenizer)
    tags = [SentenceFormat().tags(pair, language) for language in ("it", "es")]
    parts = [(200, tags[0]), (200, tags[1])]
    encoded = encode_text(tmp_path, SOURCE, TARGET, pair, parts=parts)
    for kind in ("merge", "upper_case"):
        corpus = AugmentedCorpus(encoded, pair, {kind: 1.0}, 1, 10_000, [("en", "")])
        ids = sentence_ids(whole_epoch(corpus), "source")
        assert [row[0] for row in ids] == [tokenizer.tags[language] for language in ("it", "es") for _ in range(200)]
        assert all(len({*row} & {*tokenizer.tags.values()}) == 1 for row in ids)
        unchanged = [row for row in range(400) if ids[row] == sentence_ids(encoded, "source")[row]]
        assert not {*unchanged} - {199, 399} if kind == "merge" else not unchanged


@pytest.mark.parametrize("kind", ["merge", "noise", "upper_case"])
def test_a_sentence_with_an_unknown_character_at_its_edge_stays(tmp_path: Path, kind: str) -> None:
    pair = TokenizerPair(usual(), usual())
    ids = usual().encode("Two dogs.")
    rows = [[*ids, UNK_ID], [UNK_ID, *ids]]
    side = Ragged(np.concatenate(rows), np.cumsum([0, *map(len, rows)]))
    corpus = AugmentedCorpus(EncodedCorpus({"source": side, "target": side}), pair, {kind: 1.0}, 1, 100, [EN_IT])
    assert sentence_ids(whole_epoch(corpus), "source") == rows


def test_the_tokenizer_learns_pieces_for_capitals() -> None:
    cased = CasedLines(SOURCE, {"upper_case": 0.3}, "en")
    assert list(cased) == list(cased)
    assert sum(a != b for a, b in zip(cased, SOURCE, strict=True)) == pytest.approx(0.3 * len(SOURCE), abs=40)
    shouted = [line.upper() for line in SOURCE]
    lengths = [sum(map(len, BpeTokenizer.train(t, 700).encode_batch(shouted))) for t in (SOURCE, cased)]
    assert lengths[1] < 0.7 * lengths[0]


@pytest.mark.parametrize("cases", ["augmentation.robust=true", "augmentation.upper_case=0.3"])
def test_seeds_have_one_vocabulary(tiny: Path, cases: str) -> None:
    files = []
    for seed in (1, 2):
        changes = [f"data.root={tiny}", f"seed={seed}", cases]
        config = parse_config((tiny / "tiny.yaml").read_text(), "x.yaml", changes)
        files.append(prepare_run(config, RunDir(tiny / "runs" / str(seed))).files())
    assert files[0] == files[1]


# Configuration and resume -------------------------------------------------------------------------------------------


def test_shares_of_the_configuration() -> None:
    assert AugmentationConfig().shares == {}
    robust = {kind: share for kind, share in ROBUST.items() if share}
    assert set(ROBUST) - set(robust) == {"upper_case"}  # needs no training: decoding.restore_case
    assert AugmentationConfig(robust=True).shares == robust
    assert AugmentationConfig(robust=True, merge=0.0, noise=0.5).shares == {
        kind: 0.5 if kind == "noise" else share for kind, share in robust.items() if kind != "merge"
    }
    assert AugmentationConfig(typos=0.1, upper_case=0.2).cases == {"upper_case": 0.2}


def test_shares_beyond_all_sentences_are_refused(tmp_path: Path) -> None:
    config = make_config(tmp_path, {"source": "a", "target": "b"}).model_dump(mode="json")
    config["augmentation"] = {"typos": 0.7, "merge": 0.4}
    with pytest.raises(InputError, match=r"augmentation\.typos.*add up to 1\.10"):
        parse_config(json.dumps(config), "x.yaml")


def test_a_killed_and_resumed_run_ends_with_the_same_weights(tiny: Path) -> None:
    lengths = ("training.max_steps=40", "training.save_every=5", "training.validate_every=20", "training.log_every=5")
    shares = ("augmentation.robust=true", "augmentation.merge=0.1", "augmentation.terms=0.2")
    changes = (*lengths, *shares, "data.test=null")
    whole = project_copy(tiny, "whole")
    train(whole, *changes)
    kill_training(tiny, 25, *changes)
    train(tiny, *changes)
    assert resumes(tiny) == 1, "the kill missed the training"
    assert weights(tiny) == weights(whole)
    ends = [run_of(folder).checkpoint(40) / "model.safetensors" for folder in (tiny, whole)]
    assert ends[0].read_bytes() == ends[1].read_bytes()
