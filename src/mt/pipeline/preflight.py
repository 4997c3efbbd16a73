"""What a training needs in its middle or at its end, looked for before it begins."""

from mt.config import Config
from mt.config.unused import unused_keys
from mt.console import log
from mt.extras.export.in_run import require_exports
from mt.metrics.scores import bleu_tokenizer, refuse_missing_tokenizer
from mt.system.distributed import SINGLE_PROCESS, Distributed
from mt.training.sharding import refuse_unsharded
from mt.training.trackers import refuse_missing_wandb


def check_requirements(config: Config, distributed: Distributed = SINGLE_PROCESS) -> None:
    """Looks for the packages that a configuration asks for, and tells which settings do nothing.

    Raises:
        InputError: one is missing, or there are several processes that nothing joins.
    """
    refuse_unsharded(config.training, distributed)
    refuse_missing_wandb(config.training)
    refuse_missing_tokenizer(
        *(bleu_tokenizer(config.evaluation.bleu_tokenize, lang) for lang in config.data.target_lang)
    )
    require_exports(config)
    if distributed.is_main:
        for sentence in unused_keys(config):
            log.warning("%s", sentence)
