"""Muon: orthogonal updates, and the weights it takes."""

import pytest
import torch
from torch import nn

from model_helpers import small_model
from mt.config import TrainingConfig
from mt.training import muon
from mt.training.muon import CombinedOptimizer, Muon, matrices, orthogonal
from mt.training.optimizers import make_optimizer

SHAPES = [(1, 16, 16), (1, 16, 64), (3, 16, 16), (2, 8, 40)]


@pytest.mark.parametrize("shape", SHAPES)
def test_orthogonal_matrices_have_singular_values_near_one_and_the_old_directions(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    found = orthogonal(x)
    values = torch.linalg.svdvals(found)
    assert values.min() > 0.4
    assert values.max() < 1.25
    left, _, right = torch.linalg.svd(x, full_matrices=False)
    exact = left @ right
    cosine = (found * exact).sum(dim=(1, 2)) / (found.norm(dim=(1, 2)) * exact.norm(dim=(1, 2)))
    assert cosine.min() > 0.95


def test_the_size_of_a_gradient_does_not_matter() -> None:
    x = torch.randn(2, 8, 8, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(orthogonal(1000 * x), orthogonal(x), rtol=1e-3, atol=1e-3)
    assert orthogonal(torch.zeros(1, 4, 4)).isfinite().all()


@pytest.mark.parametrize("activation", ["relu", "swiglu"])
def test_muon_has_every_matrix_of_the_blocks_and_nothing_else(activation: str) -> None:
    model = small_model(activation=activation)
    taken = [id(weight) for weight, _ in matrices(model)]
    blocks = [*model.encoder.modules(), *model.decoder.modules()]
    assert sorted(taken) == sorted(id(module.weight) for module in blocks if isinstance(module, nn.Linear))
    # Each of the joined matrices has as many rows as one that stands alone would have.
    for weight, parts in matrices(model):
        assert weight.shape[0] // parts in (16, 32)
    assert sum(parts for _, parts in matrices(model)) == 2 * (4 + 2) + 2 * (8 + 2) + 4 * (activation == "swiglu")


def test_joined_matrices_are_updated_as_if_they_stood_alone() -> None:
    generator = torch.Generator().manual_seed(2)
    thirds = [torch.randn(8, 8, generator=generator) for _ in range(3)]
    gradients = [10.0**i * torch.randn(8, 8, generator=generator) for i in range(3)]
    joined = nn.Parameter(torch.cat(thirds))
    joined.grad = torch.cat(gradients)
    alone = [nn.Parameter(third.clone()) for third in thirds]
    for parameter, gradient in zip(alone, gradients, strict=True):
        parameter.grad = gradient
    Muon(iter([(joined, 3)]), 0.1, 0.95, 0.0).step()
    Muon(iter([(parameter, 1) for parameter in alone]), 0.1, 0.95, 0.0).step()
    torch.testing.assert_close(joined.detach(), torch.cat([p.detach() for p in alone]))


@pytest.mark.parametrize(("number_type", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize("shape", [(6, 10), (10, 6)])
def test_updates_follow_the_momentum_with_nesterovs_look_ahead_and_decay(
    monkeypatch, shape: tuple[int, int], number_type: torch.dtype, tolerance: float
) -> None:
    monkeypatch.setattr(muon, "has_bf16", lambda device: number_type == torch.bfloat16)
    generator = torch.Generator().manual_seed(3)
    weight = nn.Parameter(torch.randn(shape, generator=generator))
    expected, average = weight.detach().clone(), torch.zeros(shape)
    optimizer = Muon(iter([(weight, 1)]), 0.1, 0.9, 0.5)
    for _ in range(4):
        weight.grad = torch.randn(shape, generator=generator)
        average = 0.9 * average + 0.1 * weight.grad
        ahead = (0.9 * average + 0.1 * weight.grad)[None]
        update = orthogonal(ahead)[0] if shape[0] < shape[1] else orthogonal(ahead.mT)[0].T
        expected = expected * (1 - 0.1 * 0.5) - 0.1 * 0.2 * 10**0.5 * update
        optimizer.step()
    torch.testing.assert_close(weight.detach(), expected, rtol=0, atol=tolerance)


def test_an_update_has_the_size_that_adams_usually_have() -> None:
    weight = nn.Parameter(torch.zeros(64, 64))
    weight.grad = torch.randn(64, 64, generator=torch.Generator().manual_seed(4))
    Muon(iter([(weight, 1)]), 1.0, 0.95, 0.0).step()
    assert 0.15 < weight.detach().square().mean().sqrt() < 0.25


def test_every_parameter_learns_once_with_the_same_rate() -> None:
    model = small_model()
    optimizer = make_optimizer(model, TrainingConfig(optimizer="muon", learning_rate=0.25))
    assert isinstance(optimizer, CombinedOptimizer)
    owned = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
    assert sorted(owned) == sorted(id(parameter) for parameter in model.parameters())
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    for rate in (0.0, 0.1):
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        kept = {torch.equal(before[name], parameter) for name, parameter in model.named_parameters()}
        assert kept == {rate == 0.0}
    optimizer.zero_grad()
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_flag_on_the_device_skips_an_update() -> None:
    """The weights and the momentum keep every bit, whatever the gradient is."""
    weight = nn.Parameter(torch.randn(8, 12, generator=torch.Generator().manual_seed(5)))
    optimizer = Muon(iter([(weight, 1)]), 0.1, 0.95, 0.5)
    weight.grad = torch.ones(8, 12)
    optimizer.step()
    before = weight.detach().clone(), optimizer.state[weight]["momentum"].clone()
    weight.grad = torch.tensor([float("nan"), float("inf"), 1.0]).repeat(8, 4)
    optimizer.found_inf = torch.tensor(1.0)
    optimizer.step()
    assert torch.equal(weight, before[0])
    assert torch.equal(optimizer.state[weight]["momentum"], before[1])
