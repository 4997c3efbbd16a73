"""The documentation: every command in it runs, and every page is in the site."""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from command import mt
from conftest import CONFIG, TWO_LANGUAGES, into, write_corpus

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Blocks of these are no commands.
OTHER = {"yaml", "text", "python", "json"}
# What a test cannot do, and why.
NOT_RUN = {
    "pip install": "the tests do not install",
    "wandb sync": "sends to a server",
    "make ": "continuous integration runs `make test`, and the others take minutes",
    ". .venv": "the tests run in the environment already",
    ".venv/bin/": "the tests do not install",
    "python -m venv": "installs gigabytes",
    "sbatch": "needs a cluster",
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "needs two machines",
    "mt eval --metrics bleu,comet": "needs COMET's package and a checkpoint",
    "python scripts/bench/": "takes minutes",
    "python scripts/experiments.py": "takes hours",
    "python scripts/score_multi30k.py": "needs Multi30k; tests of its own",
    "python scripts/time_to_quality.py": "needs the runs of a comparison; tests of its own",
}


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """The fenced blocks of a page: language and content."""
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        yield match[1], match[2]


def commands(page: Path) -> list[str]:
    """The commands of a page in their order; continued lines are joined."""
    found = [content.replace("\\\n", " ") for language, content in blocks(page) if language == "sh"]
    return [line.strip() for content in found for line in content.splitlines() if line.strip() and line[0] != "#"]


def is_run(command: str) -> bool:
    return not command.startswith(tuple(NOT_RUN))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_blocks_say_what_they_are(page: Path) -> None:
    assert {language for language, _ in blocks(page)} <= {"sh", *OTHER}
    assert not re.search(r"^ {4}(mt|python|torchrun|make) ", page.read_text(), re.MULTILINE), "not in a block"


def test_every_exception_is_needed() -> None:
    everything = [command for page in PAGES for command in commands(page)]
    for start in NOT_RUN:
        assert any(command.startswith(start) for command in everything), start


@pytest.fixture(scope="session")
def documented(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that the pages speak of, in small."""
    folder = tmp_path_factory.mktemp("documented")
    write_corpus(folder)
    for ours, theirs in {"train": "corpus", "valid": "val", "test": "test"}.items():
        for language, other in {"en": "en", "xx": "de"}.items():
            (folder / f"{theirs}.{other}").write_bytes((folder / f"{ours}.{language}").read_bytes())
    for name in ("sentences.en", "mono.de"):
        (folder / name).write_text("a b\nc d e\n")
    (folder / ".config" / "fish" / "completions").mkdir(parents=True)
    for name in ("text.1", "text.2", *(f"{letter}.{language}" for letter in "abvt" for language in ("en", "de"))):
        shutil.copy(folder / f"corpus.{'en' if name[-2:] in ('en', '.1') else 'de'}", folder / name)
    for name in ("other-system.de", "one.de", "two.de", "new.en", "new.de"):
        shutil.copy(folder / f"test.{name[-2:]}", folder / name)
    small = (
        CONFIG.replace("train.xx", "train.de").replace(".xx", ".de").replace("xx", "de").replace("train.", "corpus.")
    )
    small = small.replace("valid.", "val.")
    (folder / "mine.yaml").write_text(small.replace("name: tiny", "name: mine").replace("24", "6"))
    configs = folder / "configs"
    for path in (ROOT / "configs").rglob("*.yaml"):
        target = configs / path.relative_to(ROOT / "configs")
        target.parent.mkdir(parents=True, exist_ok=True)
        name = re.search(r"^name: (.*)$", path.read_text(), re.MULTILINE)
        target.write_text(small.replace("name: tiny", f"name: {name[1] if name else 'x'}").replace("24", "6"))
    shutil.copytree(ROOT / "scripts", folder / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    run(folder, "mt train --config mine.yaml")
    reverse = small.replace("name: tiny", "name: de-en").replace("24", "6")
    reverse = reverse.replace("source_lang: en", "source_lang: xx").replace("target_lang: de", "target_lang: en")
    reverse = re.sub(r"source: (\S+), target: ([^}]+)", r"source: \2, target: \1", reverse).replace(": xx", ": de")
    (folder / "reverse.yaml").write_text(reverse)
    run(folder, "mt train --config reverse.yaml")
    short = "mt train --config mine.yaml --set decoding.shortlist=20 --set name=multi30k-en-de-deep-shallow"
    run(folder, short)
    for name in ("demo", "a", "b", "c"):
        shutil.copytree(folder / "runs" / "mine", folder / "runs" / name)
    two = TWO_LANGUAGES.replace("name: two", "name: books").replace("xx", "it").replace("yy", "fr").replace("300", "6")
    for language, theirs in {"it": "xx", "fr": "yy"}.items():
        for split in ("train", "valid"):
            lines = (folder / f"{split}.en").read_text().splitlines()
            (folder / f"{split}.{language}").write_text("".join(f"{into(theirs, line)}\n" for line in lines))
    (folder / "books.yaml").write_text(two)
    run(folder, "mt train --config books.yaml")
    (folder / "runs" / "mine" / "model" / "MANIFEST.json").touch()  # the newest
    return folder


def run(folder: Path, command: str) -> str:
    """Runs a command as a reader would; one that serves is stopped once it does."""
    words = shlex.split(command, comments=True)
    if words[0] == "mt" and words[1] != "serve" and not set("".join(words)) & set("|<>;&$*"):
        printed = mt(*words[1:], cwd=folder).stdout
        if words[1] == "init":
            _shorten(folder)
        return printed
    if words[:2] == ["mt", "serve"]:
        command = f"timeout --signal TERM 20 {command}"
    shell = ["bash", "-c", f'PATH="{Path(sys.executable).parent}:$PATH" HOME="$PWD"; {command}']
    done = subprocess.run(shell, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == (124 if "mt serve" in command else 0), f"{command}\n{done.stderr[-3000:]}"
    return done.stdout


def _shorten(folder: Path) -> None:
    """What `mt init` has just written would train for minutes."""
    newest = max(folder.glob("*.yaml"), key=lambda path: path.stat().st_mtime)
    shorter = re.sub(r"(max_steps|validate_every): \d+", r"\1: 4", newest.read_text())
    newest.write_text(re.sub(r"warmup_steps: \d+", "warmup_steps: 1", shorter))


def as_test(page: Path) -> object:
    """A page of several `mt init`, which try out the machine for a quarter of a minute each, is a slow one."""
    slow = sum(command.startswith("mt init") for command in commands(page)) > 1
    return pytest.param(page, id=page.stem, marks=[pytest.mark.slow] if slow else [])


@pytest.mark.parametrize("page", [as_test(page) for page in PAGES if any(map(is_run, commands(page)))])
def test_every_command_of_a_page_runs(page: Path, documented: Path, tmp_path: Path) -> None:
    folder = tmp_path / "reader"
    shutil.copytree(documented, folder)
    if page.stem in ("README", "start"):  # whoever reads them has no run yet
        shutil.rmtree(folder / "runs")
        (folder / "mine.yaml").unlink()
    for command in filter(is_run, commands(page)):
        run(folder, command)


def test_the_site_is_built_of_all_pages_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    listed = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(page.relative_to(ROOT / "docs").as_posix() for page in PAGES[2:])
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "index.html").is_file()
