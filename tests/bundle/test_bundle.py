"""The model folder: what is saved is loaded, it can be moved, and every kind of damage is one clear sentence."""

import hashlib
import json
import os
import pickle
import resource
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from bundle_helpers import ENGLISH, GERMAN, configured, make, reseal
from model_helpers import sources, targets
from mt.bundle.load_translator import open_model
from mt.bundle.model_folder import LoadedModel, load_model, new_model
from mt.config import dump_config, parse_config
from mt.data.tokenizer import TokenizerPair
from mt.decoding.engine import EngineChoice, SearchOptions
from mt.errors import InputError, MachineError
from mt.storage.run_dir import ModelDir


def load(folder: ModelDir) -> LoadedModel:
    return load_model(folder, torch.device("cpu"))


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("shared", ["true", "false"])
@pytest.mark.parametrize("tied", ["true", "false"])
def test_loaded_is_what_was_saved(tmp_path: Path, tied: str, shared: str, positions: str) -> None:
    changes = [f"model.tie_embeddings={tied}", f"tokenizer.shared={shared}", f"model.positions={positions}"]
    folder, model, tokenizers = make(tmp_path, *changes)
    loaded = load(folder)
    assert loaded.config == configured(*changes)
    assert not loaded.model.training
    src_tokens = sources([5, 3], tokenizers.source.vocab_size)
    tgt_in = targets([4, 6], tokenizers.target.vocab_size)
    assert loaded.model(src_tokens, tgt_in).equal(model(src_tokens, tgt_in))
    assert loaded.tokenizers.shared == (shared == "true")
    assert loaded.tokenizers.files() == tokenizers.files()
    assert (loaded.model.output.weight is loaded.model.target_embedding.tokens.weight) == (tied == "true")


def test_a_folder_holds_these_files_and_no_pickle(tmp_path: Path) -> None:
    folder, _, _ = make(tmp_path)
    files = {path.relative_to(folder.root).as_posix(): path for path in folder.root.rglob("*") if path.is_file()}
    converted = ("config.json", "model.bin", "shared_vocabulary.json")
    assert set(files) == {
        *("MANIFEST.json", "README.md", "config.yaml", "model.safetensors", "tokenizer/tokenizer.json"),
        "ctranslate2/settings.json",
        *(f"ctranslate2/{number_format}/{name}" for number_format in ("float32", "int8") for name in converted),
    }
    for path in files.values():
        content = path.read_bytes()
        assert not content.startswith((b"\x80", b"PK"))
        assert path.suffix in (".safetensors", ".bin") or content.decode()
    manifest = json.loads(folder.manifest.read_text())
    assert manifest["steps"] == 7
    assert set(manifest["files"]) == set(files) - {"MANIFEST.json"}


def test_separate_vocabularies_are_two_files(tmp_path: Path) -> None:
    folder, _, _ = make(tmp_path, "tokenizer.shared=false")
    assert {path.name for path in folder.tokenizer.iterdir()} == {"source.json", "target.json"}


@pytest.mark.parametrize("engine", ["ctranslate2", "torch"])
def test_a_folder_can_be_moved_and_is_complete(tmp_path: Path, engine: str) -> None:
    folder, _, _ = make(tmp_path)
    options = SearchOptions(beam_size=2, max_length=6)
    before = open_model(folder, EngineChoice(engine)).translator.best(ENGLISH, options)
    moved = ModelDir(tmp_path / "elsewhere" / "ein Ordner")
    moved.root.parent.mkdir()
    folder.root.rename(moved.root)
    assert open_model(moved, EngineChoice(engine)).translator.best(ENGLISH, options) == before
    link = tmp_path / "link"
    link.symlink_to(moved.root)
    assert open_model(ModelDir(link), EngineChoice(engine)).translator.best(ENGLISH, options) == before


def test_saving_replaces_a_model_and_leaves_nothing_behind(tmp_path: Path) -> None:
    make(tmp_path)
    folder, model, _ = make(tmp_path, "model.tie_embeddings=false")
    assert load(folder).model.output.weight.equal(model.output.weight)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("failing", ["tokenizers", "weights"])
def test_saving_that_fails_leaves_the_old_model(tmp_path: Path, failing: str) -> None:
    folder, _, tokenizers = make(tmp_path)
    before = {path: path.read_bytes() for path in folder.root.rglob("*") if path.is_file()}
    parts = {"tokenizers": tokenizers, "weights": {"a": torch.zeros(2)}, failing: None}
    with pytest.raises(AttributeError), new_model(folder, configured(), parts["tokenizers"], parts["weights"], {}):
        pass
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


