"""The choice of the engine for a model folder: options, fallbacks and errors of one sentence."""

import struct
from collections.abc import Callable
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import ctranslate2
import pytest
import torch

from bundle_helpers import edit_json, reseal
from command import mt
from engine_helpers import ENGLISH, whole_folder
from mt.bundle.load_translator import OpenedModel, open_model
from mt.decoding.engine import EngineChoice, SearchOptions
from mt.errors import InputError
from mt.storage.run_dir import VOCABULARY_MAP, ModelDir

OPTIONS = SearchOptions(2, max_length=6)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> ModelDir:
    return whole_folder(tmp_path_factory.mktemp("saved") / "model")


@pytest.fixture
def folder(saved: ModelDir, tmp_path: Path) -> ModelDir:
    """A copy to damage."""
    return ModelDir(Path(copytree(saved.root, tmp_path / "model")))


def refusal(folder: ModelDir, **choice: object) -> str:
    with pytest.raises(InputError) as caught:
        open_model(folder, EngineChoice(**choice))
    assert caught.value.exit_code == 2
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 700
    return caught.value.message


def model_or_error(folder: ModelDir) -> OpenedModel | InputError:
    try:
        return open_model(folder)
    except InputError as error:
        return error


def opened(folder: ModelDir, **choice: object) -> str:
    """Translate with the chosen engine and return its name."""
    found = open_model(folder, EngineChoice(**choice))
    assert len(found.translator.best(ENGLISH, OPTIONS)) == len(ENGLISH)
    return found.engine


def test_ctranslate2_is_the_default(saved: ModelDir, notices: list[str]) -> None:
    assert opened(saved) == "CTranslate2 float32 on cpu"
    assert opened(saved, engine="ctranslate2", device="cpu") == "CTranslate2 float32 on cpu"
    assert opened(saved, compute_type="int8") == "CTranslate2 int8 on cpu"
    assert opened(saved, engine="torch") == "torch float32 on cpu"
    assert opened(saved, engine="torch", compute_type="bfloat16") == "torch bfloat16 on cpu"
    assert notices == []


def test_the_engines_agree_and_int8_reads_its_own_weights(saved: ModelDir, folder: ModelDir) -> None:
    options = SearchOptions(3, n_best=2, max_length=10)
    fast, slow = (
        open_model(saved, EngineChoice(engine)).translator.translate(ENGLISH, options)
        for engine in ("ctranslate2", "torch")
    )
    assert [[c.text for c in line] for line in fast] == [[c.text for c in line] for line in slow]
    (folder.converted("float32") / "model.bin").write_bytes(b"")
    assert "int8" in opened(folder, compute_type="int8")
    assert "float32/model.bin" in refusal(folder)


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"engine": "onnx"}, ["--engine", "onnx", "ctranslate2"]),
        ({"device": "tpu"}, ["--device", "tpu", "cuda"]),
        ({"compute_type": "float8"}, ["--compute-type", "float8", "int8"]),
        ({"engine": "torch", "compute_type": "int8"}, ["--compute-type int8", "CTranslate2"]),
        ({"engine": "torch", "compute_type": "int16"}, ["--compute-type int16"]),
        ({"engine": "ctranslate2", "device": "mps"}, ["--engine ctranslate2", "mps"]),
    ],
    ids=str,
)
def test_invalid_options_are_named(saved: ModelDir, choice: dict, words: list[str]) -> None:
    message = refusal(saved, **choice)
    assert all(word in message for word in words)


def test_int8_for_what_only_torch_does_is_refused_with_the_reason(saved: ModelDir) -> None:
    with pytest.raises(InputError, match="--compute-type int8 needs the CTranslate2 engine, which runs one model only"):
        open_model(saved, EngineChoice(compute_type="int8"), [saved])
    message = refusal(saved, compute_type="int8", sampling=True)
    assert "which does not draw reproducible samples" in message


