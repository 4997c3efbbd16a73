"""Training and loading of tokenizers of either kind, BPE or SentencePiece."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from mt.data.sentencepiece_tokenizer import HEADER, SentencePieceTokenizer
from mt.data.tokenizer import BpeTokenizer

TextTokenizer = BpeTokenizer | SentencePieceTokenizer


def train_tokenizer(lines: Iterable[str], vocab_size: int, tags: Sequence[str], kind: str) -> TextTokenizer:
    """Learn a vocabulary from text, which may be read twice; `kind` is a `tokenizer.type` of the configuration."""
    if kind == "bpe":
        return BpeTokenizer.train(lines, vocab_size, tags)
    return SentencePieceTokenizer.train(lines, vocab_size, tags, kind.removeprefix("sentencepiece_"))


def read_tokenizer(path: Path, tags: Sequence[str] = ()) -> TextTokenizer:
    """Load a tokenizer file of either kind, or a bare SentencePiece model, to which language tags are added.

    Raises InputError if it is missing or unusable.
    """
    head = b"{"  # `BpeTokenizer.load` reports a missing file
    if path.is_file():
        with path.open("rb") as file:
            head = file.read(len(HEADER))
    if head == HEADER:
        return SentencePieceTokenizer.load(path)
    if head.startswith(b"{"):
        return BpeTokenizer.load(path)
    return SentencePieceTokenizer.from_files(path, tags={language: f"<2{language}>" for language in tags})
