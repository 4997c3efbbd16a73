"""The command line: parse, call, print. The only file that prints results, reads the environment, and exits."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from io import BufferedReader, FileIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mt.console import set_up_logging
from mt.errors import InputError, MachineError, MtError

if TYPE_CHECKING:
    from mt.decoding.engine import EngineChoice, SearchOptions
    from mt.decoding.translator import Candidate, Translator

Command = Callable[..., None]

_LINES_AT_ONCE = 4000  # of a file: sorted by length they make good batches, and output still flows


def _options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one decorator, so that commands can share them."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


_path = click.Path(path_type=Path)
_debug = click.option("--debug", is_flag=True, help="Show the traceback of an error.")
_runs = click.option(
    "--runs", type=_path, default="runs", envvar="MT_RUNS", show_default=True, help="Folder that holds the run folders."
)
_model_and_search = _options(
    click.option("--model", type=_path, help="A run folder or a model folder; default: the newest finished run."),
    click.option("--beam", type=click.IntRange(1, 1000), help="Beam size; default: the model's."),
    click.option("--length-penalty", type=float, help="Length penalty of beam search; default: the model's."),
)
_engine = _options(
    click.option("--engine", default="auto", help="auto, ctranslate2 or torch."),
    click.option("--compute-type", default="auto", help="Number format: auto, float32, int8, bfloat16, ..."),
    click.option("--shortlist/--no-shortlist", default=None, help="Likely target words only; default: the model's."),
    click.option("--device", default="auto", help="auto, cpu, cuda or mps."),
    click.option("--verbose", "-v", is_flag=True, help="Say more, such as which engine runs."),
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def app() -> None:
    """Train a machine-translation Transformer from raw parallel text, and use it.

    Try: mt train --config configs/demo.yaml && mt translate "I love you very much"
    """


@app.command()
@click.option("--config", type=_path, required=True, help="The YAML configuration.")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Replace a value, as in model.d_model=256.")
@_runs
@_debug
def train(config: Path, changes: tuple[str, ...], runs: Path, debug: bool) -> None:
    """Train, or go on training: every stage from raw text to a model folder; the same command again resumes.

    Example: mt train --config configs/demo.yaml --set training.max_steps=2000
    """
    from mt.config import load_config

    settings = load_config(config, changes)
    from mt import pipeline

    _print_result(pipeline.run(settings, runs))


@app.command()
@click.argument("text", nargs=-1)
@click.option("--input", "input_", type=_path, help="Read lines from this file; - is stdin.")
@click.option("--output", type=_path, help="Write to this file; - is stdout.")
@click.option("--greedy", is_flag=True, help="Greedy search: a beam of one.")
@click.option("--n-best", type=click.IntRange(min=1), default=1, help="Translations a line, best first.")
@click.option("--format", "format_", default="text", help="text, or jsonl with scores.")
@_model_and_search
@_engine
@_runs
@_debug
def translate(
    text: tuple[str, ...],
    input_: Path | None,
    output: Path | None,
    greedy: bool,
    n_best: int,
    format_: str,
    model: Path | None,
    beam: int | None,
    length_penalty: float | None,
    runs: Path,
    verbose: bool,
    debug: bool,
    **engine: Any,
) -> None:
    """Translate arguments, a file, or standard input line by line: N lines in, N lines out, in order.

    Example: mt translate "I love you very much"
    """
    set_up_logging(verbose)
    if format_ not in ("text", "jsonl"):
        raise InputError(f"--format: '{format_}' is neither text nor jsonl")
    if greedy and beam not in (None, 1):
        raise InputError("--greedy and --beam contradict each other", "give one of them")
    if text and input_:
        raise InputError("--input and text arguments contradict each other", "give one of them")
    from mt.decoding.engine import EngineChoice

    one_by_one = len(text) == 1 or (not text and not input_ and sys.stdin.isatty())
    changes = {"beam_size": 1 if greedy else beam, "length_penalty": length_penalty, "n_best": n_best}
    changes["scores"] = format_ == "jsonl" or n_best > 1
    translator, options = _open_translator(model, runs, EngineChoice(**engine, one_by_one=one_by_one), changes)
    show = _as_json if format_ == "jsonl" else _as_text
    with _writer(output) as write:
        first_line = 1
        for lines in _input_lines(text, input_):
            for line, candidates in zip(lines, translator.translate(lines, options, first_line), strict=True):
                write(show(line, candidates, n_best))
            first_line += len(lines)


@app.command(name="eval")
@click.option("--source", type=_path, help="Test text; default: the run's test set.")
@click.option("--reference", type=_path, help="Its translation, aligned by line.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
@click.option("--output", type=_path, help="Folder for hypotheses and scores.")
@_model_and_search
@_engine
@_runs
@_debug
def evaluate_command(
    source: Path | None,
    reference: Path | None,
    as_json: bool,
    output: Path | None,
    model: Path | None,
    beam: int | None,
    length_penalty: float | None,
    runs: Path,
    verbose: bool,
    debug: bool,
    **engine: Any,
) -> None:
    """Score a model on a test set, greedy and beam: BLEU with interval and signature, chrF, TER.

    Example: mt eval --model runs/demo
    """
    set_up_logging(verbose)
    from mt.bundle.open import open_model, read_config
    from mt.data.lines import read_parallel
    from mt.decoding.engine import EngineChoice
    from mt.evaluate import evaluate, results_json, results_table, write_results
    from mt.run_dir import find_model, run_of

    folder = find_model(model, runs)
    run = run_of(folder)
    if (source is None) != (reference is None):
        raise InputError("--source and --reference go together", "give both, or neither for the run's test set")
    if source is not None and reference is not None:
        name, files = source.stem, (source, reference)
    elif run is not None and run.text_file("test", "source").is_file():
        name, files = "test", (run.text_file("test", "source"), run.text_file("test", "target"))
    else:
        raise InputError(f"{folder.root}: no test set beside this model", "give --source FILE --reference FILE")
    pairs = list(read_parallel(*files))
    if not pairs:
        raise InputError(f"{files[0]}: no line in it", "a test set needs at least one sentence")
    sources, references = [src for src, _ in pairs], [ref for _, ref in pairs]
    opened = open_model(folder, EngineChoice(**engine))
    config = read_config(folder)
    results = evaluate(opened.translator, config, sources, references, beam_size=beam, length_penalty=length_penalty)
    where = output or (run.scores if run else None)
    if where is not None:
        write_results(where, name, results, sources, references)
    as_object = json.dumps(results_json(results, len(sources)), ensure_ascii=False)
    _print_result(as_object if as_json else results_table(results))


def _open_translator(
    model: Path | None, runs: Path, choice: "EngineChoice", changes: dict[str, Any]
) -> "tuple[Translator, SearchOptions]":
    from mt.bundle.open import open_model
    from mt.run_dir import find_model

    opened = open_model(find_model(model, runs), choice)
    options = replace(opened.settings.search, **{key: value for key, value in changes.items() if value is not None})
    if options.n_best > options.beam_size:
        raise InputError(
            f"--n-best {options.n_best} is more than the beam of {options.beam_size} can hold",
            f"give --beam {options.n_best} or more",
        )
    return opened.translator, options


def _as_text(line: str, candidates: "list[Candidate]", n_best: int) -> str:
    if n_best == 1:
        return candidates[0].text
    return "\n".join(f"{rank}\t{c.score:.4f}\t{c.text}" for rank, c in enumerate(candidates, 1))


def _as_json(line: str, candidates: "list[Candidate]", n_best: int) -> str:
    alternatives = [{"text": c.text, "score": c.score, "log_prob": c.log_prob} for c in candidates]
    record = {"source": line, "translation": candidates[0].text, "score": candidates[0].score, "n_best": alternatives}
    return json.dumps(record, ensure_ascii=False)


def _input_lines(text: Sequence[str], path: Path | None) -> Iterator[list[str]]:
    """Batches of lines, as large as is at hand."""
    from mt.data.lines import read_available, read_lines

    if text:
        yield [line.replace("\n", " ") for line in text]
    elif path is not None and str(path) != "-":
        lines = read_lines(path)
        yield from iter(lambda: list(islice(lines, _LINES_AT_ONCE)), [])
    elif sys.stdin.isatty():
        yield from _prompt()
    else:
        yield from read_available(BufferedReader(FileIO(sys.stdin.fileno(), closefd=False)), "stdin")


def _prompt() -> Iterator[list[str]]:
    while True:
        try:
            print("> ", end="", file=sys.stderr, flush=True)
            yield [input()]
        except EOFError:
            print(file=sys.stderr)
            return


class _writer:  # noqa: N801 (reads as the context manager it is)
    """Writes lines to a file that appears when whole, or to stdout at once."""

    def __init__(self, path: Path | None) -> None:
        self._path = None if path is None or str(path) == "-" else path
        self._lines: list[str] = []

    def __enter__(self) -> Callable[[str], None]:
        return self._lines.append if self._path else _print_result

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._path and kind is None:
            from mt import storage

            storage.write_text(self._path, "".join(line + "\n" for line in self._lines))


def _print_result(text: str) -> None:
    """Prints to stdout at once; ends quietly where the reader (`| head`) has seen enough."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # Python flushes stdout again at exit; there it must find somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def main() -> None:
    """Runs the command line; every failure becomes one sentence and an exit code."""
    set_up_logging()
    # Text is UTF-8 whatever the locale, as everywhere else in this project.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    try:
        sys.exit(app.main(standalone_mode=False) or 0)
    except click.Abort:  # Ctrl-C
        sys.exit(130)
    except click.ClickException as error:  # wrong usage
        error.show()
        sys.exit(error.exit_code)
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        known = error if isinstance(error, MtError) else _as_known(error)
        print(f"mt: {known}", file=sys.stderr)
        sys.exit(known.exit_code)


def _as_known(error: Exception) -> MtError:
    if isinstance(error, MemoryError):
        return MachineError("out of memory", "lower training.max_tokens, or close other programs")
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        return MachineError(f"{name}{error.strerror or error}")
    return MtError(f"this is a bug: {type(error).__name__}: {error}", "please report it; --debug shows where")
