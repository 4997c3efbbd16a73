"""sacreBLEU's scores of raw, detokenised text, with their signatures."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import estimate_ci

from mt.config import EvaluationConfig
from mt.errors import InputError
from mt.text.languages import is_spaced, written_as

_SENTENCES_AT_ONCE = 50


@dataclass(frozen=True, kw_only=True)
class Scores:
    """The scores of a set of hypotheses; None where a metric was not asked for.

    Attributes:
        bleu: 0 to 100, with the 95 % confidence interval (bleu_low, bleu_high) of bootstrap resampling.
        chrf: 0 to 100; higher is better.
        ter: edits per reference word in percent; lower is better.
        exact_match: hypotheses equal to their reference, in percent.
        length_ratio: hypothesis over reference length, in BLEU's tokens.
        comet: on the scale of its checkpoint; higher is better.
        signatures: by metric, the settings and versions that a score depends on.
    """

    bleu: float | None = None
    bleu_low: float | None = None
    bleu_high: float | None = None
    chrf: float | None = None
    ter: float | None = None
    exact_match: float
    length_ratio: float
    comet: float | None = None
    signatures: dict[str, str]


def bleu_tokenizer(choice: str, target_lang: str) -> str:
    """Return sacreBLEU's tokenizer for a language, unless `choice` names one other than auto.

    It is 13a except for languages without spaces, and for Korean, where use of spaces varies.
    """
    if choice != "auto":
        return choice
    language = written_as(target_lang)
    return "zh" if language == "zh" else "char" if language == "ko" or not is_spaced(language) else "13a"


def rounded(values: Mapping[str, Any], digits: int = 4) -> dict[str, Any]:
    """Return the fields of a JSON object with fewer digits."""
    return {key: round(value, digits) if isinstance(value, float) else value for key, value in values.items()}


def metrics_for(target_lang: str, tokenize: str) -> dict[str, Metric]:
    """Return BLEU, chrF and TER by name; TER is of characters in Chinese and Japanese.

    There is no TER for other languages without spaces, where it would treat a sentence as one word.
    """
    metrics: dict[str, Metric] = {"bleu": BLEU(tokenize=tokenize), "chrf": CHRF()}
    if written_as(target_lang) in ("zh", "ja"):
        metrics["ter"] = TER(normalized=True, asian_support=True)
    elif is_spaced(target_lang):
        metrics["ter"] = TER()
    return metrics


def sentence_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """Return the chrF of each sentence: unlike BLEU, it works for single sentences."""
    chrf = CHRF()
    return [float(chrf.sentence_score(h, [r]).score) for h, r in zip(hypotheses, references, strict=True)]


def refuse_missing_tokenizer(*names: str) -> None:
    """Check, before anything is translated, that sacreBLEU has what its tokenizers need.

    Raises:
        InputError: a package or a download is missing.
    """
    for name in names:
        try:
            BLEU(tokenize=name)
        except (ImportError, RuntimeError, OSError) as error:
            package = {"ja-mecab": "sacrebleu[ja]", "ko-mecab": "sacrebleu[ko]"}.get(name)
            hint = f"pip install '{package}', or set auto" if package else "it needs a download once, or set auto"
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"evaluation.bleu_tokenize: {name} cannot be used here: {reason}", hint) from None


def corpus_bleu(hypotheses: Sequence[str], references: Sequence[str], tokenize: str) -> float:
    """Return BLEU without interval, for validation."""
    bleu = BLEU(tokenize=tokenize)
    try:
        return float(bleu.corpus_score(hypotheses, [references]).score)
    finally:
        _clear_caches(bleu.tokenizer)


def _clear_caches(tokenizer: object) -> None:
    """Clear sacreBLEU's class-wide caches of tokenized lines, which all validations of a training would fill."""
    for cached in (tokenizer, getattr(tokenizer, "_post_tokenizer", None)):
        if cache_clear := getattr(type(cached).__call__, "cache_clear", None):
            cache_clear()


def interval(score: float, samples: NDArray[Any], most: float = 100.0) -> tuple[float, float]:
    """Return the 95 % interval of bootstrap samples' scores, within 0 to `most` and with the score in it."""
    mean, radius = map(float, estimate_ci(samples))
    return min(score, max(0.0, mean - radius)), max(score, min(most, mean + radius))


def bleu_signature(config: EvaluationConfig, target_langs: Sequence[str], is_mean: bool = True) -> str:
    """Return the signature of BLEU without interval; with `is_mean`, BLEU of several languages is their mean."""
    signatures = []
    for name in dict.fromkeys(bleu_tokenizer(config.bleu_tokenize, lang) for lang in target_langs):
        bleu = BLEU(tokenize=name)
        bleu.corpus_score(["a"], [["a"]])  # sets the number of references
        signatures.append(str(bleu.get_signature()))
    mean = "mean over languages, " if is_mean and len(target_langs) > 1 else ""
    return f"bleu: {mean}{', '.join(signatures)}"


def corpus_statistics(metric: Metric, hypotheses: Sequence[str], references: Sequence[str]) -> list[Any]:
    """Return the statistics of each sentence, a block at a time: sacreBLEU would hold the n-grams of all in memory."""
    return [
        statistics
        for first in range(0, len(hypotheses), _SENTENCES_AT_ONCE)
        for statistics in metric._extract_corpus_statistics(
            hypotheses[first : first + _SENTENCES_AT_ONCE], [references[first : first + _SENTENCES_AT_ONCE]]
        )
    ]


def random_seed() -> str:
    """Return sacreBLEU's seed, as its signatures name it."""
    return os.environ.get("SACREBLEU_SEED", "12345").lower()


def random_generator() -> np.random.Generator:
    seed = random_seed()
    return np.random.default_rng(None if seed == "none" else int(seed))


def resampled(metric: Metric, statistics: ArrayLike, samples: int) -> NDArray[Any]:
    """Return the scores of sacreBLEU's bootstrap samples, drawn one by one: all at once would fill the memory."""
    random, array = random_generator(), np.array(statistics, "float32")
    drawn = (array[random.choice(len(array), len(array))].sum(0) for _ in range(samples))
    return np.array([metric._compute_score_from_stats(total).score for total in drawn])


def score(hypotheses: Sequence[str], references: Sequence[str], config: EvaluationConfig, target_lang: str) -> Scores:
    """Score hypotheses against one reference each."""
    metrics = metrics_for(target_lang, bleu_tokenizer(config.bleu_tokenize, target_lang))
    bleu = metrics.pop("bleu")
    statistics = corpus_statistics(bleu, hypotheses, references)
    result = bleu._aggregate_and_compute(statistics)
    values: dict[str, Any] = {}
    signatures = {}
    if "bleu" in config.metrics:
        # A single sentence has no spread, nor has a single sample.
        if min(len(hypotheses), config.bootstrap_samples) > 1:
            bleu.n_bootstrap, bleu.seed = config.bootstrap_samples, random_seed()
            samples = resampled(bleu, statistics, config.bootstrap_samples)
            values["bleu_low"], values["bleu_high"] = interval(result.score, samples)
        values["bleu"], signatures["bleu"] = result.score, str(bleu.get_signature())
    for name, metric in metrics.items():
        if name in config.metrics:
            values[name] = metric._aggregate_and_compute(corpus_statistics(metric, hypotheses, references)).score
            signatures[name] = str(metric.get_signature())
    exact = sum(h == r for h, r in zip(hypotheses, references, strict=True))
    return Scores(
        **values,
        exact_match=100 * exact / len(hypotheses),
        length_ratio=result.sys_len / result.ref_len if result.ref_len else 0.0,
        signatures=signatures,
    )
