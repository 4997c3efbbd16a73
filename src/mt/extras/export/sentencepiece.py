"""Our tokenizers as a SentencePiece model.

SentencePiece merges the pair of neighbours whose joint piece has the highest score, ours the pair that was learned
first; so a piece's score is minus the number of its first merge. What our tokenizer does before it merges needs no
counterpart: where text is never parted, there is no piece that reaches across. Differences remain possible, since
SentencePiece looks at what a merge makes and ours at what it is made of; `differences` counts them.

A model has one list of pieces. Of two vocabularies the target's follow as "unused": such a piece is decoded as any
other, and encoding falls apart into what it was merged from.
"""

import unicodedata
from collections.abc import Sequence
from typing import Any

from mt.data.tokenizer import BYTES, EOS, EOS_ID, PAD, PAD_ID, SOS, SOS_ID, SPECIALS, UNK, UNK_ID, TokenizerPair

_UNMERGED_SCORE = -1e6  # of single characters, which no merge makes; below those of all merges


def sentencepiece_model(tokenizers: TokenizerPair) -> bytes:
    """The content of a `sentencepiece.model` that encodes as the source's tokenizer and decodes as the target's."""
    from sentencepiece import SentencePieceNormalizer, sentencepiece_model_pb2, set_min_log_level

    set_min_log_level(2)
    model = sentencepiece_model_pb2.ModelProto()
    normalizer = SentencePieceNormalizer(norm_map=_compositions())
    model.normalizer_spec.ParseFromString(normalizer.serialized_normalizer_spec())
    model.normalizer_spec.name = "nfc"
    model.normalizer_spec.add_dummy_prefix = True
    model.normalizer_spec.escape_whitespaces = True
    model.normalizer_spec.remove_extra_whitespaces = False
    _add_pieces(model, tokenizers)
    trained = model.trainer_spec
    trained.model_type = trained.BPE
    trained.byte_fallback = True
    trained.vocab_size = len(model.pieces)
    trained.pad_id, trained.unk_id, trained.bos_id, trained.eos_id = PAD_ID, UNK_ID, SOS_ID, EOS_ID
    trained.pad_piece, trained.unk_piece, trained.bos_piece, trained.eos_piece = PAD, UNK, SOS, EOS
    return bytes(model.SerializeToString())


def _add_pieces(model: Any, tokenizers: TokenizerPair) -> None:
    kinds = model.SentencePiece
    special = {**dict.fromkeys(SPECIALS, kinds.CONTROL), UNK: kinds.UNKNOWN, **dict.fromkeys(BYTES, kinds.BYTE)}
    source = tokenizers.source
    own = source.tokens(range(source.vocab_size))
    ranks: dict[str, int] = {}
    for rank, (left, right) in enumerate(source.merges()):
        ranks.setdefault(left + right, rank)
    for piece in own:
        score = 0.0 if piece in special else -ranks[piece] if piece in ranks else _UNMERGED_SCORE
        kind = kinds.CONTROL if source.is_tag(piece) else special.get(piece, kinds.NORMAL)
        model.pieces.add(piece=piece, score=score, type=kind)
    known = set(own)
    for piece in tokenizers.target.tokens(range(tokenizers.target.vocab_size)):
        if piece not in known:
            model.pieces.add(piece=piece, score=2 * _UNMERGED_SCORE, type=kinds.UNUSED)


def _compositions() -> list[tuple[str, str]]:
    """Unicode's normal form C as far as replacing text by text can give it: all single characters and their parts."""
    pairs = {}
    for number in (*range(0x80, 0xD800), *range(0xE000, 0x110000)):
        character = chr(number)
        composed = unicodedata.normalize("NFC", character)
        parts = unicodedata.normalize("NFD", character)
        if composed != character:
            pairs[character] = composed
        elif parts != character:
            pairs[parts] = character
    return list(pairs.items())


def differences(content: bytes, tokenizers: TokenizerPair, sources: Sequence[str], targets: Sequence[str]) -> int:
    """How many texts a SentencePiece model parts or puts together otherwise than our tokenizers.

    Args:
        content: what `sentencepiece_model` made.
        tokenizers: of both languages.
        sources: text to part.
        targets: text that our tokenizer parts, to put together.
    """
    from sentencepiece import SentencePieceProcessor

    theirs = SentencePieceProcessor(model_proto=content)
    source, target = tokenizers.source, tokenizers.target
    parted = theirs.encode([text.strip() for text in sources], out_type=str)
    expected = [source.tokens(ids) for ids in source.encode_batch(sources)]
    encoded = target.encode_batch(targets)
    joined = [theirs.decode_pieces(target.tokens(ids)) for ids in encoded]
    found = [*parted, *joined]
    return sum(one != other for one, other in zip(found, [*expected, *target.decode_batch(encoded)], strict=True))
