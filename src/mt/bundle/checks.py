"""Integrity checks of a model folder; they import no torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mt.data.tokenizer import TokenizerPair
from mt.errors import InputError
from mt.storage.manifest import DamagedError, verify
from mt.storage.run_dir import ModelDir, tokenizer_names
from mt.text.casing import Casing
from mt.text.preprocessing import Preprocessing
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


def load_preprocessing(folder: ModelDir) -> Preprocessing:
    """Verify and load the preprocessing of a folder, or a checkpoint."""
    present = [path for path in (folder.casing, folder.spelling) if path.is_file()]
    if present and folder.manifest.exists():  # written last, when the folder is complete
        require_listed(folder, verify_files(folder, *present), *present)
    casing = Casing.read(folder.casing) if folder.casing in present else None
    spelling = Spelling.read(folder.spelling) if folder.spelling in present else None
    return Preprocessing(casing, spelling)
