"""Layers compiled for training: the same numbers, few graphs, the same names, and time that is counted."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from command import mt
from flash_helpers import flash_attention_on_cpu
from model_helpers import DECODER_ONLY, close, small_model, sources, targets
from mt.errors import MachineError
from mt.model.build import TranslationModel
from mt.model.packing import Packing
from mt.training import compilation
from mt.training.compilation import CompilationLog, compile_layers
from training_helpers import Parts


@pytest.fixture(autouse=True)
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let torch trace graphs, without a break, and run them uncompiled, which takes seconds instead of minutes."""
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager", fullgraph=True))
    optimize_ddp = torch._dynamo.config.optimize_ddp
    yield
    torch._dynamo.config.optimize_ddp = optimize_ddp
    torch._dynamo.reset()


def graphs() -> int:
    from torch._dynamo.utils import counters

    assert not counters["graph_break"]
    return counters["stats"]["unique_graphs"]


def gradients(model: TranslationModel, src_tokens: Tensor, tgt_in: Tensor) -> list[Tensor]:
    model.zero_grad()
    states = model.states(src_tokens, tgt_in, Packing.of(src_tokens), Packing.of(tgt_in))
    states.square().sum().backward()
    return [p.grad.clone() for name, p in model.named_parameters() if p.grad is not None]


def batches(number: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of different sizes; in every seventh all sentences are equally long."""
    rng = np.random.default_rng(0)
    for i in range(number):
        size, longest, shortest = rng.integers(3, 20), rng.integers(8, 20, 2), 0 if i % 7 == 6 else 4
        lengths = [[n, *rng.integers(n - shortest, n + 1, size)] for n in longest]
        yield sources(lengths[0], vocab=12), targets(lengths[1], vocab=12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "expected"), [({}, 2), (DECODER_ONLY[0], 1)], ids=["encoder-decoder", "decoder-only"]
)
def test_packed_batches_of_all_shapes_share_a_graph_for_each_kind_of_layer(
    change: dict[str, object], expected: int
) -> None:
    with flash_attention_on_cpu():
        model = small_model(dropout=0.1, attention_dropout=0.1, decoder_layers=3, max_length=64, **change).train()
        compile_layers(model, True)
        before = graphs()  # the smallest function
        for batch in batches(50):
            gradients(model, *batch)
        assert graphs() - before == expected


@pytest.mark.slow
@pytest.mark.parametrize(("change", "most"), [({}, 4), (DECODER_ONLY[0], 2)], ids=["encoder-decoder", "decoder-only"])
def test_padded_batches_need_another_where_nothing_is_padding(change: dict[str, object], most: int) -> None:
    model = small_model(dropout=0.1, attention_dropout=0.1, max_length=64, **change).train()
    compile_layers(model, True)
    before = graphs()
    for batch in batches(50):
        gradients(model, *batch)
    assert graphs() - before <= most


def test_compiled_layers_compute_the_same_under_the_same_names() -> None:
    model, batch = small_model(), (sources([5, 3]), targets([2, 6]))
    names, expected = list(model.state_dict()), gradients(model, *batch)
    compile_layers(model, True)
    before = graphs()
    for actual, wanted in zip(gradients(model, *batch), expected, strict=True):
        close(actual, wanted)
    assert graphs() - before == 2
    assert list(model.state_dict()) == names == [name for name in names if "_orig_mod" not in name]


def test_formats_do_not_share_compiled_layers_on_disk() -> None:
    tags = set()
    for precision in ("bf16", "fp16"):
        compile_layers(small_model(), True, precision)
        tags.add(torch.compiler.config.cache_key_tag)
    assert len(tags) == 2


def test_passes_without_gradients_are_not_compiled() -> None:
    model, batch = small_model(), (sources([5, 3]), targets([2, 6]))
    compile_layers(model, True)
    before = graphs()
    with torch.no_grad():
        model(*batch)
        model.step(torch.full((2, 1), 2), model.start(batch[0]))
    assert graphs() == before


def test_auto_compiles_on_no_cpu_and_false_nowhere() -> None:
    for setting in ("auto", False):
        model = small_model()
        compile_layers(model, setting)
        assert not any("forward" in vars(layer) for layer in model.blocks)


def test_auto_compiles_wide_models_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model()
    monkeypatch.setattr(type(model), "device", torch.device("cuda"))
    monkeypatch.setattr(compilation, "_problem", lambda device: "")
    compile_layers(model, "auto")
    assert not any("forward" in vars(layer) for layer in model.blocks)
    monkeypatch.setattr(compilation, "_MIN_WIDTH", model.output.in_features)
    compile_layers(model, "auto")
    assert all("forward" in vars(layer) for layer in model.blocks)


def unable(*_: object, **__: object) -> Callable[[Tensor], Tensor]:
    def compiled(x: Tensor) -> Tensor:
        raise RuntimeError("Cannot find a working triton installation.\nMore about that")

    return compiled


def test_where_nothing_compiles_auto_warns_once_and_true_stops(
    monkeypatch: pytest.MonkeyPatch, notices: list[str]
) -> None:
    monkeypatch.setattr(torch, "compile", unable)
    model = small_model()
    with pytest.raises(MachineError) as caught:
        compile_layers(model, True)
    assert "does not work here: Cannot find a working triton installation." in caught.value.message
    assert "More" not in caught.value.message
    monkeypatch.setattr(type(model), "device", torch.device("cuda"))
    monkeypatch.setattr(compilation, "_MIN_WIDTH", 0)
    ones = torch.ones
    monkeypatch.setattr(torch, "ones", lambda size, device: ones(size))
    compile_layers(model, "auto")
    [notice] = notices
    assert notice.endswith("training is slower: Cannot find a working triton installation.")
    assert not any("forward" in vars(layer) for layer in model.blocks)


@pytest.mark.slow
def test_without_a_cpp_compiler_one_sentence_says_so(tiny: Path) -> None:
    changes = ("--set", "training.compile=true")
    failed = mt("train", "--config", "tiny.yaml", *changes, cwd=tiny, code=4, PATH="/nonexistent")
    [error] = [line for line in failed.stderr.splitlines() if "training.compile" in line and "does not" in line]
    assert "C++ compiler" in error
    assert "Traceback" not in failed.stderr


@pytest.mark.slow
def test_compile_time_is_logged_and_no_part_of_the_speed(tiny: Path, notices: list[str]) -> None:
    parts = Parts(tiny, "training.compile=true", "training.max_steps=4", "training.log_every=4")
    trainer = parts.trainer()
    speeds: list[float] = []
    summary = trainer.step_results.summary
    trainer.step_results.summary = lambda seconds: speeds.append(seconds) or summary(seconds)
    trainer.run()
    lines = [notice for notice in notices if notice.startswith("compiled ")]
    assert lines[0].startswith("compiled 2 graphs in ")
    from torch._dynamo.utils import calculate_time_spent

    spent = calculate_time_spent()["total_wall_time"]
    assert spent > 0.1
    assert speeds[0] < trainer.state.seconds - 0.5 * spent


def test_nothing_compiled_is_not_logged(notices: list[str]) -> None:
    log = CompilationLog()
    assert log.new_seconds() == 0
    assert not notices
