"""Measures translation speed against other toolkits, with the same weights and sentences, all in one run and in turn.

    python scripts/bench_decoding.py --model runs/multi30k-en-de/model --peers ../peers/bin/python
    python scripts/bench_decoding.py --model MODEL --fast FAST --reference data/multi30k/test_2016_flickr.de
    python scripts/bench_decoding.py --model MODEL --only "mt int8" "ctranslate2 client int8" --sentences 200

Each contestant is a process of its own, which translates when told to, one after another, round after round: mt's
engines, tokenizing and detokenizing included in their time; CTranslate2's own client and, in an interpreter of their
own (`--peers`), transformers and JoeyNMT with the same weights, from token ids to token ids. The first round warms up
and is not counted; of CTranslate2's client all settings take part in it, and the fastest goes on. `same` is the share
of translations that are equal to those of the first contestant. See bench_decoding_peers.py.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from bench_decoding_peers import serve

from mt.bundle.open import open_model, read_config
from mt.data.lines import read_lines
from mt.data.tokenizer import BpeTokenizer, TokenizerPair
from mt.decoding.engine import Engine, EngineChoice, Hypothesis, SearchOptions
from mt.errors import MtError
from mt.run_dir import ModelDir

HERE = Path(__file__)
# Name: which of the two model folders, and the engine.
OURS: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "cpu": {
        "mt torch": ("model", {"engine": "torch", "compute_type": "float32"}),
        "mt float32": ("model", {"engine": "ctranslate2", "compute_type": "float32"}),
        "mt int8": ("model", {"engine": "ctranslate2", "compute_type": "int8"}),
        "mt int8 shortlist": ("model", {"engine": "ctranslate2", "compute_type": "int8", "shortlist": True}),
        "mt fast float32": ("fast", {"engine": "ctranslate2", "compute_type": "float32"}),
        "mt fast int8 shortlist": ("fast", {"engine": "ctranslate2", "compute_type": "int8", "shortlist": True}),
    },
    "cuda": {
        "mt torch float32": ("model", {"engine": "torch", "compute_type": "float32"}),
        "mt torch bfloat16": ("model", {"engine": "torch", "compute_type": "bfloat16"}),
    },
}
CLIENTS = {"ctranslate2 client": "float32", "ctranslate2 client int8": "int8"}
PEERS = {"transformers": "transformers", "joeynmt": "joeynmt.search"}
NAMES = [*OURS["cpu"], *OURS["cuda"], *CLIENTS, *PEERS]


def main() -> int:
    """Print two tables for each way to search and batch size."""
    if sys.argv[1:2] == ["--worker"]:
        serve(Ours(*map(json.loads, sys.argv[2:])), json.loads(sys.argv[3])["device"])
        return 0
    arguments = _arguments()
    try:
        with tempfile.TemporaryDirectory() as folder:
            task = Task.read(arguments, Path(folder) / "spec.json")
            for batch in (64, 1):
                for beam in (5, 1):
                    _compare(task, beam, batch)
    except MtError as error:
        print(f"bench_decoding: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _say(sentence: str) -> None:
    print(f"bench_decoding: {sentence}", file=sys.stderr, flush=True)


# ---- mt's own worker ------------------------------------------------------------------------------------------------


class Counting:
    """An engine that counts the tokens it puts out."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.tokens = 0

    def translate(self, sentences: Any, options: SearchOptions) -> list[list[Hypothesis]]:
        found = self.engine.translate(sentences, options)
        self.tokens += sum(len(hypotheses[0].ids) for hypotheses in found)
        return found


class Ours:
    """Text in, text out, through what `mt translate` uses."""

    def __init__(self, where: dict[str, str], choice: dict[str, Any]) -> None:
        self.lines = json.loads(Path(where["spec"]).read_text(encoding="utf-8"))["lines"]
        opened = open_model(ModelDir(Path(where["model"])), EngineChoice(**choice))
        self.translator, self.options = opened.translator, opened.settings.search
        self.engine = self.translator._engine = Counting(self.translator._engine)

    def translate(self, request: dict[str, int]) -> list[str]:
        options = replace(self.options, beam_size=request["beam"])
        lines, self.engine.tokens = self.lines[: request["sentences"]], 0
        calls = [[line] for line in lines] if request["batch"] == 1 else [lines]
        return [found[0].text for call in calls for found in self.translator.translate(call, options)]

    def counted(self, translations: list[str]) -> tuple[list[str], int]:
        return translations, self.engine.tokens


