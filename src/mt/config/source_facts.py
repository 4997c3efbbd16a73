"""Facts about the sources of a corpus: names, who wrote them, and how they are read the other way."""

from typing import Any

from mt.config.sources import SOURCE_KINDS, HubDataset, PairFiles, Source, TableFile


def name_of(source: Source) -> str:
    """Return the name that a user knows a source by: its files, or the data set's name.

    Not its number in the list, which changes once optional sources are left out.
    """
    if isinstance(source, PairFiles):
        return f"{source.source} and {source.target}"
    tag = next(tag for tag, kind in SOURCE_KINDS.items() if isinstance(source, kind))
    return str(getattr(source, tag.strip("<>")))


def is_synthetic(source: Source) -> bool:
    """Return True if a model wrote one side of it."""
    return getattr(source, "synthetic", False)


def opposite(source: Source, languages: tuple[str, str]) -> Source:
    """Return a source as it is read from its target to its source language; `languages` are both of them."""
    changes: dict[str, Any] = {"source_lang": languages[1], "target_lang": languages[0], "both_ways": False}
    if isinstance(source, PairFiles):
        changes |= {"source": source.target, "target": source.source}
    if isinstance(source, TableFile | HubDataset):
        numbers = ("1", "2") if isinstance(source, TableFile) and not source.header else (None, None)
        changes["source_column"] = source.target_column or numbers[1]
        changes["target_column"] = source.source_column or numbers[0]
    return source.model_copy(update=changes)