@pytest.mark.parametrize("command", [["translate", "a"], ["eval"]], ids=" ".join)
def test_the_commands_report_invalid_options(trained: Path, command: list[str]) -> None:
    done = mt(*command, "--engine", "x", cwd=trained, code=2)
    assert "--engine: 'x' is not one of" in done.stderr
    assert done.stdout == ""


def test_a_number_format_that_this_processor_lacks(saved: ModelDir, notices: list[str]) -> None:
    """No processor computes in float16."""
    assert opened(saved, compute_type="float16") == "CTranslate2 float32 on cpu"
    [notice] = notices
    assert "cannot compute in float16" in notice
    assert "using float32" in notice


@pytest.mark.parametrize(
    ("choice", "has_library", "engine"),
    [
        ({}, False, "CTranslate2 float32 on cpu"),  # torch cannot use the GPU
        ({"compute_type": "int8"}, False, "CTranslate2 int8 on cpu"),
        ({"engine": "ctranslate2"}, False, "CTranslate2 float32 on cpu"),
        ({"compute_type": "int8"}, True, "CTranslate2 int8 on cuda"),
    ],
    ids=str,
)
def test_a_gpu_that_ctranslate2_sees_and_nobody_can_use(
    saved: ModelDir, monkeypatch: pytest.MonkeyPatch, notices: list[str], choice: dict, has_library: bool, engine: str
) -> None:
    class WithGpu(ctranslate2.Translator):
        """Lacks a library of CUDA as the real one does: it says so when it translates."""

        def __init__(self, *arguments: Any, device: str, **options: Any) -> None:
            super().__init__(*arguments, device="cpu", **options)
            self.lacks_library = device == "cuda" and not has_library

        def translate_batch(self, *arguments: Any, **options: Any) -> Any:
            if self.lacks_library:
                raise RuntimeError("Library libcublas.so.12 is not found or cannot be loaded")
            return super().translate_batch(*arguments, **options)

    monkeypatch.setattr(ctranslate2, "Translator", WithGpu)
    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: 1)
    monkeypatch.setattr(ctranslate2, "get_supported_compute_types", lambda *_: {"int8", "float32"})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert opened(saved, **choice) == engine
    assert ["libcublas" in notice for notice in notices] == [True] * (bool(choice) and not has_library)


# Folders that CTranslate2 cannot use ----------------------------------------------------------------------------


def without_ctranslate2(folder: ModelDir) -> None:
    rmtree(folder.ctranslate2)


def unlisted(folder: ModelDir) -> None:
    """Its files are there, but were not verified."""
    edit_json(folder.manifest, lambda manifest: manifest["files"].pop("ctranslate2/settings.json"))


def rewritten(change: Callable[[bytes], bytes]) -> Callable[[ModelDir], None]:
    def apply(folder: ModelDir) -> None:
        for path in folder.ctranslate2.rglob("model.bin"):
            path.write_bytes(change(path.read_bytes()))
        reseal(folder)

    return apply


newer_format = rewritten(lambda content: struct.pack("<I", 99) + content[4:])
nonsense = rewritten(lambda content: b"nonsense" * 9)
truncated = rewritten(lambda content: content[:-5000])
UNUSABLE = [without_ctranslate2, unlisted, newer_format, nonsense, truncated]


@pytest.mark.parametrize("change", UNUSABLE)
def test_torch_takes_over_with_one_warning_unless_ctranslate2_is_requested(
    folder: ModelDir, change: Callable[[ModelDir], None], notices: list[str]
) -> None:
    expected = open_model(folder, EngineChoice("torch")).translator.best(ENGLISH, OPTIONS)
    change(folder)
    found = open_model(folder)
    assert found.engine == "torch float32 on cpu"
    assert found.translator.best(ENGLISH, OPTIONS) == expected
    [notice] = notices
    assert "torch" in notice
    assert "CTranslate2" in notice
    assert "\n" not in notice
    for choice in ({"engine": "ctranslate2"}, {"compute_type": "int8"}):
        assert "CTranslate2" in refusal(folder, **choice)