# ---- the contestants ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """What is to be translated; `spec` is a file that the workers read."""

    arguments: argparse.Namespace
    spec: Path
    target: BpeTokenizer
    references: list[str]

    @classmethod
    def read(cls, arguments: argparse.Namespace, spec: Path) -> "Task":
        """Reads text, configuration and tokenizers, and writes the workers' file."""
        config, folder = read_config(ModelDir(arguments.model)), ModelDir(arguments.model)
        pair = TokenizerPair.load(folder.tokenizer, config.tokenizer.shared)
        lines = list(islice(read_lines(arguments.source), max(arguments.sentences, arguments.singles)))
        content = {
            "model": str(arguments.model.resolve()),
            "device": arguments.device,
            "lines": lines,
            "sources": pair.source.encode_batch(lines),
            "source_pieces": pair.source.tokens(range(pair.source.vocab_size)),
            "target_pieces": pair.target.tokens(range(pair.target.vocab_size)),
            "shared_vocabulary": config.tokenizer.shared,
            "shape": config.model.model_dump(mode="json"),
            **{name: getattr(config.decoding, name) for name in ("length_penalty", "max_length", "max_length_ratio")},
        }
        spec.write_text(json.dumps(content), encoding="utf-8")
        references = list(islice(read_lines(arguments.reference), len(lines))) if arguments.reference else []
        return cls(arguments, spec, pair.target, references)


@dataclass
class Contestant:
    """A process that translates when told to, and what it has done in the rounds that count.

    Attributes:
        setting: what tells it from others of its name.
        translations: the last round's, as text.
    """

    name: str
    setting: str
    process: subprocess.Popen[str]
    seconds: list[float] = field(default_factory=list)
    tokens: int = 0
    peak: int = 0
    translations: list[str] = field(default_factory=list)

    def ask(self, request: dict[str, int]) -> Any:
        """One round; None where it has stopped."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        return self.answer()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def rates(self) -> list[float]:
        return [len(self.translations) / seconds for seconds in self.seconds]


def _commands(task: Task, batch: int) -> Iterator[tuple[str, str, list[str]]]:
    """Name, setting and command of all that can take part."""
    a = task.arguments
    for name, (which, choice) in OURS[a.device].items():
        folder = getattr(a, which)
        if name not in a.only or folder is None:
            continue
        if choice.get("shortlist") and not ModelDir(folder).shortlist("int8").is_file():
            _say(f"{folder} has no shortlist: no {name}")
            continue
        choice = {"shortlist": False, **choice, "device": a.device, "one_by_one": batch == 1}
        where = {"model": str(folder), "spec": str(task.spec)}
        yield name, "", [sys.executable, str(HERE), "--worker", json.dumps(where), json.dumps(choice)]
    script = str(HERE.with_name("bench_decoding_peers.py"))
    for name, number_format in CLIENTS.items():
        if name in a.only and a.device == "cpu":
            for label, setting in _settings(a.threads, batch):
                setting = json.dumps(setting | {"compute_type": number_format})
                yield name, label, [sys.executable, script, "ctranslate2", str(task.spec), setting]
    for name, module in PEERS.items():
        if name in a.only and a.peers:
            if _has(a.peers, module):
                yield name, "", [a.peers, script, name, str(task.spec)]
            else:
                _say(f"{a.peers} cannot import {module}: no {name}")


def _settings(threads: int, batch: int) -> Iterator[tuple[str, dict[str, int]]]:
    """The ways to use CTranslate2's client that are tried."""
    workers = {(1, threads), (1, 1)} if batch == 1 else {(1, threads), (threads, 1)}
    for inter, intra in sorted(workers):
        for size in (1,) if batch == 1 else (16, 32, 64):
            label = f"{inter} x {intra} threads, batches of {size}"
            yield label, {"inter_threads": inter, "intra_threads": intra, "max_batch_size": size}


def _has(python: str, module: str) -> bool:
    try:
        return subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode == 0
    except OSError as error:
        raise SystemExit(f"bench_decoding: --peers {python}: {error.strerror}; name a Python interpreter") from None


# ---- one table ------------------------------------------------------------------------------------------------------


