"""Validation of CTranslate2 files: intact ones pass, and no size in them is trusted."""

import contextlib
import math
import random
import struct
from pathlib import Path

import pytest

from mt.bundle.converted_file import check_converted
from mt.data.tokenizer_kinds import read_tokenizer
from mt.decoding.engine import UnusableError


def text(name: str) -> bytes:
    return struct.pack("H", len(name) + 1) + name.encode() + b"\0"


def variable(name: str, shape: tuple[int, ...], kind: int = 0, n_bytes: int = 24, data: int = 24) -> bytes:
    dimensions = struct.pack(f"{len(shape)}I", *shape)
    return text(name) + struct.pack("B", len(shape)) + dimensions + struct.pack("=BI", kind, n_bytes) + b"x" * data


def file(*variables: bytes, aliases: tuple[bytes, ...] = (), version: int = 6, count: int | None = None) -> bytes:
    head = struct.pack("I", version) + text("TransformerSpec")
    number = len(variables) if count is None else count
    return (
        head + struct.pack("II", 7, number) + b"".join(variables) + struct.pack("I", len(aliases)) + b"".join(aliases)
    )


def setting(name: str, value: int) -> bytes:
    return text(name) + struct.pack("B", 0) + struct.pack("=BIh", 2, 2, value)


S, T, D, F, P = 5, 7, 4, 6, 9
SHAPES: dict[str, tuple[int, ...]] = {
    "encoder/embeddings_0/weight": (S, D),
    "decoder/embeddings/weight": (T, D),
    "decoder/projection/weight": (T, D),
    "decoder/projection/bias": (T,),
    "decoder/position_encodings/encodings": (P, D),
    "encoder/layer_norm/gamma": (D,),
    "encoder/layer_0/self_attention/layer_norm/beta": (D,),
    "encoder/layer_0/self_attention/linear_0/weight": (3 * D, D),
    "encoder/layer_0/self_attention/linear_0/bias": (3 * D,),
    "encoder/layer_0/self_attention/linear_1/weight": (D, D),
    "decoder/layer_0/attention/linear_0/weight": (D, D),
    "decoder/layer_0/attention/linear_1/weight": (2 * D, D),
    "decoder/layer_0/attention/linear_2/weight": (D, D),
    "decoder/layer_0/ffn/linear_0/weight": (F, D),
    "decoder/layer_0/ffn/linear_0_noact/weight": (F, D),
    "decoder/layer_0/ffn/linear_1/weight": (D, F),
    "decoder/layer_0/ffn/linear_1/bias": (D,),
}
SETTINGS = {"encoder/num_heads": 2, "decoder/num_heads": 2, "decoder/alignment_layer": 0, "decoder/alibi": 0}
ALIASES = (text("encoder/position_encodings/encodings") + text("decoder/position_encodings/encodings"),)


def model(
    *more: bytes,
    shapes: dict[str, tuple[int, ...] | None] | None = None,
    settings: dict[str, int] | None = None,
    kinds: dict[str, int] | None = None,
    aliases: tuple[bytes, ...] = ALIASES,
    count: int | None = None,
) -> bytes:
    """Return a small Transformer's file with changes; a shape of None removes a tensor."""
    tensors = []
    for name, shape in (SHAPES | (shapes or {})).items():
        if shape is not None:
            kind = (kinds or {}).get(name, 0)
            n_bytes = math.prod(shape) * (4, 1, 2, 4, 2, 2)[kind]
            tensors.append(variable(name, shape, kind, n_bytes, n_bytes))
    numbers = [setting(name, value) for name, value in (SETTINGS | (settings or {})).items()]
    return file(*tensors, *numbers, *more, aliases=aliases, count=count)


GOOD = model()


def check(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.bin").write_bytes(content)
    check_converted(tmp_path / "model.bin", S, T)


def test_files_of_the_library_pass(trained: Path, tmp_path: Path) -> None:
    folder = trained / "runs" / "tiny" / "model"
    vocab = read_tokenizer(next((folder / "tokenizer").iterdir())).vocab_size
    for number_format in ("float32", "int8"):
        check_converted(folder / "ctranslate2" / number_format / "model.bin", vocab, vocab)
        with pytest.raises(UnusableError, match="embeddings"):
            check_converted(folder / "ctranslate2" / number_format / "model.bin", vocab + 1, vocab + 1)
    check(tmp_path, GOOD)
    second_layer = {"decoder/layer_1/ffn/layer_norm/gamma": (D,)}
    check(tmp_path, model(shapes=second_layer, settings={"decoder/alignment_layer": 1}))


ODD = "encoder/layer_norm/beta"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        GOOD[:-1],
        GOOD + b"\0",
        model(variable(ODD, (D,), n_bytes=4 * D + 1, data=4 * D + 1)),
        model(variable(ODD, shape=(2**31, 2**31, 2**31), n_bytes=0, data=0)),
        model(variable(ODD, shape=(1, 1, 1, 1, D), n_bytes=4 * D, data=4 * D)),
        model(variable(ODD, (D,), kind=6, n_bytes=4 * D, data=4 * D)),
        model(variable(ODD, (D,), n_bytes=4 * D, data=4 * D - 1)),
        model(variable(ODD, shape=(2**28,), n_bytes=2**30)),
        model(count=2**32 - 1),
        model(count=2),
        model(aliases=(text("encoder/layer_norm/beta") + text("z"),)),
        model(aliases=(text("encoder/layer_norm/gamma") + text("decoder/embeddings/weight"),)),
        model(variable("encoder/layer_norm/gamma", (D,), n_bytes=4 * D, data=4 * D)),
        GOOD.replace(text(ODD[:-4] + "gamma"), text(ODD[:-4] + "gamma")[:-1] + b"x", 1),
    ],
)
def test_inconsistent_sizes_are_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UnusableError, match=r"model\.bin: not a CTranslate2 model") as caught:
        check(tmp_path, content)
    assert "\n" not in str(caught.value)


