"""Import of CTranslate2 folders: of our own export, and of transformers' models as the converter writes them."""

import math
import re
import shutil
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
import torch
from ctranslate2.specs.transformer_spec import PositionEncoderSpec

import mt as mt_api
from bundle_helpers import edit_json
from command import mt
from engine_helpers import ENGLISH
from export_helpers import random_job
from import_helpers import m2m_100, marian, mbart, nllb
from mt.bundle import to_ctranslate2
from mt.bundle.load_translator import open_model
from mt.bundle.model_folder import load_model
from mt.bundle.to_ctranslate2 import write_converted
from mt.decoding.engine import EngineChoice, SearchOptions
from mt.errors import InputError
from mt.extras.export.common import write_mt_folder
from mt.storage.run_dir import ModelDir


def written(folder: Path, number_format: str, *changes: str) -> Any:
    """Write what `mt export ctranslate2` does, without its comparison."""
    job = random_job(*changes)
    write_converted(job.model, job.config, job.tokenizers, folder, number_format)
    write_mt_folder(job, folder)
    return job


SHAPES = [
    ["model.norm=post"],
    ["model.norm=pre", "model.activation=swiglu", "tokenizer.shared=false", "model.tie_embeddings=false"],
    ["model.norm=pre", "model.positions=learned", "model.activation=gelu", "model.output_bias=true"],
    ["model.norm=post", "model.bias=false", "model.activation=silu", "tokenizer.shared=false"],
    ["model.embedding_norm=true", "model.scale_embeddings=false", "model.attention_bias=false"],
    ["model.norm=pre", "model.positions=rotary"],
]


@pytest.mark.parametrize("changes", SHAPES, ids=lambda changes: "-".join(c.split("=")[1] for c in changes))
def test_our_own_export_comes_back(changes: list[str], tmp_path: Path) -> None:
    job = written(tmp_path / "ct2", "float32", *changes)
    mt_api.import_model(tmp_path / "ct2", tmp_path / "ours")
    loaded = load_model(ModelDir(tmp_path / "ours"), torch.device("cpu"))
    assert loaded.config == job.config
    weights, expected = (dict(model.named_parameters()) for model in (loaded.model, job.model))
    assert weights.keys() == expected.keys()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in weights.items())
    assert loaded.tokenizers.files() == job.tokenizers.files()


@pytest.mark.parametrize("number_format", ["int8", "float16", "int16"])
def test_other_number_formats_become_float32(number_format: str, tmp_path: Path) -> None:
    job = written(tmp_path / "ct2", number_format)
    mt_api.import_model(tmp_path / "ct2", tmp_path / "ours")
    weights = dict(load_model(ModelDir(tmp_path / "ours"), torch.device("cpu")).model.named_parameters())
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}
    for name, expected in job.model.named_parameters():
        scale = expected.abs().amax(dim=-1, keepdim=True) if number_format == "int8" else expected.abs().max()
        assert ((weights[name] - expected).abs() <= scale / 127 + 1e-3).all()


@pytest.mark.parametrize(
    "make",
    [
        partial(marian),
        partial(marian, scale_embedding=False, activation_function="relu"),
        partial(marian, tags=("deu", "fra")),
    ],
    ids=["plain", "unscaled", "tags"],
)
def test_a_converted_marian_model_is_the_one_that_was_converted(make: Callable[..., Any], tmp_path: Path) -> None:
    theirs = make(tmp_path / "theirs")
    with torch.no_grad():  # as in real models, whose decoder begins with zeros
        theirs.model.shared.weight[theirs.config.pad_token_id] = 0.0
        theirs.final_logits_bias[:, theirs.config.pad_token_id] = 0.0
    theirs.save_pretrained(tmp_path / "theirs")
    files = ["source.spm", "target.spm"]
    converter = ctranslate2.converters.TransformersConverter(str(tmp_path / "theirs"), copy_files=files)
    converter.convert(str(tmp_path / "ct2"))
    targets = make.keywords.get("tags", ("de",))
    mt_api.import_model(tmp_path / "theirs", tmp_path / "direct", source_lang="en", target_langs=targets)
    mt_api.import_model(tmp_path / "ct2", tmp_path / "ours", source_lang="en", target_langs=targets)
    direct, ours = (open_model(ModelDir(tmp_path / name), EngineChoice("torch")) for name in ("direct", "ours"))
    assert ours.tokenizers.files() == direct.tokenizers.files()
    weights, expected = (dict(opened.model.named_parameters()) for opened in (ours, direct))
    assert weights.keys() == expected.keys()
    for name, tensor in weights.items():
        assert torch.equal(tensor, expected[name]), name
    options = SearchOptions(5, 1, max_length=12)
    found = [opened.translator.to(targets[0]).best(ENGLISH, options) for opened in (ours, direct)]
    assert found[0] == found[1]


