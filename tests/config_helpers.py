"""Trees, errors and sections for the tests of the configuration."""

from typing import Any

import pytest

from mt.config import parse_config
from mt.config.problems import SECTIONS, validate
from mt.errors import InputError

__all__ = ["SECTIONS", "SMALLEST", "configured", "messages", "refusal", "smallest"]

SMALLEST = "name: run\ndata:\n  source_lang: en\n  target_lang: de\n  train: {source: a, target: b}\n"


def smallest() -> dict[str, Any]:
    train = {"source": "a", "target": "b"}
    return {"name": "run", "data": {"source_lang": "en", "target_lang": "de", "train": train}}


def configured(section: str, **values: Any) -> dict[str, Any]:
    tree = smallest()
    tree.setdefault(section, {}).update(values)
    return tree


def messages(tree: dict[str, Any]) -> list[str]:
    _, problems = validate(tree)
    return [f"{'.'.join(map(str, problem.path))}: {problem.message}" for problem in problems]


def refusal(text: str, *overrides: str) -> str:
    with pytest.raises(InputError) as caught:
        parse_config(text, "x.yaml", overrides)
    return caught.value.message
