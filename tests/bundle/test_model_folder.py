"""The model folder: loading returns what was saved, it can be moved, and all damage is reported in one sentence."""

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

from bundle_helpers import ENGLISH, GERMAN, Trap, configured, edit_json, make, reseal
from config_helpers import SMALLEST
from model_helpers import sources, targets
from mt.bundle.checks import load_preprocessing
from mt.bundle.load_translator import open_model
from mt.bundle.model_card import model_card
from mt.bundle.model_folder import LoadedModel, load_model, new_model
from mt.config import dump_config, parse_config
from mt.data.tokenizer_kinds import TokenizerPair
from mt.decoding.engine import EngineChoice, SearchOptions
from mt.errors import InputError, MachineError
from mt.storage.run_dir import ModelDir


def load(folder: ModelDir) -> LoadedModel:
    return load_model(folder, torch.device("cpu"))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> ModelDir:
    return make(tmp_path_factory.mktemp("saved"))[0]


@pytest.fixture
def folder(saved: ModelDir, tmp_path: Path) -> ModelDir:
    """A copy to damage."""
    return ModelDir(Path(shutil.copytree(saved.root, tmp_path / "model")))


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary"])
@pytest.mark.parametrize("shared", ["true", "false"])
@pytest.mark.parametrize("tied", ["true", "false"])
def test_loading_returns_what_was_saved(tmp_path: Path, tied: str, shared: str, positions: str) -> None:
    changes = [f"model.tie_embeddings={tied}", f"tokenizer.shared={shared}", f"model.positions={positions}"]
    folder, model, tokenizers = make(tmp_path, *changes)
    names = {"tokenizer.json"} if shared == "true" else {"source.json", "target.json"}
    assert {path.name for path in folder.tokenizer.iterdir()} == names
    loaded = load(folder)
    assert loaded.config == configured(*changes)
    assert not loaded.model.training
    src_tokens = sources([5, 3], tokenizers.source.vocab_size)
    tgt_in = targets([4, 6], tokenizers.target.vocab_size)
    assert loaded.model(src_tokens, tgt_in).equal(model(src_tokens, tgt_in))
    assert loaded.tokenizers.shared == (shared == "true")
    assert loaded.tokenizers.files() == tokenizers.files()
    assert (loaded.model.output.weight is loaded.model.target_embedding.tokens.weight) == (tied == "true")


def test_a_folder_holds_these_files_and_no_pickle(saved: ModelDir) -> None:
    files = {path.relative_to(saved.root).as_posix(): path for path in saved.root.rglob("*") if path.is_file()}
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
    manifest = json.loads(saved.manifest.read_text())
    assert manifest["steps"] == 7
    assert set(manifest["files"]) == set(files) - {"MANIFEST.json"}


@pytest.mark.parametrize("engine", ["ctranslate2", "torch"])
def test_a_folder_can_be_moved_and_linked_to(folder: ModelDir, tmp_path: Path, engine: str) -> None:
    def translate(folder: ModelDir) -> list[str]:
        return open_model(folder, EngineChoice(engine)).translator.best(ENGLISH, SearchOptions(2, max_length=6))

    before = translate(folder)
    moved, link = tmp_path / "elsewhere" / "ein Ordner", tmp_path / "link"
    moved.parent.mkdir()
    folder.root.rename(moved)
    link.symlink_to(moved)
    assert translate(ModelDir(moved)) == translate(ModelDir(link)) == before


@pytest.mark.parametrize("failing", ["tokenizers", "weights"])
def test_saving_replaces_a_model_or_leaves_the_old_one(tmp_path: Path, failing: str) -> None:
    make(tmp_path)
    folder, model, tokenizers = make(tmp_path, "model.tie_embeddings=false")
    assert load(folder).model.output.weight.equal(model.output.weight)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    before = {path: path.read_bytes() for path in folder.root.rglob("*") if path.is_file()}
    parts = {"tokenizers": tokenizers, "weights": {"a": torch.zeros(2)}, failing: None}
    with (
        pytest.raises(AttributeError),
        new_model(folder, configured(), parts["tokenizers"], parts["weights"], {}),
    ):
        pass
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("changes", "stack", "has_ctranslate2"),
    [
        (["model.encoder_layers=3", "model.decoder_layers=2"], "3 encoder and 2 decoder layers, d_model", True),
        (["model.architecture=decoder_only", "model.decoder_layers=5"], "One stack of 5 layers, d_model", False),
    ],
)
def test_the_readme_names_what_the_folder_holds(changes: list[str], stack: str, has_ctranslate2: bool) -> None:
    facts = {"weights": "step 7 (last)", "steps": 7}
    card = model_card(parse_config(SMALLEST, "test", changes), facts, has_ctranslate2)
    assert stack in card
    assert "0 encoder" not in card
    assert ("`ctranslate2/`" in card) == has_ctranslate2
    assert "`model.safetensors`" in card
    assert "`MANIFEST.json`" in card


