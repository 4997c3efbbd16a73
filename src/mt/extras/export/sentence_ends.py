"""Sentence splitter for Argos packages, as a MiniSBD model.

MiniSBD runs an ONNX graph on character ids and takes the most probable of five labels for each. This graph implements a
rule, so that a package needs no download. Everywhere else `mt.text.sentences` splits sentences.

B texts   N characters
"""

import json
import string
from collections.abc import Sequence
from typing import Any

_PAD, _UNKNOWN = "<PAD>", "<UNK>"
_SPACE, _STOP, _STRONG, _QUOTES, _UNSPACED = " ", ".", "!?…", "\"'»”)", "。！？"
# Common characters outside words; any other counts as a letter.
_PUNCTUATION = string.punctuation + "«»“”„‘’‚–—·¿¡、，；：「」（）" + _STRONG + _UNSPACED
_LETTERS_BEFORE_STOP = 4  # "Dr. Smith": a short word before a full stop may be an abbreviation
_OPSET = 17


def sentence_ends_model() -> bytes:
    """Return the content of the `.onnx` file."""
    from onnx import TensorProto, checker, helper

    units = [_PAD, _UNKNOWN, _SPACE, *sorted(set(_PUNCTUATION))]
    build = _Builder(units)
    ends = _ends(build)
    unused = build.constant_like(ends, 0.0)
    # MiniSBD's labels: none, end of token, end of sentence, and two for multi-word tokens; only 0 and 2 are used.
    labels = [build.constant_like(ends, 0.5), unused, ends, unused, unused]
    axis = build.constant([2], is_int=True)
    build.add("Concat", *(build.add("Unsqueeze", label, axis) for label in labels), output="labels", axis=2)
    graph = helper.make_graph(
        build.nodes,
        "sentence_ends",
        [
            helper.make_tensor_value_info("units", TensorProto.INT64, ["B", "N"]),
            helper.make_tensor_value_info("features", TensorProto.FLOAT, ["B", "N", "F"]),
        ],
        [helper.make_tensor_value_info("labels", TensorProto.FLOAT, ["B", "N", 5])],
        build.constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=8)
    vocabulary = {"lang": "", "_id2unit": units, "_unit2id": {unit: i for i, unit in enumerate(units)}, "lower": False}
    helper.set_model_props(model, {"config": json.dumps(_CONFIG), "vocab": json.dumps(vocabulary)})
    checker.check_model(model)
    return bytes(model.SerializeToString())


_CONFIG = {"skip_newline": False, "max_seqlen": 1000, "batch_size": 1, "feat_funcs": ["end_of_para"]}


class _Builder:
    """Nodes and constants of a graph over the characters `units`."""

    def __init__(self, units: list[str]) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._units = units

    def add(self, op: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        from onnx import helper

        name = output or f"value_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def constant(self, values: list[float], is_int: bool = False) -> str:
        from onnx import TensorProto, helper

        name = f"constant_{len(self.constants)}"
        dtype = TensorProto.INT64 if is_int else TensorProto.FLOAT
        self.constants.append(helper.make_tensor(name, dtype, [len(values)], values))
        return name

    def constant_like(self, value: str, number: float) -> str:
        """Return a constant with the shape of a value."""
        zeros = self.add("Mul", value, self.constant([0.0]))
        return self.add("Add", zeros, self.constant([number]))

    def is_one_of(self, units: Sequence[str]) -> str:
        """Return (B, N): 1 where a character is one of these, else 0."""
        table = self.constant([float(unit in tuple(units)) for unit in self._units])
        return self.add("Gather", table, "units")

    def shifted(self, value: str, by: int) -> str:
        """Shift by `by` positions to the right; to the left if negative."""
        return self.add("Pad", value, self.constant([0, by, 0, -by], is_int=True))


def _ends(build: _Builder) -> str:
    """Return (B, N): 1 at the last character of a sentence, else 0."""
    letters = build.is_one_of([_UNKNOWN])
    after_word = build.is_one_of(_STOP)
    for distance in range(1, _LETTERS_BEFORE_STOP + 1):
        after_word = build.add("Mul", after_word, build.shifted(letters, distance))
    quoted = build.add("Mul", build.is_one_of(_QUOTES), build.shifted(build.is_one_of(_STOP + _STRONG), 1))
    spaced = build.add("Max", after_word, build.is_one_of(_STRONG), quoted)
    before_space = build.add("Mul", spaced, build.shifted(build.is_one_of(_SPACE), -1))
    return build.add("Max", before_space, build.is_one_of(_UNSPACED))
