"""Conversion of the tokenizers to one transformers tokenizer, which encodes sources and decodes targets.

The exported model has one range of ids for both languages (see `huggingface_weights`). With separate vocabularies, the
target's pieces follow the source's with a prefix that decoding removes.
"""

import json
from typing import Any

from mt.data.sentencepiece_tokenizer import SentencePieceTokenizer
from mt.data.tokenizer import EOS, PAD, SOS, SPECIALS, UNK, TokenizerPair
from mt.extras.export.huggingface_sentencepiece import tokenizer_state

# A prefix that no piece has: in pieces, the escape character is followed by one of two other letters.
_TARGET = "\ue000t"


def tokenizer_json(tokenizers: TokenizerPair, shift: int, source_format: str) -> str:
    """Return the content of `tokenizer.json`; `shift` is the first target id, 0 for a shared vocabulary."""
    source = tokenizers.source
    state: dict[str, Any] = json.loads(source.to_json())
    if isinstance(source, SentencePieceTokenizer):
        state = tokenizer_state(source)
    state["normalizer"]["normalizers"].insert(0, {"type": "Strip", "strip_left": True, "strip_right": True})
    state["post_processor"] = _template(source_format)
    names = dict(enumerate(SPECIALS))
    if shift:
        target = tokenizers.target.tokens(range(tokenizers.target.vocab_size))
        if isinstance(state["model"]["vocab"], list):  # of a unigram model
            state["model"]["vocab"] += [[_TARGET + piece, 0.0] for piece in target]
        else:
            state["model"]["vocab"].update({_TARGET + piece: shift + i for i, piece in enumerate(target)})
        state["decoder"]["decoders"].insert(0, {"type": "Replace", "pattern": {"String": _TARGET}, "content": ""})
        names.update({shift + i: _TARGET + special for i, special in enumerate(SPECIALS)})
    state["added_tokens"] = [_added_token(i, name, special=True) for i, name in names.items()]
    # Language tags are recognised in text, which is the only place to give them.
    state["added_tokens"] += [
        _added_token(i, f"<2{code}>", special=False) for code, i in tokenizers.source.tags.items()
    ]
    return json.dumps(state, ensure_ascii=False) + "\n"


def tokenizer_config(tokenizers: TokenizerPair, shift: int, max_source_tokens: int) -> dict[str, Any]:
    """Return the content of `tokenizer_config.json`."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_source_tokens,
        "pad_token": PAD,
        "unk_token": UNK,
        "bos_token": SOS,
        "eos_token": EOS,
        "additional_special_tokens": [_TARGET + special for special in SPECIALS] if shift else [],
        "split_special_tokens": True,  # a literal </s> in a sentence is text
        "clean_up_tokenization_spaces": False,
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
