"""Refusal of plans that would lose a training, or resume one with other inputs."""

from mt.bundle.pretrained import Pretrained
from mt.config import Config, load_config
from mt.data.prepare import drop_missing_sources, input_digests
from mt.errors import InputError
from mt.extras.pipelines.plan import Plan, Step
from mt.extras.pipelines.records import State, cached_sha256, has_records, output_digest, read_record
from mt.pipeline.resume import is_finished, recorded_inputs, refuse_changes
from mt.storage.run_dir import RunDir


def refuse_lost_trainings(plan: Plan, states: dict[str, State]) -> None:
    """Refuse a plan by which a training would be deleted, or would have to resume with other inputs.

    Raises:
        InputError: what changed, and what to do.
    """
    # A training starts after the steps that it needs: one of them that is new was added since, or has lost its record.
    is_recorded = has_records(plan)
    for name, step in plan.steps.items():
        run, place = RunDir(step.output), plan.pipeline.origin("steps", name)
        if step.kind != "train" and run.root.is_dir() and (run.config.is_file() or run.checkpoint_steps()):
            message = f"{place}: {run.root} holds a training, and step {name} is now of the kind {step.kind}"
            raise InputError(message, f"remove {run.root}, or give the step another name")
        if step.kind != "train" or states[name] == "done" or not run.checkpoint_steps():
            continue
        for other in filter(plan.upstream[name].__contains__, plan.steps):
            is_added = states[other] == "new" and is_recorded and not plan.steps[other].output.exists()
            is_changed = states[other] == "changed" and not _keeps_its_model(plan, plan.steps[other])
            if is_changed or is_added:
                change = "is new" if is_added else "runs again: its command, input or output has changed"
                message = f"{place}: step {name} has a training in {run.root}, and its input, step {other}, {change}"
                raise InputError(message, f"undo that, or remove {run.root} to train again, or rename the pipeline")
        try:
            _refuse_other_settings(plan, step, run, states[name] == "waiting")
        except InputError as error:
            hint = f"undo the change, or remove {run.root}"
            raise InputError(f"{place}: step {name}: {error.message}", hint) from None


def _keeps_its_model(plan: Plan, step: Step) -> bool:
    """Return True for a finished training of the same configuration: at most its test set has changed.

    Other training text was refused for the step itself. A changed setting, even one without effect on the weights,
    would make the steps that read the model run again, perhaps with other translations than a later training learned.
    """
    record, run = read_record(plan, step), RunDir(step.output)
    if step.config is None or step.kind != "train" or record is None or record.digest != output_digest(plan, step):
        return False
    return is_complete(step.config, run)


def is_complete(config: Config, run: RunDir) -> bool:
    """Return True if a run has finished with this configuration; a changed one may extend the training."""
    return is_finished(run) and drop_missing_sources(config) == load_config(run.config)


def _refuse_other_settings(plan: Plan, step: Step, run: RunDir, is_waiting: bool) -> None:
    """Refuse settings that come too late or that a run cannot resume with; inputs, too, unless it waits for them."""
    assert step.config is not None
    if is_waiting and any(getattr(source, "optional", False) for source in step.config.data.train):
        return  # it is not known yet which of them will exist
    config = drop_missing_sources(step.config)
    digests = None
    if not is_waiting:
        pretrained = Pretrained.find(config, plan.folder, recorded_inputs(run))
        digests = input_digests(config.data, cached_sha256) | pretrained.identities()
    refuse_changes(run, config, digests)
