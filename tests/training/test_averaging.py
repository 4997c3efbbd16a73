"""Averages of weights: their recurrence, what is validated, what becomes the product; a resume changes none of it."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from mt.errors import MachineError
from mt.model.transformer import Transformer
from mt.storage.manifest import read_manifest
from mt.storage.run_dir import CheckpointDir
from mt.training.averaging import MovingAverage, swapped_weights
from mt.training.train_state import TrainState
from mt.training.validation import Validation
from resume_helpers import hurt, resumes, run_of, train, weights
from training_helpers import Parts, kill_training, project_copy, take_steps

EMA = "training.ema_decay=0.8"
KEEP_ALL = "training.keep_checkpoints=100"
EVERY_4 = ("training.validate_every=4", "training.save_every=4")
EVERY_2 = ("training.validate_every=2", "training.save_every=2")
AVERAGE, AVERAGE_BEST = (f"training.final_weights={final}" for final in ("average", "average_best"))


def copies(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def same(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def mean_of(*each: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: torch.stack([one[name].double() for one in each]).mean(0) for name in each[0]}


def near(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> None:
    for name in first:
        torch.testing.assert_close(first[name].double(), second[name].double(), rtol=1e-5, atol=1e-7)


def followed(start: Mapping[str, Tensor], each: list[dict[str, Tensor]], decay: float, first: int) -> dict[str, Tensor]:
    """The average by its definition, in double precision, over the weights after steps `first`, `first` + 1, ..."""
    average = {name: tensor.double() for name, tensor in start.items()}
    for step, now in enumerate(each, first):
        d = min(decay, (1 + step) / (10 + step))
        average = {name: d * average[name] + (1 - d) * now[name].double() for name in average}
    return average


class Scripted:
    """A validation with scores written down before, which takes note of the weights it was given."""

    def __init__(self, *bleus: float) -> None:
        self.bleus, self.seen = iter(bleus), []

    def __call__(self, model: Transformer) -> Validation:
        self.seen.append(copies(model))
        torch.randn(3)  # what validation draws must not show in training
        bleu = next(self.bleus, 0.0)
        return Validation(1 / (1 + bleu), math.e, bleu, "", [])


def stored(parts: Parts, step: int, averaged: bool) -> dict[str, Tensor]:
    """What lies in a checkpoint, read without the code under test."""
    folder = parts.run.checkpoint(step)
    return load_file(folder / ("average.safetensors" if averaged else "model.safetensors"))


@pytest.mark.parametrize("decay", [0.0, 0.15, 0.6, 0.9999])
def test_the_average_follows_its_recurrence(decay: float) -> None:
    torch.manual_seed(0)
    model = nn.Linear(5, 3)
    start, each = copies(model), []
    average = MovingAverage(model, decay)
    for step in range(1, 31):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter))
        each.append(copies(model))
        average.update(step)
        near(average.weights, followed(start, each, decay, 1))
    assert same(copies(model), each[-1]), "taking in the weights changed them"
    assert same(average.weights, each[-1]) == (decay == 0)


def test_other_weights_are_lent_for_a_while_only() -> None:
    model = nn.Linear(5, 3)
    own, others = copies(model), {name: torch.randn_like(p) for name, p in model.named_parameters()}
    pointers = [parameter.data_ptr() for parameter in model.parameters()]
    with swapped_weights(model, others):
        assert same(copies(model), others)
    assert same(copies(model), own)
    with pytest.raises(KeyError), swapped_weights(model, others):
        raise KeyError
    assert same(copies(model), own)
    assert [parameter.data_ptr() for parameter in model.parameters()] == pointers  # an optimiser knows them by these


def test_the_best_validations_are_remembered_the_earlier_first_among_equals() -> None:
    progress = TrainState()
    for step, score in enumerate([3.0, 5.0, 1.0, 5.0, 4.0, 3.0]):
        progress.step = step
        progress.record_validation(score, 4)
        assert len(progress.best_validations) == min(step + 1, 4)
    assert progress.best_validations == [(5.0, 1), (5.0, 3), (4.0, 4), (3.0, 0)]


@pytest.mark.parametrize(("decay", "changes"), [(0.8, ()), (0.99, ("training.accumulate=3",))])
def test_the_average_is_updated_after_every_step_and_saved(tiny: Path, decay: float, changes: tuple[str, ...]) -> None:
    """Early on its decay depends on the number of updates, not of batches."""
    parts = Parts(tiny, f"training.ema_decay={decay}", KEEP_ALL, *changes)
    trainer = parts.trainer()
    start, each = copies(parts.model), []
    for step in range(1, 9):
        trainer.step()
        each.append(copies(parts.model))
        if step % 4 == 0:
            trainer.save()
            assert same(stored(parts, step, averaged=False), each[-1])
            near(stored(parts, step, averaged=True), followed(start, each, decay, 1))
    assert "average.safetensors" in read_manifest(parts.run.checkpoint(8))["files"]


def test_without_an_average_none_is_saved(tiny: Path) -> None:
    """The best of no validations are the present weights."""
    parts = Parts(tiny, AVERAGE_BEST)
    trainer = parts.trainer()
    trainer.step()
    trainer.save()
    checkpoint = CheckpointDir(parts.run.checkpoint(1))
    assert not checkpoint.average.exists()
    assert checkpoint.best_weights == checkpoint.weights
    product, origin = trainer.final_weights.final()
    assert origin == "mean of steps 1 (best on validation)"
    assert same(product, copies(parts.model))


@pytest.mark.parametrize("final", ["best", "average"])
@pytest.mark.parametrize("ema", [False, True])
def test_validation_scores_what_would_become_the_product(tiny: Path, ema: bool, final: str) -> None:
    changes = [EMA] if ema else []
    parts = Parts(tiny, *changes, KEEP_ALL, f"training.final_weights={final}", "training.average_checkpoints=3")
    validate = Scripted()
    parts.trainer(validate=validate).run()  # saves every 4 steps, validates every 8
    for seen, step in zip(validate.seen, (8, 16, 24), strict=True):
        steps = [s for s in (step - 8, step - 4, step) if s > 0] if final == "average" else [step]
        near(seen, mean_of(*(stored(parts, s, averaged=ema) for s in steps)))
    assert same(stored(parts, 24, averaged=False), copies(parts.model)), "the lent weights were kept"


def test_averaging_and_validating_leave_the_training_alone(tiny: Path) -> None:
    ends = []
    for number, changes in enumerate([("training.validate_every=24",), (EMA, *EVERY_4, AVERAGE)]):
        parts = Parts(project_copy(tiny, str(number)), *changes, "model.dropout=0.3")
        parts.trainer(validate=Scripted()).run()
        ends.append(copies(parts.model))
    assert same(*ends)


BLEUS = (6.0, 9.0, 5.0, 9.0, 2.0, 7.0)  # after steps 4, 8, ..., 24
BY_LOSS, LAST, BEST = "training.best_metric=loss", "training.final_weights=last", "training.final_weights=best"
# Settings, scores, steps of the product, its description and the steps that are kept: those, the best, the newest two.
PRODUCTS = [
    ([BEST, EMA], BLEUS, [8], "moving average at step 8 (best on validation)", [8, 20, 24]),
    ([LAST], BLEUS, [24], "step 24 (last)", [8, 20, 24]),
    ([LAST, EMA], BLEUS, [24], "moving average at step 24 (last)", [8, 20, 24]),
    ([AVERAGE, EMA], BLEUS, [16, 20, 24], "mean of moving average at steps 16, 20, 24", [8, 16, 20, 24]),
    ([AVERAGE, "training.max_steps=10"], BLEUS, [4, 8, 10], "mean of steps 4, 8, 10", [4, 8, 10]),
    ([AVERAGE_BEST], BLEUS, [8, 16, 24], "mean of steps 8, 16, 24 (best on validation)", [8, 16, 20, 24]),
    (
        [AVERAGE_BEST, EMA],
        BLEUS,
        [8, 16, 24],
        "mean of moving average at steps 8, 16, 24 (best on validation)",
        [8, 16, 20, 24],
    ),
    (
        [AVERAGE_BEST, BY_LOSS],
        (3, 8, 9, 1, 2, 4),
        [8, 12, 24],
        "mean of steps 8, 12, 24 (best on validation)",
        [8, 12, 20, 24],
    ),
    ([AVERAGE_BEST, "training.max_steps=8"], (1, 2), [4, 8], "mean of steps 4, 8 (best on validation)", [4, 8]),
]


@pytest.mark.parametrize(
    ("changes", "bleus", "steps", "origin", "kept"), PRODUCTS, ids=[str(row[3]) for row in PRODUCTS]
)
def test_what_becomes_the_product(
    tiny: Path, notices: list[str], changes: list[str], bleus: tuple, steps: list[int], origin: str, kept: list[int]
) -> None:
    parts = Parts(tiny, *EVERY_4, "training.average_checkpoints=3", *changes)
    trainer = parts.trainer(validate=Scripted(*bleus))
    trainer.run()
    product, described = trainer.final_weights.final()
    near(product, mean_of(*(stored(parts, step, averaged=EMA in changes) for step in steps)))
    assert described == origin
    if len(steps) == 1:
        assert same(product, stored(parts, steps[0], averaged=EMA in changes))
    assert trainer.checkpoints.steps() == kept
    assert not [notice for notice in notices if "to average exist" in notice]


def test_weights_from_before_the_average_are_called_so(tiny: Path, notices: list[str]) -> None:
    last = (*EVERY_4, "training.final_weights=last")
    parts = Parts(tiny, *last)
    parts.trainer(validate=Scripted(*range(9))).run()
    parts.configure(*last, EMA)
    product, described = parts.trainer().final_weights.final()
    assert described == "step 24 (last)"
    assert same(product, stored(parts, 24, averaged=False))
    assert "step 24 (last) is from before it was set, and has no moving average" in "".join(notices)


def test_a_loss_that_is_no_number_is_the_worst(tiny: Path) -> None:
    """Nothing is better than NaN, and nothing worse: the best would stay with it."""

    class Broken(Scripted):
        def __call__(self, model: Transformer) -> Validation:
            found = super().__call__(model)
            return found if len(self.seen) > 1 else replace(found, loss=math.nan)

    kind = (BY_LOSS, AVERAGE_BEST, "training.average_checkpoints=2", "training.patience=3")
    trainer = Parts(tiny, *EVERY_4, *kind).trainer(validate=Broken(0, 1, 2, 3, 4, 5))
    trainer.run()
    assert (trainer.state.step, trainer.state.best_step) == (24, 24)
    assert trainer.final_weights.final()[1] == "mean of steps 20, 24 (best on validation)"


FEWER = [
    (AVERAGE_BEST, "training.max_steps=14", "mean of steps 2 (best on validation)", 1),
    (AVERAGE, "training.max_steps=12", "mean of steps 10, 12", 2),
]


@pytest.mark.parametrize(("final", "change", "origin", "left"), FEWER)
def test_more_than_are_left_are_missed(
    tiny: Path, notices: list[str], final: str, change: str, origin: str, left: int
) -> None:
    """A product of other checkpoints than were kept is asked for after the end."""
    parts = Parts(tiny, *EVERY_2, "training.average_checkpoints=3", "training.max_steps=12")
    parts.trainer(validate=Scripted(9, 8, 7, 1, 1, 1)).run()
    parts.configure(*EVERY_2, "training.average_checkpoints=3", "training.max_steps=12", final, change)
    trainer = parts.trainer(validate=Scripted(5))
    trainer.run()
    assert trainer.final_weights.final()[1] == origin
    assert f"final_weights: only {left} of the 3 checkpoints to average exist" in notices


def test_a_damaged_checkpoint_costs_a_validation_its_mean_and_no_more(tiny: Path, notices: list[str]) -> None:
    parts = Parts(tiny, *EVERY_2, "training.keep_checkpoints=2", "training.max_steps=4", AVERAGE)
    trainer = parts.trainer(validate=Scripted(1, 2))
    trainer.run()
    hurt(parts.run.checkpoint(2) / "model.safetensors", "truncate")
    now = trainer._weights()
    assert same(trainer.final_weights.candidate(now), now)
    assert any("this validation scores the present weights alone" in notice for notice in notices)
    with pytest.raises(MachineError, match="it is damaged"):
        trainer.final_weights.final()


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        ((), (BY_LOSS,), "scored by loss of one checkpoint now, not BLEU (auto) of one checkpoint"),
        ((BY_LOSS,), (), "scored by BLEU (auto) of one checkpoint now, not loss"),
        ((EMA,), (), "scored by BLEU (auto) of one checkpoint now, not BLEU (auto) of one checkpoint, moving averages"),
        ((), (AVERAGE,), "scored by BLEU (auto) of a mean of checkpoints now, not"),
        ((), ("evaluation.bleu_tokenize=char",), "scored by BLEU (char) of one checkpoint now, not"),
    ],
)
def test_scores_of_another_kind_no_longer_count(
    tiny: Path, notices: list[str], before: tuple[str, ...], now: tuple[str, ...], told: str
) -> None:
    parts = Parts(tiny, *EVERY_4, "training.max_steps=8", *before)
    first = parts.trainer(validate=Scripted(9, 1))
    first.run()
    assert first.state.best_step == 4
    again = parts.trainer().state
    assert (again.best_step, again.bad_validations) == (4, 1)
    parts.configure(*EVERY_4, "training.max_steps=12", *now)
    trainer = parts.trainer(validate=Scripted(0.5))
    assert (trainer.state.best_step, trainer.state.bad_validations) == (None, 0)
    assert any(told in notice for notice in notices)
    trainer.run()
    assert trainer.state.best_step == 12
    assert [step for _, step in trainer.state.best_validations] == [12]


@pytest.mark.parametrize("end", [("training.max_steps=8",), ("training.patience=1", "training.max_steps=100")], ids=str)
def test_what_is_over_keeps_its_best(tiny: Path, notices: list[str], end: tuple[str, ...]) -> None:
    parts = Parts(tiny, *EVERY_4, *end)
    parts.trainer(validate=Scripted(9, 1)).run()
    parts.configure(*EVERY_4, *end, "evaluation.bleu_tokenize=char", BY_LOSS)
    trainer = parts.trainer()
    trainer.run()
    assert trainer.state.step == 8
    assert trainer.final_weights.final()[1] == "step 4 (best on validation)"
    assert not [notice for notice in notices if "no longer count" in notice]


@pytest.mark.parametrize("final", [AVERAGE, AVERAGE_BEST])
def test_stops_between_checkpoints_change_no_average(tiny: Path, final: str) -> None:
    ends = []
    for number, breaks in enumerate([(), (4, 5, 10, 11, 16, 23)]):
        folder = project_copy(tiny, str(number))
        parts, validate = Parts(folder, *EVERY_4, final, "training.average_checkpoints=3", EMA), Scripted(*BLEUS)
        for end in (*breaks, 24):
            trainer = parts.trainer(validate=validate)
            while trainer.state.step < end:
                trainer.step()
                if trainer.state.step % 4 == 0:
                    trainer.validate()
                    trainer.save()
            if end % 4:
                trainer.save()  # what a signal does
            own = copies(parts.model)
            parts.forget()
        seen = [*validate.seen, trainer.final_weights.final()[0], trainer.average.weights, own]
        ends.append((seen, trainer.final_weights.final()[1], trainer.state.best_validations))
    (seen, origin, best), (other_seen, other_origin, other_best) = ends
    assert (origin, best) == (other_origin, other_best)
    assert all(same(a, b) for a, b in zip(seen, other_seen, strict=True))


def test_an_average_turned_on_later_starts_from_the_weights(tiny: Path) -> None:
    parts = Parts(tiny, KEEP_ALL)
    trainer = parts.trainer()
    take_steps(trainer, 4)
    trainer.save()
    start = copies(parts.model)
    parts.configure(EMA, KEEP_ALL)
    parts.forget()
    trainer = parts.trainer()
    assert same(trainer.average.weights, start)
    each = []
    for _ in range(4):
        trainer.step()
        each.append(copies(parts.model))
    near(trainer.average.weights, followed(start, each, 0.8, 5))
    trainer.save()
    mean = trainer.checkpoints.weights([4, 8], averaged=True)
    near(mean, mean_of(stored(parts, 4, averaged=False), stored(parts, 8, averaged=True)))


def test_a_checkpoint_with_a_damaged_average_is_set_aside(tiny: Path) -> None:
    parts = Parts(tiny, EMA)
    trainer = parts.trainer()
    for _ in range(2):
        trainer.step()
        trainer.save()
    hurt(parts.run.checkpoint(2) / "average.safetensors", "flip")
    assert parts.trainer().state.step == 1


@pytest.mark.parametrize("final", [pytest.param(AVERAGE, marks=pytest.mark.slow), AVERAGE_BEST])
def test_killed_and_resumed_ends_in_the_same_average(tiny: Path, final: str) -> None:
    changes = (
        *("training.max_steps=40", "training.save_every=5", "training.validate_every=10", "training.log_every=5"),
        *("training.ema_decay=0.99", "training.average_checkpoints=3", BY_LOSS, "data.test=null", final),
    )
    whole = project_copy(tiny, "whole")
    train(whole, *changes)
    kill_training(tiny, 25, *changes)
    train(tiny, *changes)
    assert resumes(tiny) == 1, "the kill missed the training; the test proves nothing"
    assert weights(tiny) == weights(whole)
    for name in ("model.safetensors", "average.safetensors", "optimizer.safetensors"):
        ends = [run_of(folder).checkpoint(40) / name for folder in (tiny, whole)]
        assert ends[0].read_bytes() == ends[1].read_bytes(), name
    steps = [30, 35, 40] if final == AVERAGE else [20, 30, 40]  # the loss still falls
    product = load_file(run_of(tiny).model.weights)
    near(product, mean_of(*(load_file(run_of(tiny).checkpoint(step) / "average.safetensors") for step in steps)))
