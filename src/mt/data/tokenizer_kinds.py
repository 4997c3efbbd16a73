"""Tokenizers of every kind: training, and files whose content tells the kind."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from mt.data.sentencepiece_tokenizer import HEADER, SentencePieceTokenizer
from mt.data.tokenizer import BpeTokenizer
from mt.errors import InputError

TextTokenizer = BpeTokenizer | SentencePieceTokenizer


def train_tokenizer(
    lines: Iterable[str], vocab_size: int, tags: Sequence[str], kind: str, user_symbols: Sequence[str]
) -> TextTokenizer:
    """Learn a vocabulary from text, which may be read twice; `kind` is a `tokenizer.type` of the configuration."""
    if kind == "bpe":
        return BpeTokenizer.train(lines, vocab_size, tags)
    return SentencePieceTokenizer.train(lines, vocab_size, tags, kind.removeprefix("sentencepiece_"), user_symbols)


def read_tokenizer(path: Path) -> TextTokenizer:
    """Load a tokenizer file of a run or a model folder; an InputError if it is missing or unusable."""
    return SentencePieceTokenizer.load(path) if _head(path) == HEADER else BpeTokenizer.load(path)


def read_given(path: Path, key: str, tags: Sequence[str]) -> TextTokenizer:
    """Load a tokenizer file, or a SentencePiece model, to which language tags are added.

    Raises:
        InputError: it is missing or unusable; the message begins with `key`.
    """
    try:
        if _head(path).startswith(b"{"):
            return read_tokenizer(path)
        return SentencePieceTokenizer.from_files(path, tags={language: f"<2{language}>" for language in tags})
    except InputError as error:
        where = "" if str(path) in error.message else f"{path}: "
        raise InputError(f"{key}: {where}{error.message}", error.hint) from None


def _head(path: Path) -> bytes:
    """Return the first bytes of a file; none if there is no such file, which its reader reports."""
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(len(HEADER))
