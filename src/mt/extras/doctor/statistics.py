"""First pass over a corpus: size, faults of form, a sample, and criteria derived from it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf, log
from pathlib import Path

import numpy as np

from mt.config import Config, FromTrain, is_synthetic
from mt.console import log as console
from mt.data.cleaning import GRACE, reason_to_drop
from mt.data.corpus import Pair
from mt.data.tokenizer_kinds import TokenizerPair, train_tokenizer
from mt.errors import InputError
from mt.extras.doctor.bitexts import Bitext, check_bytes, read_bitext
from mt.extras.doctor.findings import Criteria, Example, Findings
from mt.extras.doctor.line_languages import undetectable
from mt.extras.doctor.misalignment import segment_pairs
from mt.extras.doctor.scripts import scripts_of
from mt.extras.doctor.word_hashes import frequent_words
from mt.extras.planning.corpus_sample import EvenSample
from mt.storage.run_dir import RunDir
from mt.text.languages import BACK_TRANSLATION_TAG
from mt.text.lines import nfc

_ENOUGH_SOURCES = 3  # more than can be split off a tiny text for validation and test
_MAX_SAMPLED = 10_000  # characters of a side: BPE training is quadratic in the length of a word

# A length ratio is unusual at this distance from the median: both in standard deviations and as a factor.
_MAX_DEVIATIONS, _MIN_FACTOR = 6.0, 2.5
_MIN_RATIOS = 30  # pairs from which a typical ratio is derived
_MAD_TO_STD = 1.4826  # standard deviation of a normal distribution by its median absolute deviation


@dataclass
class BitextStatistics:
    bitext: Bitext
    pairs: int = 0  # readable ones
    sample: list[tuple[int, Pair]] = field(default_factory=list)  # (line, pair as training reads it)
    sources: set[str] = field(default_factory=set)  # up to three distinct ones of pairs that cleaning keeps


def collect_statistics(bitext: Bitext, findings: Findings, max_sample: int) -> BitextStatistics:
    """Read a bitext, adding its faults to `findings`; sample at least half of `max_sample` from a long one."""
    check_bytes(bitext, findings)
    statistics, sample = BitextStatistics(bitext), EvenSample[tuple[int, Pair]](max_sample)
    tagged = first_tagged = 0  # pairs with the tag of back-translations, and the line of the first one
    characters = 0
    for raw in read_bitext(bitext, findings):
        if not raw.error:
            src, tgt = raw.cleaned()
            characters += len(src) + len(tgt)
            if max(len(raw.source), len(raw.target)) <= _MAX_SAMPLED:
                sample.add(statistics.pairs, (raw.line, (src, tgt)))
            if src.startswith(f"{BACK_TRANSLATION_TAG} "):
                tagged, first_tagged = tagged + 1, first_tagged or raw.line
            if len(statistics.sources) < _ENOUGH_SOURCES and not reason_to_drop(src, tgt, bitext.data.max_ratio):
                statistics.sources.add(nfc(src))
        statistics.pairs += 1
    statistics.sample = sample.items
    if not bitext.repair:  # else its blocks are known
        statistics.bitext = replace(bitext, segment=segment_pairs(statistics.pairs, characters))
    is_split_off = any(isinstance(sources, FromTrain) for sources in (bitext.data.valid, bitext.data.test))
    if tagged and is_split_off and bitext.split == "train" and not is_synthetic(bitext.source):
        note = f"{bitext.files[0]}:{first_tagged}: data.train"
        findings.add("back-translated", Example("train", (), note), tagged)
    return statistics


def criteria_by_direction(
    config: Config, statistics: Sequence[BitextStatistics], tokenizers: tuple[Path, Path] | None
) -> dict[str, Criteria]:
    # `sentence_tokens` counts `<s>` and `</s>` of a source, but no tags; some formats have no `<s>`.
    data, n_more = config.data, config.source_tags - (not config.model.source_format.startswith("<s>"))
    for language in dict.fromkeys((*data.source_lang, *data.target_lang)):
        if reason := undetectable(language):
            console.info("the language of sentences in %s is not checked: %s", language, reason)
    criteria = {}
    for name, languages in {s.bitext.direction: s.bitext.languages for s in statistics}.items():
        sources = (src for s in statistics if s.bitext.languages[0] == languages[0] for _, (src, _) in s.sample)
        training = (s for s in statistics if s.bitext.split == "train" and s.bitext.direction == name)
        pairs = [pair for s in training for _, pair in s.sample if all(pair)]
        criteria[name] = Criteria(
            direction=name,
            languages=languages,
            scripts=(scripts_of(languages[0], sources), scripts_of(languages[1], (tgt for _, tgt in pairs))),
            max_ratio=data.max_ratio,
            max_length=(data.max_length - n_more, data.max_length),
            typical_ratio=_typical_ratio(pairs),
            tokenizers=tokenizers,
            frequent=(
                frequent_words([src for src, _ in pairs]),
                frequent_words([tgt for _, tgt in pairs], languages[1]),
            ),
        )
    return criteria


def _typical_ratio(pairs: Sequence[Pair]) -> tuple[float, float]:
    if len(pairs) < _MIN_RATIOS:
        return 0.0, inf
    ratios = np.array([log((len(tgt) + GRACE) / (len(src) + GRACE)) for src, tgt in pairs])
    median = float(np.median(ratios))
    deviation = _MAD_TO_STD * float(np.median(np.abs(ratios - median)))
    return median, max(_MAX_DEVIATIONS * deviation, log(_MIN_FACTOR))


def load_tokenizers(
    config: Config, runs: Path, statistics: Sequence[BitextStatistics]
) -> tuple[str, TokenizerPair] | None:
    """Return a description and the tokenizers: the run's, those the configuration names, or new ones for the sample.

    None without training text.
    """
    pairs = [pair for s in statistics if s.bitext.split == "train" for _, pair in s.sample]
    if not pairs:
        return None
    settings = config.tokenizer
    run = RunDir(runs / config.name)
    if run.tokenizer.is_dir():
        try:
            return f"of {run.root}", TokenizerPair.load(run.tokenizer, settings.shared)
        except InputError as error:
            console.warning("%s; a tokenizer is trained on a sample instead", error.message)
    if (given := TokenizerPair.given(settings)) is not None:
        return "of the configuration", given
    texts = [[pair[side] for pair in pairs] for side in (0, 1)]
    merged = [texts[0] + texts[1]] if settings.shared else texts
    trained = [train_tokenizer(text, settings.vocab_size, (), settings.type) for text in merged]
    return f"trained on {len(pairs):,} pairs", TokenizerPair(trained[0], trained[-1])
