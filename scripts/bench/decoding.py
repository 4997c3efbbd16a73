"""Measures translation speed against other toolkits, with the same weights and sentences, all in one run and in turn.

    python scripts/bench/decoding.py --model runs/multi30k-en-de-plain/model --peers ../peers/bin/python
    python scripts/bench/decoding.py --model MODEL --fast FAST --reference data/multi30k/test_2016_flickr.de
    python scripts/bench/decoding.py --model MODEL --only "mt int8" "ctranslate2 client int8" --sentences 200

Each contestant is a process of its own, which translates when told to, one after another, round after round: mt's
engines, tokenizing and detokenizing included in their time; CTranslate2's own client and, in an interpreter of their
own (`--peers`), transformers and JoeyNMT with the same weights, from token ids to token ids. The first round warms up
and is not counted; CTranslate2's client takes part in it with several settings, and continues with the fastest. `same`
is the share of translations that are equal to those of the first contestant. See decoding_peers.py.
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
from itertools import islice, product
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

from decoding_peers import serve

from mt.bundle.load_translator import open_model, read_config
from mt.data.tokenizer import BpeTokenizer
from mt.data.tokenizer_kinds import TokenizerPair
from mt.decoding.engine import EngineChoice, Hypothesis, SearchOptions, Sentences
from mt.errors import MtError
from mt.storage.run_dir import ModelDir
from mt.system.cpus import usable_cores
from mt.text.lines import read_lines

# Name: device, which of the two model folders, engine, number format, and whether with a shortlist.
OURS = {
    "mt torch": ("cpu", "model", "torch", "float32", False),
    "mt float32": ("cpu", "model", "ctranslate2", "float32", False),
    "mt int8": ("cpu", "model", "ctranslate2", "int8", False),
    "mt int8 shortlist": ("cpu", "model", "ctranslate2", "int8", True),
    "mt fast float32": ("cpu", "fast", "ctranslate2", "float32", False),
    "mt fast int8 shortlist": ("cpu", "fast", "ctranslate2", "int8", True),
    "mt torch float32": ("cuda", "model", "torch", "float32", False),
    "mt torch bfloat16": ("cuda", "model", "torch", "bfloat16", False),
    "mt graphs bfloat16": ("cuda", "model", "torch-graphs", "bfloat16", False),
}
CLIENTS = {"ctranslate2 client": "float32", "ctranslate2 client int8": "int8"}
PEERS = {"transformers": "transformers", "joeynmt": "joeynmt.search"}
NAMES = [*OURS, *CLIENTS, *PEERS]


def main() -> int:
    """Print two tables for each way to search and batch size."""
    try:
        if sys.argv[1:2] == ["--worker"]:
            worker = Ours(**json.loads(sys.argv[2]))
            serve(worker, worker.choice.device)
            return 0
        with tempfile.TemporaryDirectory() as folder:
            task = Task(_arguments(), Path(folder) / "spec.json")
            for batch, beam in product(task.arguments.batch, task.arguments.beam):
                _compare(task, beam, batch)
    except (MtError, OSError) as error:
        _say(str(error))
        return 2
    return 0


def _say(sentence: str) -> None:
    print(f"decoding: {sentence}", file=sys.stderr, flush=True)


class Ours:
    """mt's translator, from text to text, as `mt translate` uses it."""

    def __init__(self, spec: str, model: str, **choice: Any) -> None:
        self.lines = json.loads(Path(spec).read_text(encoding="utf-8"))["lines"]
        self.choice = EngineChoice(**choice)
        opened = open_model(ModelDir(Path(model)), self.choice)
        self.translator, self.options = opened.translator, opened.settings.search
        self.engine, self.tokens = self.translator.engine, 0
        self.translator.engine = SimpleNamespace(translate=self.count)

    def count(self, sentences: list[list[int]], options: SearchOptions, prefixes: Sentences) -> list[list[Hypothesis]]:
        """Translate with the engine and count output tokens, which the translator's texts do not show."""
        found = self.engine.translate(sentences, options, prefixes)
        self.tokens += sum(len(hypotheses[0].ids) for hypotheses in found)
        return found

    def translate(self, request: dict[str, int]) -> list[str]:
        options = replace(self.options, beam_size=request["beam"], scores=False)
        lines, self.tokens = self.lines[: request["sentences"]], 0
        calls = [[line] for line in lines] if request["batch"] == 1 else [lines]
        return [found[0].text for call in calls for found in self.translator.translate(call, options)]

    def counted(self, translations: list[str]) -> tuple[list[str], int]:
        return translations, self.tokens


