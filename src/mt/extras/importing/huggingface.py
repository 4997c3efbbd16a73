"""Hugging Face folders of MarianMT, M2M-100 (NLLB) and mBART, and of our own export."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mt.config import load_config
from mt.config.problems import dotted, validate
from mt.data.tokenizer_kinds import TokenizerPair
from mt.errors import InputError
from mt.extras.export.common import MT_FOLDER
from mt.extras.importing.safe_tensors import read_mapping
from mt.extras.importing.vocabularies import WHOLE_EXPORT, Vocabulary, read_vocabulary
from mt.extras.importing.weights import Family, Plan, tensor2tensor_sinusoids
from mt.storage.run_dir import ModelDir
from mt.text.languages import LANGUAGE_NAMES, base_language, written_as

Languages = tuple[Sequence[str], Sequence[str]]  # source and target languages that the user chose; empty: the model's

_MAX_PAIRS = 1000  # pairs of languages; a configuration may not have more texts
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": "silu", "swish": "silu"}
_SIZES = {
    "d_model": ("d_model",),
    "n_heads": ("encoder_attention_heads", "decoder_attention_heads"),
    "d_ff": ("encoder_ffn_dim", "decoder_ffn_dim"),
    "encoder_layers": ("encoder_layers",),
    "decoder_layers": ("decoder_layers",),
}
TAGGED = {"source_format": "lang text </s>", "target_tag": "target"}
FAMILIES = {
    "marian": Family({"norm": "post", "positions": "sinusoidal", "source_format": "text </s>"}),
    # Its sinusoids have other frequencies than the paper's.
    "m2m_100": Family({"norm": "pre", "positions": "learned", **TAGGED}, sinusoids=tensor2tensor_sinusoids),
    "mbart": Family({"norm": "pre", "positions": "learned", "embedding_norm": True, **TAGGED}, offset=2),
}


def read_plan(folder: Path, name: str, languages: Languages) -> Plan:
    """Plan the import of a folder from all its files but the weights.

    Raises:
        InputError: it is of another architecture or damaged, or a language must be chosen.
    """
    theirs = read_mapping(folder / "config.json")
    kind = theirs.get("model_type")
    defaults = {"share_encoder_decoder_embeddings": True, "tie_word_embeddings": True}
    theirs = {**defaults, "scale_embedding": kind == "m2m_100", **theirs}
    one_matrix = bool(theirs["share_encoder_decoder_embeddings"])
    if (folder / MT_FOLDER).is_dir():
        return plan_of_export(folder, one_matrix)
    if not isinstance(kind, str) or kind not in FAMILIES:
        message = f"{folder}: its model_type is {kind!r:.50}, which is none of {', '.join(FAMILIES)}"
        raise InputError(message, WHOLE_EXPORT)
    settings = read_mapping(folder / "tokenizer_config.json", {})
    vocabulary = read_vocabulary(folder, settings, kind == "marian", one_matrix)
    return Description(folder, name, theirs, settings, vocabulary, FAMILIES[kind]).plan(languages)


@dataclass(frozen=True)
class Description:
    """A model of other software, described as in transformers' files."""

    folder: Path
    name: str  # of the model to be made
    theirs: Mapping[str, Any]  # the content of config.json
    settings: Mapping[str, Any]  # the content of tokenizer_config.json
    vocabulary: Vocabulary
    family: Family

    def plan(self, languages: Languages) -> Plan:
        """Plan the import; errors as of `read_plan`."""
        sources, targets = self._languages(*languages)
        sentence_format, start = self._sentence_format(targets)
        shared, tied = self.vocabulary.shared, bool(self.theirs["tie_word_embeddings"])
        one_matrix = bool(self.theirs["share_encoder_decoder_embeddings"])
        size = self._integer("vocab_size")
        sizes = size, size if shared else self._integer("decoder_vocab_size")
        tokenizers, tokenizer_kind, rows = self.vocabulary.tokenizers(start, sizes)
        positions = self._integer("max_position_embeddings")
        tree = {
            "name": self.name,
            "data": _data_section(self.folder, sources, targets, positions),
            "tokenizer": {"type": tokenizer_kind, "shared": shared, "vocab_size": max(300, len(rows[0]))},
            "model": self._model_section() | {"tie_embeddings": tied and shared == one_matrix} | sentence_format,
            "decoding": self._decoding_section(),
            "training": {"max_tokens": max(4096, positions)},  # a batch holds the longest sentence
        }
        config, problems = validate(tree)
        if config is None:
            raise InputError(f"{self.folder}: {dotted(problems[0].path)}: {problems[0].message}")
        return Plan(config, tokenizers, *rows, sizes, self.family, tied, one_matrix and shared)

    def _sentence_format(self, targets: Sequence[str]) -> tuple[dict[str, str], str]:
        """Return the sentence format's keys that differ from the family's, and the piece that begins translations."""
        folder, theirs, vocabulary = self.folder, self.theirs, self.vocabulary
        kind, keys = theirs["model_type"], {}
        start = self._integer("decoder_start_token_id" if kind == "marian" else "eos_token_id")
        if kind != "marian" and not vocabulary.tags:
            message = f"{folder}: its tokenizer has no languages"
            raise InputError(message, "name a folder with all files of the tokenizer")
        if self.settings.get("legacy_behaviour"):  # NLLB as it was trained
            keys = {"source_format": "text </s> lang"}
        is_50 = "50" in str(self.settings.get("tokenizer_class"))
        if kind == "mbart" and theirs.get("decoder_start_token_id") != start and not is_50:
            if len(targets) > 1:
                raise InputError(f"{folder}: this model needs one target language", f"choose one, as --to {targets[0]}")
            # The first mBART's decoder begins with the language, so that is our <s>.
            return {"source_format": "text </s> lang", "target_tag": "none"}, vocabulary.tags[targets[0]]
        names = {i: piece for piece, i in vocabulary.pieces[1].items()}
        if start not in names:
            message = f"its tokenizer has no piece {start}, with which config.json begins translations"
            raise InputError(f"{folder}: {message}")
        return keys, names[start]

    def _integer(self, *keys: str) -> int:
        """Return the number that some keys of config.json must have in common."""
        values = [self.theirs.get(key) for key in keys]
        if type(values[0]) is not int or any(value != values[0] for value in values):
            given = ", ".join(f"{key}: {value!r:.20}" for key, value in zip(keys, values, strict=True))
            needed = "one" if len(keys) > 1 else "a"
            raise InputError(f"{self.folder / 'config.json'}: {given}, but {needed} number is needed")
        return values[0]

    def _text(self, key: str) -> str:
        """Return the text of a key of tokenizer_config.json; empty if it has none."""
        value = self.settings.get(key)
        if not isinstance(value, str | None):
            raise InputError(f"{self.folder / 'tokenizer_config.json'}: {key}: {value!r:.20}, but text is needed")
        return value or ""

    def _model_section(self) -> dict[str, Any]:
        theirs, activation = self.theirs, str(self.theirs.get("activation_function"))
        if activation not in _ACTIVATIONS:
            message = f"activation_function {activation!r:.30} is not supported"
            raise InputError(f"{self.folder / 'config.json'}: {message}")
        rates = ("dropout", "attention_dropout", "activation_dropout")
        return {
            **{ours: self._integer(*keys) for ours, keys in _SIZES.items()},
            **{key: theirs[key] for key in rates if key in theirs},
            "activation": _ACTIVATIONS[activation],
            "scale_embeddings": bool(theirs["scale_embedding"]),
            # Even if theirs has none: it excludes SOS, whose row may repeat that of another piece.
            "output_bias": True,
            **self.family.model,
        }

    def _decoding_section(self) -> dict[str, Any]:
        generation = read_mapping(self.folder / "generation_config.json", {})
        settings = dict(self.theirs) | generation
        section = {"beam_size": settings.get("num_beams"), "length_penalty": settings.get("length_penalty")}
        if (longest := settings.get("max_length")) is not None:
            if type(longest) is not int or longest < 3:
                path = self.folder / ("generation_config.json" if "max_length" in generation else "config.json")
                message = f"max_length: {longest!r:.20}, but a number from 3 is needed, start and end included"
                raise InputError(f"{path}: {message}", "correct it, or remove the key")
            section["max_length"] = longest - 2
        return {key: value for key, value in section.items() if value is not None}

    def _languages(self, sources: Sequence[str], targets: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return the source and the target languages: the user's choice, or the only ones that the folder knows."""
        folder, tags = self.folder, self.vocabulary.tags
        named = re.search(r"-([a-z]{2,3})-([a-z]{2,3})$", self.name) or ("", "", "")
        own_source = self._text("source_lang") or self._text("src_lang") or named[1]
        own_target = self._text("target_lang") or self._text("tgt_lang") or named[2]
        sources = list(sources) or [own_source]
        known = [code for code in tags if len(sources) > 1 or code != sources[0]]
        chosen = list(targets) or known or [own_target]
        if "" in (*sources, *chosen):
            raise InputError(f"{folder}: it does not say its languages", "name them: --from LANG --to LANG")
        _refuse_other_language(folder, self._text("source_lang"), sources)
        if not tags:
            _refuse_other_language(folder, self._text("target_lang"), chosen)
            if len(chosen) > 1:
                raise InputError(f"{folder}: it has no tags for target languages, so it has one", "give one --to")
        if len(sources) == 1 and sources[0] in chosen:
            raise InputError(f"{folder}: {sources[0]} is the source and a target language", "name another with --to")
        needed = [] if not tags else chosen if (folder / "source.spm").is_file() else [*sources, *chosen]
        for code in needed:
            if code not in tags:
                raise InputError(f"{folder}: it does not know the language {code}", f"it knows {', '.join(tags)}")
        return sources, chosen


def plan_of_export(folder: Path, in_one_matrix: bool = False, sines_first: bool = True) -> Plan:
    """Plan the import of an export of `mt`; with `in_one_matrix`, it joins embeddings that are separate here.

    Raises:
        InputError: a file is missing or damaged.
    """
    mt_folder = ModelDir(folder / MT_FOLDER)
    config = load_config(mt_folder.config)
    tokenizers = TokenizerPair.load(mt_folder.tokenizer, config.tokenizer.shared)
    source, target = (torch.arange(tokenizer.vocab_size) for tokenizer in tokenizers)
    sizes = len(source), len(target)
    if in_one_matrix and not (config.model.tie_embeddings and tokenizers.shared):  # the target's rows follow
        target = target + len(source)
        sizes = sum(sizes), sum(sizes)
    family, tied = Family({}, sines_first=sines_first), config.model.tie_embeddings
    return Plan(config, tokenizers, source, target, sizes, family, tied, tokenizers.shared or in_one_matrix, exact=True)


def _data_section(folder: Path, sources: Sequence[str], targets: Sequence[str], positions: int) -> dict[str, Any]:
    """Return a data section with one text for each pair of languages, to be replaced before the model is trained."""
    pairs = [(source, target) for source in sources for target in targets if source != target]
    if len(pairs) > _MAX_PAIRS:
        message = f"{folder}: {len(pairs):,} pairs of languages are too many"
        raise InputError(message, "choose fewer with --from and --to")
    files = [
        {"source": f"train.{source}", "target": f"train.{target}", "target_lang": target}
        | ({"source_lang": source} if len(sources) > 1 else {})
        for source, target in pairs
    ]
    return {"source_lang": list(sources), "target_lang": list(targets), "train": files, "max_length": positions}


def _refuse_other_language(folder: Path, own: str, given: Sequence[str]) -> None:
    """Refuse languages other than a model's own; a code of a group of languages, as `mul`, refuses none."""
    if own and base_language(own) in LANGUAGE_NAMES:
        for code in given:
            if written_as(code) != written_as(own):
                raise InputError(f"{folder}: it does not know the language {code}", f"it knows {own}")
