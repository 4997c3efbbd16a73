"""The `decoding` and `evaluation` sections of the configuration."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from mt.config.base import Rule, Section, without_repeats


class DecodingConfig(Section):
    """The search for translations."""

    beam_size: Annotated[int, Field(ge=1, le=1000)] = 5
    """Number of hypotheses that beam search follows."""
    length_penalty: Annotated[float, Field(ge=-10, le=10)] = 1.0
    """Exponent a in tokens^a, which divides the log-probability; higher makes longer text."""
    tune_length_penalty: bool = False
    """Whether length_penalty is tuned on the validation set when training ends; the model keeps the result."""
    min_length: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Shortest translation, in tokens."""
    max_length: Annotated[int | None, Field(ge=1, le=100_000)] = None
    """Longest translation, in tokens; null: 256, or data.max_length where that is more."""
    max_length_ratio: Annotated[float, Field(gt=0, le=1000)] = 3.0
    """Longest translation as a multiple of the source's tokens, plus ten; the smaller bound holds."""
    no_repeat_ngram_size: Annotated[int, Field(ge=0, le=1000)] = 0
    """Length, in tokens, of the n-grams that may not occur twice in a translation; 0: no such limit."""
    retry_loops: bool = True
    """Whether a translation that is far too long, or repeats a phrase four times, is searched again without repeated
    pairs of tokens."""
    keep_spans: bool = True
    """Whether a translation that lacks a URL, e-mail address, emoji, piece of code or number of several digits of its
    source is searched again with it, unless over eight are missing; text of such pieces alone is copied."""
    restore_case: bool = True
    """Whether a line in capitals or title case is translated in the usual case of its words, and the translation put in
    capitals or title case; the training text teaches the case."""
    correct_spelling: bool = True
    """Whether a word that is not in the training text, but one typing error away from a frequent one, is translated as
    that one; not with several source languages."""
    batch_tokens: Annotated[int, Field(ge=1, le=10**8)] = 4096
    """Size of a batch in translation, in tokens with padding counted."""
    compute_type: Literal["float32", "int8"] = "float32"
    """Number format of the CTranslate2 engine unless the command line names another."""
    shortlist: Annotated[int, Field(ge=0, le=1000)] = 0
    """Number of target pieces that each source piece adds to the output vocabulary, by word alignment of the training
    text, for faster search on a CPU; 50 is a good value. 0: the whole vocabulary."""

    def broken_rules(self) -> Iterator[Rule]:
        if self.max_length is not None and self.min_length > self.max_length:
            reason = f"min_length {self.min_length} is larger than max_length {self.max_length}"
            yield Rule(("min_length", "max_length"), reason)


class EvaluationConfig(Section):
    """The scoring of translations."""

    methods: Annotated[
        tuple[Literal["greedy", "beam"], ...], Field(strict=False, min_length=1), AfterValidator(without_repeats)
    ] = ("greedy", "beam")
    """Search methods whose translations are scored."""
    metrics: Annotated[
        tuple[Literal["bleu", "chrf", "ter"], ...], Field(strict=False, min_length=1), AfterValidator(without_repeats)
    ] = ("bleu", "chrf", "ter")
    """Metrics of sacreBLEU to compute."""
    bootstrap_samples: Annotated[int, Field(ge=0, le=1_000_000)] = 1000
    """Bootstrap resamplings of the test set for the confidence interval; 0: none."""
    bleu_tokenize: Literal["auto", "13a", "intl", "zh", "char", "ja-mecab", "ko-mecab", "flores200"] = "auto"
    """SacreBLEU's tokenizer; auto: zh for Chinese, char for languages without spaces such as Japanese and Thai and for
    Korean, else 13a."""
