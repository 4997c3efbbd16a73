"""The verdict on a trained model in words: what its BLEU means, the reasons, and what to try next.

`BANDS` and `CHECKS` are all of its judgement; docs/quality.md has their sources in full. A limit without a published
number is this project's own.
"""

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import NamedTuple

from mt.config import Builtin
from mt.console import quoted
from mt.extras.reporting.run_data import RunData, TestSet

# A phrase of 2 to 40 characters that begins with a letter, four times in a row
_LOOP = re.compile(r"([^\W\d_].{1,39}?)\1{3}")


@dataclass(frozen=True)
class Facts:
    """The measurements that a verdict rests on; None where a run does not have them."""

    run: str  # its folder, quoted for a shell
    bleu: float  # mean over the directions that were trained, or over all if none was
    pairs: int | None
    is_small: bool  # True if the corpus is known to be small
    passes: int | None  # complete ones over the corpus
    longer: int  # max_steps of a longer training: at least twice the steps, with a small corpus about 20 passes
    lifted: str  # options that lift the limits which would end the training earlier
    gain: float | None  # of validation BLEU in the last quarter of the steps
    lost: float  # validation BLEU lost since the start of a training that started from another model
    ratio: float  # length of translations over that of references, in BLEU's tokens; of the worst direction
    copied: float  # % of translations
    looping: float  # % of translations
    wrong_language: float  # % of translations, mean over the directions for which it is known
    is_demo: bool


class Check(NamedTuple):
    """A reason for a score, the remedy, and the source of both."""

    holds: Callable[[Facts], bool]
    reason: str
    advice: str
    source: str


@dataclass(frozen=True)
class Verdict:
    """The meaning of a score in words, its reasons, and the next thing to try."""

    bleu: float
    words: str
    caveat: str
    reasons: list[Check]
    advice: str

    def lines(self) -> list[str]:
        """Return it for a terminal: at most three lines."""
        reasons = "; ".join(check.reason for check in self.reasons[:3])
        lines = [f"verdict: BLEU {self.bleu:.1f}: {self.words} ({self.caveat})", f"next: {self.advice}"]
        return [lines[0], f"reasons: {reasons}", lines[1]] if reasons else lines


# The words for BLEU below each number: Google Cloud, AutoML Translation, "Evaluating models"; Lavie 2010
# (understandable above 30, fluent above 50). The last words are this project's own.
BANDS = (
    (10, "of little use yet"),
    (20, "the gist is hard to get"),
    (30, "usable for the gist, with many errors of grammar"),
    (40, "understandable, often good"),
    (50, "good"),
    (60, "adequate and fluent for the most part"),
    (101, "so high only on formulaic text, or with test sentences in the training text (mt data check)"),
)
_LONGER = "train longer, from where it ended: the same command with {lifted}--set training.max_steps={longer}"

# The first check that holds gives the advice.
CHECKS = (
    Check(
        lambda f: f.is_demo,
        "the built-in phrasebook is generated from templates",
        "your own text: mt init --help",
        "docs/demo.md",
    ),
    Check(
        lambda f: f.copied >= 5,
        "{copied:.0f} % of the translations repeat the source",
        "find untranslated pairs with mt data check, drop them with mt data clean",
        "Khayrallah and Koehn 2018",
    ),
    Check(
        lambda f: f.wrong_language >= 1,
        "{wrong_language:.0f} % of the translations are in another language than asked for",
        "train the pairs concerned, too (see the scores), or set model.target_tag: target",
        "Zhang et al. 2020",
    ),
    Check(
        lambda f: f.lost >= 0.1,
        "on the validation text the model it started from was better, by {lost:.1f} BLEU",
        "keep that model, or train from it with a lower training.learning_rate or on other text",
        "docs/lab/students.md",
    ),
    Check(
        lambda f: f.passes is not None and f.passes < 5 and f.is_small and f.bleu < 30,
        "complete passes over the text: {passes}, where small corpora take dozens",
        _LONGER,
        "docs/quality.md: Multi30k",
    ),
    Check(
        lambda f: (f.gain or 0) >= 1,
        "BLEU was still rising, by {gain:.1f} in the last quarter of the training",
        _LONGER,
        "docs/quality.md: two seeds differ by 0.7",
    ),
    Check(
        lambda f: f.looping >= 1,
        "{looping:.0f} % of the translations repeat a phrase again and again",
        "more text, without misaligned pairs: mt data check, mt data clean",
        "Raunak et al. 2021",
    ),
    Check(
        lambda f: (f.pairs or 30_000) < 30_000 and f.bleu < 20,
        "{pairs:,} training pairs are few; people get past 20 BLEU with about 30,000",
        "more pairs, or back-translation and fine-tuning (docs/recipes.md)",
        "Koehn and Knowles 2017; Sennrich and Zhang 2019",
    ),
    Check(
        lambda f: not 0.9 <= f.ratio <= 1.1,
        "the translations have {ratio:.0%} of the length of the references",
        "another length penalty: mt eval --model {run} --tune-length-penalty",
        "Papineni et al. 2002; Murray and Chiang 2018",
    ),
    Check(
        lambda f: f.gain is not None and f.gain < 1 and f.bleu < 30 and (f.passes or 0) >= 5,
        "BLEU had stopped rising",
        "more or cleaner text (mt data check), or another recipe (docs/recipes.md)",
        "Koehn and Knowles 2017",
    ),
)


