"""Trees, errors and sections for the tests of the configuration."""

from typing import Any

import pytest

from mt.config import Config, parse_config
from mt.config.problems import section_class, validate
from mt.errors import InputError

SMALLEST = "name: run\ndata:\n  source_lang: en\n  target_lang: de\n  train: {source: a, target: b}\n"
SECTIONS = {name: section for name in Config.model_fields if (section := section_class(name))}


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
