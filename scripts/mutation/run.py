"""Mutation testing: the share of small breakages of the core that its tests catch.

    python scripts/mutation/run.py run --results mutation.jsonl     # resumes where it was interrupted
    python scripts/mutation/run.py report --results mutation.jsonl

One run of the suite with a probe at each mutant records which tests reach it. Each mutant then runs those tests, the
most specific first, up to `SECONDS` of CPU time; a failure or a timeout is a catch.
"""

import argparse
import ast
import collections
import contextlib
import copy
import importlib
import json
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mutants import PACKAGES, Place, choose, places

PRELOAD = (
    "pytest numpy torch torch._dynamo datasets sacrebleu pydantic ctranslate2 hypothesis matplotlib.figure".split()
)
SCRIPTS = Path(__file__).resolve().parent
MEMORY = 8 << 30  # bytes of data a process may allocate
SECONDS = 15  # CPU seconds of tests for a mutant
# Test files of other packages reach the mutants only in passing.
ELSEWHERE = """doctor serving html markup phrasebook compar completion docs page report test_init. export wandb scripts
card startup yaml languages console config gpu synthesis attention_map reference recipes documents planning""".split()


class Tree:
    """A copy of a working tree whose sources are written without comments, so that mutants differ in nothing else."""

    def __init__(self, origin: Path, work: Path) -> None:
        self.root, self.source = work / "tree", work / "tree" / "src" / "mt"
        shutil.rmtree(self.root, ignore_errors=True)
        listed = ["git", "-C", str(origin), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split("\0"):
            if name and (origin / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(origin / name, self.root / name)
        shutil.copy(SCRIPTS / "mutation_probe.py", self.root / "src")
        self.texts = {str(p.relative_to(self.source)): p.read_text() for p in sorted(self.source.rglob("*.py"))}
        self.modules = {path: ast.parse(text) for path, text in self.texts.items()}
        self.index: dict[str, list[Place]] = collections.defaultdict(list)
        for path, module in self.modules.items():
            for place in places(module, path):
                self.index[place.text].append(place)
        self.restore()

    def restore(self) -> None:
        for path, module in self.modules.items():
            self.write(path, module)

    def write(self, path: str, module: ast.Module) -> None:
        text = ast.unparse(ast.fix_missing_locations(module)) + "\n"
        if (file := self.source / path).read_text() != text:
            file.write_text(text)
            for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
                compiled.unlink()

    def find(self, mutant: dict[str, Any]) -> tuple[Place, ast.stmt] | None:
        """Return a mutant's place in this tree and its statement, or None if the code has changed since."""
        place = mutant["module"], mutant["function"]
        found = [p for p in self.index.get(mutant["old"], []) if (p.path, p.function) == place]
        if not found:
            return None
        return found[min(mutant["occurrence"], len(found) - 1)], ast.parse(mutant["new"]).body[0]

    def probe(self, mutants: list[dict[str, Any]]) -> None:
        """Write the sources with a probe before each mutant's statement, or in the function whose default changes."""
        spots = [(m["id"], *vars(found[0]).values()) for m in mutants if (found := self.find(m))]
        copies = copy.deepcopy((self.modules, [(n, holder, holder[i]) for n, _, _, _, holder, i in spots]))
        for number, holder, node in copies[1]:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                holder, node = node.body, node.body[1 if ast.get_docstring(node) and len(node.body) > 1 else 0]
            probe = ast.parse(f"__import__('mutation_probe').hit({number})").body[0]
            holder.insert(next(i for i, other in enumerate(holder) if other is node), probe)
        for path, module in copies[0].items():
            self.write(path, module)

    @contextlib.contextmanager
    def broken(self, place: Place, new: Any) -> Iterator[None]:
        """Write the file with the statement replaced, and restore it afterwards."""
        old = place.node
        for field in ("body", "orelse", "decorator_list"):
            if hasattr(new, field):
                setattr(new, field, getattr(old, field))
        place.holder[place.index] = new
        try:
            self.write(place.path, self.modules[place.path])
            yield
        finally:
            place.holder[place.index] = old
            self.write(place.path, self.modules[place.path])

    def pytest(self, *arguments: str, timeout: float = math.inf, **environment: str) -> int | None:
        """Run tests on this tree in a fork, which starts faster; returns pytest's exit code, None after a timeout."""
        settings = {"CI": "1", "PYTHONPATH": str(self.root / "src"), **environment}
        options = ["-q", "-p", "no:cacheprovider", "-p", "mutation_probe", f"--basetemp={self.root.parent / 'tmp'}"]
        with (self.root.parent / "pytest.log").open("w") as log:
            if not (child := os.fork()):
                with contextlib.suppress(BaseException):
                    os.setsid()
                    os.chdir(self.root)
                    os.environ.update(settings)
                    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
                    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                    os.dup2(log.fileno(), 1)
                    os.dup2(log.fileno(), 2)
                    sys.path[:1] = [str(self.root / "src")]
                    sys.dont_write_bytecode = "PYTHONDONTWRITEBYTECODE" in settings
                    sys.modules["__main__"] = importlib.import_module("pytest.__main__")  # for multiprocessing
                    os._exit(importlib.import_module("pytest").main([*options, *arguments]))
                os._exit(3)
        deadline = time.monotonic() + timeout
        while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < deadline:
            time.sleep(0.1)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        if ended[0]:
            return os.waitstatus_to_exitcode(ended[1])
        os.waitpid(child, 0)
        return None


def measure(tree: Tree, work: Path, mutants: list[dict[str, Any]], files: list[str]) -> None:
    """Run the suite once and write the tests that reach each mutant, the most specific first, to coverage.json."""
    tree.probe(mutants)
    for name in ("hits", "tests.jsonl"):
        (work / name).unlink(missing_ok=True)
    names = sorted(str(path.relative_to(tree.root)) for path in (tree.root / "tests").rglob("test_*.py"))
    tree.pytest(*(files or [name for name in names if not any(word in name for word in ELSEWHERE)]))
    tree.restore()
    reached: dict[str, set[int]] = collections.defaultdict(set)
    for number, name in map(json.loads, (work / "hits").read_text().splitlines()):
        reached[name].add(number)
    tests = [json.loads(line) for line in (work / "tests.jsonl").read_text().splitlines()]
    print(f"{len(tests)} tests, {sum(not t['passed'] for t in tests)} failed or skipped", file=sys.stderr)
    for test in tests:
        test["hits"] = reached[test["test"]].union(*(reached[f"fixture {name}"] for name in test["fixtures"]))
    tests = sorted((t for t in tests if t["passed"]), key=lambda t: (len(t["hits"]), t["seconds"]))
    selected = {}
    for mutant in mutants:
        chosen, fixtures, seconds, clock = [], {}, 0.0, 0.0
        for test in (t for t in tests if mutant["id"] in t["hits"]):
            total = {**fixtures, **test["fixtures"]}
            cost = test["seconds"] + sum(total.values()) - sum(fixtures.values())
            if seconds + cost <= SECONDS or not chosen:
                chosen, fixtures, seconds = [*chosen, test["test"]], total, seconds + cost
                clock += test["clock"]
        selected[mutant["id"]] = {"tests": chosen, "timeout": 60 + 2 * seconds + 2 * clock}
    (work / "coverage.json").write_text(json.dumps(selected, indent=1))


def run(arguments: argparse.Namespace, results: Path, work: Path) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in PRELOAD:
        importlib.import_module(name)
    origin = arguments.tree.resolve()
    if not (work / "mutants.json").exists():
        mutants = choose(arguments.count, arguments.seed, origin, arguments.packages)
        (work / "mutants.json").write_text(json.dumps(mutants, indent=1, ensure_ascii=False) + "\n")
    mutants, tree = json.loads((work / "mutants.json").read_text()), Tree(origin, work)
    if lost := sum(not tree.find(mutant) for mutant in mutants):
        sys.exit(f"{lost} mutants not found, since the code has changed: choose others with another --results")
    if not (work / "coverage.json").exists():
        measure(tree, work, mutants, arguments.tests)
    coverage = json.loads((work / "coverage.json").read_text())
    results.touch()
    done = {json.loads(line)["id"] for line in results.read_text().splitlines()}
    for mutant in random.Random(0).sample(mutants, len(mutants))[: arguments.limit]:
        if mutant["id"] in done:
            continue
        tests, timeout = coverage[str(mutant["id"])].values()
        start, result, code, found = time.monotonic(), "no test", None, tree.find(mutant)
        if tests and found:
            (work / "selected.json").write_text(json.dumps(tests))
            options = {"PYTHONDONTWRITEBYTECODE": "1", "MUTATION_TESTS": str(work / "selected.json")}
            with tree.broken(*found):
                code = tree.pytest("-x", *sorted({t.partition("::")[0] for t in tests}), timeout=timeout, **options)
            result = {None: "timeout", 0: "survived", 5: "no test"}.get(code, "caught")
        row = {"id": mutant["id"], "result": result, "code": code, "tests": len(tests)}
        with results.open("a") as file:
            file.write(json.dumps({**row, "seconds": round(time.monotonic() - start, 1)}) + "\n")
    report(results, work)


def show(mutant: dict[str, Any], result: str) -> None:
    print(f"\n{mutant['id']}: {result}, {mutant['module']} {mutant['function']} ({mutant['kind']})")
    print(f"  - {mutant['old']}", f"  + {mutant['new']}", sep="\n")


def report(results: Path, work: Path) -> None:
    """Print the share caught in each package, and the survivors."""
    found = {(row := json.loads(line))["id"]: row["result"] for line in results.read_text().splitlines()}
    mutants = [mutant for mutant in json.loads((work / "mutants.json").read_text()) if mutant["id"] in found]
    print("| package | mutants | caught | share |\n|---|---|---|---|")
    for package in [*dict.fromkeys(mutant["package"] for mutant in mutants), "all"]:
        there = [found[mutant["id"]] for mutant in mutants if package in (mutant["package"], "all")]
        caught = sum(result in ("caught", "timeout") for result in there)
        print(f"| {package} | {len(there)} | {caught} | {caught / max(len(there), 1):.0%} |")
    for mutant in mutants:
        if found[mutant["id"]] not in ("caught", "timeout"):
            show(mutant, found[mutant["id"]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["run", "report"])
    parser.add_argument("--tree", type=Path, default=SCRIPTS.parents[1], help="working tree to mutate a copy of")
    parser.add_argument("--results", type=Path, default=Path("mutation.jsonl"), help="results, one a line")
    parser.add_argument("--work", type=Path, help="folder of the copy and its mutants (default: RESULTS.work)")
    parser.add_argument("--packages", nargs="+", default=PACKAGES, choices=PACKAGES, help="whose code to mutate")
    parser.add_argument("--count", type=int, default=160, help="mutants to choose")
    parser.add_argument("--seed", type=int, default=29, help="of that choice")
    parser.add_argument("--limit", type=int, help="mutants to run")
    parser.add_argument("--tests", nargs="*", default=[], help="test files that coverage is measured with")
    arguments = parser.parse_args()
    results = arguments.results.resolve()
    work = (arguments.work or results.with_suffix(".work")).resolve()
    if arguments.action == "report":
        report(results, work)
        return
    work.mkdir(parents=True, exist_ok=True)
    run(arguments, results, work)


if __name__ == "__main__":
    main()
