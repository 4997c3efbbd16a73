"""A pipeline's table and report: states, scores and costs of all steps."""

import html
import shlex
import time
from collections.abc import Mapping

from mt.console import duration, table
from mt.extras.pipelines.costs import StepCost, makespan
from mt.extras.pipelines.plan import Plan
from mt.extras.pipelines.records import Record, State, read_record, states
from mt.extras.reporting.html import Html, details, headline, page
from mt.extras.reporting.html import table as html_table
from mt.storage import atomic
from mt.storage.run_dir import RunDir

_HEADER = ["step", "command", "state", "needs", "BLEU", "chrF", "time", "core time", "MB"]


def plan_table(plan: Plan, found: Mapping[str, State], costs: Mapping[str, StepCost], jobs: int) -> str:
    """Return the steps with the estimated costs of those that are to run."""
    rows = [
        [name, step.kind, found[name], ", ".join(step.needs) or "-", *_estimated(costs.get(name))]
        for name, step in plan.steps.items()
    ]
    seconds, disk = ([getattr(cost, key) for cost in costs.values()] for key in ("seconds", "disk"))
    known = [each for each in seconds if each is not None]
    unknown = f", without {len(seconds) - len(known)} steps of unknown length" if len(known) < len(seconds) else ""
    megabytes = sum(each or 0 for each in disk) / 1e6
    total = f"estimated: {duration(makespan(plan, costs, jobs))}, {jobs} at once{unknown}; {megabytes:,.0f} MB"
    return "\n".join([table(["step", "command", "state", "needs", "time", "MB"], rows), total])


def status_table(plan: Plan, found: Mapping[str, State] | None = None) -> str:
    """Return the steps with their states, scores and costs."""
    return table(_HEADER, _rows(plan, found or states(plan)))


def write_report(plan: Plan) -> str:
    """Write report.html into the pipeline's folder, and return its path."""
    found = states(plan)
    done = sum(state == "done" for state in found.values())
    top = headline("" if done == len(found) else "warning", f"{done} of {len(found)} steps are done.")
    rows = [[_linked(plan, row[0]), *row[1:]] for row in _rows(plan, found)]
    commands = [(name, shlex.join(["mt", *step.words])) for name, step in plan.steps.items()]
    text = plan.pipeline.path.read_text(encoding="utf-8")
    sections = [
        ("Steps", html_table(_HEADER, rows, "numbers named")),
        ("Commands", details("All commands", html_table(["step", "command"], commands, "texts"))),
        ("Pipeline", details(str(plan.pipeline.path), f'<div class="lines">{html.escape(text)}</div>')),
    ]
    name, path = plan.pipeline.file.name, plan.folder / "report.html"
    subtitle = f"{plan.pipeline.path}; {time.strftime('%Y-%m-%d %H:%M')}"
    atomic.write_text(path, page(f"{name}: report", name, subtitle, top, sections))
    return str(path)


def _linked(plan: Plan, name: str) -> str:
    has_report = name in plan.steps and RunDir(plan.steps[name].output).report.is_file()
    return Html(f'<a href="{name}/report.html">{name}</a>') if has_report else name


def _rows(plan: Plan, found: Mapping[str, State]) -> list[list[str]]:
    rows, records = [], {name: read_record(plan, step) for name, step in plan.steps.items()}
    for name, step in plan.steps.items():
        record = records[name]
        costs = _costs([record]) if record else ["-"] * 3
        rows.append([name, step.kind, found[name], ", ".join(step.needs) or "-", *_scores(record), *costs])
    finished = [record for record in records.values() if record]
    return [*rows, ["all", "", "", "", "", "", *_costs(finished)]]


def _costs(records: list[Record]) -> list[str]:
    seconds, cores, disk = (sum(getattr(r, key) for r in records) for key in ("seconds", "core_seconds", "disk"))
    return [duration(seconds), duration(cores), f"{disk / 1e6:,.1f}"]


def _scores(record: Record | None) -> list[str]:
    """Return BLEU and chrF of beam search, or of the last method, in the first language."""
    scores = record.scores if record else []
    best = next((each for each in scores if each.get("method") == "beam"), scores[-1] if scores else {})
    values = [best.get(key) for key in ("bleu", "chrf")]
    return [f"{value:.1f}" if isinstance(value, float) else "-" for value in values]


def _estimated(cost: StepCost | None) -> list[str]:
    seconds = "-" if cost is None or cost.seconds is None else duration(cost.seconds)
    return [seconds, "-" if cost is None or cost.disk is None else f"{cost.disk / 1e6:,.1f}"]
