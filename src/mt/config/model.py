"""The model and tokenizer sections of the configuration."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mt.config.base import Rule, Section, enforce


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
