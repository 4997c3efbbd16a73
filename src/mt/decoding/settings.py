"""Translation settings of a model folder: a file that is read without pydantic or torch."""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mt.data.sentence_format import SOURCE_FORMATS, TARGET_TAGS, SentenceFormat
from mt.decoding.engine import COMPUTE_TYPES, SearchOptions
from mt.errors import InputError
from mt.text.languages import only_language

if TYPE_CHECKING:
    from mt.config import Config


@dataclass(frozen=True)
class TranslationSettings:
    """The settings that an engine needs, and the defaults for search."""

    target_lang: str  # the language code of the output; several are separated by commas
    shared_vocabulary: bool  # both sides use one tokenizer
    max_source_tokens: int  # the longest source, specials counted; longer lines are translated in parts
    max_positions: int  # of a source or a translation, SOS counted; the converted model has no more
    batch_tokens: int  # source tokens per batch, padding counted
    compute_type: str  # CTranslate2's default number format
    shortlist: bool  # choose target tokens from a shortlist by default
    search: SearchOptions
    source_lang: str = ""  # several are separated by commas
    source_format: str = SOURCE_FORMATS[0]
    target_tag: str = "source"
    guided: bool = False  # one attention head has learned word alignment
    pairs: str = ""  # trained pairs of several source languages, as `en>de,de>en`; empty: all
    inline_terms: bool = False  # it has learned to read terms in its source, for which its tokenizer has tags

    @property
    def sentence_format(self) -> SentenceFormat:
        return SentenceFormat(self.source_format, self.target_tag, only_language(self.source_langs))

    @property
    def target_langs(self) -> tuple[str, ...]:
        return tuple(self.target_lang.split(","))

    @property
    def source_langs(self) -> tuple[str, ...]:
        return tuple(filter(None, self.source_lang.split(",")))

    @property
    def trained_pairs(self) -> tuple[tuple[str, str], ...]:
        """The pairs of a source and a target language that the model was trained on; empty if the source is unknown."""
        if self.pairs:
            return tuple(
                (source, target) for source, _, target in (pair.partition(">") for pair in self.pairs.split(","))
            )
        return tuple((source, target) for source in self.source_langs for target in self.target_langs)

    @classmethod
    def of(cls, config: "Config") -> "TranslationSettings":
        """Return the settings of a configuration."""
        decoding, training = config.decoding, config.training
        search = SearchOptions(
            beam_size=decoding.beam_size,
            length_penalty=decoding.length_penalty,
            min_length=decoding.min_length,
            max_length=config.longest_translation,
            max_length_ratio=decoding.max_length_ratio,
            no_repeat_ngram_size=decoding.no_repeat_ngram_size,
            retry_loops=decoding.retry_loops,
            keep_spans=decoding.keep_spans,
        )
        longest = max_source = config.data.max_length
        if config.model.positions != "learned":
            longest = max(max_source, search.longest(max_source, None) + 1)
        return cls(
            target_lang=",".join(config.data.target_lang),
            shared_vocabulary=config.tokenizer.shared,
            max_source_tokens=max_source,
            max_positions=longest,
            batch_tokens=decoding.batch_tokens,
            compute_type=decoding.compute_type,
            shortlist=decoding.shortlist > 0 and config.model.target_tag != "target",  # unusable behind a forced tag
            search=search,
            source_lang=",".join(config.data.source_lang),
            source_format=config.model.source_format,
            target_tag=config.model.target_tag,
            guided=config.is_guided,
            pairs=",".join(map(">".join, config.data.pairs)) if len(config.data.source_lang) > 1 else "",
            inline_terms=bool(config.augmentation.terms or (training.init_from and training.init_tokenizer)),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the content of the file."""
        content = asdict(self)
        for name in ("sampling", "attention"):  # chosen by each call, never by the model
            del content["search"][name]
        optional = {"pairs": self.pairs, "inline_terms": self.inline_terms}
        return {name: value for name, value in content.items() if optional.get(name, True)}

    @classmethod
    def read(cls, path: Path) -> "TranslationSettings":
        """Read the file.

        Raises:
            InputError: it cannot be read, or is not a valid file of settings.
        """
        try:
            content = json.loads(path.read_bytes())
            search = SearchOptions(**_checked(SearchOptions, content.pop("search")))
            settings = cls(search=search, **_checked(cls, content))
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InputError(f"{path}: not a file of translation settings ({error})"[:300]) from None
        if search.min_length > min(search.max_length, settings.max_positions - 1):
            raise InputError(f"{path}: its min_length, {search.min_length} tokens, exceeds its maximum length")
        if settings.compute_type not in COMPUTE_TYPES:
            raise InputError(f"{path}: {settings.compute_type!r:.50} is not a number format")
        if settings.source_format not in SOURCE_FORMATS or settings.target_tag not in TARGET_TAGS:
            raise InputError(f"{path}: its source_format or target_tag is unknown")
        return settings


# Those of the configuration schema, which cannot be imported here since it needs pydantic.
_BOUNDS = {
    "beam_size": (1, 1000),
    "n_best": (1, 1),
    "length_penalty": (-10, 10),
    "min_length": (0, 100_000),
    "max_length": (1, 100_000),
    "max_length_ratio": (0, 1000),
    "no_repeat_ngram_size": (0, 1000),
    "max_source_tokens": (3, 100_000),
    "max_positions": (3, 100_001),
    "batch_tokens": (1, 10**8),
}


def _checked(kind: type[Any], content: dict[str, Any]) -> dict[str, Any]:
    """Return the content after checking types and bounds."""
    types = {field.name: field.type for field in fields(kind)}
    for name, value in content.items():
        expected = types[name]
        if type(value) is not expected and not (expected is float and type(value) is int):
            raise TypeError(f"{name} is {value!r:.50}")
        low, high = _BOUNDS.get(name, (value, value))
        if not low <= value <= high:  # NaN is not within bounds either
            raise ValueError(f"{name} is {value}")
    return content