class Task:
    """The model, the sentences and the contestants; `spec` is a file that the workers read."""

    def __init__(self, arguments: argparse.Namespace, spec: Path) -> None:
        self.arguments, self.spec = arguments, spec
        folder = ModelDir(arguments.model)
        self.config = config = read_config(folder)
        pair = self.tokenizers = TokenizerPair.load(folder.tokenizer, config.tokenizer.shared)
        self.lines = list(islice(read_lines(arguments.source), max(arguments.sentences, arguments.singles)))
        self.references = list(read_lines(arguments.reference)) if arguments.reference else []
        content = {
            "model": str(folder.root),
            "device": arguments.device,
            "lines": self.lines,
            "sources": pair.source.encode_batch(self.lines),
            "source_pieces": pair.source.pieces,
            "target_pieces": pair.target.pieces,
            "shared_vocabulary": pair.shared,
            "shape": config.model.model_dump(mode="json"),
            "decoding": config.decoding.model_dump(mode="json") | {"max_length": config.longest_translation},
        }
        spec.write_text(json.dumps(content), encoding="utf-8")
        self.names = list(_available(arguments))


def _available(a: argparse.Namespace) -> Iterator[str]:
    """Yield the contestants that are wanted and available here."""
    for name in (name for name in NAMES if name in a.only):
        if name in PEERS and a.peers:
            test = subprocess.run([a.peers, "-c", f"import {PEERS[name]}"], capture_output=True, check=False)
            if test.returncode == 0:
                yield name
            else:
                _say(f"{a.peers} cannot import {PEERS[name]}: no {name}")
        elif name in OURS and OURS[name][0] == a.device and (folder := getattr(a, OURS[name][1])):
            *_, number_format, shortlist = OURS[name]
            if not shortlist or (ModelDir(folder).converted(number_format) / "vmap.txt").is_file():
                yield name
            else:
                _say(f"{folder} has no shortlist: no {name}")
        elif name in CLIENTS and a.device == "cpu":
            yield name


@dataclass(eq=False)
class Contestant:
    """A process that translates when told to, and what it has done in the rounds that count."""

    name: str
    setting: str  # tells it from others of its name
    process: Any  # a Popen whose pipes are text
    seconds: list[float] = field(default_factory=list)
    tokens: int = 0
    peak: int = 0
    translations: list[str] = field(default_factory=list)  # the last round's, as text

    def ask(self, request: dict[str, int]) -> Any:
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        if line := self.process.stdout.readline():
            return json.loads(line)
        raise SystemExit(f"decoding: {self.name} stopped; its messages are above")

    def round(self, request: dict[str, int], tokenizer: BpeTokenizer) -> None:
        answer = self.ask(request)
        self.seconds.append(answer["seconds"])
        self.tokens, self.peak, found = answer["tokens"], answer["peak"], answer["translations"]
        self.translations = found if isinstance(found[0], str) else tokenizer.decode_batch(found)

    def rates(self) -> list[float]:
        return [len(self.translations) / seconds for seconds in self.seconds]


def _commands(task: Task, batch: int) -> Iterator[tuple[str, str, list[str]]]:
    """Yield name, setting and command of each process."""
    a, spec, script = task.arguments, str(task.spec), str(Path(__file__).with_name("decoding_peers.py"))
    for name in task.names:
        if name in OURS:
            device, which, engine, number_format, shortlist = OURS[name]
            choice = {"engine": engine, "device": device, "compute_type": number_format, "shortlist": shortlist}
            where = {"spec": spec, "model": str(getattr(a, which)), "one_by_one": batch == 1}
            yield name, "", [sys.executable, __file__, "--worker", json.dumps(where | choice)]
        elif name in PEERS:
            yield name, "", [a.peers, script, name, spec]
        else:
            for inter, intra, size in _settings(a.threads, batch):
                setting = json.dumps([CLIENTS[name], inter, intra, size])
                label = f"{inter} x {intra} threads, batches of {size}"
                yield name, label, [sys.executable, script, "ctranslate2", spec, setting]


def _settings(threads: int, batch: int) -> list[tuple[int, int, int]]:
    """Return the settings of CTranslate2's client to try: workers, threads of each, sentences in a batch."""
    workers = {(1, threads), (1, 1)} if batch == 1 else {(1, threads), (threads, 1)}
    return [(*pair, size) for pair in sorted(workers) for size in ([1] if batch == 1 else [16, 32, 64])]


