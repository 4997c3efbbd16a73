"""The configuration: defaults, rules, and the wording and line of every error."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from config_helpers import SECTIONS, SMALLEST, configured, messages, refusal, smallest
from mt.config import (
    Builtin,
    Config,
    FromTrain,
    HubDataset,
    ModelConfig,
    PairFiles,
    TableFile,
    load_config,
    parse_config,
)
from mt.config.schema import unused_keys
from mt.decoding.settings import TranslationSettings
from mt.errors import InputError


def parsed(*overrides: str, text: str = SMALLEST) -> Config:
    return parse_config(text, "x.yaml", overrides)


def test_the_smallest_file_takes_every_default() -> None:
    config = parsed()
    assert config.data.train == (PairFiles(source="a", target="b"),)
    assert config.data.valid == config.data.test == FromTrain(from_train=1000)
    assert (config.seed, config.tokenizer.vocab_size, config.model.d_model) == (1, 10_000, 512)
    assert (config.training.learning_rate, config.training.betas) == (5e-4, (0.9, 0.98))
    assert (config.decoding.max_length_ratio, config.evaluation.methods) == (3.0, ("greedy", "beam"))


def test_a_configuration_is_immutable_and_valid_in_python_too() -> None:
    config = parsed()
    with pytest.raises(ValidationError):
        config.model.d_model = 3
    hash(config)
    assert ModelConfig(d_model=64, n_heads=2).d_ff == 2048
    with pytest.raises(ValidationError):
        ModelConfig(d_model=63)


def test_an_empty_section_has_its_defaults() -> None:
    assert parsed(text=SMALLEST + "training:\n  # max_steps: 3\nmodel:\n") == parsed()


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("{source: a, target: b}", PairFiles(source="a", target="b")),
        ("{file: p.tsv}", TableFile(file="p.tsv")),
        ("{file: P.JSONL.GZ, source_column: s}", TableFile(file="P.JSONL.GZ", source_column="s")),
        ("{hub: o/n, config: en-it}", HubDataset(hub="o/n", config="en-it", split="train")),
        ("{builtin: phrasebook, split: valid}", Builtin(builtin="phrasebook", split="valid")),
    ],
)
def test_every_kind_of_source(written: str, meant: Any) -> None:
    for key in ("train", "valid", "test"):
        for text in (written, f"[{written}]"):
            config = parsed(f"data.{key}={text}")
            assert getattr(config.data, key) == (meant,)
    both = parsed(f"data.train=[{{source: x, target: y}}, {written}]")
    assert both.data.train == (PairFiles(source="x", target="y"), meant)


def test_pairs_split_off_and_no_test_set() -> None:
    config = parsed("data.valid={from_train: 7}", "data.test=null")
    assert (config.data.valid, config.data.test) == (FromTrain(from_train=7), None)


@pytest.mark.parametrize(
    ("section", "values", "key", "words"),
    [
        ("model", {"d_model": 510}, "model.d_model", "cannot be divided among 8 heads"),
        ("model", {"n_heads": 7}, "model.n_heads", "cannot be divided among 7 heads"),
        ("model", {"d_model": 63, "n_heads": 9}, "model.d_model", "even d_model"),
        ("training", {"weight_decay": 0.1}, "training.weight_decay", "set optimizer: adamw"),
        ("training", {"schedule": "cosine", "warmup_steps": 50, "max_steps": 50}, "training.warmup_steps", "smaller"),
        ("training", {"schedule": "linear", "max_steps": 4000}, "training.max_steps", "smaller"),
        ("training", {"warmup_steps": 0}, "training.warmup_steps", "at least 1"),
        ("training", {"schedule": "noam"}, "training.schedule", "usually 1.0"),
        ("training", {"learning_rate": 1.0}, "training.learning_rate", "diverges"),
        ("training", {"betas": [0.9, 1.0]}, "training.betas.1", "less than 1"),
        ("training", {"betas": [-0.1, 0.9]}, "training.betas.0", "at least 0"),
        ("training", {"betas": [0.9]}, "training.betas.1", "missing"),
        ("training", {"betas": [0.9, 0.9, 0.9]}, "training.betas", "too long"),
        ("training", {"max_tokens": 255}, "training.max_tokens", "cannot hold"),
        ("training", {"keep_checkpoints": 1}, "training.keep_checkpoints", "at least 2"),
        ("data", {"max_length": 4097}, "data.max_length", "cannot hold"),
        ("model", {"positions": "rotary", "d_model": 54, "n_heads": 18}, "model.d_model", "and 3 is odd"),
        ("data", {"train": {"source": "d/a", "target": "d/./a"}}, "data.train.target", "same file"),
        ("data", {"train": {"file": "a.tsv", "target_column": "en"}}, "data.train", "same column, en"),
        ("data", {"test": [{"hub": "a"}, {"hub": "a", "source_column": "de"}]}, "data.test.1", "same column, de"),
        ("data", {"train": {"file": "a.txt"}}, "data.train.file", "must end in .tsv"),
        ("data", {"train": {"file": "a.parquet.gz"}}, "data.train.file", "must end in .tsv"),
        (
            "data",
            {"train": {"file": "a.jsonl", "header": False}},
            "data.train.header",
            "for .tsv, .csv, .xlsx files only",
        ),
        ("data", {"train": {"file": "a.tmx", "delimiter": ";"}}, "data.train.delimiter", "for .tsv, .csv files only"),
        ("data", {"train": {"file": "a.csv", "delimiter": ";;"}}, "data.train.delimiter", "must be one character"),
        ("data", {"train": {"file": "a.csv", "stem": "a"}}, "data.train.stem", "for .zip, .tar.gz, .tgz files only"),
        ("data", {"train": {"file": "a.csv", "sheet": "a"}}, "data.train.sheet", "for .xlsx files only"),
        ("data", {"train": {"opus": "../a"}}, "data.train.opus", "must be letters, digits, dots"),
        ("data", {"train": {"file": "a.tsv", "header": False, "target_column": 1}}, "data.train", "same column, 1"),
        ("data", {"train": []}, "data.train", "at least 1"),
        ("data", {"train": None}, "data.train", "must be a source"),
        ("data", {"train": "a.tsv"}, "data.train", "not 'a.tsv'"),
        ("data", {"train": {}}, "data.train", "must be a source"),
        ("data", {"train": {"split": "x"}}, "data.train", "none of those keys is among split"),
        ("data", {"train": {"from_train": 3}}, "data.train", "only be all of data.valid or data.test"),
        ("data", {"valid": [{"from_train": 3}]}, "data.valid.0", "only be all of data.valid or data.test"),
        ("data", {"valid": None}, "data.valid", "must be a source"),
        ("data", {"valid": {"from_train": 0}}, "data.valid.from_train", "at least 1"),
        ("data", {"train": {"hub": "a", "file": "b.tsv"}}, "data.train.hub", "does not go with file"),
        ("data", {"train": {"source": "a"}}, "data.train.target", "missing: Text file in the target language"),
        ("data", {"train": {"source": "", "target": "b"}}, "data.train.source", "empty"),
        ("data", {"train": {"source": "a\0", "target": "b"}}, "data.train.source", "control characters"),
        ("data", {"source_lang": "e n"}, "data.source_lang", "short code"),
        ("data", {"max_ratio": 0.5}, "data.max_ratio", "at least 1"),
        ("tokenizer", {"vocab_size": 299}, "tokenizer.vocab_size", "at least 300, not 299"),
        ("tokenizer", {"file": "a", "type": "unigram"}, "tokenizer.type", "is for a tokenizer to train"),
        ("tokenizer", {"file": "a", "shared": False}, "tokenizer.shared", "must be true with file"),
        ("tokenizer", {"source_file": "a", "target_file": "b"}, "tokenizer.shared", "must be false with source_file"),
        (
            "tokenizer",
            {"source_file": "a", "shared": False},
            "tokenizer.source_file",
            "or file alone",
        ),
        (
            "tokenizer",
            {"file": "a", "target_file": "b"},
            "tokenizer.target_file",
            "or file alone",
        ),
        ("tokenizer", {"sampling_alpha": 0.1}, "tokenizer.sampling_alpha", "is for type: unigram"),
        ("tokenizer", {"type": "unigram", "bpe_dropout": 0.1}, "tokenizer.bpe_dropout", "is for BPE"),
        ("tokenizer", {"type": "unigram", "sampling_alpha": -1}, "tokenizer.sampling_alpha", "at least 0"),
        ("decoding", {"min_length": 9, "max_length": 8}, "decoding.min_length", "larger than max_length 8"),
        ("evaluation", {"methods": []}, "evaluation.methods", "at least 1"),
        ("evaluation", {"metrics": ["bleu", "ter", "bleu"]}, "evaluation.metrics", "bleu more than once"),
        ("evaluation", {"metrics": ["blue"]}, "evaluation.metrics.0", "did you mean bleu?"),
        ("model", {"encoder_layers": 10**12}, "model.encoder_layers", "at most 1000, not 1000000000000"),
        ("model", {"dropout": 1}, "model.dropout", "less than 1"),
    ],
)
def test_rules_and_bounds(section: str, values: dict[str, Any], key: str, words: str) -> None:
    (message,) = messages(configured(section, **values))
    assert message.startswith(f"{key}: ")
    assert words in message


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ("model", {"positions": "learned", "d_model": 63, "n_heads": 9}),
        ("training", {"weight_decay": 0.1, "optimizer": "adamw"}),
        ("training", {"schedule": "cosine", "warmup_steps": 49, "max_steps": 50}),
        ("training", {"schedule": "constant", "warmup_steps": 0}),
        ("training", {"schedule": "noam", "learning_rate": 1}),
        ("training", {"max_tokens": 256}),
        ("training", {"betas": [0, 0.5], "clip_norm": None}),
        ("decoding", {"min_length": 8, "max_length": 8}),
        ("data", {"train": {"file": "a.tsv", "source_column": "de", "target_column": "en"}}),
    ],
)
def test_values_just_within_the_rules(section: str, values: dict[str, Any]) -> None:
    assert messages(configured(section, **values)) == []


@pytest.mark.parametrize("name", ["", ".", "..", "-x", "a/b", "a\\b", "a b", "a\n", "ä", "x" * 101])
def test_a_run_name_is_one_safe_path_component(name: str) -> None:
    (message,) = messages({**smallest(), "name": name})
    assert message.startswith("name: must be letters")


@pytest.mark.parametrize(
    ("section", "key", "value", "words"),
    [
        ("model", "d_model", "big", "must be a whole number, not 'big'"),
        ("model", "d_model", "512", "must be a whole number, not '512'"),
        ("model", "d_model", 512.0, "must be a whole number, not 512.0"),
        ("model", "d_model", True, "must be a whole number, not true"),
        ("model", "d_model", None, "must be a whole number, not empty (null)"),
        ("model", "d_model", [512], "must be a whole number, not a list"),
        ("model", "bias", 1, "must be true or false, not 1"),
        ("model", "bias", "true", "must be true or false, not 'true'"),
        ("training", "wandb", 5, "must be true, false or a name, not 5; put quotes around it"),
        ("training", "compile", 1, "must be auto, true or false"),
        ("training", "compile", "always", "must be auto, true or false"),
        ("model", "dropout", "0.1", "must be a number, not '0.1'"),
        ("model", "dropout", False, "must be a number, not false"),
        ("model", "norm", "poste", "must be 'post' or 'pre', not 'poste'; did you mean post?"),
        ("model", "norm", {"a": 1}, "must be 'post' or 'pre', not a map"),
        ("data", "source_lang", 5, "must be text, not 5; put quotes around it"),
        ("data", "root", "x" * 4097, "must be at most 4096 characters long"),
        ("evaluation", "methods", "beam", "must be a list such as [a, b], not 'beam'"),
        ("training", "patience", "never", "must be a whole number, not 'never'"),
    ],
)
def test_values_are_not_converted(section: str, key: str, value: Any, words: str) -> None:
    assert messages(configured(section, **{key: value})) == [f"{section}.{key}: {words}"]


def test_whole_numbers_are_numbers() -> None:
    config = parsed("decoding.length_penalty=1", "training.clip_norm=2")
    assert isinstance(config.decoding.length_penalty, float)
    assert isinstance(config.training.clip_norm, float)


@pytest.mark.parametrize("value", [5, "x", [1]])
def test_a_section_is_a_map(value: Any) -> None:
    for section in SECTIONS:
        (message,) = messages({**smallest(), section: value})
        assert message.startswith(f"{section}: must be a section with keys of its own, not ")


def test_translations_may_be_as_long_as_sentences() -> None:
    def longest(*changes: str) -> int:
        return parsed("training.max_tokens=4096", *changes).longest_translation

    assert longest() == longest("data.max_length=100") == 256
    assert longest("data.max_length=1024") == 1024
    assert longest("data.max_length=1024", "decoding.max_length=300") == 300
    config = parsed("data.max_length=1024", "decoding.min_length=1024")
    assert TranslationSettings.of(config).search.longest(1024, None) == 1024
    with pytest.raises(InputError, match="min_length 1025 is larger than max_length, which is 1024 unless it is set"):
        parsed("data.max_length=1024", "decoding.min_length=1025")


def test_a_source_that_is_read_both_ways_counts_twice() -> None:
    both = ["en", "de"]
    source = {"source": "a", "target": "b", "source_lang": "en", "target_lang": "de", "both_ways": True}
    for n_sources, count in ((500, None), (501, 1002)):
        found = messages(configured("data", source_lang=both, target_lang=both, train=[source] * n_sources))
        sentence = f"data.train: has {count} sources, at most 1000 allowed; one read both ways counts twice"
        assert found == ([sentence] if count else [])


def test_a_schedule_with_an_end_needs_max_steps() -> None:
    epochs = ["training.schedule=cosine", "training.max_epochs=3"]
    with pytest.raises(InputError, match=r"falls until max_steps \(100,000, which is not set here\)"):
        parsed(*epochs)
    parsed(*epochs, "training.max_steps=9000")
    parsed(*epochs[1:])


TWO_SOURCES = "data.train=[{source: a, target: b}, {source: c, target: d}]"
GIVEN = "tokenizer.file=a.json tokenizer.shared=true"
EPOCHS = "training.max_steps=9999 training.max_epochs=8 training.bidirectional_epochs"


@pytest.mark.parametrize(
    ("changes", "unused"),
    [
        ("", ""),
        ("training.max_steps=100", "training.max_steps"),
        ("training.distill_weight=0.7", "training.distill_weight"),
        ("training.distill_weight=0.7 training.distill_from=runs/a", ""),
        (f"{EPOCHS}=8", "training.bidirectional_epochs"),
        (f"{EPOCHS}=7", ""),
        ("training.r_drop=1 model.dropout=0", "training.r_drop"),
        ("training.r_drop=1 model.dropout=0 model.word_dropout=0.1", ""),
        ("training.init_tokenizer=false", "training.init_tokenizer"),
        ("training.average_checkpoints=3", "training.average_checkpoints"),
        ("training.average_checkpoints=3 training.final_weights=average_best", ""),
        ("data.temperature=2", "data.temperature"),
        ("decoding.tune_length_penalty=true decoding.beam_size=1", "decoding.tune_length_penalty"),
        ("decoding.tune_length_penalty=true", ""),
        ("decoding.shortlist=50 model.target_tag=target", "decoding.shortlist"),
        (f"{GIVEN} tokenizer.vocab_size=500 tokenizer.train_pairs=9", "tokenizer.vocab_size tokenizer.train_pairs"),
        (GIVEN, ""),
    ],
)
def test_unused_keys(changes: str, unused: str) -> None:
    assert [each.split(":")[0] for each in unused_keys(parsed(*changes.split()))] == unused.split()


def test_the_temperature_of_two_sources_is_used() -> None:
    assert list(unused_keys(parsed("data.temperature=2", TWO_SOURCES))) == []


def test_all_problems_at_once_each_with_its_line() -> None:
    text = """\
