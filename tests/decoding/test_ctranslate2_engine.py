"""Agreement of the CTranslate2 engine with torch: translations, scores, bounds and order."""

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from engine_helpers import (
    PUSHABLE,
    Twins,
    both_find,
    ending_model,
    endless_model,
    push_all,
    random_model,
    same,
    sentences,
    tokenizers,
    twins,
)
from model_helpers import reciting_model
from mt.config import Config
from mt.data.tokenizer import EOS_ID, PAD_ID, SOS_ID, SPECIALS, UNK_ID
from mt.decoding.ctranslate2_engine import batch_sentences
from mt.decoding.engine import SearchOptions, batch_by_length
from mt.errors import MachineError
from mt.model.transformer import Transformer
from mt.system.cpus import cpu_cores

VOCAB = 300
IDS = sentences([7, 2, 4, 9, 1], VOCAB)
OPTIONS = SearchOptions(beam_size=4, n_best=3, max_length=12)
SHAPES = [[], ["model.norm=pre", "model.positions=learned", "model.activation=swiglu"]]


def ending(config: Config) -> Transformer:
    return ending_model(config, IDS, OPTIONS, lengths_wanted=3)


@pytest.fixture(scope="module", params=SHAPES, ids=["paper", "modern"])
def lively(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Twins:
    """Return a model whose translations end on their own, at different lengths."""
    return twins(tmp_path_factory.mktemp("lively"), *request.param, model=ending)


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Twins:
    return twins(tmp_path_factory.mktemp("endless"), *PUSHABLE, model=endless_model)


def pushed(folder: Path, strengths: dict[int, float], *changes: str) -> Twins:
    def model(config: Config) -> Transformer:
        ours = random_model(config)
        push_all(ours, strengths)
        return ours

    return twins(folder, *PUSHABLE, *changes, model=model)


# Scores -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [-1.0, 0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize(("beam_size", "n_best"), [(1, 1), (2, 1), (4, 1), (4, 4)])
def test_the_same_as_torch(lively: Twins, beam_size: int, n_best: int, alpha: float) -> None:
    found = both_find(lively, IDS, SearchOptions(beam_size, n_best, alpha, max_length=12))
    assert len({len(h.ids) for hypotheses in found for h in hypotheses}) > 1, "no variety of lengths"


@pytest.mark.parametrize("min_length", [0, 1, 5])
@pytest.mark.parametrize("beam_size", [1, 3])
def test_no_translation_is_shorter_than_asked(tmp_path: Path, beam_size: int, min_length: int) -> None:
    eager = pushed(tmp_path, {EOS_ID: 10.0, PAD_ID: -20.0, UNK_ID: -20.0, SOS_ID: -20.0})
    options = SearchOptions(beam_size, min_length=min_length, max_length=12)
    for [best] in both_find(eager, IDS, options):
        assert len(best.ids) == min_length


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("special", [PAD_ID, UNK_ID, SOS_ID])
def test_specials_are_in_no_translation_and_have_no_probability(tmp_path: Path, special: int, beam_size: int) -> None:
    tempted = pushed(tmp_path, {special: 4.0, EOS_ID: 3.5})
    found = both_find(tempted, IDS, SearchOptions(beam_size, n_best=beam_size, max_length=12))
    assert all(min(h.ids, default=4) >= len(SPECIALS) for hypotheses in found for h in hypotheses)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize(("beam_size", "n_best"), [(1, 1), (4, 3)])
def test_no_ngram_is_repeated(lively: Twins, endless: Twins, beam_size: int, n_best: int, size: int) -> None:
    """Also where the bound ends a translation, whose probability there is without that of the banned tokens."""
    free = SearchOptions(beam_size, n_best, max_length=12)
    for both in (lively, endless):
        found = both_find(both, IDS, replace(free, no_repeat_ngram_size=size))
        for ids in (h.ids for hypotheses in found for h in hypotheses):
            ngrams = [tuple(ids[i : i + size]) for i in range(len(ids) - size + 1)]
            assert len(set(ngrams)) == len(ngrams)
    assert [h.ids for [h, *_] in found] != [h.ids for [h, *_] in both_find(endless, IDS, free)]


@pytest.mark.parametrize("strength", [6.0, 8.0])
def test_a_ban_of_the_likeliest_token_at_the_bound(tmp_path: Path, strength: float) -> None:
    """The other tokens, EOS among them, share what is left of the probability: next to nothing."""
    sure = pushed(tmp_path, {**dict.fromkeys((PAD_ID, UNK_ID, SOS_ID, EOS_ID), -20.0), 270: strength})
    for beam_size in (1, 2):
        found = both_find(sure, IDS[:2], SearchOptions(beam_size, max_length=12, no_repeat_ngram_size=2))
        assert [len(h.ids) for [h] in found] == [12, 12]


@pytest.mark.parametrize("first", [[], [50]])
def test_attention_in_a_batch_is_that_of_each_sentence_alone(lively: Twins, first: list[int]) -> None:
    options, engine = replace(OPTIONS, attention=True), lively.fast()
    together = engine.translate(IDS, options, [first] * len(IDS))
    for ids, found in zip(IDS, together, strict=True):
        [alone] = engine.translate([ids], options, [first])
        assert [h.ids for h in found] == [h.ids for h in alone]
        for h, other in zip(found, alone, strict=True):
            for row, expected in zip(h.attention, other.attention, strict=True):
                assert row == pytest.approx(expected, abs=1e-5)


# Order and batches --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", ["1", "3"])
def test_many_sentences_are_translated_as_each_alone_and_in_order(
    lively: Twins, workers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are more than a batch holds, of many lengths, some of them twice."""
    many = sentences([1 + (7 * row) % 13 for row in range(75)], VOCAB, seed=4)
    many += many[:5]
    monkeypatch.setenv("OMP_NUM_THREADS", workers)
    engine, options = lively.fast(), SearchOptions(3, 2, max_length=12)
    together = engine.translate(many, options)
    same(together, [engine.translate([ids], options)[0] for ids in many], 1e-4)
    same(together[75:], together[:5], 1e-4)
    assert len({(tuple(found[0].ids), round(found[0].log_prob, 3)) for found in together}) > 50


@pytest.mark.parametrize("batch_tokens", [1, 30, 10_000])
def test_the_size_of_batches_changes_nothing(tmp_path: Path, batch_tokens: int) -> None:
    both = twins(tmp_path, f"decoding.batch_tokens={batch_tokens}", model=ending)
    found = both.fast().translate(IDS * 5, OPTIONS)
    same(found, found[: len(IDS)] * 5)
    same(found[: len(IDS)], both.slow().translate(IDS, OPTIONS))


@pytest.mark.parametrize(("max_tokens", "max_sentences"), [(1, 9), (30, 4), (40, 100), (10_000, 3)])
def test_batches_are_within_their_bounds(max_tokens: int, max_sentences: int) -> None:
    lengths = [(11 * row) % 17 for row in range(60)]
    batches = list(batch_by_length(lengths, max_tokens, max_sentences))
    flat = [index for batch in batches for index in batch]
    assert sorted(flat) == [i for i, length in enumerate(lengths) if length]
    assert [lengths[i] for i in flat] == sorted((n for n in lengths if n), reverse=True)
    for batch, following in zip(batches, [*batches[1:], None], strict=True):
        assert len(batch) <= max_sentences
        assert len(batch) == 1 or len(batch) * lengths[batch[0]] <= max_tokens
        if following:  # there was no room for its first sentence
            assert len(batch) == max_sentences or (len(batch) + 1) * lengths[batch[0]] > max_tokens


@pytest.mark.parametrize(
    ("n_sentences", "n_workers", "largest", "size"),
    [
        (1, 1, 64, 1),
        (40, 1, 64, 40),  # there is no other worker to wait for
        (4000, 1, 64, 64),
        (3, 2, 64, 2),  # all workers get some
        (16, 2, 64, 8),
        (64, 2, 64, 8),
        (160, 2, 64, 20),  # four batches for each
        (4000, 2, 64, 64),
        (4000, 32, 64, 32),
        (30, 32, 64, 1),
        (4000, 2, 8, 8),
        (6, 2, 8, 3),
    ],
)
def test_workers_get_several_batches_of_a_fair_size(n_sentences: int, n_workers: int, largest: int, size: int) -> None:
    assert batch_sentences(n_sentences, n_workers, largest) == size


def test_a_sentence_without_tokens(lively: Twins) -> None:
    options, engine = SearchOptions(1, max_length=12), lively.fast()
    assert engine.translate([], options) == []
    [_, within, _] = engine.translate([IDS[0], [], IDS[1]], options)
    assert engine.translate([[]], options) == lively.slow().translate([[]], options) == [within]


# Bounds -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize(("max_length", "ratio"), [(25, 0.5), (25, 1.0), (25, 2.5), (12, 3.0), (1, 3.0), (2, 3.0)])
def test_endless_translations_stop_where_torch_stops_them(
    endless: Twins, max_length: int, ratio: float, beam_size: int
) -> None:
    """Each ends with a forced EOS at its own bound, independently of its batch."""
    ids = sentences([1, 4, 9], VOCAB)
    options = SearchOptions(beam_size, n_best=beam_size, max_length=max_length, max_length_ratio=ratio)
    for source, hypotheses in zip(ids, both_find(endless, ids, options), strict=True):
        bound = min(max_length, math.ceil(ratio * (len(source) + 2)) + 10)
        assert [len(h.ids) for h in hypotheses] == [bound] * beam_size
        assert len({tuple(h.ids) for h in hypotheses}) == beam_size


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_endless_translations_end_with_learned_positions_too(tmp_path: Path, alpha: float, beam_size: int) -> None:
    both = twins(tmp_path, *PUSHABLE, "model.positions=learned", "data.max_length=12", model=endless_model)
    options = SearchOptions(beam_size, length_penalty=alpha, max_length=256, max_length_ratio=9)
    for [best] in both_find(both, sentences([3, 10, 1], VOCAB), options):
        assert len(best.ids) == 11


def test_bounds_of_some_sentences_leave_the_others_unchanged(tmp_path: Path) -> None:
    """Bounds around the longest, a neighbour that needs a larger bound, and each one's own length as its bound.

    EOS needs a step of its own; otherwise a translation of maximum length would count as cut off.
    """
    both = twins(tmp_path, model=ending)
    engine, slow_engine = both.fast(), both.slow()
    greedy = engine.translate(IDS, SearchOptions(1, max_length=12))
    longest = max(len(found.ids) for [found] in greedy)
    for bound in range(longest - 1, longest + 2):
        options = SearchOptions(1, max_length=bound)
        for [fast], [slow] in zip(engine.translate(IDS, options), slow_engine.translate(IDS, options), strict=True):
            assert fast.ids == slow.ids
            if len(fast.ids) < bound:
                assert fast.log_prob == pytest.approx(slow.log_prob, abs=1e-3)
    for source, [expected] in zip(IDS, greedy, strict=True):
        [beside, _] = engine.translate([source, *sentences([38], VOCAB)], SearchOptions(1, max_length=12))
        [fitting] = engine.translate([source], SearchOptions(1, max_length=max(1, len(expected.ids))))
        same([beside, fitting], [[expected]] * 2)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_bound_holds_beside_a_sentence_with_a_larger_one(tmp_path: Path, beam_size: int) -> None:
    """Both would end on their own after 14 tokens, more than the first may have."""

    def reciting(config: Config) -> Transformer:
        model = reciting_model(range(270, 284), VOCAB)
        with torch.no_grad():
            model.output.weight[: len(SPECIALS) - 1] = -10
        return model

    changes = ["model.d_model=32", "model.d_ff=32", "model.positions=learned", "model.tie_embeddings=false"]
    both = twins(tmp_path, *changes, "data.max_length=200", model=reciting)
    options = SearchOptions(beam_size, max_length=100, max_length_ratio=0.1)
    found = both_find(both, sentences([1, 60], VOCAB), options)
    assert [best.ids for [best] in found] == [[*range(270, 281)], [*range(270, 284)]]


@pytest.mark.parametrize("max_length", [1, 2])
def test_a_beam_wider_than_the_vocabulary(endless: Twins, max_length: int) -> None:
    vocab = tokenizers(True).target.vocab_size
    options = SearchOptions(vocab + 50, n_best=vocab + 50, max_length=max_length)
    [found] = endless.fast().translate(IDS[:1], options)
    [expected] = endless.slow().translate(IDS[:1], options)
    assert all(min(h.ids, default=4) >= len(SPECIALS) and len(h.ids) <= max_length for h in found)
    assert [h.ids for h in found[:50]] == [h.ids for h in expected[:50]]
    assert len({tuple(h.ids) for h in found}) == len(found)


# Threads ------------------------------------------------------------------------------------------------------------


def test_omp_num_threads_lowers_the_number_of_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS")
    cores = cpu_cores()
    assert cores >= 1
    for wanted, expected in {"1": 1, "100000": cores, "0": cores, "": cores, "-1": cores, "many": cores}.items():
        monkeypatch.setenv("OMP_NUM_THREADS", wanted)
        assert cpu_cores() == expected


@pytest.mark.parametrize("beam_size", [1, 3])
def test_without_scores_the_translations_are_the_same(lively: Twins, beam_size: int) -> None:
    options = SearchOptions(beam_size, max_length=12)
    plain = lively.fast().translate(IDS, replace(options, scores=False))
    assert [h.ids for [h] in plain] == [h.ids for [h] in lively.fast().translate(IDS, options)]


def test_a_missing_library_of_cuda_is_named(lively: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("Library libcublas.so.12 is not found or cannot be loaded")

    engine = lively.fast()
    monkeypatch.setattr(engine, "_translator", SimpleNamespace(translate_batch=fail))
    with pytest.raises(MachineError, match=r"libcublas\.so\.12 is not found") as caught:
        engine.translate(IDS, OPTIONS)
    assert "--device cpu" in caught.value.hint
    with pytest.raises(MachineError, match=r"libcublas\.so\.12 is not found"):  # as for a prefix, before the search
        list(engine.next_log_probs(IDS, IDS))
