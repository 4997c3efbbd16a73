"""Import of Marian's own files: the same logits as transformers' MarianMTModel, whose weights they hold.

Marian's positions, which transformers only approximates, are put into its model.
"""

import json
import math
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

import mt as mt_api
from bundle_helpers import Trap
from command import mt
from engine_helpers import ENGLISH
from import_helpers import TEXT, marian
from mt.bundle.load_translator import open_model
from mt.bundle.model_folder import load_model
from mt.config.schema import ExportFormat
from mt.decoding.engine import EngineChoice, SearchOptions
from mt.errors import InputError
from mt.extras.export.exporting import export
from mt.extras.export.huggingface_weights import permute_d_model
from mt.extras.importing.arrays import SIDES
from mt.extras.importing.importing import _card_facts
from mt.extras.importing.marian import _load, _settings, _vocabularies, _weights, find_npz
from mt.storage.run_dir import ModelDir

CONFIG = {
    "type": "transformer",
    "transformer-decoder-autoreg": "self-attention",
    "transformer-no-projection": False,
    "transformer-heads": 2,
    "transformer-ffn-activation": "swish",
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
}
LANGUAGES = {"source_lang": "en", "target_langs": ["de"]}


PRE_NORM = {"transformer_preprocess": "n", "transformer_postprocess": "da", "transformer_postprocess_top": "n"}


def positions(length: int, d_model: int) -> torch.Tensor:
    """Return Marian's sinusoids as its `SinusoidalPositionEmbeddings` (src/tensors/cpu/tensor_operators.cpp) does."""
    half = d_model // 2
    angles = [[p * math.exp(-i * math.log(10000) / max(half - 1, 1)) for i in range(half)] for p in range(length)]
    return torch.tensor([[*map(math.sin, row), *map(math.cos, row)] for row in angles])


def arrays_of(model: Any, keep: list[int]) -> dict[str, np.ndarray[Any, Any]]:
    """Return Marian's parameters; `keep` are the rows of the pieces that its vocabulary has."""
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    for side in ("encoder", "decoder"):
        for number in range(getattr(model.config, f"{side}_layers")):
            theirs, ours = f"model.{side}.layers.{number}", f"{side}_l{number + 1}"
            for block, name in (("self", "self_attn"), ("context", "encoder_attn"))[: 1 + (side == "decoder")]:
                for letter, part in (("q", "q_proj"), ("k", "k_proj"), ("v", "v_proj"), ("o", "out_proj")):
                    arrays[f"{ours}_{block}_W{letter}"] = state[f"{theirs}.{name}.{part}.weight"].T
                    arrays[f"{ours}_{block}_b{letter}"] = state[f"{theirs}.{name}.{part}.bias"][None]
                arrays[f"{ours}_{block}_Wo_ln_scale"] = state[f"{theirs}.{name}_layer_norm.weight"][None]
                arrays[f"{ours}_{block}_Wo_ln_bias"] = state[f"{theirs}.{name}_layer_norm.bias"][None]
            for number_ in "12":
                arrays[f"{ours}_ffn_W{number_}"] = state[f"{theirs}.fc{number_}.weight"].T
                arrays[f"{ours}_ffn_b{number_}"] = state[f"{theirs}.fc{number_}.bias"][None]
            arrays[f"{ours}_ffn_ffn_ln_scale"] = state[f"{theirs}.final_layer_norm.weight"][None]
            arrays[f"{ours}_ffn_ffn_ln_bias"] = state[f"{theirs}.final_layer_norm.bias"][None]
    if model.config.share_encoder_decoder_embeddings:
        arrays["Wemb"] = state["model.shared.weight"][keep]
    else:
        for side in ("encoder", "decoder"):
            rows = [row for row in range(len(state[f"model.{side}.embed_tokens.weight"])) if row != 2]
            arrays[f"{side}_Wemb"] = state[f"model.{side}.embed_tokens.weight"][rows]
    arrays["decoder_ff_logit_out_b"] = state["final_logits_bias"][:, keep]
    return arrays


