"""Batches that are filled up to a few shapes; `tests/gpu/check_graphs.py` replays their passes."""

import contextlib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mt.config import parse_config
from mt.data.batching import Batch, plan_epoch
from mt.data.tokenizer import EOS_ID, PAD_ID
from mt.errors import InputError, MachineError
from mt.model.loss_rows import IGNORED
from mt.system.cuda_graphs import GraphCapture
from mt.training.cuda_graphs import fill_up

WORD = 7


def rows(lengths: list[int], last: int = WORD) -> np.ndarray:
    tokens = np.full((len(lengths), max(lengths)), PAD_ID)
    for row, length in enumerate(lengths):
        tokens[row, :length] = WORD
        tokens[row, length - 1] = last
    return tokens


def batch_of(src: list[int], tgt: list[int]) -> Batch:
    return Batch(rows(src, EOS_ID), rows(tgt), rows(tgt, EOS_ID), sum(src), sum(tgt))


def shape_of(batch: Batch) -> tuple[object, ...]:
    counts = [int((side != PAD_ID).sum()) for side in (batch.src_tokens, batch.tgt_in)]
    return batch.src_tokens.shape, batch.tgt_in.shape, *counts


@given(
    st.integers(1, 40).flatmap(lambda n: st.tuples(*[st.lists(st.integers(1, 60), min_size=n, max_size=n)] * 2)),
    st.integers(0, 500),
)
def test_real_tokens_stay_and_others_have_no_loss(lengths: tuple[list[int], list[int]], room: int) -> None:
    batch, longest = batch_of(*lengths), max(2, *map(max, lengths))
    max_tokens = longest * len(lengths[0]) + room
    filled = fill_up(batch, max_tokens, max_positions=longest)
    for before, after in ((batch.src_tokens, filled.src_tokens), (batch.tgt_in, filled.tgt_in)):
        n_rows, columns = before.shape
        assert (after[:n_rows, :columns] == before).all()
        assert not after[:n_rows, columns:].any()
        new = (after[n_rows:] != PAD_ID).sum(axis=1)
        assert 1 <= new.min() <= new.max() <= longest  # no query without a key, no position beyond the table
    counts = (filled.tgt_in != PAD_ID) & (filled.tgt_out != IGNORED)
    assert (filled.tgt_out[counts] == batch.tgt_out[batch.tgt_in != PAD_ID]).all()
    assert not counts[len(lengths[0]) :].any()
    assert (filled.n_src, filled.n_tgt) == (batch.n_src, batch.n_tgt)


def test_an_epoch_has_a_shape_for_each_power_of_two_and_few_new_tokens() -> None:
    random = np.random.default_rng(0)
    src = np.clip(random.lognormal(2.6, 0.5, 20_000).astype(np.int64), 3, 100)  # sentences of about 13 words
    tgt = np.clip((src * random.uniform(0.7, 1.3, len(src))).astype(np.int64), 2, 100)
    shapes, plain, added = set(), set(), []
    for indices in plan_epoch(src, tgt, 2000, seed=1, epoch=0):
        batch = batch_of(src[indices].tolist(), tgt[indices].tolist())
        filled = fill_up(batch, 2000)
        shapes.add(shape_of(filled))
        plain.add(shape_of(batch))
        added.append(shape_of(filled)[3] / batch.n_tgt)
    assert len(plain) > 150
    assert len(shapes) <= 6
    assert np.mean(added) < 1.4


def test_a_batch_that_is_too_large_stays_as_it_is() -> None:
    batch = batch_of([30], [31])
    assert fill_up(batch, 30) is batch
    assert fill_up(batch, 31) is not batch


@pytest.mark.parametrize("other", ["training.r_drop=1.0", "training.recompute=true"])
def test_passes_that_no_graph_holds_are_refused(tiny: Path, other: str) -> None:
    text = (tiny / "tiny.yaml").read_text()
    with pytest.raises(InputError, match="set cuda_graphs: false"):
        parse_config(text, "tiny.yaml", ["training.cuda_graphs=true", other])


@pytest.mark.parametrize(
    ("problem", "raised", "message"),
    [
        (
            RuntimeError("CUDA error: not permitted\nmore"),
            MachineError,
            "an option: a capture failed: CUDA error: not per",
        ),
        (torch.OutOfMemoryError("CUDA out of memory"), torch.OutOfMemoryError, "CUDA out"),  # then batches are split
    ],
)
def test_a_capture_that_fails_is_an_error(
    monkeypatch: pytest.MonkeyPatch, problem: Exception, raised: type[Exception], message: str
) -> None:
    def run() -> torch.Tensor:
        raise problem

    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", object)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, pool: contextlib.nullcontext())
    with pytest.raises(raised, match=message):
        GraphCapture("an option", "switch it off")(run)
