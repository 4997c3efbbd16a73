"""Greedy and beam search against brute force, a textbook beam search and forced decoding."""

import math
from dataclasses import replace
from functools import partial
from itertools import product

import pytest
import torch
from torch import Tensor

import engine_helpers
from engine_helpers import sentences
from model_helpers import DECODER_ONLY, close, lively_model, push, reciting_model, small_model, sources
from mt.data.tokenizer import EOS_ID, PAD_ID, SOS_ID
from mt.decoding.beam import block_topk
from mt.decoding.engine import Hypothesis, Sampling, SearchOptions
from mt.decoding.scoring import forced_score
from mt.decoding.search import beam_search, log_probs_of, pad_sources, search
from mt.model.transformer import Transformer

SHAPES = [
    {},
    {"norm": "pre", "positions": "learned"},
    {"tie_embeddings": False, "activation": "swiglu"},
    {"norm": "pre", "positions": "rotary"},
    *DECODER_ONLY,
    {**DECODER_ONLY[0], "positions": "rotary"},
]
SEEDS = range(4)
METHODS = [
    {"beam_size": 1},
    {"beam_size": 3},
    {"sampling": Sampling()},
    {"sampling": Sampling(top_k=3)},
    {"sampling": Sampling(top_p=0.8)},
]


same = partial(engine_helpers.same, tolerance=2e-5)


def penalised(log_prob: float, length: int, alpha: float) -> float:
    """Return the score; the length of the penalty includes EOS."""
    return log_prob / (length + 1) ** alpha


def space_of(vocab: int, min_length: int, max_length: int) -> list[list[int]]:
    """Return all translations of these lengths."""
    return [list(ids) for n in range(min_length, max_length + 1) for ids in product(range(4, vocab), repeat=n)]


def decode(model: Transformer, lines: list[list[int]], options: SearchOptions) -> list[list[Hypothesis]]:
    """Search or sample one batch."""
    src_tokens = pad_sources(lines, torch.device("cpu"))
    return search(model, src_tokens, options, draws=[(line, 0) for line in lines])


def likelihoods(model: Transformer, src_tokens: Tensor, space: list[list[int]], min_length: int) -> list[float]:
    """Return log-probabilities of translations in a model without EOS before `min_length`."""
    forced = forced_score(model, src_tokens.expand(len(space), -1), space)
    if min_length:
        for number, ids in enumerate(space):
            with torch.no_grad():
                logits = model(src_tokens[None], torch.tensor([[SOS_ID, *ids]]))[0, :min_length]
            free = log_probs_of(logits.clone())[:, EOS_ID].exp()
            forced[number] -= (1 - free).log().sum().item()
    return forced


def repeating(ids: list[int], size: int, vocab: int) -> list[int]:
    """Return the tokens with which a translation would have the same n-gram twice."""

    def repeats(tokens: list[int]) -> bool:
        ngrams = [tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)]
        return len(set(ngrams)) < len(ngrams)

    return [token for token in range(4, vocab) if size and repeats([*ids, token])]


def textbook_beam(model: Transformer, src_tokens: Tensor, options: SearchOptions, bound: int) -> list[Hypothesis]:
    """Search one sentence without caches or batches until beam_size hypotheses have ended."""
    live: list[tuple[float, list[int]]] = [(0.0, [])]
    finished: list[Hypothesis] = []
    while live and len(finished) < options.beam_size:
        tgt_in = torch.tensor([[SOS_ID, *ids] for _, ids in live])
        with torch.no_grad():
            logits = model(src_tokens.expand(len(live), -1), tgt_in)[:, -1]
        if len(live[0][1]) < options.min_length:
            logits[:, EOS_ID] = -math.inf
        for row, (_, ids) in enumerate(live):
            for token in repeating(ids, options.no_repeat_ngram_size, vocab=logits.shape[1]):
                logits[row, token] = -math.inf
        log_probs = log_probs_of(logits).tolist()
        candidates = []
        for (total, ids), row in zip(live, log_probs, strict=True):
            words = [] if len(ids) == bound else range(4, len(row))
            ending = [EOS_ID] if len(ids) >= options.min_length else []
            candidates += [(total + row[token], [*ids, token]) for token in (*words, *ending)]
        candidates.sort(key=lambda candidate: -candidate[0])
        for total, ids in candidates[: options.beam_size]:
            if ids[-1] == EOS_ID:
                score = penalised(total, len(ids) - 1, options.length_penalty)
                finished.append(Hypothesis(ids[:-1], total, score))
        live = [(total, ids) for total, ids in candidates if ids[-1] != EOS_ID][: options.beam_size]
    return sorted(finished, key=lambda h: -h.score)[: options.n_best]


@pytest.mark.parametrize(
    ("rows", "columns", "k"), [(3, 5000, 10), (1, 4096, 1), (2, 63, 9), (2, 641, 10), (4, 2600, 10)]
)
def test_top_is_topk(rows: int, columns: int, k: int) -> None:
    """The largest values may lie in a single block, or after the last full one."""
    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(1))
    x[0, -2 * k :] += 10.0
    values, places = block_topk(x, k)
    expected = x.topk(k)
    assert values.equal(expected.values)
    assert places.equal(expected.indices)


