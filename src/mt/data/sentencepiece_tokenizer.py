"""SentencePiece models as tokenizers (Kudo and Richardson 2018, arXiv:1808.06226), trained here or given.

Ids are ours, whatever the model's are: the four specials, then the other pieces. A model trained here is lossless as
BPE is: it spells unseen characters in bytes and escapes the marker `▁`. A given one normalises text in its own way.
"""

import base64
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from mt.data.tokenizer import BYTES, ESCAPES, SPACE, SPECIALS, UNK_ID, BpeTokenizer, normalized
from mt.errors import InputError
from mt.text.lines import explain_read_errors

HEADER = b'{"type": "sentencepiece"'  # of a tokenizer file
_SPECIAL_IDS: dict[str, Any] = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}
_MAX_CHARACTERS = 10_000  # of a text that is always encoded whole


class SentencePieceTokenizer:
    """A SentencePiece model. Ids 0 to 3 are `<pad>`, `<unk>`, `<s>` (SOS) and `</s>` (EOS).

    Raises InputError for bytes that are not such a model.

    Attributes:
        pieces: the vocabulary, by token id.
        hidden: the ids of specials and tags, which text never has.
        origins: their names in the vocabulary that was given to `from_files`.

    Args:
        models: the serialized model; or the source's and the target's over the same pieces, whose tokenizer is the
            `counterpart`.
        pieces: all pieces, by id; None for those of the model, in its order behind the specials.
    """

    max_tokens_per_character = 72  # NFKC makes at most 18 characters of one, and each has at most 4 bytes

    def __init__(self, models: Sequence[bytes], pieces: Sequence[str] | None = None) -> None:
        self.models, self._given = models, pieces
        self._processor, self._names = processor, _ = _load(models[0])
        if pieces is None:
            special = {processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id()}
            names = (name for i, name in enumerate(self._names) if i not in special)
            pieces = [*SPECIALS, *(name for name in names if name not in SPECIALS)]
        self.pieces = self.origins = list(pieces)
        self._index = {piece: i for i, piece in enumerate(self.pieces)}
        tags = (piece for piece in self.pieces if piece.startswith("<2") and BpeTokenizer.is_tag(piece))
        self.tags = {piece[2:-1]: self._index[piece] for piece in tags}
        self.hidden = {*range(len(SPECIALS)), *self.tags.values()}
        self._ids = [self._id_in_text(name) for name in self._names]
        self._has_others = len(self.hidden.union(self._ids)) < len(self.pieces)  # pieces that the model lacks
        self.counterpart = self if len(models) == 1 else SentencePieceTokenizer(models[1:], self.pieces)

    @classmethod
    def train(
        cls, lines: Iterable[str], vocab_size: int, tags: Sequence[str] = (), model_type: str = "unigram"
    ) -> "SentencePieceTokenizer":
        """Train a model, `unigram` or `bpe`; a small text gives a smaller vocabulary.

        Raises InputError if the vocabulary is too small for the text's characters.
        """
        from sentencepiece import SentencePieceNormalizer, SentencePieceTrainer, set_min_log_level

        set_min_log_level(2)
        model = io.BytesIO()
        as_it_is: dict[str, Any] = {"remove_extra_whitespaces": False}
        try:
            SentencePieceTrainer.train(
                sentence_iterator=map(normalized, lines),
                model_writer=model,
                model_type=model_type,
                vocab_size=vocab_size,
                hard_vocab_limit=False,
                normalizer=SentencePieceNormalizer(norm_map=ESCAPES, **as_it_is),
                byte_fallback=True,
                split_digits=True,  # numbers are copied, not translated
                control_symbols=[f"<2{language}>" for language in tags],
                **_SPECIAL_IDS,
                num_threads=16,  # results depend on it
                minloglevel=2,
            )
        except RuntimeError as error:
            message = f"tokenizer: SentencePiece cannot learn {vocab_size} pieces from this text: {_reason(error)}"
            raise InputError(message, "change tokenizer.vocab_size") from None
        as_it_is |= {"add_dummy_prefix": False, "escape_whitespaces": False}
        unescape = SentencePieceNormalizer(norm_map=[pair[::-1] for pair in ESCAPES], **as_it_is)
        spec = unescape.serialized_normalizer_spec()
        # Of rules given as a file the trainer would record the path. Fields appended to a serialized protobuf message
        # belong to it: this is field 5, denormalizer_spec, its length a varint of two bytes.
        return cls([model.getvalue() + bytes([5 << 3 | 2, len(spec) & 127 | 128, len(spec) >> 7]) + spec])

    @classmethod
    def from_files(
        cls,
        model_path: Path,
        vocabulary: Mapping[str, int] | None = None,
        *,
        target_path: Path | None = None,
        tags: Mapping[str, str] | None = None,
        start: str | None = None,
    ) -> "SentencePieceTokenizer":
        """Load a model trained elsewhere; row i of our embeddings is its row `vocabulary[piece(i)]`.

        Raises InputError for another kind of file, and for a vocabulary with gaps or without a special or a tag.

        Args:
            model_path: the SentencePiece model; the source language's if there are two.
            vocabulary: the ids of all pieces in other software; None for the pieces of the model.
            target_path: the target language's model (Marian).
            tags: the pieces that request a language, by language; here they are called `<2LANGUAGE>`. Without a
                vocabulary they are added.
            start: the piece that begins a translation, our SOS; by default `<s>`, or `<pad>` in a vocabulary without.
        """
        models = [_read_model(path) for path in (model_path, target_path) if path is not None]
        names, pieces = [f"<2{language}>" for language in tags or {}], list((tags or {}).values())
        if vocabulary is None:
            tokenizer = cls(models)
            missing = [name for name in names if name not in tokenizer._index]
            return cls(models, [*tokenizer.pieces, *missing]) if missing else tokenizer
        theirs = sorted(vocabulary, key=vocabulary.__getitem__)
        if [vocabulary[piece] for piece in theirs] != list(range(len(theirs))):
            raise InputError(f"{model_path}: the ids of its vocabulary are not 0 to {len(theirs) - 1}, each once")
        pad, unk, sos, eos = SPECIALS
        renamed = [pad, unk, start or (sos if sos in vocabulary else pad), eos, *pieces]
        if lacking := [piece for piece in renamed if piece not in vocabulary]:
            raise InputError(f"{model_path}: its vocabulary lacks {lacking[0]}", "give the vocabulary of this model")
        taken = {*SPECIALS, *names, *renamed}
        others = [piece for piece in theirs if piece not in taken]
        tokenizer = cls(models, [*SPECIALS, *names, *others])
        tokenizer.origins = renamed + others
        return tokenizer

    @classmethod
    def from_json(cls, content: bytes, path: Path) -> "SentencePieceTokenizer":
        """Parse the content of a tokenizer file, made by `to_json`; raise InputError, with its path, if damaged."""
        try:
            state = json.loads(content)
            pieces = state["pieces"] or SPECIALS
            if tuple(pieces[:4]) != SPECIALS or {*map(type, pieces)} != {str} or len({*pieces}) < len(pieces):
                raise ValueError("its pieces are not the specials and other strings, each once")
            return cls([base64.b64decode(model) for model in state["models"]], state["pieces"])
        except (ValueError, LookupError, TypeError, RecursionError, InputError) as error:
            raise InputError(f"{path}: not a tokenizer file: {str(error)[:200]}") from None

    def to_json(self) -> str:
        """Return the file's content: the models in Base64, and the pieces if they are not those of the model."""
        models = [base64.b64encode(model).decode() for model in self.models]
        return json.dumps({"type": "sentencepiece", "models": models, "pieces": self._given}, ensure_ascii=False) + "\n"

    @property
    def vocab_size(self) -> int:
        return len(self.pieces)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the pieces of token ids."""
        return [self.pieces[i] for i in ids]

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a sentence, without SOS and EOS."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str], max_tokens: int | None = None) -> list[list[int]]:
        """Encode sentences; one of more than `max_tokens` may be truncated, but still has more than `max_tokens`."""
        texts = [normalized(text) for text in texts]
        if max_tokens is None:
            return self._encode(texts)
        limit = max(_MAX_CHARACTERS, max_tokens * self.max_tokens_per_character)
        encoded = self._encode([text[:limit] for text in texts])
        for row, text in enumerate(texts):
            if len(text) > limit and len(encoded[row]) <= max_tokens:  # long pieces, or spaces that the model removes
                [encoded[row]] = self._encode([text])
        return encoded

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        # One thread: callers have a process per core.
        encoded = [[self._ids[i] for i in ids] for ids in self._processor.encode(texts, num_threads=1)]
        for row, ids in enumerate(encoded if self._has_others else ()):
            if UNK_ID in ids:  # the vocabulary may have text that is unknown to the model, which returns it as it is
                encoded[row] = list(map(self._id_in_text, self._processor.encode(texts[row], out_type=str)))
        return encoded

    def _id_in_text(self, piece: str) -> int:
        """Return a piece's id, but never a special or a tag, even where the model finds it in text."""
        i = self._index.get(piece, UNK_ID)
        return UNK_ID if i in self.hidden else i

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids without specials and tags."""
        return self.decode_batch([ids])[0]

    def decode_batch(self, batch: Sequence[Sequence[int]]) -> list[str]:
        visible = ([self.pieces[i] for i in ids if i not in self.hidden] for ids in batch)
        texts = [str(self._processor.decode_pieces(pieces)) for pieces in visible]
        return [text.replace(SPACE, " ") for text in texts] if self._has_others else texts

    @cached_property
    def byte_ids(self) -> range:
        """The ids of the 256 bytes, which are consecutive; empty if the model has none."""
        ids = [self._ids[i] for i in self._processor.piece_to_id(list(BYTES)) if self._processor.is_byte(i)]
        consecutive = range(min(ids, default=0), max(ids, default=-1) + 1)
        return consecutive if list(consecutive) == ids else range(0)

    @cached_property
    def log_probs(self) -> dict[str, float]:
        """The log-probabilities of a unigram model's pieces, without bytes and symbols; empty for BPE."""
        # User-defined symbols have the score 0.
        return {} if self._is_bpe() else {piece: score for piece, score in self._scores() if score}

    def merges(self) -> list[tuple[int, str, str]]:
        """Return the pairs of pieces that a BPE model merges, each with the rank of its merge; none for unigram."""
        if not self._is_bpe():
            return []
        scores = self._scores()
        # The score of the n-th merge is -n; only the first one has 0, as symbols have, which precede it.
        first = max((i for i, (_, score) in enumerate(scores) if score == 0), default=0)
        ranks = {piece: round(-score) for i, (piece, score) in enumerate(scores) if score or i == first}
        splits = ((rank, p[:i], p[i:]) for p, rank in ranks.items() for i in range(1, len(p)))
        return [(rank, left, right) for rank, left, right in splits if left in ranks and right in ranks]

    def _is_bpe(self) -> bool:
        try:
            self._processor.nbest_encode_as_ids("a", 1)
        except RuntimeError:  # it has no n-best segmentations
            return True
        return False

    def _scores(self) -> list[tuple[str, float]]:
        """Return the pieces that text may have, in the model's order, with their scores; no bytes."""
        scores = self._processor.get_score(list(range(len(self._names))))
        is_byte = self._processor.is_byte(list(range(len(self._names))))
        pieces = zip(self._names, self._ids, scores, is_byte, strict=True)
        return [(name, score) for name, i, score, byte in pieces if i != UNK_ID and not byte]


def _read_model(path: Path) -> bytes:
    with explain_read_errors(path):
        model = path.read_bytes()
    _load(model, path)
    return model


def _load(model: bytes, name: object = "tokenizer") -> tuple[Any, list[str]]:
    """Return a SentencePieceProcessor and its pieces; raise InputError, with the name, if the bytes are not a model."""
    from sentencepiece import SentencePieceProcessor, set_min_log_level

    set_min_log_level(2)
    processor = SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
        return processor, processor.id_to_piece(list(range(processor.get_piece_size())))
    except (RuntimeError, TypeError, ValueError) as error:
        reason = _reason(error) or "it cannot be parsed"
        raise InputError(f"{name}: not a SentencePiece model: {reason}") from None


def _reason(error: Exception) -> str:
    return str(error).rpartition("] ")[2][:200]
