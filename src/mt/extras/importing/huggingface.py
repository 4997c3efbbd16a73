"""Hugging Face folders of MarianMT, M2M-100 (NLLB) and mBART, and of our own export."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mt.config import Config, load_config
from mt.config.problems import dotted, validate
from mt.data.tokenizer import TokenizerPair
from mt.errors import InputError
from mt.extras.export.common import OWN
from mt.extras.importing.safe_tensors import read_json
from mt.extras.importing.vocabularies import Vocabulary, read_vocabulary
from mt.extras.importing.weights import Plan, tensor2tensor_sinusoids
from mt.storage.run_dir import ModelDir
from mt.text.languages import LANGUAGE_NAMES, base_language, written_as

_MAX_PAIRS = 1000  # of languages; a configuration has no more texts
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": "silu", "swish": "silu"}
_SIZES = {
    "d_model": ("d_model",),
    "n_heads": ("encoder_attention_heads", "decoder_attention_heads"),
    "d_ff": ("encoder_ffn_dim", "decoder_ffn_dim"),
    "encoder_layers": ("encoder_layers",),
    "decoder_layers": ("decoder_layers",),
}


@dataclass(frozen=True)
class Family:
    """An architecture: keys of our model section, its positions as `Plan` has them, and a default of config.json."""

    model: Mapping[str, Any]
    offset: int = 0
    sinusoids: Callable[[int, int], Tensor] | None = None
    sines_first: bool = True
    scales: bool = False  # `scale_embedding`


TAGGED = {"source_format": "lang text </s>", "target_tag": "target"}
FAMILIES = {
    "marian": Family({"norm": "post", "positions": "sinusoidal", "source_format": "text </s>"}),
    # Its sinusoids have other frequencies than the paper's.
    "m2m_100": Family(
        {"norm": "pre", "positions": "learned", **TAGGED}, sinusoids=tensor2tensor_sinusoids, scales=True
    ),
    "mbart": Family({"norm": "pre", "positions": "learned", "embedding_norm": True, **TAGGED}, offset=2),
}


def read_plan(folder: Path, name: str, source_langs: Sequence[str], target_langs: Sequence[str]) -> Plan:
    """Read everything in a folder but its weights.

    Raises:
        InputError: it is of another architecture or damaged, or a language must be chosen.
    """
    theirs = read_json(folder / "config.json")
    if (folder / OWN).is_dir():
        return own_plan(folder, bool(theirs.get("share_encoder_decoder_embeddings", True)))
    kind = theirs.get("model_type")
    if kind not in FAMILIES:
        raise InputError(f"{folder}: its model_type is {kind!r:.50}, which is none of {', '.join(FAMILIES)}")
    settings = read_json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").is_file() else {}
    family = FAMILIES[kind]
    theirs = {"scale_embedding": family.scales, "share_encoder_decoder_embeddings": True, **theirs}
    vocabulary = read_vocabulary(folder, settings, bool(theirs["share_encoder_decoder_embeddings"]))
    return make_plan(folder, name, theirs, settings, vocabulary, family, source_langs, target_langs)


def make_plan(
    folder: Path,
    name: str,
    theirs: Mapping[str, Any],
    settings: Mapping[str, Any],
    vocabulary: Vocabulary,
    family: Family,
    source_langs: Sequence[str],
    target_langs: Sequence[str],
) -> Plan:
    """Plan the import of a model that is described as config.json and tokenizer_config.json would; errors as above."""
    sources, targets = _languages(folder, name, vocabulary, settings, source_langs, target_langs)
    form, start = _form(folder, theirs, settings, vocabulary, targets)
    model = _model_section(folder, theirs, family) | form
    model["tie_embeddings"] &= vocabulary.shared == theirs.get("share_encoder_decoder_embeddings", True)
    sizes = [_integer(folder, theirs, "vocab_size")] * 2
    if not vocabulary.shared:
        sizes[1] = _integer(folder, theirs, "decoder_vocab_size")
    tokenizers, tokenizer_kind, rows = vocabulary.tokenizers(start, (sizes[0], sizes[1]))
    positions = _integer(folder, theirs, "max_position_embeddings")
    tree = {
        "name": name,
        "data": _data_section(folder, sources, targets, positions),
        "tokenizer": {"type": tokenizer_kind, "shared": vocabulary.shared, "vocab_size": max(300, len(rows[0]))},
        "model": model,
        "decoding": _decoding_section(folder, theirs),
        "training": {"max_tokens": max(4096, positions)},  # a batch holds the longest sentence
    }
    tied = bool(theirs.get("tie_word_embeddings", True))
    one_matrix = vocabulary.shared and bool(theirs.get("share_encoder_decoder_embeddings", True))
    rest = (sizes[0], sizes[1]), family.offset, family.sinusoids, tied, one_matrix, family.sines_first
    return Plan(_validated(folder, tree), tokenizers, rows[0], rows[1], *rest)


def own_plan(folder: Path, in_one_matrix: bool = False, sines_first: bool = True) -> Plan:
    """Plan the import of an export of ours.

    Args:
        folder: its folder.
        in_one_matrix: source and target embeddings are in one matrix, also where ours are not.
        sines_first: as in `Plan`.

    Raises:
        InputError: a file is missing or damaged.
    """
    own = ModelDir(folder / OWN)
    config = load_config(own.config)
    tokenizers = TokenizerPair.load(own.tokenizer, config.tokenizer.shared)
    source, target = (torch.arange(tokenizer.vocab_size) for tokenizer in tokenizers)
    sizes = len(source), len(target)
    if in_one_matrix and not (config.model.tie_embeddings and tokenizers.shared):  # the target's rows follow
        target = target + len(source)
        sizes = sum(sizes), sum(sizes)
    return Plan(
        config,
        tokenizers,
        source,
        target,
        sizes,
        tied=config.model.tie_embeddings,
        one_matrix=tokenizers.shared or in_one_matrix,
        sines_first=sines_first,
        exact=True,
    )


def _validated(folder: Path, tree: dict[str, Any]) -> Config:
    config, problems = validate(tree)
    if config is None:
        raise InputError(f"{folder}: {dotted(problems[0].path)}: {problems[0].message}")
    return config


def _form(
    folder: Path,
    theirs: Mapping[str, Any],
    settings: Mapping[str, Any],
    vocabulary: Vocabulary,
    targets: Sequence[str],
) -> tuple[dict[str, str], str]:
    """Return the keys of the sentences' form where it is not the family's, and the piece that begins a translation."""
    kind, form = theirs["model_type"], {}
    start = _integer(folder, theirs, "decoder_start_token_id" if kind == "marian" else "eos_token_id")
    if kind != "marian" and not vocabulary.tags:
        raise InputError(f"{folder}: its tokenizer has no languages", "name a folder with all files of the tokenizer")
    if settings.get("legacy_behaviour"):  # NLLB as it was trained
        form = {"source_format": "text </s> lang"}
    if kind == "mbart" and theirs.get("decoder_start_token_id") != start and "50" not in _class(settings):
        if len(targets) > 1:
            raise InputError(f"{folder}: this model needs one target language", f"choose one, as --to {targets[0]}")
        # The first mBART's decoder begins with the language, so that is our <s>.
        return {"source_format": "text </s> lang", "target_tag": "none"}, vocabulary.tags[targets[0]]
    names = {i: piece for piece, i in vocabulary.pieces[1].items()}
    if start not in names:
        raise InputError(f"{folder}: its tokenizer has no piece {start}, with which config.json begins translations")
    return form, names[start]


def _class(settings: Mapping[str, Any]) -> str:
    return str(settings.get("tokenizer_class"))


def _integer(folder: Path, theirs: Mapping[str, Any], *keys: str) -> int:
    """Return the number that some keys of config.json have in common."""
    values = [theirs.get(key) for key in keys]
    if type(values[0]) is not int or any(value != values[0] for value in values):
        given = ", ".join(f"{key}: {value!r:.20}" for key, value in zip(keys, values, strict=True))
        raise InputError(f"{folder / 'config.json'}: {given}, but {'one' if len(keys) > 1 else 'a'} number is needed")
    return values[0]


def _model_section(folder: Path, theirs: Mapping[str, Any], family: Family) -> dict[str, Any]:
    activation = str(theirs.get("activation_function"))
    if activation not in _ACTIVATIONS:
        raise InputError(f"{folder / 'config.json'}: activation_function {activation!r:.30} is not supported")
    rates = {key: theirs[key] for key in ("dropout", "attention_dropout", "activation_dropout") if key in theirs}
    return {
        **{ours: _integer(folder, theirs, *keys) for ours, keys in _SIZES.items()},
        **rates,
        "activation": _ACTIVATIONS[activation],
        "scale_embeddings": bool(theirs.get("scale_embedding")),
        "tie_embeddings": bool(theirs.get("tie_word_embeddings", True)),
        "output_bias": True,  # also where theirs has none: it excludes a second row of the piece that begins the target
        **family.model,
    }


def _data_section(folder: Path, sources: Sequence[str], targets: Sequence[str], positions: int) -> dict[str, Any]:
    """Return a data section whose corpus, one text for each pair of languages, is to be filled in by who trains on."""
    pairs = [(source, target) for source in sources for target in targets if source != target]
    if len(pairs) > _MAX_PAIRS:
        raise InputError(
            f"{folder}: {len(pairs):,} pairs of languages are too many", "choose fewer with --from and --to"
        )
    files = [
        {"source": f"train.{source}", "target": f"train.{target}", "target_lang": target}
        | ({"source_lang": source} if len(sources) > 1 else {})
        for source, target in pairs
    ]
    return {"source_lang": list(sources), "target_lang": list(targets), "train": files, "max_length": positions}


def _decoding_section(folder: Path, theirs: Mapping[str, Any]) -> dict[str, Any]:
    path = folder / "generation_config.json"
    settings = dict(theirs) | (read_json(path) if path.is_file() else {})
    section = {"beam_size": settings.get("num_beams"), "length_penalty": settings.get("length_penalty")}
    if isinstance(settings.get("max_length"), int):  # theirs counts the start and the end
        section["max_length"] = settings["max_length"] - 2
    return {key: value for key, value in section.items() if value is not None}


def _languages(
    folder: Path,
    name: str,
    vocabulary: Vocabulary,
    settings: Mapping[str, Any],
    sources: Sequence[str],
    targets: Sequence[str],
) -> tuple[list[str], list[str]]:
    """Return the source and the target languages: the user's choice, or the only ones that the folder knows."""
    named = re.search(r"-([a-z]{2,3})-([a-z]{2,3})$", name)
    own_source = settings.get("source_lang") or settings.get("src_lang") or (named and named[1])
    sources = list(sources) or [str(own_source or "")]
    own_target = settings.get("target_lang") or settings.get("tgt_lang") or (named and named[2])
    chosen = (
        list(targets)
        or [code for code in vocabulary.tags if len(sources) > 1 or code != sources[0]]
        or [str(own_target or "")]
    )
    if "" in (*sources, *chosen):
        raise InputError(f"{folder}: it does not say its languages", "name them: --from LANG --to LANG")
    is_tagged = bool(vocabulary.tags)
    _refuse_other_language(folder, settings.get("source_lang"), sources)
    if not is_tagged:
        _refuse_other_language(folder, settings.get("target_lang"), chosen)
        if len(chosen) > 1:
            raise InputError(f"{folder}: it has no tags for target languages, so it has one", "give one --to")
    if len(sources) == 1 and sources[0] in chosen:
        raise InputError(f"{folder}: {sources[0]} is the source and a target language", "name another with --to")
    needed = [] if not is_tagged else chosen if (folder / "source.spm").is_file() else [*sources, *chosen]
    for code in needed:
        if code not in vocabulary.tags:
            raise InputError(
                f"{folder}: it does not know the language {code}", f"it knows {', '.join(vocabulary.tags)}"
            )
    return sources, chosen


def _refuse_other_language(folder: Path, own: str | None, given: Sequence[str]) -> None:
    """Refuse languages other than that of a model; a group of languages, as `mul`, is unknown here and has many."""
    if own and base_language(own) in LANGUAGE_NAMES:
        for code in given:
            if written_as(code) != written_as(own):
                raise InputError(f"{folder}: it does not know the language {code}", f"it knows {own}")
