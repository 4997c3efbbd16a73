"""`mt init --like`: other toolkits' configurations become ours; options that do not are listed."""

import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from command import mt
from mt.config import Config, load_config
from mt.config.problems import SECTIONS
from mt.errors import InputError
from mt.extras.planning import other_toolkits
from mt.extras.planning.like_config import convert_config
from mt.extras.planning.other_toolkits import tables
from resume_helpers import overrides

JOEYNMT = """\
name: small_en_de
joeynmt_version: 2.3.0
random_seed: 7
use_cuda: True
data:
  train: corpus/train
  dev: corpus/dev
  test: corpus/test
  src: {lang: en, max_length: 70, lowercase: True, level: bpe, voc_limit: 8000, tokenizer_type: sentencepiece}
  trg: {lang: de, max_length: 70, lowercase: True, level: bpe, voc_limit: 8000, tokenizer_type: sentencepiece}
testing: {beam_size: 4, beam_alpha: 0.6, max_output_length: 90, repetition_penalty: -1, no_repeat_ngram_size: 3}
training:
  optimizer: adam
  adam_betas: [0.9, 0.98]
  learning_rate: 0.0007
  scheduling: warmupinversesquareroot
  learning_rate_warmup: 3000
  label_smoothing: 0.1
  clip_grad_norm: 2.0
  batch_size: 80
  batch_type: sentence
  batch_multiplier: 2
  epochs: 30
  validation_freq: 500
  early_stopping_metric: bleu
model:
  tied_embeddings: False
  tied_softmax: True
  encoder:
    type: transformer
    num_layers: 5
    num_heads: 4
    embeddings: {embedding_dim: 256, scale: True}
    hidden_size: 256
    ff_size: 1024
    dropout: 0.2
    layer_norm: post
  decoder:
    type: transformer
    num_layers: 2
    num_heads: 4
    embeddings: {embedding_dim: 256, scale: True}
    hidden_size: 256
    ff_size: 512
    dropout: 0.2
    layer_norm: post
"""
OPENNMT = """\
save_data: run/data
src_vocab_size: 24000
tgt_vocab_size: 24000
share_vocab: true
data:
  web: {path_src: web.fi.gz, path_tgt: web.sv.gz, weight: 3, transforms: [sentencepiece, filtertoolong]}
  books: {path_src: books.fi, path_tgt: books.sv}
  valid: {path_src: dev.fi, path_tgt: dev.sv}
transforms: [sentencepiece, tokendrop]
src_seq_length: 120
tgt_seq_length: 120
encoder_type: transformer
decoder_type: transformer
enc_layers: 4
dec_layers: 4
heads: 8
hidden_size: 512
word_vec_size: 512
transformer_ff: 2048
dropout: [0.2, 0.1]
attention_dropout: [0.1]
position_encoding: true
share_embeddings: true
share_decoder_embeddings: true
optim: fusedadam
adam_beta2: 0.998
learning_rate: 2
decay_method: noam
warmup_steps: 6000
max_grad_norm: 0
label_smoothing: 0.1
batch_type: tokens
batch_size: 5000
accum_count: [4]
train_steps: 40000
average_decay: 0.0001
model_dtype: fp16
"""
EOLE = """\
seed: 3
share_vocab: true
data:
  corpus_1: {path_src: hf://someone/pairs/en, path_tgt: hf://someone/pairs/de}
  valid: {path_src: dev.en, path_tgt: dev.de}
transforms: [bpe, filtertoolong]
transforms_configs:
  filtertoolong: {src_seq_length: 200, tgt_seq_length: 200}
training:
  batch_type: tokens
  batch_size: 6000
  train_steps: 9000
  optim: adamw
  learning_rate: 0.02
  decay_method: rsqrt
  warmup_steps: 400
  dropout: [0.1]
  attention_dropout: [0.0]
  max_grad_norm: 1
  compute_dtype: bf16
  early_stopping: 4
model:
  architecture: transformer
  layers: 3
  heads: 4
  hidden_size: 256
  transformer_ff: 768
  mlp_activation_fn: gated-silu
  share_decoder_embeddings: true
  embeddings: {word_vec_size: 256, position_encoding_type: Rotary}
"""
FAIRSEQ = """\
# A base model.
TEXT=corpora/wmt
fairseq-preprocess --source-lang en --target-lang de --joined-dictionary \\
    --trainpref $TEXT/train --validpref $TEXT/dev1,$TEXT/dev2 --destdir data-bin/wmt_en_de
CUDA_VISIBLE_DEVICES=0 fairseq-train \\
    data-bin/wmt_en_de --arch transformer_iwslt_de_en \\
    --encoder-layers 4 --share-decoder-input-output-embed \\
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 0.0 --weight-decay 0.0001 \\
    --lr 5e-4 --lr-scheduler inverse_sqrt --warmup-updates=2000 --stop-min-lr 1e-09 \\
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --dropout 0.3 \\
    --max-tokens 3000 --update-freq 4 --max-epoch 20 --patience 6 --bf16 \\
    --eval-bleu --eval-bleu-args '{"beam": 5}' --best-checkpoint-metric bleu \\
    --upsample-primary 16 --save-dir checkpoints | tee log
"""


