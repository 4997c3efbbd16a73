"""SentencePiece tokenizers for transformers: as `MarianTokenizer` reads them, or as a tokenizer.json.

A Marian model whose sentences begin with text gets the files of MarianTokenizer. That cannot put `<s>` before a
sentence, so other models get a tokenizer.json with the pieces and scores of the source's model.
"""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mt.config import Config
from mt.data.sentencepiece_tokenizer import SentencePieceTokenizer
from mt.data.tokenizer import EOS, ESCAPES, PAD, SOS, SPACE, UNK, UNK_ID, TokenizerPair
from mt.extras.export.huggingface_weights import class_of
from mt.storage import atomic

_NEVER = 0.0  # score of pieces that no text becomes; any other would change that of unknown characters
# The library would find these pieces in text, so text is cut inside of their names.
_LITERALS, _LITERAL_BYTES, _LITERAL_TAGS = r"</(?=s>)|<(?=(?:pad|unk|s)>)", r"|<(?=0x[0-9A-F]{2}>)", r"|<(?=2[\w-]+>)"


def is_marian(config: Config, tokenizers: TokenizerPair) -> bool:
    """Return True if the files of MarianTokenizer represent a model's tokenizers."""
    form = config.model.source_format, class_of(config.model)[0]
    return form == ("text </s>", "marian") and all(isinstance(t, SentencePieceTokenizer) for t in tokenizers)


def write_marian_tokenizer(config: Config, tokenizers: TokenizerPair, max_tokens: int, folder: Path) -> None:
    """Write the SentencePiece models, the vocabularies, and the settings of a MarianTokenizer."""
    for side, tokenizer, name in zip(
        ("source", "target"), tokenizers, ("vocab.json", "target_vocab.json"), strict=True
    ):
        assert isinstance(tokenizer, SentencePieceTokenizer)
        atomic.write_bytes(folder / f"{side}.spm", tokenizer.models[0])
        if side == "source" or not tokenizers.shared:
            marks = {i: f">>{language}<<" for language, i in tokenizer.tags.items()}
            pieces = enumerate(tokenizer.tokens(range(tokenizer.vocab_size)))
            atomic.write_json(folder / name, {marks.get(i, piece): i for i, piece in pieces})
    settings = {
        "tokenizer_class": "MarianTokenizer",
        "model_max_length": max_tokens,
        "separate_vocabs": not tokenizers.shared,
        "source_lang": config.data.source_lang[0],
        "target_lang": config.data.target_lang[0],
        "pad_token": PAD,
        "bos_token": SOS,  # never in text, but a translation begins with it
        "unk_token": UNK,
        "eos_token": EOS,
        "split_special_tokens": True,  # a literal </s> in a sentence is text
        "clean_up_tokenization_spaces": False,
    }
    atomic.write_json(folder / "tokenizer_config.json", settings)


def tokenizer_state(tokenizer: SentencePieceTokenizer) -> dict[str, Any]:
    """Return a tokenizer.json's content for `tokenizers`, without added tokens and template.

    Its model has the vocabulary of `tokenizer`, by piece for BPE, in order for unigrams.
    """
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto.FromString(tokenizer.models[0])
    spec, pieces = model.normalizer_spec, tokenizer.tokens(range(tokenizer.vocab_size))
    is_trained_here = bool(model.denormalizer_spec.precompiled_charsmap)
    normalizers: list[dict[str, Any]] = [{"type": "NFC"}]
    decoders: list[dict[str, Any]] = [
        _replace(SPACE, " "),
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]
    if is_trained_here:
        normalizers += [_replace(*pair) for pair in ESCAPES]
        decoders += [_replace(escaped, text) for text, escaped in reversed(ESCAPES)]
    elif spec.precompiled_charsmap:
        charsmap = base64.b64encode(spec.precompiled_charsmap).decode()
        normalizers.append({"type": "Precompiled", "precompiled_charsmap": charsmap})
    if spec.remove_extra_whitespaces:
        strip = {"type": "Strip", "strip_left": True, "strip_right": True}
        normalizers += [strip, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]
    spaces = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True}
    if not spec.add_dummy_prefix:
        spaces["prepend_scheme"] = "never"
    literals = _LITERALS + _LITERAL_BYTES * bool(tokenizer.byte_ids) + _LITERAL_TAGS * bool(tokenizer.tags)
    literal = {"type": "Split", "pattern": {"Regex": literals}, "behavior": "Isolated", "invert": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [spaces, literal]},
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": _model(tokenizer, model, pieces),
    }


def _model(tokenizer: SentencePieceTokenizer, model: Any, pieces: list[str]) -> dict[str, Any]:
    scores = {each.piece: each.score for each in model.pieces if each.type == each.NORMAL}
    has_bytes = bool(tokenizer.byte_ids)
    if tokenizer.log_probs:
        vocabulary = [[piece, scores.get(piece, _NEVER)] for piece in pieces]
        return {"type": "Unigram", "unk_id": UNK_ID, "vocab": vocabulary, "byte_fallback": has_bytes}
    merges = sorted(_merges(scores), key=lambda merge: -scores["".join(merge)])
    return {
        "type": "BPE",
        "unk_token": UNK,
        "fuse_unk": not has_bytes,
        "byte_fallback": has_bytes,
        "vocab": {piece: i for i, piece in enumerate(pieces)},
        "merges": [list(merge) for merge in merges],
    }


def _merges(scores: dict[str, float]) -> Iterator[tuple[str, str]]:
    """Yield all pairs of pieces that make a piece; SentencePiece ranks the piece, `tokenizers` the pair."""
    for piece in scores:
        for i in range(1, len(piece)):
            if piece[:i] in scores and piece[i:] in scores:
                yield piece[:i], piece[i:]


def _replace(pattern: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": pattern}, "content": content}
