"""Learning rates at points computed by hand, and the randomness of dropout as a function of the place in training."""

import math
from itertools import product

import pytest
import torch

from mt.config import TrainingConfig
from mt.training.optimizers import learning_rate
from mt.training.step import seed_dropout


def rate(step: int, d_model: int = 512, **settings: object) -> float:
    return learning_rate(step, TrainingConfig(**settings), d_model)


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "cosine", "linear", "constant"])
def test_warm_up_is_linear(schedule: str) -> None:
    settings = {"schedule": schedule, "learning_rate": 0.004, "warmup_steps": 400, "max_steps": 1000}
    for step, expected in [(1, 0.00001), (100, 0.001), (200, 0.002), (399, 0.00399), (400, 0.004)]:
        assert rate(step, **settings) == pytest.approx(expected)
    if schedule != "inverse_sqrt":
        assert 0.00399 < rate(1, **{**settings, "warmup_steps": 0}) <= 0.004


AFTER_WARM_UP = [
    ("inverse_sqrt", 400, 0.002),
    ("inverse_sqrt", 900, 0.004 / 3),
    ("inverse_sqrt", 10_000, 0.0004),
    ("constant", 101, 0.004),
    ("constant", 10**8, 0.004),
    ("linear", 350, 0.003),
    ("linear", 600, 0.002),
    ("linear", 1099, 0.000004),
    ("linear", 1100, 0.0),
    ("linear", 2000, 0.0),
    ("cosine", 350, 0.002 * (1 + math.sqrt(0.5))),
    ("cosine", 600, 0.002),
    ("cosine", 850, 0.002 * (1 - math.sqrt(0.5))),
    ("cosine", 1100, 0.0),
    ("cosine", 2000, 0.0),
]


@pytest.mark.parametrize(("schedule", "step", "expected"), AFTER_WARM_UP)
def test_after_the_warm_up(schedule: str, step: int, expected: float) -> None:
    settings = {"learning_rate": 0.004, "warmup_steps": 100, "max_steps": 1100}
    assert rate(step, schedule=schedule, **settings) == pytest.approx(expected, abs=1e-12)


def test_noam_is_the_papers_formula() -> None:
    settings = {"schedule": "noam", "learning_rate": 1.0, "warmup_steps": 4000}
    # 512^-0.5 * 4000^-1.5 * step, then 512^-0.5 * step^-0.5
    assert rate(1, **settings) == pytest.approx(1.746928e-7, rel=1e-6)
    assert rate(2000, **settings) == pytest.approx(3.493856e-4, rel=1e-6)
    assert rate(4000, **settings) == pytest.approx(6.987712e-4, rel=1e-6)
    assert rate(16_000, **settings) == pytest.approx(3.493856e-4, rel=1e-6)
    assert rate(4000, 128, **settings) == pytest.approx(2 * 6.987712e-4, rel=1e-6)
    assert rate(4000, **{**settings, "learning_rate": 2.0}) == pytest.approx(2 * 6.987712e-4, rel=1e-6)


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "cosine", "linear", "constant", "noam"])
def test_rises_then_never_rises_again(schedule: str) -> None:
    settings = {"schedule": schedule, "learning_rate": 0.4, "warmup_steps": 50, "max_steps": 200}
    rates = [rate(step, **settings) for step in range(1, 301)]
    assert rates[:50] == sorted(set(rates[:50]))
    assert rates[49:] == sorted(rates[49:], reverse=True)
    assert min(rates) >= 0


def draw(*place: int) -> tuple[float, ...]:
    seed_dropout(*place)
    return tuple(torch.rand(4).tolist())


def test_a_place_in_training_has_its_own_random_numbers() -> None:
    places = [*product((0, 1, 2), (1, 2, 12), (0, 1), (0, 1))]  # seed, step, batch and piece
    places += [(2**31 - 1, 10**9, 99_999, 0), (2**31 - 1, 10**9 + 1, 99_999, 0)]
    drawn = {place: draw(*place) for place in places}
    assert len(set(drawn.values())) == len(places)
    assert all(draw(*place) == numbers for place, numbers in reversed(drawn.items()))
