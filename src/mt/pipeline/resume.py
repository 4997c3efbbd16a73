"""Checks of a resume: configuration, data and tokenizer must be those of the checkpoints."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from mt.config import Config, parse_config
from mt.console import log
from mt.data.tokenizer_kinds import TokenizerPair
from mt.errors import InputError
from mt.storage.manifest import DamagedError, read_manifest, verify
from mt.storage.run_dir import CheckpointDir, RunDir

# Changing these would resume a different model or optimiser, on other data, or at another position in the batch order.
FROZEN = (
    "seed",
    "data.",
    "augmentation.",
    "tokenizer.",
    "model.",
    "training.max_tokens",
    "training.bidirectional_epochs",
    "training.accumulate",
    "training.optimizer",
    "training.init_",
    "training.freeze",
    "training.distill_from",
)
# data.root may change, because the content of the files in it is compared. So may the test set, which has no effect on
# the training text unless it is split off it.
FREE, SPLIT_OFF = ("data.root", "data.test"), "data.test.from_train"
_TOKENIZER_FILES = ("tokenizer.file", "tokenizer.source_file", "tokenizer.target_file")
# Training settings that may extend a training that has ended, and those that have no effect without more steps.
_LENGTH = ("max_steps", "max_epochs", "minutes", "patience")
_LEARNING = (
    *("learning_rate", "schedule", "warmup_steps", "betas", "eps", "weight_decay", "clip_norm", "ema_decay"),
    *("label_smoothing", "r_drop", "distill_weight", "guided_alignment"),
)


def refuse_changes(run_dir: RunDir, config: Config, digests: dict[str, Any] | None) -> None:
    """Compare configuration and input files with those of the run's checkpoints.

    Without checkpoints anything may change. With them, settings outside of `FROZEN` may change as long as that has an
    effect, and paths if the content is the same; the log reports such changes. Any other change is an InputError.
    `digests` are the present ones of data sources and pretrained models; None: not known.
    """
    if not run_dir.checkpoint_steps() and not run_dir.has_damaged_checkpoints():
        return
    earlier = _trained_config(run_dir)
    changes = dict(_changes(config.model_dump(), earlier.model_dump()))
    if len(config.data.train) > len(earlier.data.train):
        changes["data.train"] += " (an optional one counts once its files exist)"
    before = recorded_inputs(run_dir)
    now = before if digests is None else digests
    same = {key for key in before if now.get(key) == before[key]}
    same |= {f"{key}.folder" for key in same}  # of a folder's texts, whose digests its source has
    frozen = [
        change
        for key, change in changes.items()
        if key.startswith(FROZEN)
        and key not in same
        and (key == SPLIT_OFF or not key.startswith(FREE))
        # `refuse_other_tokenizer` compares the content of a tokenizer's files.
        and not (key in _TOKENIZER_FILES and config.tokenizer.given and earlier.tokenizer.given)
    ]
    altered = (key for key in now if key in before.keys() - same and not key.startswith((*changes, "data.test")))
    frozen += [f"{key}: the content has changed" for key in altered]
    if not earlier.training.guided_alignment:  # a model folder would claim a head that has learned nothing
        frozen += [change for key, change in changes.items() if key == "training.guided_alignment"]
    if frozen:
        raise _refusal(run_dir, "; ".join(frozen))
    futile = [key for key in _LEARNING if f"training.{key}" in changes]
    if futile and not any(f"training.{key}" in changes for key in _LENGTH) and is_finished(run_dir):
        raise _refusal(run_dir, f"it is trained to its end, and training.{futile[0]} would change nothing any more")
    for change in changes.values():
        log.info("%s", change)


def is_finished(run_dir: RunDir) -> bool:
    """Return True if the model folder is that of the newest checkpoint."""
    try:
        return bool(read_manifest(run_dir.model.root)["steps"] >= max(run_dir.checkpoint_steps(), default=math.inf))
    except (DamagedError, KeyError):
        return False


def refuse_other_tokenizer(run_dir: RunDir, files: Mapping[str, str]) -> None:
    """Raise InputError unless the SHA-256 of a tokenizer's files are those that the run's checkpoints record."""
    if files != _recorded_origin(run_dir).get("tokenizer", files):
        raise _refusal(run_dir, "tokenizer: the checkpoints were trained with another one")


def tokenizer_digests(tokenizers: TokenizerPair) -> dict[str, str]:
    """Return the SHA-256 of each file that the run's tokenizer will have."""
    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in tokenizers.files().items()}


def _refusal(run_dir: RunDir, reason: str, remedy: str = "undo the change") -> InputError:
    hint = f"{remedy}, or give the configuration another name to start a new run"
    return InputError(f"{run_dir.root}: cannot resume: {reason}", hint)


def recorded_inputs(run_dir: RunDir) -> dict[str, Any]:
    """Return the digests of data sources and pretrained models at the checkpoints; empty if nothing records them."""
    return dict(_recorded_origin(run_dir).get("inputs", {}))


def _trained_config(run_dir: RunDir) -> Config:
    """Return the configuration that the newest checkpoint records: the run's `config.yaml` may have been edited."""
    if not run_dir.config.is_file():
        reason = f"there is no {run_dir.config.name}, which describes its checkpoints"
        raise _refusal(run_dir, reason, "restore that file")
    recorded = _recorded_origin(run_dir).get("config")
    if recorded is None:
        return parse_config(run_dir.config.read_bytes(), str(run_dir.config))
    return parse_config(recorded, str(run_dir.checkpoints))


def _recorded_origin(run_dir: RunDir) -> dict[str, Any]:
    """Return the origin from the newest checkpoint in which it is undamaged; empty if there is none."""
    for step in reversed(run_dir.checkpoint_steps()):
        checkpoint = CheckpointDir(run_dir.checkpoint(step))
        try:
            if checkpoint.origin.name in verify(checkpoint.root, checkpoint.origin)["files"]:
                return dict(json.loads(checkpoint.origin.read_bytes()))
        except DamagedError:
            continue
    return {}


def _changes(now: Any, before: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield the keys that differ between two configurations, each with a description."""
    if isinstance(now, dict) or isinstance(before, dict):
        now, before = (tree if isinstance(tree, dict) else {} for tree in (now, before))
        for name in sorted(now.keys() | before.keys()):
            yield from _changes(now.get(name), before.get(name), f"{key}.{name}".lstrip("."))
    elif _is_sources(now) and _is_sources(before) and len(now) == len(before):
        for number, pair in enumerate(zip(now, before, strict=True)):
            yield from _changes(*pair, f"{key}.{number}" if len(now) > 1 else key)
    elif now != before:
        yield key, f"{key} is now {_shown(now)}, it was {_shown(before)}"


def _is_sources(value: Any) -> bool:
    return isinstance(value, tuple) and value != () and isinstance(value[0], dict)


def _shown(value: Any) -> str:
    return f"{len(value)} source{'s' * (len(value) > 1)}" if _is_sources(value) else repr(value)
