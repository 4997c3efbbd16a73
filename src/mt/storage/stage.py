"""A stage of the pipeline records what its output was made from, and is skipped while that does not change."""

import hashlib
import json
from pathlib import Path
from typing import Any

from mt.storage.manifest import DamagedError, verify


def stage_key(*inputs: Any) -> str:
    """Identifies a stage's inputs."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True, default=str).encode()).hexdigest()


def is_done(folder: Path, key: str) -> bool:
    """True if a stage's output is there, made from the same inputs, and whole."""
    try:
        return bool(verify(folder).get("key") == key)
    except DamagedError:
        return False
