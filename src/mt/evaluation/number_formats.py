"""BLEU and speed of a model folder's number formats, with and without shortlist."""

from collections.abc import Sequence
from dataclasses import dataclass

from mt.bundle.load_translator import open_converted
from mt.config import Config
from mt.console import table
from mt.data.eval_texts import EvalText
from mt.data.tokenizer_kinds import TokenizerPair
from mt.decoding.engine import EngineChoice
from mt.decoding.settings import TranslationSettings
from mt.decoding.text_translation import mean_bleu, translate_texts
from mt.storage.run_dir import ModelDir
from mt.system.cpus import cpu_cores


@dataclass(frozen=True)
class FormatResult:
    """BLEU on the validation set with the configured beam, and speed on these cores of this machine."""

    compute_type: str
    shortlist: bool
    valid_bleu: float
    sentences_per_second: float
    cores: int


def try_formats(
    folder: ModelDir, config: Config, tokenizers: TokenizerPair, texts: Sequence[EvalText]
) -> list[FormatResult]:
    """Translate and score the validation set in each format of the folder.

    Raises:
        UnusableError: CTranslate2 cannot run the model here.
    """
    settings = TranslationSettings.of(config)
    n_sentences = sum(len(text.sources) for text in texts)
    results = []
    for compute_type in ("float32", "int8"):
        for shortlist in (False, True) if settings.shortlist else (False,):
            choice = EngineChoice(compute_type=compute_type, shortlist=shortlist)
            translator = open_converted(folder, settings, tokenizers, choice).translator
            translated = translate_texts(translator, texts, settings.search)
            bleu = round(mean_bleu(translated, config.evaluation.bleu_tokenize), 2)
            speed = round(n_sentences / sum(result.seconds for result in translated), 1)
            results.append(FormatResult(compute_type, shortlist, bleu, speed, cpu_cores()))
    return results


def formats_table(results: Sequence[FormatResult], signature: str) -> str:
    """Format results as a table with differences to the first, float32, and BLEU's signature.

    The table names the cores: torchrun sets OMP_NUM_THREADS to 1.
    """
    rows = [
        [
            result.compute_type + (" with shortlist" if result.shortlist else ""),
            f"{result.valid_bleu:.2f}",
            f"{result.valid_bleu - results[0].valid_bleu:+.2f}",
            f"{result.sentences_per_second:,.0f}",
        ]
        for result in results
    ]
    speed = f"sentences/s, {results[0].cores} {'core' if results[0].cores == 1 else 'cores'}"
    return "\n".join([table(["CTranslate2", "valid BLEU", "difference", speed], rows), signature])
