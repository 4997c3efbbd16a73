"""Comparison of an export with the model: of logits or log-probabilities, and of BLEU on a validation set.

B sentences   S, T source and target positions   V target vocabulary
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from mt.bundle.load_translator import open_model
from mt.console import table
from mt.data.eval_texts import EvalText
from mt.data.tokenizer import SOS_ID, SPECIALS
from mt.data.tokenizer_kinds import TextTokenizer
from mt.decoding.engine import EngineChoice, SearchOptions
from mt.decoding.search import pad_sources
from mt.decoding.text_translation import Translated, mean_bleu, translate_texts
from mt.decoding.translator import Translator
from mt.errors import InputError, MtError
from mt.extras.export.common import ExportJob
from mt.metrics.scores import bleu_signature
from mt.storage.run_dir import ModelDir
from mt.text.preprocessing import NO_PREPROCESSING

TOLERANCE = 1e-4
_SENTENCES = 3
_MAX_TEXTS = 2000
_ODD_TEXTS = ("", "  two  spaces ", "a </s> that is text, and <0x41>", "1,234.50 €", "e\u0301 ☃ 日本")


def random_batch(job: ExportJob) -> tuple[Tensor, Tensor]:
    """Return random sources (B, S) of different lengths in the model's format, and targets (B, T), SOS included."""
    longest = min(30, job.config.data.max_length)
    generator = torch.Generator().manual_seed(0)

    def tokens(count: int, vocab_size: int) -> Tensor:
        return torch.randint(len(SPECIALS), vocab_size, (count,), generator=generator)

    lengths = longest, 3, max(3, longest // 2)
    inner = [tokens(length - 2, job.tokenizers.source.vocab_size).tolist() for length in lengths]
    sources = pad_sources(inner, torch.device("cpu"), job.model.source_format)
    targets = tokens(_SENTENCES * longest, job.tokenizers.target.vocab_size).view(_SENTENCES, longest)
    targets[:, 0] = SOS_ID
    return sources, targets


def require_equal(software: str, actual: Tensor, expected: Tensor, quantity: str = "logits") -> str:
    """Compare what the other software computed with the model, and return a line for the user.

    Raises:
        MtError: they differ by more than TOLERANCE.
    """
    if actual.shape != expected.shape:
        difference = "in shape"
    else:
        largest = (actual - expected).abs().max()
        if torch.allclose(actual, expected, rtol=TOLERANCE, atol=TOLERANCE):
            return f"{software} agrees with the model: {quantity} differ by at most {largest:.1e}"
        difference = f"by {largest:.2g}"
    raise MtError(f"{software} does not agree with the model: {quantity} differ {difference}", "please report it")


def sample_texts(tokenizer: TextTokenizer, sentences: Sequence[str]) -> list[str]:
    """Return text to compare tokenizers with: sentences, odd characters, and every piece of the vocabulary."""
    all_pieces = tokenizer.decode(range(len(SPECIALS), tokenizer.vocab_size))
    return [*sentences[:_MAX_TEXTS], *_ODD_TEXTS, all_pieces]


def reference_translator(folder: ModelDir) -> Translator:
    """Open a model in float32, without shortlist and preprocessing, which exports lack."""
    exact = open_model(folder, EngineChoice(device="cpu", compute_type="float32", shortlist=False)).translator
    return replace(exact, preprocessing=NO_PREPROCESSING)


def compare_bleu(job: ExportJob, name: str, search: SearchOptions, translate: Callable[[EvalText], list[str]]) -> str:
    """Compare an export's translations with the model's under the same search options, and return a table.

    Raises:
        InputError: the export loses more than `job.max_loss`.
    """
    exact = translate_texts(reference_translator(job.folder), job.texts, search)
    exported = [Translated(text, translate(text)) for text in job.texts]
    evaluation = job.config.evaluation
    before, after = (mean_bleu(each, evaluation.bleu_tokenize) for each in (exact, exported))
    if before - after > job.max_loss:
        raise InputError(
            f"{name} loses {before - after:.2f} BLEU on the validation set ({before:.2f} to {after:.2f}), more "
            f"than the {job.max_loss:g} of --max-loss",
            "export another number format with --quantization, or allow more",
        )
    ours, theirs = ([line for text in each for line in text.hypotheses] for each in (exact, exported))
    same = sum(one == other for one, other in zip(ours, theirs, strict=True))
    rows = [
        ["model, float32", f"{before:.2f}", "", ""],
        [name, f"{after:.2f}", f"{after - before:+.2f}", f"{same:,}"],
    ]
    signature = bleu_signature(evaluation, [text.target_lang for text in job.texts])
    return "\n".join([table(["", "BLEU", "difference", f"same of {len(ours):,}"], rows), signature])