nam: x
seed: true
data:
  source_lang: en
  target_lang: de
  train:
    - {source: a, targt: b}
    - {source: a,
       target: ./a}
  max_length: 300
training:
  learning_rte: 1.0
  max_tokens: 20
  weight_decay: 1
model: {d_model: 511, dropout: big}
decoding:
  min_length: 300
  max_length: 256
"""
    assert refusal(text).splitlines() == [
        "11 problems in x.yaml:",
        "  x.yaml:1: nam: unknown key; did you mean name?",
        "  x.yaml:2: seed: must be a whole number, not true",
        "  x.yaml:7: data.train.0.targt: unknown key; did you mean target?",
        "  x.yaml:9: data.train.1.target: is the same file as source",
        "  x.yaml:12: training.learning_rte: unknown key; did you mean learning_rate?",
        "  x.yaml:13: training.max_tokens: a batch of 20 tokens cannot hold a sentence of data.max_length (300) tokens",
        "  x.yaml:14: training.weight_decay: adam has no weight decay here; set optimizer: adamw, or weight_decay: 0.0",
        "  x.yaml:15: model.dropout: must be a number, not 'big'",
        "  x.yaml:15: model.d_model: d_model 511 cannot be divided among 8 heads (n_heads)",
        "  x.yaml:15: model.d_model: sinusoidal positions need an even d_model (sine and cosine in pairs), not 511",
        "  x.yaml:17: decoding.min_length: min_length 300 is larger than max_length 256",
    ]


def test_problems_are_in_the_order_of_the_file() -> None:
    text = "training: {max_steps: 0}\nseed: -1\n" + SMALLEST + "model: {d_ff: 0}\ntokenizer: {type: x}\n"
    places = [line.split(": ")[0] for line in refusal(text, "name=/").splitlines()[1:]]
    assert places == ["  x.yaml:1", "  x.yaml:2", "  x.yaml:8", "  x.yaml:9", "  --set name=/"]


def test_a_rule_ignores_values_that_are_wrong_themselves() -> None:
    assert messages(configured("model", d_model="big", n_heads=12)) == [
        "model.d_model: must be a whole number, not 'big'"
    ]
    assert len(messages({"name": "x", "data": 5, "training": {"max_tokens": 9}})) == 1


def test_windows_files_have_the_same_lines() -> None:
    text = SMALLEST + "model:\n  d_modle: 3\n"
    expected = refusal(text)
    assert expected.endswith("x.yaml:7: model.d_modle: unknown key; did you mean d_model?")
    assert refusal("\ufeff" + text.replace("\n", "\r\n")) == expected


def test_missing_keys_are_reported_at_their_section() -> None:
    assert refusal("name: x\ndata:\n  source_lang: en\n").splitlines() == [
        "2 problems in x.yaml:",
        "  x.yaml:2: data.target_lang: missing: Code of the language to translate to; or a list, "
        "for a model of several; each source then names its own.",
        "  x.yaml:2: data.train: missing: Training text: a source or a list of them.",
    ]
    assert refusal("seed: 1\n").splitlines() == [
        "2 problems in x.yaml:",
        "  x.yaml: name: missing: Name of the run, and of its folder.",
        "  x.yaml: data: missing: The corpora.",
    ]


def test_unreadable_files(tmp_path: Path) -> None:
    def message(path: Path) -> str:
        with pytest.raises(InputError) as caught:
            load_config(path)
        return str(caught.value)

    (tmp_path / "list.yaml").write_text("- a\n")
    (tmp_path / "word.yaml").write_text("hello\n")
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    with (tmp_path / "huge.yaml").open("wb") as file:
        file.truncate(10**10)
    assert message(tmp_path / "none.yaml").splitlines()[0] == f"{tmp_path}/none.yaml: no such file"
    assert "list.yaml" in message(tmp_path / "none.yaml").splitlines()[1]
    assert message(tmp_path) == f"{tmp_path}: this is a folder, not a file"
    assert "holds a list instead of sections" in message(tmp_path / "list.yaml")
    assert "holds a single value instead of sections" in message(tmp_path / "word.yaml")
    assert "empty.yaml: empty" in message(tmp_path / "empty.yaml")
    assert "larger than 1,000,000 bytes" in message(tmp_path / "huge.yaml")
    assert message(tmp_path / "list.yaml" / "x") == f"{tmp_path}/list.yaml/x: cannot be read: Not a directory"


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        (["model.d_model=32768"], "model.d_model: makes a matrix of 98,304 x 32,768 numbers, 12.0 GiB"),
        (["tokenizer.vocab_size=1000000", "model.d_model=2048"], "tokenizer.vocab_size: makes a matrix of 1,000,000"),
        (["model.d_ff=1048576", "model.d_model=1024"], "model.d_ff: makes a matrix of 1,048,576 x 1,024"),
        (["decoding.max_length=100000", "model.d_model=16384"], "makes a matrix of 100,001 x 16,384"),
    ],
)
def test_a_matrix_too_large_for_the_model_folder(changes: list[str], key: str) -> None:
    """CTranslate2's files count its bytes in 32 bits."""
    assert key in refusal(SMALLEST, *changes)
    parsed("tokenizer.vocab_size=1000000", "model.d_model=1024")


