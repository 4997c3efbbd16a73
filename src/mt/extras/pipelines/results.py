"""Output of a pipeline: a table of its states, scores and costs, a report, and a script for Slurm."""

import html
import shlex
import time
from collections.abc import Mapping
from pathlib import Path

from mt.console import duration, quoted, table
from mt.extras.pipelines.plan import Plan
from mt.extras.pipelines.records import Record, State, read_record, states
from mt.extras.pipelines.schema import PROGRAM
from mt.extras.reporting.html import Html, details, headline, page
from mt.extras.reporting.html import table as html_table
from mt.storage import atomic
from mt.storage.run_dir import RunDir

_HEADER = ["step", "command", "state", "needs", "BLEU", "chrF", "time", "core time", "MB"]


def status_table(plan: Plan) -> str:
    """Return the steps with their states, scores and costs."""
    return table(_HEADER, _rows(plan, states(plan)))


def write_report(plan: Plan) -> str:
    """Write report.html into the pipeline's folder, and return its path."""
    step_states = states(plan)
    done = sum(state == "done" for state in step_states.values())
    summary = headline("" if done == len(step_states) else "warning", f"{done} of {len(step_states)} steps are done.")
    rows = [[_linked(plan, row[0]), *row[1:]] for row in _rows(plan, step_states)]
    commands = [(name, quoted("mt", *step.words)) for name, step in plan.steps.items()]
    sections = [
        ("Steps", html_table(_HEADER, rows, "numbers named")),
        ("Commands", details("All commands", html_table(["step", "command"], commands, "texts"))),
        ("Pipeline", details(str(plan.pipeline.path), f'<div class="lines">{html.escape(plan.pipeline.text)}</div>')),
    ]
    name, path = plan.pipeline.file.name, plan.folder / "report.html"
    subtitle = f"{plan.pipeline.path}; {time.strftime('%Y-%m-%d %H:%M')}"
    atomic.write_text(path, page(f"{name}: report", name, subtitle, summary, sections))
    return str(path)


def _linked(plan: Plan, name: str) -> str:
    has_report = name in plan.steps and RunDir(plan.steps[name].output).report.is_file()
    return Html(f'<a href="{name}/report.html">{name}</a>') if has_report else name


def _rows(plan: Plan, step_states: Mapping[str, State]) -> list[list[str]]:
    records = {name: read_record(plan, step) for name, step in plan.steps.items()}
    rows = []
    for name, record in records.items():
        cells = [*_scores(record), *_costs([record])] if record else ["-"] * 5
        rows.append([*identity(plan, name, step_states), *cells])
    return [*rows, ["all", "", "", "", "", "", *_costs(list(filter(None, records.values())))]]


def identity(plan: Plan, name: str, step_states: Mapping[str, State]) -> list[str]:
    """Return the first cells of a step's row in a table: name, command, state, and what it needs."""
    return [name, plan.steps[name].kind, step_states[name], ", ".join(plan.steps[name].needs) or "-"]


def _costs(records: list[Record]) -> list[str]:
    seconds, cores, disk = (sum(getattr(r, key) for r in records) for key in ("seconds", "core_seconds", "disk"))
    return [duration(seconds), duration(cores), f"{disk / 1e6:,.1f}"]


def _scores(record: Record) -> list[str]:
    """Return BLEU and chrF of beam search, or of the last method, in the first language."""
    best = next((each for each in record.scores if each.get("method") == "beam"), (record.scores or [{}])[-1])
    values = [best.get(key) for key in ("bleu", "chrf")]
    return [f"{value:.1f}" if isinstance(value, float) else "-" for value in values]


def slurm_script(plan: Plan, overrides: tuple[str, ...], runs: Path, names: list[str]) -> str:
    """Return a shell script that submits steps as jobs, each after those that it needs.

    It passes the environment variable SBATCH_OPTIONS, such as partition, GPUs and time, to sbatch.
    """
    path, folder = plan.pipeline.path, plan.records
    lines = [
        "#!/bin/sh",
        f"# Submits the steps of {path}; SBATCH_OPTIONS has options for all jobs, such as --gres=gpu:1 --time=8:00:00.",
        "# Submitted again after a failure, it skips what is done.",
        "set -eu",
        f"cd {shlex.quote(str(Path.cwd()))}",
        f"mkdir -p {shlex.quote(str(folder))}",
    ]
    ids = {name: f"job_{number}" for number, name in enumerate(names, start=1)}
    for name, job_id in ids.items():
        words = [*PROGRAM, "pipeline", "run", str(path), "--step", name, "--runs", str(runs)]
        words += [word for override in overrides for word in ("--set", override)]
        after = "".join(f":${ids[other]}" for other in plan.steps[name].needs if other in ids)
        job = shlex.quote(f"{plan.pipeline.file.name}-{name}")
        log = shlex.quote(str(folder / f"{name}.slurm"))
        depends = f' --dependency="afterok{after}"' if after else ""
        options = f"--parsable --kill-on-invalid-dep=yes --job-name={job} --output={log} --open-mode=append{depends}"
        lines.append(f"{job_id}=$(sbatch {options} ${{SBATCH_OPTIONS:-}} --wrap {shlex.quote(shlex.join(words))})")
    submitted = "".join(f" ${job_id}" for job_id in ids.values())
    return "\n".join([*lines, f'echo "submitted:{submitted}"'])
