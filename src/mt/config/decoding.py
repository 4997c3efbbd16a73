"""The sections on translating and scoring."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from mt.config.base import Rule, Section, enforce, without_repeats


class DecodingConfig(Section):
    """How translations are searched."""

    beam_size: Annotated[int, Field(ge=1, le=1000, description="Number of hypotheses that beam search follows.")] = 5
    length_penalty: Annotated[
        float,
        Field(
            ge=-10,
            le=10,
            description="Exponent a in tokens^a, which divides the log-probability; higher makes longer text.",
        ),
    ] = 1.0
    min_length: Annotated[int, Field(ge=0, le=100_000, description="Shortest translation, in tokens.")] = 0
    max_length: Annotated[
        int | None,
        Field(
            ge=1,
            le=100_000,
            description="Longest translation, in tokens; null: 256, or data.max_length where that is more.",
        ),
    ] = None
    max_length_ratio: Annotated[
        float,
        Field(
            gt=0,
            le=1000,
            description="Longest translation as a multiple of the source's tokens, plus ten; the smaller bound holds.",
        ),
    ] = 3.0
    batch_tokens: Annotated[
        int, Field(ge=1, le=10**8, description="Size of a batch in translation, in tokens with padding counted.")
    ] = 4096
    compute_type: Annotated[
        Literal["float32", "int8"],
        Field(description="Number format of the CTranslate2 engine unless the command line names another."),
    ] = "float32"
    shortlist: Annotated[
        int,
        Field(
            ge=0,
            le=1000,
            description="Target pieces that a source piece may bring into a translation, by alignment of the training "
            "text, for a faster search on a CPU; 0: all pieces, always.",
        ),
    ] = 0

    @model_validator(mode="after")
    def _rules(self) -> Self:
        enforce(
            Rule(
                self.max_length is not None and self.min_length > self.max_length,
                ("min_length", "max_length"),
                f"min_length {self.min_length} is larger than max_length {self.max_length}",
            )
        )
        return self


class EvaluationConfig(Section):
    """How translations are scored."""

    methods: Annotated[
        tuple[Literal["greedy", "beam"], ...],
        Field(strict=False, min_length=1, description="Ways to search the translations that are scored."),
        AfterValidator(without_repeats),
    ] = ("greedy", "beam")
    metrics: Annotated[
        tuple[Literal["bleu", "chrf", "ter"], ...],
        Field(strict=False, min_length=1, description="Scores of sacreBLEU to compute."),
        AfterValidator(without_repeats),
    ] = ("bleu", "chrf", "ter")
    bootstrap_samples: Annotated[
        int,
        Field(ge=0, le=1_000_000, description="Resamplings of the test set for the confidence interval; 0: none."),
    ] = 1000
    bleu_tokenize: Annotated[
        Literal["auto", "13a", "intl", "zh", "char", "ja-mecab", "ko-mecab", "flores200"],
        Field(
            description="SacreBLEU's tokenizer; auto: zh for Chinese, char for languages without spaces such as "
            "Japanese and Thai and for Korean, else 13a."
        ),
    ] = "auto"
