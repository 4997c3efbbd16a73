"""The Dockerfile and the workflow of continuous integration, neither of which tests can run."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]


def stages() -> dict[str, list[list[str]]]:
    """Return the instructions of each stage of the Dockerfile, split into words, with those of the stage it extends."""
    found: dict[str, list[list[str]]] = {}
    text = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text())
    for line in (line for line in text.splitlines() if line.strip() and line[0] != "#"):
        words = line.split()
        if words[0] == "FROM":
            found[words[3]] = current = list(found.get(words[1], []))
        current.append(words)
    return found


@pytest.mark.parametrize("target", ["cuda", "cpu"])
def test_both_images_serve_as_an_ordinary_user(target: str) -> None:
    instructions = {words[0]: words[1:] for words in stages()[target]}  # the last of each kind holds
    assert instructions["USER"] == ["1000"]
    assert instructions["EXPOSE"] == ["5000"]
    assert instructions["ENTRYPOINT"] == ['["mt"]']
    assert "serve" in instructions["CMD"][0]
    assert "/health" in " ".join(instructions["HEALTHCHECK"])
    assert list(stages())[-1] == "cpu", "the default target"


def test_the_builder_gets_what_is_copied() -> None:
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = [name for words in stages()["build"] if words[0] == "COPY" for name in words[1:-1]]
    assert {*copied, "constraints.txt"} == sent
    assert all((ROOT / name).exists() for name in sent)


def test_hadolint_finds_nothing() -> None:
    program = shutil.which("hadolint", path=Path(sys.executable).parent)
    if program is None:
        pytest.skip("hadolint is not installed; its package is for Linux on x86-64 only")
    done = subprocess.run([program, "Dockerfile"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_workflow_runs_what_exists_on_three_systems() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    jobs = workflow["jobs"]
    assert set(jobs["install"]["strategy"]["matrix"]["os"]) == {"ubuntu-latest", "macos-latest", "windows-latest"}
    assert {need for job in jobs.values() for need in [job.get("needs")] if need} <= set(jobs)
    steps = [step for job in jobs.values() for step in job["steps"]]
    assert all(("run" in step) != ("uses" in step) for step in steps)
    runs = " ".join(step.get("run", "") for step in steps)
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"make (\S+)", runs)) == {"test", "dist"} <= set(targets)
    assert all((ROOT / name).is_file() for name in re.findall(r"\S+\.py", runs))
    assert any("hadolint" in step.get("uses", "") for step in steps)
