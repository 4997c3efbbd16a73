"""The JSON schema for editors: it accepts what `load_config` accepts, and refuses common mistakes."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from config_helpers import SECTIONS, configured, smallest
from mt.config import parse_config
from mt.config.schema import json_schema
from mt.config.yaml_tree import parse_yaml
from mt.errors import InputError

CONFIGS = sorted((Path(__file__).resolve().parent.parent.parent / "configs").glob("*.yaml"))
SCHEMA: dict[str, Any] = json.loads(json_schema())


def faults(tree: object) -> list[str]:
    return [error.message for error in Draft202012Validator(SCHEMA).iter_errors(tree)]


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_shipped_configurations_are_valid_and_any_typo_is_found(path: Path) -> None:
    tree = parse_yaml(path.read_text(), str(path)).root
    assert isinstance(tree, dict)
    assert faults(tree) == []
    for section, keys in [("", tree), *((name, keys) for name, keys in tree.items() if isinstance(keys, dict))]:
        for key in keys:
            mistyped = copy.deepcopy(tree)
            node: Any = mistyped[section] if section else mistyped
            node[f"{key}z"] = node.pop(key)
            assert any(f"{key}z" in fault for fault in faults(mistyped)), f"{section}.{key}"


@pytest.mark.parametrize("section", SECTIONS)
def test_every_key_is_there_with_its_meaning(section: str) -> None:
    reference = SCHEMA["properties"][section]
    name = (reference.get("$ref") or reference["anyOf"][0]["$ref"]).rpartition("/")[2]
    for key, field in SECTIONS[section].model_fields.items():
        assert SCHEMA["$defs"][name]["properties"][key]["description"] == field.description


GOOD = [
    configured("data", train=[{"source": "a", "target": "b"}, {"file": "x.tsv"}]),
    configured("data", train={"hub": "a/b"}, valid={"from_train": 5}, test=None),
    configured(
        "data", target_lang=["de", "fr"], train=[{"file": "a.tsv", "target_lang": code} for code in ("de", "fr")]
    ),
    configured("data", train={"file": "a.csv", "header": False, "source_column": 1, "target_column": 2}),
    configured("training", patience=None, betas=[0.9, 0.98], eps=1),
    {**smallest(), "training": None},
]
BAD = [
    configured("data", train={"source": "a"}),
    configured("data", train={"from_train": 5}),
    configured("data", train=[]),
    configured("data", target_lang="not a code"),
    configured("model", norm="pree"),
    configured("model", dropout=1),
    configured("model", n_heads=2.5),
    configured("training", betas=[0.9]),
    configured("training", max_steps="many"),
    {**smallest(), "name": "two words"},
    {**smallest(), "data": None},
    {"name": "x"},
]


@pytest.mark.parametrize("tree", GOOD, ids=str)
def test_valid_trees(tree: dict[str, Any]) -> None:
    parse_config(json.dumps(tree), "x.yaml")
    assert faults(tree) == []


@pytest.mark.parametrize("tree", BAD, ids=str)
def test_invalid_trees(tree: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        parse_config(json.dumps(tree), "x.yaml")
    assert faults(tree)
