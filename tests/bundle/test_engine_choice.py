"""Which engine opens a model folder: what was asked for, what works here, and one sentence where nothing does."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from shutil import copytree, rmtree

import pytest

from command import mt
from engine_helpers import ENGLISH, reseal, whole_folder
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
    """The name of the engine, which must be able to translate."""
    found = open_model(folder, EngineChoice(**choice))
    assert len(found.translator.best(ENGLISH, OPTIONS)) == len(ENGLISH)
    return found.engine


def test_the_fast_engine_unless_torch_is_asked_for(saved: ModelDir, notices: list[str]) -> None:
    assert opened(saved) == "CTranslate2 float32 on cpu"
    assert opened(saved, engine="ctranslate2", device="cpu") == "CTranslate2 float32 on cpu"
    assert opened(saved, compute_type="int8") == "CTranslate2 int8 on cpu"
    assert opened(saved, engine="torch") == "torch float32 on cpu"
    assert opened(saved, engine="torch", compute_type="bfloat16") == "torch bfloat16 on cpu"
    assert notices == []


def test_both_engines_say_the_same_and_int8_reads_its_own_weights(saved: ModelDir, folder: ModelDir) -> None:
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
def test_what_cannot_be_is_named(saved: ModelDir, choice: dict, words: list[str]) -> None:
    message = refusal(saved, **choice)
    assert all(word in message for word in words)


def test_no_option_reaches_beyond_its_engine(trained: Path) -> None:
    for option, value in ("--engine", "x"), ("--device", "x"), ("--compute-type", "x"):
        for command in (["translate", "a"], ["eval"]):
            done = mt(*command, option, value, cwd=trained, code=2)
            assert option in done.stderr
            assert "Traceback" not in done.stderr
            assert done.stdout == ""


def test_a_number_format_that_this_processor_lacks(saved: ModelDir, notices: list[str]) -> None:
    """No processor computes in float16."""
    assert opened(saved, compute_type="float16") == "CTranslate2 float32 on cpu"
    [notice] = notices
    assert "cannot compute in float16" in notice
    assert "using float32" in notice


# Folders that the fast engine cannot use ----------------------------------------------------------------------------


def without_fast_part(folder: ModelDir) -> None:
    manifest = json.loads(folder.manifest.read_text())
    manifest["files"] = {name: e for name, e in manifest["files"].items() if not name.startswith("ctranslate2/")}
    folder.manifest.write_text(json.dumps(manifest))


def of_a_newer_library(folder: ModelDir) -> None:
    for kind in ("float32", "int8"):
        path = folder.converted(kind) / "model.bin"
        path.write_bytes(struct.pack("<I", 99) + path.read_bytes()[4:])
    reseal(folder)


def of_no_library(folder: ModelDir) -> None:
    for kind in ("float32", "int8"):
        (folder.converted(kind) / "model.bin").write_bytes(b"nonsense" * 9)
    reseal(folder)


def cut_off(folder: ModelDir) -> None:
    for kind in ("float32", "int8"):
        path = folder.converted(kind) / "model.bin"
        path.write_bytes(path.read_bytes()[:-5000])
    reseal(folder)


UNUSABLE = [without_fast_part, of_a_newer_library, of_no_library, cut_off]


@pytest.mark.parametrize("change", UNUSABLE)
def test_torch_takes_over_and_says_so_once(
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


@pytest.mark.parametrize("choice", [{"engine": "ctranslate2"}, {"compute_type": "int8"}], ids=str)
@pytest.mark.parametrize("change", UNUSABLE)
def test_who_asks_for_the_fast_engine_gets_it_or_an_error(
    folder: ModelDir, change: Callable[[ModelDir], None], choice: dict
) -> None:
    change(folder)
    assert "CTranslate2" in refusal(folder, **choice)


def test_a_damaged_file_is_no_reason_to_take_torch(folder: ModelDir, notices: list[str]) -> None:
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


@pytest.mark.parametrize("name", ["float32/model.bin", "float32/config.json", "float32/shared_vocabulary.json"])
def test_what_the_manifest_does_not_list_is_not_used(folder: ModelDir, name: str) -> None:
    """It was not checked."""
    manifest = json.loads(folder.manifest.read_text())
    del manifest["files"][f"ctranslate2/{name}"]
    folder.manifest.write_text(json.dumps(manifest))
    assert name in refusal(folder)


def test_a_shortlist_that_the_manifest_does_not_list_is_not_used(folder: ModelDir) -> None:
    (folder.converted("float32") / VOCABULARY_MAP).write_text("\ta\n")
    refusal(folder, shortlist=True)


# Forged settings ----------------------------------------------------------------------------------------------------

FORGED = [
    b"",
    b"not json",
    b"\xff\xfe",
    b"[]",
    b"{}",
    b"null",
    b"7",
    b'"text"',
    b'{"search": {}}',
    b'{"search": []}',
    b"[" * 100_000,
]


@pytest.mark.parametrize("content", FORGED, ids=lambda content: content[:20])
def test_settings_that_are_none(folder: ModelDir, content: bytes) -> None:
    folder.settings.write_bytes(content)
    reseal(folder)
    assert "settings.json" in refusal(folder)


@pytest.mark.parametrize("value", [None, "", "1", [], {}, -1, 1e99, 10**30, True, False, float("nan"), float("inf")])
@pytest.mark.parametrize(
    "key",
    [
        *("target_lang", "shared_vocabulary", "max_source_tokens", "max_positions", "batch_tokens", "shortlist"),
        *(
            "compute_type",
            "search.beam_size",
            "search.n_best",
            "search.length_penalty",
            "search.min_length",
            "search.max_length",
        ),
        "search.max_length_ratio",
    ],
)
def test_forged_settings_are_refused_or_harmless(folder: ModelDir, key: str, value: object) -> None:
    """Whatever is let in must at least not end in a traceback."""
    content = json.loads(folder.settings.read_text())
    *section, name = key.split(".")
    (content["search"] if section else content)[name] = value
    folder.settings.write_text(json.dumps(content))
    reseal(folder)
    found = model_or_error(folder)
    if isinstance(found, InputError):
        assert "\n" not in found.message
        assert any(word in found.message for word in ("settings.json", "source.json", "no shortlist"))
        return
    kinds = {"target_lang": str, "compute_type": str, "shared_vocabulary": bool, "shortlist": bool}
    kind = kinds.get(name, float if name in ("length_penalty", "max_length_ratio") else int)
    assert type(value) is kind or (kind is float and type(value) is int), f"{key} took {value!r}"
    assert kind is not int or 0 <= value <= 10**9


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("search.beam_size", 0),
        ("search.n_best", 0),
        ("search.n_best", 7),
        ("search.min_length", 300),
        ("search.max_length_ratio", float("nan")),
        ("search.max_length_ratio", float("inf")),
        ("max_source_tokens", 10**9),
    ],
)
def test_forged_numbers_that_no_search_can_use(folder: ModelDir, key: str, value: float) -> None:
    content = json.loads(folder.settings.read_text())
    *section, name = key.split(".")
    (content["search"] if section else content)[name] = value
    folder.settings.write_text(json.dumps(content))
    reseal(folder)
    found = model_or_error(folder)
    assert isinstance(found, InputError) or found.translator.best([*ENGLISH, "Two men " * 40], found.settings.search)


@pytest.mark.parametrize("key", ["target_lang", "max_positions", "batch_tokens", "search"])
def test_settings_without_a_key_or_with_one_more(folder: ModelDir, key: str) -> None:
    content = json.loads(folder.settings.read_text())
    for changed in ({k: v for k, v in content.items() if k != key}, {**content, "extra": 1}):
        folder.settings.write_text(json.dumps(changed))
        reseal(folder)
        assert "settings.json" in refusal(folder)


def test_a_folder_whose_fast_part_was_deleted_works_with_torch(folder: ModelDir, notices: list[str]) -> None:
    """Somebody saved space."""
    rmtree(folder.ctranslate2)
    assert open_model(folder).engine.startswith("torch")
    assert len([line for line in notices if "no CTranslate2 part" in line]) == 1
    assert "no CTranslate2 part" in refusal(folder, engine="ctranslate2")
