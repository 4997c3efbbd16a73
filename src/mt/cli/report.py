"""`mt report`."""

from pathlib import Path

import click

from mt.cli.completion import run_folders
from mt.cli.options import debug_option, path_type, runs_option
from mt.cli.text import print_result
from mt.errors import InputError


@click.command()
@click.argument("run", type=path_type, required=False, shell_complete=run_folders)
@click.option("--output", type=path_type, help="The file to write; default: report.html in the run folder.")
@runs_option
@debug_option
def report(run: Path | None, output: Path | None, runs: Path) -> None:
    """Write a run's report: one HTML file with curves, scores, data, sentences and attention maps.

    RUN is a run folder, finished or not; default: the newest finished run.

    Example: mt report runs/demo
    """
    from mt.extras.reporting.report import write_report
    from mt.storage.find_model import find_model, refuse_pipeline
    from mt.storage.output_path import refuse_inputs, require_writable
    from mt.storage.run_dir import RunDir

    if output is not None:
        require_writable(output, "--output")
    folder = run if run is not None else find_model(None, runs).root.parent
    if folder.is_file():
        raise InputError(f"{folder}: a file, not a run folder", "give a run folder (runs/NAME)")
    refuse_pipeline(folder)
    refuse_inputs([output], (path for path in folder.rglob("*") if path.suffix != ".html"))  # but earlier reports
    print_result(str(write_report(RunDir(folder), output)))
