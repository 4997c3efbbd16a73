"""Whether one system is better than another, or only luckier with this test set: sacreBLEU's two paired tests.

Bootstrap resampling (Koehn 2004) draws test sets from the test set; approximate randomisation (Riezler and Maxwell
2005) exchanges the two systems' sentences by chance. Both ask how often chance makes a difference as large as the real
one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest, Result

from mt.metrics.scores import ter_metric

LEVEL = 0.05
LOWER_IS_BETTER = {"ter"}


@dataclass(frozen=True)
class System:
    """What one system made of a test set."""

    name: str
    hypotheses: list[str]


@dataclass(frozen=True)
class Tested:
    """A system's score in one metric, and how likely chance alone makes its difference from the baseline.

    Attributes:
        score: of the whole test set.
        low, high: the 95 % interval of bootstrap resampling.
        difference: to the baseline's score; None for the baseline itself, as are the two p-values.
        p_bootstrap, p_randomisation: of the two tests, as sacreBLEU computes them.
    """

    name: str
    score: float
    low: float
    high: float
    difference: float | None = None
    p_bootstrap: float | None = None
    p_randomisation: float | None = None


@dataclass(frozen=True)
class MetricTests:
    """All systems in one metric, the baseline first.

    Attributes:
        metric: bleu, chrf or ter.
        bootstrap_signature, randomisation_signature: sacreBLEU's, with samples and seed.
    """

    metric: str
    bootstrap_signature: str
    randomisation_signature: str
    systems: list[Tested]

    def verdict(self, system: Tested) -> str:
        """What may be said of a system against the baseline: better, worse, unclear, same or undecided.

        unclear: chance may explain the difference. undecided: one test says so and the other does not.
        """
        if not system.difference:
            return "same"
        assert system.p_bootstrap is not None
        assert system.p_randomisation is not None
        below = [p < LEVEL for p in (system.p_bootstrap, system.p_randomisation)]
        if not any(below):
            return "unclear"
        if not all(below):
            return "undecided"
        return "better" if (system.difference > 0) != (self.metric in LOWER_IS_BETTER) else "worse"


def paired_tests(
    systems: Sequence[System],
    references: Sequence[str],
    metrics: Sequence[str],
    tokenize: str,
    samples: int = 1000,
    trials: int = 10_000,
    target_lang: str = "en",
) -> list[MetricTests]:
    """Tests every system against the first.

    The seed is sacreBLEU's own, 12345 unless the environment has another in SACREBLEU_SEED; signatures name it.

    Args:
        systems: what to compare, the baseline first.
        references: one a sentence.
        metrics: of bleu, chrf and ter.
        tokenize: BLEU's tokenizer.
        samples: of bootstrap resampling.
        trials: of approximate randomisation.
        target_lang: says what TER counts; in some languages there is none.
    """
    tests = []
    for metric in metrics:
        scorer = _metric(metric, tokenize, target_lang)
        if scorer is None:
            continue
        first, bootstrap = _test(systems, references, scorer, "bs", samples)
        second, randomisation = _test(systems, references, scorer, "ar", trials)
        differing = [_differing(systems[0], system, references, scorer) for system in systems]
        tests.append(MetricTests(metric, first, second, _joined(systems, bootstrap, randomisation, differing)))
    return tests


def _metric(name: str, tokenize: str, target_lang: str) -> Metric | None:
    return BLEU(tokenize=tokenize) if name == "bleu" else CHRF() if name == "chrf" else ter_metric(target_lang)


def _test(
    systems: Sequence[System], references: Sequence[str], metric: Metric, kind: str, number: int
) -> tuple[str, list[Result]]:
    """The signature of one test in one metric, and what it found of each system."""
    named: list[tuple[str, Sequence[str]]] = [(system.name, system.hypotheses) for system in systems]
    signatures, scores = PairedTest(named, {"": metric}, [references], kind, number)()
    (name,) = signatures
    return str(signatures[name]), [result for result in scores[name] if isinstance(result, Result)]


def _differing(one: System, other: System, references: Sequence[str], metric: Metric) -> int:
    """The number of sentences in which a metric sees two systems differ; chrF sees no spaces, for one."""
    triples = zip(one.hypotheses, other.hypotheses, references, strict=True)
    unequal = [triple for triple in triples if triple[0] != triple[1]]
    if not unequal:
        return 0
    first, second, own_references = (list(column) for column in zip(*unequal, strict=True))
    # Not public, but what both of sacreBLEU's tests resample.
    statistics = [metric._extract_corpus_statistics(texts, [own_references]) for texts in (first, second)]
    return sum(a != b for a, b in zip(*statistics, strict=True))


def _joined(
    systems: Sequence[System], bootstrap: Sequence[Result], randomisation: Sequence[Result], differing: Sequence[int]
) -> list[Tested]:
    joined = []
    for number, (system, first, second) in enumerate(zip(systems, bootstrap, randomisation, strict=True)):
        assert first.mean is not None
        assert first.ci is not None
        low, high = float(first.mean - first.ci), float(first.mean + first.ci)
        tested = Tested(system.name, first.score, low, high)
        if number:
            difference = first.score - bootstrap[0].score
            p_values = _p_values(difference, differing[number], first, second)
            tested = Tested(system.name, first.score, low, high, difference, *p_values)
        joined.append(tested)
    return joined


def _p_values(difference: float, differing: int, bootstrap: Result, randomisation: Result) -> tuple[float, float]:
    """The p-values of both tests, where sacreBLEU's would mislead corrected upwards.

    sacreBLEU counts the trials with a larger difference than the real one, and leaves out those with the same. So a
    system against itself would get the smallest p there is, and so would one that differs in a single sentence.
    Of k sentences that differ for the metric, 2^(1 - k) of all exchanges move all or none, which leaves the difference
    as it is: no smaller p is possible.
    """
    if difference == 0:
        return 1.0, 1.0
    assert bootstrap.p_value is not None
    assert randomisation.p_value is not None
    return bootstrap.p_value, max(randomisation.p_value, 2.0 ** (1 - differing))
