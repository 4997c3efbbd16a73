"""Validation of CTranslate2 model files and vocabulary maps before the library reads them.

The library trusts the sizes in a file. It takes a Transformer's widths from a few tensors and assumes that the others
agree; a smaller tensor makes it read out of bounds. The layout is that of `ctranslate2.specs.model_spec`:

    version, name, revision, number of variables
    a variable: name, rank, dimensions, number type, bytes, data
    number of aliases; an alias: its name, the variable's name

S, T   source and target vocabulary     D   d_model     F   d_ff     P   positions, any number
"""

import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from mt.decoding.engine import UnusableError

_VERSION = 6
NUMBER_TYPES = ("f", "b", "h", "i", "e", "H")  # float32, int8, int16, int32, float16, bfloat16
_FLOAT32, _INT8 = 0, 1
_MAX_ENTRIES = 100_000  # variables or aliases; a layer has about twenty
_MAX_RANK = 4
_MAX_ACTIVATION = 10

_LAYER = r"(?:encoder|decoder)/layer_\d+"
# Tensors that our conversion writes; a bias and a scale have one number per row of their weight.
_SHAPES = {
    r"encoder/embeddings_0/weight": "S D",
    r"decoder/(?:embeddings|projection)/weight": "T D",
    r"(?:encoder|decoder)/position_encodings/encodings": "P D",
    rf"(?:encoder|decoder|{_LAYER}/(?:self_attention|attention|ffn))/layer_norm/(?:gamma|beta)": "D",
    r"(?:encoder|decoder)/layernorm_embedding/(?:gamma|beta)": "D",
    rf"{_LAYER}/self_attention/linear_0/weight": "3D D",
    rf"{_LAYER}/self_attention/linear_1/weight": "D D",
    r"decoder/layer_\d+/attention/linear_[02]/weight": "D D",
    r"decoder/layer_\d+/attention/linear_1/weight": "2D D",
    rf"{_LAYER}/ffn/linear_0(?:_noact)?/weight": "F D",
    rf"{_LAYER}/ffn/linear_1/weight": "D F",
}
# Settings that may be nonzero; any other must be off.
_SETTINGS = re.compile(
    r"(?:encoder|decoder)/(?:activation|num_heads|pre_norm|scale_embeddings|alignment_heads|alignment_layer"
    r"|embeddings(?:_0)?/multiply_by_sqrt_depth|layer_\d+/self_attention/rotary_(?:base|dim))"
)
_ROTARY_BASE = 10_000


@dataclass(frozen=True, eq=False)
class Variable:
    """A variable's header: the shape is empty for a setting, which has a value; `offset` is the place of its data."""

    shape: tuple[int, ...]
    number_type: int
    value: float
    offset: int


def check_converted(path: Path, source_vocab: int, target_vocab: int) -> None:
    """Check a model file's version and sizes, and compare its tensors with a Transformer of these vocabulary sizes.

    Raises:
        UnusableError: the version is unsupported, or the sizes are inconsistent or not those of our models.
    """
    try:
        _check_variables(read_variables(path), source_vocab, target_vocab)
    except ValueError as error:
        raise UnusableError(f"{path}: not a CTranslate2 model ({error})") from None


def read_variables(path: Path) -> dict[str, Variable]:
    """Read the headers of a model file's variables, by name; an alias maps to its variable.

    Raises:
        UnusableError: the version is unsupported, or the sizes are inconsistent.
    """
    try:
        with path.open("rb") as file:
            (version,) = _unpack(file, "I")
            if version != _VERSION:
                raise UnusableError(f"{path}: CTranslate2 format {version}; only format {_VERSION} is supported")
            return _read_variables(file, path.stat().st_size)
    except (ValueError, struct.error) as error:
        raise UnusableError(f"{path}: not a CTranslate2 model ({error})") from None


def scales_of(variables: Mapping[str, Variable]) -> dict[Variable, Variable]:
    """Return the scale of each quantized variable; aliases share it, but it has the variable's own name only."""
    scales = ((variable, variables.get(f"{name}_scale")) for name, variable in variables.items())
    return {variable: scale for variable, scale in scales if scale is not None}


def check_map(path: Path) -> None:
    """Check a vocabulary map: per line a source piece (or nothing, for every sentence), a tab, and target pieces.

    Raises:
        UnusableError: it is malformed or empty; an empty one makes the library read out of bounds.
    """
    lines = path.read_bytes().splitlines()
    if not lines or any(line.count(b"\t") != 1 or b" " in line[: line.index(b"\t")] for line in lines):
        raise UnusableError(f"{path}: not a vocabulary map")


def _read_variables(file: BinaryIO, size: int) -> dict[str, Variable]:
    _read_name(file)
    _unpack(file, "I")  # the revision
    variables: dict[str, Variable] = {}

    def add(name: str, variable: Variable) -> None:
        if name in variables:
            raise ValueError(f"duplicate name {name!r:.50}")
        variables[name] = variable

    for _ in range(_read_count(file)):
        name = _read_name(file)
        add(name, _read_variable(file, name, size))
    for _ in range(_read_count(file)):
        name, target = _read_name(file), _read_name(file)
        if target not in variables:
            raise ValueError(f"an alias of {target!r:.50}, which is missing")
        add(name, variables[target])
    if file.tell() != size:
        raise ValueError("trailing bytes after the last alias")
    return variables


