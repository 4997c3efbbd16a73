"""Runaway translations: found, and searched again without repeated bigrams by both engines."""

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from engine_helpers import (
    PUSHABLE,
    both_find,
    ending_model,
    endless_model,
    push_all,
    random_model,
    same,
    sentences,
    tokenizers,
    translation_settings,
    twins,
)
from mt.config import Config
from mt.data.tokenizer import EOS_ID, PAD_ID, SOS_ID, UNK_ID
from mt.decoding.engine import Sampling, SearchOptions
from mt.decoding.runaway import is_runaway, most_copies, search_without_loops
from mt.decoding.translator import Translator
from mt.model.transformer import Transformer

IDS = sentences([7, 2, 4, 1], 300)
LONG = list(range(100, 140))


@pytest.mark.parametrize(
    ("ids", "copies"),
    [
        ([], 1),
        ([5], 1),
        ([5, 5, 5], 3),
        ([4, 5, 4, 5, 4, 5], 3),
        ([9, 4, 5, 4, 5, 4, 9], 2),
        ([4, 5, 6, 5, 4], 1),
        (list(range(8)) * 3, 3),
        (list(range(9)) * 3, 1),
        ([7, 8, 8, 8, 8, 7], 4),
    ],
)
def test_copies_of_a_phrase_are_counted(ids: list[int], copies: int) -> None:
    assert most_copies(ids) == copies


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (LONG, LONG, False),
        ([50], LONG[:12], False),
        ([50], LONG[:13], True),
        (LONG, [9, 9, 9], False),
        (LONG, [9, 9, 9, 9], True),
        (LONG, [8, 9] * 3, False),
        (LONG, [*LONG[:20], *[8, 9] * 4], True),
        (LONG, [8, 1, 8, 2, 8, 3, 8, 4], False),  # one word often, but not in a row
        ([*LONG, 9, 9, 9, 9], [9, 9, 9, 9], False),  # as in the source
        ([*LONG, 9, 9, 9], [9] * 6, True),
    ],
)
def test_runaways(source: list[int], target: list[int], expected: bool) -> None:
    assert is_runaway(source, target) == expected


@pytest.mark.parametrize("beam_size", [1, 3])
def test_loops_are_searched_again_by_both_engines(tmp_path: Path, beam_size: int) -> None:
    both = twins(tmp_path, *PUSHABLE, model=endless_model)
    options = SearchOptions(beam_size, max_length=11, retry_loops=True)  # too short to be a runaway by its length
    plain = both_find(both, IDS, replace(options, retry_loops=False))
    loops = [is_runaway(ids, best.ids) for ids, [best] in zip(IDS, plain, strict=True)]
    assert any(loops)
    for engine in (both.fast(), both.slow()):
        found = search_without_loops(engine, IDS, options)
        for loop, [before], [after] in zip(loops, plain, found, strict=True):
            bigrams = list(pairwise(after.ids))
            assert len(set(bigrams)) == len(bigrams) if loop else after.ids == before.ids


@pytest.mark.parametrize("beam_size", [1, 3])
def test_the_second_search_counts_if_it_is_better(tmp_path: Path, beam_size: int) -> None:
    both = twins(tmp_path, *PUSHABLE, model=endless_model)
    exact = SearchOptions(beam_size, n_best=beam_size, max_length=20)
    options = replace(exact, retry_loops=True)
    first = both_find(both, IDS, exact)
    second = both_find(both, IDS, replace(exact, no_repeat_ngram_size=2, max_length_ratio=2.0))
    is_longer = [len(again[0].ids) >= len(found[0].ids) for found, again in zip(first, second, strict=True)]
    expected = [
        found if longer and is_runaway(ids, again[0].ids) else again
        for ids, found, again, longer in zip(IDS, first, second, is_longer, strict=True)
    ]
    assert any(is_longer)
    assert all(is_runaway(ids, best.ids) for ids, [best, *_] in zip(IDS, first, strict=True))
    for engine in (both.fast(), both.slow()):
        found = search_without_loops(engine, IDS, options)
        assert [[each.ids for each in some] for some in found] == [[each.ids for each in some] for some in expected]
        assert not any(math.isnan(each.score) for some in found for each in some)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_long_prefix_stays_in_the_second_search(tmp_path: Path, beam_size: int) -> None:
    both = twins(tmp_path, *PUSHABLE, model=endless_model)
    ids, options = IDS[3:4], SearchOptions(beam_size, retry_loops=True)  # 1 token, so translations have at most 19
    prefix = LONG[:18]
    for engine in (both.fast(), both.slow()):
        [[best, *_]] = search_without_loops(engine, ids * 2, options, [prefix, []])[:1]
        assert best.ids[: len(prefix)] == prefix


@pytest.mark.parametrize("strength", [0.0, 0.1, 0.3])
def test_engines_agree_where_some_hypotheses_are_runaways(tmp_path: Path, strength: float) -> None:
    def model(config: Config) -> Transformer:
        seldom_ending = random_model(config)
        push_all(seldom_ending, {**dict.fromkeys((PAD_ID, UNK_ID, SOS_ID), -20.0), EOS_ID: strength})
        return seldom_ending

    both = twins(tmp_path, *PUSHABLE, model=model)
    ids = sentences([7, 2, 4, 1, 3, 5, 9, 12], 300)
    options = SearchOptions(4, n_best=4, retry_loops=True)
    fast, slow = (search_without_loops(engine, ids, options) for engine in (both.fast(), both.slow()))
    same(fast, slow)


def test_greedy_search_without_scores_is_repeated_once(tmp_path: Path) -> None:
    engine, searched = twins(tmp_path, *PUSHABLE, model=endless_model).fast(), []
    translate = engine.translate
    engine.translate = lambda ids, *rest: (searched.append(len(ids)), translate(ids, *rest))[1]  # type: ignore[method-assign]
    search_without_loops(engine, IDS, SearchOptions(1, scores=False, retry_loops=True))
    assert len(searched) == 2


def test_a_translator_gives_no_loop_and_leaves_the_others(tmp_path: Path) -> None:
    """Of a model that loops for some sentences only."""
    lines = ["A dog runs over the grass.", "Two men", "The old house", "dog", "hill.", "men are talking."]

    def model(config: Config) -> Transformer:
        encoded = tokenizers(True).source.encode_batch(lines)
        return ending_model(config, encoded, SearchOptions(2, max_length=30))

    both = twins(tmp_path, model=model)
    options = SearchOptions(1, max_length=30, retry_loops=True)
    translator = Translator(both.slow(), both.tokenizers, translation_settings())
    encoded = both.tokenizers.source.encode_batch(lines)
    plain = both.slow().translate(encoded, options)
    found = translator.translate(lines, options)
    for source, [before], [after] in zip(encoded, plain, found, strict=True):
        [part] = after.parts
        assert (list(part.target) == before.ids) == (not is_runaway(source, before.ids))


def test_samples_and_banned_searches_stay(tmp_path: Path) -> None:
    both = twins(tmp_path, *PUSHABLE, model=endless_model)
    sampled = SearchOptions(1, max_length=30, sampling=Sampling(), retry_loops=True)
    for options in (sampled, SearchOptions(1, no_repeat_ngram_size=4, retry_loops=True), SearchOptions(1)):
        assert search_without_loops(both.slow(), IDS, options) == both.slow().translate(IDS, options)
