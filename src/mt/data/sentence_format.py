"""Language tags and special tokens around a sentence, as `model.source_format` and `model.target_tag` say."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from mt.data.tokenizer import EOS_ID, SOS_ID
from mt.data.tokenizer_kinds import TokenizerPair
from mt.errors import InputError
from mt.text.languages import only_language

if TYPE_CHECKING:
    from mt.config import Config

SOURCE_FORMATS = ("<s> text </s>", "<s> lang text </s>", "text </s>", "lang text </s>", "text </s> lang")
TARGET_TAGS = ("source", "target", "none")


class Tags(NamedTuple):
    """Token ids that a direction adds to a pair: before and after the source's ids, and as the target's first."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    first: int | None = None

    def source(self, ids: Sequence[int]) -> list[int]:
        """Add the source's tags to its ids."""
        return [*self.before, *ids, *self.after]

    def target(self, ids: Sequence[int]) -> list[int]:
        """Add the target's tag to its ids."""
        return [*ids] if self.first is None else [self.first, *ids]


NO_TAGS = Tags()


class SentenceFormat(NamedTuple):
    """The form in which a model reads a source sentence and writes its translation."""

    source: str = SOURCE_FORMATS[0]
    target_tag: str = "source"  # one of TARGET_TAGS, the place of the tag that asks for a language
    source_lang: str = ""  # empty where the model has several and none is chosen

    @classmethod
    def of(cls, config: "Config") -> "SentenceFormat":
        """Return the format of a configuration."""
        return cls(config.model.source_format, config.model.target_tag, only_language(config.data.source_lang))

    def of_source(self, source_lang: str) -> "SentenceFormat":
        """Return the format for text in a source language; an empty one changes nothing."""
        return self._replace(source_lang=source_lang or self.source_lang)

    @property
    def names_source(self) -> bool:
        """True if a tag says the language of the source."""
        return "lang" in self.source

    def tags(self, tokenizers: TokenizerPair, target_lang: str, required: bool = False) -> Tags:
        """Return the tags of a target language.

        Raises InputError if the tokenizer lacks one that the format or, if `required`, the language needs.
        """
        known = tokenizers.source.tags
        source_tag = (self._tag(known, self.source_lang),) if self.names_source else ()
        after = (EOS_ID, *source_tag) if self.source.endswith("lang") else ()
        before: tuple[int, ...] = () if after else source_tag
        if self.target_tag == "target":
            return Tags(before, after, self._tag(tokenizers.target.tags, target_lang))
        if self.target_tag == "source" and (target_lang in known or required):
            before += (self._tag(known, target_lang),)
        return Tags(before, after)

    @staticmethod
    def _tag(known: dict[str, int], lang: str) -> int:
        if lang not in known:
            raise InputError(f"the model's tokenizer has no tag for {lang}, so it cannot translate from or into it")
        return known[lang]


def framed(ids: Sequence[int], source_format: str) -> list[int]:
    """Add SOS and EOS to a source that has its tags; if a tag follows EOS, both are already in the ids."""
    start = [SOS_ID] if source_format.startswith("<s>") else []
    return [*start, *ids, *([] if source_format.endswith("lang") else [EOS_ID])]


def sentence_tokens(n_source: Any, n_target: Any, source_format: str = SOURCE_FORMATS[0]) -> tuple[Any, Any]:
    """Return lengths as the model sees them: a `framed` source, and `<s> target` in or `target </s>` out."""
    return n_source + len(framed([], source_format)), n_target + 1


def most_ids(max_length: int, source_format: str) -> tuple[int, int]:
    """Return how many ids of a source and of a target fit into `max_length` tokens, specials included."""
    n_source, n_target = sentence_tokens(0, 0, source_format)
    return max_length - n_source, max_length - n_target
