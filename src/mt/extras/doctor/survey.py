"""The first reading: how much text there is, what is wrong with its form, and a sample to derive measures from."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, log
from pathlib import Path

import numpy as np

from mt.config import Config
from mt.console import log as console
from mt.data.cleaning import GRACE, reason_to_drop
from mt.data.corpus import one_line
from mt.data.tokenizer import BpeTokenizer, TokenizerPair
from mt.errors import InputError
from mt.extras.doctor.another_language import detectable, why_not
from mt.extras.doctor.chunks import Yardstick
from mt.extras.doctor.reading import Faults, Text, read_text, scan
from mt.extras.doctor.scripts import scripts_of
from mt.storage import atomic
from mt.storage.run_dir import RunDir
from mt.text.lines import nfc

SAMPLE = 20_000  # pairs of each split, at even distances

_FEW = 3  # more than are ever split off a tiny text for validation and test
_LONGEST = 10_000  # characters of a sentence in it: learning pieces takes the square of a word's length

_SPREADS, _FACTOR = 6.0, 2.5  # how far from the middle a length ratio is unusual: both, in spreads and as a factor
_ENOUGH = 30  # pairs to know a usual ratio from
_NORMAL = 1.4826  # a median of deviations times this is a normal distribution's standard deviation

Sampled = tuple[int, tuple[str, str]]  # line, source and target


@dataclass
class Survey:
    """What the first reading of a text shows.

    Attributes:
        pairs: that can be read.
        sample: some of them, as training reads them.
        sources: the first few different source sentences of pairs that cleaning leaves.
    """

    text: Text
    pairs: int = 0
    sample: list[Sampled] = field(default_factory=list)
    sources: set[str] = field(default_factory=set)


def survey(text: Text, faults: Faults, wanted: int) -> Survey:
    """Reads a text and notes its faults.

    Args:
        text: which.
        faults: where to note them.
        wanted: size of the sample, at most; it has at least half of it where there is so much text.
    """
    scan(text, faults)
    found, every = Survey(text), 1
    for line, src, tgt, unreadable in read_text(text, faults):
        if not unreadable and found.pairs % every == 0 and max(len(src), len(tgt)) <= _LONGEST:
            found.sample.append((line, (one_line(src), one_line(tgt))))
            if len(found.sample) > wanted:
                found.sample = found.sample[::2]
                every *= 2
        if not unreadable and len(found.sources) < _FEW:
            pair = (one_line(src), one_line(tgt))
            if reason_to_drop(*pair, text.data.max_ratio) is None:
                found.sources.add(nfc(pair[0]))
        found.pairs += 1
    return found


def yardsticks(config: Config, surveys: Sequence[Survey], tokenizers: tuple[Path, Path] | None) -> dict[str, Yardstick]:
    """What to measure the pairs of each target language with, by its code."""
    data = config.data
    for language in (data.source_lang, *data.target_lang):
        if not detectable(language):
            console.info("no sentence is examined for being in another language than %s: %s", language, why_not())
    sources = [src for s in surveys for _, (src, _) in s.sample]
    tag = len(data.target_lang) > 1
    found = {}
    for language in data.target_lang:
        training = [s.sample for s in surveys if s.text.split == "train" and s.text.target_lang == language]
        pairs = [pair for sample in training for _, pair in sample if all(pair)]
        found[language] = Yardstick(
            languages=(data.source_lang, language),
            scripts=(scripts_of(data.source_lang, sources), scripts_of(language, (tgt for _, tgt in pairs))),
            max_ratio=data.max_ratio,
            max_length=(data.max_length - tag, data.max_length),
            ratio=_usual_ratio(pairs),
            tokenizers=tokenizers,
            detectable=(detectable(data.source_lang), detectable(language)),
        )
    return found


def _usual_ratio(pairs: Sequence[tuple[str, str]]) -> tuple[float, float]:
    if len(pairs) < _ENOUGH:
        return 0.0, inf
    ratios = np.array([log((len(tgt) + GRACE) / (len(src) + GRACE)) for src, tgt in pairs])
    middle = float(np.median(ratios))
    spread = _NORMAL * float(np.median(np.abs(ratios - middle)))
    return middle, max(_SPREADS * spread, log(_FACTOR))


def find_tokenizers(config: Config, runs: Path, surveys: Sequence[Survey]) -> tuple[str, TokenizerPair]:
    """The tokenizers of the configuration's run, or some trained on the sample.

    Args:
        config: the configuration.
        runs: where its run may be.
        surveys: what was read.

    Returns:
        what to call them, and them.
    """
    run = RunDir(runs / config.name)
    if run.tokenizer.is_dir():
        try:
            return f"of {run.root}", TokenizerPair.load(run.tokenizer, config.tokenizer.shared)
        except InputError as error:
            console.warning("%s; a tokenizer is trained on a sample instead", error.message)
    pairs = [pair for s in surveys if s.text.split == "train" for _, pair in s.sample]
    texts = [[pair[side] for pair in pairs] for side in (0, 1)]
    size = config.tokenizer.vocab_size
    if config.tokenizer.shared:
        both = BpeTokenizer.train(texts[0] + texts[1], size)
        trained = TokenizerPair(both, both)
    else:
        trained = TokenizerPair(*(BpeTokenizer.train(text, size) for text in texts))
    return f"trained on {len(pairs):,} pairs", trained


def tokenizer_files(tokenizers: TokenizerPair, folder: Path) -> tuple[Path, Path]:
    """Writes the tokenizers for the processes that need them; the files of the two sides."""
    paths = [folder / name for name in tokenizers.files()]
    for path, content in tokenizers.files().items():
        atomic.write_text(folder / path, content)
    return paths[0], paths[-1]