def test_damage_does_not_switch_to_torch(folder: ModelDir, notices: list[str]) -> None:
    path = folder.converted("float32") / "model.bin"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert "float32/model.bin was altered" in refusal(folder)
    assert opened(folder, engine="torch").startswith("torch")  # which does not read it
    assert notices == []
    assert "int8" in opened(folder, compute_type="int8")


@pytest.mark.parametrize("name", ["settings.json", "float32/model.bin", "float32/config.json"])
def test_a_missing_file(folder: ModelDir, name: str) -> None:
    (folder.ctranslate2 / name).unlink()
    assert name in refusal(folder)


@pytest.mark.parametrize("name", ["model.bin", "config.json", "shared_vocabulary.json", VOCABULARY_MAP])
def test_a_file_that_the_manifest_does_not_list_is_not_used(folder: ModelDir, name: str) -> None:
    """It was not verified."""
    if name == VOCABULARY_MAP:
        (folder.converted("float32") / name).write_text("\ta\n")
    else:
        edit_json(folder.manifest, lambda manifest: manifest["files"].pop(f"ctranslate2/float32/{name}"))
    assert f"float32/{name}" in refusal(folder, shortlist=name == VOCABULARY_MAP)


# Forged settings ----------------------------------------------------------------------------------------------------

FORGED = [
    *(b"", b"not json", b"\xff\xfe", b"[]", b"{}", b"null", b"7", b'"text"', b'{"search": {}}', b'{"search": []}'),
    b"[" * 100_000,
]


@pytest.mark.parametrize("content", FORGED, ids=lambda content: content[:20])
def test_invalid_settings(folder: ModelDir, content: bytes) -> None:
    folder.settings.write_bytes(content)
    reseal(folder)
    assert "settings.json" in refusal(folder)


def set_setting(folder: ModelDir, key: str, value: object) -> None:
    *section, name = key.split(".")
    edit_json(folder.settings, lambda content: (content["search"] if section else content).update({name: value}))
    reseal(folder)


NUMBERS = ("beam_size", "n_best", "length_penalty", "min_length", "max_length", "max_length_ratio")
KEYS = ("target_lang", "shared_vocabulary", "max_source_tokens", "max_positions", "batch_tokens", "shortlist")


@pytest.mark.parametrize("value", [None, "", "1", [], {}, -1, 1e99, 10**30, True, False, float("nan"), float("inf")])
@pytest.mark.parametrize("key", [*KEYS, "compute_type", *(f"search.{name}" for name in NUMBERS)])
def test_forged_settings_are_refused_or_harmless(folder: ModelDir, key: str, value: object) -> None:
    set_setting(folder, key, value)
    found = model_or_error(folder)
    if isinstance(found, InputError):
        assert "\n" not in found.message
        assert any(word in found.message for word in ("settings.json", "source.json", "no shortlist"))
        return
    name = key.split(".")[-1]
    kinds = {"target_lang": str, "compute_type": str, "shared_vocabulary": bool, "shortlist": bool}
    kind = kinds.get(name, float if name in ("length_penalty", "max_length_ratio") else int)
    assert type(value) is kind or (kind is float and type(value) is int), f"{key} took {value!r}"
    assert kind is not int or 0 <= value <= 10**9


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("search.beam_size", 0), ("search.n_best", 0), ("search.n_best", 7), ("search.min_length", 300)),
        *(("search.max_length_ratio", float(value)) for value in ("nan", "inf")),
        ("max_source_tokens", 10**9),
    ],
)
def test_forged_numbers_that_no_search_can_use(folder: ModelDir, key: str, value: float) -> None:
    set_setting(folder, key, value)
    found = model_or_error(folder)
    assert isinstance(found, InputError) or found.translator.best([*ENGLISH, "Two men " * 40], found.settings.search)


@pytest.mark.parametrize("key", ["target_lang", "max_positions", "batch_tokens", "search", None])
def test_settings_with_a_missing_or_an_extra_key(folder: ModelDir, key: str | None) -> None:
    edit_json(folder.settings, lambda content: content.pop(key) if key else content.update(extra=1))
    reseal(folder)
    assert "settings.json" in refusal(folder)