def written(folder: Path, config: dict[str, Any] = CONFIG, **changes: Any) -> Any:
    """Write a folder as OPUS-MT publishes it, and beside it the one of transformers; return the latter's model."""
    theirs = marian(folder.with_name("theirs"), **changes)
    pad, separate = theirs.config.pad_token_id, not theirs.config.share_encoder_decoder_embeddings
    with torch.no_grad():  # as transformers' conversion makes it
        for module in (theirs.get_encoder().embed_tokens, theirs.get_decoder().embed_tokens):
            module.weight[pad] = 0.0
        theirs.final_logits_bias[:, pad] = 0.0
    theirs.save_pretrained(folder.with_name("theirs"))
    folder.mkdir()
    keep = [row for row in range(theirs.config.decoder_vocab_size) if row != pad]
    content = np.frombuffer((yaml.safe_dump(config) + "\0").encode(), dtype=np.int8)
    np.savez(folder / "model.npz", **{"special:model.yml": content}, **arrays_of(theirs, keep))
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes((folder.with_name("theirs") / name).read_bytes())
    names = ["vocab.json", "target_vocab.json"] if separate else ["vocab.json"]
    for name, ours in zip(names, ("src.vocab.yml", "trg.vocab.yml"), strict=False):
        pieces = json.loads((folder.with_name("theirs") / name).read_text())
        kept = [piece for piece in sorted(pieces, key=pieces.__getitem__) if piece != "<pad>"]
        text = "".join(f"{json.dumps(piece, ensure_ascii=False)}: {i}\n" for i, piece in enumerate(kept))
        (folder / ours).write_text(text, encoding="utf-8")
    return theirs


@pytest.mark.parametrize(
    ("config", "changes"),
    [
        ({}, {}),
        ({"transformer-ffn-activation": "relu"}, {"activation_function": "relu"}),
        ({}, {"separate": True}),
        ({}, {"tags": ("deu", "fra")}),
    ],
    ids=["swish", "relu", "separate", "tags"],
)
def test_weights_are_those_of_transformers_and_positions_those_of_marian(
    config: dict[str, Any], changes: dict[str, Any], tmp_path: Path
) -> None:
    written(tmp_path / "opus", CONFIG | config, **changes)
    languages = LANGUAGES | ({"target_langs": changes["tags"]} if "tags" in changes else {})
    mt_api.import_model(tmp_path / "theirs", tmp_path / "direct", **languages)
    mt_api.import_model(tmp_path / "opus", tmp_path / "ours", **languages)
    direct, ours = (open_model(ModelDir(tmp_path / name), EngineChoice("torch")) for name in ("direct", "ours"))
    sides = [[t.pieces for t in opened.tokenizers] for opened in (ours, direct)]
    assert sides[0] == sides[1]
    weights, expected = (dict(opened.model.named_parameters()) for opened in (ours, direct))
    for side in ("source", "target"):
        table = weights.pop(f"{side}_embedding.positions.table").detach()
        assert torch.allclose(table, positions(512, table.shape[1]), atol=1e-4)
    assert weights.keys() == expected.keys()
    order = torch.arange(table.shape[1])
    order = torch.cat([order[::2], order[1::2]])  # of transformers, whose sinusoids are ours permuted
    for name, tensor in weights.items():
        assert torch.equal(tensor, permute_d_model(name, expected[name], order)), name


def test_numbers_of_another_type_and_byte_order(tmp_path: Path) -> None:
    written(tmp_path / "opus")
    _changed(Wpos=lambda array: np.ones((9, 16), np.float32))(tmp_path / "opus")
    mt_api.import_model(tmp_path / "opus", tmp_path / "out", **LANGUAGES)
    _changed(Wemb=lambda array: array.astype(">f8"), Wpos=lambda array: array.astype("f2"))(tmp_path / "opus")
    mt_api.import_model(tmp_path / "opus", tmp_path / "swapped", **LANGUAGES)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("out", "swapped")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize("d_model", [2, 16, 512])
def test_positions_are_those_of_marian(d_model: int, tmp_path: Path) -> None:
    arrays = {"Wemb": np.zeros((3, d_model), np.float32)}
    for side in ("encoder", "decoder"):
        table = _weights(tmp_path, arrays)[f"model.{side}.embed_positions.weight"]
        assert torch.allclose(table, positions(512, d_model), atol=1e-4)


