"""Conversion of the tokenizers to one SentencePiece model.

SentencePiece merges the neighbours whose merged piece has the highest score, our BPE those whose merge was learned
first; so a piece's score is minus the rank of its first merge. Pre-tokenization needs no counterpart, since no piece
crosses its boundaries. SentencePiece ranks the result of a merge and our BPE the pair, so rare differences remain;
`count_differences` counts them.

A model has one list of pieces. With separate vocabularies the target's follow as "unused" pieces, which are decoded
but never produced by encoding.
"""

import unicodedata
from collections.abc import Sequence
from typing import Any

from mt.data.sentencepiece_tokenizer import SentencePieceTokenizer
from mt.data.tokenizer import BYTES, SPECIALS, UNK, BpeTokenizer
from mt.data.tokenizer_kinds import TokenizerPair

_UNMERGED_SCORE = -1e6  # of single characters; below the scores of all merges


def sentencepiece_model(tokenizers: TokenizerPair) -> bytes:
    """Return a serialized model that encodes as the source tokenizer and decodes as the target tokenizer."""
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto()
    if isinstance(tokenizers.source, SentencePieceTokenizer):
        model.ParseFromString(tokenizers.source.models[0])
    else:
        _convert_bpe(tokenizers.source, model)
    known = {each.piece for each in model.pieces}
    for piece in tokenizers.target.pieces:
        if piece not in known:
            model.pieces.add(piece=piece, score=2 * _UNMERGED_SCORE, type=model.SentencePiece.UNUSED)
    return bytes(model.SerializeToString())


def _convert_bpe(source: BpeTokenizer, model: Any) -> None:
    from sentencepiece import SentencePieceNormalizer, set_min_log_level

    set_min_log_level(2)
    normalizer = SentencePieceNormalizer(norm_map=_compositions())
    model.normalizer_spec.ParseFromString(normalizer.serialized_normalizer_spec())
    model.normalizer_spec.name = "nfc"
    model.normalizer_spec.add_dummy_prefix = True
    model.normalizer_spec.escape_whitespaces = True
    model.normalizer_spec.remove_extra_whitespaces = False
    _add_pieces(model, source)
    trained = model.trainer_spec
    trained.model_type = trained.BPE
    trained.byte_fallback = True
    trained.vocab_size = len(model.pieces)
    trained.pad_id, trained.unk_id, trained.bos_id, trained.eos_id = range(len(SPECIALS))
    trained.pad_piece, trained.unk_piece, trained.bos_piece, trained.eos_piece = SPECIALS


def _add_pieces(model: Any, source: BpeTokenizer) -> None:
    kinds = model.SentencePiece
    special = {**dict.fromkeys(SPECIALS, kinds.CONTROL), UNK: kinds.UNKNOWN, **dict.fromkeys(BYTES, kinds.BYTE)}
    ranks: dict[str, int] = {}
    for rank, left, right in source.merges():
        ranks.setdefault(left + right, rank)
    for piece in source.pieces:
        score = 0.0 if piece in special else -ranks[piece] if piece in ranks else _UNMERGED_SCORE
        kind = kinds.CONTROL if source.is_tag(piece) else special.get(piece, kinds.NORMAL)
        model.pieces.add(piece=piece, score=score, type=kind)


def _compositions() -> list[tuple[str, str]]:
    """Return replacements that approximate Unicode NFC: decompositions of all single characters."""
    pairs = {}
    for character in map(chr, (*range(0x80, 0xD800), *range(0xE000, 0x110000))):
        composed = unicodedata.normalize("NFC", character)
        parts = unicodedata.normalize("NFD", character)
        if composed != character:
            pairs[character] = composed
        elif parts != character:
            pairs[parts] = character
    return list(pairs.items())


def count_differences(content: bytes, tokenizers: TokenizerPair, sources: Sequence[str], targets: Sequence[str]) -> int:
    """Count texts that a SentencePiece model encodes (sources) or decodes (targets) differently from the tokenizers."""
    from sentencepiece import SentencePieceProcessor

    theirs = SentencePieceProcessor(model_proto=content)
    source, target = tokenizers.source, tokenizers.target
    source_pieces = [source.tokens(ids) for ids in source.encode_batch(sources)]
    encoded = theirs.encode([text.strip() for text in sources], out_type=str)
    target_ids = target.encode_batch(targets)
    decoded = [theirs.decode_pieces(target.tokens(ids)) for ids in target_ids]
    expected = [*source_pieces, *target.decode_batch(target_ids)]
    return sum(one != other for one, other in zip([*encoded, *decoded], expected, strict=True))
