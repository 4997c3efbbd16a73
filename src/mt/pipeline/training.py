"""Construction of a run's trainer from data, model and validation set, and checks before any work."""

import importlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch

from mt.bundle.model_folder import build_model
from mt.bundle.pretrained import Pretrained
from mt.config import Config
from mt.config.schema import unused_keys
from mt.console import log
from mt.data.augmented_corpus import AugmentedCorpus
from mt.data.batching import TrainingCorpus
from mt.data.bidirectional import BidirectionalCorpus
from mt.data.encode import read_counts
from mt.data.eval_texts import read_texts
from mt.data.guided_alignment import Alignments
from mt.data.lexicon import LEXICON_PAIRS, Side, word_translations
from mt.data.mixture import training_shares
from mt.data.subword_sampling import SampledCorpus, Segmenter, make_segmenter
from mt.data.token_store import SIDES, EncodedCorpus
from mt.data.tokenizer_kinds import TokenizerPair
from mt.errors import InputError
from mt.metrics.scores import bleu_tokenizer, refuse_missing_tokenizer
from mt.model.build import TranslationModel, build
from mt.pipeline.data import sample_text
from mt.storage.run_dir import RunDir
from mt.system.distributed import SINGLE_PROCESS, Distributed
from mt.text.languages import BACK_TRANSLATION_TAG
from mt.training.trainer import Trainer
from mt.training.validation import Validator


def check_requirements(config: Config, distributed: Distributed = SINGLE_PROCESS, place: str = "") -> None:
    """Check what training will need later, and warn of unused settings; the warnings begin with `place`.

    Raises InputError if a package is missing, several processes were started with `training.sharding: none`, or nothing
    is left to train.
    """
    if distributed.world_size > 1 and config.training.sharding == "none":  # each would train its own model
        message = f"training.sharding: it is none, but {distributed.world_size} processes were started"
        raise InputError(message, "set it to ddp, or start one process")
    if config.training.wandb:
        _require_wandb()
    scoring = config.evaluation.bleu_tokenize
    refuse_missing_tokenizer(*(bleu_tokenizer(scoring, lang) for lang in config.data.target_lang))
    if config.training.freeze:
        with torch.device("meta"):
            freeze(build(config.model, 8, 8, config.data.max_length, config.tokenizer.shared), config.training.freeze)
    if distributed.is_main:
        for sentence in unused_keys(config):
            log.warning("%s%s", place, sentence)


def _require_wandb() -> None:
    try:
        # A folder `wandb`, as the package itself writes, can be imported, too.
        importlib.import_module("wandb").init  # noqa: B018
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"training.wandb: the package wandb cannot be imported ({error})",
            "pip install 'mt-train[wandb]', or set it to false",
        ) from None


def make_trainer(
    config: Config,
    run_dir: RunDir,
    tokenizers: TokenizerPair,
    device: torch.device,
    pretrained: Pretrained,
    distributed: Distributed = SINGLE_PROCESS,
    origin: Mapping[str, Any] | None = None,
) -> Trainer:
    """Build the trainer; the weights start from the seed, from a pretrained model, or from the newest checkpoint.

    The run folder holds the encoded data, and checkpoints to resume from; these record `origin`.
    """
    torch.manual_seed(config.seed)
    model = build_model(config, tokenizers).to(device)
    if not run_dir.checkpoint_steps():
        pretrained.initialize(model, tokenizers)
    freeze(model, config.training.freeze)
    log.info("model: %s parameters, on %s", f"{sum(p.numel() for p in model.parameters()):,}", device)
    valid_texts = read_texts(run_dir, "valid", config.data)
    valid = EncodedCorpus.open(run_dir.encoded("valid"), config.model.source_format)
    validator = Validator(config, valid, valid_texts, tokenizers, distributed)
    data = config.data
    weights, languages = [source.weight for source in data.train], list(map(data.languages_of, data.train))
    kept = read_counts(run_dir.encoded_counts).kept
    return Trainer(
        config,
        run_dir,
        model,
        _training_corpus(config, run_dir, tokenizers),
        validator,
        distributed,
        training_shares(kept, weights, data.temperature, languages),
        lambda: pretrained.load_teachers(tokenizers, device),
        origin,
        Alignments.open(run_dir.alignments, tokenizers) if config.training.guided_alignment else None,
    )


def freeze(model: TranslationModel, parts: Collection[str]) -> None:
    """Freeze the weights of some parts of a model.

    Raises InputError if the model has no such part, or nothing is left to train.
    """
    frozen = set()
    for name, parameter in model.named_parameters(remove_duplicate=False):
        part = name.partition(".")[0].removesuffix("_norm")
        part = "decoder" if part in ("layers", "norm") else part  # of a decoder-only model
        if part in parts:
            parameter.requires_grad_(False)
            frozen.add(part)
    if missing := set(parts) - frozen:
        raise InputError(f"training.freeze: this model has no part {min(missing)}", "leave it out")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        message = "training.freeze: nothing is left to train, as tied matrices are frozen, too"
        raise InputError(message, "name fewer parts")


def _training_corpus(config: Config, run_dir: RunDir, tokenizers: TokenizerPair) -> TrainingCorpus:
    folder, max_length = run_dir.encoded("train"), config.data.max_length
    encoded = EncodedCorpus.open(folder, config.model.source_format)
    corpus: TrainingCorpus = encoded
    segmenters: list[Segmenter] = []
    if config.tokenizer.is_sampled:
        segmenters = [make_segmenter(tokenizer, config.tokenizer) for tokenizer in tokenizers]
        corpus = SampledCorpus(encoded, tokenizers, segmenters, config.seed, max_length, folder.parent)
    if epochs := config.training.bidirectional_epochs:
        # Reversed, a tagged pair would teach the model to write the tag of back-translations.
        tagged = encoded.begin_with(tokenizers.source.encode(BACK_TRANSLATION_TAG))
        corpus = BidirectionalCorpus(corpus, epochs, config.seed, max_length, tagged)
    if not (shares := config.augmentation.shares):
        return corpus
    lexicon: dict[str, list[str]] = {}
    if "terms" in shares:
        log.info("learning a lexicon for augmentation.terms")
        lexicon = word_translations(*(Side(sample_text(run_dir, side, LEXICON_PAIRS)) for side in SIDES))
    languages = list(map(config.data.languages_of, config.data.train))
    ends = np.cumsum(read_counts(run_dir.encoded_counts).kept).tolist()
    return AugmentedCorpus(corpus, tokenizers, shares, config.seed, max_length, languages, segmenters, lexicon, ends)