@pytest.mark.parametrize("norms", [{}, PRE_NORM], ids=["post", "pre"])
@pytest.mark.parametrize("kind", ["ctranslate2", "huggingface", pytest.param("onnx", marks=pytest.mark.slow)])
def test_exports_keep_the_positions(kind: ExportFormat, norms: dict[str, str], tmp_path: Path) -> None:
    written(tmp_path / "opus")
    _configured(**norms)(tmp_path / "opus")
    if norms:
        ones, zeros = np.ones((1, 16), np.float32), np.zeros((1, 16), np.float32)
        tops = {f"{side}_top_ln_{part}": new for side in SIDES for part, new in (("scale", ones), ("bias", zeros))}
        _changed(**{name: lambda array, new=new: new for name, new in tops.items()})(tmp_path / "opus")
    mt_api.import_model(tmp_path / "opus", tmp_path / "ours", **LANGUAGES)
    ours = ModelDir(tmp_path / "ours")
    export(ours, kind, tmp_path / "out", [], "float32" if kind == "ctranslate2" else None)  # compares the outputs
    engines = (open_model(ours, EngineChoice(name, compute_type="float32")) for name in ("torch", "ctranslate2"))
    found = [opened.translator.best(ENGLISH, SearchOptions(5, 1, max_length=12)) for opened in engines]
    assert found[0] == found[1]
    if kind != "onnx":
        mt_api.import_model(tmp_path / "out", tmp_path / "again")
        folders = (ours, ModelDir(tmp_path / "again"))
        before, after = (load_model(folder, torch.device("cpu")).model.state_dict() for folder in folders)
        assert before.keys() == after.keys()
        assert all(torch.equal(before[name], after[name]) for name in before)


def test_logits(tmp_path: Path) -> None:
    theirs = written(tmp_path / "opus")
    with torch.no_grad():
        for side in (theirs.get_encoder(), theirs.get_decoder()):
            side.embed_positions.weight.copy_(positions(*side.embed_positions.weight.shape))
    done = mt("import", "opus/model.npz", "--from", "en", "--to", "de", "--output", "ours", cwd=tmp_path)
    assert done.stdout.startswith("en to de, ")
    ours = open_model(ModelDir(tmp_path / "ours"), EngineChoice("torch"))
    ids = ours.tokenizers.source.encode(ENGLISH[0])
    rows = json.loads((tmp_path / "theirs" / "vocab.json").read_text())
    their_ids = [rows[ours.tokenizers.source.origins[i]] for i in ids]
    with torch.no_grad():
        target = torch.tensor([[theirs.config.decoder_start_token_id, *their_ids[:3]]])
        expected = theirs(torch.tensor([[*their_ids, 0]]), decoder_input_ids=target).logits
        found = ours.model(torch.tensor([[*ids, 3]]), torch.tensor([[2, *ids[:3]]]))
    kept = [i for i in range(found.shape[-1]) if i not in (0, 2)]
    columns = [rows[ours.tokenizers.target.origins[i]] for i in kept]
    assert (found[..., kept] - expected[..., columns]).abs().max() < 1e-4


def test_a_sentencepiece_model_is_its_own_vocabulary(tmp_path: Path) -> None:
    """As Marian trains one itself: </s> 0, <unk> 1, no <s>."""
    written(tmp_path / "opus")
    with np.load(tmp_path / "opus" / "model.npz") as content:
        arrays = dict(content)
    size = len(arrays["Wemb"])
    for path in tmp_path.glob("opus/*[yms][mlp]*"):
        if path.suffix in (".yml", ".spm"):
            path.unlink()
    ids = {"unk_id": 1, "eos_id": 0, "bos_id": -1, "pad_id": -1}
    prefix = str(tmp_path / "opus" / "vocab.ende")
    SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT), model_prefix=prefix, vocab_size=60, hard_vocab_limit=False, minloglevel=2, **ids
    )
    (tmp_path / "opus" / "vocab.ende.model").rename(tmp_path / "opus" / "vocab.ende.spm")
    pieces = SentencePieceProcessor(model_file=f"{prefix}.spm").get_piece_size()
    assert pieces <= size
    arrays |= {"Wemb": arrays["Wemb"][:pieces], "decoder_ff_logit_out_b": arrays["decoder_ff_logit_out_b"][:, :pieces]}
    np.savez(tmp_path / "opus" / "model.npz", **arrays)
    mt_api.import_model(tmp_path / "opus", tmp_path / "ours", **LANGUAGES)
    ours = open_model(ModelDir(tmp_path / "ours"), EngineChoice("torch"))
    assert ours.tokenizers.source.decode(ours.tokenizers.source.encode(ENGLISH[0])) == ENGLISH[0]
    assert sorted(ours.model.output.weight[3].tolist()) == sorted(arrays["Wemb"][0].tolist())  # in another order