def test_more_entries_than_a_model_has_are_not_read(tmp_path: Path) -> None:
    with pytest.raises(UnusableError, match="it claims 100001 entries"):
        check(tmp_path, model(count=100_001))


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("how", ["fewer rows", "more rows", "one dimension more", "no row"])
def test_tensors_of_other_shapes_are_refused(tmp_path: Path, name: str, how: str) -> None:
    """The library would read out of bounds."""
    rows, *rest = SHAPES[name]
    changed = {
        "fewer rows": (rows - 1, *rest),
        "more rows": (rows + 1, *rest),
        "one dimension more": (rows, *rest, 1),
        "no row": (0, *rest),
    }[how]
    if name.endswith("encodings") and how in ("fewer rows", "more rows"):  # any number of positions is valid
        check(tmp_path, model(shapes={name: changed}))
        return
    with pytest.raises(UnusableError, match=r"is expected|no matrix"):
        check(tmp_path, model(shapes={name: changed}))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (model(shapes={"decoder/embeddings/weight": None}), "no matrix decoder/embeddings/weight"),
        (model(shapes={"decoder/layer_0/ffn/linear_0/weight": None}), "no matrix decoder/layer_0/ffn"),
        (model(shapes={"encoder/other/weight": (D, D)}), "unexpected tensor"),
        (model(shapes={"encoder/other/bias": (D,)}), "unexpected tensor"),
        (model(settings={"encoder/num_heads": 3}), "3 heads for vectors of 4"),
        (model(settings={"decoder/num_heads": 0}), "0 heads"),
        (model(settings={"decoder/num_heads": -2}), "-2 heads"),
        (model(settings={"decoder/activation": 99}), "activation"),
        (model(settings={"decoder/alignment_heads": 3}), "more alignment heads than heads"),
        (model(settings={"decoder/alignment_layer": 1}), "alignment layer does not exist"),
        (model(settings={"decoder/alibi": 1}), "unexpected setting"),
        (model(settings={"encoder/layer_0/self_attention/rotary_dim": 4}), "rotary_dim' is 4, but 2 is expected"),
        (model(settings={"decoder/layer_0/self_attention/rotary_base": 99}), "rotary_base' is 99, but 10000"),
        (model(settings={"decoder/layer_0/self_attention/rotary_interleave": 1}), "unexpected setting"),
        (model(kinds={"encoder/layer_norm/gamma": 1}), "unexpected number type"),
        (model(kinds={"decoder/projection/weight": 4}), "unexpected number type"),
        (model(kinds={"decoder/projection/weight": 1}), "no scale"),
    ],
)
def test_unexpected_content_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    with pytest.raises(UnusableError, match=words):
        check(tmp_path, content)


def test_a_scale_has_one_number_a_row(tmp_path: Path) -> None:
    int8, scale = {"decoder/projection/weight": 1}, "decoder/projection/weight_scale"
    check(tmp_path, model(shapes={scale: (T,)}, kinds=int8))
    with pytest.raises(UnusableError, match="is expected"):
        check(tmp_path, model(shapes={scale: (1,)}, kinds=int8))


@pytest.mark.parametrize("version", [0, 5, 7, 2**32 - 1])
def test_another_version_is_refused(tmp_path: Path, version: int) -> None:
    with pytest.raises(UnusableError, match=f"format {version};"):
        check(tmp_path, file(variable("a", (2, 3)), version=version))


def test_random_damage_raises_no_other_exception(tmp_path: Path) -> None:
    rng = random.Random(5)
    for _ in range(500):
        content = bytearray(GOOD)
        for _ in range(rng.randint(1, 4)):
            content[rng.randrange(len(content))] = rng.choice([0, 1, 127, 128, 255])
        with contextlib.suppress(UnusableError):
            check(tmp_path, bytes(content))