@pytest.mark.parametrize("alpha", [-1.0, 0.0, 0.6, 2.0])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_beam_of_one_is_greedy(seed: int, alpha: float) -> None:
    model, src_tokens = lively_model(seed), sources([7, 1, 4, 9, 3, 5], seed=seed)
    options = SearchOptions(beam_size=1, length_penalty=alpha, max_length=15)
    greedy = search(model, src_tokens, options)
    assert len({len(h.ids) for [h] in greedy}) > 1, "no variety of lengths"
    same(greedy, beam_search(model, src_tokens, options))


@pytest.mark.parametrize("alpha", [-2.0, 0.0, 1.0, 2.0])
@pytest.mark.parametrize(("vocab", "max_length", "min_length"), [(6, 4, 0), (7, 3, 0), (7, 3, 2)])
def test_a_beam_as_wide_as_the_space_finds_the_best(vocab: int, max_length: int, min_length: int, alpha: float) -> None:
    for seed in SEEDS:
        model, src_tokens = lively_model(seed, vocab=vocab), sources([4, 2], vocab, seed)
        space = space_of(vocab, min_length, max_length)
        options = SearchOptions(len(space) + 1, 7, alpha, min_length=min_length, max_length=max_length)
        found = beam_search(model, src_tokens, options)
        for row in range(2):
            log_probs = likelihoods(model, src_tokens[row], space, min_length)
            scored = [
                Hypothesis(ids, log_prob, penalised(log_prob, len(ids), alpha))
                for ids, log_prob in zip(space, log_probs, strict=True)
            ]
            same(found[row : row + 1], [sorted(scored, key=lambda h: -h.score)[:7]])
            [[best]] = beam_search(model, src_tokens[row : row + 1], replace(options, n_best=1))
            assert best.ids == found[row][0].ids


@pytest.mark.parametrize(("beam_size", "n_best"), [(1, 1), (2, 1), (3, 3), (5, 1), (5, 2), (30, 4)])
@pytest.mark.parametrize("alpha", [-1.0, 0.0, 1.0, 4.0])
def test_equals_a_textbook_beam_search(beam_size: int, n_best: int, alpha: float) -> None:
    """Batches, caches and early stopping change nothing."""
    for seed in SEEDS:
        model, src_tokens = lively_model(seed), sources([6, 2, 4], seed=seed)
        options = SearchOptions(beam_size, n_best, alpha, min_length=seed % 3, max_length=8)
        expected = [textbook_beam(model, src_tokens[row : row + 1], options, bound=8) for row in range(3)]
        same(beam_search(model, src_tokens, options), expected)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("beam_size", [1, 3])
def test_no_ngram_is_repeated(beam_size: int, size: int) -> None:
    """Models that repeat one token or two: the ban equals that of the textbook."""
    changed = 0
    for seed in range(8):
        model, src_tokens = lively_model(seed, vocab=9), sources([6, 2, 4], 9, seed)
        free = SearchOptions(beam_size, beam_size, max_length=12)
        options = replace(free, no_repeat_ngram_size=size)
        expected = [textbook_beam(model, src_tokens[row : row + 1], options, bound=12) for row in range(3)]
        found = search(model, src_tokens, options)
        same(found, expected)
        assert all(h.ids[i] not in repeating(h.ids[:i], size, 9) for r in found for h in r for i in range(len(h.ids)))
        changed += [h.ids for [h, *_] in found] != [h.ids for [h, *_] in search(model, src_tokens, free)]
    assert changed >= 2


def test_search_continues_while_a_longer_translation_can_win() -> None:
    """Ending at once is likelier, but every later token is certain and the penalty favours length."""
    ids = [4, 5, 6, 7, 8, 9, 10, 11]
    model, src_tokens = reciting_model(ids, vocab=12), sources([3])
    with torch.no_grad():
        model.output.weight[EOS_ID, 0] = 10.4
    for beam_size, alpha, expected in (1, 1.0, []), (2, 0.0, []), (2, 1.0, ids):
        [[best]] = search(model, src_tokens, SearchOptions(beam_size, length_penalty=alpha))
        assert best.ids == expected


