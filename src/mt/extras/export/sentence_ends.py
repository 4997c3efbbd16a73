"""Sentence splitter for Argos packages, as a MiniSBD model.

MiniSBD runs an ONNX graph on character ids and takes the most probable of five labels for each. This graph implements a
rule, so that a package needs no download. Everywhere else `mt.text.sentences` splits sentences.

B texts   N characters
"""

import json
import string

_PAD, _UNKNOWN = "<PAD>", "<UNK>"
_STOP, _STRONG, _QUOTES, _UNSPACED = ".", "!?…", "\"'»”)", "。！？"
# Common characters outside words; any other counts as a letter.
_PUNCTUATION = string.punctuation + "«»“”„‘’‚–—·¿¡、，；：「」（）" + _STRONG + _UNSPACED
_CONFIG = {"skip_newline": False, "max_seqlen": 1000, "batch_size": 1, "feat_funcs": ["end_of_para"]}
# Kinds of characters; each becomes a table with 1 for its characters, else 0.
_KINDS = {
    "letters": {_UNKNOWN},
    "spaces": {" "},
    "stops": {_STOP},
    "strong_ends": {*_STRONG},
    "all_ends": {_STOP, *_STRONG},
    "quotes": {*_QUOTES},
    "unspaced_ends": {*_UNSPACED},
}
# In ONNX's text syntax. All values are 0 or 1, so Min is "and" and Max is "or"; Pad shifts (B, N) to the right or left.
# "Dr. Smith": a short word before a full stop may be an abbreviation, so four letters are needed.
# MiniSBD's labels: none, end of token, end of sentence, and two for multi-word tokens; only 0 and 2 are used.
_GRAPH = """
<ir_version: 8, opset_import: ["": 17]>
sentence_ends (int64[B, N] units, float[B, N, F] features) => (float[B, N, 5] labels)
<
    TABLES,
    int64[4] right_1 = {0, 1, 0, -1}, int64[4] right_2 = {0, 2, 0, -2},
    int64[4] right_3 = {0, 3, 0, -3}, int64[4] right_4 = {0, 4, 0, -4}, int64[4] left_1 = {0, -1, 0, 1},
    int64[1] last_axis = {2}, int64[6] around_label_2 = {0, 0, 2, 0, 0, 2}, float[5] label_0 = {0.5, 0, 0, 0, 0}
>
{
    letter = Gather(letters, units)
    letter_1 = Pad(letter, right_1)
    letter_2 = Pad(letter, right_2)
    letter_3 = Pad(letter, right_3)
    letter_4 = Pad(letter, right_4)
    stop = Gather(stops, units)
    after_word = Min(stop, letter_1, letter_2, letter_3, letter_4)
    quote = Gather(quotes, units)
    any_end = Gather(all_ends, units)
    end_before = Pad(any_end, right_1)
    quoted = Min(quote, end_before)
    strong = Gather(strong_ends, units)
    end = Max(after_word, strong, quoted)
    space = Gather(spaces, units)
    space_behind = Pad(space, left_1)
    spaced = Min(end, space_behind)
    unspaced = Gather(unspaced_ends, units)
    ends = Max(spaced, unspaced)
    column = Unsqueeze(ends, last_axis)
    columns = Pad(column, around_label_2)
    labels = Add(columns, label_0)
}
"""


def sentence_ends_model() -> bytes:
    """Return the content of the `.onnx` file."""
    from onnx import checker, helper, parser

    units = [_PAD, _UNKNOWN, " ", *sorted(set(_PUNCTUATION))]
    tables = [
        f"float[{len(units)}] {name} = {{{', '.join(str(int(unit in kind)) for unit in units)}}}"
        for name, kind in _KINDS.items()
    ]
    model = parser.parse_model(_GRAPH.replace("TABLES", ", ".join(tables)))
    vocabulary = {"lang": "", "_id2unit": units, "_unit2id": {unit: i for i, unit in enumerate(units)}, "lower": False}
    helper.set_model_props(model, {"config": json.dumps(_CONFIG), "vocab": json.dumps(vocabulary)})
    checker.check_model(model)
    return bytes(model.SerializeToString())
