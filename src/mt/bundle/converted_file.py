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

from mt.decoding.engine import UnusableError

_VERSION = 6
_ITEM_BYTES = (4, 1, 2, 4, 2, 2)  # float32, int8, int16, int32, float16, bfloat16
_MOST = 100_000  # variables or aliases; a layer has about twenty
_HIGHEST_RANK = 4


def check_converted(path: Path) -> None:
    """Walks through a model file.

    Raises:
        UnusableError: a size in it cannot be, or its version is not one we know.
    """
    try:
        with path.open("rb") as file:
            (version,) = _read(file, "I")
            if version != _VERSION:
                raise UnusableError(f"{path}: CTranslate2's format {version}; this program knows format {_VERSION}")
            _walk(file, path.stat().st_size)
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


def _walk(file: BinaryIO, size: int) -> None:
    _string(file)
    _revision, variables = _read(file, "II")
    names = set()
    for _ in range(_count(variables)):
        name = _string(file)
        (rank,) = _read(file, "B")
        if rank > _HIGHEST_RANK:
            raise ValueError(f"{name!r:.50} has {rank} dimensions")
        shape = _read(file, f"{rank}I")
        number_type, n_bytes = _read(file, "=BI")
        if number_type >= len(_ITEM_BYTES) or n_bytes != math.prod(shape) * _ITEM_BYTES[number_type]:
            raise ValueError(f"the sizes of {name!r:.50} contradict each other")
        if file.seek(n_bytes, 1) > size:
            raise ValueError(f"{name!r:.50} ends behind the file")
        names.add(name)
    (aliases,) = _read(file, "I")
    for _ in range(_count(aliases)):
        _string(file)
        if (target := _string(file)) not in names:
            raise ValueError(f"an alias of {target!r:.50}, which is not there")
    if file.tell() != size:
        raise ValueError("there is more behind its end")


def _read(file: BinaryIO, kinds: str) -> tuple[int, ...]:
    return struct.unpack(kinds, file.read(struct.calcsize(kinds)))


def _string(file: BinaryIO) -> bytes:
    (length,) = _read(file, "H")
    text = file.read(length)
    if len(text) != length or text[-1:] != b"\0":
        raise ValueError("a name in it is torn")
    return text[:-1]


def _count(number: int) -> int:
    if number > _MOST:
        raise ValueError(f"it claims {number} entries")
    return number
