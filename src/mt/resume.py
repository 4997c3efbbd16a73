"""What may change between two starts of one run, and what may not."""

import json
from pathlib import Path
from typing import Any

from mt import storage
from mt.config import Config, parse_config
from mt.console import log
from mt.errors import InputError
from mt.run_dir import RunDir

# A change of these would continue another model or optimiser, on other data, or at another place in the batch order.
FROZEN = (
    "seed",
    "data.",
    "tokenizer.",
    "model.",
    "training.max_tokens",
    "training.bidirectional_epochs",
    "training.accumulate",
    "training.optimizer",
    "training.init_",
    "training.distill_from",
)
# The files' content is compared instead of where they lie.
FREE = ("data.root",)


def check_resumable(run_dir: RunDir, config: Config, digests: dict[str, Any]) -> None:
    """Refuses what a resume cannot survive, as `refuse_changes` does, and records the inputs."""
    refuse_changes(run_dir, config, digests)
    storage.write_json(run_dir.inputs, digests)


def refuse_changes(run_dir: RunDir, config: Config, digests: dict[str, Any]) -> None:
    """Compares a configuration and its input files with those that a run's checkpoints come from.

    Without checkpoints anything may change. Other training settings may too; the log says which did.

    Args:
        run_dir: the run.
        config: the configuration to go on with.
        digests: what identifies the content of each data source now.

    Raises:
        InputError: something differs that a resume cannot survive; the message names the key.
    """
    inputs = run_dir.inputs
    if _has_checkpoints(run_dir):
        if not run_dir.config.is_file():
            raise InputError(
                f"{run_dir.root}: cannot resume: there is no {run_dir.config.name}, so nothing says what its "
                "checkpoints are of",
                "put that file back, or give the configuration another name to start a new run",
            )
        earlier = _flat(parse_config(run_dir.config.read_bytes(), str(run_dir.config)).model_dump())
        now = _flat(config.model_dump())
        changed = [key for key in sorted(earlier.keys() | now.keys()) if earlier.get(key) != now.get(key)]
        before = _read_inputs(inputs) if inputs.is_file() else digests
        frozen = [
            f"{key} is now {now.get(key)!r}, it was {earlier.get(key)!r}"
            for key in changed
            if key.startswith(FROZEN) and key not in FREE
        ]
        frozen += [f"{key}: the content is not what it was" for key in digests if digests[key] != before.get(key)]
        if frozen:
            raise InputError(
                f"{run_dir.root}: cannot resume: {'; '.join(frozen)}",
                "undo the change, or give the configuration another name to start a new run",
            )
        for key in changed:
            log.info("%s is now %r, it was %r", key, now.get(key), earlier.get(key))


def recorded_inputs(run_dir: RunDir) -> dict[str, Any]:
    """What identified the inputs when the run's checkpoints were made; nothing where there are none."""
    there = _has_checkpoints(run_dir) and run_dir.inputs.is_file()
    return _read_inputs(run_dir.inputs) if there else {}


def _has_checkpoints(run_dir: RunDir) -> bool:
    """Whole or damaged ones; one that was never finished does not count."""
    return bool(run_dir.checkpoint_steps()) or run_dir.has_damaged_checkpoints()


def _read_inputs(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_bytes()))
    except (ValueError, TypeError):
        raise InputError(
            f"{path}: damaged, so nobody can tell whether the corpus is what it was",
            "delete the file if you are sure that it is",
        ) from None


def _flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    """{'a': {'b': 1}} to {'a.b': 1}."""
    if not isinstance(tree, dict):
        return {prefix: tree}
    return {
        path: leaf for key, value in tree.items() for path, leaf in _flat(value, f"{prefix}.{key}".lstrip(".")).items()
    }
