"""Options that several commands share, and what they mean together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mt.cli.completing import among, languages, run_folders
from mt.errors import InputError

if TYPE_CHECKING:
    from mt.decoding.engine import SearchOptions
    from mt.storage.run_dir import ModelDir

Command = Callable[..., None]


def _options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one decorator, so that commands can share them."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


path_type = click.Path(path_type=Path)
debug_option = click.option("--debug", is_flag=True, help="Show the traceback of an error.")
to_option = click.option(
    "--to",
    metavar="LANG",
    shell_complete=languages,
    help="The language to translate into, where the model has several.",
)
runs_option = click.option(
    "--runs",
    type=path_type,
    default="runs",
    envvar="MT_RUNS",
    show_default=True,
    help="Folder that holds the runs; also MT_RUNS.",
)
models_option = click.option(
    "--model",
    "models",
    type=path_type,
    multiple=True,
    shell_complete=run_folders,
    help="A run folder, a model folder or a checkpoint; several translate together. Default: the newest finished run.",
)
search_options = _options(
    click.option("--beam", type=click.IntRange(1, 1000), help="Beam size; default: the model's."),
    click.option("--length-penalty", type=float, help="Length penalty of beam search; default: the model's."),
    click.option("--sample", is_flag=True, help="Draw translations by chance instead of searching the likeliest."),
    click.option("--temperature", type=float, help="With --sample: below 1 draws likelier tokens. Default: 1."),
    click.option("--top-k", type=click.IntRange(min=1), help="With --sample: only the K likeliest tokens."),
    click.option("--top-p", type=float, help="With --sample: only the likeliest tokens that have probability P."),
    click.option("--seed", type=click.IntRange(min=0), help="With --sample: start of the random numbers. Default: 1."),
)
mbr_options = _options(
    click.option("--mbr", type=click.IntRange(2, 1000), help="Of N candidates, take the one most like all others."),
    click.option("--utility", type=click.Choice(["chrf", "bleu"]), help="With --mbr: likeness. Default: chrf."),
)
engine_options = _options(
    click.option(
        "--engine",
        default="auto",
        shell_complete=among("auto", "ctranslate2", "torch"),
        help="auto, ctranslate2 or torch.",
    ),
    click.option("--compute-type", default="auto", help="Number format: auto, float32, int8, bfloat16, ..."),
    click.option("--shortlist/--no-shortlist", default=None, help="Likely target words only; default: the model's."),
    click.option(
        "--device", default="auto", shell_complete=among("auto", "cpu", "cuda", "mps"), help="auto, cpu, cuda or mps."
    ),
    click.option("--verbose", "-v", is_flag=True, help="Say more, such as which engine runs."),
)

ENGINE_NAMES = ("engine", "compute_type", "shortlist", "device")


def metrics_option(*known: str) -> Callable[[Command], Command]:
    """--metrics, with the names of some metrics between commas; not given, it is empty."""

    def parse(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
        if value is None:
            return ()
        names = tuple(dict.fromkeys(name.strip().lower() for name in value.split(",") if name.strip()))
        for name in names:
            if name not in known:
                raise InputError(f"--metrics: '{name}' is none of {', '.join(known)}")
        if not names:
            raise InputError("--metrics names none", f"choose from {', '.join(known)}")
        return names

    return click.option(
        "--metrics",
        metavar="A,B",
        callback=parse,
        shell_complete=among(*known, between_commas=True),
        help=f"Some of {', '.join(known)}.",
    )


def engine_choice(given: dict[str, Any], one_by_one: bool = False) -> Any:
    """The engine that options ask for."""
    from mt.decoding.engine import EngineChoice

    chosen = {name: given[name] for name in ENGINE_NAMES}
    return EngineChoice(**chosen, one_by_one=one_by_one, sampling=given["sample"])


def find_models(given: Sequence[Path], runs: Path) -> "list[ModelDir]":
    """The model folders that --model names, or the newest run's."""
    from mt.storage.find_model import find_model

    return [find_model(path, runs) for path in given] or [find_model(None, runs)]


