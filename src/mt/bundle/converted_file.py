"""Checks what CTranslate2 reads before it does: a model file, and a vocabulary map.

The library is C++ and believes what a file says about its own sizes. Here every size is compared with the file's end
before a byte is used for anything. The layout is that of `ctranslate2.specs.model_spec`:

    version, name, revision, number of variables
    a variable: name, rank, dimensions, number type, bytes, data
    number of aliases; an alias: its name, the variable's name
"""

import math
import struct
from pathlib import Path
from typing import BinaryIO

from mt.bundle.converted_shapes import Variable, check_shapes
from mt.decoding.engine import UnusableError

_VERSION = 6
_ITEMS = ("f", "b", "h", "i", "e", "H")  # float32, int8, int16, int32, float16, bfloat16
_MOST = 100_000  # variables or aliases; a layer has about twenty
_HIGHEST_RANK = 4


def check_converted(path: Path, source_vocab: int, target_vocab: int) -> None:
    """Looks at all that a model file says about its content.

    Args:
        path: the file.
        source_vocab, target_vocab: pieces of the tokenizers it is used with.

    Raises:
        UnusableError: a size in it cannot be, its tensors do not fit one another, or its version is not one we know.
    """
    try:
        with path.open("rb") as file:
            (version,) = _read(file, "I")
            if version != _VERSION:
                raise UnusableError(f"{path}: CTranslate2's format {version}; this program knows format {_VERSION}")
            check_shapes(_walk(file, path.stat().st_size), source_vocab, target_vocab)
    except (ValueError, struct.error) as error:
        raise UnusableError(f"{path}: not a CTranslate2 model ({error})") from None


def check_map(path: Path) -> None:
    """Looks at a vocabulary map, which is a line for each source piece and one for all sentences: piece, tab, pieces.

    Raises:
        UnusableError: it is not one. An empty one makes the library read memory that is not there.
    """
    lines = path.read_bytes().splitlines()
    if not lines or any(line.count(b"\t") != 1 or b" " in line[: line.index(b"\t")] for line in lines):
        raise UnusableError(f"{path}: not a vocabulary map")


def _walk(file: BinaryIO, size: int) -> dict[str, Variable]:
    """All variables by name, aliases too."""
    _string(file)
    _revision, number = _read(file, "II")
    variables: dict[str, Variable] = {}
    for _ in range(_count(number)):
        name = _string(file)
        (rank,) = _read(file, "B")
        if rank > _HIGHEST_RANK:
            raise ValueError(f"{name!r:.50} has {rank} dimensions")
        shape = _read(file, f"{rank}I")
        number_type, n_bytes = _read(file, "=BI")
        if number_type >= len(_ITEMS) or n_bytes != math.prod(shape) * struct.calcsize(_ITEMS[number_type]):
            raise ValueError(f"the sizes of {name!r:.50} contradict each other")
        if file.tell() + n_bytes > size:
            raise ValueError(f"{name!r:.50} ends behind the file")
        (value,) = (0,) if shape else _read(file, _ITEMS[number_type])
        if shape:
            file.seek(n_bytes, 1)
        if name in variables:
            raise ValueError(f"{name!r:.50} stands in it twice")
        variables[name] = Variable(shape, number_type, value)
    (aliases,) = _read(file, "I")
    for _ in range(_count(aliases)):
        name, target = _string(file), _string(file)
        if target not in variables:
            raise ValueError(f"an alias of {target!r:.50}, which is not there")
        if name in variables:
            raise ValueError(f"{name!r:.50} stands in it twice")
        variables[name] = variables[target]
    if file.tell() != size:
        raise ValueError("there is more behind its end")
    return variables


def _read(file: BinaryIO, kinds: str) -> tuple[int, ...]:
    return struct.unpack(kinds, file.read(struct.calcsize(kinds)))


def _string(file: BinaryIO) -> str:
    (length,) = _read(file, "H")
    text = file.read(length)
    if len(text) != length or text[-1:] != b"\0":
        raise ValueError("a name in it is torn")
    return text[:-1].decode("ascii")


def _count(number: int) -> int:
    if number > _MOST:
        raise ValueError(f"it claims {number} entries")
    return number
