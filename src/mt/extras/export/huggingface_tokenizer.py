"""Tokenizers for transformers: the files of a MarianTokenizer, or a tokenizer.json.

A Marian model of SentencePiece whose sentences begin with text gets the files of MarianTokenizer. That cannot put `<s>`
before a sentence, so other models get a tokenizer.json with the pieces and scores of the source's model.

It encodes sources and decodes targets in one range of ids (see `huggingface_weights`). With separate vocabularies, the
target's pieces follow the source's with a prefix that decoding removes.
"""

import base64
import json
from operator import itemgetter
from pathlib import Path
from typing import Any

from mt.config import Config
from mt.data.sentencepiece_tokenizer import SentencePieceTokenizer
from mt.data.token_store import SIDES
from mt.data.tokenizer import EOS, ESCAPES, PAD, SOS, SPACE, SPECIALS, UNK, UNK_ID
from mt.data.tokenizer_kinds import TokenizerPair
from mt.extras.export.huggingface_weights import class_of
from mt.storage import atomic

# A prefix that no piece has: in pieces, one of two other letters follows the escape character.
_TARGET = "\ue000t"
_NEVER = 0.0  # score of pieces that are never found in text; another would change the score of unknown characters
# The library would find these pieces in text, so text is cut inside their names.
_LITERALS, _LITERAL_BYTES, _LITERAL_TAGS = r"</(?=s>)|<(?=(?:pad|unk|s)>)", r"|<(?=0x[0-9A-F]{2}>)", r"|<(?=2[\w-]+>)"
# Settings of both kinds of tokenizer
_SETTINGS = {
    "pad_token": PAD,
    "bos_token": SOS,  # never in text, but a translation begins with it
    "unk_token": UNK,
    "eos_token": EOS,
    "split_special_tokens": True,  # a literal </s> in a sentence is text
    "clean_up_tokenization_spaces": False,
}


def is_marian(config: Config, tokenizers: TokenizerPair) -> bool:
    """Return True if the files of MarianTokenizer represent a model's tokenizers."""
    is_model = config.model.source_format == "text </s>" and class_of(config.model)[0] == "marian"
    return is_model and all(isinstance(t, SentencePieceTokenizer) for t in tokenizers)


def write_marian_tokenizer(config: Config, tokenizers: TokenizerPair, max_tokens: int, folder: Path) -> None:
    """Write the SentencePiece models, the vocabularies, and the settings of a MarianTokenizer."""
    names = ("vocab.json", "target_vocab.json")
    for side, tokenizer, name in zip(SIDES, tokenizers, names, strict=True):
        assert isinstance(tokenizer, SentencePieceTokenizer)
        atomic.write_bytes(folder / f"{side}.spm", tokenizer.models[0])
        if side == "source" or not tokenizers.shared:
            marks = {i: f">>{language}<<" for language, i in tokenizer.tags.items()}
            atomic.write_json(folder / name, {marks.get(i, piece): i for i, piece in enumerate(tokenizer.pieces)})
    settings = {
        "tokenizer_class": "MarianTokenizer",
        "model_max_length": max_tokens,
        "separate_vocabs": not tokenizers.shared,
        "source_lang": config.data.source_lang[0],
        "target_lang": config.data.target_lang[0],
        **_SETTINGS,
    }
    atomic.write_json(folder / "tokenizer_config.json", settings)


def tokenizer_json(tokenizers: TokenizerPair, shift: int, source_format: str) -> str:
    """Return the content of `tokenizer.json`; `shift` is the first target id, 0 for a shared vocabulary."""
    source = tokenizers.source
    state: dict[str, Any] = json.loads(source.to_json())
    if isinstance(source, SentencePieceTokenizer):
        state = _sentencepiece_state(source)
    state["normalizer"]["normalizers"].insert(0, {"type": "Strip", "strip_left": True, "strip_right": True})
    state["post_processor"] = _template(source_format)
    names = dict(enumerate(SPECIALS))
    if shift:
        if isinstance(state["model"]["vocab"], list):  # of a unigram model
            state["model"]["vocab"] += [[_TARGET + piece, 0.0] for piece in tokenizers.target.pieces]
        else:
            pieces = enumerate(tokenizers.target.pieces, shift)
            state["model"]["vocab"].update({_TARGET + piece: i for i, piece in pieces})
        state["decoder"]["decoders"].insert(0, _replace(_TARGET, ""))
        names.update({shift + i: _TARGET + special for i, special in enumerate(SPECIALS)})
    state["added_tokens"] = [_added_token(i, name, special=True) for i, name in names.items()]
    # Language tags are recognised in text, which is the only place to give them.
    state["added_tokens"] += [_added_token(i, f"<2{code}>", special=False) for code, i in source.tags.items()]
    return json.dumps(state, ensure_ascii=False) + "\n"