@pytest.mark.parametrize("least", [7, 8])
def test_learned_positions_hold_any_character(least: int) -> None:
    text = SMALLEST
    if least == 8:
        sources = "[{source: a, target: b, target_lang: de}, {source: a, target: c, target_lang: fr}]"
        text = SMALLEST.replace("de\n", "[de, fr]\n").replace("{source: a, target: b}", sources)
    parsed("data.max_length=3", text=text)
    parsed("model.positions=learned", f"data.max_length={least}", text=text)
    with pytest.raises(InputError, match=rf"data\.max_length: must be at least {least} with learned positions"):
        parsed("model.positions=learned", f"data.max_length={least - 1}", text=text)


def test_a_shortest_translation_beyond_the_learned_positions() -> None:
    changes = ["model.positions=learned", "data.max_length=12", "training.max_tokens=100"]
    parsed(*changes, "decoding.min_length=11")
    with pytest.raises(InputError, match=r"decoding\.min_length: a translation of at least 12 tokens and its end"):
        parsed(*changes, "decoding.min_length=12")


@pytest.mark.parametrize("changes", [["training.init_from=a"], ["training.distill_from=[a]"]])
def test_a_given_tokenizer_beside_one_of_another_model(changes: list[str]) -> None:
    assert "tokenizer.file: is given, but" in refusal(SMALLEST, "tokenizer.file=spm.model", *changes)
    parsed("tokenizer.file=spm.model", "training.init_from=a", "training.init_tokenizer=false")


def test_a_pipeline_is_not_a_configuration() -> None:
    with pytest.raises(InputError) as caught:
        parsed(text="name: x\nsteps: {a: {train: {config: a.yaml}}}\n")
    assert caught.value.message == "x.yaml: a pipeline, not a configuration"
    assert "mt.run_pipeline" in (caught.value.hint or "")
    assert "did you mean" in refusal(SMALLEST, "steps=5")
