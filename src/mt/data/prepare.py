"""Preparation of the text: any kind of source becomes three plain corpora (train, valid, test).

They are kept in the run folder as text, so that later stages can read them repeatedly, resuming needs no network, and
validation scores are computed on raw text.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

from mt.config import (
    Config,
    DataConfig,
    FromTrain,
    OpusCorpus,
    PairFiles,
    Source,
    TableFile,
    TextFolder,
    is_synthetic,
)
from mt.console import log
from mt.data.cleaning import drop_duplicates, reason_to_drop
from mt.data.corpus import line_texts, read_pairs
from mt.data.mixture import MixturePart
from mt.data.named_corpora import opus_archive
from mt.data.split import Split
from mt.data.token_store import SIDES
from mt.errors import InputError
from mt.storage import atomic
from mt.storage.manifest import sha256
from mt.storage.run_dir import COUNTS
from mt.text.languages import BACK_TRANSLATION_TAG
from mt.text.lines import explain_read_errors, nfc, refuse_pipe

SPLITS = ("train", "valid", "test")
HELD_OUT = "held out for validation or test"

_MIN_DUPLICATES_WARNED = 0.1  # share of a weighted source's pairs that an earlier source has
# Keys of a source that do not change its text.
_NOT_CONTENT = {"source_lang", "target_lang", "weight", "streaming", "synthetic"}


def drop_missing_sources(config: Config) -> Config:
    """Remove optional training sources whose files do not exist, and log them; the others become mandatory.

    Raises InputError if no source is left for one of the languages, or none that `from_train` may split.
    """
    data = config.data
    present: list[Source] = []
    left_out: list[str] = []
    for source in data.train:
        paths = [Path(data.root) / name for name in source.files.values() if getattr(source, "optional", False)]
        missing = [str(path) for path in paths if not path.exists()]
        if missing:
            left_out.append(" and ".join(sorted(missing)))
        else:
            present.append(source.model_copy(update={"optional": False}) if paths else source)
    for names in dict.fromkeys(left_out):  # a file that is read in both directions is two sources
        log.warning("data.train: an optional source is left out: %s does not exist", names)
    directions = [data.languages_of(source) for source in present]
    for side, codes in ((1, data.target_lang), (0, data.source_lang)):
        for code in codes:
            if all(languages[side] != code for languages in directions):
                problem = f"data.train: no source {('from', 'in')[side]} {code} exists"
                raise InputError(problem, "all are optional, but one is needed")
    for split, sources in (("valid", data.valid), ("test", data.test)):
        if isinstance(sources, FromTrain) and all(map(is_synthetic, present)):
            raise InputError(
                f"data.{split}: cannot be split off the training text: only its synthetic sources exist",
                "name files of its own",
            )
    return config.model_copy(update={"data": data.model_copy(update={"train": tuple(present)})})


def prepare_text(config: Config, folder: Path, key: str) -> None:
    """Write `{train,valid,test}.{source,target}` and the numbers of their pairs into `folder`.

    The folder is written atomically, and its manifest records the key. Raises InputError if a source cannot be read, or
    nothing is left to train on.
    """
    data = config.data
    counts = Counter[str]()
    with atomic.new_folder(folder, key=key) as partial:
        parts = _write_splits(config, partial, counts)
        if data.drop_duplicates:
            before = parts["train"]
            parts["train"] = drop_duplicates((partial / "train.source", partial / "train.target"), before, partial)
            dropped = _pairs(before) - _pairs(parts["train"])
            counts.update({"kept": -dropped, "duplicate": dropped} if dropped else {})
            _warn_of_lost_weights(data, before, parts["train"])
        for split in SPLITS if data.test is not None else SPLITS[:2]:
            if _pairs(parts[split]) == 0:
                problem, hint = "no sentence pair in it", "check the files, and what cleaning dropped"
                if split == "train" and counts[HELD_OUT]:
                    problem += " when those for validation and test are split off"
                    hint = "name files of their own for these"
                raise InputError(f"data.{split}: {problem}", hint)
        content = {
            "pairs": {split: _pairs(split_parts) for split, split_parts in parts.items()},
            "train": dict(counts),
            "parts": {split: list(map(vars, split_parts)) for split, split_parts in parts.items()},
        }
        atomic.write_json(partial / COUNTS, content)


def _write_splits(config: Config, folder: Path, counts: Counter[str]) -> dict[str, list[MixturePart]]:
    """Write the splits, add to the cleaning counts, return the parts; every training source has one, even if empty."""
    data, parts = config.data, {split: list[MixturePart]() for split in SPLITS}
    with ExitStack() as stack:
        files = {
            split: [stack.enter_context((folder / f"{split}.{side}").open("wb")) for side in SIDES] for split in SPLITS
        }

        def write(split: str, src: str, tgt: str) -> None:
            for file, text in zip(files[split], (src, tgt), strict=True):
                file.write(text.encode() + b"\n")
            parts[split][-1].pairs += 1

        # The small files come first, so that their errors are reported early.
        for split, sources in (("valid", data.valid), ("test", data.test)):
            for source in sources if isinstance(sources, tuple) else ():
                parts[split].append(_part_of(source, data))
                for src, tgt in read_pairs(source, data):
                    write(split, src, tgt)
        held_out = Split(data, config.seed)
        for source in data.train:
            synthetic = is_synthetic(source)
            for split in SPLITS:
                parts[split].append(_part_of(source, data))
            direction = parts["train"][-1].direction
            for src, tgt in read_pairs(source, data):
                if held_out and not synthetic and src.startswith(f"{BACK_TRANSLATION_TAG} "):
                    raise back_translation_error(source.name)
                if held_out.holds_out(src, tgt, synthetic):
                    counts[HELD_OUT] += 1
                    if not synthetic and (assigned := held_out.assign(src, direction)):
                        write(assigned, src, tgt)
                elif reason := reason_to_drop(src, tgt, data.max_ratio):
                    counts[reason] += 1
                else:
                    counts["kept"] += 1
                    write("train", src, tgt)
    return {split: [part for part in parts[split] if part.pairs or split == "train"] for split in SPLITS}


def _part_of(source: Source, data: DataConfig) -> MixturePart:
    source_lang, target_lang = data.languages_of(source)
    return MixturePart(0, target_lang, data.own_source(source_lang))


def back_translation_error(name: str) -> InputError:
    """Return the error for back-translated sentences that could be held out: scores on them would mean nothing."""
    problem = f"back-translated text ({BACK_TRANSLATION_TAG}) could be split off for validation or test"
    hint = "add `synthetic: true` to this source, or name files of their own for these"
    return InputError(f"data.train: {name}: {problem}", hint)


def _warn_of_lost_weights(data: DataConfig, before: Sequence[MixturePart], after: Sequence[MixturePart]) -> None:
    """Warn of sources whose duplicates count with the weight of an earlier source, whose copies are kept."""
    if len({source.weight for source in data.train}) == 1:
        return
    for source, part, remaining in zip(data.train, before, after, strict=True):
        dropped = part.pairs - remaining.pairs
        if dropped > _MIN_DUPLICATES_WARNED * part.pairs:
            log.warning(
                "data.train: %s: %d of its %d pairs are duplicates, within it or of an earlier source, whose weight "
                "they have; list the source first whose weight you want",
                source.name,
                dropped,
                part.pairs,
            )


def _pairs(parts: Sequence[MixturePart]) -> int:
    return sum(part.pairs for part in parts)


def input_digests(data: DataConfig, digest: Callable[[Path], str] = sha256) -> dict[str, Any]:
    """Identify the content of every source: the digest of files, the name and revision of anything else.

    Raises InputError if a file is missing.
    """
    digest, digests = cache(digest), dict[str, Any]()  # many sources may be in one archive
    for split in SPLITS:
        sources = getattr(data, split)
        sources = sources if isinstance(sources, tuple) else (sources,)
        for index, source in enumerate(sources):
            prefix = f"data.{split}.{index}" if len(sources) > 1 else f"data.{split}"
            if isinstance(source, TextFolder):
                paths = dict.fromkeys(text.path for pair in line_texts(source, data) for text in pair)
                digests[prefix] = [_file_digest(path, digest) for path in paths]
            elif isinstance(source, OpusCorpus):
                digests[prefix] = digest(opus_archive(source.opus, source.version, data.languages_of(source))[0])
            elif isinstance(source, PairFiles | TableFile):
                for key, name in source.files.items():
                    hint = f"the path is relative to data.root, which is '{data.root}'"
                    path = Path(data.root) / name
                    digests[f"{prefix}.{key}"] = _file_digest(path, digest, "" if Path(name).is_absolute() else hint)
            elif source is not None:
                digests[prefix] = source.model_dump(exclude=_NOT_CONTENT)
    return digests


def _file_digest(path: Path, digest: Callable[[Path], str], hint: str = "") -> str:
    with explain_read_errors(path, hint):
        refuse_pipe(path)
        return digest(path)


def warn_of_shared_text(data: DataConfig) -> None:
    """Warn where validation or test text is training text: its scores mean nothing for new sentences."""
    for split, sources in (("valid", data.valid), ("test", data.test)):
        if isinstance(sources, tuple) and any(_same_text(data, a, b) for a in sources for b in data.train):
            log.warning("data.%s: has the same text as data.train; its scores mean nothing for new sentences", split)


def _same_text(data: DataConfig, one: Source, other: Source) -> bool:
    """Compare the pairs of two sources up to the first difference."""
    if data.languages_of(one) != data.languages_of(other):
        return False
    if not (one.files and other.files):
        return one.model_dump(exclude=_NOT_CONTENT) == other.model_dump(exclude=_NOT_CONTENT)
    try:
        pairs = zip_longest(read_pairs(one, data), read_pairs(other, data), fillvalue=("", ""))
        return all(nfc(a) == nfc(b) for both in pairs for a, b in zip(*both, strict=True))
    except InputError:  # reading for training will report it
        return False
