"""Cleaning of the training text: pairs that break chosen rules are dropped whole; the others stay as they are."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from mt.config import DataConfig, TextFolder
from mt.config.loading import as_yaml
from mt.console import log
from mt.data.prepare import input_digests
from mt.data.token_store import SIDES
from mt.errors import InputError, contradict
from mt.extras.doctor.bitexts import Bitext, RawPair, bitexts_of, read_bitext
from mt.extras.doctor.characters import visible
from mt.extras.doctor.check import CorpusReport
from mt.extras.doctor.findings import Masks, bits
from mt.extras.doctor.rules import BIT, DROPPED_BY_CLEANING, PAIR_RULES, PREVENTING
from mt.storage import atomic
from mt.storage.manifest import read_manifest, sha256
from mt.storage.output_path import require_replaceable
from mt.storage.run_dir import MANIFEST

_MADE_BY = "mt data clean"


@dataclass(frozen=True)
class CleanedText:
    """The result of a cleaning."""

    counts: dict[str, int]  # pairs kept, then those dropped by rule
    repaired: dict[str, int]  # pairs kept after a repair, by repair
    sources: list[dict[str, Any]]  # entries for `data.train` of a configuration
    root: str  # of their paths

    def snippet(self) -> str:
        """Return the sources as part of a configuration."""
        sources = [f"    - {as_yaml(source)}" for source in self.sources]
        return "\n".join(["data:", f"  root: {as_yaml(self.root)}", "  train:", *sources])


def dropping_rules(keep: Iterable[str], drop: Iterable[str]) -> frozenset[str]:
    """Return the rules that drop a pair: the default ones without `keep`, and `drop`; one in both is an InputError."""
    keep, drop = frozenset(keep), frozenset(drop)
    for name in sorted(keep & drop):
        contradict(True, f"--keep {name}", f"--drop {name}")
    return (DROPPED_BY_CLEANING - keep) | drop


def check_output(output: Path, data: DataConfig, *inputs: Path) -> None:
    """Refuse an output folder that holds an input, or anything but an earlier cleaning as it was written.

    One in a folder of texts is refused, too: the corpus would read it.
    """
    bitexts = bitexts_of(data)
    corpus = (path for bitext in bitexts for path in bitext.inputs())
    require_replaceable(output, _MADE_BY, "made_by", (*inputs, *corpus))
    for source in (bitext.source for bitext in bitexts):
        if isinstance(source, TextFolder) and source.stem is None:
            folder = Path(data.root, source.folder)
            if folder.resolve() in output.resolve().parents:
                raise InputError(f"--output {output}: in {folder}, whose texts are all read", "name a folder elsewhere")
    if (output / MANIFEST).exists():
        for name, entry in read_manifest(output)["files"].items():
            path = output / name
            if path.is_file() and (path.stat().st_size != entry["bytes"] or sha256(path) != entry["sha256"]):
                message = f"--output {output}: {name} was changed since `{_MADE_BY}` wrote it"
                raise InputError(message, "name a new folder, or move this file")


def training_digests(data: DataConfig) -> dict[str, Any]:
    """Identify the training text; the other texts may be missing."""
    return input_digests(data.model_copy(update={"valid": None, "test": None}))


def write_clean(
    report: CorpusReport, output: Path, dropped_for: frozenset[str], digests: Mapping[str, Any]
) -> CleanedText:
    """Write the training text without the pairs that break a rule, atomically, and a page of their scores, if any.

    `digests` are those of the training text before the report.

    Raises InputError if the text cannot be read to its end, has changed since the report, or would be empty.
    """
    for finding in report.findings:
        if finding.rule.name in PREVENTING and finding.counts["train"]:
            raise InputError(f"the training text cannot be cleaned: {finding.examples[0].note}", finding.rule.advice)
    masks = report.masks & bits(*dropped_for)
    if not np.any(masks == 0):
        raise InputError("data.train: no pair would be left", "see `mt data check`, and --keep some of them")
    bitexts = [stats.bitext for stats in report.training]
    with atomic.new_folder(output, check=lambda: check_output(output, report.config.data), made_by=_MADE_BY) as partial:
        counts, repairs = _write_pairs(bitexts, masks, partial)
        if counts.total() != len(masks) or training_digests(report.config.data) != digests:
            raise InputError("data.train: the text changed while it was read", "run the command again")
        if report.scores is not None:
            from mt.extras.doctor.html_report import scores_page  # imports matplotlib

            atomic.write_text(partial / "scores.html", scores_page(report.scores))
    for finding in report.findings:
        if finding.rule.name == "row" and (rows := finding.counts["train"]):
            log.warning("unreadable rows dropped: %d; `mt data check` shows the first", rows)
            counts["row"] = rows
    ordered = {"kept": counts.pop("kept", 0), **dict(counts.most_common())}
    sources = [_as_source(bitext, bitexts, output) for bitext in bitexts]
    return CleanedText(ordered, dict(repairs.most_common()), sources, report.config.data.root)


def _write_pairs(bitexts: Sequence[Bitext], masks: Masks, folder: Path) -> tuple[Counter[str], Counter[str]]:
    """Write the pairs whose mask is 0 to text files; return the counts of pairs and of repairs.

    Dropped pairs go to dropped/RULE.tsv, repaired ones before and after to repaired/REPAIR.tsv.
    """
    counts, repairs, remaining = Counter[str](), Counter[str](), iter(masks)
    tables: dict[str, TextIO] = {}
    for name in ("dropped", "repaired"):
        (folder / name).mkdir()
    with ExitStack() as files:

        def add_row(name: str, raw: RawPair, **sides: str) -> None:
            row = {"file": raw.files[0], "line": str(raw.line), **sides}
            if name not in tables:
                tables[name] = files.enter_context((folder / f"{name}.tsv").open("w", encoding="utf-8"))
                print(*row, sep="\t", file=tables[name])
            print(*map(visible, row.values()), sep="\t", file=tables[name])  # it escapes tabs and line breaks, too

        for bitext in bitexts:
            names = text_names(bitext.languages, bitext.number, len(bitexts))
            with (folder / names[0]).open("wb") as source, (folder / names[1]).open("wb") as target:
                for raw in read_bitext(bitext):
                    src, tgt = raw.cleaned()
                    if mask := int(next(remaining, 0)):
                        rule = next(rule.name for rule in PAIR_RULES if mask & BIT[rule.name])
                        counts[rule] += 1
                        add_row(f"dropped/{rule}", raw, source=src, target=tgt)
                        continue
                    counts["kept"] += 1
                    source.write(src.encode() + b"\n")
                    target.write(tgt.encode() + b"\n")
                    for repair in raw.repairs:
                        repairs[repair] += 1
                        before = dict(zip(("source before", "target before"), raw.before, strict=True))
                        add_row(f"repaired/{repair}", raw, **before, source=src, target=tgt)
    return counts, repairs


def text_names(languages: tuple[str, str], number: int, n_sources: int) -> tuple[str, str]:
    """Return the file names of the two texts of a cleaned source; its number, from 1, is left out of a single one."""
    sides = languages if languages[0] != languages[1] else SIDES
    suffix = f"-{number}" if n_sources > 1 else ""
    return f"train{suffix}.{sides[0]}", f"train{suffix}.{sides[1]}"


def _as_source(bitext: Bitext, bitexts: Sequence[Bitext], output: Path) -> dict[str, Any]:
    """Return the configuration of a cleaned source, its paths relative to `data.root`."""
    # Symbolic links are resolved: `..` out of one leads elsewhere.
    root = os.path.realpath(bitext.data.root)
    folder = output if output.is_absolute() else Path(os.path.relpath(os.path.realpath(output), root))
    names = text_names(bitext.languages, bitext.number, len(bitexts))
    source, target = (str(folder / name) for name in names)
    return {"source": source, "target": target, **bitext.options}
