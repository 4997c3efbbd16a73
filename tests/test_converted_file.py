"""The check of CTranslate2 files: whole ones pass, and no size in them is believed."""

import contextlib
import random
import struct
from pathlib import Path

import pytest

from mt.bundle.converted_file import check_converted
from mt.decoding.engine import UnusableError


def text(name: str) -> bytes:
    return struct.pack("H", len(name) + 1) + name.encode() + b"\0"


def variable(
    name: str = "a", shape: tuple[int, ...] = (2, 3), kind: int = 0, n_bytes: int = 24, data: int = 24
) -> bytes:
    dimensions = struct.pack(f"{len(shape)}I", *shape)
    return text(name) + struct.pack("B", len(shape)) + dimensions + struct.pack("=BI", kind, n_bytes) + b"x" * data


def file(*variables: bytes, aliases: tuple[bytes, ...] = (), version: int = 6, count: int | None = None) -> bytes:
    head = struct.pack("I", version) + text("TransformerSpec")
    number = len(variables) if count is None else count
    return (
        head + struct.pack("II", 7, number) + b"".join(variables) + struct.pack("I", len(aliases)) + b"".join(aliases)
    )


GOOD = file(variable(), variable("b", (), 1, 1, 1), aliases=(text("c") + text("a"),))


def check(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.bin").write_bytes(content)
    check_converted(tmp_path / "model.bin")


def test_what_the_library_writes_passes(trained: Path, tmp_path: Path) -> None:
    for number_format in ("float32", "int8"):
        check_converted(trained / "runs" / "tiny" / "model" / "ctranslate2" / number_format / "model.bin")
    check(tmp_path, GOOD)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        GOOD[:-1],
        GOOD + b"\0",
        file(variable(n_bytes=25, data=25)),
        file(variable(shape=(2**31, 2**31, 2**31), n_bytes=0, data=0)),
        file(variable(shape=(1, 1, 1, 1, 6))),
        file(variable(kind=6)),
        file(variable(data=23)),
        file(variable(shape=(2**28,), n_bytes=2**30)),
        file(variable(), count=2**32 - 1),
        file(variable(), count=2),
        file(variable(), aliases=(text("c") + text("z"),)),
        GOOD.replace(text("a"), text("a")[:-1] + b"x", 1),
    ],
)
def test_sizes_that_cannot_be_are_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UnusableError, match=r"model\.bin: not a CTranslate2 model") as caught:
        check(tmp_path, content)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("version", [0, 5, 7, 2**32 - 1])
def test_another_version_is_unusable(tmp_path: Path, version: int) -> None:
    with pytest.raises(UnusableError, match=f"format {version};"):
        check(tmp_path, file(variable(), version=version))


def test_damage_ends_in_one_sentence_or_in_none(tmp_path: Path) -> None:
    """Whatever bytes say, the check ends without another exception."""
    rng = random.Random(5)
    for _ in range(500):
        content = bytearray(GOOD)
        for _ in range(rng.randint(1, 4)):
            content[rng.randrange(len(content))] = rng.choice([0, 1, 127, 128, 255])
        with contextlib.suppress(UnusableError):
            check(tmp_path, bytes(content))
