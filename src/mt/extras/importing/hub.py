"""Models of the Hugging Face hub: a name becomes a local folder."""

import re
from pathlib import Path

from mt.errors import InputError
from mt.storage.download import offline_switch

_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_PATTERNS = ["mt/*", "*.json", "*.safetensors", "*.spm", "sentencepiece.bpe.model", "README.md"]
_CONVERTER = "SFconvertbot"  # the hub's own account, which offers pickled weights as safetensors in a pull request


def find_folder(name: str) -> Path:
    """Return the path of a folder or a model of Marian, or of a name on the hub, which is downloaded once.

    Raises:
        InputError: there is no such folder, and the hub does not have it, has no safetensors or cannot be reached.
    """
    path = Path(name)
    if path.is_dir() or (path.is_file() and path.suffix == ".npz"):
        return path
    if path.is_file():
        raise InputError(f"{name}: a file, not a folder or an .npz file of Marian", "name the folder of the model")
    if path.exists() or not _NAME.fullmatch(name):
        raise InputError(f"{name}: no such folder", "name a folder, or a model of the hub as OWNER/NAME")
    try:
        folder = _download(name)
        if not _has_weights(folder) and (revision := _converted_revision(name)):
            folder = _download(name, revision)
    except Exception as error:  # of several libraries
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        hint = "check the name and the connection, or name a folder that holds the model"
        raise InputError(f"{name}: no such folder, and the hub does not give it ({reason})", hint) from None
    if not _has_weights(folder):
        hint = f"if you trust them: hf download {name} --local-dir FOLDER; mt import FOLDER says how to convert them"
        raise InputError(f"{name}: the hub has no safetensors of it, and other weights can run code when read", hint)
    return folder


def _download(name: str, revision: str | None = None) -> Path:
    from huggingface_hub import snapshot_download

    local = offline_switch() is not None
    return Path(snapshot_download(name, revision=revision, allow_patterns=_PATTERNS, local_files_only=local))


def _has_weights(folder: Path) -> bool:
    return any(folder.glob("*.safetensors"))


def _converted_revision(name: str) -> str | None:
    """Return the revision with the hub's own conversion of a model to safetensors, if there is one."""
    from huggingface_hub import get_repo_discussions

    offered = get_repo_discussions(name, author=_CONVERTER, discussion_type="pull_request", discussion_status="open")
    return next((f"refs/pr/{each.num}" for each in offered if each.author == _CONVERTER), None)
