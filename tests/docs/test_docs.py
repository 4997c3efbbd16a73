"""The documentation: every command in it runs, every page is in the site, every file it names exists."""

import doctest
import importlib
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import mt as mt_package
from command import mt
from conftest import CONFIG, TWO_LANGUAGES, into, made_once, write_corpus, write_many_languages
from web_helpers import zipped

ROOT = Path(__file__).parents[2]
SITE = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *SITE]
JOEYNMT = """\
name: small
data: {train: corpus, dev: val, src: {lang: en}, trg: {lang: de}}
model: {encoder: {type: transformer, num_layers: 1}, decoder: {type: transformer, num_layers: 1}}
training: {batch_size: 400, batch_type: token, scheduling: noam}
"""
OTHER = {"yaml", "text", "python", "json"}  # blocks that hold no commands
# Commands that a test cannot run, and why.
NOT_RUN = {
    "pip install": "the tests do not install",
    "mt demo": "trains for minutes; tests of its own",
    "docker ": "needs Docker and a network",
    "wandb sync": "sends to a server",
    "mt init --opus": "needs OPUS's server; tests of its own",
    "mt import Helsinki-NLP/": "needs the hub; tests of its own",
    "mt import facebook/": "needs the hub; tests of its own",
    "mt import opus-2020": "needs a model of OPUS-MT; tests of its own",
    "mt translate --model m2m-both": "needs the hub; tests of its own",
    "make ": "continuous integration runs `make test`, and the others take minutes",
    ". .venv": "the tests run in the environment already",
    ".venv/bin/": "the tests run in an environment of their own",
    "python -m venv": "installs gigabytes",
    "sbatch": "needs a cluster",
    "nvidia-cuda-mps-control": "needs a GPU",
    "echo quit | nvidia": "needs a GPU",
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "needs two machines",
    "mt eval --metrics bleu,comet": "needs COMET's package and a checkpoint",
    "python scripts/bench/": "takes minutes",
    "python scripts/experiments.py": "takes hours",
    "python scripts/score_multi30k.py": "needs Multi30k; tests of its own",
    "python scripts/time_to_quality.py": "needs the runs of a comparison; tests of its own",
}

# For the letters of the training text
ENGLISH = "the house tree garden always because people something yellow window".split()
GERMAN = "die Häuser Baum Garten immer weil Leute etwas gelb Fenster".split()


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """Yield language and content of the fenced blocks of a page."""
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        yield match[1], match[2]


def commands(page: Path) -> list[str]:
    """Return the commands of a page in their order; continued lines are joined."""
    shell = [content.replace("\\\n", " ") for language, content in blocks(page) if language == "sh"]
    return [line.strip() for content in shell for line in content.splitlines() if line.strip() and line[0] != "#"]


