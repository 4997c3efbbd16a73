"""Safetensors files of a Hugging Face folder: names, shapes and types are known before a tensor is read."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from mt.errors import InputError

_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "checkpoint.pt")
_CONVERSION = (
    'python -c "from transformers import AutoModelForSeq2SeqLM as M; '
    "M.from_pretrained('{folder}').save_pretrained('{folder}')\""
)


def read_json(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file that holds an object.

    Raises:
        InputError: there is no such file, or it is something else.
    """
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise InputError(f"{path}: no such file", "name a complete folder") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read as JSON: {str(error)[:200]}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: holds no JSON object")
    return content


class Tensors(Protocol):
    """The weights of a folder, under transformers' names."""

    folder: Path

    @property
    def names(self) -> set[str]: ...

    def read(self, name: str, shape: Sequence[int]) -> Tensor: ...


class SafeTensors:
    """The weights of a folder, in one safetensors file or several."""

    def __init__(self, folder: Path) -> None:
        single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
        if single.is_file():
            files = [single]
        elif index.is_file():
            names = set(map(str, dict(read_json(index).get("weight_map") or {}).values()))
            files = [folder / Path(name).name for name in sorted(names)]
        else:
            pickled = next((name for name in _PICKLED if (folder / name).is_file()), None)
            if pickled is None:
                raise InputError(f"{folder}: it has no model.safetensors")
            hint = f"if you trust it, convert it: {_CONVERSION.format(folder=folder)}"
            raise InputError(f"{folder / pickled}: this format can run code when it is read, so it is refused", hint)
        self.folder = folder
        self._files: dict[str, Path] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        for path in files:
            try:
                with safe_open(path, framework="pt") as file:
                    for name in file.keys():  # noqa: SIM118
                        self._files[name], self._shapes[name] = path, tuple(file.get_slice(name).get_shape())
            except (SafetensorError, OSError) as error:
                raise InputError(f"{path}: not a safetensors file: {error}") from None

    @property
    def names(self) -> set[str]:
        return set(self._files)

    def read(self, name: str, shape: Sequence[int]) -> Tensor:
        """Return a tensor in float32.

        Raises:
            InputError: it is missing, has another shape, or no floating-point numbers.
        """
        if name not in self._files:
            raise InputError(f"{self.folder}: the tensor '{name}' is missing")
        if self._shapes[name] != tuple(shape):
            expected = f"but {list(shape)} is expected from config.json"
            raise InputError(f"{self._files[name]}: '{name}' has shape {list(self._shapes[name])}, {expected}")
        with safe_open(self._files[name], framework="pt") as file:
            tensor: Tensor = file.get_tensor(name)
        if tensor.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise InputError(f"{self._files[name]}: '{name}' has type {tensor.dtype}, but floating point is expected")
        return tensor.float()
