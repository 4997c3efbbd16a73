"""Sources of a corpus: the kinds that a configuration can name."""

import posixpath
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag

from mt.config.base import SWITCH_TAGS, LanguageCode, Line, OneOrList, Rule, Section, as_tuple, value_error
from mt.config.suggestions import MIN_SIMILARITY, similarity
from mt.text.compressed import COMPRESSED

_TEXT_TABLES = (".tsv", ".csv", ".jsonl")
TABLE_SUFFIXES = (*_TEXT_TABLES, ".parquet", *(kind + suffix for kind in _TEXT_TABLES for suffix in COMPRESSED))


def _table_name(text: str) -> str:
    if not text.lower().endswith(TABLE_SUFFIXES):
        raise value_error("must end in .tsv, .csv, .jsonl (each also with .gz, .xz or .zst) or .parquet")
    return text


def _unquoted_number(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


_TargetLang = Annotated[
    LanguageCode | None, Field(description="Its target language, where the configuration lists several.")
]
_Weight = Annotated[
    float, Field(gt=0, le=1000, description="Times it is read per epoch of training; 0.5: another half each time.")
]
_Optional = Annotated[
    bool, Field(description="Whether training goes on without it where the file is missing; in `train` only.")
]
_Synthetic = Annotated[
    bool,
    Field(
        description="Whether a model wrote one side: then `from_train` takes nothing from it, and of its pairs those "
        "with a held-out sentence on either side are dropped."
    ),
]
_Column = Annotated[Line | None, BeforeValidator(_unquoted_number)]


class PairFiles(Section):
    """Two text files, line by line translations of each other."""

    source: Line
    """Text file in the source language, one sentence a line."""
    target: Line
    """Text file in the target language, line by line its translation."""
    target_lang: _TargetLang = None
    weight: _Weight = 1.0
    optional: _Optional = False
    synthetic: _Synthetic = False

    def broken_rules(self) -> Iterator[Rule]:
        """Yield one file as both sides."""
        if posixpath.normpath(self.source) == posixpath.normpath(self.target):
            yield Rule(("target", "source"), "is the same file as source")


class TableFile(Section):
    """One file with both languages in columns."""

    file: Annotated[Line, AfterValidator(_table_name)]
    """A .tsv, .csv, .jsonl or .parquet file; all but the last may be compressed (.gz, .xz, .zst)."""
    header: bool = True
    """Whether the first line of a .tsv or .csv names the columns. If false, they are counted from 1."""
    source_column: _Column = None
    """Column of the source text; null takes the source language's code, or without header 1."""
    target_column: _Column = None
    """Column of the target text; null takes the target language's code, or without header 2."""
    target_lang: _TargetLang = None
    weight: _Weight = 1.0
    optional: _Optional = False
    synthetic: _Synthetic = False

    def broken_rules(self) -> Iterator[Rule]:
        """Yield a table without a header whose kind always names its columns."""
        if not self.header and not any(suffix in self.file.lower() for suffix in (".tsv", ".csv")):
            yield Rule(("header",), "can be false for .tsv and .csv only")


class HubDataset(Section):
    """A data set on the Hugging Face hub."""

    hub: Line
    """Name of the data set on the Hugging Face hub, as in owner/name."""
    config: Line | None = None
    """The data set's configuration, often a pair of languages."""
    split: Line = "train"
    """The split to read."""
    revision: Line | None = None
    """Branch, tag or commit of the data set; null takes its newest."""
    streaming: bool = False
    """Whether rows are read as they arrive instead of first storing the whole data set."""
    source_column: Line | None = None
    """Column of the source text; null takes the language's code, alone or in `translation`."""
    target_column: Line | None = None
    """Column of the target text; null takes the language's code, alone or in `translation`."""
    target_lang: _TargetLang = None
    weight: _Weight = 1.0
    synthetic: _Synthetic = False


class Builtin(Section):
    """A small corpus that comes with this package."""

    builtin: Literal["phrasebook"]
    """Name of a corpus that comes with this package."""
    split: Literal["train", "valid", "test"] = "train"
    """The split to read."""
    target_lang: _TargetLang = None
    weight: _Weight = 1.0


class FromTrain(Section):
    """Sentence pairs split off the training text."""

    from_train: Annotated[int, Field(ge=1, le=10**7)]
    """Number of sentence pairs to split off the training text; with several target languages, of source sentences."""


# The angle brackets keep pydantic's tags apart from the keys of a file in the location of an error.
SOURCE_KINDS: dict[str, type[Section]] = {
    "<file>": TableFile,
    "<hub>": HubDataset,
    "<builtin>": Builtin,
    "<from_train>": FromTrain,
    "<source>": PairFiles,
}
KIND_OF_KEY = {tag.strip("<>"): tag for tag in SOURCE_KINDS} | {"target": "<source>"}
TAGS = {*SOURCE_KINDS, "<list>", "<none>", *SWITCH_TAGS}


def source_kind(value: object) -> str | None:
    """Return the tag in `SOURCE_KINDS` of a map, by its keys, mistyped or not; None where no key identifies it."""
    if isinstance(value, Section):
        return next(tag for tag, kind in SOURCE_KINDS.items() if isinstance(value, kind))
    if not isinstance(value, Mapping):
        return None
    exact = (tag for key, tag in KIND_OF_KEY.items() if key in value)
    close = (
        tag for key, tag in KIND_OF_KEY.items() if any(similarity(str(typed), key) >= MIN_SIMILARITY for typed in value)
    )
    return next(exact, None) or next(close, None)


def _split_kind(value: object) -> str:
    if value is None:
        return "<none>"
    return "<from_train>" if source_kind(value) == "<from_train>" else "<list>"


# `from_train` can only be all of `valid` or `test`, so its tag is not in this union.
Source = Annotated[
    Annotated[PairFiles, Tag("<source>")]
    | Annotated[TableFile, Tag("<file>")]
    | Annotated[HubDataset, Tag("<hub>")]
    | Annotated[Builtin, Tag("<builtin>")],
    Discriminator(source_kind),
]
# A single source may be written without the list; in Python it is always a tuple.
Sources = Annotated[tuple[Source, ...], Field(min_length=1, max_length=1000), BeforeValidator(as_tuple), OneOrList()]
_SourcesOrSplit = Annotated[Sources, Tag("<list>")] | Annotated[FromTrain, Tag("<from_train>")]
ValidSources = Annotated[_SourcesOrSplit, Discriminator(_split_kind)]
TestSources = Annotated[_SourcesOrSplit | Annotated[None, Tag("<none>")], Discriminator(_split_kind)]


def name_of(source: Source) -> str:
    """Return the name that a user knows a source by: its files, or the data set's name.

    Not its number in the list, which changes once optional sources are left out.
    """
    if isinstance(source, PairFiles):
        return f"{source.source} and {source.target}"
    if isinstance(source, TableFile):
        return source.file
    return source.hub if isinstance(source, HubDataset) else source.builtin


def is_synthetic(source: Source) -> bool:
    """Return True if a model wrote one side of it."""
    return getattr(source, "synthetic", False)
