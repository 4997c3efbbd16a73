"""Checks before a training: packages, process groups, unused settings."""

from mt.config import Config
from mt.config.unused import unused_keys
from mt.console import log
from mt.metrics.scores import bleu_tokenizer, refuse_missing_tokenizer
from mt.system.distributed import SINGLE_PROCESS, Distributed
from mt.training.sharding import refuse_unsharded
from mt.training.trackers import refuse_missing_wandb


def check_requirements(config: Config, distributed: Distributed = SINGLE_PROCESS) -> None:
    """Check what training will need later: packages and process groups; warn of settings without effect.

    Raises:
        InputError: a package is missing, or several processes were started with `training.sharding: none`.
    """
    refuse_unsharded(config.training, distributed)
    refuse_missing_wandb(config.training)
    refuse_missing_tokenizer(
        *(bleu_tokenizer(config.evaluation.bleu_tokenize, lang) for lang in config.data.target_lang)
    )
    if distributed.is_main:
        for sentence in unused_keys(config):
            log.warning("%s", sentence)
