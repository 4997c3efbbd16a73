"""torch.compile as on a GPU: one graph without breaks, for all shapes; and the real step, compiled and distributed.

These need no GPU, fake or real: Dynamo traces alike on the CPU once dropout is the GPU's.
"""

import copy
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch._dynamo.utils import counters

from model_helpers import DECODER_ONLY, small_model
from mt.model import layers as model_layers
from mt.model.build import TranslationModel
from mt.model.packing import Packing
from mt.training import step as train_step
from mt.training.objective import Objective
from mt.training.sharding import wrap
from training_helpers import Parts

GRAPHS, SHAPES = 4, 50


@pytest.fixture(autouse=True)
def gpu_dropout(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The branch of dropout that a GPU takes, and a compiler without cached graphs."""
    monkeypatch.setattr(model_layers, "byte_dropout", F.dropout)
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def whole(model: TranslationModel) -> Callable[..., Tensor]:
    compiled: Callable[..., Tensor] = torch.compile(model.states, dynamic=True, fullgraph=True, backend="eager")
    return compiled


def by_layer(model: TranslationModel) -> Callable[..., Tensor]:
    for layer in model.blocks:
        layer.compile(dynamic=True, fullgraph=True, backend="eager")
    return model.states


def batches(number: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Draw token ids (B, S) and (B, T) of ever other shapes; every seventh batch needs no padding."""
    random = np.random.default_rng(0)
    for i in range(number):
        rows, *columns = random.integers((4, 5, 5), (40, 60, 60)).tolist()
        sides = []
        for length in columns:
            tokens = torch.from_numpy(random.integers(4, 64, (rows, length)))
            lengths = torch.from_numpy(random.integers(max(1, length - 3), length + 1, rows))
            lengths[0] = length
            sides.append(tokens if i % 7 == 6 else tokens * (torch.arange(length) < lengths[:, None]))
        yield sides[0], sides[1]


KINDS = {"encoder-decoder": {}, "decoder-only": DECODER_ONLY[0], "bidirectional": DECODER_ONLY[1]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "compiled", "layers"),
    [
        ("encoder-decoder", whole, 1),
        ("encoder-decoder", by_layer, 2),  # layers share their graphs
        ("decoder-only", whole, 2),
        ("decoder-only", by_layer, 2),
        ("bidirectional", whole, 2),
        ("bidirectional", by_layer, 2),
    ],
)
def test_all_shapes_share_a_few_graphs_without_breaks(kind: str, compiled: Callable, layers: int) -> None:
    shape = {"encoder_layers": layers, **KINDS[kind], "decoder_layers": layers, "dropout": 0.1}
    model = small_model(vocab=64, max_length=256, **shape).train()
    states = compiled(model)
    for source, target in batches(SHAPES):  # fullgraph: a break raises
        states(source, target, Packing.of(source), Packing.of(target)).sum().backward()
    assert 1 <= counters["stats"]["unique_graphs"] <= GRAPHS, dict(counters["stats"])


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    """One process that talks to itself."""
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("sharding", "optimizer"), [("ddp", "muon"), ("fsdp", "adamw")])
@pytest.mark.usefixtures("process_group")
def test_distributed_steps_accumulate_and_read_late(
    monkeypatch: pytest.MonkeyPatch, tiny: Path, sharding: str, optimizer: str, compiled: bool
) -> None:
    """One process, wrapped as several would be, trains as an unwrapped and uncompiled one does."""
    by_dynamo = partial(torch.compile, backend="eager")
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    changes = [f"training.optimizer={optimizer}", "training.accumulate=2", "training.ema_decay=0.9", "model.dropout=0"]
    parts = Parts(tiny, *changes, "training.compile=true", "model.attention_bias=false")
    initial = copy.deepcopy(parts.model)
    weights = []
    for wrapped in (False, True):
        parts.model = copy.deepcopy(initial)
        if wrapped and compiled:
            monkeypatch.setattr(torch, "compile", by_dynamo)
        if wrapped:
            monkeypatch.setattr(train_step, "Objective", lambda *given: wrap(Objective(*given), sharding, 1))
        trainer = parts.trainer(late=wrapped)
        assert hasattr(trainer.train_step._objective, "no_sync") == (wrapped and sharding == "ddp")
        assert hasattr(trainer.train_step._objective, "set_requires_gradient_sync") == (wrapped and sharding == "fsdp")
        for _ in range(3):
            trainer.step()
        trainer.step_results.flush()
        weights.append([*trainer._weights().values()])
    assert (counters["stats"]["unique_graphs"] > 0) == compiled
    for plain, distributed in zip(*weights, strict=True):
        torch.testing.assert_close(distributed, plain, rtol=1e-4, atol=1e-5)
