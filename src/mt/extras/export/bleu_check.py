"""Comparison of BLEU on a validation set before and after an export."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mt.config import Config
from mt.console import table
from mt.data.eval_texts import EvalText
from mt.decoding.engine import SearchOptions
from mt.decoding.text_translation import Translated, mean_bleu, translate_texts
from mt.decoding.translator import Translator
from mt.errors import InputError
from mt.metrics.scores import bleu_signature


@dataclass(frozen=True)
class BleuCheck:
    """A bound on the BLEU that an export may lose."""

    translator: Translator  # the model, in float32
    texts: Sequence[EvalText]  # the validation set
    config: Config  # it defines how BLEU is computed
    max_loss: float  # the bound, in BLEU points

    def compare(self, name: str, search: SearchOptions, translate: Callable[[EvalText], list[str]]) -> str:
        """Compare an export's translations with the model's under the same search options, and return a table.

        Raises:
            InputError: the export loses more than `max_loss`.
        """
        exact = translate_texts(self.translator, self.texts, search)
        exported = [Translated(text, translate(text)) for text in self.texts]
        before, after = (mean_bleu(each, self.config.evaluation.bleu_tokenize) for each in (exact, exported))
        if before - after > self.max_loss:
            raise InputError(
                f"{name} loses {before - after:.2f} BLEU on the validation set ({before:.2f} to {after:.2f}), more "
                f"than the {self.max_loss:g} of --max-loss",
                "export another number format with --quantization, or allow more",
            )
        ours, theirs = ([line for text in each for line in text.hypotheses] for each in (exact, exported))
        same = sum(one == other for one, other in zip(ours, theirs, strict=True))
        rows = [
            ["model, float32", f"{before:.2f}", "", ""],
            [name, f"{after:.2f}", f"{after - before:+.2f}", f"{same:,}"],
        ]
        signature = bleu_signature(self.config.evaluation, [text.target_lang for text in self.texts])
        return "\n".join([table(["", "BLEU", "difference", f"same of {len(ours):,}"], rows), signature])
