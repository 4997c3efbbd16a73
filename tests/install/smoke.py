"""Every kind of command of an installed mt, in an empty folder: `python smoke.py`. Needs no other file, nor a POSIX."""

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import urllib.request
from pathlib import Path

MT = [sys.executable, "-m", "mt"]
RUN = "runs/demo-quick"


def mt(folder: Path, *words: str, stdin: str | None = None) -> str:
    """Run a command that must succeed, and return its stdout."""
    print("$ mt", *words, flush=True)
    done = subprocess.run([*MT, *words], cwd=folder, input=stdin and stdin.encode(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert b"\r" not in done.stdout, "output has the same bytes on all systems"
    return done.stdout.decode()


def check_training(folder: Path) -> None:
    values = "training.max_steps=10 training.warmup_steps=2 training.validate_every=10 decoding.max_length=8".split()
    steps = [word for value in values for word in ("--set", value)]
    first = mt(folder, "demo", "--quick", *steps)
    assert "trained 10 steps" in first
    assert "I love you very much → " in first
    assert "trained 10 steps" in mt(folder, "demo", "--quick", *steps), "the same command again resumes"
    assert (folder / RUN / "report.html").is_file()


def check_translating(folder: Path) -> None:
    assert len(mt(folder, "translate", "Good morning", "Where is your friend?").splitlines()) == 2
    assert len(mt(folder, "translate", "--engine", "torch", stdin="Good morning\n\nYes\n").splitlines()) == 3
    (folder / "page.html").write_text("<p>Good morning</p>\n", encoding="utf-8")
    mt(folder, "translate", "page.html", "--output", "pagina.html")
    assert (folder / "pagina.html").read_text(encoding="utf-8").startswith("<p>")


def check_other_commands(folder: Path) -> None:
    assert json.loads(mt(folder, "eval", "--json"))["results"]
    assert json.loads(mt(folder, "runs", "--json"))[0]["state"] == "finished"
    mt(folder, "data", "check", f"{RUN}/config.yaml", "--examples", "0")
    mt(folder, "export", "ctranslate2", "--output", "exported")
    mt(folder, "init", "--schema")


def check_serving(folder: Path) -> None:
    print("$ mt serve", flush=True)
    server = subprocess.Popen([*MT, "serve", "--port", "0"], cwd=folder, stderr=subprocess.PIPE, encoding="utf-8")
    watchdog = threading.Timer(120, server.kill)
    watchdog.start()
    try:
        assert server.stderr is not None
        url = next(found[0] for line in server.stderr if (found := re.search(r"http://[\d.:]+/", line)))
        body = json.dumps({"q": "Good morning", "source": "en", "target": "it"}).encode()
        request = urllib.request.Request(f"{url}translate", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert json.loads(answer.read())["translatedText"]
        with urllib.request.urlopen(url, timeout=60) as page:
            assert b"<html" in page.read()
    finally:
        watchdog.cancel()
        server.terminate()
        server.wait(60)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ.pop("PYTHONPATH", None)
        where = subprocess.run(
            [sys.executable, "-c", "import mt; print(mt.__file__)"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        assert "site-packages" in where, where
        print(mt(folder, "--version"), where, sep="")
        check_training(folder)
        check_translating(folder)
        check_other_commands(folder)
        check_serving(folder)
    print("done")


if __name__ == "__main__":
    main()
