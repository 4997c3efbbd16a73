"""Translation of evaluation texts, each with references in one direction, and their BLEU."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from mt.data.eval_texts import EvalText
from mt.decoding.candidates import best_of, lines_at_once
from mt.decoding.engine import SearchOptions
from mt.decoding.translator import Translator
from mt.metrics.pairwise import utility_for
from mt.metrics.scores import bleu_tokenizer, corpus_bleu


@dataclass(frozen=True)
class Translated:
    """A text with its translations, aligned, and the seconds they took."""

    text: EvalText
    hypotheses: list[str]
    seconds: float = 0.0


def translate_texts(
    translator: Translator, texts: Sequence[EvalText], options: SearchOptions, utility: str | None = None
) -> list[Translated]:
    """Translate each text in its direction.

    With a utility, chrf or bleu, choose among the n best by minimum Bayes risk; otherwise take the best.
    """
    results = []
    for text in texts:
        into = translator.for_text(text)
        started = time.perf_counter()
        hypotheses = (
            into.best(text.sources, options)
            if utility is None
            else _translate_mbr(into, text.sources, options, utility_for(utility, into.target_lang))
        )
        results.append(Translated(text, hypotheses, time.perf_counter() - started))
    return results


def _translate_mbr(translator: Translator, lines: Sequence[str], options: SearchOptions, utility: str) -> list[str]:
    chosen = []
    block_size = lines_at_once(len(lines), options.n_best)
    for start in range(0, len(lines), block_size):
        candidates = translator.translate(lines[start : start + block_size], options, None)
        chosen += [best_of(each, utility, 1, options.sampling is not None)[0].text for each in candidates]
    return chosen


def mean_bleu(translated: Sequence[Translated], tokenize: str) -> float:
    """Return BLEU without interval; of several directions the mean, since BLEU of a mixed corpus means nothing.

    sacreBLEU's tokenizer is `tokenize`, or each language's own with `auto`.
    """
    scores = bleu_by_direction(translated, tokenize).values()
    return sum(scores) / len(scores)


def bleu_by_direction(translated: Sequence[Translated], tokenize: str) -> dict[str, float]:
    """Return BLEU of each text, by its direction, as `mean_bleu` averages it."""
    return {
        each.text.direction: corpus_bleu(
            each.hypotheses, each.text.references, bleu_tokenizer(tokenize, each.text.target_lang)
        )
        for each in translated
    }
