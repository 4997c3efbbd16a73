"""Texts together with what a model made of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from mt.data.eval_texts import EvalText
from mt.decoding.engine import SearchOptions
from mt.decoding.translator import Translator
from mt.metrics.scores import bleu_tokenizer, corpus_bleu


@dataclass(frozen=True)
class Translated:
    """A text and its translations, aligned."""

    text: EvalText
    hypotheses: list[str]


def translate_texts(translator: Translator, texts: Sequence[EvalText], options: SearchOptions) -> list[Translated]:
    """Translates each text into its language."""
    return [Translated(text, translator.to(text.target_lang).best(text.sources, options)) for text in texts]


def mean_bleu(translated: Sequence[Translated], tokenize: str) -> float:
    """BLEU without interval; of several languages the mean, for a BLEU of all together would be of none.

    Args:
        translated: what to score.
        tokenize: sacreBLEU's tokenizer, or `auto` for each language's.
    """
    each = [
        corpus_bleu(one.hypotheses, one.text.references, bleu_tokenizer(tokenize, one.text.target_lang))
        for one in translated
    ]
    return sum(each) / len(each)
