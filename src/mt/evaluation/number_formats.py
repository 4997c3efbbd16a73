"""Tries out a model folder's number formats on the validation set: what int8 and a shortlist cost and save."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mt.bundle.load_translator import open_converted
from mt.config import Config
from mt.console import table
from mt.data.eval_texts import EvalText
from mt.data.tokenizer import TokenizerPair
from mt.decoding.engine import EngineChoice
from mt.decoding.settings import TranslationSettings
from mt.decoding.translated import mean_bleu, translate_texts
from mt.storage.run_dir import ModelDir


@dataclass(frozen=True)
class FormatResult:
    """BLEU on the validation set with the configured beam, and speed on the machine that trained."""

    compute_type: str
    shortlist: bool
    valid_bleu: float
    sentences_per_second: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def try_formats(
    folder: ModelDir, config: Config, tokenizers: TokenizerPair, texts: Sequence[EvalText]
) -> list[FormatResult]:
    """Translates the validation set in each format that the folder holds.

    Raises:
        UnusableError: CTranslate2 cannot run it here.
    """
    settings = TranslationSettings.of(config)
    sentences = sum(len(text.sources) for text in texts)
    results = []
    for compute_type in ("float32", "int8"):
        for shortlist in (False, True) if settings.shortlist else (False,):
            choice = EngineChoice(compute_type=compute_type, shortlist=shortlist)
            opened = open_converted(folder, settings, tokenizers, choice)
            started = time.perf_counter()
            translated = translate_texts(opened.translator, texts, settings.search)
            seconds = time.perf_counter() - started
            bleu = mean_bleu(translated, config.evaluation.bleu_tokenize)
            results.append(FormatResult(compute_type, shortlist, round(bleu, 2), round(sentences / seconds, 1)))
    return results


def formats_table(results: Sequence[FormatResult], signature: str) -> str:
    """One row a format, then BLEU's signature; differences are to the first, which is exact."""
    rows = [
        [
            result.compute_type + (" with shortlist" if result.shortlist else ""),
            f"{result.valid_bleu:.2f}",
            f"{result.valid_bleu - results[0].valid_bleu:+.2f}",
            f"{result.sentences_per_second:,.0f}",
        ]
        for result in results
    ]
    return "\n".join([table(["CTranslate2", "valid BLEU", "difference", "sentences/s"], rows), signature])
