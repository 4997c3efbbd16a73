"""Integrity checks of a model folder; they import no torch."""

from pathlib import Path
from typing import Any

from mt.console import quoted
from mt.data.tokenizer_kinds import TokenizerPair
from mt.errors import InputError
from mt.storage.manifest import DamagedError, verify
from mt.storage.run_dir import ModelDir, tokenizer_names
from mt.text.casing import Casing
from mt.text.preprocessing import Preprocessing
from mt.text.spelling import Spelling


def verify_files(folder: ModelDir, *files: Path, part: Path | None = None) -> dict[str, Any]:
    """Verify files, which the manifest must list, and all that it lists in a `part` of the folder.

    Returns:
        the manifest's entries by name.

    Raises:
        InputError: a file is missing, altered or not listed.
        MachineError: one cannot be read.
    """
    hint = "copy it again, or finish its training"
    if not folder.config.exists() and (folder.root / "config.json").is_file():  # of other software
        hint = f"import it: mt import {quoted(str(folder.root))} --output NEW"
    try:
        listed: dict[str, Any] = verify(folder.root, *files, *([] if part is None else [part]))["files"]
    except DamagedError as error:
        raise InputError(f"{folder.root}: not a complete model folder: {error}", hint) from None
    for name in (path.relative_to(folder.root).as_posix() for path in files):
        if name not in listed:
            raise InputError(f"{folder.root}: not a complete model folder: its manifest does not list {name}", hint)
    return listed


def load_tokenizers(folder: ModelDir, shared: bool) -> TokenizerPair:
    """Verify and load the tokenizers of a folder."""
    verify_files(folder, *(folder.tokenizer / name for name in tokenizer_names(shared)))
    return TokenizerPair.load(folder.tokenizer, shared)


def load_preprocessing(folder: ModelDir) -> Preprocessing:
    """Verify and load the preprocessing of a folder, or a checkpoint."""
    if folder.manifest.exists():  # written last, when the folder is complete
        for path in (folder.casing, folder.spelling):  # one that is missing may be listed
            verify_files(folder, *([path] if path.is_file() else []), part=path)
    casing = Casing.read(folder.casing) if folder.casing.is_file() else None
    spelling = Spelling.read(folder.spelling) if folder.spelling.is_file() else None
    return Preprocessing(casing, spelling)