@dataclass(frozen=True)
class Decoding:
    """What the options on searching, drawing and choosing ask for; None where they leave it to the model.

    Attributes:
        utility: choose by minimum Bayes risk among the n best, with this utility.
    """

    beam: int | None
    length_penalty: float | None
    n_best: int
    sampling: dict[str, Any] | None
    utility: str | None

    @classmethod
    def of(cls, given: dict[str, Any], greedy: bool = False, n_best: int = 1) -> "Decoding":
        """Reads the options.

        Raises:
            InputError: they contradict each other.
        """
        sampling = _sampling(given)
        contradict(greedy and given["beam"] not in (None, 1), "--greedy", "--beam")
        contradict(greedy and sampling is not None, "--greedy", "--sample")
        contradict(given["beam"] is not None and sampling is not None, "--beam", "--sample")
        contradict(greedy and n_best > 1, "--greedy", "--n-best")
        penalty = given["length_penalty"]
        if penalty is not None and not -10 <= penalty <= 10:  # NaN is not within bounds either
            raise InputError(f"--length-penalty {penalty} is not between -10 and 10")
        mbr = given.get("mbr")
        contradict(greedy and mbr is not None, "--greedy", "--mbr")
        if given.get("utility") and mbr is None:
            raise InputError("--utility belongs to --mbr", "add --mbr N, or leave it out")
        if mbr is not None and n_best > mbr:
            raise InputError(f"--n-best {n_best} is more than the {mbr} candidates of --mbr", "raise --mbr")
        beam = 1 if greedy else given["beam"]
        utility = None if mbr is None else given["utility"] or "chrf"
        return cls(beam, penalty, mbr or n_best, sampling, utility)

    def search(self, usual: "SearchOptions", scores: bool = True) -> "SearchOptions":
        """A model's search options with what is asked for instead.

        Raises:
            InputError: the beam cannot hold as many translations as are asked for.
        """
        from mt.decoding.engine import Sampling

        sampling = None if self.sampling is None else Sampling(**self.sampling)
        beam = self.beam or usual.beam_size
        if sampling is None and self.n_best > beam:
            if self.beam is not None or self.utility is None:
                option = "--mbr" if self.utility else "--n-best"
                raise InputError(
                    f"{option} {self.n_best} is more than the beam of {beam} can hold",
                    f"give --beam {self.n_best} or more",
                )
            beam = self.n_best
        penalty = usual.length_penalty if self.length_penalty is None else self.length_penalty
        scores = scores or self.utility is not None
        return replace(
            usual, beam_size=beam, n_best=self.n_best, length_penalty=penalty, sampling=sampling, scores=scores
        )

    def utility_for(self, target_lang: str) -> str | None:
        """The utility to choose with in a language."""
        if self.utility is None:
            return None
        from mt.metrics.pairwise import utility_for

        return utility_for(self.utility, target_lang)


def _sampling(given: dict[str, Any]) -> dict[str, Any] | None:
    names = ("temperature", "top_k", "top_p", "seed")
    chosen = {name: given[name] for name in names if given[name] is not None}
    if not given["sample"]:
        for name in chosen:
            raise InputError(f"--{name.replace('_', '-')} belongs to --sample", "add --sample, or leave it out")
        return None
    if not 0.001 <= chosen.get("temperature", 1.0) <= 1000:  # NaN is not within bounds either
        raise InputError(f"--temperature {chosen['temperature']} is not between 0.001 and 1000")
    if not 0 < chosen.get("top_p", 1.0) <= 1:
        raise InputError(f"--top-p {chosen['top_p']} is not a probability above 0")
    return chosen


def contradict(both: bool, one: str, other: str) -> None:
    """Refuses two options that were both given."""
    if both:
        raise InputError(f"{one} and {other} contradict each other", "give one of them")
