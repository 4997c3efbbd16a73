"""Configurations written as YAML: any value survives the round trip."""

import re
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from config_helpers import SECTIONS, SMALLEST, configured, smallest
from mt.config import Builtin, Config, FromTrain, HubDataset, PairFiles, TableFile, dump_config, parse_config
from mt.config.loading import as_yaml
from mt.config.problems import validate
from mt.config.yaml_tree import parse_yaml

ODD_TEXTS = [*"no 1e-4 0o17 12:30 ~ {x} ' \" *a .5 1_0 = 😀".split(), "é: #", "a, b", "- ", " a ", "\u00a0a\u3000"]


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_odd_texts_stay_text_when_dumped(text: str) -> None:
    config = Config.model_validate(configured("data", root=text))
    assert parse_config(dump_config(config), "dumped.yaml").data.root == text


@pytest.mark.parametrize("text", ["a\nb", "a: b\n\n", "\n", "a\u2028b", "\x85", "'\t\\"])
def test_any_text_is_one_line_of_yaml(text: str) -> None:
    assert [parse_yaml(line, "line").root for line in as_yaml([text]).splitlines()] == [[text]]


def values_of(field: FieldInfo) -> st.SearchStrategy[Any]:
    kind = field.annotation
    optional = type(None) in get_args(kind)
    kind = next(iter(set(get_args(kind)) - {type(None)})) if optional else kind
    limits = {
        name: getattr(rule, name) for rule in field.metadata for name in ("ge", "gt", "le", "lt") if hasattr(rule, name)
    }
    low, high = limits.get("ge", limits.get("gt")), limits.get("le", limits.get("lt"))
    values: st.SearchStrategy[Any]
    if kind is bool:
        values = st.booleans()
    elif kind is int:
        values = st.integers(low, int(high or 0) - ("lt" in limits))
    elif kind is float:
        values = st.floats(low, high, exclude_min="gt" in limits, exclude_max="lt" in limits)
    elif get_origin(kind) is Literal:
        values = st.sampled_from(get_args(kind))
    elif get_origin(kind) is tuple and Ellipsis in get_args(kind):
        values = st.lists(st.sampled_from(get_args(get_args(kind)[0])), min_size=1, unique=True)
    elif get_origin(kind) is tuple:
        values = st.lists(st.floats(0, 1, exclude_max=True), min_size=2, max_size=2)
    else:
        values = st.sampled_from(ODD_TEXTS) | st.text(min_size=1).filter(
            lambda text: text.isprintable() and text.strip()
        )
    return values | st.none() if optional else values


def sections(section: Any, leave_out: tuple[str, ...] = ()) -> st.SearchStrategy[dict[str, Any]]:
    fields = {key: values_of(field) for key, field in section.model_fields.items() if key not in leave_out}
    needed = {key: values for key, values in fields.items() if section.model_fields[key].is_required()}
    return st.fixed_dictionaries(needed, optional={key: fields[key] for key in fields.keys() - needed.keys()})


def trees() -> st.SearchStrategy[dict[str, Any]]:
    table = sections(TableFile).map(lambda source: {**source, "file": source["file"] + ".tsv"})
    source = sections(PairFiles) | table | sections(HubDataset) | sections(Builtin)
    corpus = source | st.lists(source, min_size=1, max_size=3)
    part = corpus | sections(FromTrain)
    languages = {
        "source_lang": st.sampled_from(["no", "1e5", "pt-BR", "0o7"]),
        "target_lang": st.sampled_from(["on", "5"]),
    }
    parts = {"train": corpus, "valid": part, "test": part | st.none()}
    data = st.tuples(
        sections(Config.model_fields["data"].annotation, (*languages, *parts)),
        st.fixed_dictionaries(
            {**languages, "train": corpus}, optional={"valid": parts["valid"], "test": parts["test"]}
        ),
    ).map(lambda halves: {**halves[0], **halves[1]})
    others = {name: sections(section) for name, section in SECTIONS.items() if name != "data"}
    return st.fixed_dictionaries(
        {"name": st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True), "data": data},
        optional={**others, "seed": st.integers(0, 2**31 - 1)},
    )


@settings(max_examples=60)
@given(trees())
def test_what_is_dumped_parses_back_to_the_same(tree: dict[str, Any]) -> None:
    for _ in range(3):  # a default may contradict a third value
        tree["data"] = {**smallest()["data"], **tree["data"]}
        _, problems = validate(tree)
        for section, *key in {path for problem in problems for path in problem.involved}:
            # Values that contradict one another give way to the defaults.
            tree.get(str(section), {}).pop(key[0], None)
            if key[0] == "file":  # or the two that stand for it
                tree.get(str(section), {}).pop("source_file", None)
                tree.get(str(section), {}).pop("target_file", None)
    tree["data"] = {**smallest()["data"], **tree["data"]}
    config, problems = validate(tree)
    assert config is not None, problems
    text = dump_config(config)
    assert parse_config(text, "dumped.yaml") == config
    assert dump_config(parse_config(text, "dumped.yaml")) == text


def test_a_dump_writes_every_default() -> None:
    text = dump_config(parse_config(SMALLEST, "x.yaml"))
    for name, section in SECTIONS.items():
        assert f"{name}:\n" in text
        for key in section.model_fields:
            assert re.search(rf"^  {key}: \S", text, re.MULTILINE), key
    assert "  eps: 1.0e-09\n" in text
    source = "{source: a, target: b, source_lang: null, target_lang: null, both_ways: false, weight: 1.0, "
    assert f"  train: [{source}optional: false, synthetic: false}}]\n" in text
