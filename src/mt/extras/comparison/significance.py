"""Significance of differences between systems: sacreBLEU's two paired tests.

Bootstrap resampling (Koehn 2004) draws test sets from the test set; approximate randomisation (Riezler and Maxwell
2005) swaps the two systems' sentences at random. Both estimate how often chance makes a difference as large as the
observed one.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from sacrebleu.metrics.base import Metric

from mt.data.ragged import Array
from mt.metrics.scores import corpus_statistics, interval, random_generator, random_seed, resampled

LEVEL = 0.05
_TRIALS_AT_ONCE = 32  # with a multiple of 32, numpy draws the same bits as for all trials at once


@dataclass(frozen=True)
class System:
    """A system's translations of a test set."""

    name: str
    hypotheses: list[str]


@dataclass(frozen=True)
class SystemScore:
    """A system's score in one metric and the significance of its difference from the baseline."""

    name: str
    score: float  # of the whole test set
    low: float  # of the 95 % interval of bootstrap resampling
    high: float
    difference: float | None = None  # None for the baseline itself, like the two p-values and the verdict
    p_bootstrap: float | None = None
    p_randomisation: float | None = None
    verdict: str | None = None  # of `_verdict`


@dataclass(frozen=True)
class MetricTests:
    """All systems in one metric, the baseline first."""

    metric: str  # bleu, chrf or ter
    bootstrap_signature: str  # sacreBLEU's, with samples and seed
    randomisation_signature: str
    systems: list[SystemScore]


def paired_tests(
    systems: Sequence[System], references: Sequence[str], metrics: Mapping[str, Metric], samples: int, trials: int
) -> list[MetricTests]:
    """Test every system against the first in each metric.

    Numbers are sacreBLEU's, except for the p of equal systems, which is 1, and the least p of randomisation. So is the
    seed: 12345 unless SACREBLEU_SEED is set; signatures name it.

    Args:
        systems, references: the translations, the baseline's first, and a reference for each sentence.
        metrics: by name: bleu, chrf and ter, or some of them.
        samples, trials: numbers of bootstrap samples and of trials of approximate randomisation.
    """
    tests = []
    for name, metric in metrics.items():
        highest, rows = math.inf if name == "ter" else 100.0, list[SystemScore]()
        # sacreBLEU's own tests would hold the statistics of all samples at once.
        statistics = [np.array(corpus_statistics(metric, system.hypotheses, references)) for system in systems]
        scores = [_score(metric, stats.sum(0)) for stats in statistics]
        drawn = [resampled(metric, stats, samples) for stats in statistics]
        for system, score, stats, sampled in zip(systems, scores, statistics, drawn, strict=True):
            row = SystemScore(system.name, score, *interval(score, sampled, highest))
            if rows:
                difference = score - scores[0]
                first = _bootstrap_p(sampled - drawn[0], abs(difference)) if difference else 1.0
                second = _randomisation_p(metric, statistics[0], stats, abs(difference), trials) if difference else 1.0
                verdict = _verdict(name, difference, (first, second))
                row = replace(row, difference=difference, p_bootstrap=first, p_randomisation=second, verdict=verdict)
            rows.append(row)
        tests.append(MetricTests(name, _signature(metric, "bs", samples), _signature(metric, "ar", trials), rows))
    return tests


def _verdict(metric: str, difference: float, p_values: tuple[float, float]) -> str:
    """Return a system's relation to the baseline: better, worse, same, unclear (chance may explain the difference)
    or undecided (the two tests disagree).
    """
    significant = [p < LEVEL for p in p_values]
    if not difference:
        return "same"
    if not all(significant):
        return "undecided" if any(significant) else "unclear"
    return "better" if (difference > 0) != (metric == "ter") else "worse"


def _score(metric: Metric, statistics: Array) -> float:
    return float(metric._compute_score_from_stats(statistics.tolist()).score)


def _signature(metric: Metric, kind: str, number: int) -> str:
    signature = metric.get_signature()
    signature.update("seed", random_seed())
    signature.update(kind, number)
    return str(signature)


def _bootstrap_p(differences: Array, observed: float) -> float:
    sizes = np.abs(differences)
    return _p_value(sizes - sizes.mean(), observed)


def _randomisation_p(metric: Metric, baseline: Array, system: Array, observed: float, trials: int) -> float:
    """Return the p-value, corrected upwards where sacreBLEU's would mislead.

    sacreBLEU counts the trials with a larger difference than the observed one, without those of an equal difference. So
    a system that differs in a single sentence would get the smallest possible p. Of k sentences that differ for the
    metric (chrF, for one, ignores spaces), 2^(1 - k) of all swaps move all or none, which leaves the absolute
    difference unchanged: no smaller p is possible.
    """
    random, differences = random_generator(), list[float]()
    total, baseline_total = system.sum(0), baseline.sum(0)
    for first in range(0, trials, _TRIALS_AT_ONCE):
        swapped = random.integers(2, size=(min(_TRIALS_AT_ONCE, trials - first), len(system)), dtype=bool)
        for change in swapped @ (baseline - system):
            one, other = _score(metric, total + change), _score(metric, baseline_total - change)
            differences.append(abs(one - other))
    n_differing = int((baseline != system).any(axis=1).sum())
    return max(_p_value(np.array(differences), observed), 2.0 ** (1 - n_differing))


def _p_value(differences: Array, observed: float) -> float:
    return (int((differences > observed).sum()) + 1) / (len(differences) + 1)
