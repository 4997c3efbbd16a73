"""Tokenizers of either kind, BPE or SentencePiece: training, loading, and the pair that a model has."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mt.console import log
from mt.data.sentencepiece_tokenizer import HEADER, SentencePieceTokenizer
from mt.data.tokenizer import BpeTokenizer
from mt.storage import atomic
from mt.storage.run_dir import tokenizer_names
from mt.text.lines import explain_read_errors

if TYPE_CHECKING:
    from mt.config import TokenizerConfig

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
    with explain_read_errors(path):
        content = path.read_bytes()
    if content.startswith(HEADER):
        return SentencePieceTokenizer.from_json(content, path)
    if content.startswith(b"{"):
        return BpeTokenizer.from_json(content, path)
    return SentencePieceTokenizer.from_files(path, tags={language: f"<2{language}>" for language in tags})


@dataclass(frozen=True)
class _Concatenated:
    """Source and target text as one text that can be read repeatedly."""

    source: Iterable[str]
    target: Iterable[str]

    def __iter__(self) -> Iterator[str]:
        return chain(self.source, self.target)


class TokenizerPair(NamedTuple):
    """The source and the target tokenizer: with a shared vocabulary the same object, or counterparts."""

    source: TextTokenizer
    target: TextTokenizer

    @property
    def shared(self) -> bool:
        return self.source.counterpart is self.target

    def files(self) -> dict[str, str]:
        """Return the files of a `tokenizer/` folder, name to content."""
        source, target = tokenizer_names(self.shared)
        return {source: self.source.to_json()} | ({} if self.shared else {target: self.target.to_json()})

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Write the files of a `tokenizer/` folder; return those of the two sides."""
        for name, content in self.files().items():
            atomic.write_text(folder / name, content)
        source, target = tokenizer_names(self.shared)
        return folder / source, folder / target

    @classmethod
    def load(cls, folder: Path, shared: bool) -> "TokenizerPair":
        return cls._read([folder / name for name in tokenizer_names(shared)], shared)

    @classmethod
    def given(cls, settings: "TokenizerConfig", tags: Sequence[str] = ()) -> "TokenizerPair | None":
        """Load the tokenizers whose files the configuration names; None if they are to be trained."""
        return None if settings.given is None else cls._read(map(Path, settings.given), settings.shared, tags)

    @classmethod
    def _read(cls, paths: Iterable[Path], shared: bool, tags: Sequence[str] = ()) -> "TokenizerPair":
        source_path, target_path = paths
        source = read_tokenizer(source_path, tags)
        return cls(source, source.counterpart if shared else read_tokenizer(target_path))

    @classmethod
    def train(
        cls,
        source: Iterable[str],
        target: Iterable[str],
        vocab_size: int,
        shared: bool,
        tags: Sequence[str] = (),
        kind: str = "bpe",
    ) -> "TokenizerPair":
        """Learn one vocabulary from both texts, or one from each; each text is read twice.

        A text too small for `vocab_size` gives a smaller vocabulary and a warning. The source tokenizer gets the tags.
        """
        if shared:
            tokenizer = train_tokenizer(_Concatenated(source, target), vocab_size, tags, kind)
            pair, names = cls(tokenizer, tokenizer), ["training"]
        else:
            learned = train_tokenizer(source, vocab_size, tags, kind), train_tokenizer(target, vocab_size, (), kind)
            pair, names = cls(*learned), ["source", "target"]
        for name, tokenizer in zip(names, pair, strict=False):
            if tokenizer.vocab_size < vocab_size:
                message = "tokenizer.vocab_size: the %s text gives only %d of the %d pieces requested"
                log.warning(message, name, tokenizer.vocab_size, vocab_size)
        return pair