def converted(folder: Path, text: str, **given: Any) -> tuple[Config, str]:
    """Return the configuration, and its comments."""
    (folder / "other").write_text(text)
    _, ours, _ = convert_config(folder / "other", given)
    (folder / "ours.yaml").write_text(ours)
    return load_config(folder / "ours.yaml"), "\n".join(line for line in ours.splitlines() if line.startswith("#"))


def paths(sources: Any) -> list[tuple[str, str]]:
    return [(source.source, source.target) for source in sources]


def test_joeynmt(tmp_path: Path) -> None:
    config, comments = converted(tmp_path, JOEYNMT)
    assert (config.name, config.seed, config.data.source_lang, config.data.target_lang) == (
        "small_en_de",
        7,
        ("en",),
        ("de",),
    )
    assert paths(config.data.train) == [("corpus/train.en", "corpus/train.de")]
    assert paths(config.data.valid) == [("corpus/dev.en", "corpus/dev.de")]
    assert config.data.max_length == 72  # with start and end
    assert (config.tokenizer.vocab_size, config.tokenizer.shared, config.model.tie_embeddings) == (8000, False, True)
    model, training = config.model, config.training
    assert (model.d_model, model.n_heads, model.d_ff, model.encoder_layers, model.decoder_layers) == (
        256,
        4,
        1024,
        5,
        2,
    )
    assert (model.norm, model.dropout, model.attention_dropout, model.activation_dropout) == ("post", 0.2, 0.2, 0.2)
    assert (training.schedule, training.learning_rate, training.warmup_steps) == ("inverse_sqrt", 0.0007, 3000)
    assert (training.max_tokens, training.accumulate, training.max_epochs) == (80 * 32, 2, 30)
    assert (training.clip_norm, training.betas, training.best_metric) == (2.0, (0.9, 0.98), "bleu")
    assert training.patience is None  # JoeyNMT's ends no training
    assert (config.decoding.beam_size, config.decoding.length_penalty, config.decoding.max_length) == (4, 0.6, 90)
    differing, missing = comments.split("# Without a counterpart:")
    assert "training.batch_size: 80: counts sentences; taken as 32 tokens each" in differing
    assert "model.decoder.ff_size: 512: mt has one model.d_ff, which is 1024 from model.encoder.ff_size" in differing
    assert "testing.beam_alpha" in differing
    lines = [line.strip("# ") for line in missing.strip().splitlines()]
    assert lines == ["data.src.lowercase: true", "data.trg.lowercase: true"]
    assert (config.model.scale_embeddings, config.decoding.no_repeat_ngram_size) == (True, 3)
    assert not converted(tmp_path, JOEYNMT.replace(", scale: True", ""))[0].model.scale_embeddings


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"warmupinversesquareroot": "noam"}, {"schedule": "noam", "learning_rate": 1.0, "warmup_steps": 3000}),
        (
            {"scheduling: warmupinversesquareroot": "scheduling: noam\n  learning_rate_factor: 2"},
            {"schedule": "noam", "learning_rate": 2},
        ),
        (
            {"warmupinversesquareroot": "plateau", "  learning_rate_warmup: 3000\n": ""},
            {"schedule": "constant", "warmup_steps": 0, "patience": 10},
        ),
        ({"  learning_rate_warmup: 3000\n": ""}, {"warmup_steps": 4000}),  # JoeyNMT's default
        ({"metric: bleu": "metric: chrf"}, {"best_metric": "bleu"}),
        (
            {"  learning_rate: 0.0007\n": "", "  epochs: 30\n": "", "  early_stopping_metric: bleu\n": ""},
            {"learning_rate": 0.005, "max_epochs": 3, "best_metric": "loss", "eps": 1e-8},
        ),
        (
            {"scheduling: warmupinversesquareroot": "scheduling: noam\n  learning_rate_peak: 0.001"},
            {"schedule": "noam", "learning_rate": 1.0},
        ),
        ({"  label_smoothing: 0.1\n": "", "  clip_grad_norm: 2.0\n": ""}, {"label_smoothing": 0.0, "clip_norm": None}),
        ({"batch_type: sentence": "batch_type: token", "batch_size: 80": "batch_size: 4000"}, {"max_tokens": 4000}),
        ({"adam\n": "adam\n  weight_decay: 0.01\n"}, {"optimizer": "adamw", "weight_decay": 0.01}),
    ],
)
def test_options_that_depend_on_others(tmp_path: Path, changes: dict[str, str], expected: dict[str, Any]) -> None:
    text = JOEYNMT
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    training = converted(tmp_path, text)[0].training
    assert {key: getattr(training, key) for key in expected} == expected


