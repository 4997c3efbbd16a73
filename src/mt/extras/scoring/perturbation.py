"""Scores on a test set as users might write it: in capitals, with typos, or with a URL to copy."""

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from mt.console import log, or_dash, table
from mt.data import augmentation
from mt.data.augmentation import Pair
from mt.data.eval_texts import EvalText
from mt.data.mixture import direction
from mt.decoding.engine import SearchOptions
from mt.decoding.text_translation import mean_bleu, translate_texts
from mt.decoding.translator import Translator
from mt.metrics.scores import rounded

CLEAN = "clean"
TYPO_SHARE = 0.05  # of the words

# A perturbation changes a pair and returns the span to be copied, if any.
_Perturbation = Callable[[Pair, random.Random, Pair], tuple[Pair, str]]


def _augmented(kind: str, pair: Pair, rng: random.Random, languages: Pair) -> tuple[Pair, str]:
    return augmentation.augment(kind, pair, pair, rng, languages), ""


def _with_span(kind: str, pair: Pair, rng: random.Random, languages: Pair) -> tuple[Pair, str]:
    span = augmentation.draw_span(rng, kind)
    return augmentation.insert(pair, span, rng, languages), span


PERTURBATIONS: dict[str, _Perturbation] = {
    CLEAN: lambda pair, rng, languages: (pair, ""),
    "upper case": partial(_augmented, "upper_case"),
    "title case": partial(_augmented, "title_case"),
    "lower case": partial(_augmented, "lower_case"),
    "typos": lambda pair, rng, languages: ((augmentation.add_typos(pair[0], rng, TYPO_SHARE), pair[1]), ""),
    "no final mark": lambda pair, rng, languages: (augmentation.without_final_punctuation(pair), ""),
    "doubled mark": lambda pair, rng, languages: ((augmentation.doubled_punctuation(pair[0], rng), pair[1]), ""),
    **{f"with {kind}": partial(_with_span, kind) for kind in augmentation.SPAN_KINDS},
}


@dataclass(frozen=True)
class PerturbationResult:
    """BLEU under a perturbation.

    Attributes:
        perturbation: of PERTURBATIONS.
        source_lang: empty where the model has one source language.
        target_lang: language of the translations.
        bleu: against references that were changed in the same way.
        share_of_clean: percent of the BLEU of the unchanged text; None where that is 0.
        copied: percent of the inserted spans that occur unchanged in the translations; None without any.
    """

    perturbation: str
    source_lang: str
    target_lang: str
    bleu: float
    share_of_clean: float | None
    copied: float | None

    @property
    def direction(self) -> str:
        return direction(self.source_lang, self.target_lang)


def perturbed(text: EvalText, name: str, source_lang: str) -> tuple[EvalText, list[str]]:
    """Return a text under a perturbation, a pure function of the arguments, and the span in each sentence."""
    change, languages = PERTURBATIONS[name], (source_lang, text.target_lang)
    pairs = zip(text.sources, text.references, strict=True)
    changed = [change(pair, random.Random(f"1 {name} {row}"), languages) for row, pair in enumerate(pairs)]
    sources, references = [pair[0] for pair, _ in changed], [pair[1] for pair, _ in changed]
    return replace(text, sources=sources, references=references), [span for _, span in changed]


def evaluate_perturbed(
    translator: Translator, texts: Sequence[EvalText], options: SearchOptions, source_lang: str, tokenize: str
) -> list[PerturbationResult]:
    """Translate and score each text clean and under each perturbation.

    `source_lang` is the language of the sources, for their case, where the texts do not say it; `tokenize` is
    sacreBLEU's tokenizer, or auto.
    """
    results: list[PerturbationResult] = []
    for text in texts:
        clean = 0.0
        for name in PERTURBATIONS:
            log.info("translating %d sentences into %s, %s", len(text.sources), text.target_lang, name)
            changed, spans = perturbed(text, name, text.source_lang or source_lang)
            [translated] = translate_texts(translator, [changed], options)
            bleu = mean_bleu([translated], tokenize)
            clean = bleu if name == CLEAN else clean
            is_copied = [span in hyp for span, hyp in zip(spans, translated.hypotheses, strict=True) if span]
            copied = 100 * sum(is_copied) / len(is_copied) if is_copied else None
            share = 100 * bleu / clean if clean else None
            results.append(PerturbationResult(name, text.source_lang, text.target_lang, bleu, share, copied))
    return results


def perturbations_table(results: Sequence[PerturbationResult], signature: str) -> str:
    """Format results as a table, with BLEU's signature."""
    several = len({result.direction for result in results}) > 1
    header = [*(["language"] if several else []), "text", "BLEU", "% of clean", "copied %"]
    rows = [
        [*([r.direction] if several else []), r.perturbation, *map(or_dash, (r.bleu, r.share_of_clean, r.copied))]
        for r in results
    ]
    return "\n".join([table(header, rows), signature])


def perturbations_json(results: Sequence[PerturbationResult], signature: str) -> dict[str, Any]:
    rows = [{k: v for k, v in rounded(asdict(result)).items() if k != "source_lang" or v} for result in results]
    return {"perturbations": rows, "signature": signature}
