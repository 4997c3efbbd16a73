"""SentencePiece models as tokenizers (Kudo and Richardson 2018, arXiv:1808.06226), trained here or given.

Ids are ours, whatever the model's own are: the four specials, then the other pieces. A model trained here is lossless
as BPE is: it spells what it has not seen in bytes and escapes the marker `▁`. A given one normalises text its own way.
"""

import base64
import io
import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from mt.data.tokenizer import (
    BYTES,
    EOS,
    EOS_ID,
    ESCAPES,
    PAD,
    PAD_ID,
    SOS,
    SOS_ID,
    SPACE,
    SPECIALS,
    UNK,
    UNK_ID,
    BpeTokenizer,
    normalized,
)
from mt.errors import InputError

HEADER = b'{"type": "sentencepiece"'  # of a tokenizer file
_MAX_CHARACTERS = 10_000  # of a text that is always encoded whole


class SentencePieceTokenizer:
    """A SentencePiece model. Ids 0 to 3 are `<pad>`, `<unk>`, `<s>` (SOS) and `</s>` (EOS).

    Args:
        model: the serialized model.
        pieces: all pieces, by id; None for those of the model, in its order behind the specials.
        target_model: another model over the same pieces, for the target language.

    Raises:
        InputError: one is not a SentencePiece model.
    """

    max_tokens_per_character = 72  # NFKC makes at most 18 characters of one, and each has at most 4 bytes

    def __init__(self, model: bytes, pieces: Sequence[str] | None = None, target_model: bytes | None = None) -> None:
        self.model, self._given, self._target_model = model, pieces, target_model
        self._processor = processor = _load(model)
        self._names: list[str] = processor.id_to_piece(list(range(processor.get_piece_size())))
        if pieces is None:
            own = {processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id()}
            pieces = [*SPECIALS, *(name for i, name in enumerate(self._names) if i not in own and name not in SPECIALS)]
        self._pieces = self._origins = list(pieces)
        self._index = {piece: i for i, piece in enumerate(self._pieces)}
        self.tags = {piece[2:-1]: i for piece, i in self._index.items() if BpeTokenizer.is_tag(piece)}
        self._hidden = {*range(len(SPECIALS)), *self.tags.values()}
        self._ids = [self._id_in_text(name) for name in self._names]
        self._has_others = len(self._hidden.union(self._ids)) < len(self._pieces)  # pieces that the model lacks
        self.counterpart = self if target_model is None else SentencePieceTokenizer(target_model, self._pieces)

    @classmethod
    def train(
        cls,
        lines: Iterable[str],
        vocab_size: int,
        tags: Sequence[str] = (),
        model_type: str = "unigram",
        user_symbols: Sequence[str] = (),
    ) -> "SentencePieceTokenizer":
        """Train a model, `unigram` or `bpe`; a small text gives a smaller vocabulary.

        Raises:
            InputError: the vocabulary cannot hold the text's characters, or the symbols are unusable.
        """
        from sentencepiece import SentencePieceNormalizer, SentencePieceTrainer

        model = io.BytesIO()
        with tempfile.TemporaryDirectory() as folder:
            unescape = Path(folder, "unescape.tsv")  # the library reads code points in hexadecimal
            codes = ([" ".join(f"{ord(c):X}" for c in text) for text in pair] for pair in ESCAPES)
            unescape.write_text("".join(f"{escaped}\t{raw}\n" for raw, escaped in codes), encoding="utf-8")
            try:
                SentencePieceTrainer.train(
                    sentence_iterator=map(normalized, lines),
                    model_writer=model,
                    model_type=model_type,
                    vocab_size=vocab_size,
                    hard_vocab_limit=False,
                    normalizer=SentencePieceNormalizer(norm_map=ESCAPES, remove_extra_whitespaces=False),
                    denormalization_rule_tsv=str(unescape),
                    byte_fallback=True,
                    split_digits=True,  # numbers are copied, not translated
                    control_symbols=[f"<2{language}>" for language in tags],
                    user_defined_symbols=list(user_symbols),
                    pad_id=PAD_ID,
                    unk_id=UNK_ID,
                    bos_id=SOS_ID,
                    eos_id=EOS_ID,
                    minloglevel=2,
                )
            except RuntimeError as error:
                message = f"tokenizer: SentencePiece cannot learn {vocab_size} pieces from this text: {_reason(error)}"
                raise InputError(message, "change tokenizer.vocab_size or tokenizer.user_symbols") from None
        return cls(model.getvalue())

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
        """Take a model from elsewhere. Row i of our embeddings is row `vocabulary[piece(i)]` there.

        Args:
            model_path: the SentencePiece model; the source language's if there are two.
            vocabulary: the ids of all pieces in other software; None for the pieces of the model.
            target_path: the target language's model (Marian).
            tags: the pieces that request a language, by language; here they are called `<2LANGUAGE>`. Without a
                vocabulary they are added.
            start: the piece that begins a translation, our SOS; by default `<s>`, or `<pad>` in a vocabulary without.

        Raises:
            InputError: no model, or a vocabulary with holes, or without a special or a tag.
        """
        model, target_model = _read(model_path), None if target_path is None else _read(target_path)
        names = [f"<2{language}>" for language in tags or {}]
        if vocabulary is None:
            tokenizer = cls(model, None, target_model)
            missing = [name for name in names if name not in tokenizer._index]
            return cls(model, [*tokenizer._pieces, *missing], target_model) if missing else tokenizer
        theirs = sorted(vocabulary, key=vocabulary.__getitem__)
        if (ids := [vocabulary[piece] for piece in theirs]) != list(range(len(ids))):
            raise InputError(f"{model_path}: the ids of its vocabulary are not 0 to {len(ids) - 1}, each once")
        specials = [PAD, UNK, start or (SOS if SOS in vocabulary else PAD), EOS, *(tags or {}).values()]
        if lacking := [piece for piece in specials if piece not in vocabulary]:
            raise InputError(f"{model_path}: its vocabulary lacks {lacking[0]}", "give the vocabulary of this model")
        names = [*SPECIALS, *names]
        others = [piece for piece in theirs if piece not in {*names, *specials}]
        tokenizer = cls(model, names + others, target_model)
        tokenizer._origins = specials + others
        return tokenizer

    @classmethod
    def load(cls, path: Path) -> "SentencePieceTokenizer":
        """Load and check a tokenizer file, made by `to_json`; an InputError if it is damaged."""
        try:
            state = json.loads(_read(path))
            model, target_model = (state[key] and base64.b64decode(state[key]) for key in ("model", "target_model"))
            if (pieces := state["pieces"]) is not None and (
                pieces[:4] != list(SPECIALS) or {*map(type, pieces)} != {str} or len({*pieces}) < len(pieces)
            ):
                raise ValueError("its pieces are not the specials and other strings, each once")
            return cls(model, pieces, target_model)
        except (ValueError, LookupError, TypeError, RecursionError, InputError) as error:
            raise InputError(f"{path}: not a tokenizer file: {str(error)[:200]}") from None

    def to_json(self) -> str:
        """Return the file's content: the models in Base64, and the pieces if they are not those of the model."""
        models = {"model": self.model, "target_model": self._target_model}
        coded = {key: model and base64.b64encode(model).decode() for key, model in models.items()}
        return json.dumps({"type": "sentencepiece", **coded, "pieces": self._given}, ensure_ascii=False) + "\n"

    @property
    def vocab_size(self) -> int:
        return len(self._pieces)

    def piece(self, i: int) -> str:
        """Return the name of piece i in the vocabulary that was given to `from_files`."""
        return self._origins[i]

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the pieces of token ids."""
        return [self._pieces[i] for i in ids]

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
            if len(text) > limit and len(encoded[row]) <= max_tokens:  # of long pieces, or of spaces that it removes
                [encoded[row]] = self._encode([text])
        return encoded

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        # One thread: callers have a process per core.
        encoded = [[self._ids[i] for i in ids] for ids in self._processor.encode(texts, num_threads=1)]
        for row, ids in enumerate(encoded if self._has_others else ()):
            if UNK_ID in ids:  # the vocabulary may have what the model does not know, and returns as it is
                encoded[row] = list(map(self._id_in_text, self._processor.encode(texts[row], out_type=str)))
        return encoded

    def _id_in_text(self, piece: str) -> int:
        """Return a piece's id, but never a special or a tag, even where the model finds it in text."""
        i = self._index.get(piece, UNK_ID)
        return UNK_ID if i in self._hidden else i

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids without specials and tags."""
        return self.decode_batch([ids])[0]

    def decode_batch(self, batch: Sequence[Sequence[int]]) -> list[str]:
        visible = ([self._pieces[i] for i in ids if i not in self._hidden] for ids in batch)
        texts = [str(self._processor.decode_pieces(pieces)) for pieces in visible]
        return [text.replace(SPACE, " ") for text in texts] if self._has_others else texts

    @cached_property
    def byte_ids(self) -> list[int]:
        """The ids of the 256 bytes; empty if the model has none."""
        numbers = [self._processor.piece_to_id(piece) for piece in BYTES]
        return [self._ids[i] for i in numbers] if all(map(self._processor.is_byte, numbers)) else []

    @cached_property
    def log_probs(self) -> dict[str, float]:
        """The log-probabilities of the pieces that a unigram model cuts text into, without bytes and symbols.

        They are empty for BPE, which has none.
        """
        try:
            self._processor.nbest_encode_as_ids("a", 1)
        except RuntimeError:  # it has no n-best segmentations
            return {}
        scores = self._processor.get_score(list(range(len(self._names))))
        # Symbols that are found in text have the score 0.
        return {p: score for p, i, score in zip(self._names, self._ids, scores, strict=True) if i != UNK_ID and score}


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


def _load(model: bytes) -> Any:
    """Return a SentencePieceProcessor; an InputError if the bytes are no model."""
    from sentencepiece import SentencePieceProcessor, set_min_log_level

    set_min_log_level(2)
    processor = SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
    except (RuntimeError, TypeError) as error:
        raise InputError(f"not a SentencePiece model: {_reason(error)}") from None
    return processor


def _reason(error: Exception) -> str:
    return str(error).rpartition("] ")[2][:200]
