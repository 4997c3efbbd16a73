"""`exports` in a configuration: refused when it is read, or written after training."""

import shutil
from pathlib import Path
from typing import get_args

import pytest

from command import mt
from config_helpers import SMALLEST, refusal
from export_helpers import refusal as command_refusal
from mt.api.training import _write_extras
from mt.config import load_config, parse_config
from mt.config.schema import EXPORT_FORMATS, ExportFormat, export_rules
from mt.extras.export import exporting
from mt.extras.export.exporting import check_request, write_exports
from mt.pipeline import run as pipeline
from mt.storage.manifest import verify
from mt.storage.run_dir import RunDir

MANY = """\
name: run
data:
  source_lang: en
  target_lang: [de, fr]
  train:
    - {source: a, target: b, target_lang: de}
    - {source: a, target: c, target_lang: fr}
"""
IMPOSSIBLE = [
    (SMALLEST, "huggingface", "model.activation=swiglu", "swiglu cannot be exported as huggingface"),
    (SMALLEST, "huggingface", "model.positions=rotary", "rotary positions cannot be exported as huggingface"),
    (MANY, "argos", "seed=2", "a model of several target languages cannot be exported as argos"),
    *((SMALLEST, each, "model.architecture=decoder_only", f"cannot be exported as {each}") for each in EXPORT_FORMATS),
]


@pytest.mark.parametrize(("text", "wanted", "change", "reason"), IMPOSSIBLE, ids=str)
def test_the_configuration_and_the_command_have_the_same_rules(
    text: str, wanted: ExportFormat, change: str, reason: str
) -> None:
    output = refusal(text, change, f"exports=[{wanted}]")
    assert "1 problem" in output
    assert reason in output
    config = parse_config(text, "x.yaml", [change])  # valid without exports
    assert reason in next(export_rules(config, wanted)).reason
    for other in EXPORT_FORMATS:
        if other != wanted and "decoder_only" not in change:
            assert parse_config(text, "x.yaml", [change, f"exports=[{other}]"]).exports == (other,)
            assert not list(export_rules(config, other))


def test_the_line_is_named() -> None:
    text = f"{SMALLEST}model:\n  norm: pre\n  activation: swiglu\nexports: [onnx, huggingface]\n"
    assert "x.yaml:8: model.activation: swiglu cannot be exported as huggingface" in refusal(text)
    assert "x.yaml:5: data.target_lang" not in refusal(text)


def test_the_values_of_the_key() -> None:
    assert parse_config(SMALLEST, "x.yaml").exports == ()
    assert parse_config(SMALLEST, "x.yaml", ["exports=[onnx, argos]"]).exports == ("onnx", "argos")
    assert "names onnx more than once" in refusal(SMALLEST, "exports=[onnx, onnx]")
    assert "did you mean argos?" in refusal(SMALLEST, "exports=[argo]")
    assert "must be a list" in refusal(SMALLEST, "exports=onnx")
    output = refusal(SMALLEST, "exports=[paper]")
    assert "exports.0: must be 'ctranslate2'" in output
    assert output.startswith("1 problem")


def test_formats_are_parsed() -> None:
    assert get_args(ExportFormat) == EXPORT_FORMATS
    for name in EXPORT_FORMATS:
        assert check_request(name, None, None) == name


def test_several_languages_are_refused_by_the_command_too(two_languages: Path, tmp_path: Path) -> None:
    given = ["--model", two_languages / "runs" / "two", "--output", "out"]
    assert command_refusal("argos", *given, cwd=tmp_path).startswith("mt: data.target_lang: a model of several")


# After training -------------------------------------------------------------------------------------------------------


def train(folder: Path, exports: str, code: int = 0) -> str:
    done = mt("train", "--config", "tiny.yaml", "--set", f"exports={exports}", cwd=folder, code=code)
    return done.stdout if code == 0 else done.stderr


@pytest.fixture
def again(trained: Path, tmp_path: Path) -> Path:
    """A copy of the trained project."""
    shutil.copytree(trained, tmp_path / "again")
    return tmp_path / "again"


def test_they_are_written_once_and_without_training_again(again: Path) -> None:
    run = RunDir(again / "runs" / "tiny")
    output = train(again, "[ctranslate2]")
    assert "CTranslate2, float32" in output
    assert f"ctranslate2: {run.export('ctranslate2').relative_to(again)}" in output
    model, first = run.model.manifest.stat().st_mtime_ns, run.export("ctranslate2").stat().st_mtime_ns
    output = train(again, "[ctranslate2, huggingface]")
    assert "huggingface: runs/tiny/exports/huggingface" in output
    assert "CTranslate2, float32" not in output
    assert run.model.manifest.stat().st_mtime_ns == model
    assert run.export("ctranslate2").stat().st_mtime_ns == first
    for name in ("ctranslate2", "huggingface"):
        assert verify(run.export(name))["export"] == name
    (run.export("ctranslate2") / "model.bin").write_bytes(b"damaged")
    train(again, "[ctranslate2]")
    verify(run.export("ctranslate2"))


def test_a_failing_export_does_not_affect_the_others(again: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDir(again / "runs" / "tiny")

    def failing(*_: object) -> None:
        raise RuntimeError("something in a library")

    monkeypatch.setattr("mt.extras.export.huggingface.require_equal", failing)
    config = load_config(again / "tiny.yaml", ["exports=[huggingface, ctranslate2]"])
    output = write_exports(config, run)
    assert "huggingface: not exported: RuntimeError: something in a library" in output
    assert not run.export("huggingface").exists()
    assert "ctranslate2: " in output
    verify(run.export("ctranslate2"))


def test_an_impossible_export_is_refused_before_training(tiny: Path) -> None:
    with (tiny / "tiny.yaml").open("a") as file:
        file.write("exports: [huggingface]\n")
    done = mt("train", "--config", "tiny.yaml", "--set", "model.activation=swiglu", cwd=tiny, code=2)
    assert "swiglu cannot be exported as huggingface" in done.stderr
    assert not (tiny / "runs").exists()


def test_too_great_a_loss_does_not_fail_the_run(
    again: Path, monkeypatch: pytest.MonkeyPatch, notices: list[str]
) -> None:
    monkeypatch.chdir(again)
    monkeypatch.setattr(exporting, "MAX_LOSS", -1000.0)
    config = load_config(Path("tiny.yaml"), ["exports=[ctranslate2]"])
    output = pipeline.run(config, Path("runs"), afterwards=_write_extras)
    assert "ctranslate2: not exported: CTranslate2, float32 loses 0.00 BLEU" in output
    assert any("not exported" in line for line in notices)
    assert not RunDir(Path("runs/tiny")).export("ctranslate2").exists()