def tokenizer_config(shift: int, max_source_tokens: int) -> dict[str, Any]:
    """Return the content of `tokenizer_config.json`."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_source_tokens,
        "additional_special_tokens": [_TARGET + special for special in SPECIALS] if shift else [],
        **_SETTINGS,
        "padding_side": "right",
        "model_input_names": ["input_ids", "attention_mask"],
    }


def _template(source_format: str) -> dict[str, Any]:
    sos, eos = ({"SpecialToken": {"id": name, "type_id": 0}} for name in (SOS, EOS))
    one, other = ({"Sequence": {"id": name, "type_id": 0}} for name in ("A", "B"))
    ids = {name: {"id": name, "ids": [SPECIALS.index(name)], "tokens": [name]} for name in (SOS, EOS)}
    start = [sos] if source_format.startswith(SOS) else []
    single, pair = [*start, one, eos], [*start, one, other, eos]
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": ids}


def _added_token(number: int, name: str, special: bool) -> dict[str, Any]:
    """Describe a token that is matched in unnormalised text; a tag includes the spaces after it."""
    return {
        "id": number,
        "content": name,
        "single_word": False,
        "lstrip": False,
        "rstrip": not special,
        "normalized": False,
        "special": special,
    }


def _sentencepiece_state(tokenizer: SentencePieceTokenizer) -> dict[str, Any]:
    """Return a tokenizer.json's content without added tokens and template; the vocabulary is a list for unigrams."""
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto.FromString(tokenizer.models[0])
    spec = model.normalizer_spec
    normalizers: list[dict[str, Any]] = [{"type": "NFC"}]
    decoders: list[dict[str, Any]] = [
        _replace(SPACE, " "),
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]
    if model.denormalizer_spec.precompiled_charsmap:  # trained here
        normalizers += [_replace(*pair) for pair in ESCAPES]
        decoders += [_replace(escaped, text) for text, escaped in reversed(ESCAPES)]
    elif spec.precompiled_charsmap:
        charsmap = base64.b64encode(spec.precompiled_charsmap).decode()
        normalizers.append({"type": "Precompiled", "precompiled_charsmap": charsmap})
    if spec.remove_extra_whitespaces:
        strip = {"type": "Strip", "strip_left": True, "strip_right": True}
        normalizers += [strip, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]
    scheme = "always" if spec.add_dummy_prefix else "never"
    spaces = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": True}
    literals = _LITERALS + _LITERAL_BYTES * bool(tokenizer.byte_ids) + _LITERAL_TAGS * bool(tokenizer.tags)
    literal = {"type": "Split", "pattern": {"Regex": literals}, "behavior": "Isolated", "invert": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [spaces, literal]},
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": _model(tokenizer),
    }


def _model(tokenizer: SentencePieceTokenizer) -> dict[str, Any]:
    pieces, has_bytes = tokenizer.pieces, bool(tokenizer.byte_ids)
    if tokenizer.log_probs:
        vocabulary = [[piece, tokenizer.log_probs.get(piece, _NEVER)] for piece in pieces]
        return {"type": "Unigram", "unk_id": UNK_ID, "vocab": vocabulary, "byte_fallback": has_bytes}
    merges = sorted(tokenizer.merges(), key=itemgetter(0))  # SentencePiece ranks the piece, `tokenizers` the pair
    return {
        "type": "BPE",
        "unk_token": UNK,
        "fuse_unk": not has_bytes,
        "byte_fallback": has_bytes,
        "vocab": {piece: i for i, piece in enumerate(pieces)},
        "merges": [[left, right] for _, left, right in merges],
    }


def _replace(pattern: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": pattern}, "content": content}
