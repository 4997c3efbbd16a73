"""Pipelines from Python: several trainings, translations, filters, scores and exports from one file.

Imports inside functions are of modules that import torch, which the table of states does not need.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from mt.api.search import Search, SearchRequest
from mt.api.texts import several
from mt.bundle.load_translator import check_choice
from mt.config.suggestions import similar
from mt.console import log
from mt.decoding.engine import EngineChoice
from mt.decoding.settings import TranslationSettings
from mt.errors import InputError, MtError, contradict, require_package
from mt.extras.pipelines import results
from mt.extras.pipelines.execution import execute
from mt.extras.pipelines.loading import load_pipeline
from mt.extras.pipelines.plan import Plan, Step, make_plan
from mt.extras.pipelines.records import State, states
from mt.extras.pipelines.schema import Backtranslate, Clean, Distill, Eval, Export, Score
from mt.storage.run_dir import ModelDir, RunDir
from mt.system.distributed import read_ranks


def read_plan(config: str | Path, overrides: Sequence[str] = (), runs: str | Path = "runs") -> Plan:
    """Read a pipeline and check everything that can be checked before it runs.

    Raises:
        InputError: one message lists all problems, each with file and line.
    """
    from mt.extras.pipelines.checks import check_plan

    plan = make_plan(load_pipeline(Path(config), several(overrides)), Path(runs))
    check_plan(plan)
    for step in plan.steps.values():
        try:
            _check_search(plan, step)
            _check_options(plan, step)
        except InputError as error:
            place = plan.pipeline.origin("steps", step.name, step.kind)
            raise InputError(f"{place}: step {step.name}: {error.message}", error.hint) from None
    return plan


def show_plan(config: str | Path, overrides: Sequence[str] = (), runs: str | Path = "runs", jobs: int = 1) -> str:
    """Return the plan of a pipeline as a table, with estimates for the steps that are not done; run nothing."""
    from mt.extras.pipelines import checks, estimates
    from mt.extras.planning.dry_run import disk_space, writable_parent

    plan, step_states, pending = _checked(config, overrides, runs, jobs)
    checks.refuse_unusable_devices(plan, pending)
    disk = writable_parent(RunDir(plan.folder)) if pending else None
    costs = estimates.estimate_costs(plan, pending, jobs, keep=False)
    if disk is not None:
        needed = sum(cost.disk or 1 for cost in costs.values())  # also where it is unknown
        disk_space(disk, [plan.steps[name].output for name in pending], needed, complete=True)
    return estimates.plan_table(plan, step_states, costs, jobs)


def run_pipeline(
    config: str | Path,
    overrides: Sequence[str] = (),
    *,
    runs: str | Path = "runs",
    jobs: int = 1,
    only: str | None = None,
) -> str:
    """Run the steps that are not done, and return the table of scores and costs; the same call again resumes.

    Args:
        config: the pipeline's file.
        overrides: changes to it, as in `steps.student.train.set.seed=2`.
        runs: the folder of runs; the pipeline has a folder in it.
        jobs: the most steps that run at once.
        only: run this step alone; those that it needs must be done.

    Raises:
        InputError: the pipeline is wrong, or a training would have to resume with other inputs.
        StoppedError: Ctrl-C or SIGTERM; all steps have saved their work.
        MtError: a step failed; the exit code is the step's.
    """
    from mt.extras.pipelines import checks, estimates

    if read_ranks(os.environ)[1] > 1:
        raise InputError("a pipeline starts its processes itself", "start it without torchrun")
    plan, step_states, pending = _checked(config, overrides, runs, jobs)
    if only is not None:
        _check_only(plan, step_states, only)
    checks.refuse_unusable_devices(plan, pending if only is None else [only])
    if only is None and pending:
        costs = estimates.estimate_costs(plan, pending, jobs)
        log.info("%s", estimates.plan_table(plan, step_states, costs, jobs))
    try:
        execute(plan, jobs, only)
    except MtError:
        with suppress(MtError):  # the first error counts
            log.info("report: %s", results.write_report(plan))
        raise
    log.info("report: %s", results.write_report(plan))
    return results.status_table(plan)


def _check_only(plan: Plan, step_states: dict[str, State], only: str) -> None:
    """Refuse to run a step alone that does not exist, or needs steps that are not done."""
    if only not in plan.steps:
        suggestions = similar(only, plan.steps) or list(plan.steps)
        raise InputError(f"--step {only}: there is no such step", f"one of {', '.join(suggestions)}")
    if missing := [name for name in plan.steps[only].needs if step_states[name] != "done"]:
        raise InputError(f"step {only} needs {', '.join(missing)}", "run these first")


def _checked(
    config: str | Path, overrides: Sequence[str], runs: str | Path, jobs: int = 1
) -> tuple[Plan, dict[str, State], list[str]]:
    """Return a plan, the states of its steps, and those that are not done; refuse one that would lose a training."""
    from mt.extras.pipelines.checks import refuse_other_outputs
    from mt.extras.pipelines.lost_trainings import refuse_lost_trainings

    if not 1 <= jobs <= 1000:
        raise InputError(f"jobs {jobs} is not between 1 and 1000")
    plan = read_plan(config, overrides, runs)
    step_states = states(plan)
    refuse_lost_trainings(plan, step_states)
    pending = [name for name, state in step_states.items() if state != "done"]
    refuse_other_outputs(plan, pending)
    return plan, step_states, pending


def pipeline_status(config: str | Path, overrides: Sequence[str] = (), runs: str | Path = "runs") -> str:
    """Return the table of states, scores and costs."""
    return results.status_table(make_plan(load_pipeline(Path(config), several(overrides)), Path(runs)))


def slurm_script(config: str | Path, overrides: Sequence[str] = (), runs: str | Path = "runs") -> str:
    """Return a shell script that submits the steps that are not done as jobs of Slurm."""
    plan, _, pending = _checked(config, overrides, runs)
    return results.slurm_script(plan, tuple(several(overrides)), Path(runs), pending)


def _check_search(plan: Plan, step: Step) -> None:
    """Refuse a search, or an engine, that the step's command would refuse."""
    settings = step.settings
    choice = {key: value for key in ("engine", "device", "compute_type") if (value := getattr(settings, key, None))}
    search = {key: getattr(settings, key, None) for key in Search.__annotations__}
    search["beam_size"] = getattr(settings, "beam", None)
    models = [ModelDir(model) for model in step.models()] or [ModelDir(step.output)]
    names = {"beam_size": "beam"}
    request = SearchRequest.of(search, getattr(settings, "n_best", None) or 1, lambda key: names.get(key, key))
    engine = EngineChoice(**choice, sampling=request.sampling is not None)
    by_torch = check_choice(models[0], engine, models[1:]) is not None or engine.engine.startswith("torch")
    if not step.models():
        return
    config = plan.config_of(models[0].root)
    if getattr(settings, "shortlist", None) and not (by_torch or config.decoding.shortlist):  # torch ignores it
        hint = "leave out `shortlist`, or set decoding.shortlist in its training"
        raise InputError(f"{models[0].root} has no shortlist", hint)
    request.options(TranslationSettings.of(config).search)