MBART = {"normalize_before": True, "normalize_embedding": True}  # the converter reads them from older files
MULTILINGUAL = {
    "m2m_100": (m2m_100, "en", "de"),
    "nllb": (nllb, "eng_Latn", "deu_Latn"),
    "mbart-50": (partial(mbart, **MBART), "en_XX", "de_DE"),
    "mbart": (partial(mbart, first=True, **MBART), "en_XX", "de_DE"),
}


def _all_rows(loader: object, model: Any, tokenizer: Any) -> list[str]:
    """Name all rows of M2M-100, as the converter does with the tokenizers of transformers 4."""
    names = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    languages = [f"__{code}__" for code in tokenizer.lang_code_to_id]
    rest = model.config.vocab_size - len(names) - len(languages)
    return [*names, *languages, *(f"madeupword{i}" for i in range(rest))]


@pytest.mark.parametrize("kind", MULTILINGUAL)
def test_converted_models_of_many_languages(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, source, target = MULTILINGUAL[kind]
    make(tmp_path / "theirs")
    if kind == "m2m_100":
        monkeypatch.setattr(ctranslate2.converters.transformers.M2M100Loader, "get_vocabulary", _all_rows)
    files = ["sentencepiece.bpe.model"]
    converter = ctranslate2.converters.TransformersConverter(str(tmp_path / "theirs"), copy_files=files)
    converter.convert(str(tmp_path / "ct2"))
    opened = []
    for name, folder in (("direct", "theirs"), ("ours", "ct2")):
        mt_api.import_model(tmp_path / folder, tmp_path / name, source_lang=source, target_langs=[target])
        opened.append(open_model(ModelDir(tmp_path / name), EngineChoice("torch")))
    direct, ours = opened
    assert ours.tokenizers.files() == direct.tokenizers.files()
    weights, expected = (dict(each.model.named_parameters()) for each in (ours, direct))
    assert weights.keys() == expected.keys()
    assert [name for name, tensor in weights.items() if not torch.equal(tensor, expected[name])] == []
    options = SearchOptions(5, 1, max_length=12)
    found = [each.translator.to(target).best(ENGLISH, options) for each in opened]
    assert found[0] == found[1]
    (tmp_path / "ct2" / "sentencepiece.bpe.model").unlink()
    with pytest.raises(InputError, match=r"sentencepiece.bpe.model: no such file"):
        mt_api.import_model(tmp_path / "ct2", tmp_path / "out", source_lang=source, target_langs=[target])
    edit_json(tmp_path / "ct2" / "shared_vocabulary.json", lambda pieces: pieces.pop())
    with pytest.raises(InputError, match=r"do not have a piece for each row"):
        mt_api.import_model(tmp_path / "ct2", tmp_path / "out", source_lang=source, target_langs=[target])


def test_the_command_reads_an_export(tmp_path: Path) -> None:
    for name, content in written(tmp_path / "ct2", "float32").tokenizers.files().items():
        (tmp_path / "ct2" / name).write_text(content)
    assert mt("import", "ct2", "--output", "ours", cwd=tmp_path).stdout.startswith("en to de, ")
    shutil.rmtree(tmp_path / "ct2" / "mt")
    refused = mt("import", "ct2", "--output", "again", "--from", "en", "--to", "de", cwd=tmp_path, code=2).stderr
    assert "ct2: this is an export of mt, and lacks its folder mt" in refused


# Refused --------------------------------------------------------------------------------------------------------------


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _version(path: Path) -> None:
    path.write_bytes(struct.pack("<I", 5) + path.read_bytes()[4:])


def _huge(path: Path) -> None:
    """Claim a first dimension of four billion for a matrix."""
    content, name = path.read_bytes(), b"decoder/embeddings/weight\0"
    at = content.index(name) + len(name) + 1
    path.write_bytes(content[:at] + b"\xff" * 4 + content[at + 4 :])


def _renamed(old: bytes, new: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(path.read_bytes().replace(old, new))


def _set(name: bytes, value: int) -> Callable[[Path], object]:
    """Set the lowest byte of the encoder's and the decoder's number, which follows its dimensions, type and size."""
    number = re.compile(rb"(coder/%b\0.{6})." % name, re.DOTALL)
    return lambda path: path.write_bytes(number.sub(lambda match: match[1] + bytes([value]), path.read_bytes()))


def _infinite(path: Path) -> None:
    """Write an infinite float in place of the numbers of heads, integers of two bytes."""
    number = struct.pack("=BBIf", 0, 0, 4, math.inf)
    path.write_bytes(re.sub(rb"(coder/num_heads\0).{8}", lambda m: m[1] + number, path.read_bytes(), flags=re.DOTALL))


def _scalar(path: Path) -> None:
    """Write a number in place of a vector of 16."""
    content, name = path.read_bytes(), b"encoder/layer_0/ffn/layer_norm/gamma\0"
    at = content.index(name) + len(name)
    number = struct.pack("=BBIf", 0, 0, 4, 1)
    path.write_bytes(content[:at] + number + content[at + struct.calcsize("=BIBI16f") :])


BAD = {
    "cut": (_cut, "not a CTranslate2 model"),
    "version": (_version, "CTranslate2 format 5"),
    "size": (_huge, "the sizes of 'decoder/embeddings/weight' are inconsistent"),
    "setting": (_renamed(b"/multi_query_attention", b"/rotary_4_attention___"), "unexpected variable"),
    "variable": (_renamed(b"layer_0/ffn/linear_1", b"layer_0/ffn/linear_7"), "unexpected variable"),
    "scalar": (_scalar, "unexpected variable 'encoder/layer_0/ffn/layer_norm/gamma'"),
    "no-heads": (_set(b"num_heads", 0), "it has 0 attention heads"),
    "activation": (_set(b"activation", 4), r"its activation function is not one of ours \(relu, silu, gelu\)"),
    "infinite": (_infinite, "num_heads is inf, so this is another architecture"),
    "scale": (
        _renamed(b"decoder/layer_0/attention/layer_norm/beta", b"encoder/layer_0/ffn/linear_0/weight_scale"),
        "'encoder/layer_0/ffn/linear_0/weight' does not have one scale for each row",
    ),
    "empty": (lambda path: path.write_bytes(b""), "not a CTranslate2 model"),
}


@pytest.mark.parametrize(("damage", "message"), BAD.values(), ids=BAD)
def test_damaged_models_are_refused(damage: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    written(tmp_path / "ct2", "float32")
    damage(tmp_path / "ct2" / "model.bin")
    with pytest.raises(InputError, match=message):
        mt_api.import_model(tmp_path / "ct2", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_gated_layer_without_its_gate_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "ct2", "float32", "model.activation=swiglu")
    _renamed(b"encoder/layer_0/ffn/linear_0/", b"encoder/layer_9/ffn/linear_0/")(tmp_path / "ct2" / "model.bin")
    with pytest.raises(InputError, match=r"'model.encoder.layers.0.fc1.weight' is missing"):
        mt_api.import_model(tmp_path / "ct2", tmp_path / "out")


def _part_of_a_head(spec: Any) -> None:
    for layer in (*spec.encoder.layer, *spec.decoder.layer):
        layer.self_attention.rotary_dim = np.int32(2)


def _table_in_the_encoder(spec: Any) -> None:
    table = PositionEncoderSpec()
    table.encodings = np.zeros((9, 32), np.float32)
    object.__setattr__(spec.encoder, "position_encodings", table)  # the library adds no attribute any more


@pytest.mark.parametrize(
    ("change", "message"),
    [(_part_of_a_head, "2 of the .* units of its heads are rotated"), (_table_in_the_encoder, "and the other a table")],
)
def test_other_rotary_positions_are_refused(
    change: Callable[[Any], None], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_spec = to_ctranslate2._spec

    def changed_spec(*inputs: Any) -> Any:
        spec = make_spec(*inputs)
        change(spec)
        return spec

    monkeypatch.setattr(to_ctranslate2, "_spec", changed_spec)
    written(tmp_path / "ct2", "float32", "model.norm=pre", "model.positions=rotary")
    with pytest.raises(InputError, match=message):
        mt_api.import_model(tmp_path / "ct2", tmp_path / "out")


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    written(tmp_path / "ct2", "float32")

    def refusal(change: Callable[[Path], object]) -> str:
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(tmp_path / "ct2", tmp_path / "copy")
        change(tmp_path / "copy")
        with pytest.raises(InputError) as caught:
            mt_api.import_model(tmp_path / "copy", tmp_path / "out")
        return str(caught.value)

    assert "source.spm: no such file" in refusal(lambda folder: shutil.rmtree(folder / "mt"))
    vocabulary = refusal(lambda folder: edit_json(folder / "shared_vocabulary.json", lambda pieces: pieces.pop()))
    assert "not that of its tokenizer" in vocabulary
    numbers = refusal(lambda folder: (folder / "shared_vocabulary.json").write_text("[1]"))
    assert "not a list of pieces" in numbers
    epsilon = refusal(lambda folder: edit_json(folder / "config.json", lambda c: c.update(layer_norm_epsilon=0.1)))
    assert "layer_norm_epsilon is not 1e-05" in epsilon
