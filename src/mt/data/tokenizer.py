"""The BPE tokenizer: trained on the training text only, lossless for any Unicode text.

`decode(encode(x))` gives back `x` in Unicode normal form C, outer white space aside:

* a character that training never saw is spelt in its UTF-8 bytes (`<0xE2>` ...), so nothing is ever unknown;
* punctuation is split off and merges never cross from it to letters, so no merge can build `</s>` or `<0x41>`: the
  special tokens are out of reach of text, and such text stays text. So are the tags of a model of several languages
  (`<2it>`), which begin the source sentences to be translated into that language;
* the marker `▁` that stands for a space is escaped where it occurs in the text itself.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from mt.console import log
from mt.errors import InputError
from mt.storage.run_dir import tokenizer_names
from mt.text.lines import nfc

PAD, UNK, SOS, EOS = "<pad>", "<unk>", "<s>", "</s>"
SPECIALS = (PAD, UNK, SOS, EOS)
PAD_ID, UNK_ID, SOS_ID, EOS_ID = range(4)
BYTES = tuple(f"<0x{value:02X}>" for value in range(256))

N_UNMERGED = len(SPECIALS) + len(BYTES)  # the ids below are never built by merges; nor are tags

SPACE = "▁"
# A private-use character escapes the space marker and itself: E000 -> E000 a, ▁ -> E000 b. Both ways are exact.
_ESCAPE, _ESCAPED_ESCAPE, _ESCAPED_SPACE = "\ue000", "\ue000a", "\ue000b"
# Characters of a usual line. Longer ones teach no merges (the library's time grows with the square of a word's length),
# and are not encoded beyond what a model takes.
_LONGEST = 10_000
_TAG = re.compile("<2([A-Za-z0-9][A-Za-z0-9_-]*)>")


def tag_of(target_lang: str) -> str:
    """The piece that asks for a target language (Johnson et al. 2017, arXiv:1611.04558)."""
    return f"<2{target_lang}>"


class BpeTokenizer:
    """Text to token ids and back. Ids 0 to 3 are `<pad>`, `<unk>`, `<s>` (SOS) and `</s>` (EOS)."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @classmethod
    def train(cls, lines: Iterable[str], vocab_size: int, tags: Sequence[str] = ()) -> "BpeTokenizer":
        """Learns merges from text.

        Args:
            lines: the training text; for a shared vocabulary that of both languages. It is read twice.
            vocab_size: pieces in all, the 4 specials, 256 bytes and the tags counted.
            tags: codes of target languages that are to have one.
        """
        tokenizer = _untrained()
        unmerged = [*SPECIALS, *BYTES, *map(tag_of, tags)]
        alphabet = _alphabet(lines, max(1, (vocab_size - len(unmerged)) // 2))
        trainer = BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=unmerged,
            initial_alphabet=alphabet,
            limit_alphabet=len(alphabet),
            show_progress=False,
        )
        tokenizer.train_from_iterator((line for line in lines if len(line) <= _LONGEST), trainer)
        return cls(_without_added_tokens(tokenizer))

    @classmethod
    def load(cls, path: Path) -> "BpeTokenizer":
        """Reads a tokenizer file and checks that it is one of ours.

        Raises:
            InputError: the file is missing or is not such a tokenizer.
        """
        try:
            content = path.read_text(encoding="utf-8")
            state = json.loads(content)
        except FileNotFoundError:
            raise InputError(f"{path}: no such file") from None
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f"{path}: not a tokenizer file: {str(error)[:200]}") from None
        if not isinstance(state, dict):
            raise InputError(f"{path}: not a tokenizer file")
        if state.get("added_tokens") or state.get("truncation") or state.get("padding"):
            raise InputError(f"{path}: it matches special tokens in text, cuts or pads, which ours never do")
        _refuse_foreign(state, path)
        try:
            tokenizer = Tokenizer.from_str(content)
        except Exception as error:  # the library raises plain Exception for anything it cannot parse
            raise InputError(f"{path}: not a tokenizer file: {str(error)[:200]}") from None
        if [tokenizer.id_to_token(i) for i in range(len(SPECIALS))] != list(SPECIALS):
            raise InputError(f"{path}: ids 0 to 3 must be {', '.join(SPECIALS)}")
        if sorted(state["model"]["vocab"].values()) != list(range(tokenizer.get_vocab_size())):
            raise InputError(f"{path}: the ids of its pieces are not 0 to {tokenizer.get_vocab_size() - 1}")
        return cls(tokenizer)

    def to_json(self) -> str:
        """The file's content: the same text and size give the same bytes."""
        return self._tokenizer.to_str(pretty=False) + "\n"

    @property
    def vocab_size(self) -> int:
        return int(self._tokenizer.get_vocab_size())

    @cached_property
    def tags(self) -> dict[str, int]:
        """The ids of the tags, by language.

        No merge can have built them: none crosses from a bracket or a digit to letters.
        """
        # They follow the bytes; to go through a whole vocabulary would delay the first translation.
        following = takewhile(self.is_tag, (str(self._tokenizer.id_to_token(i)) for i in count(N_UNMERGED)))
        return {piece[2:-1]: i for i, piece in enumerate(following, N_UNMERGED)}

    @staticmethod
    def is_tag(piece: str) -> bool:
        """Whether a piece is a tag."""
        return _TAG.fullmatch(piece) is not None

    def encode(self, text: str) -> list[int]:
        """Token ids of a sentence, without SOS and EOS."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str], most: int | None = None) -> list[list[int]]:
        """Encode sentences; one with more than `most` tokens may end early, still with more than `most`."""
        texts = [text.strip() for text in texts]
        if most is not None:
            texts = [text if len(text) <= _LONGEST else self._beginning(text, most) for text in texts]
        return [e.ids for e in self._tokenizer.encode_batch_fast(texts)]

    def _beginning(self, text: str, most: int) -> str:
        return nfc(text)[: most * self._longest_piece + 1]

    @cached_property
    def _longest_piece(self) -> int:
        return max(map(len, self._tokenizer.get_vocab()))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids; specials and tags are left out."""
        return self.decode_batch([ids])[0]

    def decode_batch(self, batch: Sequence[Sequence[int]]) -> list[str]:
        hidden = {*range(len(SPECIALS)), *self.tags.values()}
        visible = [[i for i in ids if i not in hidden] for ids in batch]
        return [str(text) for text in self._tokenizer.decode_batch(visible, skip_special_tokens=False)]

    def merges(self) -> list[tuple[str, str]]:
        """The pairs of pieces that become one, the first to be merged first."""
        return [(left, right) for left, right in json.loads(self._tokenizer.to_str())["model"]["merges"]]

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """The pieces themselves, for people to look at."""
        return [str(self._tokenizer.id_to_token(i)) for i in ids]


