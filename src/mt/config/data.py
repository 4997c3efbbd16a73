"""The `data` section of a configuration."""

from collections.abc import Iterator
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, model_validator

from mt.config.base import LanguageCode, Line, OneOrList, Rule, Section, as_tuple, enforce, refuse
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


def _distinct(codes: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(codes)) < len(codes):
        raise refuse("names a language twice")
    return codes


def _one_or_list(codes: tuple[str, ...]) -> str | list[str]:
    return codes[0] if len(codes) == 1 else list(codes)


# One language may be written without the list around it; in Python it is always a tuple.
TargetLanguages = Annotated[
    tuple[LanguageCode, ...],
    Field(min_length=1, max_length=1000),
    BeforeValidator(as_tuple),
    AfterValidator(_distinct),
    PlainSerializer(_one_or_list),
    OneOrList(),
]


class DataConfig(Section):
    """The corpora, and what is dropped from the training text."""

    source_lang: Annotated[LanguageCode, Field(description="Code of the language to translate from.", examples=["en"])]
    target_lang: Annotated[
        TargetLanguages,
        Field(
            description="Code of the language to translate to; or a list, for one model of several: each source then "
            "names its own.",
            examples=["de"],
        ),
    ]
    root: Annotated[
        Line, Field(description="Folder that the paths of sources start from, itself seen from where mt runs.")
    ] = "."
    train: Annotated[
        Sources,
        Field(description="Training text: a source or a list of them.", examples=[{"source": "a", "target": "b"}]),
    ]
    valid: Annotated[
        ValidSources,
        Field(description="Text that chooses the best checkpoint: a source, a list of them, or {from_train: PAIRS}."),
    ] = FromTrain(from_train=1000)
    test: Annotated[
        TestSources,
        Field(description="Text for the final scores: as for valid; null trains without a test set."),
    ] = FromTrain(from_train=1000)
    max_length: Annotated[
        int,
        Field(
            ge=3,
            le=100_000,
            description="Longest sentence to train on, in tokens with start and end counted; longer pairs are dropped.",
        ),
    ] = 256
    max_ratio: Annotated[
        float | None,
        Field(
            ge=1,
            le=1e6,
            description="Largest length ratio of a training pair, in characters with 10 of grace on both sides; "
            "null keeps all.",
        ),
    ] = 9.0
    drop_duplicates: Annotated[
        bool,
        Field(
            description="Whether a pair that occurs again in the training text is dropped; the first stays, with the "
            "weight of its source."
        ),
    ] = True
    temperature: Annotated[
        float,
        Field(
            ge=1,
            le=1000,
            description="Evens out training sources of different sizes: above 1, smaller ones are read more than once "
            "in an epoch, as if each had its pairs to the power of 1 / temperature (Arivazhagan et al. 2019).",
        ),
    ] = 1.0

    @model_validator(mode="after")
    def _rules(self) -> Self:
        parts = {"train": self.train, "valid": self.valid, "test": self.test}
        corpora = {key: sources for key, sources in parts.items() if isinstance(sources, tuple)}
        enforce(
            *(
                rule
                for key, sources in corpora.items()
                for number, source in enumerate(sources)
                for rule in self._source_rules(key, source, f"{key}.{number}" if len(sources) > 1 else key)
            ),
            *self._languages_without_text(),
            *self._nothing_to_hold_out(),
        )
        return self

    def _source_rules(self, key: str, source: Source, where: str) -> Iterator[Rule]:
        several = len(self.target_lang) > 1
        yield Rule(
            several and source.target_lang is None,
            (where, "target_lang"),
            f"needs a target_lang of its own, one of {', '.join(self.target_lang)}",
        )
        yield Rule(
            source.target_lang is not None and source.target_lang not in self.target_lang,
            (where, "target_lang"),
            f"is in {source.target_lang}, which data.target_lang does not name",
        )
        yield Rule(
            key != "train" and source.weight != 1,
            (where,),
            "has a weight, which is for training text only",
        )
        yield Rule(
            key != "train" and getattr(source, "optional", False),
            (where,),
            "is optional, which is for training text only",
        )
        yield Rule(
            key != "train" and is_synthetic(source),
            (where,),
            "is synthetic, which is for training text only",
        )
        columns = ("", " ")
        if isinstance(source, TableFile | HubDataset):
            columns = self.columns_of(source)
        yield Rule(
            columns[0] == columns[1],
            (where, "source_lang", "target_lang"),
            f"reads source and target from the same column, {columns[0]}; set source_column and target_column",
        )

    def _languages_without_text(self) -> Iterator[Rule]:
        there = {self.language_of(source) for source in self.train}
        for code in self.target_lang:
            yield Rule(code not in there, ("target_lang", "train"), f"no source of data.train is in {code}")

    def _nothing_to_hold_out(self) -> Iterator[Rule]:
        for key, sources in (("valid", self.valid), ("test", self.test)):
            yield Rule(
                isinstance(sources, FromTrain) and all(map(is_synthetic, self.train)),
                (key, "train"),
                "cannot be split off the training text, all of which is synthetic; name files of its own",
            )

    def language_of(self, source: Source) -> str:
        """The target language of one of the sources."""
        return source.target_lang or self.target_lang[0]

    def columns_of(self, source: TableFile | HubDataset) -> tuple[str, str]:
        """The names of the columns with the two sentences; without a header, their numbers."""
        counted = isinstance(source, TableFile) and not source.header
        defaults = ("1", "2") if counted else (self.source_lang, self.language_of(source))
        return source.source_column or defaults[0], source.target_column or defaults[1]

    @property
    def tagged(self) -> tuple[str, ...]:
        """The target languages that need a tag: where there is a choice."""
        return self.target_lang if len(self.target_lang) > 1 else ()
