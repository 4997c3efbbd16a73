"""Import of a model: a folder, or one of the Hugging Face hub, becomes a model folder."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from mt.bundle.checks import load_preprocessing
from mt.bundle.model_folder import build_model, load_model, new_model
from mt.config import Config
from mt.data.tokenizer_kinds import TokenizerPair
from mt.errors import InputError, MachineError, first_line, is_disk_full
from mt.extras.export.common import MT_FOLDER
from mt.extras.importing.huggingface import Languages, read_plan
from mt.extras.importing.marian import find_npz, read_marian
from mt.extras.importing.pruning import prune
from mt.extras.importing.safe_tensors import open_safetensors, plain_yaml
from mt.extras.importing.weights import read_weights
from mt.storage.download import offline_switch
from mt.storage.run_dir import ModelDir, RunDir

_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_PATTERNS = ["mt/*", "*.json", "*.safetensors", "*.spm", "sentencepiece.bpe.model", "README.md"]
_CONVERTER = "SFconvertbot"  # the hub's own account, which offers pickled weights as safetensors in a pull request


def find_folder(name: str) -> Path:
    """Return the path of a folder or of a Marian model; a name on the hub is downloaded once.

    Raises:
        InputError: there is no such folder, and the hub does not have it, has no safetensors or cannot be reached.
        MachineError: its files cannot be written.
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
        if is_disk_full(error) or isinstance(error, PermissionError):
            message = f"{name}: the hub's cache cannot be written ({first_line(error)})"
            raise MachineError(message, "free some space, or set HF_HOME to another folder") from None
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
    """Return the revision with the hub's own conversion to safetensors, if there is one; offline, a cached one."""
    from huggingface_hub import constants, get_repo_discussions

    if offline_switch():
        cached = Path(constants.HF_HUB_CACHE, f"models--{name.replace('/', '--')}", "refs/refs/pr")
        return next((f"refs/pr/{each.name}" for each in sorted(cached.glob("*"))), None)
    offered = get_repo_discussions(name, author=_CONVERTER, discussion_type="pull_request", discussion_status="open")
    return next((f"refs/pr/{each.num}" for each in offered if each.author == _CONVERTER), None)


def import_folder(
    folder: Path,
    output: Path,
    origin: str,
    languages: Languages,
    corpus: Sequence[Path] = (),
    check: Callable[[], None] = lambda: None,
) -> str:
    """Write a model folder with the weights and tokenizers of another; return lines for the user.

    `origin` is the path of the folder or its name on the hub, as the user wrote it. `languages` are those of source and
    target that the user chose. With a corpus, the vocabulary is reduced to the pieces that it needs, and the folder may
    be a run folder or a model folder of `mt`. `check` is as in `atomic.new_folder`.

    Raises:
        InputError: the folder is of another architecture or incomplete, its parts do not fit together, a language must
            be chosen or is not the model's, or it is a model of ours already.
    """
    candidates = RunDir(folder).model, ModelDir(folder)
    ours = [each for each in candidates if each.config.is_file() and each.tokenizer.is_dir()]
    mt_folder = ours[0] if ours else ModelDir(folder / MT_FOLDER)
    if ours and not corpus:
        raise InputError(f"{folder}: this is a model of mt already", "use it as it is, or reduce it with --prune FILE")
    if ours:
        loaded = load_model(mt_folder, torch.device("cpu"))
        config, tokenizers = loaded.config, loaded.tokenizers
        weights = {name: parameter.detach() for name, parameter in loaded.model.named_parameters()}
    else:
        config, tokenizers, weights = _read(folder, origin, languages)
    if mt_folder.config.is_file():
        _refuse_options(folder, config, languages)
    lines = []
    if corpus:
        before = _megabytes(weights), tokenizers.target.vocab_size
        pruned = prune(config, tokenizers, corpus)
        config, tokenizers, weights = pruned.config, pruned.tokenizers, pruned.weights(weights)
        lines.append(
            f"{tokenizers.target.vocab_size:,} of {before[1]:,} pieces remain, and {_megabytes(weights):,.1f} of "
            f"{before[0]:,.1f} MB of weights; {pruned.unchanged / pruned.lines:.2%} of {pruned.lines:,} lines of the "
            "corpus are split as before"
        )
    decoding = config.decoding.model_copy(update={"shortlist": 0})  # it would have to be computed again
    config = config.model_copy(update={"decoding": decoding})
    facts = {"imported": origin, **_card_facts(folder.parent if folder.is_file() else folder)}
    preprocessing = load_preprocessing(mt_folder)
    with new_model(ModelDir(output), config, tokenizers, weights, facts, preprocessing=preprocessing, check=check):
        pass
    data = config.data
    head = f"{', '.join(data.source_lang)} to {', '.join(data.target_lang)}, {tokenizers.target.vocab_size:,} pieces"
    return "\n".join([head, *lines, str(output)])


def _read(folder: Path, origin: str, languages: Languages) -> tuple[Config, TokenizerPair, dict[str, Tensor]]:
    """Read a model of other software."""
    path = Path(origin).resolve()
    stem = path.parent.name if folder.is_file() else path.name
    name = re.sub(r"[^A-Za-z0-9._-]", "-", stem).strip("._-")[:100] or "imported"
    if (folder / "model.bin").is_file():
        from mt.extras.importing.ctranslate2 import read_ctranslate2

        plan, tensors = read_ctranslate2(folder, name, languages)
    elif not (folder / "config.json").is_file() and (npz := find_npz(folder)):
        plan, tensors = read_marian(npz, name, languages)
    else:
        tensors = open_safetensors(folder)
        plan = read_plan(folder, name, languages)
    with torch.device("meta"):
        model = build_model(plan.config, plan.tokenizers)
    return plan.config, plan.tokenizers, read_weights(tensors, plan, model)


def _refuse_options(folder: Path, config: Config, languages: Languages) -> None:
    """Refuse languages other than exactly those of a model of `mt`."""
    model_languages = config.data.source_lang, config.data.target_lang
    for option, given, known in zip(("--from", "--to"), languages, model_languages, strict=True):
        if given and set(given) != set(known):
            message = f"{folder}: {option} {', '.join(given)}, but this model of mt keeps its own ({', '.join(known)})"
            raise InputError(message, f"leave out {option}")


def _megabytes(weights: Mapping[str, Tensor]) -> float:
    return sum(tensor.nbytes for tensor in weights.values()) / 1e6


def _card_facts(folder: Path) -> dict[str, Any]:
    """Return the licence or licences in the front matter of a model card as a fact, if there are any."""
    try:
        _, front, _ = (folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)
        licence = plain_yaml(front)["license"]
    except (OSError, ValueError, yaml.YAMLError, LookupError, TypeError, RecursionError):
        return {}
    licences = licence if isinstance(licence, list) else [licence]
    are_names = all(isinstance(each, str) and re.fullmatch(r"\w[\w.+ -]{,99}", each) for each in licences)
    return {"license": ", ".join(licences)} if licences and are_names else {}
