"""Training from Python: a configuration in, a run out."""

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from mt.api.runs import Run
from mt.api.texts import several
from mt.config import Config, load_config, parse_config
from mt.config.problems import entries
from mt.console import log
from mt.data.prepare import drop_missing_sources
from mt.errors import InputError, MtError
from mt.storage.run_dir import RunDir
from mt.system.distributed import Distributed, explain_lost_process, init_distributed

ConfigLike = str | Path | Mapping[str, Any]
Listener = Callable[[Mapping[str, Any]], None]


def train(config: ConfigLike, *, runs: str | Path = "runs", progress: Listener | None = None, **overrides: Any) -> Run:
    """Train a model: every stage from raw text to a model folder; the same call again resumes.

    Under torchrun, every process calls it.

    Args:
        config: a YAML file, or its content as a mapping.
        runs: the folder of runs.
        progress: called with each event of `Run.history` as it happens; an exception in it ends the training, which
            the same call then resumes from its last checkpoint.
        **overrides: values that replace the configuration's: `training={"max_steps": 100}`, or
            `**{"training.max_steps": 100}`. A source is replaced as a whole, or one of its keys:
            `**{"data.train.weight": 2}`. Type checkers accept names with dots only in a `dict[str, Any]`.

    Raises:
        InputError: the configuration or the data are wrong; one message lists all problems.
        StoppedError: Ctrl-C, SIGTERM or SIGHUP; everything is saved.
        DivergedError: five updates in a row (21 in fp16) were not finite.
        MachineError: disk, memory, permissions, or no usable checkpoint.
    """
    return start(config, _arguments(overrides), Path(runs), progress)


def start(config: ConfigLike, overrides: list[str], runs: Path, progress: Listener | None = None) -> Run:
    """Train as `train` does, with overrides of the form `training.max_steps=100`."""
    with _in_all_ranks(config, overrides) as (settings, distributed):
        from mt.extras.tracking.trackers import start_trackers
        from mt.pipeline import run

        if settings.exports:
            from mt.extras.export.exporting import require_packages

            require_packages(*settings.exports)
        summary = run.run(settings, runs, distributed, _write_extras, progress, start_trackers)
    return Run(runs / settings.name, summary)


def dry_run(config: ConfigLike, overrides: list[str], runs: Path) -> str:
    """Check everything, estimate time and memory, and train nothing; return the estimate as text."""
    with _in_all_ranks(config, overrides) as (settings, distributed):
        if distributed.world_size > 1:
            raise InputError("--dry-run is for one process", "start it without torchrun")
        from mt.extras.planning.dry_run import dry_run

        return dry_run(settings, runs)


@contextmanager
def _in_all_ranks(config: ConfigLike, overrides: list[str]) -> Iterator[tuple[Config, Distributed]]:
    """Work in every process of a training; one of them reports an error, the others exit with its code."""
    distributed = init_distributed(os.environ)
    if not distributed.is_main:
        log.setLevel(logging.ERROR)
    try:
        with explain_lost_process():
            settings = read_config(config, overrides)
            # Only rank 0 looks for optional sources: other machines may lack them, and they may appear meanwhile.
            settings = distributed.broadcast(drop_missing_sources(settings) if distributed.is_main else settings)
            yield settings, distributed
    except Exception as error:
        if not distributed.claims_error_report():  # another rank reports it
            sys.exit(error.exit_code if isinstance(error, MtError) else 1)
        raise
    distributed.destroy()


def read_config(config: ConfigLike, overrides: Sequence[str] = ()) -> Config:
    """Return the settings of a YAML file, or of a mapping with its content."""
    overrides = several(overrides)
    if isinstance(config, Mapping):
        text = "".join(f"{key}: {_json(value)}\n" for key, value in config.items())
        return parse_config(text, "configuration", overrides)
    return load_config(Path(config), overrides)


def _arguments(values: Mapping[str, Any]) -> list[str]:
    return [f"{'.'.join(map(str, path))}={_json(value)}" for path, value in entries(values)]


def _json(value: Any) -> str:
    """Return a value as JSON, a subset of YAML; a path becomes text, a number of numpy a plain one."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return dict(value)
        if isinstance(value, Integral):
            return int(value)
        return float(value) if isinstance(value, Real) else str(value)

    return json.dumps(value, ensure_ascii=False, default=plain)


def _write_extras(config: Config, run_dir: RunDir) -> Iterator[str]:
    """Write the exports and the report; yield lines of the summary."""
    if config.exports:
        from mt.extras.export.exporting import write_exports

        yield write_exports(config, run_dir)
    if config.training.report:
        from mt.extras.reporting.report import update_report

        yield f"report: {update_report(run_dir)}"
