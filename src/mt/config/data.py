"""The `data` section of the configuration."""

from collections.abc import Iterator
from typing import Annotated, Self

from pydantic import AfterValidator, Field, PlainSerializer, model_validator

from mt.config.base import LanguageCode, Line, OneOrList, Rule, Section, without_repeats
from mt.config.sources import FromTrain, HubDataset, Source, Sources, TableFile, TestSources, ValidSources, is_synthetic

# A single language may be written without the list; in Python it is always a tuple.
Languages = Annotated[
    tuple[LanguageCode, ...],
    Field(min_length=1, max_length=1000),
    AfterValidator(without_repeats),
    PlainSerializer(lambda codes: codes[0] if len(codes) == 1 else list(codes), return_type=str | list[str]),
    OneOrList(),
]


class DataConfig(Section):
    """The corpora, and what is dropped from the training text."""

    source_lang: Annotated[Languages, Field(examples=["en"])]
    """Code of the language to translate from; or a list, for a model of several; each source then names its own."""
    target_lang: Annotated[Languages, Field(examples=["de"])]
    """Code of the language to translate to; or a list, for a model of several; each source then names its own."""
    root: Line = "."
    """Folder that the paths of sources are relative to, itself relative to the current directory."""
    train: Annotated[Sources, Field(examples=[{"source": "a", "target": "b"}])]
    """Training text: a source or a list of them."""
    valid: ValidSources = FromTrain(from_train=1000)
    """Text that chooses the best checkpoint: a source, a list of them, or {from_train: PAIRS},
    at most a tenth of the training text."""
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
    """Evens out the sizes of training sources, or of language pairs if there are several: above 1, smaller ones are
    read more than once in an epoch, as if each had its number of sentence pairs to the power of 1 / temperature
    (Arivazhagan et al. 2019)."""

    def broken_rules(self) -> Iterator[Rule]:
        for key, split in (("train", self.train), ("valid", self.valid), ("test", self.test)):
            sources = split if isinstance(split, tuple) else ()
            # `Sources` would refuse more of them when the run's config.yaml is read back.
            if (count := len(self._both_ways(sources))) > 1000:
                yield Rule((key,), f"has {count} sources, at most 1000 allowed; one read both ways counts twice")
            for number, source in enumerate(sources):
                path = f"{key}.{number}" if len(sources) > 1 else key
                yield from self._source_rules(source, path)
                if key != "train":
                    yield from _training_only_rules(source, path)
            if isinstance(split, FromTrain) and all(map(is_synthetic, self.train)):
                reason = "cannot be split off the training text, all of which is synthetic; name files of its own"
                yield Rule((key, "train"), reason)
        for side, key, declared in ((0, "source_lang", self.source_lang), (1, "target_lang", self.target_lang)):
            languages = {self.languages_of(source)[side] for source in self._both_ways(self.train)}
            for code in declared:
                if code not in languages:
                    yield Rule((key, "train"), f"no source of data.train is {'from' if side == 0 else 'in'} {code}")

    def _source_rules(self, source: Source, path: str) -> Iterator[Rule]:
        for key, declared in (("source_lang", self.source_lang), ("target_lang", self.target_lang)):
            code, keys, preposition = getattr(source, key), (path, key), "in" if key == "target_lang" else "from"
            if len(declared) > 1 and code is None:
                yield Rule(keys, f"needs a {key} of its own, one of {', '.join(declared)}")
            if code is not None and code not in declared:
                yield Rule(keys, f"is {preposition} {code}, which data.{key} does not name")
        source_lang, target_lang = self.languages_of(source)
        if source.both_ways and is_synthetic(source):
            yield Rule((path, "both_ways"), "is synthetic, so it cannot be read both ways: people wrote one side only")
        if source.both_ways and not (target_lang in self.source_lang and source_lang in self.target_lang):
            reason = (
                f"is read both ways, so data.source_lang and data.target_lang must name {source_lang}, {target_lang}"
            )
            yield Rule((path, "source_lang", "target_lang"), reason)
        if isinstance(source, TableFile | HubDataset):
            column, target_column = self.columns_of(source)
            reason = f"reads source and target from the same column, {column}; set source_column and target_column"
            if column == target_column:
                yield Rule((path, "source_lang", "target_lang"), reason)

    @model_validator(mode="after")
    def _expand(self) -> Self:
        """Replace a source that is read both ways by two."""
        for key in ("train", "valid", "test"):
            sources = getattr(self, key)
            if isinstance(sources, tuple):
                object.__setattr__(self, key, self._both_ways(sources))  # the section is frozen
        return self

    def _both_ways(self, sources: tuple[Source, ...]) -> tuple[Source, ...]:
        expanded: list[Source] = []
        for source in sources:
            expanded.append(source.model_copy(update={"both_ways": False}) if source.both_ways else source)
            if source.both_ways:
                expanded.append(source.opposite(self.languages_of(source)))
        return tuple(expanded)

    def languages_of(self, source: Source) -> tuple[str, str]:
        """Return the source and the target language of one of the sources."""
        return source.source_lang or self.source_lang[0], source.target_lang or self.target_lang[0]

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The pairs of a source and a target language that the model is trained on."""
        trained = set(map(self.languages_of, self.train))
        return tuple((s, t) for s in self.source_lang for t in self.target_lang if (s, t) in trained)

    def own_source(self, source_lang: str) -> str:
        """Return a source language if the model has several; an empty string if it has only this one."""
        return source_lang if len(self.source_lang) > 1 else ""

    def columns_of(self, source: TableFile | HubDataset) -> tuple[str, str]:
        """Return the names of the source and target columns; without a header, their numbers from 1."""
        has_names = isinstance(source, HubDataset) or source.header
        defaults = self.languages_of(source) if has_names else ("1", "2")
        return source.source_column or defaults[0], source.target_column or defaults[1]

    @property
    def tagged(self) -> tuple[str, ...]:
        """The target languages that a source sentence is tagged with: none where there is only one."""
        return self.target_lang if len(self.target_lang) > 1 else ()


def _training_only_rules(source: Source, path: str) -> Iterator[Rule]:
    optional = getattr(source, "optional", False)
    used = {"has a weight": source.weight != 1, "is optional": optional, "is synthetic": is_synthetic(source)}
    yield from (Rule((path,), f"{what}, which is for training text only") for what, is_used in used.items() if is_used)
