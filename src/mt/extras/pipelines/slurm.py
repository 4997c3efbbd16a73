"""Slurm: a shell script that submits each step as a job, after the jobs that it needs."""

import re
import shlex
from pathlib import Path

from mt.extras.pipelines.plan import Plan


def slurm_script(plan: Plan, overrides: tuple[str, ...], runs: Path, names: list[str]) -> str:
    """Return the script; SBATCH_OPTIONS is for partition, GPUs and time, as sbatch takes them."""
    path, folder = plan.pipeline.path, plan.records
    lines = [
        "#!/bin/sh",
        f"# Submits the steps of {path}; SBATCH_OPTIONS has options for all jobs, such as --gres=gpu:1 --time=8:00:00.",
        "# Submitted again after a failure, it skips what is done.",
        "set -eu",
        f"cd {shlex.quote(str(Path.cwd()))}",
        f"mkdir -p {shlex.quote(str(folder))}",
    ]
    for name in names:
        step = plan.steps[name]
        words = ["mt", "pipeline", "run", str(path), "--step", name, "--runs", str(runs)]
        words += [word for override in overrides for word in ("--set", override)]
        after = "".join(f":${_variable(other)}" for other in step.needs if other in names)
        job = shlex.quote(f"{plan.pipeline.file.name}-{name}")
        log = shlex.quote(str(folder / f"{name}.slurm"))
        depends = f' --dependency="afterok{after}"' if after else ""
        options = f"--parsable --kill-on-invalid-dep=yes --job-name={job} --output={log} --open-mode=append{depends}"
        lines.append(
            f"{_variable(name)}=$(sbatch {options} ${{SBATCH_OPTIONS:-}} --wrap {shlex.quote(shlex.join(words))})"
        )
    variables = " ".join(f"${_variable(name)}" for name in names)
    return "\n".join([*lines, f'echo "submitted:{" " * bool(names)}{variables}"'])


def _variable(name: str) -> str:
    return "job_" + re.sub(r"\W", lambda found: f"_{ord(found[0]):x}_", name)
