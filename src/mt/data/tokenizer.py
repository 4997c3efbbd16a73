"""BPE tokenizers, trained on the training text only and lossless for any Unicode text.

BPE's `decode(encode(x))` returns `x` in Unicode normal form C without outer white space:

* a character that training never saw is spelt in its UTF-8 bytes (`<0xE2>` ...), so nothing is unknown;
* punctuation is split off and merges never cross from it to letters, so no merge builds `</s>`, `<0x41>` or a language
  tag (`<2it>`): text never becomes a special token, and stays text;
* the marker `▁`, which stands for a space, is escaped where it occurs in the text itself.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain, takewhile
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from mt.errors import InputError
from mt.text.lines import nfc

PAD, UNK, SOS, EOS = "<pad>", "<unk>", "<s>", "</s>"
SPECIALS = (PAD, UNK, SOS, EOS)
PAD_ID, UNK_ID, SOS_ID, EOS_ID = range(4)
BYTES = tuple(f"<0x{value:02X}>" for value in range(256))

N_UNMERGED = len(SPECIALS) + len(BYTES)  # no merge builds the ids below, or language tags

SPACE = "▁"
# A private-use character escapes the space marker and itself: E000 -> E000 a, ▁ -> E000 b.
_ESCAPE, _ESCAPED_ESCAPE, _ESCAPED_SPACE = "\ue000", "\ue000a", "\ue000b"
ESCAPES = [(_ESCAPE, _ESCAPED_ESCAPE), (SPACE, _ESCAPED_SPACE)]
# Longer lines teach no merges (the library's time grows with the square of a word's length), and are truncated to what
# a model accepts before they are encoded.
_MAX_CHARACTERS = 10_000
_TAG = re.compile("<2([A-Za-z0-9][A-Za-z0-9_-]*)>")


class BpeTokenizer:
    """A byte-pair encoding of text. Ids 0 to 3 are `<pad>`, `<unk>`, `<s>` (SOS) and `</s>` (EOS)."""

    max_tokens_per_character = 4  # its bytes
    byte_ids = range(len(SPECIALS), N_UNMERGED)

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.counterpart = self  # the target language's tokenizer in the same file

    @classmethod
    def train(cls, lines: Iterable[str], vocab_size: int, tags: Sequence[str] = ()) -> "BpeTokenizer":
        """Learn merges from text.

        Args:
            lines: the training text, of both languages if they share a vocabulary; it is read twice.
            vocab_size: number of pieces, with the 4 specials, 256 bytes and the tags.
            tags: target languages with a tag that requests them (Johnson et al. 2017, arXiv:1611.04558).
        """
        tokenizer = _untrained()
        unmerged = [*SPECIALS, *BYTES, *(f"<2{language}>" for language in tags)]
        alphabet = _alphabet(lines, max(1, (vocab_size - len(unmerged)) // 2))
        trainer = BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=unmerged,
            initial_alphabet=alphabet,
            limit_alphabet=len(alphabet),
            show_progress=False,
        )
        tokenizer.train_from_iterator((line for line in lines if len(line) <= _MAX_CHARACTERS), trainer)
        # The trainer registers the specials as strings to match in text; here they must never match.
        state = json.loads(tokenizer.to_str()) | {"added_tokens": []}
        return cls(Tokenizer.from_str(json.dumps(state, ensure_ascii=False)))

    @classmethod
    def from_json(cls, content: bytes, path: Path) -> "BpeTokenizer":
        """Parse the content of a tokenizer file; raise InputError, with its path, if it is not one of our tokenizers.

        It may come from elsewhere, and is checked first, since the library may panic on it.
        """
        try:
            text = content.decode()
            state = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: not a tokenizer file: {str(error)[:200]}") from None
        model = state.get("model") if isinstance(state, dict) else None
        if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict):
            raise InputError(f"{path}: not a tokenizer file: it has no model with a vocabulary")
        if state.get("added_tokens") or state.get("truncation") or state.get("padding"):
            raise InputError(f"{path}: it matches special tokens in text, truncates or pads, which is not supported")
        if not _equivalent(state | {"model": model | {"vocab": {}, "merges": []}}, json.loads(_untrained().to_str())):
            raise InputError(f"{path}: its text processing differs from this program's tokenizers")
        try:
            tokenizer = Tokenizer.from_str(text)
        except Exception as error:  # the library raises plain Exception for anything it cannot parse
            raise InputError(f"{path}: not a tokenizer file: {str(error)[:200]}") from None
        if tuple(map(tokenizer.id_to_token, range(len(SPECIALS)))) != SPECIALS:
            raise InputError(f"{path}: ids 0 to {len(SPECIALS) - 1} must be {', '.join(SPECIALS)}")
        if sorted(model["vocab"].values()) != list(range(tokenizer.get_vocab_size())):
            raise InputError(f"{path}: the ids of its pieces are not 0 to {tokenizer.get_vocab_size() - 1}")
        return cls(tokenizer)

    def to_json(self) -> str:
        """Return the file's content, a pure function of training text and size."""
        return self._tokenizer.to_str(pretty=False) + "\n"

    @property
    def vocab_size(self) -> int:
        return int(self._tokenizer.get_vocab_size())

    @cached_property
    def tags(self) -> dict[str, int]:
        """The ids of the language tags, by language."""
        tags = takewhile(self.is_tag, self.pieces[N_UNMERGED:])
        return {tag[2:-1]: i for i, tag in enumerate(tags, N_UNMERGED)}

    @staticmethod
    def is_tag(piece: str) -> bool:
        return _TAG.fullmatch(piece) is not None

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a sentence, without SOS and EOS."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str], max_tokens: int | None = None) -> list[list[int]]:
        """Encode sentences; one of more than `max_tokens` may be truncated, but still has more than `max_tokens`."""
        texts = [text.strip() for text in texts]
        if max_tokens is not None:
            limit = max_tokens * self._longest_piece + 1
            texts = [text if len(text) <= _MAX_CHARACTERS else nfc(text)[:limit] for text in texts]
        return [e.ids for e in self._tokenizer.encode_batch_fast(texts)]

    @cached_property
    def _longest_piece(self) -> int:
        return max(map(len, self.pieces))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids without specials and tags."""
        return self.decode_batch([ids])[0]

    def decode_batch(self, batch: Sequence[Sequence[int]]) -> list[str]:
        visible = [[i for i in ids if i not in self.hidden] for ids in batch]
        return [str(text) for text in self._tokenizer.decode_batch(visible, skip_special_tokens=False)]

    def merges(self) -> list[tuple[int, str, str]]:
        """Return the pairs of pieces that are merged, each with its rank."""
        pairs = json.loads(self._tokenizer.to_str())["model"]["merges"]
        return [(rank, left, right) for rank, (left, right) in enumerate(pairs)]

    @cached_property
    def hidden(self) -> set[int]:
        """The ids of specials and tags, which text never has."""
        return {*range(len(SPECIALS)), *self.tags.values()}

    @cached_property
    def pieces(self) -> list[str]:
        """The vocabulary, by token id."""
        return [str(self._tokenizer.id_to_token(i)) for i in range(self.vocab_size)]

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the pieces of token ids."""
        return [self.pieces[i] for i in ids]


