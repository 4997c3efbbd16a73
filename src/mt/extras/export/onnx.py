"""Export to ONNX Runtime: an encoder, a one-step decoder, tokenizers, and a README with greedy search.

B sentences   S source positions   T target positions
"""

import contextlib
import functools
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mt.data.sentencepiece_tokenizer import SentencePieceTokenizer
from mt.data.tokenizer import EOS_ID, PAD_ID, SOS, SOS_ID, UNK_ID
from mt.decoding.settings import TranslationSettings
from mt.errors import InputError
from mt.extras.export.common import ExportJob
from mt.extras.export.equivalence import random_batch, require_equal
from mt.extras.export.onnx_graph import DecoderGraph, EncoderGraph
from mt.storage import atomic
from mt.storage.run_dir import tokenizer_names

ENCODER, DECODER = "encoder.onnx", "decoder.onnx"
_MAX_EMBEDDED = 2**31 - 2**24  # bytes; larger weights get a file of their own, since a protobuf is limited to 2 GiB


def write_onnx(job: ExportJob, folder: Path, card: str) -> str:
    """Write the graphs and a README that begins with `card`; run them, compare logits, and return the comparison.

    Raises:
        InputError: the tokenizers are of different kinds.
        MtError: the logits differ.
    """
    if len(set(map(type, job.tokenizers))) > 1:
        message = "tokenizer.source_file, tokenizer.target_file: one is a SentencePiece model and the other is not"
        raise InputError(message, "onnx needs two tokenizers of the same kind")
    job.tokenizers.write(folder)
    parts = _TOKENIZERS
    if isinstance(job.tokenizers.source, SentencePieceTokenizer):
        parts = _SENTENCEPIECE
        for side, tokenizer in zip(("source", "target"), job.tokenizers, strict=True):
            assert isinstance(tokenizer, SentencePieceTokenizer)
            atomic.write_bytes(folder / f"{side}.spm", tokenizer.models[0])
            pieces = {piece: i for i, piece in enumerate(tokenizer.pieces)}
            atomic.write_json(folder / f"{side}_pieces.json", pieces)
    atomic.write_json(folder / "config.json", _decoding_config(job))
    program = functools.reduce(lambda text, part: text.replace(*part), parts.items(), _DECODING)
    atomic.write_text(folder / "README.md", card + program.replace("@", job.example))
    with torch.no_grad(), _quiet():
        _write_graphs(job, folder)
        return _compare_logits(job, folder)


def _decoding_config(job: ExportJob) -> dict[str, Any]:
    """Return the content of `config.json`, which a decoding program needs."""
    config, settings = job.config, TranslationSettings.of(job.config)
    shape = config.model
    source_tokenizer, target_tokenizer = tokenizer_names(job.tokenizers.shared)
    return {
        "source_lang": settings.source_lang if len(settings.source_langs) == 1 else settings.source_langs,
        "target_lang": settings.target_langs,
        **({"pairs": settings.trained_pairs} if settings.pairs else {}),
        "source_tokenizer": source_tokenizer,
        "target_tokenizer": target_tokenizer,
        "pad": PAD_ID,
        "unk": UNK_ID,
        "sos": SOS_ID,
        "eos": EOS_ID,
        "source_start": [SOS_ID] if shape.source_format.startswith(SOS) else [],
        "tags": job.tags,
        "decoder_layers": shape.decoder_layers,
        "heads": shape.n_heads,
        "head_width": shape.d_model // shape.n_heads,
        "max_source_tokens": settings.max_source_tokens,
        "max_target_tokens": min(config.longest_translation, settings.max_positions - 1),
    }


def _write_graphs(job: ExportJob, folder: Path) -> None:
    model, positions = job.model, TranslationSettings.of(job.config).max_positions
    encoder, decoder = EncoderGraph(model, positions).eval(), DecoderGraph(model, positions).eval()
    sources, targets = random_batch(job)
    memory = encoder(sources)
    # The exporter treats sizes of 1 as constants, so the examples are larger.
    cache = torch.zeros(len(memory), len(sources), *memory.shape[2:3], 2, memory.shape[4])
    _write_graph(encoder, folder / ENCODER, {"src_tokens": sources}, ["memory"], {"src_tokens": {0: "B", 1: "S"}})
    inputs = {"tokens": targets[:, 0], "src_tokens": sources, "memory": memory, "cache": cache}
    sizes = {"tokens": {0: "B"}, "src_tokens": {0: "B", 1: "S"}, "memory": {1: "B", 3: "S"}, "cache": {1: "B", 3: "T"}}
    _write_graph(decoder, folder / DECODER, inputs, ["logits", "new_cache"], sizes)