def _untrained() -> Tokenizer:
    """All of a tokenizer but what it learns."""
    tokenizer = Tokenizer(BPE(unk_token=UNK, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.NFC(),
            normalizers.Replace(_ESCAPE, _ESCAPED_ESCAPE),
            normalizers.Replace(SPACE, _ESCAPED_SPACE),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Metaspace(SPACE, prepend_scheme="always"),
            # Digits one by one: numbers are copied, not translated, and any number can be spelt.
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


def _refuse_foreign(state: dict[str, Any], path: Path) -> None:
    """Compares all but the vocabulary with a tokenizer of ours, before the library acts upon it.

    The library can do much that ours never do, and ends the process's work with a panic where it is asked for nonsense.
    """
    model = state.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict):
        raise InputError(f"{path}: not a tokenizer file: it has no model with a vocabulary")
    learned: dict[str, Any] = {"vocab": {}, "merges": []}
    if not _alike(state | {"model": model | learned}, json.loads(_untrained().to_str())):
        raise InputError(f"{path}: it treats text in a way that no tokenizer of ours does")


def _alike(theirs: Any, ours: Any) -> bool:
    """Whether two settings say the same; one that is off may be absent: another version of the library may lack it."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return all(_alike(theirs.get(key), ours.get(key)) for key in theirs.keys() | ours.keys())
    if isinstance(theirs, list) and isinstance(ours, list) and ours:
        return len(theirs) == len(ours) and all(map(_alike, theirs, ours))
    return bool(theirs == ours) or not (theirs or ours)


def _alphabet(lines: Iterable[str], size: int) -> list[str]:
    """The space marker and the most frequent characters, the first in Unicode's order among equals.

    Rarer characters are spelt in bytes, so that a large script leaves room for merges. The library would choose among
    equals by chance.
    """
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(normalized(line))
    for never in (" ", SPACE, _ESCAPE):
        counts.pop(never, None)
    ranked = sorted(counts, key=lambda character: (-counts[character], character))
    return [SPACE, *ranked[: size - 1]]


def _without_added_tokens(tokenizer: Tokenizer) -> Tokenizer:
    """Training registers the specials as strings to look for in text; here they must never match text."""
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = []
    return Tokenizer.from_str(json.dumps(state, ensure_ascii=False))


def normalized(text: str) -> str:
    """What `decode(encode(text))` returns."""
    return nfc(text.strip())


class _Both:
    """Two texts as one, readable more than once."""

    def __init__(self, *texts: Iterable[str]) -> None:
        self._texts = texts

    def __iter__(self) -> Iterator[str]:
        for text in self._texts:
            yield from text


class TokenizerPair:
    """The source and the target tokenizer; one and the same when the vocabulary is shared."""

    def __init__(self, source: BpeTokenizer, target: BpeTokenizer) -> None:
        self.source = source
        self.target = target

    @property
    def shared(self) -> bool:
        return self.source is self.target

    def files(self) -> dict[str, str]:
        """File name to content, as they lie in a `tokenizer/` folder."""
        return dict(zip(tokenizer_names(self.shared), (self.source.to_json(), self.target.to_json()), strict=True))

    @classmethod
    def load(cls, folder: Path, shared: bool) -> "TokenizerPair":
        source, target = (folder / name for name in tokenizer_names(shared))
        one = BpeTokenizer.load(source)
        return cls(one, one if shared else BpeTokenizer.load(target))

    @classmethod
    def train(
        cls, source: Iterable[str], target: Iterable[str], vocab_size: int, shared: bool, tags: Sequence[str] = ()
    ) -> "TokenizerPair":
        """Learns one vocabulary from both texts, or one from each; each text is read twice.

        A text too small for the size asked for gives a smaller vocabulary and a notice. Tags are for source sentences.
        """
        if shared:
            both = BpeTokenizer.train(_Both(source, target), vocab_size, tags)
            pair = cls(both, both)
        else:
            pair = cls(BpeTokenizer.train(source, vocab_size, tags), BpeTokenizer.train(target, vocab_size))
        for side, tokenizer in ("source", pair.source), ("target", pair.target):
            if tokenizer.vocab_size < vocab_size and not (pair.shared and side == "target"):
                log.warning(
                    "tokenizer.vocab_size: the %s text gives %d pieces, not the %d asked for; going on with those",
                    "training" if pair.shared else side,
                    tokenizer.vocab_size,
                    vocab_size,
                )
        return pair
