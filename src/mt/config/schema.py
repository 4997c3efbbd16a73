"""The configuration: one class per section of the YAML file, with every default, bound and rule.

The descriptions are the reference, docs/configuration.md. What a class cannot say about one value, its `_rules` say
about several, each with its reason.
"""

from collections.abc import Iterator
from typing import Annotated, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from mt.config.base import RUN_NAME, Rule, Section, enforce, without_repeats
from mt.config.data import DataConfig
from mt.config.decoding import DecodingConfig, EvaluationConfig
from mt.config.exports import ExportFormat, export_rules
from mt.config.model import ModelConfig, TokenizerConfig
from mt.config.training import TrainingConfig

_USUAL_LENGTH = 256  # of translations, in tokens


class Config(Section):
    """The whole file."""

    name: Annotated[
        str, Field(pattern=RUN_NAME, description="Name of the run, and of its folder.", examples=["my-run"])
    ]
    seed: Annotated[int, Field(ge=0, lt=2**31, description="Start of all random numbers.")] = 1
    data: Annotated[
        DataConfig,
        Field(
            description="The corpora.",
            examples=[{"source_lang": "en", "target_lang": "de", "train": {"source": "a", "target": "b"}}],
        ),
    ]
    tokenizer: Annotated[TokenizerConfig, Field(description="How text becomes tokens.")] = TokenizerConfig()
    model: Annotated[ModelConfig, Field(description="The shape of the Transformer.")] = ModelConfig()
    training: Annotated[TrainingConfig, Field(description="How the weights are learned.")] = TrainingConfig()
    decoding: Annotated[DecodingConfig, Field(description="How translations are searched.")] = DecodingConfig()
    evaluation: Annotated[EvaluationConfig, Field(description="How translations are scored.")] = EvaluationConfig()
    exports: Annotated[
        tuple[ExportFormat, ...],
        Field(strict=False, description="Other software to write the model for at the end of training."),
        AfterValidator(without_repeats),
    ] = ()

    @property
    def longest_translation(self) -> int:
        """The most tokens that a translation may have."""
        return self.decoding.max_length or max(_USUAL_LENGTH, self.data.max_length)

    @field_validator("data", "tokenizer", "model", "training", "decoding", "evaluation", mode="before")
    @classmethod
    def _empty_section(cls, value: object) -> object:
        # `training:` with every key below it commented out is YAML for null.
        return {} if value is None else value

    @model_validator(mode="after")
    def _rules(self) -> Self:
        enforce(
            Rule(
                self.training.max_tokens < self.data.max_length,
                ("training.max_tokens", "data.max_length"),
                f"a batch of {self.training.max_tokens} tokens cannot hold a sentence of data.max_length "
                f"({self.data.max_length}) tokens",
            ),
            Rule(
                self.decoding.max_length is None and self.decoding.min_length > self.longest_translation,
                ("decoding.min_length", "decoding.max_length", "data.max_length"),
                f"min_length {self.decoding.min_length} is larger than max_length, which is {self.longest_translation} "
                "unless it is set",
            ),
            *self._learned_positions(),
            *self._both_ways(),
            *self._without_fast_engine(),
            *self._matrices_too_large(),
            *(rule for export_format in self.exports for rule in export_rules(self, export_format)),
        )
        return self

    def _learned_positions(self) -> Iterator[Rule]:
        """Limits of a model that has data.max_length positions and no more."""
        learned, least = self.model.positions == "learned", 7 + bool(self.data.tagged)
        yield Rule(
            learned and self.decoding.min_length >= self.data.max_length,
            ("decoding.min_length", "data.max_length"),
            f"a translation of at least {self.decoding.min_length} tokens and its end need more learned positions "
            f"than the model has (data.max_length, {self.data.max_length})",
        )
        yield Rule(
            learned and self.data.max_length < least,
            ("data.max_length", "model.positions"),
            f"must be at least {least} with learned positions: one character may take {least} tokens "
            f"(start, {'tag, ' * bool(self.data.tagged)}space, 4 bytes, end)",
        )

    def _both_ways(self) -> Iterator[Rule]:
        """What pairs that are turned round need of the text."""
        chosen = self.training.bidirectional_epochs > 0
        yield Rule(
            chosen and not self.tokenizer.shared,
            ("training.bidirectional_epochs", "tokenizer.shared"),
            "a sentence is now source and now target, so both languages need one vocabulary (tokenizer.shared: true)",
        )
        yield Rule(
            chosen and len(self.data.target_lang) > 1,
            ("training.bidirectional_epochs", "data.target_lang"),
            "is for one target language: turned round, sentences that ask for a language would be what is learned",
        )

    def _without_fast_engine(self) -> Iterator[Rule]:
        """What only CTranslate2 does, which does not run decoder-only models here."""
        decoder_only = self.model.architecture == "decoder_only"
        for key, chosen in (
            ("decoding.shortlist", self.decoding.shortlist > 0),
            ("decoding.compute_type", self.decoding.compute_type == "int8"),
        ):
            yield Rule(
                decoder_only and chosen,
                (key, "model.architecture"),
                "needs the CTranslate2 engine, but a decoder-only model runs with torch",
            )

    def _matrices_too_large(self) -> Iterator[Rule]:
        """The model folder holds the model for CTranslate2 too, whose files give a matrix 32 bits for its size."""
        shape = self.model
        rows = {
            "tokenizer.vocab_size": self.tokenizer.vocab_size,
            "model.d_ff": shape.d_ff,
            "model.d_model": 3 * shape.d_model,
            "data.max_length": max(self.data.max_length, self.longest_translation + 1),
        }
        for key, count in rows.items():
            size = 4 * count * shape.d_model
            yield Rule(
                size >= 2**32,
                (key, "model.d_model"),
                f"makes a matrix of {count:,} x {shape.d_model:,} numbers, {size / 2**30:.1f} GiB; the model folder's "
                f"CTranslate2 part can hold less than 4 GiB in one",
            )
