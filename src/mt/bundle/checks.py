"""What must be true of a model folder before anything in it is used."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mt.data.tokenizer import TokenizerPair
from mt.errors import InputError
from mt.storage.manifest import DamagedError, verify
from mt.storage.run_dir import ModelDir, tokenizer_names


def verified(folder: ModelDir, *parts: Path) -> dict[str, Any]:
    """The files that the manifest lists, checked: all of them, or those in some parts of the folder.

    Raises:
        InputError: a file is missing or altered.
        MachineError: one cannot be read.
    """
    try:
        files: dict[str, Any] = verify(folder.root, *parts)["files"]
    except DamagedError as error:
        raise InputError(
            f"{folder.root}: not a whole model folder: {error}", "copy it again, or finish its training"
        ) from None
    return files


def require(folder: ModelDir, listed: Mapping[str, Any], *paths: Path) -> None:
    """A file that the manifest does not list was not checked, so it is not used."""
    for path in paths:
        name = path.relative_to(folder.root).as_posix()
        if name not in listed:
            raise InputError(f"{folder.root}: not a whole model folder: its manifest does not list {name}")


def load_tokenizers(folder: ModelDir, listed: Mapping[str, Any], shared: bool) -> TokenizerPair:
    """The tokenizers of a folder whose files were checked."""
    require(folder, listed, *(folder.tokenizer / name for name in tokenizer_names(shared)))
    return TokenizerPair.load(folder.tokenizer, shared)


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