@pytest.mark.parametrize("suffix", ["yml", "spm"])
def test_files_of_two_languages_are_told_apart_by_their_names(suffix: str, tmp_path: Path) -> None:
    written(tmp_path / "opus", separate=True)
    mt_api.import_model(tmp_path / "opus", tmp_path / "expected", **LANGUAGES)
    folder = tmp_path / "opus"
    for side, other, language in (("src", "source", "en"), ("trg", "target", "de")):
        old = folder / (f"{side}.vocab.yml" if suffix == "yml" else f"{other}.spm")
        old.rename(folder / f"vocab.{language}.{suffix}")
    mt_api.import_model(folder, tmp_path / "ours", **LANGUAGES)
    expected, ours = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("expected", "ours"))
    assert ours == expected
    for old, new in (("en", "b"), ("de", "a")):
        (folder / f"vocab.{old}.{suffix}").rename(folder / f"vocab.{new}.{suffix}")
    with pytest.raises(InputError, match=r"vocab\.a\.\w+ and vocab\.b\.\w+ do not say which language"):
        mt_api.import_model(folder, tmp_path / "out", **LANGUAGES)
    if suffix == "yml":
        (folder / "decoder.yml").write_text("vocabs: [vocab.b.yml, vocab.a.yml]\n")
        mt_api.import_model(folder, tmp_path / "again", **LANGUAGES)
        assert (tmp_path / "again" / "model.safetensors").read_bytes() == expected


def test_decoder_yml_may_name_single_files_without_a_list(tmp_path: Path) -> None:
    (tmp_path / "decoder.yml").write_text("models: best.npz\nvocabs: both.yml\n")
    for name in ("best.npz", "last.npz", "old.vocab.yml", "source.spm", "target.spm"):
        (tmp_path / name).touch()
    (tmp_path / "both.yml").write_text('"</s>": 0\n"<unk>": 1\n')
    assert find_npz(tmp_path) == tmp_path / "best.npz"
    _, pieces = _vocabularies(tmp_path, (("en",), ("de",)))
    assert pieces == (["</s>", "<unk>"], ["</s>", "<unk>"])
    (tmp_path / "decoder.yml").write_text("models: 5\n")
    assert find_npz(tmp_path) == tmp_path / "5"


# Refused --------------------------------------------------------------------------------------------------------------


def _changed(**changes: Any) -> Callable[[Path], None]:
    """Replace arrays by others, or by functions of them; None removes one."""

    def change(folder: Path) -> None:
        with np.load(folder / "model.npz") as content:
            arrays = dict(content)
        for name, new in changes.items():
            array = arrays.pop(name.replace("special_model", "special:model.yml"), np.zeros((1, 1), np.float32))
            if new is not None:
                arrays[name.replace("special_model", "special:model.yml")] = new(array)
        np.savez(folder / "model.npz", **arrays)

    return change


def _configured(**changes: Any) -> Callable[[Path], None]:
    config = CONFIG | {key.replace("_", "-"): value for key, value in changes.items()}
    content = np.frombuffer(yaml.safe_dump(config).encode(), dtype=np.int8)
    return _changed(special_model=lambda array: content)


def _huge(folder: Path) -> None:
    """Claim an array of a terabyte."""
    with zipfile.ZipFile(folder / "model.npz", "w") as archive, archive.open("Wemb.npy", "w") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (2**20, 2**18)})


def _pickled(folder: Path) -> None:
    np.savez(folder / "model.npz", Wemb=np.array([Trap(folder / "trapped")], dtype=object))