def _compare(task: Task, beam: int, batch: int) -> None:
    """All contestants are started anew, so that each one's peak memory is that of this search and batch size."""
    a = task.arguments
    request = {"beam": beam, "batch": batch, "sentences": a.singles if batch == 1 else a.sentences}
    environment = os.environ | {name: str(a.threads) for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS")}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    with contextlib.ExitStack() as stack:
        contestants = []
        for name, setting, command in _commands(task, batch):
            process = stack.enter_context(subprocess.Popen(command, **pipes))
            stack.callback(process.kill)
            contestant = Contestant(name, setting, process)
            if contestant.answer() is None:
                _say(f"{name} did not start; its message is above")
            else:
                contestants.append(contestant)
        contestants = _warm_up(contestants, request)
        for number in range(1, a.rounds + 1):
            for contestant in contestants:
                _round(task, contestant, request)
            shown = ", ".join(f"{c.name} {c.rates()[-1]:,.1f}" for c in contestants)
            _say(f"beam {beam}, batch {batch}, round {number}: {shown} sentences/s")
        _table(task, contestants, request)


def _warm_up(contestants: list[Contestant], request: dict[str, int]) -> list[Contestant]:
    """The round that does not count; of several settings of one name the fastest stays."""
    fastest: dict[str, tuple[float, Contestant]] = {}
    for contestant in contestants:
        # A first call also builds things, so one that competes gets a second.
        answers = [contestant.ask(request) for _ in range(2 if contestant.setting else 1)]
        if None in answers:
            _say(f"{contestant.name} stopped; its message is above")
            continue
        seconds = min(answer["seconds"] for answer in answers)
        if contestant.name not in fastest or seconds < fastest[contestant.name][0]:
            fastest[contestant.name] = (seconds, contestant)
    chosen = [contestant for _, contestant in fastest.values()]
    for contestant in contestants:
        if contestant not in chosen:
            contestant.process.kill()
    return chosen


def _round(task: Task, contestant: Contestant, request: dict[str, int]) -> None:
    answer = contestant.ask(request)
    if answer is None:
        raise SystemExit(f"bench_decoding: {contestant.name} stopped; its messages are above")
    contestant.seconds.append(answer["seconds"])
    contestant.tokens, contestant.peak = answer["tokens"], answer["peak"]
    found = answer["translations"]
    contestant.translations = found if isinstance(found[0], str) else task.target.decode_batch(found)


def _table(task: Task, contestants: list[Contestant], request: dict[str, int]) -> None:
    a, search = task.arguments, "greedy" if request["beam"] == 1 else f"beam {request['beam']}"
    rounds = f"{a.rounds} rounds of {request['sentences']:,} sentences"
    print(f"\n{search}, batch {request['batch']}: {rounds}, {a.threads} threads, {a.device}\n")
    print("| | sentences/s | from - to | output tokens/s | peak memory | BLEU | same |")
    print("|---|---|---|---|---|---|---|")
    for c in contestants:
        rates, same = c.rates(), zip(c.translations, contestants[0].translations, strict=True)
        print(
            f"| {c.name} | {median(rates):,.1f} | {min(rates):,.1f} - {max(rates):,.1f} "
            f"| {c.tokens / median(c.seconds):,.0f} | {c.peak / 1e6:,.0f} MB | {_bleu(task, c.translations)} "
            f"| {sum(x == y for x, y in same) / len(c.translations):.0%} |"
        )
    for c in contestants:
        if c.setting:
            print(f"\n{c.name}: {c.setting}, the fastest of what was tried")
    _ratios(contestants)


def _ratios(contestants: list[Contestant]) -> None:
    """Round by round, so that a machine that slows down for a while slows both sides of a ratio."""
    ours = [c for c in contestants if c.name.startswith("mt ")]
    peers = [c for c in contestants if c not in ours]
    if ours and peers:
        print("\n| times as fast as | " + " | ".join(peer.name for peer in peers) + " |")
        print("|---|" + "---|" * len(peers))
    for own in ours if peers else []:
        cells = []
        for peer in peers:
            ratios = [theirs / mine for mine, theirs in zip(own.seconds, peer.seconds, strict=True)]
            cells.append(f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
        print(f"| {own.name} | " + " | ".join(cells) + " |")
    print(flush=True)


def _bleu(task: Task, translations: list[str]) -> str:
    if not task.references:
        return ""
    from sacrebleu.metrics.bleu import BLEU

    return f"{BLEU().corpus_score(translations, [task.references[: len(translations)]]).score:.1f}"


def _arguments() -> argparse.Namespace:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="model folder")
    parser.add_argument("--fast", type=Path, help="a second one, with a deep encoder and a shallow decoder")
    parser.add_argument("--peers", help="Python interpreter that has transformers, joeynmt or both")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--rounds", type=int, default=3, help="rounds that count")
    parser.add_argument("--sentences", type=int, default=1000, help="how many at once, in batches of 64 or its own")
    parser.add_argument("--singles", type=int, default=100, help="how many one by one")
    parser.add_argument("--source", type=Path, default=Path("data/multi30k/test_2016_flickr.en"))
    parser.add_argument("--reference", type=Path, help="for BLEU")
    parser.add_argument("--threads", type=int, default=cores)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    return parser.parse_args()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