def _write_graph(
    graph: nn.Module, path: Path, inputs: dict[str, Tensor], outputs: list[str], sizes: dict[str, dict[int, str]]
) -> None:
    """Write a graph, given example inputs by name, output names, and the names of the inputs' dynamic dimensions."""
    weights = sum(tensor.nbytes for tensor in graph.state_dict().values())
    program = torch.onnx.export(
        graph,
        tuple(inputs.values()),
        dynamo=True,
        verbose=False,
        input_names=list(inputs),
        output_names=outputs,
        dynamic_shapes=sizes,
    )
    assert program is not None
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # stack traces: paths of this machine, and half of a small graph
    program.save(path, external_data=weights > _MAX_EMBEDDED)


def _compare_logits(job: ExportJob, folder: Path) -> str:
    """Compare the logits of a batch of several sentences and of one."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    encoder, decoder = (
        onnxruntime.InferenceSession(folder / name, options, providers=["CPUExecutionProvider"])
        for name in (ENCODER, DECODER)
    )
    sources, targets = random_batch(job)
    comparison = ""
    for src, tgt in ((sources[1:2, :3], targets[:1]), (sources, targets)):
        [memory] = encoder.run(None, {"src_tokens": src.numpy()})
        cache = torch.zeros(*memory.shape[:3], 0, memory.shape[4]).numpy()
        steps = []
        for tokens in tgt.t():
            inputs = {"tokens": tokens.numpy(), "src_tokens": src.numpy(), "memory": memory, "cache": cache}
            logits, cache = decoder.run(None, inputs)
            steps.append(torch.from_numpy(logits))
        comparison = require_equal("ONNX Runtime", torch.stack(steps, dim=1), job.model(src, tgt))
    return comparison


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's irrelevant warnings, such as that torchvision is missing."""
    exporter = logging.getLogger("torch.onnx")
    level = exporter.level
    exporter.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        exporter.setLevel(level)


_TOKENIZERS = {
    "PACKAGE": "tokenizers",
    "IMPORTS": "import numpy as np\nimport onnxruntime\nfrom tokenizers import Tokenizer\n",
    "OPENED": 'source, target = (Tokenizer.from_file(config[f"{side}_tokenizer"]) for side in ("source", "target"))',
    "ENCODED": "source.encode(text.strip()).ids",
    "DECODED": 'target.decode(row[: row.index(config["eos"])], skip_special_tokens=False)',
}
_SENTENCEPIECE = {
    "PACKAGE": "sentencepiece",
    "IMPORTS": "import unicodedata\nimport numpy as np\nimport onnxruntime\n"
    "from sentencepiece import SentencePieceProcessor\n",
    "OPENED": """source, target = (SentencePieceProcessor(f"{side}.spm") for side in ("source", "target"))
ids_of, ids_of_target = (json.load(open(f"{side}_pieces.json", encoding="utf-8")) for side in ("source", "target"))
pieces = list(ids_of_target)


def encode(text):
    text = unicodedata.normalize("NFC", text.strip())
    return [ids_of.get(piece, config["unk"]) for piece in source.encode(text, out_type=str)]
""",
    "ENCODED": "encode(text)",
    "DECODED": 'target.decode([pieces[i] for i in row[: row.index(config["eos"])]])',
}
_DECODING = """
## Decoding

Greedy search with `pip install numpy onnxruntime PACKAGE`, in this folder:

```python
import json
IMPORTS
config = json.load(open("config.json"))
OPENED
encoder, decoder = (onnxruntime.InferenceSession(f"{part}.onnx") for part in ("encoder", "decoder"))

tag = list(config["tags"].values())[:1]  # of the language to translate into, where the model wants one


def translate(texts):
    ids = [[*config["source_start"], *tag, *ENCODED, config["eos"]] for text in texts]
    src_tokens = np.full((len(ids), max(map(len, ids))), config["pad"])
    for row, tokens in zip(src_tokens, ids):
        row[: len(tokens)] = tokens
    [memory] = encoder.run(None, {"src_tokens": src_tokens})
    cache = np.zeros((2 * config["decoder_layers"], len(ids), config["heads"], 0, config["head_width"]), np.float32)
    tokens, found = np.full(len(ids), config["sos"]), []
    for _ in range(config["max_target_tokens"]):
        inputs = {"tokens": tokens, "src_tokens": src_tokens, "memory": memory, "cache": cache}
        logits, cache = decoder.run(None, inputs)
        logits[:, [config["pad"], config["unk"], config["sos"]]] = -np.inf
        tokens = logits.argmax(axis=1)
        found.append(tokens)
        if all(config["eos"] in row for row in np.array(found).T):
            break
    rows = (list(row) + [config["eos"]] for row in np.array(found).T)
    found = [DECODED for row in rows]
    return [text.replace(" \\ufffd", "").replace("\\ufffd", "") for text in found]  # without stray bytes


print(translate(["@"]))
```

Sizes that may be anything: B sentences, S source tokens (at most `max_source_tokens`), T target tokens. `memory` holds
the keys and values of the source, `cache` those of the target so far, both (2 x layers, B, heads, tokens, head_width).
Where `config.json` has `tags`, the number of the language's tag comes behind `source_start`.
"""
