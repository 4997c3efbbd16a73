"""The texts that a configuration names, read as training reads them, except that reading goes on after a fault."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mt.config import Builtin, DataConfig, HubDataset, PairFiles, Source, TableFile
from mt.data.corpus import read_numbered
from mt.errors import InputError
from mt.extras.doctor.chunks import Example, Examples, Place
from mt.text.compressed import open_bytes
from mt.text.lines import TextIssue

SPLITS = ("test", "valid", "train")  # in the order in which they are read: what training must not have comes first

_BLOCK = 2**20  # bytes
_BOM = b"\xef\xbb\xbf"

# Line, source and target as they are written, and why they are not UTF-8; empty where they are.
Read = tuple[int, str, str, str]


@dataclass(frozen=True)
class Text:
    """One source of a split.

    Attributes:
        split: train, valid or test.
        number: which of the split's sources, from 1.
        source: where it is.
        data: the configuration.
    """

    split: str
    number: int
    source: Source
    data: DataConfig

    @property
    def target_lang(self) -> str:
        return self.data.language_of(self.source)

    @property
    def files(self) -> tuple[str, str]:
        """What the two sides are called."""
        if isinstance(self.source, PairFiles):
            return str(self._path(self.source.source)), str(self._path(self.source.target))
        if isinstance(self.source, TableFile):
            return (str(self._path(self.source.file)),) * 2
        name = self.source.hub if isinstance(self.source, HubDataset) else self.source.builtin
        return (f"{name} ({self.source.split})",) * 2

    def _path(self, name: str) -> Path:
        return Path(self.data.root) / name

    def text_files(self) -> list[Path]:
        """Those that are plain text, perhaps compressed."""
        if isinstance(self.source, HubDataset | Builtin):
            return []
        return [Path(name) for name in dict.fromkeys(self.files) if not name.lower().endswith(".parquet")]


def texts_of(data: DataConfig) -> list[Text]:
    """All sources of a configuration; pairs that are split off the training text are no source of their own."""
    sources = {split: getattr(data, split) for split in SPLITS}
    return [
        Text(split, number, source, data)
        for split, each in sources.items()
        if isinstance(each, tuple)
        for number, source in enumerate(each, 1)
    ]


@dataclass
class Faults:
    """What is wrong with the form of texts, by kind: how often in each split, and the first few."""

    examples: Examples
    counts: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, kind: str, example: Example, count: int = 1) -> None:
        self.counts.setdefault(kind, Counter())[example.split] += count
        self.examples.add(kind, example)


def read_text(text: Text, faults: Faults | None = None) -> Iterator[Read]:
    """Yields all pairs of a text that can be read.

    Args:
        text: which.
        faults: where to note what is wrong with it; None where that is known already.
    """
    pending: list[str] = []

    def note(fault: TextIssue) -> None:
        if fault.kind == "encoding":
            pending.append(_said(fault))  # and the pair it is in comes next
        else:
            pending.clear()
        kind = {"lines": "line-counts", "row": "row"}.get(fault.kind)
        if faults is not None and kind is not None:
            places = (Place(fault.file, fault.line, _said(fault)),) if kind == "row" else ()
            faults.add(kind, Example(text.split, places, "" if places else fault.message))

    try:
        for line, src, tgt in read_numbered(text.source, text.data, note):
            yield line, src, tgt, "; ".join(pending)
            pending.clear()
    except InputError as error:
        if faults is not None:
            faults.add("unreadable", Example(text.split, (), error.message))


def _said(fault: TextIssue) -> str:
    """What a fault's message says beside the place."""
    return fault.message.removeprefix(f"{fault.file}:{fault.line}: ").removeprefix(f"{fault.file}: ")


def scan(text: Text, faults: Faults) -> None:
    """Notes what can be told by the bytes of a text's files alone; one that cannot be read is left to `read_text`."""
    for path in text.text_files():
        try:
            marked, crlf, first = _scan_file(path)
        except (OSError, InputError):
            continue
        if marked:
            faults.add("byte-order-mark", Example(text.split, (), str(path)))
        if crlf:
            faults.add("crlf", Example(text.split, (), f"{path}: {crlf:,} lines, the first is line {first:,}"), crlf)


def _scan_file(path: Path) -> tuple[bool, int, int]:
    """Whether a file begins with a byte order mark, how many lines end in CR LF, and the number of the first."""
    marked, crlf, line, last = False, 0, 1, b""
    with open_bytes(path) as stream:
        while block := stream.read(_BLOCK):
            marked = marked or (not last and block.startswith(_BOM))
            joined = last + block
            if not crlf:
                place = joined.find(b"\r\n")
                line += joined.count(b"\n", len(last), len(joined) if place < 0 else place)
            crlf += joined.count(b"\r\n")
            last = block[-1:]
    return marked, crlf, line
