"""Integrity checks of a model folder; they import no torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mt.data.tokenizer import TokenizerPair
from mt.errors import InputError
from mt.storage.manifest import DamagedError, verify
from mt.storage.run_dir import ModelDir, tokenizer_names
from mt.text.casing import Casing
from mt.text.source_repair import SourceRepair
from mt.text.spelling import Spelling


def verify_files(folder: ModelDir, *parts: Path) -> dict[str, Any]:
    """Verify all files that the manifest lists, or those in some parts, and return the manifest's entries by name.

    Raises:
        InputError: a file is missing or altered.
        MachineError: one cannot be read.
    """
    try:
        files: dict[str, Any] = verify(folder.root, *parts)["files"]
    except DamagedError as error:
        raise InputError(
            f"{folder.root}: not a complete model folder: {error}", "copy it again, or finish its training"
        ) from None
    return files


def require_listed(folder: ModelDir, listed: Mapping[str, Any], *paths: Path) -> None:
    """Refuse a file that the manifest does not list, since it was not verified.

    Raises:
        InputError: the message names the file.
    """
    for path in paths:
        name = path.relative_to(folder.root).as_posix()
        if name not in listed:
            raise InputError(f"{folder.root}: not a complete model folder: its manifest does not list {name}")


def load_tokenizers(folder: ModelDir, listed: Mapping[str, Any], shared: bool) -> TokenizerPair:
    """Load the tokenizers of a folder whose files were verified."""
    require_listed(folder, listed, *(folder.tokenizer / name for name in tokenizer_names(shared)))
    return TokenizerPair.load(folder.tokenizer, shared)


def load_repair(folder: ModelDir) -> SourceRepair:
    """Verify and load what a folder, or a checkpoint, has of its source language."""
    casing = Casing.read(folder.casing) if _is_verified(folder, folder.casing) else None
    spelling = Spelling.read(folder.spelling) if _is_verified(folder, folder.spelling) else None
    return SourceRepair(casing, spelling)


def _is_verified(folder: ModelDir, path: Path) -> bool:
    if not path.is_file():
        return False
    if folder.manifest.exists():  # written last, when the folder is complete
        require_listed(folder, verify_files(folder, path), path)
    return True
