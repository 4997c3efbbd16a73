"""The configuration: one class per section of the YAML file, with every default, bound and rule.

The descriptions are the reference, docs/configuration.md. What a class cannot say about one value, its `_rules` say
about several, each with its reason.
"""

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from mt.config.base import RUN_NAME, Rule, Section, enforce, without_repeats
from mt.config.data import DataConfig
from mt.config.decoding import DecodingConfig, EvaluationConfig
from mt.config.exports import ExportFormat, export_rules
from mt.config.training import TrainingConfig


class TokenizerConfig(Section):
    """How text becomes tokens."""

    type: Annotated[
        Literal["bpe"],
        Field(description="Kind of tokenizer: byte-pair encoding; unseen characters are spelt in bytes."),
    ] = "bpe"
    vocab_size: Annotated[
        int,
        Field(
            ge=300,
            le=1_000_000,
            description="Size of a vocabulary, in tokens; the 256 bytes and 4 special tokens are among them.",
        ),
    ] = 10_000
    shared: Annotated[bool, Field(description="Whether both languages share one vocabulary.")] = True
    train_pairs: Annotated[
        int,
        Field(
            ge=1,
            le=10**9,
            description="The most sentence pairs the tokenizer learns from; of more, some at even distances are taken.",
        ),
    ] = 1_000_000
    bpe_dropout: Annotated[
        float,
        Field(
            ge=0,
            lt=1,
            description="Share of merges left out in training, anew each epoch (Provilkov et al. 2020); 0.1 is usual.",
        ),
    ] = 0.0


class ModelConfig(Section):
    """The shape of the Transformer (Vaswani et al. 2017, https://arxiv.org/abs/1706.03762)."""

    architecture: Annotated[
        Literal["encoder_decoder", "decoder_only"],
        Field(
            description="Kind of model: the paper's two stacks, or one that reads source and target as one sequence, "
            "as GPT does."
        ),
    ] = "encoder_decoder"
    d_model: Annotated[int, Field(ge=1, le=65_536, description="Width of embeddings and layers, in units.")] = 512
    n_heads: Annotated[int, Field(ge=1, le=1024, description="Number of attention heads in each layer.")] = 8
    d_ff: Annotated[int, Field(ge=1, le=1_048_576, description="Width inside the feed-forward blocks, in units.")] = (
        2048
    )
    encoder_layers: Annotated[
        int, Field(ge=0, le=1000, description="Number of encoder layers; 0 in a decoder-only model.")
    ] = 6
    decoder_layers: Annotated[int, Field(ge=1, le=1000, description="Number of decoder layers.")] = 6
    bidirectional_source: Annotated[
        bool,
        Field(description="Whether a decoder-only model's source positions see all of the source, not the past only."),
    ] = False
    dropout: Annotated[
        float, Field(ge=0, lt=1, description="Share of units set to zero in training, after each block and embedding.")
    ] = 0.1
    attention_dropout: Annotated[
        float, Field(ge=0, lt=1, description="Share of attention weights set to zero in training.")
    ] = 0.0
    activation_dropout: Annotated[
        float, Field(ge=0, lt=1, description="Share of units inside the feed-forward blocks set to zero in training.")
    ] = 0.0
    embedding_dropout: Annotated[
        float | None,
        Field(ge=0, lt=1, description="Share of the embeddings' units set to zero in training; null: as dropout."),
    ] = None
    word_dropout: Annotated[
        float,
        Field(
            ge=0,
            lt=1,
            description="Share of the tokens on both sides, language tags too, that training sees without their "
            "embedding.",
        ),
    ] = 0.0
    activation: Annotated[
        Literal["relu", "gelu", "swiglu"], Field(description="Non-linearity of the feed-forward blocks.")
    ] = "relu"
    norm: Annotated[
        Literal["post", "pre"], Field(description="Whether layer normalisation follows or precedes each block.")
    ] = "post"
    positions: Annotated[Literal["sinusoidal", "learned"], Field(description="How positions are encoded.")] = (
        "sinusoidal"
    )
    tie_embeddings: Annotated[
        bool,
        Field(
            description="Whether embeddings and output share one matrix: all three with a shared vocabulary, "
            "else those of the target."
        ),
    ] = True
    bias: Annotated[bool, Field(description="Whether linear layers and normalisations have a bias.")] = True
    attention_bias: Annotated[
        bool | None, Field(description="Whether the projections of attention have a bias; null: as bias.")
    ] = None
    init: Annotated[Literal["xavier", "normal"], Field(description="How weights are drawn at the start.")] = "xavier"

    @property
    def has_dropout(self) -> bool:
        """Whether anything is left out by chance."""
        rates = self.dropout, self.attention_dropout, self.activation_dropout, self.embedding_dropout, self.word_dropout
        return any(rates)

    @model_validator(mode="before")
    @classmethod
    def _no_encoder(cls, section: object) -> object:
        if isinstance(section, dict) and section.get("architecture") == "decoder_only":
            return {"encoder_layers": 0, **section}
        return section

    @model_validator(mode="after")
    def _rules(self) -> Self:
        decoder_only = self.architecture == "decoder_only"
        enforce(
            Rule(
                decoder_only and self.encoder_layers > 0,
                ("encoder_layers", "architecture"),
                "a decoder-only model has no encoder; leave encoder_layers out, and set decoder_layers",
            ),
            Rule(
                not decoder_only and self.encoder_layers == 0,
                ("encoder_layers", "architecture"),
                "an encoder needs at least one layer",
            ),
            Rule(
                not decoder_only and self.bidirectional_source,
                ("bidirectional_source", "architecture"),
                "an encoder sees all of the source in any case; this is for architecture: decoder_only",
            ),
            Rule(
                self.d_model % self.n_heads != 0,
                ("d_model", "n_heads"),
                f"d_model {self.d_model} cannot be divided among {self.n_heads} heads (n_heads)",
            ),
            Rule(
                self.positions == "sinusoidal" and self.d_model % 2 != 0,
                ("d_model", "positions"),
                f"sinusoidal positions need an even d_model (sine and cosine in pairs), not {self.d_model}",
            ),
        )
        return self


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
