"""Options of `mt init`, and their validation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mt.config import DataConfig
from mt.config.problems import Problem, validate
from mt.errors import InputError
from mt.extras.planning.recipe import Choice

Source = dict[str, Any]  # as in data.train
Decide = Callable[[str, str, Sequence[str]], str]  # returns a choice, given a question, its option and the choices


@dataclass(frozen=True)
class Given:
    """Facts that the user stated about the files; None: to be found in them."""

    source_lang: str | None = None
    target_lang: str | None = None
    delimiter: str | None = None
    quoting: bool | None = None
    header: bool | None = None
    columns: str | None = None  # SOURCE:TARGET
    split: str = "train"  # train, valid or test: which text of a folder is wanted


@dataclass(frozen=True)
class InitOptions:
    """The values that only the user knows."""

    name: str
    source_lang: str
    target_lang: str
    train: Sequence[Source]
    valid: Sequence[Source]  # empty: split off the training text
    test: Sequence[Source]  # likewise
    minutes: float | None  # time limit of the training, if any
    device: str  # auto, cpu, cuda or mps
    start: Path | None = None  # a model to fine-tune
    general: Sequence[Source] = ()  # text like the training text of that model
    general_share: float = 0.2  # of each epoch
    translating: float = 0.0  # as for `PlanInputs`

    def data_choices(self, held_out: int, weight: float = 1.0, reason: str = "") -> list[Choice]:
        """Return the data section; a set without files takes `held_out` pairs from the training text.

        The general text gets a `weight`, and nothing of it is held out.
        """
        train = [*self.train, *({**source, "weight": weight, "synthetic": True} for source in self.general)]
        choices = [
            Choice("source_lang", self.source_lang),
            Choice("target_lang", self.target_lang),
            Choice("train", _one_or_list(train), reason),
        ]
        for split, sources in (("valid", self.valid), ("test", self.test)):
            reason = "" if sources else "no files given: split off the training text"
            choices.append(Choice(split, _one_or_list(sources or [{"from_train": held_out}]), reason))
        return choices


def _one_or_list(sources: Sequence[Source]) -> Source | list[Source]:
    return sources[0] if len(sources) == 1 else list(sources)


def option_error(key: str, value: str) -> str | None:
    """Return the error of a `name`, `source_lang` or `target_lang` on its own, if any."""
    values = {"name": "x", "source_lang": "en", "target_lang": "xx", key: value}
    _, problems = validate({"name": values.pop("name"), "data": values})
    return next((problem.message for problem in problems if problem.path[-1] == key), None)


def validated_data(options: InitOptions) -> DataConfig:
    """Return the data section of the configuration.

    Raises:
        InputError: an option is invalid; the message names it.
    """
    tree = {"name": options.name, "data": {choice.key: choice.value for choice in options.data_choices(1)}}
    config, problems = validate(tree)
    if config is None:
        raise InputError("; ".join(f"{_option_name(problem)}: {problem.message}" for problem in problems))
    return config.data


def _option_name(problem: Problem) -> str:
    """Return --source-lang for data.source_lang, and --train, target for data.train.0.target."""
    path = problem.path[1:] if len(problem.path) > 1 else problem.path
    side = f", {path[-1]}" if len(path) > 1 else ""
    return f"--{path[0]}".replace("_", "-") + side
