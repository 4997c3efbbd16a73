"""Stages of the pipeline: an output records the key of its inputs, and is reused while the key is the same."""

import hashlib
import json
from pathlib import Path
from typing import Any

from mt.storage.manifest import DamagedError, verify


def stage_key(*inputs: Any) -> str:
    """Hash a stage's inputs."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True, default=str).encode()).hexdigest()


def is_done(folder: Path, key: str) -> bool:
    """Return True if the output is undamaged and was made from the same inputs."""
    try:
        return bool(verify(folder).get("key") == key)
    except DamagedError:
        return False