def test_joeynmt_searches_greedily_by_default(tmp_path: Path) -> None:
    decoding = converted(tmp_path, JOEYNMT.replace("beam_size: 4, beam_alpha: 0.6, ", ""))[0].decoding
    assert (decoding.beam_size, decoding.length_penalty) == (1, 0.0)


def test_options_of_several_lines_are_listed_in_one(tmp_path: Path) -> None:
    _, comments = converted(tmp_path, JOEYNMT + 'remark: |\n  first\n  second: "2"\n')
    assert r'remark: "first\nsecond: \"2\"\n"' in comments


def test_joeynmt_ignores_a_peak(tmp_path: Path) -> None:
    text = JOEYNMT.replace("  learning_rate: 0.0007\n", "  learning_rate: 0.0007\n  learning_rate_peak: 0.001\n")
    config, comments = converted(tmp_path, text)
    assert config.training.learning_rate == 0.001
    assert "training.learning_rate_peak: 0.001: JoeyNMT 2.3 ignores it, and takes training.learning_rate" in comments


def test_opennmt(tmp_path: Path) -> None:
    config, comments = converted(tmp_path, OPENNMT)
    assert (config.name, config.data.source_lang, config.data.target_lang) == ("fi-sv", ("fi",), ("sv",))
    assert paths(config.data.train) == [("web.fi.gz", "web.sv.gz"), ("books.fi", "books.sv")]
    assert paths(config.data.valid) == [("dev.fi", "dev.sv")]
    assert (config.tokenizer.vocab_size, config.tokenizer.shared, config.data.max_length) == (24000, True, 122)
    assert (config.model.norm, config.model.dropout, config.model.activation_dropout) == ("pre", 0.2, 0.2)
    training = config.training
    assert (training.schedule, training.learning_rate, training.warmup_steps) == ("noam", 2, 6000)
    assert (training.max_tokens, training.accumulate, training.max_steps) == (5000, 4, 40000)
    assert (training.betas, training.clip_norm, training.precision) == ((0.9, 0.998), None, "auto")
    assert training.ema_decay == pytest.approx(0.9999)
    assert training.patience is None  # early_stopping is off by default
    assert "dropout: [0.2, 0.1]: changes in training there" in comments
    assert "data.web.weight: 3" in comments
    assert "transforms: [sentencepiece, tokendrop]" in comments


