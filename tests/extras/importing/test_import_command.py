"""`mt import`: the round trip with our own export, fine-tuning, model cards, and folders that are refused."""

import errno
import json
import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

import mt as mt_api
from bundle_helpers import edit_json
from command import mt
from engine_helpers import ENGLISH
from export_helpers import random_job, run_folder
from import_helpers import m2m_100, marian, mbart, nllb, write_json
from mt.bundle.checks import load_preprocessing
from mt.bundle.load_translator import read_config
from mt.bundle.model_folder import load_model
from mt.errors import InputError, MachineError
from mt.extras.export.huggingface import write_huggingface
from mt.extras.importing.huggingface import read_plan
from mt.extras.importing.importing import find_folder
from mt.extras.importing.vocabularies import _M2M_100
from mt.storage.run_dir import ModelDir
from mt.text.casing import Casing
from mt.text.preprocessing import Preprocessing
from mt.text.spelling import Spelling


@pytest.mark.parametrize(
    "changes",
    [
        ["model.norm=post"],
        ["model.norm=post", "model.positions=learned", "tokenizer.shared=false", "model.bias=false"],
        ["model.norm=pre", "model.tie_embeddings=false", "model.activation=silu"],
        ["model.norm=pre", "model.positions=learned", "model.output_bias=true", "model.scale_embeddings=false"],
        ["model.norm=post", "tokenizer.shared=false", "model.output_bias=true"],
        ["model.norm=pre", "decoding.shortlist=20"],
    ],
    ids=lambda changes: "-".join(change.split("=")[1] for change in changes),
)
def test_export_and_import_give_identical_weights(tmp_path: Path, changes: list[str]) -> None:
    job = random_job(*changes)
    (tmp_path / "theirs").mkdir()
    write_huggingface(job, tmp_path / "theirs", "# A model\n")
    mt_api.import_model(tmp_path / "theirs", tmp_path / "ours")
    loaded = load_model(ModelDir(tmp_path / "ours"), torch.device("cpu"))
    decoding = job.config.decoding.model_copy(update={"shortlist": 0})  # which the export does not have
    assert loaded.config == job.config.model_copy(update={"decoding": decoding})
    assert mt_api.load(tmp_path / "ours").translate(ENGLISH[0])
    assert loaded.tokenizers.files() == job.tokenizers.files()
    before, after = (dict(model.named_parameters()) for model in (job.model, loaded.model))
    assert before.keys() == after.keys()
    assert all(after[name].equal(before[name]) for name in before)


@pytest.mark.parametrize("wanted", ["huggingface", pytest.param("ctranslate2", marks=pytest.mark.slow)])
def test_configuration_and_preprocessing_come_back(tmp_path: Path, wanted: str) -> None:
    learned = Preprocessing(Casing(("dog",), (True, True), False), Spelling(("dog",), 1))
    run = run_folder(tmp_path / "run", "decoding.length_penalty=1.4", preprocessing=learned)
    mt_api.export(wanted, tmp_path / "theirs", run.root)
    mt_api.import_model(tmp_path / "theirs", tmp_path / "ours")
    ours = ModelDir(tmp_path / "ours")
    assert read_config(ours) == read_config(run.model)
    assert load_preprocessing(ours) == learned


def test_the_command_and_the_model_card(tmp_path: Path) -> None:
    marian(tmp_path / "opus")
    (tmp_path / "opus" / "README.md").write_text("---\nlanguage: en\nlicense: cc-by-4.0\n---\n# OPUS\n")
    done = mt("import", "opus", "--output", "ours", cwd=tmp_path)
    assert done.stdout == "en to de, 64 pieces\nours\n"
    assert mt("translate", "--model", "ours", ENGLISH[0], cwd=tmp_path).stdout.strip()
    card = (tmp_path / "ours" / "README.md").read_text()
    assert card.startswith("---\nlicense: cc-by-4.0\n---\n")
    assert "imported from opus by `mt`. Its licence is cc-by-4.0." in card
    assert "not empty" in mt("import", "opus", "--output", "ours", cwd=tmp_path, code=2).stderr
    mt("import", "opus", "--output", "ours", "--force", cwd=tmp_path)
    assert "is not UTF-8" in mt("import", "opus", "--output", "o\udcff", cwd=tmp_path, code=2).stderr
    inside = mt("import", "opus", "--output", "opus/mt", cwd=tmp_path, code=2).stderr
    assert "--output opus/mt: this is inside the model's own folder\n  name another" in inside