def _compare(task: Task, beam: int, batch: int) -> None:
    """Restart and run all contestants, so that each one's peak memory is that of this search and batch size."""
    a = task.arguments
    wanted = min(len(task.lines), a.singles if batch == 1 else a.sentences)
    request = {"beam": beam, "batch": batch, "sentences": wanted}
    environment = os.environ | {name: str(a.threads) for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS")}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    with contextlib.ExitStack() as stack:
        contestants = []
        for name, setting, command in _commands(task, batch):
            contestant = Contestant(name, setting, stack.enter_context(subprocess.Popen(command, **pipes)))
            stack.callback(contestant.process.kill)
            contestants.append(contestant)
        started = [c for c in contestants if c.process.stdout.readline()]  # all of them load at the same time
        for name in (c.name for c in contestants if c not in started):
            _say(f"{name} did not start; its message is above")
        if not (contestants := started):
            raise SystemExit("decoding: none of the contestants can be had here")
        contestants = _warm_up(contestants, request)
        for number in range(1, a.rounds + 1):
            for contestant in contestants:
                contestant.round(request, task.tokenizers.target)
            shown = ", ".join(f"{c.name} {c.rates()[-1]:,.1f}" for c in contestants)
            _say(f"beam {beam}, batch {batch}, round {number}: {shown} sentences/s")
        _table(task, contestants, request)


def _warm_up(contestants: list[Contestant], request: dict[str, int]) -> list[Contestant]:
    """Run the round that does not count; of several settings of one name, keep the fastest."""
    fastest: dict[str, tuple[float, Contestant]] = {}
    for contestant in contestants:
        # A first call also builds things, so one that competes gets a second.
        seconds = min(contestant.ask(request)["seconds"] for _ in range(2 if contestant.setting else 1))
        if contestant.name not in fastest or seconds < fastest[contestant.name][0]:
            fastest[contestant.name] = (seconds, contestant)
    chosen = [contestant for _, contestant in fastest.values()]
    for contestant in (c for c in contestants if c not in chosen):
        contestant.process.kill()
    return chosen


def _table(task: Task, contestants: list[Contestant], request: dict[str, int]) -> None:
    a, search = task.arguments, "greedy" if request["beam"] == 1 else f"beam {request['beam']}"
    print(f"\n{search}, batch {request['batch']}: {request['sentences']:,} sentences, {a.rounds} rounds,", end=" ")
    print(f"{a.threads} threads, {a.device}\n")
    print("| | sentences/s | from - to | output tokens/s | peak memory | BLEU | same |\n|---|---|---|---|---|---|---|")
    for c in contestants:
        rates, same = c.rates(), zip(c.translations, contestants[0].translations, strict=True)
        print(
            f"| {c.name} | {median(rates):,.1f} | {min(rates):,.1f} - {max(rates):,.1f} "
            f"| {c.tokens / median(c.seconds):,.0f} | {c.peak / 1e6:,.0f} MB | {_bleu(task, c.translations)} "
            f"| {sum(x == y for x, y in same) / len(c.translations):.0%} |"
        )
    for c in (c for c in contestants if c.setting):
        print(f"\n{c.name}: {c.setting}, the fastest of what was tried")
    _ratios(contestants)


def _ratios(contestants: list[Contestant]) -> None:
    """Print the ratios of each round, as a machine that slows down for a while slows both sides of one."""
    ours, peers = ([c for c in contestants if c.name.startswith("mt ") is own] for own in (True, False))
    if ours and peers:
        print("\n| times as fast as | " + " | ".join(peer.name for peer in peers) + " |")
        print("|---" * (1 + len(peers)) + "|")
        for own in ours:
            all_ratios = [[y / x for x, y in zip(own.seconds, peer.seconds, strict=True)] for peer in peers]
            cells = [f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})" for ratios in all_ratios]
            print(f"| {own.name} | " + " | ".join(cells) + " |")
    print(flush=True)


def _bleu(task: Task, translations: list[str]) -> str:
    from mt.metrics.scores import bleu_tokenizer, corpus_bleu

    tokenizer = bleu_tokenizer(task.config.evaluation.bleu_tokenize, task.config.data.target_lang[0])
    references = task.references[: len(translations)]
    return f"{corpus_bleu(translations, references, tokenizer):.1f}" if references else ""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="model folder")
    parser.add_argument("--fast", type=Path, help="a second one, with a deep encoder and a shallow decoder")
    parser.add_argument("--peers", help="Python interpreter that has transformers, joeynmt or both")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--rounds", type=int, default=3, help="rounds that count")
    parser.add_argument("--sentences", type=int, default=1000, help="how many at once, in batches of 64 or its own")
    parser.add_argument("--batch", type=int, nargs="+", choices=(64, 1), default=[64, 1], help="sentences at once")
    parser.add_argument("--beam", type=int, nargs="+", default=[5, 1], help="sizes; 1 is greedy search")
    parser.add_argument("--singles", type=int, default=100, help="how many one by one")
    parser.add_argument("--source", type=Path, default=Path("data/multi30k/test_2016_flickr.en"))
    parser.add_argument("--reference", type=Path, help="for BLEU")
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    return parser.parse_args()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