def test_eole(tmp_path: Path) -> None:
    config, comments = converted(tmp_path, EOLE, **{"data.source_lang": "en", "name": "mine"})
    assert (config.name, config.seed, config.data.target_lang) == ("mine", 3, ("de",))
    (source,) = config.data.train
    assert (source.hub, source.source_column, source.target_column) == ("someone/pairs", "en", "de")
    assert (config.model.activation, config.model.encoder_layers, config.model.decoder_layers) == ("swiglu", 3, 3)
    assert (config.model.attention_bias, config.tokenizer.shared, config.data.max_length) == (False, True, 202)
    assert config.training.learning_rate == pytest.approx(0.001)  # 0.02 / sqrt(400)
    assert (config.training.precision, config.training.patience) == ("bf16", 4)
    assert "position_encoding_type: Rotary" in comments.split("Without a counterpart:")[1]


def test_fairseq(tmp_path: Path) -> None:
    config, comments = converted(tmp_path, FAIRSEQ)
    assert (config.name, config.data.source_lang, config.data.target_lang) == ("en-de", ("en",), ("de",))
    assert paths(config.data.train) == [("corpora/wmt/train.en", "corpora/wmt/train.de")]
    assert [source for source, _ in paths(config.data.valid)] == ["corpora/wmt/dev1.en", "corpora/wmt/dev2.en"]
    model, training = config.model, config.training
    assert (model.d_model, model.n_heads, model.d_ff, model.encoder_layers, model.decoder_layers) == (
        512,
        4,
        1024,
        4,
        6,
    )
    assert (model.dropout, model.norm, model.tie_embeddings, config.tokenizer.shared) == (0.3, "post", True, True)
    assert (training.optimizer, training.weight_decay, training.clip_norm) == ("adamw", 0.0001, None)
    assert (training.learning_rate, training.warmup_steps, training.eps) == (5e-4, 2000, 1e-8)
    assert (training.max_tokens, training.accumulate, training.max_epochs, training.patience) == (3000, 4, 20, 6)
    assert training.max_steps == 1_000_000
    assert (training.precision, training.best_metric) == ("bf16", "bleu")
    assert comments.splitlines()[-2:] == ["# Without a counterpart:", "#   --upsample-primary: 16"]
    assert (model.scale_embeddings, model.embedding_norm) == (True, False)
    changed = FAIRSEQ.replace("--bf16", "--bf16 --no-scale-embedding --layernorm-embedding")
    model = converted(tmp_path, changed)[0].model
    assert (model.scale_embeddings, model.embedding_norm) == (False, True)


@pytest.mark.parametrize(
    ("schedule", "patience", "expected"),
    [
        ("inverse_sqrt", "", None),
        ("inverse_sqrt", "--patience -1", None),
        ("reduce_lr_on_plateau", "", 10),
        ("reduce_lr_on_plateau", "--patience 6", 6),
    ],
)
def test_fairseq_ends_early_only_when_asked_to(
    schedule: str, patience: str, expected: int | None, tmp_path: Path
) -> None:
    text = FAIRSEQ.replace("inverse_sqrt", schedule).replace("--patience 6", patience)
    assert converted(tmp_path, text)[0].training.patience == expected


def test_other_toolkits_may_name_fairseq(tmp_path: Path) -> None:
    named = OPENNMT.replace("corpora/", "fairseq-corpora/") + "# as: fairseq-train x\nsave_model: runs/fairseq-train\n"
    assert converted(tmp_path, named)[0].model == converted(tmp_path, OPENNMT)[0].model


def test_many_blank_lines_take_no_time(tmp_path: Path) -> None:
    config, _ = converted(tmp_path, "export WORDS=4096\n" + "\n" * 300_000 + FAIRSEQ.replace("3000", "$WORDS"))
    assert config.training.max_tokens == 4096


def test_languages_may_look_like_numbers(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="other:3: --source-lang: must be text"):
        converted(tmp_path, FAIRSEQ.replace("--source-lang en", "--source-lang 1"))


