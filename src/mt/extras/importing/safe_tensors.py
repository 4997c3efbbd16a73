"""Weights of other software by name, and the safetensors files of a Hugging Face folder."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from mt.console import quoted
from mt.errors import InputError, first_line

COPY_AGAIN = "copy or download it again"
_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "checkpoint.pt")


def read_mapping(
    path: Path, default: dict[str, Any] | None = None, parse: Callable[[bytes], Any] = json.loads
) -> dict[str, Any]:
    """Return the keys and values in a file of JSON, or of the format that `parse` reads; the default if it is missing.

    Raises:
        InputError: there is no such file and no default, or it has other content.
    """
    if default is not None and not path.is_file():
        return default
    try:
        content = parse(path.read_bytes())
    except FileNotFoundError:
        raise InputError(f"{path}: no such file", "name a complete folder") from None
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise InputError(f"{path}: cannot be read: {first_line(error, 200)}", COPY_AGAIN) from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: holds no keys with values")
    return content


class _PlainLoader(yaml.SafeLoader):
    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise ValueError("it has YAML aliases, which are not read")
        return super().compose_node(parent, index)


def plain_yaml(content: str | bytes) -> Any:
    """Parse YAML; raise a ValueError at an alias, since a few lines with aliases can expand to gigabytes."""
    return yaml.load(content, Loader=_PlainLoader)


@dataclass(frozen=True)
class Tensors:
    """The weights of a model of other software, under transformers' names."""

    folder: Path  # for messages
    by_name: Mapping[str, Tensor]
    names_read: set[str] = field(default_factory=set)

    def read(self, name: str, shape: Sequence[int]) -> Tensor:
        """Return a tensor in float32.

        Raises:
            InputError: it is missing, has another shape, or no finite floating-point numbers.
        """
        tensor = self.by_name.get(name)
        if tensor is None:
            raise InputError(f"{self.folder}: the tensor '{name}' is missing")
        self.names_read.add(name)
        if tuple(tensor.shape) != tuple(shape):
            message = f"'{name}' has shape {list(tensor.shape)}, but {list(shape)} is expected by its configuration"
            raise InputError(f"{self.folder}: {message}")
        if not tensor.is_floating_point():
            raise InputError(f"{self.folder}: '{name}' has type {tensor.dtype}, but floating point is expected")
        tensor = tensor.float()
        if name != "final_logits_bias" and not tensor.isfinite().all():  # a bias of -inf excludes a piece
            raise InputError(f"{self.folder}: '{name}' has numbers that are not finite", COPY_AGAIN)
        return tensor


def open_safetensors(folder: Path) -> Tensors:
    """Map the tensors of one or several safetensors files into memory; they are read when they are used.

    Raises:
        InputError: a file is damaged, or the folder has none.
    """
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.is_file():
        files = [single]
    elif index.is_file():
        by_tensor = read_mapping(index).get("weight_map")
        if not isinstance(by_tensor, dict):
            raise InputError(f"{index}: it has no weight_map", COPY_AGAIN)
        files = [folder / Path(name).name for name in sorted(set(map(str, by_tensor.values())))]
    else:
        pickled = next((name for name in _PICKLED if (folder / name).is_file()), None)
        if pickled is None:
            is_onnx = next(folder.glob("*.onnx"), None) is not None
            hint = "name the model that the ONNX files were made of" if is_onnx else "name a complete folder"
            raise InputError(f"{folder}: it has no model.safetensors", hint)
        literal = json.dumps(str(folder), ensure_ascii=False)  # of Python, too
        load = f"from transformers import AutoModelForSeq2SeqLM as M; M.from_pretrained({literal})"
        hint = f"if you trust it, convert it: python -c {quoted(f'{load}.save_pretrained({literal})')}"
        raise InputError(f"{folder / pickled}: this format can run code when it is read, so it is refused", hint)
    tensors: dict[str, Tensor] = {}
    for path in files:
        try:
            tensors |= load_file(path)
        except (SafetensorError, OSError, ValueError) as error:  # ValueError: a name that is not Unicode
            raise InputError(f"{path}: not a safetensors file: {error}", COPY_AGAIN) from None
    return Tensors(folder, tensors)
