"""The whole configuration: its sections, the rules that span them, and its JSON schema.

The string below each key is its reference, docs/configuration.md.
"""

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field, field_validator

from mt.config.augmentation import AugmentationConfig
from mt.config.base import RUN_NAME, Rule, Section, without_repeats
from mt.config.data import DataConfig
from mt.config.decoding import DecodingConfig, EvaluationConfig
from mt.config.model import ModelConfig, TokenizerConfig
from mt.config.training import TrainingConfig
from mt.text.languages import TERM_TAGS, is_spaced

ExportFormat = Literal["ctranslate2", "huggingface", "onnx", "argos"]
EXPORT_FORMATS: tuple[ExportFormat, ...] = get_args(ExportFormat)

OUR_FORMAT, MARIAN_FORMAT = ("<s> text </s>", "source"), ("text </s>", "source")
_DEFAULT_MAX_LENGTH = 256  # of translations, in tokens
_MAX_MATRIX_BYTES = 2**32
SCHEMA_TITLE = "mt configuration"


class Config(Section):
    """A configuration file."""

    name: Annotated[str, Field(pattern=RUN_NAME, examples=["my-run"])]
    """Name of the run, and of its folder."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 1
    """Seed of all random numbers."""
    data: Annotated[
        DataConfig,
        Field(examples=[{"source_lang": "en", "target_lang": "de", "train": {"source": "a", "target": "b"}}]),
    ]
    """The corpora."""
    augmentation: AugmentationConfig = AugmentationConfig()
    """How training sentences are changed, so that the model holds up on text as users write it."""
    tokenizer: TokenizerConfig = TokenizerConfig()
    """How text becomes tokens."""
    model: ModelConfig = ModelConfig()
    """The shape of the Transformer."""
    training: TrainingConfig = TrainingConfig()
    """How the weights are learned."""
    decoding: DecodingConfig = DecodingConfig()
    """How translations are searched."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """How translations are scored."""
    exports: Annotated[tuple[ExportFormat, ...], Field(strict=False), AfterValidator(without_repeats)] = ()
    """Other software to export the model for at the end of training."""

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags that the tokenizer needs: of target languages, of source languages that are marked, and of terms."""
        sources = self.data.source_lang if "lang" in self.model.source_format else ()
        targets = self.data.target_lang if self.data.tagged or self.model.target_tag == "target" else ()
        return tuple(dict.fromkeys((*targets, *sources, *(TERM_TAGS if self.augmentation.terms else ()))))

    @property
    def source_tags(self) -> int:
        """The most tags that a source sentence has."""
        return bool(self.data.tagged) + ("lang" in self.model.source_format)

    @property
    def is_guided(self) -> bool:
        """True if one attention head learns word alignment."""
        return self.training.guided_alignment > 0

    @property
    def longest_translation(self) -> int:
        """The most tokens that a translation may have."""
        return self.decoding.max_length or max(_DEFAULT_MAX_LENGTH, self.data.max_length)

    @field_validator("data", "augmentation", "tokenizer", "model", "training", "decoding", "evaluation", mode="before")
    @classmethod
    def _empty_section(cls, value: object) -> object:
        # `training:` with every key below it commented out is YAML for null.
        return {} if value is None else value

    def broken_rules(self) -> Iterator[Rule]:
        data, training, decoding = self.data, self.training, self.decoding
        if training.max_tokens < data.max_length:
            yield Rule(
                ("training.max_tokens", "data.max_length"),
                f"a batch of {training.max_tokens} tokens cannot hold a sentence of data.max_length "
                f"({data.max_length}) tokens",
            )
        if decoding.max_length is None and decoding.min_length > self.longest_translation:
            yield Rule(
                ("decoding.min_length", "decoding.max_length", "data.max_length"),
                f"min_length {decoding.min_length} is larger than max_length, which is {self.longest_translation} "
                "unless it is set",
            )
        if self.tokenizer.given and (training.distill_from or (training.init_from and training.init_tokenizer)):
            reason = "is given, but training takes the other model's; set init_tokenizer: false to start with a new one"
            yield Rule(("tokenizer.file", "training.init_from", "training.distill_from"), reason)
        if self.model.positions == "learned":
            yield from self._learned_position_rules()
        yield from self._language_rules()
        if training.bidirectional_epochs > 0:
            yield from self._bidirectional_rules()
        if self.model.architecture == "decoder_only":
            reason = "needs the CTranslate2 engine, but a decoder-only model runs with torch"
            if decoding.shortlist > 0:
                yield Rule(("decoding.shortlist", "model.architecture"), reason)
            if decoding.compute_type == "int8":
                yield Rule(("decoding.compute_type", "model.architecture"), reason)
            if training.guided_alignment > 0:
                reason = "guides attention to the source, which a decoder-only model does not have apart; set it to 0"
                yield Rule(("training.guided_alignment", "model.architecture"), reason)
        yield from self._matrix_size_rules()
        for export_format in self.exports:
            yield from export_rules(self, export_format)

    def _learned_position_rules(self) -> Iterator[Rule]:
        max_length, min_length = self.data.max_length, self.decoding.min_length
        if min_length >= max_length:
            yield Rule(
                ("decoding.min_length", "data.max_length"),
                f"a translation of at least {min_length} tokens and its end need more learned positions "
                f"than the model has (data.max_length, {max_length})",
            )
        needed = 7 + self.source_tags
        if max_length < needed:
            yield Rule(
                ("data.max_length", "model.positions"),
                f"must be at least {needed} with learned positions: one character may take {needed} tokens "
                f"(start, {'tag, ' * self.source_tags}space, 4 bytes, end)",
            )

    def _language_rules(self) -> Iterator[Rule]:
        data, target_tag = self.data, self.model.target_tag
        if target_tag == "target" and not self.tokenizer.shared:
            reason = "the target's own vocabulary has no tags; set tokenizer.shared: true, or target_tag: source"
            yield Rule(("model.target_tag", "tokenizer.shared"), reason)
        if target_tag == "none" and len(data.pairs) > len(data.source_lang):
            reason = "nothing says which target language is wanted, and there are several; set it to source or target"
            yield Rule(("model.target_tag", "data.target_lang"), reason)
        unspaced = [code for code in (*data.source_lang, *data.target_lang) if not is_spaced(code)]
        if self.augmentation.terms and unspaced:
            reason = f"finds words by the spaces between them, and {unspaced[0]} is written without; leave it out"
            yield Rule(("augmentation.terms", "data.source_lang", "data.target_lang"), reason)

    def _bidirectional_rules(self) -> Iterator[Rule]:
        if not self.tokenizer.shared:
            yield Rule(
                ("training.bidirectional_epochs", "tokenizer.shared"),
                "each sentence is source and target in turn, so both languages need one vocabulary "
                "(tokenizer.shared: true)",
            )
        if len(self.data.pairs) > 1:
            reason = "is for one target language and one source language"
            yield Rule(("training.bidirectional_epochs", "data.target_lang", "data.source_lang"), reason)
        causes = {
            "model.target_tag": self.model.target_tag == "target",
            "model.source_format": "lang" in self.model.source_format,
            "augmentation.terms": bool(self.augmentation.terms),
        }
        for key in (key for key, has_tags in causes.items() if has_tags):
            reason = f"in the opposite direction the tags of {key} would be learned as text; leave one of them out"
            yield Rule(("training.bidirectional_epochs", key), reason)

    def _matrix_size_rules(self) -> Iterator[Rule]:
        # The CTranslate2 format, in which the model folder holds the model too, has 32 bits for a matrix's size.
        shape = self.model
        rows = {
            "tokenizer.vocab_size": self.tokenizer.vocab_size,
            "model.d_ff": shape.d_ff,
            "model.d_model": 3 * shape.d_model,
            "data.max_length": max(self.data.max_length, self.longest_translation + 1),
        }
        for key, count in rows.items():
            size = 4 * count * shape.d_model
            if size >= _MAX_MATRIX_BYTES:
                yield Rule(
                    (key, "model.d_model"),
                    f"makes a matrix of {count:,} x {shape.d_model:,} numbers, {size / 2**30:.1f} GiB; the model "
                    "folder's CTranslate2 part can hold less than 4 GiB in one",
                )