# Damage -------------------------------------------------------------------------------------------------------------


def refusal(folder: ModelDir) -> str:
    """Return the message that loading ends with."""
    with pytest.raises(InputError) as caught:
        load(folder)
    assert str(folder.root) in caught.value.message
    assert len(caught.value.message) < 500 + len(str(folder.root))
    return caught.value.message


def one_sentence(folder: ModelDir) -> str:
    message = refusal(folder)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("name", ["config.yaml", "model.safetensors", "tokenizer/tokenizer.json"])
def test_a_damaged_file(folder: ModelDir, name: str) -> None:
    path, manifest = folder.root / name, folder.manifest.read_bytes()
    content = path.read_bytes()
    for place in (0, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        assert f"{name} was altered" in one_sentence(folder)
    path.write_bytes(content[:-1])
    assert f"{name} has {len(content) - 1} bytes" in one_sentence(folder)
    path.unlink()
    assert f"{name}' is missing" in one_sentence(folder)
    path.mkdir()
    assert f"{name}' is missing" in one_sentence(folder)
    path.rmdir()
    path.write_bytes(content)
    edit_json(folder.manifest, lambda manifest: manifest["files"].pop(name))  # it could be altered unnoticed
    assert f"does not list {name}" in one_sentence(folder)
    folder.manifest.write_bytes(manifest)
    load(folder)
    folder.manifest.unlink()
    assert "MANIFEST.json is missing" in one_sentence(folder)


@pytest.mark.parametrize("name", ["casing.txt", "spelling.txt"])
def test_a_missing_file_of_preprocessing(folder: ModelDir, name: str) -> None:
    """Most models have none, so only the manifest tells that it is missing."""
    edit_json(folder.manifest, lambda manifest: manifest["files"].update({name: manifest["files"]["config.yaml"]}))
    with pytest.raises(InputError, match=f"{name}' is missing"):
        load_preprocessing(folder)


@pytest.mark.parametrize("manifest", [None, '{"files": {}}'])  # exports of ours have one, too
def test_a_model_of_other_software_is_to_be_imported(tmp_path: Path, manifest: str | None) -> None:
    folder = ModelDir(tmp_path / "opus mt")
    folder.root.mkdir()
    (folder.root / "config.json").write_text("{}")
    if manifest:
        folder.manifest.write_text(manifest)
    with pytest.raises(InputError) as caught:
        load(folder)
    assert caught.value.hint == f"import it: mt import '{folder.root}' --output NEW"


def test_the_readme_may_be_edited_and_converted_models_deleted(folder: ModelDir) -> None:
    folder.readme.write_text("Mine.")
    load(folder)
    tensors(lambda content: None)(folder)
    reseal(folder)
    load(folder)
    (folder.converted("float32") / ".DS_Store").write_bytes(b"x")
    assert open_model(folder).engine.startswith("CTranslate2 float32")
    shutil.rmtree(folder.converted("float32"))
    load(folder)
    assert open_model(folder).engine.startswith("torch")
    assert open_model(folder, EngineChoice(compute_type="int8")).engine.startswith("CTranslate2 int8")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_read_permission(folder: ModelDir) -> None:
    folder.weights.chmod(0)
    with pytest.raises(MachineError, match=r"model\.safetensors: cannot be read: Permission denied"):
        load(folder)


# Damage with a manifest that agrees: only the checks of the content are left. ---------------------------------------

Change = Callable[[ModelDir], object]
NAME = "encoder.0.feed_forward.up.weight"


def tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Change:
    def apply(folder: ModelDir) -> None:
        content = load_file(folder.weights)
        change(content)
        save_file(content, folder.weights)

    return apply


def tensor(value: torch.Tensor, name: str = NAME) -> Change:
    return tensors(lambda content: content.update({name: value}))


def config(*changes: str) -> Change:
    return lambda folder: folder.config.write_text(
        dump_config(parse_config(folder.config.read_text(), "x.yaml", changes))
    )


def tokenizer(change: Callable[[dict], object]) -> Change:
    return lambda folder: edit_json(folder.tokenizer / "tokenizer.json", change)


def content(name: str, value: bytes | str) -> Change:
    return lambda folder: (folder.root / name).write_bytes(value if isinstance(value, bytes) else value.encode())


def smaller_vocabulary(folder: ModelDir) -> None:
    other = TokenizerPair.train(ENGLISH, GERMAN, 300, shared=True)
    (folder.tokenizer / "tokenizer.json").write_text(other.files()["tokenizer.json"])


def id_out_of_range(state: dict) -> None:
    pieces = state["model"]["vocab"]
    pieces[max(pieces, key=pieces.get)] = 99_999


def swapped_specials(state: dict) -> None:
    pieces = state["model"]["vocab"]
    pieces["<pad>"], pieces["</s>"] = pieces["</s>"], pieces["<pad>"]


def truncating(state: dict) -> None:
    """Input would be truncated silently."""
    state["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}


def matching_text(state: dict) -> None:
    """`</s>` in a sentence would become the end-of-sentence token."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    state["added_tokens"] = [{"id": 3, "content": "</s>", **flags}]


WEIGHTS, TOKENIZER = "model.safetensors", "tokenizer/tokenizer.json"
MISFITS: list[tuple[Change, list[str]]] = [
    *(
        (tensor(torch.zeros(shape)), [WEIGHTS, NAME, str(list(shape)), "[32, 16]"])
        for shape in ((16, 32), (32, 17), (512,), (32, 16, 1), (0, 16))
    ),
    *(
        (tensor(torch.zeros(32, 16, dtype=dtype)), [WEIGHTS, NAME, "F32"])
        for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int32)
    ),
    (tensors(lambda content: content.pop(NAME)), [WEIGHTS, NAME, "missing"]),
    # A tied model has its output layer's weight as its embedding.
    *(
        (tensor(torch.zeros(2), name), [WEIGHTS, f"unexpected tensor '{name[:3]}"])
        for name in ("extra", "output.weight", "x" * 5000, "two\nlines")
    ),
    (tensors(lambda content: content.clear()), [WEIGHTS]),
    *(
        (content(WEIGHTS, value), [WEIGHTS])
        for value in (b"", b"garbage", b"\xff" * 64, b"\x00" * 64, b"\x08" + b"\x00" * 7 + b"not json")
    ),
    *(
        (config(f"model.{change}"), [WEIGHTS])
        for change in ("d_model=32", "encoder_layers=2", "norm=pre", "bias=false", "d_ff=64")
    ),
    (smaller_vocabulary, [WEIGHTS]),
    *(
        (tokenizer(change), ["tokenizer.json"])
        for change in (id_out_of_range, swapped_specials, truncating, matching_text)
    ),
    *(
        (content(TOKENIZER, value), ["tokenizer.json"])
        for value in ("", "{}", "not json", '{"version": "1.0", "model": {"type": "Magic"}}')
    ),
    (config("tokenizer.shared=false"), ["source.json"]),
]


@pytest.mark.parametrize(("change", "words"), MISFITS)
def test_content_that_does_not_fit(folder: ModelDir, change: Change, words: list[str]) -> None:
    change(folder)
    reseal(folder)
    message = one_sentence(folder)
    assert all(word in message for word in words), message


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


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"a: [", b"!!python/object/apply:os.abort []", b"- 1\n", None])
def test_an_invalid_configuration(folder: ModelDir, content: bytes | None) -> None:
    folder.config.write_bytes(folder.config.read_bytes() + b"extra: 1\n" if content is None else content)
    reseal(folder)
    message = refusal(folder)
    assert "config.yaml" in message
    assert content is not None or "extra" in message


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
def test_a_huge_model_is_refused_before_memory_is_allocated(folder: ModelDir, changes: list[str]) -> None:
    config(*changes)(folder)
    reseal(folder)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + 300_000_000, hard))
    try:
        message = one_sentence(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert "model.safetensors" in message
