"""Checks that the tensors of a CTranslate2 file fit one another before the library multiplies them.

The library takes a Transformer's widths from a few of its tensors and believes that the others agree; a smaller one
lets it read beyond that one's end.

    S, T   source and target pieces     D   d_model     F   d_ff     P   positions, any number
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

FLOAT32, INT8 = 0, 1  # numbers of CTranslate2's types


@dataclass(frozen=True)
class Variable:
    """What a file says about one of its variables.

    Attributes:
        shape: empty for a setting.
        number_type: as CTranslate2 counts them.
        value: of a setting.
    """

    shape: tuple[int, ...]
    number_type: int
    value: float = 0


_LAYER = r"(?:encoder|decoder)/layer_\d+"
# Of the tensors that our conversion writes; a bias and a scale have one number a row of their weight.
_SHAPES = {
    r"encoder/embeddings_0/weight": "S D",
    r"decoder/(?:embeddings|projection)/weight": "T D",
    r"(?:encoder|decoder)/position_encodings/encodings": "P D",
    rf"(?:encoder|decoder|{_LAYER}/(?:self_attention|attention|ffn))/layer_norm/(?:gamma|beta)": "D",
    rf"{_LAYER}/self_attention/linear_0/weight": "3D D",
    rf"{_LAYER}/self_attention/linear_1/weight": "D D",
    r"decoder/layer_\d+/attention/linear_[02]/weight": "D D",
    r"decoder/layer_\d+/attention/linear_1/weight": "2D D",
    rf"{_LAYER}/ffn/linear_0(?:_noact)?/weight": "F D",
    rf"{_LAYER}/ffn/linear_1/weight": "D F",
}
# Settings that are numbers or may be on; any other must be off.
_SETTINGS = re.compile(
    r"(?:encoder|decoder)/(?:activation|num_heads|pre_norm|scale_embeddings|alignment_heads|alignment_layer"
    r"|embeddings(?:_0)?/multiply_by_sqrt_depth)"
)
_HIGHEST_ACTIVATION = 10


def check_shapes(variables: Mapping[str, Variable], source_vocab: int, target_vocab: int) -> None:
    """Compares all tensors with what a Transformer of these vocabularies needs.

    Args:
        variables: those of the file by name, and its aliases as what they stand for.
        source_vocab, target_vocab: pieces of the tokenizers.

    Raises:
        ValueError: one does not fit, or is none that we know.
    """
    sizes = {"S": source_vocab, "T": target_vocab}
    first, inner = "decoder/embeddings/weight", "decoder/layer_0/ffn/linear_0/weight"
    for name, symbol, axis in ((first, "D", 1), (inner, "F", 0)):
        if name not in variables or len(variables[name].shape) != 2:
            raise ValueError(f"it has no matrix {name}")
        sizes[symbol] = variables[name].shape[axis]
    sizes |= {"2D": 2 * sizes["D"], "3D": 3 * sizes["D"]}
    for name, variable in variables.items():
        if variable.shape:
            _check_tensor(name, variable, variables, sizes)
        elif variable.value != 0 and not _SETTINGS.fullmatch(name):
            raise ValueError(f"{name!r:.60} is a setting that no model of ours has")
    # An alias shares its variable's scale, which has the variable's name only.
    scaled = {id(variables.get(name.removesuffix("_scale"))) for name in variables if name.endswith("/weight_scale")}
    for name, variable in variables.items():
        if variable.shape and variable.number_type == INT8 and id(variable) not in scaled:
            raise ValueError(f"{name!r:.60} has no scale")
    _check_settings(variables, sizes["D"])


def _check_tensor(name: str, variable: Variable, variables: Mapping[str, Variable], sizes: Mapping[str, int]) -> None:
    matrix, _, part = name.rpartition("/")
    is_weight = part == "weight"
    if variable.number_type != FLOAT32 and not (is_weight and variable.number_type == INT8):
        raise ValueError(f"{name!r:.60} has numbers of another type")
    if part in ("bias", "weight_scale"):
        weight = variables.get(f"{matrix}/weight")
        wanted = None if weight is None else weight.shape[:1]
    else:
        symbols = next((shape for pattern, shape in _SHAPES.items() if re.fullmatch(pattern, name)), None)
        # Of positions there may be any number; the library counts them.
        found = {**sizes, "P": max(1, variable.shape[0])}
        wanted = None if symbols is None else tuple(found[symbol] for symbol in symbols.split())
    if wanted is None:
        raise ValueError(f"{name!r:.60} is a tensor that no model of ours has")
    if variable.shape != wanted:
        raise ValueError(f"{name!r:.60} has the shape {variable.shape}, where {wanted} is needed")


def _check_settings(variables: Mapping[str, Variable], d_model: int) -> None:
    layers = 1 + max(int(found[1]) for name in variables if (found := re.match(r"decoder/layer_(\d+)/", name)))
    for side in ("encoder", "decoder"):
        heads = _setting(variables, f"{side}/num_heads", 0)
        if heads < 1 or d_model % heads:
            raise ValueError(f"{heads:g} heads for vectors of {d_model} numbers")
        if not 0 <= _setting(variables, f"{side}/activation", 0) <= _HIGHEST_ACTIVATION:
            raise ValueError(f"an activation of {side} that does not exist")
        if not 0 <= _setting(variables, f"{side}/alignment_heads", 0) <= heads:
            raise ValueError("attention of more heads than there are")
        if not -layers <= _setting(variables, f"{side}/alignment_layer", 0) < layers:
            raise ValueError("attention of a layer that is not there")


def _setting(variables: Mapping[str, Variable], name: str, default: float) -> float:
    return variables[name].value if name in variables else default
