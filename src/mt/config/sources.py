"""Sources of a corpus: the kinds that a configuration can name."""

import posixpath
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag

from mt.config.base import DELIMITER, RUN_NAME, SWITCH_TAGS, LanguageCode, Line, OneOrList, Rule, Section
from mt.config.suggestions import MIN_SIMILARITY, similarity
from mt.text.archives import ARCHIVES
from mt.text.compressed import COMPRESSED

DELIMITED = (".tsv", ".csv")
TABLES = (*DELIMITED, ".jsonl", ".parquet", ".xlsx")
STYLES = {"header": (*DELIMITED, ".xlsx"), "delimiter": DELIMITED, "quoting": DELIMITED}  # keys of tables, by kind
BILINGUAL = (".tmx", ".xliff", ".xlf", ".po")
_PACKED = (".parquet", ".xlsx", *ARCHIVES)  # these are not compressed again


def file_kind(name: str) -> str:
    """Return the ending that tells the kind of a corpus file: .tsv for a.TSV.gz; empty for other files."""
    endings = {kind: kind for kind in (*TABLES, *BILINGUAL, *ARCHIVES)}
    endings |= {f"{kind}{suffix}": kind for kind in endings if kind not in _PACKED for suffix in COMPRESSED}
    return next((kind for ending, kind in endings.items() if name.lower().endswith(ending)), "")


def _corpus_name(text: str) -> str:
    if not file_kind(text):
        kinds = ".tsv, .csv, .jsonl, .tmx, .xliff, .xlf or .po (each also with .gz, .xz or .zst)"
        raise ValueError(f"must end in {kinds}, .parquet, .xlsx, .zip, .tar.gz or .tgz")
    return text