def _check_options(plan: Plan, step: Step) -> None:
    """Refuse other options that the step's command would refuse, by the same functions."""
    from mt.api.loading import glossary_of
    from mt.extras.doctor.scoring import embedding_similarity
    from mt.extras.export.exporting import check_request, require_packages
    from mt.pipeline.training import check_requirements
    from mt.text.compressed import refuse_compressed

    settings = step.settings
    if isinstance(settings, Distill | Backtranslate):
        refuse_compressed(step.output)
    elif isinstance(settings, Eval):
        terms = step.text("glossary")
        glossary = glossary_of(terms if terms and not plan.writer(terms) else None, settings.keep)
        if glossary is not None:
            data = plan.config_of(step.models()[0]).data
            sources = data.test if settings.source is None and isinstance(data.test, tuple) else data.train
            pairs = dict.fromkeys(map(data.languages_of, sources))
            scored_pairs = [(s, t) for s, t in pairs if s == (settings.from_ or s) and t == (settings.to or t)]
            if len(scored_pairs) > 1 and settings.source is None and len(step.models()) == 1:
                glossary.require_languages()
            glossary = glossary.optional() if len(scored_pairs) > 1 else glossary
            for pair in scored_pairs:
                glossary.terms(*pair)  # reads a TBX file
        contradict(settings.sample and bool(terms or settings.keep), "sample", "a glossary or text to keep")
    elif isinstance(settings, Export):
        check_request(settings.format, settings.quantization, settings.max_loss)
    elif step.kind == "train" and step.config is not None:
        check_requirements(step.config, place=f"{plan.pipeline.origin('steps', step.name)}: step {step.name}: ")
        require_packages(*step.config.exports)
    elif isinstance(settings, Clean) and settings.repair:
        require_package("ftfy", "--repair")
    elif isinstance(settings, Score) and settings.embeddings:
        folder = Path(settings.embeddings)
        if not folder.is_dir() or find_spec("sentence_transformers") is None:
            embedding_similarity(folder, "cpu")  # raises the step's error; with both it would load the model
