"""The stages before training: clean text, tokenizers, token ids."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mt.bundle.pretrained import Pretrained
from mt.config import Config, DataConfig
from mt.console import log
from mt.data.augmented_corpus import CasedLines
from mt.data.cleaning import CHANCE_CORRELATION, cleaning_table
from mt.data.encode import encode_corpus, read_counts
from mt.data.guided_alignment import ALIGNMENTS_VERSION, write_alignments
from mt.data.mixture import direction, read_parts
from mt.data.prepare import input_digests, prepare_text
from mt.data.sentence_format import SentenceFormat
from mt.data.token_store import SIDES, EncodedCorpus
from mt.data.tokenizer_kinds import TokenizerPair
from mt.errors import InputError
from mt.pipeline.resume import refuse_other_tokenizer, tokenizer_digests
from mt.storage import atomic
from mt.storage.manifest import is_done, read_manifest, stage_key
from mt.storage.run_dir import RunDir
from mt.text.languages import only_language
from mt.text.lines import TextFile

_MIN_PAIRS, _MAX_PAIRS = 300, 100_000  # of a text whose lengths are compared, and those looked at
_MIN_SPREAD = 0.2  # standard deviation of their logarithms


def clean_text(config: Config, run_dir: RunDir, digests: dict[str, Any]) -> str:
    """Read the sources, clean the training text, and return the stage's key.

    Raises InputError if a source changed while it was read, so that its digest differs.
    """
    unused: dict[str, Any] = dict.fromkeys(("root", "max_length", "temperature"), True)
    unused["train"] = {"__all__": {"weight": True}}
    key = stage_key("text", config.data.model_dump(exclude=unused), config.seed, digests)
    if not is_done(run_dir.text, key):
        log.info("reading the corpus")
        prepare_text(config, run_dir.text, key)
        if input_digests(config.data) != digests:  # checkpoints would record digests of another text
            atomic.remove(run_dir.text)
            raise InputError("data: a text changed while it was read", "run the same command again")
    return key


def make_tokenizers(
    config: Config, run_dir: RunDir, text_key: str, pretrained: Pretrained
) -> tuple[TokenizerPair, dict[str, str]]:
    """Train the tokenizers on the cleaned training text only, or take given ones or those of a pretrained model.

    Returns them and the SHA-256 of each of their files. Raises InputError if checkpoints were made with other ones.
    """
    settings, owner = config.tokenizer, pretrained.tokenizer_owner
    given = TokenizerPair.given(settings, config.tags) if owner is None else None
    inputs: tuple[Any, ...] = (
        settings.model_dump(exclude={"bpe_dropout", "sampling_alpha"}),
        (text_key, config.augmentation.cases, config.tags) if given is None else given.files(),
    )
    key = stage_key("tokenizer", *(inputs if owner is None else (owner.identity, settings.shared)))
    if not is_done(run_dir.tokenizer, key):
        if owner is not None:
            log.info("using the tokenizer of %s; tokenizer.vocab_size has no effect", owner.path)
        tokenizers = pretrained.tokenizers() or _train_tokenizers(config, run_dir)
        refuse_other_tokenizer(run_dir, tokenizer_digests(tokenizers))
        with atomic.new_folder(run_dir.tokenizer, key=key) as folder:
            tokenizers.write(folder)
    files = {name: file["sha256"] for name, file in read_manifest(run_dir.tokenizer)["files"].items()}
    refuse_other_tokenizer(run_dir, files)  # a user may have replaced them
    tokenizers = TokenizerPair.load(run_dir.tokenizer, settings.shared)
    log.info("vocabulary: %d source and %d target pieces", tokenizers.source.vocab_size, tokenizers.target.vocab_size)
    return tokenizers, files


def _train_tokenizers(config: Config, run_dir: RunDir) -> TokenizerPair:
    settings = config.tokenizer
    log.info("training the tokenizer")
    source, target = (
        CasedLines(sample_text(run_dir, side, settings.train_pairs), config.augmentation.cases, only_language(codes))
        for side, codes in zip(SIDES, (config.data.source_lang, config.data.target_lang), strict=True)
    )
    return TokenizerPair.train(source, target, settings.vocab_size, settings.shared, config.tags, settings.type)


def sample_text(run_dir: RunDir, side: str, limit: int) -> TextFile:
    """Return one side of the cleaned training text; of a large text about `limit` evenly spaced lines."""
    pairs = json.loads(run_dir.prepared_counts.read_bytes())["pairs"]["train"]
    return TextFile(run_dir.text_file("train", side), -(-pairs // limit))


def encode(config: Config, run_dir: RunDir, tokenizers: TokenizerPair, files: Mapping[str, str], text_key: str) -> None:
    """Write the training and validation text as token ids; training pairs over data.max_length are dropped.

    The stage's key depends on the SHA-256 of the tokenizers' `files` and on the text's key.
    """
    form = SentenceFormat.of(config)
    for split, limit in (("train", config.data.max_length), ("valid", None)):
        key = stage_key("encoded", files, text_key, split, limit, form[:2])
        if not is_done(run_dir.encoded(split), key):
            log.info("encoding %s", split)
            text = (run_dir.text_file(split, "source"), run_dir.text_file(split, "target"))
            parts = read_parts(run_dir.prepared_counts, split)
            tagged = [(p.pairs, form.of_source(p.source_lang).tags(tokenizers, p.target_lang)) for p in parts]
            encode_corpus(text, tokenizers, run_dir.encoded(split), key, limit, tagged, source_format=form.source)


def align(config: Config, run_dir: RunDir, tokenizers: TokenizerPair) -> None:
    """Write the word alignments of the encoded training text, if training is guided by them."""
    if not config.training.guided_alignment:
        return
    key = stage_key("alignments", ALIGNMENTS_VERSION, read_manifest(run_dir.encoded("train"))["key"])
    if not is_done(run_dir.alignments, key):
        log.info("aligning the words of the training text")
        write_alignments(EncodedCorpus.open(run_dir.encoded("train")), tokenizers, run_dir.alignments, key)


def report_cleaning(config: Config, run_dir: RunDir) -> None:
    """Write and log the numbers of training pairs kept, and dropped by reason.

    Raises InputError if no pair is left, or none in one of the directions.
    """
    prepared = json.loads(run_dir.prepared_counts.read_bytes())
    encoded = read_counts(run_dir.encoded_counts)
    counts = {
        "kept": sum(encoded.kept),
        **{reason: count for reason, count in prepared["train"].items() if reason != "kept"},
        "longer than max_length": encoded.too_long,
    }
    atomic.write_json(run_dir.cleaning, counts)
    log.info("%s", cleaning_table(counts))
    log.info("validation pairs: %d, test pairs: %d", prepared["pairs"]["valid"], prepared["pairs"]["test"])
    if counts["kept"] == 0:
        message = f"data.train: none of its pairs is within data.max_length ({config.data.max_length} tokens)"
        raise InputError(message, "raise data.max_length")
    ends = np.cumsum(encoded.kept)
    corpus = EncodedCorpus.open(run_dir.encoded("train"))
    for source, left, end in zip(config.data.train, encoded.kept, ends, strict=True):
        if not left:
            log.warning("data.train: %s: none of its pairs is left to train on", source.name)
        elif _are_unrelated(corpus, end - left, end):
            message = "the lengths of sources and targets do not correlate, as those of translations do"
            log.warning("data.train: %s: %s; see `mt data check`", source.name, message)
    refuse_missing_directions(config.data, encoded.kept)
    for split in ("valid", "test"):
        covered = {part.direction for part in read_parts(run_dir.prepared_counts, split)}
        for pair in config.data.pairs if covered else ():
            if direction(config.data.own_source(pair[0]), pair[1]) not in covered:
                log.warning("data.%s: no pair %s, so no score covers that %s", split, *_named(config.data, *pair))


def _are_unrelated(corpus: EncodedCorpus, start: int, end: int) -> bool:
    """Report whether the lengths of pairs `start` to `end` do not correlate; of many pairs a sample is read."""
    indices = np.linspace(start, end - 1, min(end - start, _MAX_PAIRS)).astype(np.int64)
    sources, targets = map(np.log, corpus.lengths(indices))
    if len(indices) < _MIN_PAIRS or min(sources.std(), targets.std()) < _MIN_SPREAD:
        return False
    return float(np.corrcoef(sources, targets)[0, 1]) < CHANCE_CORRELATION


def refuse_missing_directions(data: DataConfig, kept: Sequence[int]) -> None:
    """Raise InputError for a direction without pairs; `kept` counts those left in each training source."""
    left = {data.languages_of(source) for n, source in zip(kept, data.train, strict=True) if n}
    for pair in data.pairs:
        if pair not in left:
            named, unit = _named(data, *pair)
            remedy = f"remove {pair[1]} from data.target_lang" if unit == "language" else "remove its sources"
            hint = f"look at what cleaning and data.max_length dropped, or {remedy}"
            raise InputError(f"data.train: no pair {named} is left to train on", hint)


def _named(data: DataConfig, source: str, target: str) -> tuple[str, str]:
    """Return a direction as a message names it, and the word for it: direction or, with one source, language."""
    several = len(data.source_lang) > 1
    return (f"from {source} into {target}", "direction") if several else (f"into {target}", "language")
