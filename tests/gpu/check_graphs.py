"""Training with CUDA graphs on fake CUDA: captured operators are repeated on the same memory, as a GPU does."""

from pathlib import Path

from fake_cuda import fake_gpu  # isort: skip (before torch)
import pytest
import torch
from torch import Tensor

from graph_helpers import Captures
from mt.errors import MachineError
from mt.extras.planning import probe
from mt.model.transformer import set_parameters
from training_helpers import Parts, take_steps

EXACT = ("training.compile=false", "training.precision=fp32", "model.dropout=0.0", "model.attention_bias=false")
DECODER_ONLY = "model={architecture: decoder_only, d_model: 16, n_heads: 2, d_ff: 32, decoder_layers: 1, norm: pre}"
CASES = {
    "accumulated": ["training.accumulate=2"],
    "muon": ["training.optimizer=muon", "data.max_length=12"],  # sinusoids grow with the length
    "learned positions": ["model.positions=learned", "model.norm=post", "data.max_length=20"],
    "decoder-only": [DECODER_ONLY, "model.dropout=0.0", "model.attention_bias=false"],
}
STEPS = 12


def trained(parts: Parts, initial: dict[str, Tensor]) -> list[Tensor]:
    set_parameters(parts.model, initial)
    for parameter in parts.model.parameters():
        parameter.grad = None
    trainer = parts.trainer()
    take_steps(trainer, STEPS)
    trainer.step_results.flush()
    assert trainer.state.skipped_updates == 0
    return [p.detach().twin.clone() for p in parts.model.parameters()]


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_replayed_passes_train_as_single_launches_do(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, changes: list[str]
) -> None:
    parts = Parts(tiny, *EXACT, *changes)
    with fake_gpu(values=True) as cuda:
        cuda.move(parts.model)
        initial = {name: p.detach().clone() for name, p in parts.model.named_parameters()}
        expected = trained(parts, initial)
        captures = Captures(monkeypatch, parts.model)
        parts.configure(*EXACT, *changes, "training.cuda_graphs=true")
        found = trained(parts, initial)
    assert 1 <= len(captures.graphs) <= 3
    assert sum(graph.replays for graph in captures.graphs) >= STEPS / 2
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)


def test_a_failed_capture_ends_the_training(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nmore")

    parts = Parts(tiny, *EXACT, "training.cuda_graphs=true")
    with fake_gpu(values=True) as cuda:
        cuda.move(parts.model)
        Captures(monkeypatch, parts.model)
        monkeypatch.setattr(torch.cuda, "graph", failing)
        with pytest.raises(MachineError, match=r"cuda_graphs: a capture failed: .* when stream is capturing"):
            take_steps(parts.trainer(), STEPS)


def test_a_probe_keeps_the_gradients_that_graphs_add_to(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(tiny, *EXACT, "training.accumulate=2", "training.cuda_graphs=true")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    kept: list[bool] = []
    with fake_gpu(values=True) as cuda:
        cuda.move(parts.model)
        captures, trainer = Captures(monkeypatch, parts.model), parts.trainer()
        step = trainer.step

        def observed_step() -> None:
            kept.append(all(parameter.grad is not None for parameter in parts.model.parameters()))
            step()

        monkeypatch.setattr(trainer, "step", observed_step)
        probe._train(trainer, parts.corpus, seconds=0)
    assert captures.graphs
    assert all(kept)
