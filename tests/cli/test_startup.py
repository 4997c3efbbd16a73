"""Startup: a command imports only what it needs, in a fresh process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from command import mt

HEAVY = {
    "torch",
    "sentencepiece",
    "datasets",
    "pydantic",
    "matplotlib",
    "tqdm",
    "yaml",
    "pyarrow",
    "sacrebleu",
    "safetensors",
    "pandas",
}
CODE = """
import json, sys
words = sys.argv[1:]
sys.argv = ["mt", *words]
from mt.cli import main
try:
    main()
except SystemExit as end:
    code = end.code
modules = sorted({name.split(".")[0] for name in sys.modules} | {"torch._dynamo"} & set(sys.modules))
print(json.dumps({"code": code, "modules": modules, "ours": [name for name in sys.modules if name.startswith("mt.")]}))
"""


def fresh(*words: str, cwd: Path, stdin: str = "") -> tuple[str, str, set[str], set[str]]:
    """Run a command in a fresh process.

    Returns:
        its stdout and stderr, and the names of the packages and of our own modules that it imported.
    """
    done = subprocess.run(
        [sys.executable, "-c", CODE, *words], cwd=cwd, input=stdin, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    *lines, report = done.stdout.splitlines(keepends=True)
    found = json.loads(report)
    assert not found["code"], done.stderr
    return "".join(lines), done.stderr, set(found["modules"]), set(found["ours"])


@pytest.mark.parametrize(
    "options", [[], ["--greedy"], ["--n-best", "2", "--format", "jsonl"], ["--compute-type", "int8"]], ids=" ".join
)
def test_a_translation_imports_nothing_heavy(trained: Path, options: list[str]) -> None:
    stdout, stderr, modules, ours = fresh("translate", "a b", *options, cwd=trained)
    assert len(stdout.splitlines()) == 1
    assert stderr == ""
    assert modules & HEAVY == set()
    assert {"ctranslate2", "tokenizers"} <= modules
    assert not {name for name in ours if name.startswith(("mt.model", "mt.training", "mt.config"))}


def test_translating_stdin_imports_nothing_heavy(trained: Path) -> None:
    stdout, _, modules, _ = fresh("translate", cwd=trained, stdin="a b\n\nc d\n")
    assert len(stdout.split("\n")) == 4
    assert modules & HEAVY == set()


@pytest.mark.slow
def test_the_torch_engine_imports_torch(trained: Path) -> None:
    stdout, _, modules, _ = fresh("translate", "a b", "--engine", "torch", cwd=trained)
    assert stdout == fresh("translate", "a b", cwd=trained)[0]
    assert {"torch", "pydantic", "yaml", "safetensors"} <= modules
    assert not {"ctranslate2", "torch._dynamo"} & modules  # torch's compiler takes a second to import


@pytest.mark.parametrize(
    "words",
    [
        "--help",
        "translate --help",
        *(f"{name} -h" for name in "train eval compare init export data completion".split()),
    ],
)
def test_help_imports_nothing_heavy(tmp_path: Path, words: str) -> None:
    stdout, _, modules, _ = fresh(*words.split(), cwd=tmp_path)
    assert "Usage:" in stdout
    assert modules & (HEAVY | {"ctranslate2", "tokenizers", "numpy"}) == set()


@pytest.mark.parametrize(
    ("options", "engine"),
    [
        ([], "CTranslate2 float32 on cpu"),
        (["--compute-type", "int8"], "CTranslate2 int8 on cpu"),
        (["--engine", "torch"], "torch float32 on cpu"),
    ],
    ids=str,
)
def test_verbose_logs_the_engine(trained: Path, options: list[str], engine: str) -> None:
    quiet = mt("translate", "a b", *options, cwd=trained)
    for flag in ("-v", "--verbose"):
        verbose = mt("translate", "a b", *options, flag, cwd=trained)
        assert verbose.stdout == quiet.stdout
        assert f"engine: {engine}" in verbose.stderr
    assert len(quiet.stdout.splitlines()) == 1
    assert quiet.stderr == ""


@pytest.mark.parametrize("optimizer", [*(pytest.param(o, marks=pytest.mark.slow) for o in ("adam", "adamw")), "muon"])
def test_a_training_imports_neither_torchs_compiler_nor_a_plotting_library(tiny: Path, optimizer: str) -> None:
    options = ["--set", f"training.optimizer={optimizer}", "--set", "training.max_steps=4"]
    _, _, modules, _ = fresh("train", "--config", "tiny.yaml", *options, cwd=tiny)
    assert "torch" in modules
    assert not {"torch._dynamo", "matplotlib", "datasets"} & modules


def test_the_state_of_a_pipeline_imports_nothing_heavy(trained: Path, tmp_path: Path) -> None:
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text(f"name: one\nsteps: {{only: {{train: {{config: {trained}/tiny.yaml}}}}}}\n")
    stdout, _, modules, _ = fresh("pipeline", "status", str(pipeline), cwd=trained)
    assert "only" in stdout
    assert not {"torch", "sacrebleu", "matplotlib", "ctranslate2"} & modules


def test_cleaning_imports_no_plotting_library(trained: Path, tmp_path: Path) -> None:
    options = ["--output", str(tmp_path / "clean"), "--keep", "wrong-language"]
    _, _, modules, _ = fresh("data", "clean", "tiny.yaml", *options, cwd=trained)
    assert "matplotlib" not in modules


def test_distilling_with_ctranslate2_imports_no_torch(trained: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.xx"
    _, _, modules, _ = fresh("distill", "--input", "test.en", "--output", str(output), "--greedy", cwd=trained)
    assert len(output.read_text().splitlines()) == 12
    assert "ctranslate2" in modules
    assert "torch" not in modules


def test_the_modules_of_the_python_api_import_neither_torch_nor_matplotlib() -> None:
    code = (
        "import importlib, json, pkgutil, sys, mt.api\n"
        "names = [module.name for module in pkgutil.iter_modules(mt.api.__path__)]\n"
        "for name in names:\n"
        "    importlib.import_module(f'mt.api.{name}')\n"
        "print(json.dumps([names, sorted({'torch', 'matplotlib'} & set(sys.modules))]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, heavy = json.loads(done.stdout)
    assert {"conversion", "training", "corpora"} <= set(names)
    assert heavy == []
