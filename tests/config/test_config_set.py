"""`--set`: changes to a configuration, and errors that name the argument."""

import pytest

from config_helpers import SMALLEST, refusal
from mt.config import PairFiles, TableFile, parse_config


def test_set_changes_the_file() -> None:
    config = parse_config(
        SMALLEST + "training: {max_steps: 5}\n",
        "x.yaml",
        [
            *("name=other", "training.max_steps=7", "training.learning_rate=1e-4", "training.patience=null"),
            *("training.betas=[0.8, 0.9]", "decoding={beam_size: 3}", "decoding.beam_size=2"),
            *("data.train.source=c=d.txt", "data.source_lang='no'"),
        ],
    )
    assert (config.name, config.training.max_steps, config.training.learning_rate) == ("other", 7, 1e-4)
    assert (config.training.patience, config.training.betas, config.decoding.beam_size) == (None, (0.8, 0.9), 2)
    assert config.data.train == (PairFiles(source="c=d.txt", target="b"),)
    assert config.data.source_lang == ("no",)


@pytest.mark.parametrize(
    ("overrides", "minutes"),
    [
        ((), 30),
        (("training.max_steps=7",), None),
        (("training.minutes=10", "training.max_steps=7"), 10),
        (("training.max_steps=7", "training.minutes=10"), 10),
        (("training.max_steps=7", "training={minutes: 5}"), 5),
        (("training.max_epochs=7",), 30),
    ],
)
def test_max_steps_alone_lifts_the_limit_of_minutes(overrides: tuple[str, ...], minutes: float | None) -> None:
    config = parse_config(SMALLEST + "training: {max_steps: 5, minutes: 30}\n", "x.yaml", overrides)
    assert config.training.minutes == minutes


@pytest.mark.parametrize(
    "override",
    [
        *(f"data.train.source={text}" for text in ("'x #2'", '"x #2"', "x#2", "  x  ", "'x' ")),
        *('name="2024"', "data.max_ratio=", "data.max_ratio=null ", "evaluation.methods=[greedy, beam] "),
    ],
)
def test_values_without_a_comment(override: str) -> None:
    parse_config(SMALLEST, "x.yaml", [override])


def test_set_reaches_into_lists() -> None:
    text = SMALLEST.replace("{source: a, target: b}", "[{source: a, target: b}, {source: c, target: d}]")
    config = parse_config(text, "x.yaml", ["data.train.1.source=x", "data.train.0={file: t.tsv}"])
    assert config.data.train == (TableFile(file="t.tsv"), PairFiles(source="x", target="d"))


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("training.max_steps", "not of the form KEY=VALUE"),
        ("=5", "not of the form KEY=VALUE"),
        ("training..max_steps=5", "not of the form KEY=VALUE"),
        (".".join("a" * 5000) + "=5", "not of the form KEY=VALUE"),
        ("seed=[1", "a bracket is not closed"),
        ("data.root=/tmp/x #2", "the value would end before '#'"),
        ("training.patience=#", "the value would end before '#'"),
        ("training.betas=[0.8, 0.9] # as before", "the value would end before '#'"),
        ("seed=.nan", ".nan is not a usable number"),
        ("seed=*x", "aliases"),
        ("name=a: b", "looks like part of a file"),
        ("name=- b", "looks like part of a file"),
        ("name.x=1", "name is a single value"),
        (
            "data.train.0.x.y=1",
            "data.train.0: unknown key; known here: source, target, source_lang, target_lang, both_ways, weight",
        ),
        ("training.learning_rte=5", "training.learning_rte: unknown key; did you mean learning_rate?"),
        ("name=2024", "name: must be text, not 2024; put quotes around it, in a shell '\"...\"'"),
        ("traning.max_steps=5", "traning: unknown key; did you mean training?"),
        ("max_steps=5", "max_steps: unknown key; did you mean training.max_steps?"),
        ("training.max_steps=many", "training.max_steps: must be a whole number, not 'many'"),
        ("training={max_steps: 0}", "training.max_steps: must be at least 1, not 0"),
        ("data.valid.source=v", "data.valid.target: missing"),
        ("model.n_heads=7", "model.n_heads: d_model 512 cannot be divided among 7 heads"),
        ("data.train={source: x}", "data.train.target: missing"),
    ],
)
def test_errors_of_set_name_the_argument(override: str, words: str) -> None:
    (line,) = [line for line in refusal(SMALLEST, override).splitlines() if "--set" in line]
    assert line.strip().startswith(f"--set {override}: ")
    assert words in line


def test_set_refuses_a_list_index_out_of_range() -> None:
    text = SMALLEST.replace("{source: a, target: b}", "[{source: a, target: b}]")
    for number in ("1", "-1", "x", "²"):
        assert "data.train is a list, with the numbers 0 to 0" in refusal(text, f"data.train.{number}.source=x")


def test_errors_name_the_last_set_of_a_key() -> None:
    message = refusal(SMALLEST, "training={max_steps: 0}", "training.max_steps=-1", "model.d_model=x")
    assert message.splitlines()[1:] == [
        "  --set model.d_model=x: model.d_model: must be a whole number, not 'x'",
        "  --set training.max_steps=-1: training.max_steps: must be at least 1, not -1",
    ]