def export_rules(config: Config, export_format: ExportFormat) -> Iterator[Rule]:
    """Yield the values of a configuration that a format cannot express."""
    model, data = config.model, config.data
    huggingface, argos = export_format == "huggingface", export_format == "argos"
    forms = (OUR_FORMAT,) if argos else (OUR_FORMAT, MARIAN_FORMAT)
    other_form = export_format != "ctranslate2" and (model.source_format, model.target_tag) not in forms
    no_class, one_each = ": transformers has no such translation model", ": its packages have one each"
    no_norm = ": the classes that are used have none"
    unfit = (
        ("model.architecture", model.architecture == "decoder_only", "a model that is decoder_only", ""),
        ("model.activation", huggingface and model.activation == "swiglu", "swiglu", no_class),
        ("model.embedding_norm", huggingface and model.embedding_norm, "a norm of embeddings", no_norm),
        ("model.positions", huggingface and model.positions == "rotary", "rotary positions", no_class),
        ("model.source_format", other_form, "sentences of this form", ": its programs write others"),
        ("data.source_lang", argos and len(data.source_lang) > 1, "a model of several source languages", one_each),
        ("data.target_lang", argos and len(data.target_lang) > 1, "a model of several target languages", one_each),
    )
    for key, is_unfit, what, why in unfit:
        if is_unfit:
            yield Rule((key, "exports"), f"{what} cannot be exported as {export_format}{why}")