def test_text_and_languages_need_not_be_there(tmp_path: Path) -> None:
    command = "fairseq-train --fp16 data-bin/wmt18_en_de -a transformer_vaswani_wmt_en_de_big --max-sentences 64"
    (tmp_path / "base.txt").write_text(command)
    done = mt("init", "--like", "base.txt", cwd=tmp_path)
    config = load_config(tmp_path / "en-de.yaml")
    assert paths(config.data.train) == [("train.en", "train.de")]
    assert (config.model.d_model, config.training.max_tokens, config.training.label_smoothing) == (1024, 2048, 0.0)
    assert "your text: the file does not name it" in (tmp_path / "en-de.yaml").read_text()
    assert "--max-sentences: 64: counts sentences" in done.stdout
    assert done.stdout.splitlines()[-1] == "next: mt train --config en-de.yaml --dry-run"
    assert (tmp_path / "mt.schema.json").is_file()
    assert "already exists" in mt("init", "--like", "base.txt", cwd=tmp_path, code=2).stderr


def test_given_text_takes_the_place_of_theirs_and_it_trains(tiny: Path) -> None:
    (tiny / "other.yaml").write_text(JOEYNMT.replace("{lang: de", "{lang: xx").replace("use_cuda: True", "fp16: False"))
    texts = ["--train", "train.en", "train.xx", "--valid", "valid.en", "valid.xx"]
    mt("init", "--like", "other.yaml", *texts, "--name", "mine", cwd=tiny)
    config = load_config(tiny / "mine.yaml")
    assert paths(config.data.train) == [("train.en", "train.xx")]
    assert config.data.test.from_train == 1000
    changes = [
        "training.max_steps=2",
        "training.max_epochs=1",
        "model.d_model=16",
        "model.d_ff=32",
        "training.report=false",
    ]
    done = mt("train", "--config", "mine.yaml", *overrides(changes), cwd=tiny)
    assert "trained" in done.stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("just: [some, list]\n", "other: not a configuration of a toolkit that mt knows"),
        ("a text\n", "other: not a configuration of a toolkit"),
        ("a: b: c\n", "other:1: a ':' where no key can be"),
        (JOEYNMT.replace("epochs: 30", "batch_size: 30"), "other:23: the key batch_size is already in line 20"),
        (
            JOEYNMT.replace("type: transformer", "type: recurrent", 1),
            "other:30: model.encoder.type: recurrent has no counterpart",
        ),
        (
            JOEYNMT.replace("num_layers: 5", "num_layers: five"),
            "other:31: model.encoder.num_layers: must be a whole number",
        ),
        (JOEYNMT.replace("epochs: 30", "epochs: many"), "other:23: training.epochs: must be a whole number"),
        (
            JOEYNMT.replace("batch_size: 80", "batch_size: []"),
            "other:20: training.batch_size: []: a value of another kind",
        ),
        (JOEYNMT.replace("num_heads: 4", "num_heads: 3"), "other:"),
        (JOEYNMT.replace("small_en_de", "small en de"), "other:1: name: must be letters"),
        (OPENNMT.replace("encoder_type: transformer\n", "", 1), "other: encoder_type is missing, and"),
        (OPENNMT + "model_task: lm\n", "model_task: lm has no counterpart; only seq2seq"),
        (OPENNMT.replace(", path_tgt: books.sv", ""), "other:7: data.books has no path_src and path_tgt"),
        (
            OPENNMT.replace(".fi", "").replace(".sv", ""),
            "--source-lang is missing, and other does not name the language",
        ),
        (
            EOLE.replace("architecture: transformer", "architecture: transformer_lm"),
            "architecture: transformer_lm has no",
        ),
        (FAIRSEQ.replace("--lr 5e-4", "--lr"), "other:9: --lr has no value"),
        (FAIRSEQ.replace("'(0.9, 0.98)'", "'(0.9"), "other:8: a quote is opened but never closed"),
        (
            FAIRSEQ.replace("--arch", "--task language_modeling --arch"),
            "other:6: --task: language_modeling has no counterpart",
        ),
        (FAIRSEQ.replace("transformer_iwslt_de_en", "fconv_iwslt_de_en"), "other:6: --arch: fconv_iwslt_de_en has no"),
        (FAIRSEQ + "fairseq-train x --arch transformer\n", "other:14: a second fairseq-train command"),
        ("fairseq-hydra-train task.data=x\n", "other:1: fairseq-hydra-train has its options in other files"),
        ("fairseq-preprocess --trainpref a\n", "other: no fairseq-train command in it"),
        ("name: x\ndata: {source_lang: en}\n", "other is a configuration of mt already"),
        ("fairseq-train x\x07\n", "other:1: the character U+0007 is not allowed"),
        (FAIRSEQ.replace("3000", "abc"), "other:11: --max-tokens: must be a whole number"),
        (OPENNMT.replace("[0.2, 0.1]", "[]"), "other:20: dropout: []: a value of another kind is expected"),
        (FAIRSEQ.replace("0.98", "x"), "other:8: --adam-betas: (0.9, x): a value of another kind"),
    ],
)
def test_bad_files_are_refused_with_their_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("other").write_text(text)
    with pytest.raises(InputError) as caught:
        convert_config(Path("other"), {})
    assert message in caught.value.message
    assert "\n" not in caught.value.message


