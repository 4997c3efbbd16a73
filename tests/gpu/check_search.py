"""Every search on fake CUDA: the CPU's results, and at most one wait a decoding step."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any

from fake_cuda import CUDA, fake_gpu  # isort: skip (before torch)
import pytest
import torch

from graph_helpers import Captures
from model_helpers import DECODER_ONLY, lively_model
from mt.data.tokenizer import SPECIALS
from mt.decoding.cuda_graphs import GraphedDecoder
from mt.decoding.engine import Sampling, SearchOptions
from mt.decoding.ensemble import Ensemble
from mt.decoding.scoring import forced_score
from mt.decoding.search import pad_sources
from mt.decoding.torch_engine import TorchEngine

SHALLOW = {"encoder_layers": 1, "decoder_layers": 1}
MODELS: dict[str, Callable[[], Any]] = {
    "encoder-decoder": lambda: lively_model(**SHALLOW),
    "decoder-only": lambda: lively_model(3, **{**DECODER_ONLY[0], "decoder_layers": 1}),
    "bidirectional": lambda: lively_model(3, **{**DECODER_ONLY[1], "decoder_layers": 1}),
    "ensemble": lambda: Ensemble([lively_model(seed, **SHALLOW) for seed in (0, 1)]),
}
SEARCHES = {
    "greedy": SearchOptions(beam_size=1, max_length=8),
    "beam": SearchOptions(beam_size=5, n_best=3, max_length=8),
    "sampling": SearchOptions(beam_size=1, n_best=2, max_length=8, sampling=Sampling(top_k=8, top_p=0.9)),
}
CASES = [
    *(("encoder-decoder", search) for search in SEARCHES),
    ("decoder-only", "beam"),
    ("decoder-only", "sampling"),
    ("bidirectional", "greedy"),
    ("ensemble", "beam"),
]
WAITS_TO_START = 10  # for the source, its lengths and bounds, and, for each model, where it is padded
RECLAIM = "mt/model/decoder_state.py"  # counts slots in use when the caches are full, which is rare


def sentences(lengths: list[int], seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(len(SPECIALS), 12, (length,), generator=generator).tolist() for length in lengths]


@pytest.mark.parametrize(("kind", "search"), CASES)
def test_searches_find_what_the_cpu_finds_and_wait_once_a_step(kind: str, search: str) -> None:
    model, ids, options = MODELS[kind](), sentences([7, 2, 5, 1, 6, 6, 3]), SEARCHES[search]
    expected = TorchEngine(model, 4096).translate(ids, options)
    assert len({len(h.ids) for found in expected for h in found}) > 2, "sentences leave at different steps"
    waits: list[int] = []
    with fake_gpu(values=True) as cuda:
        cuda.move(model)
        step = model.step

        def counting_step(*args: Any) -> torch.Tensor:
            waits.append(len([place for place in cuda.waits if not place.startswith(RECLAIM)]))
            return step(*args)

        model.step = counting_step
        found = TorchEngine(model, 4096).translate(ids, options)
    for mine, theirs in zip(found, expected, strict=True):
        assert [h.ids for h in mine] == [h.ids for h in theirs]
        assert [h.log_prob for h in mine] == pytest.approx([h.log_prob for h in theirs], abs=1e-4)
    assert waits[0] <= WAITS_TO_START, cuda.waits
    assert all(after - before <= 1 for before, after in pairwise(waits)), cuda.waits
    assert sum(place.startswith(RECLAIM) for place in cuda.waits) <= len(waits) / 8


GRAPHED = [
    ("encoder-decoder", "beam"),
    *(
        pytest.param(*other, marks=pytest.mark.slow)
        for other in (
            ("encoder-decoder", "greedy"),
            ("encoder-decoder", "sampling"),
            ("decoder-only", "beam"),
            ("bidirectional", "greedy"),
        )
    ),
]


@pytest.mark.parametrize(("kind", "search"), GRAPHED)
def test_replayed_steps_find_what_single_launches_find(kind: str, search: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of several sizes share buffers, in which others' numbers remain; caches outgrow their first size."""
    model = MODELS[kind]()
    options = replace(SEARCHES[search], max_length=40)
    batches = [sentences([7, 2, 5, 1, 6, 6, 3]), sentences([3, 9]), sentences([7, 2, 5, 1, 6, 20, 3], seed=1)]
    expected = [TorchEngine(model, 4096).translate(batch, options) for batch in batches]
    with fake_gpu(values=True) as cuda:
        cuda.move(model)
        captures, engine, waits = Captures(monkeypatch, model), TorchEngine(model, 4096, graphs=True), []
        step = engine._graphed.step

        def counting_step(*args: Any) -> torch.Tensor:
            waits.append(len([place for place in cuda.waits if not place.startswith(RECLAIM)]))
            return step(*args)

        engine._graphed.step = counting_step
        for _ in range(2):
            found = [engine.translate(batch, options) for batch in batches]
            for cache in chain(*(each.caches for each in engine._graphed._buffers.values())):
                cache.values.fill_(math.nan)  # as a sentence that overflows fp16 leaves it
    for mine, theirs in zip(chain(*found), chain(*expected), strict=True):
        assert [h.ids for h in mine] == [h.ids for h in theirs]
        assert [h.log_prob for h in mine] == pytest.approx([h.log_prob for h in theirs], abs=1e-4)
    replays = sum(graph.replays for graph in captures.graphs)
    assert len(captures.graphs) <= 16
    assert replays > 0.7 * len(waits)
    assert sum(after - before > 1 for before, after in pairwise(waits)) < 2 * len(batches), "only where one begins"


def test_rows_without_a_sentence_stay_within_the_table_of_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that three sentences leave over keeps the long prompt of an earlier search, and its position advances."""
    model = lively_model(3, max_length=40, **{**DECODER_ONLY[0], "decoder_layers": 1, "positions": "sinusoidal"})
    with fake_gpu(values=True) as cuda:
        cuda.move(model)
        Captures(monkeypatch, model)
        decoder = GraphedDecoder(model)
        for lengths, steps in (([1] * 4, 2), ([50] * 4, 2), ([1] * 3, 60)):
            state = decoder.start(pad_sources(sentences(lengths), torch.device("cpu")).to(CUDA))
            for _ in range(steps):
                logits = decoder.step(torch.full((len(lengths), 1), 5).to(CUDA), state)
            assert logits.isfinite().all()
    assert len(decoder._buffers) == 1


@pytest.mark.parametrize("kind", ["encoder-decoder", "decoder-only", "bidirectional"])
def test_forced_scores_are_the_cpus_and_rows_cost_no_copies(kind: str) -> None:
    model, pairs = MODELS[kind](), (sentences([7, 2, 5, 1]), sentences([3, 8, 1, 5], seed=1))
    src_tokens = pad_sources(pairs[0], torch.device("cpu"))
    expected = forced_score(model, src_tokens, pairs[1])
    with fake_gpu(values=True) as cuda:
        cuda.move(model)
        src_tokens = src_tokens.pin_memory().to(CUDA, non_blocking=True)
        cuda.copies.clear()
        assert forced_score(model, src_tokens, pairs[1]) == pytest.approx(expected, abs=1e-4)
    assert len(cuda.copies) == 1, cuda.copies
    assert len(cuda.waits) <= 8, cuda.waits
