"""Runaway translations: found, and searched again without repeated bigrams by both engines."""

from itertools import pairwise
from pathlib import Path

import pytest

from engine_helpers import (
    PUSHABLE,
    both_find,
    ending_model,
    endless_model,
    sentences,
    tokenizers,
    translation_settings,
    twins,
)
from mt.config import Config
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
    plain = both_find(both, IDS, options)
    loops = [is_runaway(ids, best.ids) for ids, [best] in zip(IDS, plain, strict=True)]
    assert any(loops)
    for engine in (both.fast(), both.slow()):
        found = search_without_loops(engine, IDS, options)
        for loop, [before], [after] in zip(loops, plain, found, strict=True):
            bigrams = list(pairwise(after.ids))
            assert len(set(bigrams)) == len(bigrams) if loop else after.ids == before.ids


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
