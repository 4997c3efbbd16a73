"""Tokenizers of a Hugging Face folder, and the rows of its embeddings that belong to their pieces."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mt.data.sentencepiece_tokenizer import SentencePieceTokenizer
from mt.data.tokenizer_kinds import TokenizerPair
from mt.errors import InputError
from mt.extras.export.common import MT_FOLDER
from mt.extras.importing.safe_tensors import COPY_AGAIN, read_mapping

WHOLE_EXPORT = f"an export of mt needs its folder {MT_FOLDER}"  # a hint
_MAX_UNUSED_ROWS = 256  # of embeddings, whose number some models round up
# Language pieces by kind of tokenizer
_TAGS = {
    "marian": re.compile(r">>(.+)<<"),
    "m2m_100": re.compile(r"__(.+)__"),
    "aligned": re.compile(r"([a-z]{2}_[A-Z]{2}|[a-z]{3}_[A-Z][a-z]{3})"),  # mBART's en_XX, NLLB's eng_Latn
}
_SPECIALS = {"<s>", "<pad>", "</s>", "<unk>", "<mask>"}
_FILLING = re.compile(r"madeupword\d+")  # pieces that round up the number of rows
# M2M-100's languages in the order of their rows, which follow those of the vocabulary
_M2M_100 = (
    "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu hy "
    "id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt ro ru "
    "sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu"
).split()


@dataclass(frozen=True)
class Vocabulary:
    """The tokenizers of a folder, before their languages are chosen."""

    models: tuple[Path, Path]  # the SentencePiece models of source and target
    pieces: tuple[Mapping[str, int], Mapping[str, int]]  # their ids by piece; the same object if shared
    tags: Mapping[str, str]  # the piece that stands for a language, by language

    @property
    def shared(self) -> bool:
        return self.pieces[0] is self.pieces[1]

    def tokenizers(self, start: str, sizes: tuple[int, int]) -> tuple[TokenizerPair, str, tuple[Tensor, Tensor]]:
        """Return our tokenizers, their kind, and for each of their source and target ids (U,) the embeddings' row.

        A translation begins with the piece `start`; `sizes` are the numbers of rows of source and target embeddings.

        Raises:
            InputError: the tokenizer has more pieces than the embeddings have rows, or far fewer.
        """
        for path, pieces, size in zip(self.models, self.pieces, sizes, strict=True):
            if not 0 <= size - len(pieces) <= _MAX_UNUSED_ROWS:
                message = f"{path.parent}: its tokenizer has {len(pieces):,} pieces, but its embeddings {size:,} rows"
                raise InputError(message, "take tokenizer and weights of the same model")
        (source_path, target_path), (source_pieces, target_pieces) = self.models, self.pieces
        other = None if not self.shared or source_path.read_bytes() == target_path.read_bytes() else target_path
        read = SentencePieceTokenizer.from_files
        source = read(source_path, source_pieces, target_path=other, tags=self.tags, start=start)
        target = source if self.shared else read(target_path, target_pieces, start=start)
        rows = (
            torch.tensor([source_pieces[piece] for piece in source.origins]),
            torch.tensor([target_pieces[piece] for piece in target.origins]),
        )
        kind = "unigram" if source.log_probs else "sentencepiece_bpe"
        return TokenizerPair(source, source.counterpart if self.shared else target), kind, rows


def read_vocabulary(folder: Path, settings: Mapping[str, Any], is_marian: bool, one_matrix: bool) -> Vocabulary:
    """Read the vocabulary of a folder and its tokenizer's settings; with `one_matrix`, both sides share embeddings.

    Raises:
        InputError: a file is missing or damaged, or tokens were added to the tokenizer.
    """
    path, other = folder / "vocab.json", folder / "target_vocab.json"
    if is_marian:
        is_separate = settings.get("separate_vocabs") or (other.is_file() and not one_matrix)
        models = folder / "source.spm", folder / "target.spm"
        vocabulary = marian_vocabulary(models, _read_ids(path), _read_ids(other) if is_separate else None)
    else:
        model = _model(folder / "sentencepiece.bpe.model")
        if path.is_file():
            pieces, kind = _read_ids(path), "m2m_100"
            pieces |= {f"__{code}__": len(pieces) + i for i, code in enumerate(_M2M_100)}
        else:
            pieces, kind = _tokenizer_json(folder / "tokenizer.json"), "aligned"
        vocabulary = Vocabulary((model, model), (pieces, pieces), _tags(pieces, kind))
    _refuse_added_tokens(folder, settings, vocabulary)
    return vocabulary


def marian_vocabulary(
    models: tuple[Path, Path], source: Mapping[str, int], target: Mapping[str, int] | None
) -> Vocabulary:
    """Return a vocabulary of two SentencePiece models and ids by piece; `target` is None if the source's are shared.

    Raises:
        InputError: a SentencePiece model is missing.
    """
    pieces = source, source if target is None else target
    return Vocabulary((_model(models[0]), _model(models[1])), pieces, _tags(source, "marian") if target is None else {})


def multilingual_vocabulary(folder: Path, names: Sequence[str]) -> tuple[Vocabulary, str] | None:
    """Return the vocabulary of M2M-100, NLLB or mBART with these pieces in the order of ids, and its `model_type`.

    None if no piece is a language of theirs.

    Raises:
        InputError: the folder has no `sentencepiece.bpe.model`.
    """
    pieces = {piece: i for i, piece in enumerate(names) if not _FILLING.fullmatch(piece)}
    for kind in ("m2m_100", "aligned"):
        if tags := _tags(pieces, kind):
            model = _model(folder / "sentencepiece.bpe.model")
            is_mbart = kind == "aligned" and any(code[2] == "_" for code in tags)
            return Vocabulary((model, model), (pieces, pieces), tags), "mbart" if is_mbart else "m2m_100"
    return None


def _refuse_added_tokens(folder: Path, settings: Mapping[str, Any], vocabulary: Vocabulary) -> None:
    """Refuse added tokens, which are matched before SentencePiece splits a text; our tokenizers do not do that."""
    listed, state = (read_mapping(folder / name, {}) for name in ("added_tokens.json", "tokenizer.json"))
    described, more = settings.get("added_tokens_decoder") or {}, state.get("added_tokens") or []
    try:
        tokens = [*described.values(), *more]
        is_special = dict.fromkeys(listed, False) | {token["content"]: bool(token["special"]) for token in tokens}
        added = {token for token, special in is_special.items() if not special and not _FILLING.fullmatch(token)}
    except (LookupError, TypeError, AttributeError):
        raise InputError(f"{folder}: its added tokens cannot be read", COPY_AGAIN) from None
    added -= _SPECIALS | set(vocabulary.tags.values())
    for path in vocabulary.models if added else ():
        model = SentencePieceTokenizer.from_files(path)
        added -= set(model.pieces)
    if added:
        message = f"{folder}: the token {min(added)!r:.50} was added to its tokenizer, and is not one of SentencePiece"
        raise InputError(message, "fine-tune the model without added tokens")


def _tokenizer_json(path: Path) -> dict[str, int]:
    """Return the ids by piece in a tokenizer.json, added tokens included."""
    if not path.is_file():
        hint = "let transformers write it: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
        raise InputError(f"{path}: no such file", hint)
    state = read_mapping(path)
    try:
        vocabulary = state["model"]["vocab"]
        if isinstance(vocabulary, list):
            vocabulary = {piece: i for i, (piece, _) in enumerate(vocabulary)}
        return _ids(path, vocabulary | {token["content"]: token["id"] for token in state["added_tokens"]})
    except (LookupError, TypeError, ValueError, AttributeError):
        raise InputError(f"{path}: not a tokenizer.json with a vocabulary") from None


def _read_ids(path: Path) -> dict[str, int]:
    return _ids(path, read_mapping(path))


def _ids(path: Path, pieces: Mapping[str, Any]) -> dict[str, int]:
    if not all(isinstance(piece, str) and type(i) is int for piece, i in pieces.items()):
        raise InputError(f"{path}: its values are not the numbers of pieces")
    return dict(pieces)


def _model(path: Path) -> Path:
    if not path.is_file():
        raise InputError(f"{path}: no such file", f"copy all files of the tokenizer; {WHOLE_EXPORT}")
    return path


def _tags(pieces: Mapping[str, int], kind: str) -> dict[str, str]:
    matches = (_TAGS[kind].fullmatch(piece) for piece in pieces)
    return {match[1]: match[0] for match in matches if match}
