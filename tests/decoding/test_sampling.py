"""Sampling: frequencies, reproducibility and length bounds."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest
import torch

from engine_helpers import printed_lines, sentences
from model_helpers import lively_model, push, small_model, sources
from mt.data.tokenizer import EOS_ID, SOS_ID
from mt.decoding.engine import EMPTY_HYPOTHESIS, Hypothesis, Sampling, SearchOptions
from mt.decoding.ensemble import Ensemble
from mt.decoding.sampling import draw_tokens
from mt.decoding.scoring import forced_score
from mt.decoding.search import log_probs_of, search
from mt.decoding.torch_engine import TorchEngine
from mt.model.transformer import Transformer

PROBS = [0.05, 0.4, 0.15, 0.1, 0.3]
LINES = sentences([5, 1, 8, 3, 12, 5, 7, 2], 12)
DEVIATIONS = 4.5  # allowed difference of a frequency, in standard deviations


def options(n_best: int = 1, max_length: int = 10, min_length: int = 0, **sampling: float) -> SearchOptions:
    chosen = Sampling(**sampling)
    return SearchOptions(5, n_best, max_length=max_length, min_length=min_length, sampling=chosen)


def drawn(
    model: Transformer | Ensemble, lines: Sequence[Sequence[int]], wanted: SearchOptions, batch_tokens: int = 4096
) -> list[list[Hypothesis]]:
    return TorchEngine(model, batch_tokens).translate(lines, wanted)


def texts(found: list[list[Hypothesis]]) -> list[list[list[int]]]:
    return [[h.ids for h in line] for line in found]


def agree(counts: dict, expected: dict, total: int) -> None:
    """Check frequencies against a distribution; impossible outcomes must not occur."""
    assert set(counts) <= {key for key, p in expected.items() if p > 0}
    for key, p in expected.items():
        assert abs(counts.get(key, 0) - total * p) <= DEVIATIONS * math.sqrt(total * p * (1 - p)) + 1e-6, key


def truncated(probs: Sequence[float], temperature: float, top_k: int, top_p: float) -> dict[int, float]:
    """Return the truncated distribution, computed token by token."""
    powers = {token: p ** (1 / temperature) for token, p in enumerate(probs)}
    ranked = sorted(powers, key=lambda token: -powers[token])[: top_k or len(probs)]
    total = sum(powers[token] for token in ranked)
    kept, reached = [], 0.0
    for token in ranked:
        if top_p == 1 or reached < top_p:
            kept.append(token)
        reached += powers[token] / total
    total = sum(powers[token] for token in kept)
    return {token: powers[token] / total if token in kept else 0.0 for token in powers}


# One token ------------------------------------------------------------------------------------------------------------


TRUNCATIONS = [
    *((temperature, 0, 1) for temperature in (1, 0.5, 3)),
    *((1, top_k, 1) for top_k in (3, 99)),
    *((1, 0, top_p) for top_p in (1e-9, 0.39, 0.41, 0.69, 0.86, 0.999)),
    (1, 2, 0.5),  # the first of two tokens has 0.57 of their probability, but 0.4 of all
    (1, 3, 0.8),  # likewise: 0.82 of what is left, 0.7 of all
    (2, 4, 0.6),  # top_p counts after the temperature
    (0.25, 0, 0.75),
]


@pytest.mark.parametrize(("temperature", "top_k", "top_p"), TRUNCATIONS)
def test_tokens_are_drawn_with_their_probabilities(temperature: float, top_k: int, top_p: float) -> None:
    """Two rows have different distributions."""
    total = 20_000
    uniform = torch.rand(2 * total, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    rows = torch.tensor([PROBS, PROBS[::-1]]).log().repeat(total, 1)
    tokens = draw_tokens(rows, Sampling(temperature, top_k, top_p), uniform)
    for first, probs in enumerate((PROBS, PROBS[::-1])):
        agree(Counter(tokens[first::2].tolist()), truncated(probs, temperature, top_k, top_p), total)


@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (0, 0.9999999), (4, 1.0), (3, 0.9999999)])
def test_tokens_without_probability_are_never_drawn(top_k: int, top_p: float) -> None:
    """Uniform numbers at both ends of the interval are included."""
    log_probs = torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0]).log()
    uniform = torch.tensor([0.0, 1e-300, 0.5, 1 - 2**-53], dtype=torch.float64)
    tokens = draw_tokens(log_probs.expand(4, -1), Sampling(top_k=top_k, top_p=top_p), uniform)
    assert set(tokens.tolist()) == {1, 3}


# Whole translations ---------------------------------------------------------------------------------------------------


def test_translations_are_sampled_with_their_probabilities() -> None:
    """All translations of a tiny model occur with their probabilities."""
    model, total = lively_model(vocab=6), 2000
    lines = [[4, 5], [5, 4, 4]]
    for line, found in zip(lines, drawn(model, lines, options(total, max_length=2)), strict=True):
        expected = {}
        for ids in [ids for n in range(3) for ids in product((4, 5), repeat=n)]:
            logits = model(torch.tensor([[SOS_ID, *line, EOS_ID]]), torch.tensor([[SOS_ID, *ids]]))[0]
            steps = log_probs_of(logits.detach()).exp()
            # At the bound it is made to end.
            tokens = [*ids, EOS_ID][:2]
            expected[ids] = math.prod(steps[place, token].item() for place, token in enumerate(tokens))
        assert sum(expected.values()) == pytest.approx(1, abs=1e-4)
        assert sorted(expected.values())[-3] > 0.05, "one of them is nearly certain"
        agree(Counter(tuple(h.ids) for h in found), expected, total)


def test_draws_of_a_sentence_and_of_sentences_and_of_seeds_are_independent() -> None:
    """Pairs of draws are equal only as often as by chance: of similar and reversed sentences, of successive seeds, and
    of successive seeds shifted by one draw."""
    model, total = lively_model(vocab=8), 1500
    lines = [[5, 6, 7], [5, 6, 7, 7], [7, 6, 5]]
    found = drawn(model, lines, options(total, max_length=1))
    one, longer, turned = ([tuple(h.ids) for h in line] for line in found)
    [[*again]] = drawn(model, lines[:1], options(total, max_length=1, seed=2))
    reseeded = [tuple(h.ids) for h in again]
    pairs = [(one[::2], one[1::2]), (one, longer), (one, turned), (one, reseeded)]
    for left, right in [*pairs, (one[1:], reseeded[:-1]), (one[:-1], reseeded[1:])]:
        shares = [Counter(side) for side in (left, right)]
        p = sum(shares[0][ids] * shares[1][ids] for ids in shares[0]) / (len(left) * len(right))
        assert 0.1 < p < 0.9
        equal = sum(a == b for a, b in zip(left, right, strict=True))
        assert abs(equal - len(left) * p) <= DEVIATIONS * math.sqrt(len(left) * p * (1 - p))


def test_the_same_seed_repeats_and_another_does_not() -> None:
    model = lively_model()
    first = drawn(model, LINES, options(2, seed=7))
    torch.manual_seed(99)
    assert drawn(model, LINES, options(2, seed=7)) == first
    for seed in (0, 8, 2**70):
        other = drawn(model, LINES, options(2, seed=seed))
        assert sum(a != b for a, b in zip(texts(other), texts(first), strict=True)) > len(LINES) / 2


def test_a_draw_does_not_depend_on_its_company() -> None:
    """Order, batch size, length of neighbours, number of draws and the bound are varied; an ensemble of copies."""
    model = lively_model()
    settings = {"max_length": 14, "temperature": 0.9, "top_p": 0.95}
    wanted = options(3, **settings)
    expected = texts(drawn(model, LINES, wanted))
    assert len({len(ids) for line in expected for ids in line}) > 3, "no variety of lengths"
    assert texts(drawn(model, LINES[::-1], wanted))[::-1] == expected
    for batch_tokens in (1, 20, 60):
        assert texts(drawn(model, LINES, wanted, batch_tokens)) == expected
    assert [texts(drawn(model, [line], wanted))[0] for line in LINES] == expected
    assert texts(drawn(model, LINES, options(1, **settings))) == [line[:1] for line in expected]
    longer = texts(drawn(model, LINES, options(3, **{**settings, "max_length": 200})))
    assert [[ids[:14] for ids in line] for line in longer] == expected
    assert texts(drawn(Ensemble([model, model]), LINES, wanted)) == expected


def test_a_sentence_that_comes_twice_is_drawn_alike_and_its_draws_differ() -> None:
    [first, second] = drawn(lively_model(), [LINES[0], LINES[0]], options(6))
    assert first == second
    assert len({tuple(h.ids) for h in first}) > 3


@pytest.mark.parametrize("likeliest", [{"top_k": 1}, {"temperature": 0.001}, {"top_p": 1e-6}], ids=str)
def test_nothing_but_the_likeliest_is_greedy_search(likeliest: dict) -> None:
    for seed in range(3):
        model, src_tokens = lively_model(seed), sources([len(line) for line in LINES], seed=seed)
        with torch.no_grad():
            model.output.weight *= 30  # so that no two tokens are nearly as likely
        lines = [[i for i in row if i >= 4] for row in src_tokens.tolist()]
        greedy = search(model, src_tokens, SearchOptions(1, max_length=15))
        found = drawn(model, lines, options(2, max_length=15, **likeliest))
        assert texts(found) == [[h.ids] * 2 for [h] in greedy]
        for line, [expected] in zip(found, greedy, strict=True):
            assert [h.log_prob for h in line] == pytest.approx([expected.log_prob] * 2, abs=1e-4)


@pytest.mark.parametrize("sampling", [{}, {"temperature": 2.0}, {"top_k": 3, "top_p": 0.7}], ids=str)
def test_log_probabilities_are_the_models_own(sampling: dict) -> None:
    """They are not those of the truncated distribution, even where EOS is forced."""
    model = lively_model()
    found = drawn(model, LINES, options(3, max_length=6, **sampling))
    assert 6 in {len(h.ids) for line in found for h in line}
    assert {len(h.ids) for line in found for h in line} - {6}
    for line, hypotheses in zip(LINES, found, strict=True):
        src_tokens = torch.tensor([[SOS_ID, *line, EOS_ID]]).expand(3, -1)
        forced = forced_score(model, src_tokens, [h.ids for h in hypotheses])
        assert [h.log_prob for h in hypotheses] == pytest.approx(forced, abs=1e-4)
        expected = [h.log_prob / (len(h.ids) + 1) for h in hypotheses]
        assert [h.score for h in hypotheses] == pytest.approx(expected, rel=1e-9)


def test_specials_are_in_no_translation() -> None:
    model = small_model(tie_embeddings=False)
    for special in range(EOS_ID):
        push(model, special, 20.0)
    found = drawn(model, LINES, options(5, temperature=50.0))
    assert min(i for line in found for h in line for i in h.ids) == 4


def test_a_line_without_tokens_has_nothing_to_draw() -> None:
    model = lively_model()
    found = drawn(model, [[], LINES[0], []], options())
    assert found == [[EMPTY_HYPOTHESIS], drawn(model, [LINES[0]], options())[0], [EMPTY_HYPOTHESIS]]
    assert drawn(model, [[]], options()) == [[EMPTY_HYPOTHESIS]]
    assert drawn(model, [], options(3)) == []


# The command line -----------------------------------------------------------------------------------------------------


def test_the_options_of_translate(trained: Path, tmp_path: Path) -> None:
    lines = ["a b c", "", "d e", "  ", "f g h i"]
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "reversed").write_text("".join(f"{line}\n" for line in lines[::-1]))
    command = ["translate", "--model", trained / "runs" / "tiny", "--input"]
    first = printed_lines(*command, tmp_path / "in", "--sample")
    assert [bool(line) for line in first] == [True, False, True, False, True]
    assert printed_lines(*command, tmp_path / "in", "--sample", "--seed", "1", "--temperature", "1") == first
    assert printed_lines(*command, tmp_path / "reversed", "--sample")[::-1] == first
    for changed in (["--seed", "2"], ["--temperature", "0.2"], ["--top-k", "5"], ["--top-p", "0.2"]):
        assert printed_lines(*command, tmp_path / "in", "--sample", *changed) != first
    greedy = printed_lines(*command, tmp_path / "in", "--greedy", "--engine", "torch")
    assert greedy != first
    for likeliest in (["--top-k", "1"], ["--top-p", "0.000001"]):
        assert printed_lines(*command, tmp_path / "in", "--sample", "--seed", "9", *likeliest) == greedy


def test_several_samples_of_a_line(trained: Path) -> None:
    """There may be more than the beam is wide; they are ranked by score."""
    command = ["translate", "a b c", "--model", trained / "runs" / "tiny", "--sample", "--seed", "3"]
    [line] = printed_lines(*command, "--n-best", "7", "--format", "jsonl")
    record = json.loads(line)
    scores, found = ([candidate[key] for candidate in record["n_best"]] for key in ("score", "text"))
    assert len(scores) == 7
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) > 4
    assert record["translation"] == found[0]
    assert printed_lines(*command)[0] in found
    assert len(printed_lines(*command, "--n-best", "7")) == 7
