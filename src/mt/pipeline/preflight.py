"""Checks before a training: packages, process groups, frozen parts, unused settings."""

import torch

from mt.config import Config
from mt.config.schema import unused_keys
from mt.console import log
from mt.errors import InputError
from mt.metrics.scores import bleu_tokenizer, refuse_missing_tokenizer
from mt.model.build import build
from mt.pipeline.training import freeze
from mt.storage.run_dir import RunDir
from mt.system.distributed import SINGLE_PROCESS, Distributed
from mt.training.metrics_log import refuse_missing_wandb
from mt.training.sharding import refuse_unsharded


def check_requirements(config: Config, distributed: Distributed = SINGLE_PROCESS) -> None:
    """Check what training will need later: packages, process groups, weights to train; warn of unused settings.

    Raises:
        InputError: a package is missing, several processes were started with `training.sharding: none`, or nothing is
            left to train.
    """
    refuse_unsharded(config.training, distributed)
    refuse_missing_wandb(config.training)
    refuse_missing_tokenizer(
        *(bleu_tokenizer(config.evaluation.bleu_tokenize, lang) for lang in config.data.target_lang)
    )
    if config.training.freeze:
        with torch.device("meta"):
            freeze(build(config.model, 8, 8, config.data.max_length, config.tokenizer.shared), config.training.freeze)
    if distributed.is_main:
        for sentence in unused_keys(config):
            log.warning("%s", sentence)


def refuse_pipeline(run_dir: RunDir) -> None:
    """Refuse to train in the folder of a pipeline."""
    if run_dir.pipeline.is_dir():
        raise InputError(f"{run_dir.root} is the folder of a pipeline", "choose another name")
