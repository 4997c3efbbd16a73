"""Pipeline files: parsing, and validation of each step with all problems at once."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from mt.config.base import Section
from mt.config.loading import Origin, nearest_origin, parse_tree, read_limited, report_problems
from mt.config.problems import SECTIONS, Problem, entries, explain
from mt.config.suggestions import did_you_mean, similar
from mt.config.yaml_tree import TreePath, decode_text, parse_yaml
from mt.errors import InputError, MtError
from mt.extras.pipelines.schema import KINDS, STEP_NAME, OnCorpus, PipelineFile, Place, StepSettings

_S = TypeVar("_S", bound=Section)
_NEEDED = "A pipeline needs `name` and `steps`."


@dataclass(frozen=True)
class Pipeline:
    """A parsed pipeline file."""

    path: Path
    text: str  # of the file as it was read
    file: PipelineFile
    steps: dict[str, tuple[str, StepSettings]]  # kind and settings by name, in the order of the file
    origins: dict[TreePath, Origin]  # the place of each key, for messages

    def refuse(self, problems: Sequence[Problem]) -> None:
        """Raise an InputError that lists all problems, if there are any."""
        if problems:
            raise InputError(report_problems(problems, str(self.path), self.origins))

    def merged_set(self, name: str) -> dict[str, tuple[TreePath, Any]]:
        """Return path and value of each dotted key for a step's configuration; the step's replace the pipeline's."""
        kind, settings = self.steps[name]
        if not isinstance(settings, OnCorpus):
            return {}
        given = list[tuple[TreePath, str, Any]]()
        for prefix, values in ((("set",), self.file.set), (("steps", name, kind, "set"), settings.set)):
            given += [((*prefix, *path), ".".join(path), value) for path, value in entries(values)]
        merged: dict[str, tuple[TreePath, Any]] = {}
        # `section: {key: ...}` and `section.key` may both be there; --set replaces either.
        for path, key, value in sorted(given, key=lambda each: self._precedence(each[0])):
            if value is not None or key not in SECTIONS:  # a section that is null has all its keys commented out
                merged[key] = path, value
        # `max_steps` lifts a time limit that it has precedence over.
        steps, minutes = (merged.get(f"training.{key}") for key in ("max_steps", "minutes"))
        if steps and minutes and self._precedence(steps[0]) > self._precedence(minutes[0]):
            merged["training.minutes"] = steps[0], None
        return merged

    def _precedence(self, path: TreePath) -> tuple[bool, bool]:
        """Return the rank of a value: a step's replaces that of all steps, and `--set` the file's in either."""
        return path[0] == "steps", nearest_origin(path, self.origins)[0] == math.inf

    def set_path(self, name: str, key: str) -> TreePath:
        """Return the path of the value that sets a key of a step's configuration; `config` if none does."""
        path, _ = self.merged_set(name).get(key, (("steps", name, self.steps[name][0], "config"), None))
        return path

    def origin(self, *path: str | int) -> str:
        """Return file and line of a key, or of the nearest enclosing one."""
        return nearest_origin(path, self.origins)[1]


def is_pipeline(path: Path) -> bool:
    """Return True for a readable YAML file with `steps`; whatever else is wrong with it is reported later.

    A file with `data` is a training, even if it has `steps: 1000`.
    """
    try:
        tree = parse_yaml(read_limited(path), str(path)).root
    except MtError:
        return False
    return isinstance(tree, dict) and "steps" in tree and ("data" not in tree or isinstance(tree["steps"], dict))


def load_pipeline(path: Path, overrides: Sequence[str] = ()) -> Pipeline:
    """Read a pipeline file; one InputError lists all problems with its keys."""
    text = decode_text(read_limited(path), str(path))
    tree, origins = parse_tree(text, str(path), overrides, _NEEDED)
    problems: list[Problem] = []
    file = _validated(PipelineFile, tree, (), problems)
    steps: dict[str, tuple[str, StepSettings]] = {}
    named = tree.get("steps")
    for name, step in named.items() if isinstance(named, dict) else ():
        if kind_and_settings := _read_step(name, step, problems):
            steps[name] = kind_and_settings
    if file is None or problems:
        raise InputError(report_problems(problems, str(path), origins))
    return Pipeline(path, text, file, steps, origins)


def _read_step(name: str, step: Any, problems: list[Problem]) -> tuple[str, StepSettings] | None:
    known = ", ".join(KINDS)
    if not re.fullmatch(STEP_NAME, name):
        problems.append(Problem(("steps", name), "the name of a step has letters, digits, - and _ only (at most 100)"))
    elif not isinstance(step, Mapping) or len(step) != 1:
        has = f"has {', '.join(step)}" if isinstance(step, Mapping) and step else "names nothing to do"
        problems.append(Problem(("steps", name), f"{has}; a step has one key of {known}"))
    elif (kind := next(iter(step))) not in KINDS:
        hint = did_you_mean(similar(kind, KINDS)) or f"known here: {known}"
        problems.append(Problem(("steps", name, kind), f"unknown kind of step; {hint}"))
    else:
        settings = _validated(KINDS[kind], step[kind] or {}, ("steps", name, kind), problems)
        return None if settings is None else (kind, settings)
    return None


def _validated(model: type[_S], tree: Any, prefix: TreePath, problems: list[Problem]) -> _S | None:
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        for wrong in explain(error, tree, lambda _, path: (None, Place if len(path) > 1 else model)):
            section = wrong.path[0] if model is PipelineFile and wrong.path[0] in SECTIONS else ""
            remedy = f"belongs to a training; write it in steps.NAME.train.set.{section}, or for all in set.{section}"
            problems.append(Problem((*prefix, *wrong.path), remedy if section else wrong.message))
        return None


def places(settings: StepSettings) -> Iterator[tuple[TreePath, Place]]:
    """Yield the places that a step's keys name, with the path to each."""
    for key in type(settings).model_fields:
        value = getattr(settings, key)
        values = value if isinstance(value, tuple) else (value,)
        for number, each in enumerate(values):
            if isinstance(each, Place):
                yield (key, number) if len(values) > 1 else (key,), each


def as_place(value: Any) -> Place | None:
    """Return {step: NAME}, with or without `file`, among the values of `set` as a place; None for other values."""
    if not isinstance(value, Mapping) or value.get("step") is None or not set(value) <= {"step", "file"}:
        return None
    # YAML may have numbers for names.
    return Place.model_construct(step=str(value["step"]), file=value.get("file") and str(value["file"]))