def test_training_starts_from_an_imported_model(tmp_path: Path) -> None:
    """Its validation loss after an update that changes nothing is that of transformers."""
    theirs = m2m_100(tmp_path / "m2m")
    mt("import", "m2m", "--from", "en", "--to", "de", "--output", "ours", cwd=tmp_path)
    for side, lines in (("en", ENGLISH), ("de", ENGLISH[::-1])):
        (tmp_path / f"train.{side}").write_text("".join(f"{line}\n" for line in lines))
    text = (
        (tmp_path / "ours" / "config.yaml")
        .read_text()
        .replace("valid: {from_train: 1000}", "valid: {source: train.en, target: train.de}")
    )
    text = text.replace("test: {from_train: 1000}", "test: null").replace("init_from: null", "init_from: ours")
    (tmp_path / "fine.yaml").write_text(text.replace("precision: auto", "precision: fp32"))
    settings = ("max_steps=1", "validate_every=1", "learning_rate=1e-9", "warmup_steps=1")
    mt("train", "fine.yaml", *(part for each in settings for part in ("--set", f"training.{each}")), cwd=tmp_path)
    records = map(json.loads, (tmp_path / "runs" / "m2m" / "metrics.jsonl").read_text().splitlines())
    losses = [record["loss"] for record in records if record["event"] == "validation"]
    assert losses == pytest.approx([their_loss(theirs, tmp_path)] * 2, abs=1e-3)


def their_loss(theirs: Any, folder: Path) -> float:
    """Return transformers' mean loss of a target token, without the rows that ours lacks: <s> and 8 of no piece."""
    tokenizer = AutoTokenizer.from_pretrained(folder / "m2m", src_lang="en", tgt_lang="de")
    losses = []
    for source, target in zip(ENGLISH, ENGLISH[::-1], strict=True):
        batch = tokenizer(source, text_target=target, return_tensors="pt")
        with torch.no_grad():
            logits = theirs(**batch).logits[0, :, 1:-8]
        losses.append(F.cross_entropy(logits, batch["labels"][0] - 1, reduction="none"))
    return float(torch.cat(losses).mean())


@pytest.mark.parametrize("name", ["lm_head", "model.decoder.embed_tokens"])
def test_a_tied_target_matrix_has_either_name(tmp_path: Path, name: str) -> None:
    """The source's matrix, of other pieces, never takes its place."""
    marian(tmp_path / "theirs", separate=True)
    mt_api.import_model(tmp_path / "theirs", tmp_path / "expected")
    path = tmp_path / "theirs" / "model.safetensors"
    tensors = load_file(path)
    matrices = {tensors.pop(f"{each}.weight", None) for each in ("lm_head", "model.decoder.embed_tokens")} - {None}
    save_file(tensors | {f"{name}.weight": matrices.pop()}, path)
    mt_api.import_model(tmp_path / "theirs", tmp_path / "ours")
    expected, ours = (load_file(tmp_path / each / "model.safetensors") for each in ("expected", "ours"))
    assert all(torch.equal(ours[key], tensor) for key, tensor in expected.items())


# Refused --------------------------------------------------------------------------------------------------------------


def refused(folder: Path, **options: object) -> str:
    with pytest.raises(InputError) as caught:
        mt_api.import_model(folder, folder.with_name("out"), **options)
    assert not folder.with_name("out").exists()
    assert "\n" not in caught.value.message
    return f"{caught.value.message} {caught.value.hint}"


def _generation(**changes: object) -> Callable[[Path], None]:
    return lambda folder: write_json(folder / "generation_config.json", changes)


