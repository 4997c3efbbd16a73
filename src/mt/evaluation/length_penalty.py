"""Choice of the length penalty: beam search on the validation set with each of several penalties."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from mt.config import Config
from mt.console import log, progress, table
from mt.data.eval_texts import EvalText
from mt.decoding.candidates import Candidate
from mt.decoding.text_translation import Translated, mean_bleu, translate_texts
from mt.decoding.translator import Translator
from mt.evaluation.test_set import search_options, warn_long_lines

PENALTIES = tuple(tenths / 10 for tenths in range(0, 31, 2))
_RANKED_SENTENCES = 2000
_MARGIN = 0.3  # BLEU


@dataclass(frozen=True)
class PenaltyResult:
    """BLEU with a length penalty, and the ratio of characters in translations and references."""

    length_penalty: float
    bleu: float
    length_ratio: float


def try_length_penalties(
    translator: Translator, config: Config, texts: Sequence[EvalText], beam_size: int | None = None
) -> list[PenaltyResult]:
    """Translate and score a validation set, never a test set, with each of `PENALTIES`.

    Other search settings are the configuration's, but for the beam size if one is given.
    """
    results = []
    warn_long_lines(translator, texts)
    with progress(total=len(PENALTIES), unit="penalty", desc="trying length penalties") as bar:
        for penalty in PENALTIES:
            options = search_options(config, length_penalty=penalty, beam_size=beam_size)
            results.append(_result(penalty, translate_texts(translator, texts, options), config))
            bar.update()
    return results


def rank_with_length_penalties(
    translator: Translator, config: Config, texts: Sequence[EvalText]
) -> list[PenaltyResult]:
    """Search once, and rerank the finished hypotheses with the configured length penalty and each of `PENALTIES`.

    That is nearly what a search with each would find, since the penalty hardly changes which hypotheses finish. Of a
    validation set of more than 2,000 sentences, evenly spaced ones are translated.
    """
    stride = max(1, -(-sum(len(text.sources) for text in texts) // _RANKED_SENTENCES))
    texts = [replace(text, sources=text.sources[::stride], references=text.references[::stride]) for text in texts]
    options = replace(search_options(config), n_best=config.decoding.beam_size)
    n_best_lists = [translator.for_text(text).translate(text.sources, options, None) for text in texts]
    results = []
    for penalty in sorted({*PENALTIES, config.decoding.length_penalty}):
        score = partial(_score, penalty=penalty)
        best = [[max(candidates, key=score).text for candidates in n_best] for n_best in n_best_lists]
        results.append(_result(penalty, list(map(Translated, texts, best)), config))
    return results


def _score(candidate: Candidate, penalty: float) -> float:
    # The search's score: the log-probability by the number of tokens, EOS counted, to the power of the penalty.
    return candidate.log_prob / math.pow(sum(len(part.target) for part in candidate.parts) + 1, penalty)


def _result(penalty: float, translated: Sequence[Translated], config: Config) -> PenaltyResult:
    n_reference = sum(len(reference) for result in translated for reference in result.text.references)
    n_hypothesis = sum(len(hypothesis) for result in translated for hypothesis in result.hypotheses)
    bleu = mean_bleu(translated, config.evaluation.bleu_tokenize)
    return PenaltyResult(penalty, bleu, n_hypothesis / max(n_reference, 1))


def best_penalty(results: Sequence[PenaltyResult]) -> PenaltyResult:
    """Return the result with the highest BLEU; ties go to the penalty nearest to 1."""
    return max(results, key=lambda result: (result.bleu, -abs(result.length_penalty - 1)))


def cautious_penalty(results: Sequence[PenaltyResult], configured: float) -> PenaltyResult:
    """Return the result nearest to the configured penalty among those within 0.3 BLEU of the best.

    Smaller differences do not carry over to other text, whose references may be shorter.
    """
    least_bleu = best_penalty(results).bleu - _MARGIN
    good = [result for result in results if result.bleu >= least_bleu]
    return min(good, key=lambda result: abs(result.length_penalty - configured))


def with_best_penalty(translator: Translator, config: Config, texts: Sequence[EvalText]) -> Config:
    """Return the configuration with the penalty that suits a model best, cautiously chosen on a validation set."""
    log.info("choosing the length penalty on the validation set")
    results, configured = rank_with_length_penalties(translator, config, texts), config.decoding.length_penalty
    best = cautious_penalty(results, configured)
    [before] = (result.bleu for result in results if result.length_penalty == configured)
    log.info("length penalty %g: BLEU %.2f; with %g it was %.2f", best.length_penalty, best.bleu, configured, before)
    decoding = config.decoding.model_copy(update={"length_penalty": best.length_penalty})
    return config.model_copy(update={"decoding": decoding})


def penalties_table(results: Sequence[PenaltyResult], signature: str) -> str:
    """Format results as a table, with BLEU's signature and advice."""
    best = best_penalty(results)
    rows = [
        [f"{r.length_penalty:g}", f"{r.bleu:.2f}", f"{r.length_ratio:.3f}", "best" if r is best else ""]
        for r in results
    ]
    advice = f"best: --length-penalty {best.length_penalty:g}, or decoding.length_penalty in the configuration"
    return "\n".join([table(["length penalty", "valid BLEU", "length ratio", ""], rows), signature, advice])


def penalties_json(results: Sequence[PenaltyResult], signature: str) -> dict[str, Any]:
    tried = [asdict(result) for result in results]
    return {"tried": tried, "best": best_penalty(results).length_penalty, "signature": signature}