def runnable(page: Path) -> list[str]:
    return [command for command in commands(page) if not command.startswith(tuple(NOT_RUN))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_are_well_formed(page: Path) -> None:
    text = page.read_text()
    assert {language for language, _ in blocks(page)} <= {"sh", *OTHER}
    assert not re.search(r"^ {4}(mt|python|torchrun|make) ", text, re.MULTILINE), "not in a block"
    assert max(map(len, text.splitlines())) <= 100
    for name in re.findall(r"`((?:src/mt|tests|scripts|docs|configs)/[\w./]+)`", text):
        assert (ROOT / name).exists(), name


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 110


def test_every_exception_is_needed() -> None:
    everything = [command for page in PAGES for command in commands(page)]
    assert [start for start in NOT_RUN if not any(command.startswith(start) for command in everything)] == []


@pytest.fixture(scope="session")
def documented(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with small versions of all files and runs that the pages name; no test may write into it."""
    return made_once(tmp_path_factory, "documented", _write_documented)


def _write_documented(folder: Path) -> None:
    write_corpus(folder)

    def copy(source: str, *targets: str) -> None:
        for target in targets:
            (shutil.copytree if (folder / source).is_dir() else shutil.copy)(folder / source, folder / target)

    for language, ours in {"en": "en", "de": "xx"}.items():
        copy(f"train.{ours}", f"corpus.{language}", *(f"{letter}.{language}" for letter in "abvt"))
        copy(f"valid.{ours}", f"val.{language}")
    for name, words in {"corpus.en": ENGLISH, "corpus.de": GERMAN}.items():  # single letters are in no language
        letters = (folder / name).read_text()
        (folder / name).write_text(re.sub("[a-z]", lambda letter, words=words: words[ord(letter[0]) % 10], letters))
    copy("train.en", "text.1")
    copy("train.xx", "text.2", "train.de")
    copy("test.en", "new.en")
    copy("test.xx", "test.de", "other-system.de", "one.de", "two.de", "new.de")
    for name in ("sentences.en", "mono.de"):
        (folder / name).write_text("a b\nc d e\n")
    (folder / "manual.md").write_text("# a b\n\nc **d** e\n")
    (folder / "page.html").write_text("<p>a b</p>\n")
    (folder / "film.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\na b\n")
    (folder / "terms.csv").write_text("en,de\na b,\n")
    (folder / "terms.tsv").write_text("a\tx\n")
    sides = "".join(f'<langSet xml:lang="{code}"><term>a</term></langSet>' for code in ("en", "de"))
    (folder / "terms.tbx").write_text(f"<martif><termEntry>{sides}</termEntry></martif>")
    (folder / "begun.de").write_text("a\n\n")
    _write_other_kinds(folder)
    (folder / "transformer_small.yaml").write_text(JOEYNMT)
    (folder / "train.sh").write_text(
        "fairseq-train data-bin/en_de --arch transformer_tiny --lr 1e-3 --max-tokens 400\n"
    )
    (folder / ".config" / "fish" / "completions").mkdir(parents=True)

    small = CONFIG.replace("xx", "de").replace("train.", "corpus.").replace("valid.", "val.").replace("24", "6")
    small = small.replace("name: tiny", "name: mine")
    (folder / "mine.yaml").write_text(small)
    for path in (ROOT / "configs").rglob("*.yaml"):
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        name = re.search(r"^name: (.*)$", path.read_text(), re.MULTILINE)
        target.write_text(small.replace("name: mine", f"name: {name[1] if name else 'x'}"))
    teacher, model = "teacher: {train: {config: mine.yaml}}", "model: {step: teacher}"
    pipeline = f"name: student\nsteps:\n  {teacher}\n  text: {{distill: {{{model}, input: corpus.en}}}}\n"
    for name in ("student.yaml", "pipeline.yaml"):
        (folder / name).write_text(pipeline)
    shutil.copytree(ROOT / "scripts", folder / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    reverse = (
        small.replace("name: mine", "name: de-en").replace("_lang: en", "_lang: xx").replace("_lang: de", "_lang: en")
    )
    reverse = re.sub(r"source: (\S+), target: ([^}]+)", r"source: \2, target: \1", reverse).replace(": xx", ": de")
    (folder / "reverse.yaml").write_text(reverse)
    for language, theirs in {"it": "xx", "fr": "yy"}.items():
        for split in ("train", "valid"):
            lines = (folder / f"{split}.en").read_text().splitlines()
            (folder / f"{split}.{language}").write_text("".join(f"{into(theirs, line)}\n" for line in lines))
    for language in ("en", "fr"):
        copy(f"train.{language}", f"book.{language}")
    two = TWO_LANGUAGES.replace("name: two", "name: books").replace("xx", "it").replace("yy", "fr").replace("300", "6")
    (folder / "books.yaml").write_text(two)
    (folder / "many").mkdir()
    write_many_languages(folder / "many")
    (folder / "mixed.txt").write_text("ein Hund\nun chien\n")
    for config in (
        "mine.yaml",
        "reverse.yaml",
        "books.yaml",
        "many/many.yaml --set data.root=many --set training.max_steps=6",
        "mine.yaml --set decoding.shortlist=20 --set name=multi30k-en-de-deep-shallow",
    ):
        run(folder, f"mt train --config {config}")
    copy("runs/mine", *(f"runs/{name}" for name in ("demo", "a", "b", "c")))
    copy("runs/mine/model", "opus-en-de")
    (folder / "runs" / "mine" / "model" / "MANIFEST.json").touch()  # the newest


def _write_other_kinds(folder: Path) -> None:
    """Write the corpus as one file of both languages, and as a folder."""
    texts = {code: (folder / f"corpus.{code}").read_text() for code in ("en", "de")}
    pairs = list(zip(*(text.splitlines() for text in texts.values()), strict=True))
    (folder / "corpus.csv").write_text("English;German\n" + "".join(f"{src};{tgt}\n" for src, tgt in pairs))
    unit = '<tu><tuv xml:lang="en"><seg>{}</seg></tuv><tuv xml:lang="de"><seg>{}</seg></tuv></tu>'
    body = "".join(unit.format(*pair) for pair in pairs)
    (folder / "corpus.tmx").write_text(f"<tmx><body>{body}</body></tmx>")
    (folder / "de-en.txt.zip").write_bytes(zipped({f"Books.de-en.{code}": text for code, text in texts.items()}))
    (folder / "folder").mkdir()
    for code, text in texts.items():
        (folder / "folder" / f"train.{code}").write_text(text)


def run(folder: Path, command: str) -> None:
    """Run a command as a reader would; a server is stopped once it serves."""
    words = shlex.split(command, comments=True)
    serves = words[:2] == ["mt", "serve"]
    if words[0] == "mt" and not serves and not set("".join(words)) & set("|<>;&$*"):
        mt(*words[1:], cwd=folder)
        if words[1] == "init":
            _shorten(max(folder.glob("*.yaml"), key=lambda path: path.stat().st_mtime))
        return
    command = f"timeout --signal TERM 20 {command}" if serves else command
    shell = ["bash", "-c", f'PATH="{Path(sys.executable).parent}:$PATH" HOME="$PWD"; {command}']
    done = subprocess.run(shell, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == (124 if serves else 0), f"{command}\n{done.stderr[-3000:]}"


def _shorten(config: Path) -> None:
    """Let the training that `mt init` has planned end after four steps."""
    shorter = re.sub(r"(max_steps|validate_every): \d+", r"\1: 4", config.read_text())
    config.write_text(re.sub(r"warmup_steps: \d+", "warmup_steps: 1", shorter))


def as_test(page: Path) -> object:
    """Mark pages as slow whose commands train several times; most `mt init` measure the machine for 15 seconds."""
    slow = (
        page.stem in "scaling compare data export finetuning gpu importing pipelines recipes serving".split()
        or sum(one.startswith("mt init") and "--like" not in one for one in commands(page)) > 1
    )
    return pytest.param(page, id=page.stem, marks=[pytest.mark.slow] if slow else [])


@pytest.mark.parametrize("page", [as_test(page) for page in PAGES if runnable(page)])
def test_every_command_of_a_page_runs(page: Path, documented: Path, tmp_path: Path) -> None:
    folder = tmp_path / "reader"
    shutil.copytree(documented, folder)
    if page.stem in ("README", "start"):  # their readers have no run yet
        shutil.rmtree(folder / "runs")
        (folder / "mine.yaml").unlink()
    for command in runnable(page):
        run(folder, command)


def test_the_python_of_its_page_runs(documented: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(documented, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for language, content in blocks(ROOT / "docs" / "python.md"):
        assert language == "python"
        # The text of these tests has letters for words, which a cleaning takes for another language.
        exec(content.replace('keep=["identical"]', 'keep=["wrong-language"]'), names)
    assert len(Path("sentences.de").read_text().splitlines()) == 2
    assert names["run"].steps == 20  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["mt", "mt.console"])
def test_examples_in_docstrings(name: str) -> None:
    tried = doctest.testmod(importlib.import_module(name))
    assert tried.attempted
    assert not tried.failed


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its stored output is of 600 steps on the phrasebook; here a tiny corpus has to do."""
    write_corpus(tmp_path)
    monkeypatch.chdir(tmp_path)
    tiny = yaml.safe_load(CONFIG)
    names: dict[str, object] = {}
    cells = json.loads((ROOT / "docs" / "python.ipynb").read_text())["cells"]
    for source, outputs in ((cell["source"], cell["outputs"]) for cell in cells if cell["cell_type"] == "code"):
        exec("".join(source), names)
        if "config" in names and "run" not in names:
            names["config"] |= {key: tiny[key] for key in ("data", "tokenizer", "model", "training", "evaluation")}  # type: ignore[operator]
        assert outputs or "config" in "".join(source)
    assert [run.name for run in mt_package.list_runs()] == ["notebook"]


def test_the_site_is_built_of_all_pages_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    listed = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(page.relative_to(ROOT / "docs").as_posix() for page in SITE)
    build = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    done = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "index.html").is_file()