def _read_variable(file: BinaryIO, name: str, size: int) -> Variable:
    (rank,) = _unpack(file, "B")
    if rank > _MAX_RANK:
        raise ValueError(f"{name!r:.50} has {rank} dimensions")
    shape = _unpack(file, f"{rank}I")
    number_type, n_bytes = _unpack(file, "=BI")
    if number_type >= len(NUMBER_TYPES) or n_bytes != math.prod(shape) * struct.calcsize(NUMBER_TYPES[number_type]):
        raise ValueError(f"the sizes of {name!r:.50} are inconsistent")
    if file.tell() + n_bytes > size:
        raise ValueError(f"{name!r:.50} extends past the end of the file")
    offset = file.tell()
    if shape:
        file.seek(n_bytes, 1)
        return Variable(shape, number_type, 0, offset)
    (value,) = _unpack(file, NUMBER_TYPES[number_type])
    return Variable(shape, number_type, value, offset)


def _unpack(file: BinaryIO, layout: str) -> tuple[int, ...]:
    return struct.unpack(layout, file.read(struct.calcsize(layout)))


def _read_name(file: BinaryIO) -> str:
    (length,) = _unpack(file, "H")
    text = file.read(length)
    if len(text) != length or text[-1:] != b"\0":
        raise ValueError("truncated name")
    return text[:-1].decode("ascii")


def _read_count(file: BinaryIO) -> int:
    (count,) = _unpack(file, "I")
    if count > _MAX_ENTRIES:
        raise ValueError(f"it claims {count} entries")
    return count


def _check_variables(variables: Mapping[str, Variable], source_vocab: int, target_vocab: int) -> None:
    sizes = {"S": source_vocab, "T": target_vocab}
    for name, symbol, axis in (("decoder/embeddings/weight", "D", 1), ("decoder/layer_0/ffn/linear_0/weight", "F", 0)):
        if name not in variables or len(variables[name].shape) != 2:
            raise ValueError(f"it has no matrix {name}")
        sizes[symbol] = variables[name].shape[axis]
    sizes |= {"2D": 2 * sizes["D"], "3D": 3 * sizes["D"]}
    scales = scales_of(variables)
    for name, variable in variables.items():
        if variable.shape:
            _check_tensor(name, variables, sizes)
            if variable.number_type == _INT8 and variable not in scales:
                raise ValueError(f"{name!r:.60} has no scale")
        elif variable.value != 0 and not _SETTINGS.fullmatch(name):
            raise ValueError(f"unexpected setting {name!r:.60}")
    _check_settings(variables, sizes["D"])


def _check_tensor(name: str, variables: Mapping[str, Variable], sizes: Mapping[str, int]) -> None:
    variable = variables[name]
    module, _, kind = name.rpartition("/")
    if variable.number_type != _FLOAT32 and not (kind == "weight" and variable.number_type == _INT8):
        raise ValueError(f"{name!r:.60} has an unexpected number type")
    expected = None
    if kind in ("bias", "weight_scale"):
        if f"{module}/weight" in variables:
            expected = variables[f"{module}/weight"].shape[:1]
    else:
        symbols = next((shape for pattern, shape in _SHAPES.items() if re.fullmatch(pattern, name)), None)
        if symbols is not None:
            sizes = {**sizes, "P": max(1, variable.shape[0])}
            expected = tuple(sizes[symbol] for symbol in symbols.split())
    if expected is None:
        raise ValueError(f"unexpected tensor {name!r:.60}")
    if variable.shape != expected:
        raise ValueError(f"{name!r:.60} has the shape {variable.shape}, but {expected} is expected")


def _check_settings(variables: Mapping[str, Variable], d_model: int) -> None:
    settings = {name: variable.value for name, variable in variables.items()}
    layers = 1 + max(int(match[1]) for name in variables if (match := re.match(r"decoder/layer_(\d+)/", name)))
    for side in ("encoder", "decoder"):
        heads = settings.get(f"{side}/num_heads", 0)
        if heads < 1 or d_model % heads:
            raise ValueError(f"{heads:g} heads for vectors of {d_model} numbers")
        if not 0 <= settings.get(f"{side}/activation", 0) <= _MAX_ACTIVATION:
            raise ValueError(f"unknown activation of the {side}")
        if not 0 <= settings.get(f"{side}/alignment_heads", 0) <= heads:
            raise ValueError("more alignment heads than heads")
        if not -layers <= settings.get(f"{side}/alignment_layer", 0) < layers:
            raise ValueError("the alignment layer does not exist")
        for name, value in settings.items():
            if kind := re.fullmatch(rf"{side}/.*/rotary_(base|dim)", name):
                expected = _ROTARY_BASE if kind[1] == "base" else d_model // heads
                if value != expected:
                    raise ValueError(f"{name!r:.60} is {value:g}, but {expected:g} is expected")
