"""The `model` and `tokenizer` sections of the configuration."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, model_validator

from mt.config.base import Fraction, Line, Rule, Section

SourceFormat = Literal["<s> text </s>", "<s> lang text </s>", "text </s>", "lang text </s>", "text </s> lang"]


class TokenizerConfig(Section):
    """The tokenisation of both languages."""

    type: Literal["bpe", "unigram", "sentencepiece_bpe"] = "bpe"
    """Kind of tokenizer to train: byte-pair encoding, or a SentencePiece model, unigram (Kudo 2018) or BPE; unseen
    characters are encoded as bytes."""
    file: Line | None = None
    """Tokenizer of both languages to take instead of training one: a SentencePiece model, or a tokenizer.json of mt."""
    source_file: Line | None = None
    """Likewise for the source language, if each has a vocabulary of its own (shared: false)."""
    target_file: Line | None = None
    """Likewise for the target language."""
    vocab_size: Annotated[int, Field(ge=300, le=1_000_000)] = 10_000
    """Size of a vocabulary, in tokens; the 256 bytes and 4 special tokens are among them."""
    shared: bool = True
    """Whether both languages share one vocabulary."""
    train_pairs: Annotated[int, Field(ge=1, le=10**9)] = 1_000_000
    """Most sentence pairs that the tokenizer is trained on; of a larger corpus, pairs at even distances."""
    bpe_dropout: Fraction = 0.0
    """Share of merges left out in training, drawn again each epoch (Provilkov et al. 2020); 0.1 is usual."""
    sampling_alpha: Annotated[float | None, Field(ge=0, le=100)] = None
    """For a unigram model: draw the segmentation of words in each epoch with their probabilities to this power (Kudo
    2018); 0.1 to 0.5 is usual, a smaller one varies more; null takes the likeliest."""

    @property
    def given(self) -> tuple[str, str] | None:
        """The files of the source's and the target's tokenizer; None if they are to be trained."""
        source, target = self.source_file or self.file, self.target_file or self.file
        return None if source is None or target is None else (source, target)

    @property
    def is_sampled(self) -> bool:
        """Return True if text is segmented differently in each epoch."""
        return self.bpe_dropout > 0 or self.sampling_alpha is not None

    def broken_rules(self) -> Iterator[Rule]:
        separate, joint = (self.source_file, self.target_file), self.file is not None
        if (separate[0] is None) != (separate[1] is None) or (joint and any(separate)):
            yield Rule(("source_file", "target_file", "file"), "needs source_file and target_file, or file alone")
        elif self.given and self.shared != joint:
            yield Rule(("shared", "file"), f"must be {str(joint).lower()} with {'file' if joint else 'source_file'}")
        if self.given and self.type != "bpe":
            yield Rule(("type", "file"), "is for a tokenizer to train, but a file is given; leave it out")
        if self.sampling_alpha is not None and not self.given and self.type != "unigram":
            yield Rule(("sampling_alpha", "type"), "is for type: unigram")
        if self.bpe_dropout and (self.type == "unigram" or self.sampling_alpha is not None):
            yield Rule(("bpe_dropout", "type"), "is for BPE; a unigram model has sampling_alpha")


class ModelConfig(Section):
    """The shape of the Transformer (Vaswani et al. 2017, https://arxiv.org/abs/1706.03762)."""

    architecture: Literal["encoder_decoder", "decoder_only"] = "encoder_decoder"
    """Kind of model: the paper's two stacks, or one that reads source and target as one sequence, as GPT does."""
    d_model: Annotated[int, Field(ge=1, le=65_536)] = 512
    """Width of embeddings and layers, in units."""
    n_heads: Annotated[int, Field(ge=1, le=1024)] = 8
    """Number of attention heads in each layer."""
    d_ff: Annotated[int, Field(ge=1, le=1_048_576)] = 2048
    """Width inside the feed-forward blocks, in units."""
    encoder_layers: Annotated[int, Field(ge=0, le=1000)] = 6
    """Number of encoder layers; 0 in a decoder-only model."""
    decoder_layers: Annotated[int, Field(ge=1, le=1000)] = 6
    """Number of decoder layers."""
    bidirectional_source: bool = False
    """Whether a decoder-only model's source positions attend to all of the source, not only to earlier positions."""
    dropout: Fraction = 0.1
    """Share of units set to zero in training, after each block and embedding."""
    attention_dropout: Fraction = 0.0
    """Share of attention weights set to zero in training."""
    activation_dropout: Fraction = 0.0
    """Share of units inside the feed-forward blocks set to zero in training."""
    embedding_dropout: Annotated[float | None, Field(ge=0, lt=1)] = None
    """Share of the embeddings' units set to zero in training; null: as dropout."""
    word_dropout: Fraction = 0.0
    """Share of the tokens on both sides, language tags included, whose embedding is set to zero in training."""
    activation: Literal["relu", "gelu", "silu", "swiglu"] = "relu"
    """Non-linearity of the feed-forward blocks."""
    norm: Literal["post", "pre"] = "post"
    """Whether layer normalisation follows or precedes each block."""
    positions: Literal["sinusoidal", "learned", "rotary"] = "sinusoidal"
    """How positions are encoded: in vectors that are added to the embeddings, or in a rotation of queries and keys (Su
    et al. 2021, https://arxiv.org/abs/2104.09864)."""
    tie_embeddings: bool = True
    """Whether embeddings and output share one matrix: all three with a shared vocabulary, else those of the target."""
    scale_embeddings: bool = True
    """Whether token embeddings are multiplied by the square root of d_model before positions are added."""
    embedding_norm: bool = False
    """Whether the sum of embeddings and positions is normalised, as in mBART."""
    output_bias: bool = False
    """Whether the output layer has a bias, one number per target piece, as in Marian."""
    bias: bool = True
    """Whether linear layers and normalisations have a bias."""
    attention_bias: bool | None = None
    """Whether the projections of attention have a bias; null: as bias."""
    init: Literal["xavier", "normal"] = "xavier"
    """How weights are initialised."""
    source_format: SourceFormat = "<s> text </s>"
    """Special tokens around a source sentence; lang is the tag of its language. Imported models have forms of their
    own."""
    target_tag: Literal["source", "target", "none"] = "source"
    """Where the tag that asks for a target language is: before the source, if the tokenizer has it, or as a
    translation's first token."""

    @property
    def has_dropout(self) -> bool:
        """Return True if any kind of dropout is on."""
        rates = self.dropout, self.attention_dropout, self.activation_dropout, self.embedding_dropout, self.word_dropout
        return any(rates)

    @model_validator(mode="before")
    @classmethod
    def _no_encoder(cls, section: object) -> object:
        if isinstance(section, dict) and section.get("architecture") == "decoder_only":
            return {"encoder_layers": 0, **section}
        return section

    def broken_rules(self) -> Iterator[Rule]:
        encoder, source = ("encoder_layers", "architecture"), ("bidirectional_source", "architecture")
        if self.architecture == "decoder_only":
            if self.encoder_layers > 0:
                yield Rule(encoder, "a decoder-only model has no encoder; leave it out, and set decoder_layers")
        elif self.encoder_layers == 0:
            yield Rule(encoder, "an encoder needs at least one layer")
        if self.architecture != "decoder_only" and self.bidirectional_source:
            yield Rule(source, "an encoder always sees all of the source; this is for architecture: decoder_only")
        if self.d_model % self.n_heads:
            reason = f"d_model {self.d_model} cannot be divided among {self.n_heads} heads (n_heads)"
            yield Rule(("d_model", "n_heads"), reason)
        if self.positions == "sinusoidal" and self.d_model % 2:
            reason = f"sinusoidal positions need an even d_model (sine and cosine in pairs), not {self.d_model}"
            yield Rule(("d_model", "positions"), reason)
        if self.positions == "rotary" and self.d_model % (2 * self.n_heads) and self.d_model % self.n_heads == 0:
            reason = f"rotary positions turn pairs of a head's units, and {self.d_model // self.n_heads} is odd"
            yield Rule(("d_model", "positions"), reason)