def _untrained() -> Tokenizer:
    """Return a tokenizer with all settings but no vocabulary."""
    tokenizer = Tokenizer(BPE(unk_token=UNK, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), *(normalizers.Replace(*pair) for pair in ESCAPES)])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Metaspace(SPACE, prepend_scheme="always"),
            # Digits one by one: numbers are copied, not translated, and any number can be written.
            pre_tokenizers.Split(Regex(r"\d"), "isolated"),
            pre_tokenizers.Punctuation("contiguous"),
        ]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace(SPACE, " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
            decoders.Replace(_ESCAPED_SPACE, SPACE),
            decoders.Replace(_ESCAPED_ESCAPE, _ESCAPE),
        ]
    )
    return tokenizer


def _equivalent(a: Any, b: Any) -> bool:
    """Compare two settings; absent is the same as off, since other versions of the library may lack a setting."""
    if isinstance(a, dict) and isinstance(b, dict):
        return all(_equivalent(a.get(key), b.get(key)) for key in a.keys() | b.keys())
    if isinstance(a, list) and isinstance(b, list) and b:
        return len(a) == len(b) and all(map(_equivalent, a, b))
    return bool(a == b) or not (a or b)


def _alphabet(lines: Iterable[str], size: int) -> list[str]:
    """Return the space marker and the most frequent characters, ties in Unicode order (the library's are random).

    Rarer characters are spelt in bytes, so that a large script leaves room for merges.
    """
    counts = Counter(chain.from_iterable(map(normalized, lines)))
    characters = sorted(counts.keys() - {" ", SPACE, _ESCAPE}, key=lambda character: (-counts[character], character))
    return [SPACE, *characters[: size - 1]]


def normalized(text: str) -> str:
    """Return the text that `decode(encode(text))` gives."""
    return nfc(text.strip())