def test_stops_as_soon_as_nothing_can_change() -> None:
    model, src_tokens = small_model(tie_embeddings=False), sources([5])
    push(model, EOS_ID, 10.0)
    steps = []
    model.output.register_forward_hook(lambda *_: steps.append(1))
    [found] = beam_search(model, src_tokens, SearchOptions(beam_size=8, length_penalty=0.0, max_length=20))
    assert found[0].ids == []
    assert len(steps) == 1


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_batch_of_64_is_64_batches_of_one(beam_size: int) -> None:
    lengths = [1 + (7 * row) % 12 for row in range(64)]
    model, src_tokens = lively_model(), sources(lengths)
    options = SearchOptions(beam_size, n_best=min(2, beam_size), max_length=14)
    together = search(model, src_tokens, options)
    same(together, [search(model, src_tokens[i : i + 1, : n + 2], options)[0] for i, n in enumerate(lengths)])
    assert len({len(found[0].ids) for found in together}) > 3


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("alpha", [-0.5, 0.0, 1.0])
@pytest.mark.parametrize("beam_size", [1, 4])
def test_scores_are_those_of_forced_scoring(beam_size: int, alpha: float, shape: dict) -> None:
    model, src_tokens = lively_model(**shape), sources([7, 2, 5, 1])
    # Some translations reach the bound, where EOS is forced.
    options = SearchOptions(beam_size, n_best=beam_size, length_penalty=alpha, max_length=9)
    found = search(model, src_tokens, options)
    assert 9 in {len(h.ids) for hypotheses in found for h in hypotheses}
    for row, hypotheses in enumerate(found):
        alone = src_tokens[row : row + 1, : int((src_tokens[row] != PAD_ID).sum())]
        forced = forced_score(model, alone.expand(len(hypotheses), -1), [h.ids for h in hypotheses])
        close(torch.tensor([h.log_prob for h in hypotheses]), torch.tensor(forced))
        for h in hypotheses:
            assert h.score == pytest.approx(penalised(h.log_prob, len(h.ids), alpha), rel=1e-9)


def test_forced_scoring_is_the_sum_over_all_tokens_and_eos() -> None:
    model, src_tokens = small_model(), sources([5, 3])
    ids = [[4, 7, 5], [6]]
    for row, tokens in enumerate(ids):
        length = int((src_tokens[row] != PAD_ID).sum())
        log_probs = log_probs_of(model(src_tokens[row : row + 1, :length], torch.tensor([[SOS_ID, *tokens]])))[0]
        expected = sum(log_probs[place, token].item() for place, token in enumerate([*tokens, EOS_ID]))
        assert forced_score(model, src_tokens, ids)[row] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("method", METHODS[:3], ids=str)
def test_always_ends_at_the_bound_of_each_sentence(method: dict) -> None:
    lengths = [1, 4, 9]
    model, lines = small_model(max_length=64, tie_embeddings=False), sentences(lengths, 12)
    push(model, EOS_ID, -20.0)
    for max_length, ratio in ((25, 0.5), (25, 1.0), (25, 2.5), (1, 3.0), (2, 3.0), (7, 3.0)):
        options = SearchOptions(max_length=max_length, max_length_ratio=ratio, **method)
        for length, [best] in zip(lengths, decode(model, lines, options), strict=True):
            assert len(best.ids) == min(max_length, math.ceil(ratio * (length + 2)) + 10)
            assert math.isfinite(best.log_prob)


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_search_ends_after_numerical_failure(number: float, method: dict) -> None:
    """One sentence overflows in the model: it still gets a translation, and the other sentence is unaffected."""
    model, lines = lively_model(shared=False), [[5, 6], [7, 8]]
    options = SearchOptions(max_length=8, **method)
    expected = decode(model, lines[1:], options)
    with torch.no_grad():
        model.source_embedding.tokens.weight[5] = number
    steps: list[int] = []

    def count(*_: object) -> None:
        steps.append(1)
        assert len(steps) <= 20, "endless"

    model.output.register_forward_hook(count)
    [[broken], *whole] = decode(model, lines, options)
    assert len(broken.ids) <= 8
    assert min(broken.ids, default=4) >= 4
    same(whole, expected)


@pytest.mark.parametrize("method", METHODS[:3], ids=str)
@pytest.mark.parametrize("min_length", [0, 1, 5])
def test_no_translation_is_shorter_than_asked(method: dict, min_length: int) -> None:
    model = small_model(tie_embeddings=False)
    push(model, EOS_ID, 20.0)
    options = SearchOptions(min_length=min_length, max_length=20, **method)
    for [best] in decode(model, sentences([1, 4, 9], 12), options):
        assert len(best.ids) == min_length


@pytest.mark.parametrize(("vocab", "min_length"), [(6, 0), (6, 2), (5, 0)])
def test_a_beam_may_be_wider_than_the_vocabulary_and_than_the_space(vocab: int, min_length: int) -> None:
    options = SearchOptions(50, n_best=50, min_length=min_length, max_length=2)
    for hypotheses in search(small_model(vocab=vocab), sources([3, 2], vocab=vocab), options):
        assert sorted(h.ids for h in hypotheses) == sorted(space_of(vocab, min_length, 2))


@pytest.mark.parametrize("beam_size", [1, 3])
def test_search_leaves_the_model_as_it_was(beam_size: int) -> None:
    model, src_tokens = small_model(), sources([4, 2])
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    first = search(model, src_tokens, SearchOptions(beam_size, max_length=8))
    assert search(model, src_tokens, SearchOptions(beam_size, max_length=8)) == first
    assert all(parameter.equal(before[name]) for name, parameter in model.named_parameters())
    model.train()(src_tokens, src_tokens).sum().backward()
