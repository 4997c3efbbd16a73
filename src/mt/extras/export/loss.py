"""What an export costs: BLEU on a validation set, as the model translates it and as what was exported does."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mt.config import Config
from mt.console import table
from mt.data.eval_texts import EvalText
from mt.decoding.engine import SearchOptions
from mt.decoding.translated import Translated, mean_bleu, translate_texts
from mt.decoding.translator import Translator
from mt.errors import InputError
from mt.metrics.scores import bleu_signature


@dataclass(frozen=True)
class Yardstick:
    """What exports are measured by.

    Attributes:
        translator: the model, in float32.
        texts: the validation set.
        config: says how BLEU is computed.
        max_loss: the most BLEU that an export may lose.
    """

    translator: Translator
    texts: Sequence[EvalText]
    config: Config
    max_loss: float

    def measure(self, name: str, search: SearchOptions, translate: Callable[[EvalText], list[str]]) -> str:
        """Compares what was exported with the model.

        Args:
            name: what to call the export.
            search: how it searches; the model shall, too.
            translate: a text's translations by what was exported.

        Returns:
            a table to show.

        Raises:
            InputError: it loses more than it may.
        """
        exact = translate_texts(self.translator, self.texts, search)
        exported = [Translated(text, translate(text)) for text in self.texts]
        before, after = (mean_bleu(each, self.config.evaluation.bleu_tokenize) for each in (exact, exported))
        one, other = ([found for text in each for found in text.hypotheses] for each in (exact, exported))
        loss = before - after
        if loss > self.max_loss:
            raise InputError(
                f"{name} loses {loss:.2f} BLEU on the validation set ({before:.2f} to {after:.2f}), more than the "
                f"{self.max_loss:g} of --max-loss",
                "export another number format with --quantization, or allow more",
            )
        same = sum(ours == theirs for ours, theirs in zip(one, other, strict=True))
        rows = [
            ["model, float32", f"{before:.2f}", "", ""],
            [name, f"{after:.2f}", f"{after - before:+.2f}", f"{same:,}"],
        ]
        signature = bleu_signature(self.config.evaluation, [text.target_lang for text in self.texts])
        return "\n".join([table(["", "BLEU", "difference", f"same of {len(one):,}"], rows), signature])
