"""The distributions: built, checked, and the wheel installed without the checkout."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path

import pytest

import mt

ROOT = Path(__file__).parents[2]
SMOKE = Path(__file__).with_name("smoke.py")
PACKED = ("pyproject.toml", "MANIFEST.in", "LICENSE", "*.md", "constraints.txt", "Makefile", "mkdocs.yml", "Dockerfile")
FOLDERS = ("src", "configs", "docs", "scripts", "tests")


def python(*words: str | Path, cwd: Path, interpreter: str | Path = sys.executable) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MT_RUNS")}
    done = subprocess.run([interpreter, *words], cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    checkout = folder / "checkout"  # a copy, since building writes beside the source
    for name in FOLDERS:
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for path in (path for pattern in PACKED for path in ROOT.glob(pattern)):
        shutil.copy(path, checkout)
    # Without isolation, which would download what builds it.
    python("-m", "build", "--no-isolation", "--outdir", folder / "dist", cwd=checkout)
    return folder / "dist"


def test_the_distributions_are_complete(dist: Path) -> None:
    python("-m", "twine", "check", "--strict", *dist.iterdir(), cwd=dist)
    [wheel], [sdist] = dist.glob("*.whl"), dist.glob("*.tar.gz")
    assert (wheel.name, sdist.name) == (
        f"mt_train-{mt.__version__}-py3-none-any.whl",
        f"mt_train-{mt.__version__}.tar.gz",
    )
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("mt/")}
    sources = (path for path in (ROOT / "src" / "mt").rglob("*") if path.is_file() and path.suffix != ".pyc")
    assert packed == {path.relative_to(ROOT / "src").as_posix() for path in sources}
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "LICENSE",
        "README.md",
        "constraints.txt",
        "configs/demo.yaml",
        "tests/conftest.py",
        "src/mt/py.typed",
    } <= names


@pytest.mark.slow
def test_the_wheel_works_without_the_checkout(dist: Path, tmp_path: Path) -> None:
    """A fresh environment, which borrows the packages that mt needs from this one: they are gigabytes."""
    environment = tmp_path / "environment"
    python("-m", "venv", "--without-pip", environment, cwd=tmp_path)
    fresh = environment / ("Scripts" if os.name == "nt" else "bin") / "python"
    python("-m", "pip", "--python", fresh, "install", "--no-deps", "--no-index", *dist.glob("*.whl"), cwd=tmp_path)
    [packages] = environment.glob("[Ll]ib/**/site-packages")
    # Its .pth files are not followed, so that the editable installation stays behind.
    (packages / "borrowed.pth").write_text(f"{Path(pytest.__file__).parents[1]}\n")
    assert python("--version", cwd=tmp_path, interpreter=fresh.with_name("mt")) == f"mt {mt.__version__}\n"
    shutil.copy(SMOKE, tmp_path)
    printed = python(tmp_path / "smoke.py", cwd=tmp_path, interpreter=fresh)
    assert f"mt {mt.__version__}\n{packages}" in printed
    assert printed.endswith("done\n")


def test_hints_name_the_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pages = [*(ROOT / "src" / "mt").rglob("*.py"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    hints = {line for page in pages for line in page.read_text().splitlines() if "pip install" in line and "mt" in line}
    named = {hint for hint in hints if f"{project['name']}[" in hint}
    assert len(named) >= 6
    for hint in named:
        extra = hint.partition(f"{project['name']}[")[2].partition("]")[0]
        assert set(extra.split(",")) <= set(project["optional-dependencies"]), hint


def test_imported_packages_are_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    declared = {re.split(r"[^\w.-]", requirement)[0] for requirement in requirements}
    # Of pydantic and datasets; and named by the error that asks for them.
    declared |= {"pydantic-core", "huggingface-hub", "unbabel-comet", "sentence-transformers"}
    distributions = {"comet": ["unbabel-comet"], **packages_distributions()}
    for path in (ROOT / "src" / "mt").rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
        for name in {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"mt"}:
            packages = {package.replace("_", "-").lower() for package in distributions.get(name, [name])}
            assert packages & declared, f"{path}: {name}"