BAD = {
    "type": (_configured(type="s2s"), "type: 's2s' is not one of our architectures"),
    "reversed": (_configured(right_left=True), "right-left: True is not one of our architectures"),
    "activation": (_configured(transformer_ffn_activation="gelu"), "'gelu' is not one of our architectures"),
    "no-positions": (_configured(transformer_disable_position_embeddings=True), "embeddings: True is not one of our"),
    "alibi": (_configured(transformer_attention_mask="alibi"), "mask: 'alibi' is not one of our architectures"),
    "norm": (_configured(transformer_postprocess="da"), "norms: 'da' is not one of our architectures"),
    "no-config": (_changed(special_model=None), "no configuration"),
    "shape": (_changed(encoder_l1_ffn_W1=lambda array: array[:-1]), r"has shape \[24, 15\], but \[24, 16\]"),
    "no-heads": (_configured(transformer_heads=0), "it has 0 attention heads"),
    "infinite-heads": (_configured(transformer_heads=math.inf), "no configuration"),
    "no-width": (_changed(Wemb=lambda array: array[:, :0]), "one of its matrices is empty"),
    "cube": (
        _changed(encoder_l1_ffn_W1=lambda array: array[None]),
        "'encoder_l1_ffn_W1' has 3 dimensions, but a matrix",
    ),
    "positions": (_changed(Wpos=lambda array: np.zeros((9, 4), np.float32)), "has shape"),
    "missing": (_changed(decoder_l1_context_Wq=None), "the tensor '.*encoder_attn.q_proj.weight' is missing"),
    "unexpected": (_changed(encoder_l1_self_Wx=lambda array: array), "unexpected parameter 'encoder_l1_self_Wx'"),
    "no-embeddings": (_changed(Wemb=None), "it has no embeddings"),
    "huge": (_huge, "not a model of Marian: Wemb.npy is no array of numbers, or larger than the file"),
    "longdouble": (_changed(Wemb=lambda array: array.astype("f16")), "Wemb.npy is no array of numbers"),
    "unsigned": (_changed(Wemb=lambda array: array.astype("u4")), "floating point is expected"),
    "pickled": (_pickled, "not a model of Marian: Wemb.npy is no array of numbers"),
    "text": (
        lambda folder: (folder / "model.npz").write_text("no archive"),
        "not a model of Marian: .*\n  copy or download it again",
    ),
    "several": (lambda folder: (folder / "model.best.npz").write_bytes(b""), "several models of Marian"),
    "no-vocabulary": (lambda folder: (folder / "src.vocab.yml").write_text("- a\n"), "holds no keys with values"),
    "hole": (lambda folder: (folder / "src.vocab.yml").write_text('"</s>": 0\n"<unk>": 2\n'), "each once"),
    "other-size": (
        lambda folder: (folder / "src.vocab.yml").write_text("".join(f"p{i}: {i}\n" for i in range(999))),
        "its tokenizer has 1,000 pieces, but its embeddings",
    ),
    "no-spm": (
        lambda folder: [(folder / f"{side}.spm").unlink() for side in ("source", "target")],
        "0 files are a Sen",
    ),
}


@pytest.mark.parametrize(("damage", "message"), BAD.values(), ids=BAD)
def test_what_is_refused(damage: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    written(tmp_path / "opus")
    damage(tmp_path / "opus")
    with pytest.raises(InputError, match=message):
        mt_api.import_model(tmp_path / "opus", tmp_path / "out", **LANGUAGES)
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "opus" / "trapped").exists()


def test_yaml_that_grows_is_refused(tmp_path: Path) -> None:
    """Its aliases and merge keys would fill the memory; a list of lists, the stack."""
    bomb = "a: &a {b: [x, x]}\nc: {<<: *a}\nlicense: mit\nmodels: [*a, *a]\n"
    (tmp_path / "decoder.yml").write_text(bomb)
    with pytest.raises(InputError, match="aliases"):
        find_npz(tmp_path)
    for text in (bomb, f"a: {'[' * 5000}"):
        with pytest.raises(InputError, match="it has no configuration"):
            _settings(tmp_path, (yaml.safe_dump(CONFIG) + text).encode())
    (tmp_path / "README.md").write_text(f"---\n{bomb}---\n")
    assert _card_facts(tmp_path) == {}


@pytest.mark.parametrize(
    ("place", "offset", "value"),
    [
        (b"PK\1\2", 8, 1),  # encrypted
        (b"PK\1\2", 10, 99),  # an unknown compression
        (b"Wemb.npy", 28, 0xFF),  # behind the name and its 20 bytes for large files: compressed bytes
    ],
)
def test_a_changed_byte_is_found(place: bytes, offset: int, value: int, tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    np.savez_compressed(path, Wemb=np.ones((99, 99), np.float32))
    content = bytearray(path.read_bytes())
    content[content.index(place) + offset] = value
    path.write_bytes(content)
    with pytest.raises(InputError, match="not a model of Marian"):
        _load(path)