# Damage -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> ModelDir:
    return make(tmp_path_factory.mktemp("saved"))[0]


@pytest.fixture
def folder(saved: ModelDir, tmp_path: Path) -> ModelDir:
    """A copy to damage."""
    return ModelDir(Path(shutil.copytree(saved.root, tmp_path / "model")))


def refusal(folder: ModelDir) -> str:
    """The sentence that loading ends with."""
    with pytest.raises(InputError) as caught:
        load(folder)
    assert caught.value.exit_code == 2
    assert str(folder.root) in caught.value.message
    assert len(caught.value.message) < 500 + len(str(folder.root))
    return caught.value.message


def one_sentence(folder: ModelDir) -> str:
    message = refusal(folder)
    assert "\n" not in message
    return message


FILES = ["config.yaml", "model.safetensors", "tokenizer/tokenizer.json"]


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file(folder: ModelDir, name: str) -> None:
    (folder.root / name).unlink()
    message = one_sentence(folder)
    assert name in message
    assert "is missing" in message


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_file(folder: ModelDir, name: str) -> None:
    path = folder.root / name
    path.write_bytes(path.read_bytes()[:-1])
    message = one_sentence(folder)
    assert name in message
    assert "bytes" in message


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("place", [0.0, 0.5, 0.999])
def test_a_flipped_bit(folder: ModelDir, name: str, place: float) -> None:
    path = folder.root / name
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 4
    path.write_bytes(content)
    message = one_sentence(folder)
    assert name in message
    assert "was altered" in message


@pytest.mark.parametrize("name", FILES)
def test_a_folder_where_a_file_should_be(folder: ModelDir, name: str) -> None:
    (folder.root / name).unlink()
    (folder.root / name).mkdir()
    assert name in one_sentence(folder)


def test_a_readme_may_be_edited_and_forms_for_the_fast_engine_removed(folder: ModelDir) -> None:
    folder.readme.write_text("Mine.")
    load(folder)
    (folder.converted("float32") / ".DS_Store").write_bytes(b"x")
    assert open_model(folder).engine.startswith("CTranslate2 float32")
    shutil.rmtree(folder.converted("float32"))
    load(folder)
    assert open_model(folder).engine.startswith("torch")
    assert open_model(folder, EngineChoice(compute_type="int8")).engine.startswith("CTranslate2 int8")


def test_a_link_to_itself(folder: ModelDir) -> None:
    folder.weights.unlink()
    folder.weights.symlink_to(folder.weights.name)
    assert "model.safetensors' is missing" in one_sentence(folder)


def test_a_symlink_in_place_of_a_file(folder: ModelDir, tmp_path: Path) -> None:
    folder.weights.rename(tmp_path / "elsewhere")
    folder.weights.symlink_to(tmp_path / "elsewhere")
    assert "model.safetensors" in one_sentence(folder)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read(folder: ModelDir) -> None:
    folder.weights.chmod(0)
    with pytest.raises(MachineError, match=r"model\.safetensors: cannot be read: Permission denied"):
        load_model(folder, torch.device("cpu"))


def test_no_manifest(folder: ModelDir) -> None:
    folder.manifest.unlink()
    assert "MANIFEST.json is missing" in one_sentence(folder)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not json",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"files": []}',
        b'{"files": {"config.yaml": 3}}',
        b'{"files": {"config.yaml": {"bytes": "9", "sha256": "0"}}}',
        b"[" * 100_000,
    ],
    ids=lambda content: content[:30],
)
def test_no_valid_manifest(folder: ModelDir, content: bytes) -> None:
    folder.manifest.write_bytes(content)
    assert "MANIFEST.json is not a manifest" in one_sentence(folder)


def test_a_manifest_without_end(folder: ModelDir) -> None:
    folder.manifest.unlink()
    folder.manifest.symlink_to("/dev/zero")
    assert "MANIFEST.json is not a manifest" in one_sentence(folder)
    folder.manifest.unlink()
    os.mkfifo(folder.manifest)
    assert "MANIFEST.json is not a manifest" in one_sentence(folder)
    folder.manifest.unlink()
    with folder.manifest.open("wb") as file:
        file.truncate(2**40)
    assert "MANIFEST.json is not a manifest" in one_sentence(folder)