def unused_keys(config: Config) -> Iterator[str]:
    """Yield `KEY: reason` for each key whose value has no effect, or not the intended one: worth a warning."""
    training = config.training
    warmup, steps, epochs = training.warmup_steps, training.max_steps, training.max_epochs
    if warmup >= steps:
        reason = f"rises for {warmup:,} steps (training.warmup_steps) but training ends after {steps:,}"
        yield f"training.max_steps: the learning rate {reason}"
    if training.r_drop > 0 and not config.model.has_dropout:
        reason = "compares two passes that differ in their dropout, but dropout is off (model.dropout)"
        yield f"training.r_drop: {reason}, so it only costs time"
    if epochs is not None and 0 < epochs <= training.bidirectional_epochs:
        reason = f"covers all {epochs:,} epochs (training.max_epochs), so the intended direction is never learned alone"
        yield f"training.bidirectional_epochs: {reason}"
    averages = training.final_weights in ("average", "average_best")
    given = config.tokenizer.given is not None, "with a given tokenizer (tokenizer.file)"
    checks = (
        ("training", "distill_weight", not training.distill_from, "without teachers (training.distill_from)"),
        ("training", "average_checkpoints", not averages, f"with training.final_weights: {training.final_weights}"),
        ("data", "temperature", len(config.data.train) == 1, "with a single source in data.train"),
        ("training", "init_tokenizer", not training.init_from, "without a model to start from (training.init_from)"),
        ("decoding", "tune_length_penalty", config.decoding.beam_size == 1, "with a beam of 1 (decoding.beam_size)"),
        ("decoding", "shortlist", config.model.target_tag == "target", "with model.target_tag: target"),
        ("tokenizer", "vocab_size", *given),
        ("tokenizer", "train_pairs", *given),
    )
    for name, key, is_unused, why in checks:
        section = getattr(config, name)
        if is_unused and getattr(section, key) != type(section).model_fields[key].default:
            yield f"{name}.{key}: has no effect {why}"


def json_schema() -> str:
    """Return the JSON schema (draft 2020-12), for editors: every key with its type, bounds and description.

    Rules that span several keys are checked by `load_config` only.
    """
    schema = Config.model_json_schema()
    sections = schema["properties"]
    for name, section in sections.items():
        section.pop("default", None)  # it would repeat the defaults of all keys of the section
        if "$ref" in section and name not in schema["required"]:
            # `training:` with every key below it commented out is YAML for null.
            sections[name] = {"anyOf": [{"$ref": section.pop("$ref")}, {"type": "null"}], **section}
    cleaned = json.loads(json.dumps(schema), object_hook=_clean)
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **cleaned, "title": SCHEMA_TITLE}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _clean(node: dict[str, Any]) -> dict[str, Any]:
    """Join the lines of a description, and drop pydantic's title, which editors would show instead of it."""
    if isinstance(description := node.get("description"), str):
        node["description"] = " ".join(description.split())
    return {key: value for key, value in node.items() if key != "title" or not isinstance(value, str)}