def _unquoted_number(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


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
_Column = Annotated[Line | None, BeforeValidator(_unquoted_number, json_schema_input_type=int | Line | None)]


class _Corpus(Section):
    """A source of sentence pairs, with the keys of all kinds."""

    source_lang: LanguageCode | None = None
    """Its source language, where the configuration lists several."""
    target_lang: LanguageCode | None = None
    """Its target language, where the configuration lists several."""
    both_ways: bool = False
    """Whether it is also read the other way, from the target to the source language, as another source."""
    weight: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """Times it is read per epoch of training; 0.5: a random half, drawn again in each epoch."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """List the keys of one kind before these, in config.yaml and in the documentation."""
        super().__pydantic_init_subclass__(**kwargs)
        for key in (*_Corpus.model_fields, "optional", "synthetic"):
            if key in cls.model_fields:
                cls.model_fields[key] = cls.model_fields.pop(key)
        cls.model_rebuild(force=True)

    @property
    def name(self) -> str:
        """Its file or data set, which unlike its number in the list does not depend on optional sources."""
        return str(getattr(self, next(iter(type(self).model_fields))))

    @property
    def files(self) -> dict[str, str]:
        """Its files, or its folder, by their keys; empty for a corpus that is downloaded or built in."""
        keys = [key for key in ("source", "target", "file", "folder") if key in type(self).model_fields]
        return {key: getattr(self, key) for key in keys}

    def opposite(self, languages: tuple[str, str]) -> Self:
        """Return the source with its sides exchanged; `languages` are its source and its target language."""
        keys = {**dict(self), "source_lang": languages[0], "target_lang": languages[1]}
        swapped = {key.replace("target", "source"): value for key, value in keys.items() if key.startswith("target")}
        swapped |= {key.replace("source", "target"): value for key, value in keys.items() if key.startswith("source")}
        return self.model_copy(update={**swapped, "both_ways": False})


class PairFiles(_Corpus):
    """Two text files, line by line translations of each other."""

    source: Line
    """Text file in the source language, one sentence a line."""
    target: Line
    """Text file in the target language, line by line its translation."""
    optional: _Optional = False
    synthetic: _Synthetic = False

    def broken_rules(self) -> Iterator[Rule]:
        if posixpath.normpath(self.source) == posixpath.normpath(self.target):
            yield Rule(("target", "source"), "is the same file as source")

    @property
    def name(self) -> str:
        return f"{self.source} and {self.target}"


class TableFile(_Corpus):
    """One file with both languages: a table, a translation memory, a catalogue, or an archive of paired texts."""

    file: Annotated[Line, AfterValidator(_corpus_name)]
    """A .tsv, .csv, .jsonl, .tmx, .xliff, .xlf or .po file, compressed or not (.gz, .xz, .zst), a .parquet or .xlsx
    file, or a .zip, .tar.gz or .tgz of paired texts, as OPUS's moses archives."""
    header: bool = True
    """Whether the first line of a .tsv, .csv or .xlsx names the columns. If false, they are counted from 1."""
    delimiter: Annotated[str, Field(pattern=DELIMITER)] | None = None
    """The character between the cells of a .tsv or .csv; null takes the tab or the comma."""
    quoting: bool | None = None
    """Whether cells of a .tsv or .csv in double quotes are quoted, as Excel writes them; null: those of a .csv are."""
    sheet: Line | None = None
    """Name of the sheet of an .xlsx; null takes the first."""
    stem: Line | None = None
    """What the names of two texts of an archive have in common, as train of train.en and train.de; null reads all."""
    source_column: _Column = None
    """Column of the source text, or language of it; null takes the source language's code, or without header 1."""
    target_column: _Column = None
    """Column of the target text, or language of it; null takes the target language's code, or without header 2."""
    optional: _Optional = False
    synthetic: _Synthetic = False

    def opposite(self, languages: tuple[str, str]) -> Self:
        numbers = (None, None) if self.header else ("1", "2")
        columns = {"source_column": self.target_column or numbers[1], "target_column": self.source_column or numbers[0]}
        return super().opposite(languages).model_copy(update=columns)

    @property
    def kind(self) -> str:
        return file_kind(self.file)

    @property
    def separator(self) -> str:
        return self.delimiter or ("," if self.kind == ".csv" else "\t")

    @property
    def is_quoted(self) -> bool:
        return self.kind == ".csv" if self.quoting is None else self.quoting

    def broken_rules(self) -> Iterator[Rule]:
        kinds_of: dict[str, tuple[str, ...]] = {**STYLES, "sheet": (".xlsx",), "stem": ARCHIVES}
        for key, kinds in kinds_of.items():
            if getattr(self, key) != type(self).model_fields[key].default and self.kind not in kinds:
                yield Rule((key,), f"is for {', '.join(kinds)} files only")


class TextFolder(_Corpus):
    """A folder of paired texts: the language's code in one name is the other's in the other."""

    folder: Line
    """Folder with texts such as train.en and train.de, or en/a.txt and de/a.txt; they may be compressed."""
    stem: Line | None = None
    """What the names of two texts have in common, as train of train.en and train.de; null reads all."""
    optional: _Optional = False
    synthetic: _Synthetic = False


class OpusCorpus(_Corpus):
    """A corpus of OPUS (opus.nlpl.eu), downloaded once."""

    opus: Annotated[Line, Field(pattern=RUN_NAME)]
    """Name of the corpus, as Books."""
    version: Annotated[Line, Field(pattern=RUN_NAME)] = "latest"
    """Its version, as v1; latest is the newest at the first download."""
    synthetic: _Synthetic = False


class SacrebleuSet(_Corpus):
    """A test set of sacreBLEU, downloaded once into its own cache."""

    sacrebleu: Line
    """Name of the test set, as wmt14/full; `sacrebleu --list` prints all."""


class HubDataset(_Corpus):
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
    synthetic: _Synthetic = False


class Builtin(_Corpus):
    """A small corpus that comes with this package."""

    builtin: Literal["phrasebook"]
    """Name of a corpus that comes with this package."""
    split: Literal["train", "valid", "test"] = "train"
    """The split to read."""


class FromTrain(Section):
    """Sentence pairs split off the training text."""

    from_train: Annotated[int, Field(ge=1, le=10**7)]
    """Number of sentence pairs to split off the training text; with several languages, of source sentences."""


_ALL: list[type[Section]] = [TableFile, TextFolder, OpusCorpus, SacrebleuSet, HubDataset, Builtin, FromTrain, PairFiles]
# Its first key identifies a kind. The angle brackets keep pydantic's tags apart from keys in the location of an error.
SOURCE_KINDS = {f"<{next(iter(kind.model_fields))}>": kind for kind in _ALL}
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
    | Annotated[TextFolder, Tag("<folder>")]
    | Annotated[OpusCorpus, Tag("<opus>")]
    | Annotated[SacrebleuSet, Tag("<sacrebleu>")]
    | Annotated[HubDataset, Tag("<hub>")]
    | Annotated[Builtin, Tag("<builtin>")],
    Discriminator(source_kind),
]
# A single source may be written without the list; in Python it is always a tuple.
Sources = Annotated[tuple[Source, ...], Field(min_length=1, max_length=1000), OneOrList()]
_SourcesOrSplit = Annotated[Sources, Tag("<list>")] | Annotated[FromTrain, Tag("<from_train>")]
ValidSources = Annotated[_SourcesOrSplit, Discriminator(_split_kind)]
TestSources = Annotated[_SourcesOrSplit | Annotated[None, Tag("<none>")], Discriminator(_split_kind)]


def is_synthetic(source: Source) -> bool:
    """Return True if a model wrote one side of the source."""
    return getattr(source, "synthetic", False)