@pytest.mark.parametrize("name", FILES)
def test_a_manifest_with_a_wrong_checksum(folder: ModelDir, name: str) -> None:
    manifest = json.loads(folder.manifest.read_text())
    manifest["files"][name]["sha256"] = "0" * 64
    folder.manifest.write_text(json.dumps(manifest))
    message = one_sentence(folder)
    assert name in message
    assert "was altered" in message


@pytest.mark.parametrize(
    "name", ["../outside", "/etc/hostname", "tokenizer/a\0b", "tokenizer/" + "x" * 300], ids=lambda name: name[:12]
)
def test_a_manifest_that_names_what_is_not_in_the_folder(folder: ModelDir, name: str) -> None:
    (folder.root.parent / "outside").write_text("secret")
    manifest = json.loads(folder.manifest.read_text())
    manifest["files"][name] = {"bytes": 6, "sha256": hashlib.sha256(b"secret").hexdigest()}
    folder.manifest.write_text(json.dumps(manifest))
    one_sentence(folder)


@pytest.mark.parametrize("name", ["config.yaml", "model.safetensors", "tokenizer/tokenizer.json"])
def test_a_manifest_that_leaves_out_what_is_needed(folder: ModelDir, name: str) -> None:
    """Otherwise the file could be altered unnoticed."""
    manifest = json.loads(folder.manifest.read_text())
    del manifest["files"][name]
    folder.manifest.write_text(json.dumps(manifest))
    assert name in one_sentence(folder)


def test_not_a_folder(tmp_path: Path) -> None:
    assert "MANIFEST.json is missing" in one_sentence(ModelDir(tmp_path / "nothing"))


# Damage under a manifest that agrees with it: all that is left are the checks of the content. ------------------------


def change_tensors(folder: ModelDir, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(folder.weights)
    change(tensors)
    save_file(tensors, folder.weights)
    reseal(folder)


def change_config(folder: ModelDir, *changes: str) -> None:
    config = parse_config(folder.config.read_text(), "x.yaml", changes)
    folder.config.write_text(dump_config(config))
    reseal(folder)


NAME = "encoder.0.feed_forward.up.weight"


def test_resealing_alone_harms_nothing(folder: ModelDir) -> None:
    change_tensors(folder, lambda tensors: None)
    load(folder)


@pytest.mark.parametrize("shape", [(16, 32), (32, 17), (512,), (32, 16, 1), (0, 16)], ids=str)
def test_a_wrong_shape(folder: ModelDir, shape: tuple[int, ...]) -> None:
    change_tensors(folder, lambda tensors: tensors.update({NAME: torch.zeros(shape)}))
    message = one_sentence(folder)
    assert "model.safetensors" in message
    assert NAME in message
    assert str(list(shape)) in message
    assert "[32, 16]" in message


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int32])
def test_a_wrong_type(folder: ModelDir, dtype: torch.dtype) -> None:
    change_tensors(folder, lambda tensors: tensors.update({NAME: torch.zeros(32, 16, dtype=dtype)}))
    message = one_sentence(folder)
    assert "model.safetensors" in message
    assert NAME in message
    assert "F32" in message


def test_a_missing_tensor(folder: ModelDir) -> None:
    change_tensors(folder, lambda tensors: tensors.pop(NAME))
    message = one_sentence(folder)
    assert "model.safetensors" in message
    assert NAME in message
    assert "missing" in message


@pytest.mark.parametrize("name", ["extra", "output.weight", "x" * 5000, "two\nlines"], ids=lambda name: name[:12])
def test_an_extra_tensor(folder: ModelDir, name: str) -> None:
    """Also the output layer's, which a tied model stores as its embedding."""
    change_tensors(folder, lambda tensors: tensors.update({name: torch.zeros(2)}))
    message = one_sentence(folder)
    assert "model.safetensors" in message
    assert name[:5].split()[0] in message


def test_no_tensors(folder: ModelDir) -> None:
    change_tensors(folder, lambda tensors: tensors.clear())
    assert "model.safetensors" in one_sentence(folder)


@pytest.mark.parametrize("content", [b"", b"garbage", b"\xff" * 64, b"\x00" * 64, b"\x08" + b"\x00" * 7 + b"not json"])
def test_not_safetensors(folder: ModelDir, content: bytes) -> None:
    folder.weights.write_bytes(content)
    reseal(folder)
    assert "model.safetensors" in one_sentence(folder)