def judge(data: RunData) -> Verdict | None:
    """Judge a finished run by the scores of its own test set; None without BLEU there, or if it was trained further."""
    tests = [test for test in data.best_tests if test.scores["bleu"] is not None]
    if not data.manifest or data.has_newer_steps or not tests:
        return None
    facts = _facts(data, tests)
    words = next(words for limit, words in BANDS if facts.bleu < limit)
    caveat = "a rule of thumb; BLEU on other texts does not compare"
    if facts.is_demo:
        words = "a demonstration, not a measure of quality"
        caveat = "a score on generated sentences says nothing about real text"
    values = asdict(facts)
    held = (check for check in CHECKS if check.holds(facts))
    reasons = [c._replace(reason=c.reason.format(**values), advice=c.advice.format(**values)) for c in held]
    read = "read the worst translations in the report: BLEU compares words, not meaning"
    return Verdict(facts.bleu, words, caveat, reasons, reasons[0].advice if reasons else read)


def _facts(data: RunData, tests: list[TestSet]) -> Facts:
    curve = [(e["step"], e["bleu"]) for e in data.of_kind("validation") if e.get("bleu") is not None]
    early, late = ([bleu for step, bleu in curve if (step > 0.75 * data.steps) == last] for last in (False, True))
    sources = data.config.data.test if isinstance(data.config.data.test, tuple) else data.config.data.train
    triples = [triple for t in tests for triple in zip(t.sources, t.references, t.hypotheses, strict=True)]
    copied = sum(bool(s.strip()) and s.strip() == h.strip() != r.strip() for s, r, h in triples)
    looping = sum(bool(_LOOP.search(f"{h} ")) and not _LOOP.search(f"{r} ") for _, r, h in triples)
    passes = max((event["epoch"] for event in data.events if "epoch" in event), default=None)
    passes = next((event["passes"] for event in data.of_kind("done")[-1:] if "passes" in event), passes)
    pairs = data.pairs.get("train")
    is_small = pairs is not None and pairs < 1_000_000
    trained = [test.scores["bleu"] for test in tests if not test.scores.get("zero_shot")]
    bleu = trained or [test.scores["bleu"] for test in tests]
    training = data.config.training
    limits = [key for key in ("minutes", "max_epochs") if getattr(training, key) is not None]
    sign, key = (1, "bleu") if training.best_metric == "bleu" else (-1, "loss")
    scores = [sign * e[key] for e in data.of_kind("validation") if e["step"] and e.get(key) is not None]
    if training.patience and scores and len(scores) - 1 - scores.index(max(scores)) >= training.patience:
        limits.append("patience")
    wrong = [test.scores["wrong_language"] for test in tests if "wrong_language" in test.scores]
    return Facts(
        run=quoted(str(data.run.root)),
        bleu=sum(bleu) / len(bleu),
        pairs=pairs,
        is_small=is_small,
        passes=passes,
        lifted="".join(f"--set training.{key}=null " for key in limits),
        longer=data.steps * max(2, 20 // ((passes or 0) + 1) if is_small else 2),
        gain=max(late) - max(early) if early and late else None,
        lost=dict(curve).get(0, 0.0) - max((bleu for step, bleu in curve if step), default=100.0),
        ratio=max((test.scores["length_ratio"] for test in tests), key=lambda ratio: abs(ratio - 1)),
        copied=100 * copied / max(len(triples), 1),
        looping=100 * looping / max(len(triples), 1),
        wrong_language=sum(wrong) / max(len(wrong), 1),
        is_demo=any(isinstance(source, Builtin) for source in sources),
    )
