"""The `data` section of the configuration."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer

from mt.config.base import LanguageCode, Line, OneOrList, Rule, Section, as_tuple, without_repeats
from mt.config.sources import (
    FromTrain,
    HubDataset,
    Source,
    Sources,
    TableFile,
    TestSources,
    ValidSources,
    is_synthetic,
)

# A single language may be written without the list; in Python it is always a tuple.
TargetLanguages = Annotated[
    tuple[LanguageCode, ...],
    Field(min_length=1, max_length=1000),
    BeforeValidator(as_tuple),
    AfterValidator(without_repeats),
    PlainSerializer(lambda codes: codes[0] if len(codes) == 1 else list(codes), return_type=str | list[str]),
    OneOrList(),
]


class DataConfig(Section):
    """The corpora, and what is dropped from the training text."""

    source_lang: Annotated[LanguageCode, Field(examples=["en"])]
    """Code of the language to translate from."""
    target_lang: Annotated[TargetLanguages, Field(examples=["de"])]
    """Code of the language to translate to; or a list, for one model of several: each source then names its own."""
    root: Line = "."
    """Folder that the paths of sources are relative to, itself relative to the current directory."""
    train: Annotated[Sources, Field(examples=[{"source": "a", "target": "b"}])]
    """Training text: a source or a list of them."""
    valid: ValidSources = FromTrain(from_train=1000)
    """Text that chooses the best checkpoint: a source, a list of them, or {from_train: PAIRS}."""
    test: TestSources = FromTrain(from_train=1000)
    """Text for the final scores: as for valid; null trains without a test set."""
    max_length: Annotated[int, Field(ge=3, le=100_000)] = 256
    """Longest sentence to train on, in tokens with start and end counted; longer pairs are dropped."""
    max_ratio: Annotated[float | None, Field(ge=1, le=1e6)] = 9.0
    """Largest length ratio of a training pair, in characters after adding 10 to both sides; null keeps all."""
    drop_duplicates: bool = True
    """Whether a pair that occurs again in the training text is dropped; the first stays, with the weight of its
    source."""
    temperature: Annotated[float, Field(ge=1, le=1000)] = 1.0
    """Evens out training sources of different sizes: above 1, smaller ones are read more than once in an epoch, as if
    each had its pairs to the power of 1 / temperature (Arivazhagan et al. 2019)."""

    def broken_rules(self) -> Iterator[Rule]:
        """Yield sources that cannot be read or used, and languages and splits without text."""
        for key, sources in (("train", self.train), ("valid", self.valid), ("test", self.test)):
            for number, source in enumerate(sources if isinstance(sources, tuple) else ()):
                path = f"{key}.{number}" if isinstance(sources, tuple) and len(sources) > 1 else key
                yield from self._language_rules(source, path)
                if key != "train":
                    yield from _training_only_rules(source, path)
                if isinstance(source, TableFile | HubDataset):
                    yield from self._column_rules(source, path)
        languages = {self.language_of(source) for source in self.train}
        for code in self.target_lang:
            if code not in languages:
                yield Rule(("target_lang", "train"), f"no source of data.train is in {code}")
        for key, split in (("valid", self.valid), ("test", self.test)):
            if isinstance(split, FromTrain) and all(map(is_synthetic, self.train)):
                reason = "cannot be split off the training text, all of which is synthetic; name files of its own"
                yield Rule((key, "train"), reason)

    def _language_rules(self, source: Source, path: str) -> Iterator[Rule]:
        keys = (path, "target_lang")
        if len(self.target_lang) > 1 and source.target_lang is None:
            yield Rule(keys, f"needs a target_lang of its own, one of {', '.join(self.target_lang)}")
        if source.target_lang is not None and source.target_lang not in self.target_lang:
            yield Rule(keys, f"is in {source.target_lang}, which data.target_lang does not name")

    def _column_rules(self, source: TableFile | HubDataset, path: str) -> Iterator[Rule]:
        source_column, target_column = self.columns_of(source)
        if source_column == target_column:
            yield Rule(
                (path, "source_lang", "target_lang"),
                f"reads source and target from the same column, {source_column}; set source_column and target_column",
            )

    def language_of(self, source: Source) -> str:
        """Return the target language of one of the sources."""
        return source.target_lang or self.target_lang[0]

    def columns_of(self, source: TableFile | HubDataset) -> tuple[str, str]:
        """Return the names of the source and target columns; without a header, their numbers from 1."""
        has_names = isinstance(source, HubDataset) or source.header
        defaults = (self.source_lang, self.language_of(source)) if has_names else ("1", "2")
        return source.source_column or defaults[0], source.target_column or defaults[1]

    @property
    def tagged(self) -> tuple[str, ...]:
        """The target languages that a source sentence is tagged with: none where there is only one."""
        return self.target_lang if len(self.target_lang) > 1 else ()


def _training_only_rules(source: Source, path: str) -> Iterator[Rule]:
    if source.weight != 1:
        yield Rule((path,), "has a weight, which is for training text only")
    if getattr(source, "optional", False):
        yield Rule((path,), "is optional, which is for training text only")
    if is_synthetic(source):
        yield Rule((path,), "is synthetic, which is for training text only")