class Trap:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("kind", ["pickle", "torch"])
def test_a_pickle_in_place_of_the_weights_is_not_run(folder: ModelDir, tmp_path: Path, kind: str) -> None:
    trap = Trap(tmp_path / "sprung")
    if kind == "pickle":
        folder.weights.write_bytes(pickle.dumps(trap))
    else:
        torch.save({"weights": trap}, folder.weights)
    reseal(folder)
    assert "model.safetensors" in one_sentence(folder)
    assert not (tmp_path / "sprung").exists()
    pickle.loads(pickle.dumps(trap))
    assert (tmp_path / "sprung").exists(), "the trap itself does not work"


def test_a_tokenizer_of_another_size(folder: ModelDir) -> None:
    other = TokenizerPair.train(ENGLISH, GERMAN, 300, shared=True)
    (folder.tokenizer / "tokenizer.json").write_text(other.files()["tokenizer.json"])
    reseal(folder)
    assert "model.safetensors" in one_sentence(folder)


def change_tokenizer(folder: ModelDir, change: Callable[[dict], object]) -> None:
    path = folder.tokenizer / "tokenizer.json"
    state = json.loads(path.read_text())
    change(state)
    path.write_text(json.dumps(state, ensure_ascii=False))
    reseal(folder)


def out_of_bounds(state: dict) -> None:
    """A piece with an id that no embedding has."""
    pieces = state["model"]["vocab"]
    pieces[max(pieces, key=pieces.get)] = 99_999


def other_specials(state: dict) -> None:
    pieces = state["model"]["vocab"]
    pieces["<pad>"], pieces["</s>"] = pieces["</s>"], pieces["<pad>"]


def cutting(state: dict) -> None:
    """Input would be cut silently."""
    state["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}


def matching_text(state: dict) -> None:
    """`</s>` in a sentence would become the end-of-sentence token."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    state["added_tokens"] = [{"id": 3, "content": "</s>", **flags}]


@pytest.mark.parametrize("change", [out_of_bounds, other_specials, cutting, matching_text])
def test_a_tokenizer_that_is_not_ours(folder: ModelDir, change: Callable[[dict], object]) -> None:
    change_tokenizer(folder, change)
    assert "tokenizer.json" in one_sentence(folder)


@pytest.mark.parametrize("content", ["", "{}", "not json", '{"version": "1.0", "model": {"type": "Magic"}}'])
def test_no_tokenizer_at_all(folder: ModelDir, content: str) -> None:
    (folder.tokenizer / "tokenizer.json").write_text(content)
    reseal(folder)
    assert "tokenizer.json" in one_sentence(folder)


def test_a_tokenizer_for_the_other_setting(folder: ModelDir) -> None:
    change_config(folder, "tokenizer.shared=false")
    assert "source.json" in one_sentence(folder)


def test_a_configuration_with_an_unknown_key(folder: ModelDir) -> None:
    folder.config.write_text(folder.config.read_text() + "extra: 1\n")
    reseal(folder)
    message = refusal(folder)
    assert "config.yaml" in message
    assert "extra" in message


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"a: [", b"!!python/object/apply:os.abort []", b"- 1\n"])
def test_not_a_configuration(folder: ModelDir, content: bytes) -> None:
    folder.config.write_bytes(content)
    reseal(folder)
    assert "config.yaml" in refusal(folder)


@pytest.mark.parametrize(
    "change", ["model.d_model=32", "model.encoder_layers=2", "model.norm=pre", "model.bias=false", "model.d_ff=64"]
)
def test_a_configuration_of_another_model(folder: ModelDir, change: str) -> None:
    change_config(folder, change)
    assert "model.safetensors" in one_sentence(folder)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    "changes",
    [
        ["model.d_model=4096", "data.max_length=100000", "training.max_tokens=100000"],
        ["model.d_model=16384", "model.d_ff=65000", "model.encoder_layers=1000"],
        ["model.d_model=4096", "data.max_length=100000", "training.max_tokens=100000", "model.positions=learned"],
    ],
    ids=["positions", "matrices", "learned"],
)
def test_a_huge_model_is_refused_before_memory_is_taken_for_it(folder: ModelDir, changes: list[str]) -> None:
    change_config(folder, *changes)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + 300_000_000, hard))
    try:
        message = one_sentence(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert "model.safetensors" in message
