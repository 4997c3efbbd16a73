"""What only the user knows of a first configuration, and what is wrong with it, in the words of `mt init`."""

from collections.abc import Sequence
from dataclasses import dataclass

from mt.config import DataConfig
from mt.config.problems import Problem, validate
from mt.errors import InputError
from mt.extras.planning.recipe import Choice

Files = tuple[str, str]


@dataclass(frozen=True)
class Answers:
    """What only the user knows.

    Attributes:
        train: files of text and of its translation; one pair of files or several.
        valid, test: likewise; None: split off the training text.
        minutes: that training may take; None: as many as it needs.
        device: auto, cpu, cuda or mps.
    """

    name: str
    source_lang: str
    target_lang: str
    train: Sequence[Files]
    valid: Files | None
    test: Files | None
    minutes: float | None
    device: str

    def data(self, number: int) -> list[Choice]:
        """The data section; sets that were not given are split off the training text, so many pairs each."""
        train = [_source(files) for files in self.train]
        choices = [
            Choice("source_lang", self.source_lang),
            Choice("target_lang", self.target_lang),
            Choice("train", train[0] if len(train) == 1 else train),
        ]
        for split, files in (("valid", self.valid), ("test", self.test)):
            reason = "" if files else "no files were given: these are taken out of the training text"
            choices.append(Choice(split, _source(files) if files else {"from_train": number}, reason))
        return choices


def _source(files: Files) -> dict[str, str]:
    return {"source": files[0], "target": files[1]}


def objection(key: str, answer: str) -> str | None:
    """What is wrong with one answer alone: a `name`, a `source_lang` or a `target_lang`; None where it will do."""
    given = {"name": "x", "source_lang": "en", "target_lang": "xx", key: answer}
    files = ("a", "b")
    _, problems = _validated(Answers(**given, train=[files], valid=files, test=files, minutes=None, device="auto"))
    return next((problem.message for problem in problems if problem.path[-1] == key), None)


def checked(answers: Answers) -> DataConfig:
    """The data section that follows from the answers.

    Raises:
        InputError: an answer will not do. It has come from an option, so that is what the message names.
    """
    data, problems = _validated(answers)
    if data is None:
        raise InputError("; ".join(f"{_option(problem)}: {problem.message}" for problem in problems))
    return data


def _validated(answers: Answers) -> tuple[DataConfig | None, list[Problem]]:
    data = {choice.key: choice.value for choice in answers.data(1)}
    config, problems = validate({"name": answers.name, "data": data})
    return (config.data if config else None), problems


def _option(problem: Problem) -> str:
    """--source-lang of data.source_lang, and --train, target of data.train.0.target."""
    path = problem.path[1:] if len(problem.path) > 1 else problem.path
    side = f", {path[-1]}" if len(path) > 1 else ""
    return f"--{path[0]}".replace("_", "-") + side
