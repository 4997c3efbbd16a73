"""Where a corpus comes from: the kinds of source that a configuration can name."""

import posixpath
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from mt.config.base import SWITCH_TAGS, LanguageCode, Line, OneOrList, Rule, Section, as_tuple, enforce, refuse
from mt.config.suggestions import GOOD, likeness
from mt.text.compressed import COMPRESSED

_TEXT_TABLES = (".tsv", ".csv", ".jsonl")
TABLE_SUFFIXES = (*_TEXT_TABLES, ".parquet", *(kind + suffix for kind in _TEXT_TABLES for suffix in COMPRESSED))


def _table_name(text: str) -> str:
    if not text.lower().endswith(TABLE_SUFFIXES):
        raise refuse("must end in .tsv, .csv, .jsonl (each also with .gz, .xz or .zst) or .parquet")
    return text


def _as_name(value: object) -> object:
    """A column that is counted may be written without quotes."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


# What all sources of text have.
_TargetLang = Annotated[
    LanguageCode | None, Field(description="Its target language, where the configuration lists several.")
]
_Weight = Annotated[
    float, Field(gt=0, le=1000, description="How often an epoch of training has it; 0.5: another half each time.")
]
_Optional = Annotated[
    bool, Field(description="Whether training goes on without it where the file is not there; in `train` only.")
]

_Synthetic = Annotated[
    bool,
    Field(
        description="Whether a model wrote one side: then `from_train` takes nothing from it, and of its pairs those "
        "with a held-out sentence on either side are dropped."
    ),
]


class PairFiles(Section):
    """Two text files, line by line translations of each other."""

    source: Annotated[Line, Field(description="Text file in the source language, one sentence a line.")]
    target: Annotated[Line, Field(description="Text file in the target language, line by line its translation.")]
    target_lang: _TargetLang = None
    weight: _Weight = 1.0
    optional: _Optional = False
    synthetic: _Synthetic = False

    @model_validator(mode="after")
    def _rules(self) -> Self:
        same = posixpath.normpath(self.source) == posixpath.normpath(self.target)
        enforce(Rule(same, ("target", "source"), "is the same file as source"))
        return self


class TableFile(Section):
    """One file with both languages in columns."""

    file: Annotated[
        Line,
        AfterValidator(_table_name),
        Field(
            description="A .tsv, .csv, .jsonl or .parquet file; all but the last may be compressed (.gz, .xz, .zst)."
        ),
    ]
    header: Annotated[
        bool,
        Field(
            description="Whether the first line of a .tsv or .csv names the columns. If false, they are counted from 1."
        ),
    ] = True
    source_column: Annotated[
        Line | None,
        BeforeValidator(_as_name),
        Field(description="Column of the source text; null takes the source language's code, or without header 1."),
    ] = None
    target_column: Annotated[
        Line | None,
        BeforeValidator(_as_name),
        Field(description="Column of the target text; null takes the target language's code, or without header 2."),
    ] = None
    target_lang: _TargetLang = None
    weight: _Weight = 1.0
    optional: _Optional = False
    synthetic: _Synthetic = False

    @model_validator(mode="after")
    def _rules(self) -> Self:
        has_lines = any(suffix in self.file.lower() for suffix in (".tsv", ".csv"))
        enforce(Rule(not self.header and not has_lines, ("header",), "can be false for .tsv and .csv only"))
        return self


class HubDataset(Section):
    """A data set on the Hugging Face hub."""

    hub: Annotated[Line, Field(description="Name of the data set on the Hugging Face hub, as in owner/name.")]
    config: Annotated[Line | None, Field(description="The data set's configuration, often a pair of languages.")] = None
    split: Annotated[Line, Field(description="The split to read.")] = "train"
    revision: Annotated[
        Line | None, Field(description="Branch, tag or commit of the data set; null takes its newest.")
    ] = None
    streaming: Annotated[
        bool, Field(description="Whether rows are read as they come instead of first storing the whole data set.")
    ] = False
    source_column: Annotated[
        Line | None,
        Field(description="Column of the source text; null takes the language's code, alone or in `translation`."),
    ] = None
    target_column: Annotated[
        Line | None,
        Field(description="Column of the target text; null takes the language's code, alone or in `translation`."),
    ] = None
    target_lang: _TargetLang = None
    weight: _Weight = 1.0
    synthetic: _Synthetic = False


class Builtin(Section):
    """A small corpus that comes with this package."""

    builtin: Annotated[Literal["phrasebook"], Field(description="Name of a corpus that comes with this package.")]
    split: Annotated[Literal["train", "valid", "test"], Field(description="The part of it to read.")] = "train"
    target_lang: _TargetLang = None
    weight: _Weight = 1.0


class FromTrain(Section):
    """Sentence pairs taken away from the training text."""

    from_train: Annotated[
        int,
        Field(
            ge=1,
            le=10**7,
            description="Number of sentence pairs to split off the training text; with several target languages, of "
            "source sentences.",
        ),
    ]


# The marks keep pydantic's tags apart from the keys of a file in the location of an error.
SOURCE_KINDS: dict[str, type[Section]] = {
    "<file>": TableFile,
    "<hub>": HubDataset,
    "<builtin>": Builtin,
    "<from_train>": FromTrain,
    "<source>": PairFiles,
}
TAGS = {*SOURCE_KINDS, "<list>", "<none>", *SWITCH_TAGS}


def source_kind(value: object) -> str | None:
    """Tell by its keys which kind of source a map is, also where the telling key has a typo.

    Returns:
        A tag of `SOURCE_KINDS`, or `None` where no key tells.
    """
    if isinstance(value, Section):
        return next(tag for tag, kind in SOURCE_KINDS.items() if isinstance(value, kind))
    if not isinstance(value, Mapping):
        return None
    telling = {tag.strip("<>"): tag for tag in SOURCE_KINDS} | {"target": "<source>"}
    for key, tag in telling.items():
        if key in value:
            return tag
    guesses = (tag for key, tag in telling.items() if any(likeness(str(given), key) >= GOOD for given in value))
    return next(guesses, None)


def _split_kind(value: object) -> str:
    if value is None:
        return "<none>"
    return "<from_train>" if source_kind(value) == "<from_train>" else "<list>"


Source = Annotated[
    Annotated[PairFiles, Tag("<source>")]
    | Annotated[TableFile, Tag("<file>")]
    | Annotated[HubDataset, Tag("<hub>")]
    | Annotated[Builtin, Tag("<builtin>")],
    # `from_train` is no source: it may only be the whole of `valid` or `test`, so its tag is not in this union.
    Discriminator(source_kind),
]


def name_of(source: Source) -> str:
    """What a user calls it: its files, or the data set's name. Its number says little once optional ones are gone."""
    if isinstance(source, PairFiles):
        return f"{source.source} and {source.target}"
    if isinstance(source, TableFile):
        return source.file
    return source.hub if isinstance(source, HubDataset) else source.builtin


def is_synthetic(source: Source) -> bool:
    """True if a model wrote one side of it."""
    return getattr(source, "synthetic", False)


# One source may be written without the list around it; in Python it is always a tuple.
Sources = Annotated[tuple[Source, ...], Field(min_length=1, max_length=1000), BeforeValidator(as_tuple), OneOrList()]
ValidSources = Annotated[
    Annotated[Sources, Tag("<list>")] | Annotated[FromTrain, Tag("<from_train>")], Discriminator(_split_kind)
]
TestSources = Annotated[
    Annotated[Sources, Tag("<list>")] | Annotated[FromTrain, Tag("<from_train>")] | Annotated[None, Tag("<none>")],
    Discriminator(_split_kind),
]
