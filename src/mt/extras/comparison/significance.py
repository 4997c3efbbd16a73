"""Significance of differences between systems: sacreBLEU's two paired tests.

Bootstrap resampling (Koehn 2004) draws test sets from the test set; approximate randomisation (Riezler and Maxwell
2005) swaps the two systems' sentences at random. Both estimate how often chance makes a difference as large as the
observed one.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest, Result

from mt.metrics.scores import interval

LEVEL = 0.05
LOWER_IS_BETTER = {"ter"}


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
    difference: float | None = None  # None for the baseline itself, as are the two p-values
    p_bootstrap: float | None = None
    p_randomisation: float | None = None


@dataclass(frozen=True)
class MetricTests:
    """All systems in one metric, the baseline first."""

    metric: str  # bleu, chrf or ter
    bootstrap_signature: str  # sacreBLEU's, with samples and seed
    randomisation_signature: str
    systems: list[SystemScore]

    def verdict(self, system: SystemScore) -> str:
        """Return a system's relation to the baseline: better, worse, same, unclear (chance may explain the difference)
        or undecided (the two tests disagree).
        """
        if not system.difference:
            return "same"
        significant = [p is not None and p < LEVEL for p in (system.p_bootstrap, system.p_randomisation)]
        if not all(significant):
            return "undecided" if any(significant) else "unclear"
        return "better" if (system.difference > 0) != (self.metric in LOWER_IS_BETTER) else "worse"


def paired_tests(
    systems: Sequence[System], references: Sequence[str], metrics: Mapping[str, Metric], samples: int, trials: int
) -> list[MetricTests]:
    """Test every system against the first in each metric.

    The seed is sacreBLEU's own, 12345 unless SACREBLEU_SEED is set; signatures name it.

    Args:
        systems, references: the translations, the baseline's first, and a reference for each sentence.
        metrics: bleu, chrf and ter, or some of them.
        samples, trials: of bootstrap resampling and of approximate randomisation.
    """
    tests = []
    for name, metric in metrics.items():
        bootstrap_signature, bootstrap = _test(systems, references, metric, "bs", samples)
        randomisation_signature, randomisation = _test(systems, references, metric, "ar", trials)
        most, scores = math.inf if name == "ter" else 100.0, list[SystemScore]()
        for system, first, second in zip(systems, bootstrap, randomisation, strict=True):
            mean, radius = float(cast(float, first.mean)), float(cast(float, first.ci))
            score = SystemScore(system.name, first.score, *interval(first.score, mean, radius, most))
            if scores:
                differing = _count_differing(systems[0], system, references, metric)
                difference = first.score - scores[0].score
                p_bootstrap, p_randomisation = _p_values(first, second, differing) if difference else (1.0, 1.0)
                score = replace(score, difference=difference, p_bootstrap=p_bootstrap, p_randomisation=p_randomisation)
            scores.append(score)
        tests.append(MetricTests(name, bootstrap_signature, randomisation_signature, scores))
    return tests


def _test(
    systems: Sequence[System], references: Sequence[str], metric: Metric, kind: str, number: int
) -> tuple[str, list[Result]]:
    """Return the signature of one test and its result for each system."""
    hypotheses: list[tuple[str, Sequence[str]]] = [(system.name, system.hypotheses) for system in systems]
    signatures, scores = PairedTest(hypotheses, {"": metric}, [references], kind, number)()
    (name,) = signatures
    return str(signatures[name]), [result for result in scores[name] if isinstance(result, Result)]


def _count_differing(one: System, other: System, references: Sequence[str], metric: Metric) -> int:
    """Count the sentences that differ for a metric; chrF, for one, ignores spaces."""
    triples = zip(one.hypotheses, other.hypotheses, references, strict=True)
    unequal = [triple for triple in triples if triple[0] != triple[1]]
    if not unequal:
        return 0
    first, second, own_references = (list(column) for column in zip(*unequal, strict=True))
    # Not public, but these statistics are resampled by both of sacreBLEU's tests.
    statistics = [metric._extract_corpus_statistics(texts, [own_references]) for texts in (first, second)]
    return sum(a != b for a, b in zip(*statistics, strict=True))


def _p_values(bootstrap: Result, randomisation: Result, differing: int) -> tuple[float, float]:
    """Return the p-values of both tests, corrected upwards where sacreBLEU's would mislead.

    sacreBLEU counts the trials with a larger difference than the observed one, without those of an equal difference. So
    a system against itself would get the smallest possible p, and so would one that differs in a single sentence. Of k
    sentences that differ for the metric, 2^(1 - k) of all swaps move all or none, which leaves the absolute difference
    unchanged: no smaller p is possible.
    """
    return cast(float, bootstrap.p_value), max(cast(float, randomisation.p_value), 2.0 ** (1 - differing))
