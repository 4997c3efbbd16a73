"""Scores, all of them sacreBLEU's, on raw detokenised text, with their signatures."""

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from mt.config import EvaluationConfig
from mt.errors import InputError
from mt.text.languages import is_spaced, written_as


@dataclass(frozen=True)
class Scores:
    """The scores of one set of hypotheses; None where a metric was not asked for.

    Attributes:
        bleu: 0 to 100, with the 95 % confidence interval (bleu_low, bleu_high) of bootstrap resampling.
        chrf: 0 to 100; higher is better.
        ter: edits per reference word in percent; lower is better.
        exact_match: hypotheses equal to their reference, in percent.
        length_ratio: hypothesis over reference length, in BLEU's tokens.
        signatures: sacreBLEU's, one a metric: what a reader needs to reproduce the number.
    """

    bleu: float | None
    bleu_low: float | None
    bleu_high: float | None
    chrf: float | None
    ter: float | None
    exact_match: float
    length_ratio: float
    signatures: dict[str, str]


def bleu_tokenizer(choice: str, target_lang: str) -> str:
    """The sacreBLEU tokenizer: as configured, or by language where `auto`.

    That is 13a but for languages without spaces, and for Korean, whose spaces are not everybody's.
    """
    if choice != "auto":
        return choice
    language = written_as(target_lang)
    return "zh" if language == "zh" else "char" if language == "ko" or not is_spaced(language) else "13a"


def ter_metric(target_lang: str) -> TER | None:
    """TER, which counts edits of words: of characters in Chinese and Japanese; None where it would count sentences."""
    if written_as(target_lang) in ("zh", "ja"):
        return TER(normalized=True, asian_support=True)
    return TER() if is_spaced(target_lang) else None


def refuse_missing_tokenizer(*names: str) -> None:
    """Looks whether sacreBLEU has what its tokenizers need, before anything is translated to be scored with them.

    Raises:
        InputError: a package or a download is missing.
    """
    for name in names:
        try:
            BLEU(tokenize=name)
        except (ImportError, RuntimeError, OSError) as error:
            package = {"ja-mecab": "sacrebleu[ja]", "ko-mecab": "sacrebleu[ko]"}.get(name)
            raise InputError(
                f"evaluation.bleu_tokenize: {name} cannot be used here: {' '.join(str(error).split())[:200]}",
                f"pip install '{package}', or set auto" if package else "it needs a download once, or set auto",
            ) from None


def corpus_bleu(hypotheses: Sequence[str], references: Sequence[str], tokenize: str) -> float:
    """BLEU without interval, for validation."""
    bleu = BLEU(tokenize=tokenize)
    try:
        return float(bleu.corpus_score(hypotheses, [references]).score)
    finally:
        _forget_lines(bleu.tokenizer)


def bleu_signature(config: EvaluationConfig, target_langs: Sequence[str]) -> str:
    """What a reader needs to reproduce a BLEU without interval, as of validation; of several languages it is a mean."""
    signatures = []
    for name in dict.fromkeys(bleu_tokenizer(config.bleu_tokenize, lang) for lang in target_langs):
        bleu = BLEU(tokenize=name)
        bleu.corpus_score(["a"], [["a"]])  # only then does it know how many references there are
        signatures.append(str(bleu.get_signature()))
    mean = "mean over languages, " if len(target_langs) > 1 else ""
    return f"bleu: {mean}{', '.join(signatures)}"


def _forget_lines(tokenizer: object) -> None:
    """Empties the caches of tokenized lines, which sacreBLEU keeps for each class and a training's validations fill."""
    for one in (tokenizer, getattr(tokenizer, "_post_tokenizer", None)):
        if forget := getattr(type(one).__call__, "cache_clear", None):
            forget()


def score(hypotheses: Sequence[str], references: Sequence[str], config: EvaluationConfig, target_lang: str) -> Scores:
    """Scores hypotheses against one reference each."""
    signatures = {}
    bleu = BLEU(tokenize=bleu_tokenizer(config.bleu_tokenize, target_lang))
    samples = config.bootstrap_samples if "bleu" in config.metrics and len(hypotheses) > 1 else 0
    samples = samples if samples > 1 else 0  # one resampling has no spread
    result = bleu.corpus_score(hypotheses, [references], n_bootstrap=samples or 1)
    low, high = (result._mean - result._ci, result._mean + result._ci) if samples else (None, None)
    chrf, ter = CHRF(), ter_metric(target_lang)
    if "bleu" in config.metrics:
        signatures["bleu"] = str(bleu.get_signature())
    chrf_score = ter_score = None
    if "chrf" in config.metrics:
        chrf_score = chrf.corpus_score(hypotheses, [references]).score
        signatures["chrf"] = str(chrf.get_signature())
    if "ter" in config.metrics and ter is not None:
        ter_score = ter.corpus_score(hypotheses, [references]).score
        signatures["ter"] = str(ter.get_signature())
    exact = sum(h == r for h, r in zip(hypotheses, references, strict=True))
    return Scores(
        bleu=result.score if "bleu" in config.metrics else None,
        bleu_low=low,
        bleu_high=high,
        chrf=chrf_score,
        ter=ter_score,
        exact_match=100 * exact / len(hypotheses),
        length_ratio=result.sys_len / result.ref_len if result.ref_len else 0.0,
        signatures=signatures,
    )
