"""Activations computed again in the backward pass: the same gradients, and less is kept."""

import copy
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from mt.training.step import TrainStep
from training_helpers import Parts

DROPOUT = "dropout: 0.2, attention_dropout: 0.2, activation_dropout: 0.1"
SHAPE = f"d_model: 16, n_heads: 2, d_ff: 32, decoder_layers: 2, norm: pre, {DROPOUT}"
MODELS = [f"model={{{SHAPE}, encoder_layers: 2}}", f"model={{{SHAPE}, architecture: decoder_only}}"]


def train_step(parts: Parts, recompute: bool) -> tuple[nn.Module, TrainStep]:
    """A copy of the model, and its step."""
    model = copy.deepcopy(parts.model).train()
    training = parts.config.training.model_copy(update={"recompute": recompute})
    return model, TrainStep(parts.config.model_copy(update={"training": training}), model)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("shape", MODELS, ids=["encoder-decoder", "decoder-only"])
def test_gradients_are_the_same_to_the_bit(tiny: Path, shape: str, precision: str) -> None:
    parts = Parts(tiny, shape, f"training.precision={precision}")
    found = []
    for recompute in (False, True):
        model, step = train_step(parts, recompute)
        passes: list[object] = []
        for layer in model.blocks:
            layer.feed_forward.register_forward_pre_hook(lambda *_, passes=passes: passes.append(1))
        loss = step.accumulate_gradients(parts.batches(2), 0)
        assert len(passes) == 2 * len(list(model.blocks)) * (1 + recompute)
        found.append([loss.sums, *(p.grad for p in model.parameters())])
    assert all(a.equal(b) for a, b in zip(*found, strict=True))


def test_the_forward_pass_keeps_less(tiny: Path) -> None:
    parts, kept = Parts(tiny, MODELS[0]), [0, 0]
    for recompute in (False, True):
        _, step = train_step(parts, recompute)

        def keep(x: Tensor, recompute: bool = recompute) -> Tensor:
            kept[recompute] += x.nbytes
            return x

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            step.accumulate_gradients(parts.batches(1), 0)
    assert kept[True] < 0.3 * kept[False]


@pytest.mark.slow
def test_compiled_layers_are_computed_again(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Traced by torch's compiler, without dropout, which it draws in another order."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager", fullgraph=True))
    parts = Parts(tiny, MODELS[0].replace("0.2", "0.0").replace("0.1", "0.0"), "training.compile=true")
    torch._dynamo.reset()
    found = []
    for recompute in (False, True):
        model, step = train_step(parts, recompute)
        step.accumulate_gradients(parts.batches(1), 0)
        found.append([p.grad for p in model.parameters()])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)
    torch._dynamo.reset()