def _without(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def _onnx(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "encoder.onnx")


def _index(weight_map: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        (folder / "model.safetensors.index.json").write_text(f'{{"weight_map": {weight_map}}}')

    return change


def _cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def _config(**changes: object) -> Callable[[Path], None]:
    return lambda folder: edit_json(folder / "config.json", lambda config: config.update(changes))


def _tokenizer(**changes: object) -> Callable[[Path], None]:
    return lambda folder: edit_json(folder / "tokenizer_config.json", lambda config: config.update(changes))


def _weights(name: str, change: Callable[[torch.Tensor], torch.Tensor | None]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        changed = change(tensors.pop(name, torch.zeros(1)))
        save_file(tensors | ({} if changed is None else {name: changed.contiguous()}), folder / "model.safetensors")

    return edit


def _vocabulary(change: Callable[[dict[str, int]], object]) -> Callable[[Path], None]:
    return lambda folder: edit_json(folder / "vocab.json", change)


FC1 = "model.encoder.layers.0.fc1.weight"
BAD = {
    "architecture": (_config(model_type="t5"), "its model_type is 't5', which is none of marian, m2m_100, mbart"),
    "no-text": (_config(model_type=["marian"]), "its model_type is ['marian'], which is none of marian"),
    "no-language": (_tokenizer(source_lang=1.5), "tokenizer_config.json: source_lang: 1.5, but text is needed"),
    "no-token": (
        _tokenizer(added_tokens_decoder={"0": {"content": 5, "special": False}}),
        "theirs: its added tokens cannot be read",
    ),
    "no-length": (_generation(max_length=2), "generation_config.json: max_length: 2, but a number from 3 is needed"),
    "bool-length": (_generation(max_length=True), "generation_config.json: max_length: True, but a number from 3"),
    "config-length": (
        lambda folder: [_without("generation_config.json")(folder), _config(max_length="9")(folder)],
        "/config.json: max_length: '9', but",
    ),
    "activation": (_config(activation_function="gelu_new"), "activation_function 'gelu_new' is not supported"),
    "heads": (_config(decoder_attention_heads=4), "encoder_attention_heads: 2, decoder_attention_heads: 4, but one"),
    "no-size": (_config(d_model=None), "d_model: None, but a number is needed"),
    "impossible": (
        _config(encoder_attention_heads=3, decoder_attention_heads=3),
        "model.d_model: d_model 16 cannot be divided",
    ),
    "layers": (_config(encoder_layers=3), "the tensor 'model.encoder.layers.2.self_attn.q_proj.weight' is missing"),
    "fewer-layers": (_config(encoder_layers=1), "unexpected tensor 'model.encoder.layers.1."),
    "start": (_config(decoder_start_token_id=99), "its tokenizer has no piece 99, with which config.json begins"),
    "shape": (_weights(FC1, lambda x: x[:-1]), f"'{FC1}' has shape [23, 16], but [24, 16] is expected"),
    "type": (_weights(FC1, lambda x: x.long()), "has type torch.int64, but floating point is expected"),
    "not-finite": (_weights(FC1, lambda x: x / 0), f"'{FC1}' has numbers that are not finite copy or download"),
    "missing": (_weights(FC1, lambda x: None), f"the tensor '{FC1}' is missing"),
    "extra": (_weights("model.encoder.layers.0.adapter", lambda x: x), "unexpected tensor 'model.encoder.layers.0.ad"),
    "hole": (_vocabulary(lambda ids: ids.pop("▁")), "the ids of its vocabulary are not 0 to 61, each once"),
    "other-tokenizer": (
        _vocabulary(lambda ids: ids.update(more=63)),
        "its tokenizer has 64 pieces, but its embeddings 63 rows",
    ),
    "no-numbers": (_vocabulary(lambda ids: ids.update({"▁": "a"})), "its values are not the numbers of pieces"),
    "no-json": (lambda folder: (folder / "config.json").write_text("{"), "config.json: cannot be read"),
    "cut-json": (lambda folder: (folder / "config.json").write_text("{"), "copy or download it again"),
    "no-object": (lambda folder: (folder / "config.json").write_text("[]"), "config.json: holds no keys with values"),
    "no-spm": (_without("target.spm"), "target.spm: no such file"),
    "no-source-spm": (_without("source.spm"), "source.spm: no such file copy all files of the tokenizer; an export of"),
    "no-weights": (_without("model.safetensors"), "it has no model.safetensors name a complete folder"),
    "onnx": (_onnx, "it has no model.safetensors name the model that the ONNX files were made of"),
    "index": (_index('"abc"'), "index.json: it has no weight_map copy or download it again"),
    "no-name": (_index(r'{"a": "\ud800"}'), "\ud800: not a safetensors file"),
    "damaged": (lambda folder: (folder / "model.safetensors").write_bytes(b"abc"), "not a safetensors file"),
    "cut": (_cut, "copy or download it again"),
    "not-spm": (lambda folder: (folder / "source.spm").write_bytes(b"abc"), "source.spm: not a SentencePiece model"),
}


@pytest.mark.parametrize("name", BAD)
def test_folders_that_are_refused(tmp_path: Path, name: str) -> None:
    change, message = BAD[name]
    marian(tmp_path / "theirs")
    change(tmp_path / "theirs")
    assert message in refused(tmp_path / "theirs")


def test_pickled_weights_are_refused_with_the_command_that_converts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "her's é"
    theirs = marian(tmp_path / name)
    (tmp_path / name / "model.safetensors").unlink()
    torch.save(theirs.state_dict(), tmp_path / name / "pytorch_model.bin")
    done = mt("import", name, "--output", "out", cwd=tmp_path, code=2)
    assert "pytorch_model.bin: this format can run code when it is read, so it is refused" in done.stderr
    program = shlex.split(done.stderr[done.stderr.index("python -c ") :])[2]
    monkeypatch.chdir(tmp_path)
    exec(program, {})
    mt("import", name, "--output", "out", cwd=tmp_path)


def test_a_model_of_many_positions_and_a_card_that_cannot_be_read(tmp_path: Path) -> None:
    marian(tmp_path / "theirs", max_position_embeddings=5000)
    (tmp_path / "theirs" / "README.md").write_text(f"---\nlicense: {'[' * 5000}\n---\n")
    mt_api.import_model(tmp_path / "theirs", tmp_path / "ours")
    config = read_config(ModelDir(tmp_path / "ours"))
    assert (config.data.max_length, config.training.max_tokens) == (5000, 5000)
    assert "names no licence" in (tmp_path / "ours" / "README.md").read_text()


def test_languages_must_be_known(tmp_path: Path) -> None:
    m2m_100(tmp_path / "m2m")
    assert "it does not know the language xx" in refused(tmp_path / "m2m", source_lang="en", target_langs=["xx"])
    mbart(tmp_path / "mbart", first=True)
    message = refused(tmp_path / "mbart", source_lang="en_XX")
    assert "this model needs one target language" in message
    edit_json(tmp_path / "mbart" / "tokenizer.json", _without_languages)
    assert "its tokenizer has no languages" in refused(tmp_path / "mbart", source_lang="en_XX", target_langs=["de_DE"])
    edit_json(tmp_path / "mbart" / "tokenizer.json", lambda state: state["added_tokens"][0].update(content=5))
    assert "not the numbers of pieces" in refused(tmp_path / "mbart", source_lang="en_XX", target_langs=["de_DE"])
    marian(tmp_path / "marian")
    known = refused(tmp_path / "marian", source_lang="fr", target_langs=["es"])
    assert "it does not know the language fr it knows en" in known
    assert "does not know the language es" in refused(tmp_path / "marian", target_langs=["es"])
    both = refused(tmp_path / "marian", source_lang="en", target_langs=["en"])
    assert "it does not know the language en it knows de" in both
    edit_json(tmp_path / "marian" / "tokenizer_config.json", lambda config: config.update(source_lang=None))
    assert "it does not say its languages name them: --from LANG --to LANG" in refused(tmp_path / "marian")
    edit_json(tmp_path / "marian" / "tokenizer_config.json", lambda config: config.update(target_lang="roa"))
    several = refused(tmp_path / "marian", source_lang="en", target_langs=["fr", "es"])
    assert "it has no tags for target languages, so it has one" in several
    same = refused(tmp_path / "marian", source_lang="fr", target_langs=["fr"])
    assert "fr is the source and a target language" in same
    mt_api.import_model(tmp_path / "marian", tmp_path / "ours", source_lang="eng", target_langs=["es"])


def test_a_model_of_ours_keeps_its_languages(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    write_huggingface(random_job(), tmp_path / "theirs", "# A model\n")
    message = refused(tmp_path / "theirs", source_lang="xx", target_langs=["yy"])
    assert "--from xx, but this model of mt keeps its own (en) leave out --from" in message
    mt_api.import_model(tmp_path / "theirs", tmp_path / "ours", source_lang="en", target_langs=["de"])
    (tmp_path / "corpus.txt").write_text("a dog\n")
    assert "--to yy" in refused(tmp_path / "ours", target_langs=["yy"], prune=[tmp_path / "corpus.txt"])


def test_a_model_is_imported_for_several_source_languages(tmp_path: Path) -> None:
    m2m_100(tmp_path / "m2m")
    languages = ("--from", "en", "--from", "de", *(word for code in ("en", "de", "fr") for word in ("--to", code)))
    mt("import", "m2m", "--output", "many", *languages, cwd=tmp_path)
    mt("import", "m2m", "--output", "one", "--from", "de", "--to", "fr", cwd=tmp_path)
    many, one = (mt_api.load(tmp_path / name) for name in ("many", "one"))
    assert many.pairs == (("en", "de"), ("en", "fr"), ("de", "en"), ("de", "fr"))
    text = "a small dog"
    first, second = (model.translate(text, source_lang="de", to="fr", details=True) for model in (many, one))
    assert (first.text, first.source_tokens) == (second.text, second.source_tokens)
    assert many.translate(text, source_lang="en", to="fr", details=True).source_tokens != first.source_tokens
    with pytest.raises(InputError, match="no source language was chosen"):
        many.translate(text, to="fr")


def _without_languages(state: dict[str, Any]) -> None:
    for token in (*state["added_tokens"], *state["model"]["vocab"]):
        key = "content" if isinstance(token, dict) else 0
        token[key] = token[key].replace("_", "+")


def test_a_separate_vocabulary_is_found_without_the_settings_of_the_tokenizer(tmp_path: Path) -> None:
    marian(tmp_path / "theirs", separate=True)
    languages = {"source_lang": "en", "target_langs": ["de"]}
    mt_api.import_model(tmp_path / "theirs", tmp_path / "expected", **languages)
    (tmp_path / "theirs" / "tokenizer_config.json").unlink()
    mt_api.import_model(tmp_path / "theirs", tmp_path / "ours", **languages)
    expected, ours = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("expected", "ours"))
    assert ours == expected


@pytest.mark.parametrize("make", [marian, m2m_100, mbart], ids=["marian", "m2m_100", "mbart"])
def test_embeddings_are_scaled_by_default_as_in_transformers(tmp_path: Path, make: Callable[..., Any]) -> None:
    theirs = make(tmp_path / "theirs")
    edit_json(tmp_path / "theirs" / "config.json", lambda config: config.pop("scale_embedding"))
    code = {"marian": "en de", "m2m_100": "en de", "mbart": "en_XX de_DE"}[theirs.config.model_type].split()
    plan = read_plan(tmp_path / "theirs", "x", (code[:1], code[1:]))
    assert plan.config.model.scale_embeddings is type(theirs.config)().scale_embedding


def test_tokens_added_to_a_tokenizer_are_refused(tmp_path: Path) -> None:
    for make, options in ((marian, {}), (nllb, {"source_lang": "eng_Latn", "target_langs": ["deu_Latn"]})):
        theirs, folder = make(tmp_path / "theirs"), tmp_path / "theirs"
        tokenizer = AutoTokenizer.from_pretrained(folder)
        tokenizer.add_tokens(["T"])  # which SentencePiece has, too
        tokenizer.save_pretrained(folder)
        mt_api.import_model(folder, tmp_path / "ours", **options, force=True)
        tokenizer.add_tokens(["dog."])
        theirs.resize_token_embeddings(len(tokenizer))
        theirs.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        assert "the token 'dog.' was added to its tokenizer" in refused(folder, **options)
        shutil.rmtree(folder)


def test_biases_that_the_exported_model_lacks_must_be_zero(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    write_huggingface(random_job("model.norm=post", "model.bias=false"), tmp_path / "theirs", "# A model\n")
    _weights("model.encoder.layers.0.fc1.bias", lambda bias: bias + 0.5)(tmp_path / "theirs")
    assert "'model.encoder.layers.0.fc1.bias' is not zero" in refused(tmp_path / "theirs")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_a_cache_that_cannot_be_written_is_no_bad_name(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def snapshot_download(*_: object, **__: object) -> str:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    with pytest.raises(MachineError, match=f"owner/name: the hub's cache cannot be written .*{os.strerror(number)}"):
        find_folder("owner/name")


def test_names_of_the_hub_need_a_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "x.onnx").write_bytes(b"x")
    done = mt("import", "x.onnx", "--output", "out", cwd=tmp_path, code=2)
    assert "x.onnx: a file, not a folder" in done.stderr
    done = mt("import", "owner/name", "--output", "out", cwd=tmp_path, code=2)
    assert "owner/name: no such folder, and the hub does not give it" in done.stderr
    assert (
        "no-such-folder: no such folder"
        in mt("import", "no-such-folder", "--output", "out", cwd=tmp_path, code=2).stderr
    )


def test_the_languages_of_m2m_100_are_those_of_transformers() -> None:
    from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES

    assert FAIRSEQ_LANGUAGE_CODES["m2m100"] == _M2M_100