def test_the_command_for_a_configuration_of_ours_is_quoted(tmp_path: Path) -> None:
    path = tmp_path / "a b"
    path.write_text("name: x\ndata: {source_lang: en}\n")
    with pytest.raises(InputError) as caught:
        convert_config(path, {})
    assert caught.value.hint == f"train with it: mt train --config '{path}'"


def test_wrong_options_are_refused(tiny: Path) -> None:
    for arguments, message in (
        (["--like", "gone.yaml"], "gone.yaml: no such file"),
        (["--like", "."], ".: this is a folder, not a file"),
        (["--like", "tiny.yaml", "--minutes", "5"], "--minutes contradict each other"),
        (["--like", "other.yaml", "--target-lang", "no language"], "--target-lang: must be a short code"),
        (["--like", "other.yaml", "--output", "other.yaml", "--force"], "other.yaml: this is an input"),
    ):
        (tiny / "other.yaml").write_text(JOEYNMT)
        before = set(tiny.rglob("*"))
        assert message in mt("init", *arguments, cwd=tiny, code=2).stderr
        assert set(tiny.rglob("*")) == before


def test_the_tables_name_keys_and_conversions_that_exist() -> None:
    known = {"name", "seed"} | {f"{name}.{key}" for name, section in SECTIONS.items() for key in section.model_fields}
    functions, values, used = other_toolkits._FUNCTIONS, tables()["values"], set()
    for table in tables()["toolkits"].values():
        for row in table["rows"].values():
            keys, conversion = split_row(row)
            assert set(keys) <= known
            assert conversion is None or (conversion in functions) != (conversion in values)
            used.add(conversion)
        assert set(table["defaults"]) <= known
        assert not set(table["rows"]) & set(table["unneeded"].split())
    assert used - {None} == {*functions, *values}
    several = [value for each in values.values() for value in each.values() if isinstance(value, dict)]
    assert {key.removesuffix("*") for value in several for key in value} <= known


def test_the_page_has_the_same_tables() -> None:
    page = (Path(__file__).parents[3] / "docs" / "migrating.md").read_text()
    for name, table in tables()["toolkits"].items():
        section = page.split(f"## {name}: training\n")[1].split("\n## ")[0]
        cells = [row.split("|")[1:3] for row in section.splitlines() if row.startswith("| `")]
        named = [[re.findall(r"`([^`]+)`", cell) for cell in row] for row in cells]
        documented = {(option.replace(": ", "."), key) for row in named for option, key in product(*row)}
        assert documented == {(theirs, key) for theirs, row in table["rows"].items() for key in split_row(row)[0]}


def split_row(row: str) -> tuple[list[str], str | None]:
    keys, _, conversion = f" {row}".partition(" by ")
    return [key.removesuffix("*") for key in keys.split()], conversion or None
