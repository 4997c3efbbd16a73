"""Options that several commands share, and the search that they ask for."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from mt.api.search import Search, SearchRequest
from mt.api.texts import known_names
from mt.cli.completion import configurations, languages, one_of, run_folders
from mt.console import set_up_logging
from mt.decoding.engine import EngineChoice
from mt.errors import InputError, contradict

Command = Callable[..., Any]
Option = Callable[[Command], Command]

MODEL_HELP = "A run folder, a model folder or a checkpoint. Default: the newest finished run."
ENGINE_OPTIONS = ("engine", "compute_type", "shortlist", "device")


def option_group(*options: Option) -> Option:
    """Return one decorator for several options, in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def number_option(*names: str, **attributes: Any) -> Option:
    """Return an option for a number, which is not nan."""
    checked: dict[str, Any] = {"type": float, "callback": _refuse_nan, **attributes}
    return click.option(*names, **checked)


def _refuse_nan(context: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    """Refuse `nan`, which click takes for a number within any range."""
    if value != value:  # only nan differs from itself
        raise click.BadParameter("nan is not a number")
    return value


path_type = click.Path(path_type=Path)
format_type = click.Choice(["text", "jsonl"])
debug_option = click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
verbose_option = click.option(
    "--verbose",
    "-v",
    is_flag=True,
    expose_value=False,
    callback=lambda _context, _parameter, verbose: set_up_logging(verbose),
    help="Log more, such as the engine in use.",
)
force_option = click.option("--force", is_flag=True, help="Overwrite an existing --output.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
device_option = click.option(
    "--device", default="auto", shell_complete=one_of("auto", "cpu", "cuda", "mps"), help="auto, cpu, cuda or mps."
)


def config_options(command: Command) -> Command:
    """Add the configuration, as an argument or as --config; the command gets it as `config`."""

    @functools.wraps(command)
    def call(config: Path | None, config_option: Path | None, **options: Any) -> Any:
        contradict(None not in (config, config_option), f"the argument {config}", f"--config {config_option}")
        path = config or config_option
        if path is None:
            raise InputError("no configuration is named", "give its file: --config FILE, or just FILE")
        return command(config=path, **options)

    complete: dict[str, Any] = {"type": path_type, "shell_complete": configurations}
    option = click.option("--config", "config_option", help="The YAML configuration; or give it as CONFIG.", **complete)
    return click.argument("config", required=False, **complete)(option(call))


set_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Replace a value of the configuration, as in model.d_model=256; may be repeated.",
)
to_option = click.option(
    "--to", metavar="LANG", shell_complete=languages, help="Target language, where the model has several."
)
from_option = click.option(
    "--from",
    "source_lang",
    metavar="LANG",
    shell_complete=languages,
    help="Source language, where the model has several; mt translate takes auto, which detects it.",
)
runs_option = click.option(
    "--runs",
    type=path_type,
    default="runs",
    envvar="MT_RUNS",
    show_default=True,
    help="Folder that holds the runs; also MT_RUNS.",
)
common_options = option_group(runs_option, debug_option)
model_option = click.option("--model", type=path_type, shell_complete=run_folders, help=MODEL_HELP)


def models_option(help_: str) -> Option:
    """Return --model that may be repeated; the value is None if it is not used."""
    several: dict[str, Any] = {"multiple": True, "callback": lambda _context, _parameter, models: models or None}
    return click.option("--model", type=path_type, shell_complete=run_folders, help=help_, **several)


search_options = option_group(
    click.option("--beam", "beam_size", type=click.IntRange(1, 1000), help="Beam size; default: the model's."),
    click.option("--length-penalty", type=float, help="Length penalty of beam search; default: the model's."),
    click.option("--sample", is_flag=True, help="Sample translations instead of searching for the most likely."),
    click.option("--temperature", type=float, help="With --sample: below 1 favours likely tokens. Default: 1."),
    click.option("--top-k", type=click.IntRange(min=1), help="With --sample: only the K most likely tokens."),
    click.option("--top-p", type=float, help="With --sample: only the most likely tokens, of total probability P."),
    click.option("--seed", type=click.IntRange(min=0), help="With --sample: random seed. Default: 1."),
)
mbr_options = option_group(
    click.option("--mbr", type=click.IntRange(2, 1000), help="Minimum Bayes risk: choose among N candidates."),
    click.option("--utility", type=click.Choice(["chrf", "bleu"]), help="With --mbr: its metric. Default: chrf."),
)
engine_options = option_group(
    click.option(
        "--engine",
        default="auto",
        shell_complete=one_of("auto", "ctranslate2", "torch", "torch-graphs"),
        help="auto, ctranslate2, torch, or on a GPU torch-graphs.",
    ),
    click.option("--compute-type", default="auto", help="Number format: auto, float32, int8, bfloat16, ..."),
    click.option("--shortlist/--no-shortlist", default=None, help="Likely target words only; default: the model's."),
    device_option,
    verbose_option,
)
glossary_options = option_group(
    click.option("--glossary", type=path_type, help="Terms that translations must have: TSV (source, target) or TBX."),
    click.option(
        "--keep", multiple=True, metavar="REGEX", help="Keep such text as it is: 'https?://\\S+'; repeatable."
    ),
)
model_options = option_group(
    from_option,
    to_option,
    models_option(MODEL_HELP.replace(".", "; several translate as an ensemble, with the first's settings.", 1)),
    search_options,
    engine_options,
    common_options,
)


def metrics_option(*known: str) -> Option:
    """Return --metrics, a comma-separated list of metrics; the value is empty if it is not used."""

    listed, complete = ", ".join(known), one_of(*known, comma_separated=True)

    def parse(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
        if value is None:
            return ()
        names = tuple(dict.fromkeys(name.strip().lower() for name in value.split(",") if name.strip()))
        if not names:
            raise InputError("--metrics names none", f"choose from {listed}")
        return known_names(names, known, "--metrics")

    return click.option("--metrics", metavar="A,B", callback=parse, shell_complete=complete, help=f"Some of {listed}.")


def engine_choice(options: dict[str, Any]) -> EngineChoice:
    """Return the `EngineChoice` of the engine options."""
    return EngineChoice(**{name: options[name] for name in ENGINE_OPTIONS})


def spelled(argument: str) -> str:
    """Return the command line's option for an argument of a search."""
    return "--beam" if argument == "beam_size" else f"--{argument.replace('_', '-')}"


def pop_search(options: dict[str, Any], n_best: int = 1) -> SearchRequest:
    """Remove the options of a search and --greedy from a command's options, and return them as a `SearchRequest`.

    Raises:
        InputError: they contradict each other, or a value is out of bounds.
    """
    search: dict[str, Any] = {name: options.pop(name) for name in Search.__annotations__ if name in options}
    if options.pop("greedy", False):
        contradict(search["beam_size"] not in (None, 1), "--greedy", "--beam")
        contradict(search["sample"], "--greedy", "--sample")
        contradict(n_best > 1, "--greedy", "--n-best")
        contradict(search.get("mbr") is not None, "--greedy", "--mbr")
        search["beam_size"] = 1
    return SearchRequest.of(search, n_best, spelled)
