"""`mt runs` and `mt report`."""

import json
import time
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from mt.cli.completion import run_folders
from mt.cli.options import common_options, json_option, path_type
from mt.cli.text import print_result
from mt.console import or_dash, table
from mt.errors import InputError
from mt.storage.find_model import find_model, pipelines_hint, refuse_pipeline
from mt.storage.output_path import refuse_inputs, require_writable
from mt.storage.run_dir import RunDir


@click.group(name="runs", invoke_without_command=True)
@json_option
@common_options
@click.pass_context
def runs_command(context: click.Context, as_json: bool, runs: Path) -> None:
    """List the runs: languages, BLEU, size, date and state; `mt runs show NAME` shows one.

    Example: mt runs
    """
    if context.invoked_subcommand is not None:
        if as_json:
            raise InputError("--json belongs to the list of runs", "leave it out")
        if context.get_parameter_source("runs") is ParameterSource.COMMANDLINE:
            context.obj = runs
        return
    from mt.api.runs import list_runs

    facts = [run.facts() for run in list_runs(runs)]
    if as_json:
        print_result(json.dumps(facts, ensure_ascii=False))
    elif not facts:
        print_result("\n".join(filter(None, [f"no run in {runs}", pipelines_hint(runs)])))
    else:
        header = ["name", "languages", "BLEU", "steps", "MB", "date", "state"]
        print_result(table(header, [_row(run_facts) for run_facts in facts]))


@runs_command.command()
@click.argument("name", type=path_type, shell_complete=run_folders)
@common_options
@click.pass_context
def show(context: click.Context, name: Path, runs: Path) -> None:
    """Show one run: its languages, state, scores and files.

    Example: mt runs show demo
    """
    from mt.api.runs import find_run, next_command

    if context.get_parameter_source("runs") is not ParameterSource.COMMANDLINE:
        runs = context.obj or runs  # `mt runs --runs DIR show NAME`, whatever MT_RUNS says
    run = find_run(name, runs)
    facts = run.facts()
    lines = [
        f"{run.name}: {_languages(facts, ', ', ' to ')}, {facts['state']}",
        f"steps: {facts['steps']:,}; last change {_date(facts['time'])}",
    ]
    for score in run.scores:
        interval = "" if score.get("bleu_low") is None else f" ({score['bleu_low']:.1f} to {score['bleu_high']:.1f})"
        bleu = or_dash(score.get("bleu")) + interval
        origin = f" from {score['source_lang']}" if "source_lang" in score else ""
        zero_shot = " (zero-shot)" if score.get("zero_shot") else ""
        lines.append(f"{score['method']}{origin} into {score['target_lang']}{zero_shot}: BLEU {bleu}")
    files = {"configuration": run.path / "config.yaml", "model": run.model, "report": run.report}
    lines += [f"{title}: {path}" for title, path in files.items() if path.exists()]
    if command := next_command(run, facts["state"]):
        lines.append(f"next: {command}")
    print_result("\n".join(lines))


@click.command()
@click.argument("run", type=path_type, required=False, shell_complete=run_folders)
@click.option("--output", type=path_type, help="The file to write; default: report.html in the run folder.")
@common_options
def report(run: Path | None, output: Path | None, runs: Path) -> None:
    """Write a run's report: one HTML file with curves, scores, data, sentences and attention maps.

    RUN is a run folder, finished or not; default: the newest finished run.

    Example: mt report runs/demo
    """
    from mt.extras.reporting.report import write_report

    if output is not None:
        require_writable(output, "--output")
    folder = run if run is not None else find_model(None, runs).root.parent
    if folder.is_file():
        raise InputError(f"{folder}: a file, not a run folder", "give a run folder (runs/NAME)")
    refuse_pipeline(folder)
    refuse_inputs([output], (path for path in folder.rglob("*") if path.suffix != ".html"))  # but earlier reports
    print_result(str(write_report(RunDir(folder), output)))


def _languages(facts: dict[str, Any], separator: str, between: str) -> str:
    sources = facts["source_lang"] or []
    sides = [sources] if isinstance(sources, str) else sources, facts["target_langs"]
    return between.join(separator.join(side) or "?" for side in sides)


def _row(facts: dict[str, Any]) -> list[str]:
    numbers = [or_dash(facts["bleu"]), f"{facts['steps']:,}", or_dash(facts["megabytes"])]
    return [facts["name"], _languages(facts, "+", "-"), *numbers, _date(facts["time"]), facts["state"]]


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
