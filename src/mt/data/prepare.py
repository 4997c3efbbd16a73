"""The first stage: whatever the sources are, three plain corpora come out (train, valid, test).

They lie in the run folder as text, so that later stages read them any number of times, a resume needs no network, and
validation scores are computed on raw text.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path
from typing import Any

from mt.config import Config, DataConfig, PairFiles, Source, TableFile, is_synthetic, name_of
from mt.console import log
from mt.data.cleaning import Cleaner, drop_duplicates
from mt.data.corpus import read_pairs
from mt.data.mixture import Part, as_json
from mt.data.split import HeldOut
from mt.errors import InputError
from mt.storage import atomic
from mt.storage.manifest import sha256
from mt.storage.run_dir import COUNTS
from mt.text.languages import BACK_TRANSLATION_TAG
from mt.text.lines import nfc

# Where sources have weights, so large a part of one that came before is worth a warning.
TOLD_DUPLICATES = 0.1

_NOT_CONTENT = {"target_lang", "weight", "streaming", "synthetic"}  # of a source: how it is read, not what

HELD_OUT = "held out for validation or test"


def prepare_text(config: Config, folder: Path, key: str) -> dict[str, int]:
    """Writes `{train,valid,test}.{source,target}` into `folder` and returns the cleaning counts of the training text.

    Args:
        config: the run's configuration.
        folder: comes into being whole or not at all.
        key: identifies the inputs, recorded in the folder's manifest.

    Raises:
        InputError: a source cannot be read, or nothing is left to train on.
    """
    data = config.data
    cleaner = Cleaner(data)
    with atomic.new_folder(folder, key=key) as partial:
        with ExitStack() as stack:
            writers = {split: stack.enter_context(_PairWriter(partial, split)) for split in ("train", "valid", "test")}
            # The small files first: what is wrong with them is said before the long work.
            for split, sources in (("valid", data.valid), ("test", data.test)):
                for source in sources if isinstance(sources, tuple) else ():
                    writers[split].begin_part(data.language_of(source))
                    for src, tgt in read_pairs(source, data):
                        writers[split].write(src, tgt)
            _sort_training_text(data, HeldOut(data, config.seed, partial), cleaner, writers)
        # The training text's parts are its sources, one by one; of the others only those with a sentence.
        parts = {s: [part for part in w.parts() if part.pairs or s == "train"] for s, w in writers.items()}
        if data.drop_duplicates:
            train = (partial / "train.source", partial / "train.target")
            before = parts["train"]
            parts["train"] = drop_duplicates(train, before, partial)
            dropped = _pairs(before) - _pairs(parts["train"])
            cleaner.counts.update({"kept": -dropped, "duplicate": dropped} if dropped else {})
            _tell_lost_weights(data, before, parts["train"])
        for split in ("train", "valid") + (("test",) if data.test is not None else ()):
            if _pairs(parts[split]) == 0:
                all_held_out = split == "train" and cleaner.counts[HELD_OUT] > 0
                left = " when those for validation and test are split off" if all_held_out else ""
                hint = (
                    "name files of their own for these"
                    if all_held_out
                    else "check the files, and what cleaning dropped"
                )
                raise InputError(f"data.{split}: no sentence pair in it{left}", hint)
        counts = dict(cleaner.counts)
        sizes = {split: _pairs(each) for split, each in parts.items()}
        made_of = {split: as_json(each) for split, each in parts.items()}
        atomic.write_json(partial / COUNTS, {"pairs": sizes, "train": counts, "parts": made_of})
    return counts


def _sort_training_text(
    data: DataConfig, held_out: HeldOut, cleaner: Cleaner, writers: dict[str, "_PairWriter"]
) -> None:
    """Reads the training text: what is clean stays, and what is held out goes where it belongs."""
    for source in data.train:
        language, synthetic = data.language_of(source), is_synthetic(source)
        for writer in writers.values():
            writer.begin_part(language)
        for src, tgt in read_pairs(source, data):
            if held_out and not synthetic:
                _refuse_back_translation(src, name_of(source))
            if held_out.has(src, tgt, synthetic):
                cleaner.counts[HELD_OUT] += 1
                if not synthetic and (split := held_out.take(src, language)):
                    writers[split].write(src, tgt)
            elif cleaner.keeps(src, tgt):
                writers["train"].write(src, tgt)


def _refuse_back_translation(src: str, name: str) -> None:
    """A score on sentences that a model wrote would say nothing; nor should it be chance whether there are some."""
    if src.startswith(f"{BACK_TRANSLATION_TAG} "):
        raise InputError(
            f"data.train: {name}: back-translated text ({BACK_TRANSLATION_TAG}) could be split off for validation or "
            "test",
            "add `synthetic: true` to this source, or name files of their own for these",
        )


def _tell_lost_weights(data: DataConfig, before: Sequence[Part], after: Sequence[Part]) -> None:
    """Of equal pairs the first stays, with its source's weight, which may be another than that of the later one."""
    if len({source.weight for source in data.train}) == 1:
        return
    for source, had, has in zip(data.train, before, after, strict=True):
        dropped = had.pairs - has.pairs
        if dropped > TOLD_DUPLICATES * had.pairs:
            log.warning(
                "data.train: %s: %d of its %d pairs came before, in it or in a source listed earlier, whose weight "
                "they have; list the source first whose weight you want",
                name_of(source),
                dropped,
                had.pairs,
            )


