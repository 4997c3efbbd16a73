"""Checks of what steps need of their models and of this machine."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from mt.bundle.load_translator import read_config
from mt.config import Config
from mt.config.problems import Problem
from mt.config.yaml_tree import TreePath
from mt.evaluation.texts import has_split, owner
from mt.extras.pipelines.loading import problem
from mt.extras.pipelines.plan import Plan, Step
from mt.extras.pipelines.schema import Score
from mt.storage.find_model import find_model
from mt.system.devices import usable_devices


def config_of(plan: Plan, model: Path) -> Config:
    """Return the configuration of a model, which a step may have yet to train."""
    writer = plan.writer(model)
    return writer.config if writer and writer.config else read_config(find_model(model, plan.folder))


def missing_test_set(plan: Plan, step: Step) -> Iterator[Problem]:
    """Report a model without a test set that is to be scored on its own."""
    if step.kind != "eval" or step.text("source") is not None:
        return
    model = step.models()[0]
    writer = plan.writer(model)
    if writer is None or writer.config is None:
        is_there = has_split(owner(find_model(model, plan.folder)), "test")
    else:
        is_there = writer.config.data.test is not None
    if not is_there:
        message = f"{model} has no test set; add source and reference, or set data.test in its training"
        yield problem(message, "steps", step.name, step.kind, "model")


def unusable_devices(plan: Plan, names: Iterable[str]) -> Iterator[Problem]:
    """Report steps that name a device which this machine does not have."""
    for name in names:
        step = plan.steps[name]
        path: TreePath = ("steps", name, step.kind, "device")
        device = getattr(step.settings, "device", None)
        trains = step.kind == "train" or (isinstance(step.settings, Score) and step.settings.train)
        if trains and device is None and step.config is not None:
            path, device = plan.pipeline.set_path(name, "training.device"), step.config.training.device
        if device not in (None, "auto", "cpu") and not usable_devices().get(device):
            yield problem(f"this machine has no usable {device} device", *path)
