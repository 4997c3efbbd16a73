"""Writes the training text without the pairs that a diagnosis speaks against. Pairs go whole or stay as they are."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TextIO

import numpy as np
import yaml

from mt.config import DataConfig
from mt.config.loading import as_yaml
from mt.console import log
from mt.data.corpus import one_line
from mt.data.token_store import SIDES
from mt.errors import InputError
from mt.extras.doctor.characters import visible
from mt.extras.doctor.diagnosis import Diagnosis
from mt.extras.doctor.kinds import BIT, PAIR_KINDS, kinds_of
from mt.extras.doctor.reading import Text, read_text, texts_of
from mt.storage import atomic
from mt.storage.output_path import require_replaceable

_MADE_BY = "mt data clean"
_STOPS = ("unreadable", "line-counts")  # what leaves pairs unread, or wrong


@dataclass(frozen=True)
class Cleaned:
    """What became of the training text.

    Attributes:
        counts: pairs kept, then those dropped by reason.
        sources: what to write into a configuration.
    """

    counts: dict[str, int]
    sources: list[dict[str, Any]]

    def snippet(self, root: str) -> str:
        """The sources as a part of a configuration."""
        listed = (
            yaml.safe_dump(source, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**6).strip()
            for source in self.sources
        )
        return "\n".join(["data:", f"  root: {as_yaml(root)}", "  train:", *(f"    - {source}" for source in listed)])


def reasons(keep: Iterable[str], drop: Iterable[str]) -> frozenset[str]:
    """The kinds of finding that drop a pair.

    Args:
        keep: those that are not to, though they usually do.
        drop: those that are to, though they usually do not.

    Raises:
        InputError: one is in both.
    """
    keep, drop = frozenset(keep), frozenset(drop)
    if both := keep & drop:
        raise InputError(f"--keep {min(both)} and --drop {min(both)} contradict each other", "give one of them")
    return (frozenset(kind.name for kind in PAIR_KINDS if kind.dropped) - keep) | drop


def check_output(output: Path, data: DataConfig, *inputs: Path) -> None:
    """Refuse an output folder whose replacement would lose anything but an earlier cleaning.

    Raises:
        InputError: it holds an input, or a file of the user's.
    """
    corpus = (Path(name) for text in texts_of(data) for name in text.files)
    require_replaceable(output, _MADE_BY, "made_by", (*inputs, *corpus))


def write_clean(diagnosis: Diagnosis, output: Path, dropped_for: frozenset[str]) -> Cleaned:
    """Writes the training text anew.

    Args:
        diagnosis: of the corpus; it must not have changed since.
        output: the folder; it comes into being whole or not at all.
        dropped_for: kinds of finding that drop a pair.

    Raises:
        InputError: the text cannot be read to its end, its pairs are not known, or nothing of it is left.
    """
    for finding in diagnosis.findings:
        if finding.kind.name in _STOPS and finding.counts.get("train"):
            raise InputError(f"the training text cannot be cleaned: {finding.examples[0].note}", finding.kind.advice)
    marked = diagnosis.masks & np.uint64(sum(BIT[kind] for kind in dropped_for))
    if not np.any(marked == 0):
        raise InputError("data.train: no pair of it would be left", "see `mt data check`, and --keep what may stay")
    check_output(output, diagnosis.config.data)
    texts = [survey.text for survey in diagnosis.surveys if survey.text.split == "train"]
    counts: Counter[str] = Counter(kept=0)
    place = 0
    with atomic.new_folder(output, made_by=_MADE_BY) as partial, _Dropped(partial / "dropped") as dropped:
        for text in texts:
            names = _names(text, texts)
            with (partial / names[0]).open("wb") as source, (partial / names[1]).open("wb") as target:
                for line, *sides, _ in read_text(text):
                    src, tgt = map(one_line, sides)
                    if bits := int(marked[place]) if place < len(marked) else 0:
                        reason = kinds_of(bits)[0].name
                        counts[reason] += 1
                        dropped.write(reason, text, line, src, tgt)
                    else:
                        counts["kept"] += 1
                        source.write(src.encode() + b"\n")
                        target.write(tgt.encode() + b"\n")
                    place += 1
        if place != len(marked):
            raise InputError("data.train: its text changed while it was read", "run the command again")
    for finding in diagnosis.findings:
        if finding.kind.name == "row" and (rows := finding.counts.get("train", 0)):
            log.warning("rows that cannot be read and are left out: %d; `mt data check` shows the first", rows)
            counts["row"] = rows
    ordered = {"kept": counts["kept"], **dict(counts.most_common())}
    return Cleaned(ordered, [_as_source(text, texts, output) for text in texts])


class _Dropped:
    """Tables of the pairs that went, one for each reason; as a context."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, TextIO] = {}

    def __enter__(self) -> Self:
        self._folder.mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def write(self, reason: str, text: Text, line: int, src: str, tgt: str) -> None:
        if reason not in self._files:
            self._files[reason] = (self._folder / f"{reason}.tsv").open("w", encoding="utf-8")
            self._files[reason].write("file\tline\tsource\ttarget\n")
        # A tab or a line break in a sentence is made visible, too.
        self._files[reason].write("\t".join((visible(text.files[0]), str(line), visible(src), visible(tgt))) + "\n")


def _names(text: Text, texts: Sequence[Text]) -> tuple[str, str]:
    """The files that a source becomes."""
    sides = (text.data.source_lang, text.target_lang)
    if sides[0] == sides[1]:
        sides = SIDES
    number = f"-{text.number}" if len(texts) > 1 else ""
    return f"train{number}.{sides[0]}", f"train{number}.{sides[1]}"


def _as_source(text: Text, texts: Sequence[Text], output: Path) -> dict[str, Any]:
    """What a configuration says of a cleaned source; paths start from its root."""
    # Both without links: `..` out of one leads elsewhere.
    root = os.path.realpath(text.data.root)
    folder = output if output.is_absolute() else Path(os.path.relpath(os.path.realpath(output), root))
    source, target = (str(folder / name) for name in _names(text, texts))
    kept = text.source.model_dump(include={"target_lang", "weight", "synthetic"}, exclude_defaults=True)
    return {"source": source, "target": target, **kept}
