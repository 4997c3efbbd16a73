"""Checks of output paths: they can be written, without destroying an input or files of others."""

import os
from collections.abc import Iterable
from pathlib import Path

from mt.errors import InputError, MachineError
from mt.storage.manifest import DamagedError, read_manifest
from mt.storage.run_dir import MANIFEST

_LITTER = {".DS_Store", "Thumbs.db", "desktop.ini"}  # written by file managers


def is_device(path: Path) -> bool:
    """Return True for a device or a pipe, such as /dev/stdout, which is written to and not replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


def require_writable(path: Path, option: str) -> None:
    """Refuse, before long work, an output file that could not be written after it.

    Raises:
        InputError: it is a folder, or `-` for standard output.
        MachineError: no permission.
    """
    if str(path) == "-":
        raise InputError(f"{option} -: this goes to a file, not to the standard output", "name a file")
    if path.is_dir():
        raise InputError(f"{option} {path}: this is a folder, not a file", "name a file")
    target = path
    if not is_device(path):  # a file is replaced, which needs permission for its folder
        target = next(parent for parent in Path(os.path.realpath(path)).parents if parent.exists())
        if not target.is_dir():
            raise InputError(f"{option} {path}: {target} is a file, not a folder", "name another file")
    if not os.access(target, os.W_OK):
        raise MachineError(f"{option} {path}: cannot write here: no permission to write {target}")


def refuse_inputs(outputs: Iterable[Path | None], inputs: Iterable[Path | None]) -> None:
    """Refuse to overwrite an input file, under whatever name; devices and pipes are not files.

    Raises:
        InputError: an output is the same file as an input.
    """
    files = [path for path in inputs if path is not None and path.is_file()]
    for output in outputs:
        for path in files:
            if output is not None and output.is_file() and output.samefile(path):
                same = "" if path == output else f", the same file as {path}"
                raise InputError(f"{output}{same}: this is an input and would be overwritten", "name another output")


def require_model_output(output: Path, model: Path) -> None:
    """Refuse a folder for a model that is inside that of the model to read, or whose path is not UTF-8.

    The first would change the model's folder; the second cannot be read by safetensors and CTranslate2.
    """
    path = output.resolve()
    if path.is_relative_to(model.resolve()):
        raise InputError(f"--output {output}: this is inside the model's own folder", "name another")
    if any("\ud800" <= character <= "\udfff" for character in str(path)):
        raise InputError(f"--output {output}: this path is not UTF-8, so no model can be read from it", "name another")


def require_replaceable(output: Path, command: str, mark: str, inputs: Iterable[Path] = (), force: bool = True) -> None:
    """Refuse an output folder unless it is new, empty, or holds nothing but an earlier output of the same command.

    `mark` is the key that this command, and no other, writes into a folder's manifest. Without `force`, an earlier
    output is refused, too.

    Raises:
        InputError: replacing the folder would lose an input, the current directory or other files.
        MachineError: it cannot be written or listed.
    """
    if not output.exists():
        require_writable(output / "file", "--output")
        return
    if not output.is_dir():
        raise InputError(f"--output {output}: this is a file, not a folder", "name a new folder")
    for path, what in ((Path(), "the current directory"), *((path, f"the input {path}") for path in inputs)):
        real = path.resolve()
        if path.exists() and any(output.samefile(folder) for folder in (real, *real.parents)):
            raise InputError(f"--output {output}: this folder is or holds {what}", "name a new folder")
    real = output.resolve()
    if os.path.ismount(real):  # it cannot be renamed
        raise InputError(f"--output {output}: a mount point cannot be replaced", "name a new folder in it")
    if not os.access(real.parent, os.W_OK):
        message = f"--output {output}: cannot be replaced: no permission to write {real.parent}"
        raise MachineError(message, "name a new folder in it")
    if all(path.name in _LITTER for path in output.iterdir()):
        require_writable(output / "file", "--output")
        return
    try:
        manifest = read_manifest(output)
    except DamagedError:
        manifest = {}
    if mark not in manifest:
        raise InputError(f"--output {output}: this folder exists and was not made by `{command}`", "name a new folder")
    if not force:
        raise InputError(f"--output {output}: this folder is not empty", "name another, or replace it with --force")
    if foreign := sorted(_files_in(output) - {MANIFEST, *manifest["files"]}):
        message = f"{', '.join(foreign[:3])} would be lost, and `{command}` did not write it"
        raise InputError(f"--output {output}: {message}", "name a new folder, or move these files")


def _files_in(folder: Path) -> set[str]:
    """List all files and links in a folder; unlike Path.rglob, fail where a folder cannot be listed."""
    names: set[str] = set()

    def fail(error: OSError) -> None:
        raise MachineError(f"--output {error.filename}: cannot be listed: {error.strerror}")

    for root, folders, files in os.walk(folder, onerror=fail):
        paths = [Path(root, name) for name in (*folders, *files)]
        kept = (path for path in paths if path.is_symlink() or (not path.is_dir() and path.name not in _LITTER))
        names |= {path.relative_to(folder).as_posix() for path in kept}
    return names