def _pairs(parts: Sequence[Part]) -> int:
    return sum(part.pairs for part in parts)


class _PairWriter:
    """Writes one split as two aligned text files, part by part."""

    def __init__(self, folder: Path, split: str) -> None:
        self._files = [(folder / f"{split}.{side}").open("wb") for side in ("source", "target")]
        self._parts: list[tuple[str, int]] = []
        self._pairs = 0

    def __enter__(self) -> "_PairWriter":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            file.close()

    def write(self, src: str, tgt: str) -> None:
        for file, text in zip(self._files, (src, tgt), strict=True):
            file.write(text.encode() + b"\n")
        self._pairs += 1

    def begin_part(self, target_lang: str) -> None:
        """What is written from here on comes from another source."""
        self._parts.append((target_lang, self._pairs))

    def parts(self) -> list[Part]:
        """What was written."""
        ends = [*(start for _, start in self._parts[1:]), self._pairs]
        return [Part(end - start, language) for (language, start), end in zip(self._parts, ends, strict=True)]


def input_digests(data: DataConfig) -> dict[str, Any]:
    """What identifies the content of every source: sha256 of files, the name and revision of anything else.

    Raises:
        InputError: a file is missing.
    """
    digests: dict[str, Any] = {}
    for split in ("train", "valid", "test"):
        sources = getattr(data, split)
        sources = sources if isinstance(sources, tuple) else (sources,)
        for index, one in enumerate(sources):
            prefix = f"data.{split}.{index}" if len(sources) > 1 else f"data.{split}"
            if isinstance(one, PairFiles):
                digests[f"{prefix}.source"] = _file_digest(data, one.source)
                digests[f"{prefix}.target"] = _file_digest(data, one.target)
            elif isinstance(one, TableFile):
                digests[f"{prefix}.file"] = _file_digest(data, one.file)
            elif one is not None:
                digests[prefix] = one.model_dump(exclude=_NOT_CONTENT)
    return digests


def warn_of_shared_text(data: DataConfig) -> None:
    """Say where validation or test text is training text, so that its scores tell nothing about new sentences."""
    for split, sources in (("valid", data.valid), ("test", data.test)):
        if isinstance(sources, tuple) and any(_same_text(data, a, b) for a in sources for b in data.train):
            log.warning("data.%s: has the same text as data.train; it says nothing about new sentences", split)


def _same_text(data: DataConfig, one: Source, other: Source) -> bool:
    """Whether two sources have the same pairs; of different ones, the first few lines are read."""
    if data.language_of(one) != data.language_of(other):
        return False
    if not (isinstance(one, PairFiles | TableFile) and isinstance(other, PairFiles | TableFile)):
        return one.model_dump(exclude=_NOT_CONTENT) == other.model_dump(exclude=_NOT_CONTENT)
    try:
        pairs = zip_longest(read_pairs(one, data), read_pairs(other, data), fillvalue=("", ""))
        return all(nfc(a) == nfc(b) for both in pairs for a, b in zip(*both, strict=True))
    except InputError:  # reading for training will report it
        return False


def _file_digest(data: DataConfig, name: str) -> str:
    path = Path(data.root) / name
    try:
        return sha256(path)
    except FileNotFoundError:
        hint = f"the path is relative to data.root, which is '{data.root}'" if not Path(name).is_absolute() else ""
        raise InputError(f"{path}: no such file", hint) from None
    except IsADirectoryError:
        raise InputError(f"{path}: this is a folder, not a file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
