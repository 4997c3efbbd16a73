"""Which length penalty suits a model: beam search on the validation set with one after another."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mt.config import Config
from mt.console import progress, table
from mt.data.eval_texts import EvalText
from mt.decoding.translated import mean_bleu, translate_texts
from mt.decoding.translator import Translator
from mt.evaluation.test_set import search_options

PENALTIES = tuple(tenths / 10 for tenths in range(0, 31, 2))


@dataclass(frozen=True)
class PenaltyResult:
    """BLEU with a length penalty, and the characters of the translations as a share of the references'."""

    length_penalty: float
    bleu: float
    length_ratio: float


def try_length_penalties(
    translator: Translator,
    config: Config,
    texts: Sequence[EvalText],
    beam_size: int | None = None,
    penalties: Sequence[float] = PENALTIES,
) -> list[PenaltyResult]:
    """Translates a validation set with each length penalty.

    Args:
        translator: what is tuned.
        config: names the search settings and how to score.
        texts: what to translate; never a test set.
        beam_size: instead of the configured one.
        penalties: what to try.
    """
    results = []
    expected = sum(len(reference) for text in texts for reference in text.references)
    for text in texts:
        translator.to(text.target_lang).tell_of_long(text.sources, f"text to translate into {text.target_lang}")
    with progress(total=len(penalties), unit="penalty", desc="trying length penalties") as bar:
        for penalty in penalties:
            options = search_options(config, length_penalty=penalty, beam_size=beam_size)
            translated = translate_texts(translator, texts, options)
            found = sum(len(hypothesis) for one in translated for hypothesis in one.hypotheses)
            bleu = mean_bleu(translated, config.evaluation.bleu_tokenize)
            results.append(PenaltyResult(penalty, bleu, found / max(expected, 1)))
            bar.update()
    return results


def best_penalty(results: Sequence[PenaltyResult]) -> PenaltyResult:
    """The one with the highest BLEU; among equals the one nearest to 1."""
    return max(results, key=lambda result: (result.bleu, -abs(result.length_penalty - 1)))


def penalties_table(results: Sequence[PenaltyResult], signature: str) -> str:
    """One row a penalty, BLEU's signature, and what to write into a configuration."""
    best = best_penalty(results)
    rows = [
        [f"{r.length_penalty:g}", f"{r.bleu:.2f}", f"{r.length_ratio:.3f}", "best" if r is best else ""]
        for r in results
    ]
    header = ["length penalty", "valid BLEU", "length ratio", ""]
    advice = f"best: --length-penalty {best.length_penalty:g}, or decoding.length_penalty in the configuration"
    return "\n".join([table(header, rows), signature, advice])


def penalties_json(results: Sequence[PenaltyResult], signature: str) -> dict[str, Any]:
    """The same for programs."""
    tried = [asdict(result) for result in results]
    return {"tried": tried, "best": best_penalty(results).length_penalty, "signature": signature}
