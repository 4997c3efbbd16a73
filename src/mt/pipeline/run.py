"""A run in time order: preflight, data, tokenizer, encoding, training, evaluation, model folder.

Each stage records a key of its inputs, and is skipped while its output carries that key.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import torch

from mt.bundle.pretrained import Pretrained
from mt.config import Config, dump_config
from mt.console import logged_to
from mt.data.prepare import input_digests, warn_of_shared_text
from mt.data.tokenizer_kinds import TokenizerPair
from mt.pipeline.data import align, clean_text, encode, make_tokenizers, report_cleaning
from mt.pipeline.finish import finish, summary
from mt.pipeline.resume import recorded_inputs, refuse_changes
from mt.pipeline.training import check_requirements, make_trainer
from mt.storage import atomic, lock
from mt.storage.find_model import refuse_pipeline
from mt.storage.run_dir import RunDir
from mt.system.devices import choose_device, deterministic_algorithms
from mt.system.distributed import SINGLE_PROCESS, Distributed, refuse_mixed_devices
from mt.training.metrics_log import Tracker


def run(
    config: Config,
    runs: Path,
    distributed: Distributed = SINGLE_PROCESS,
    afterwards: Callable[[Config, RunDir], Iterable[str]] = lambda *_: (),
    listener: Callable[[Mapping[str, Any]], object] | None = None,
    start_trackers: Callable[[Config, RunDir], Sequence[Tracker]] = lambda *_: (),
) -> str:
    """Run every stage that is not done yet.

    Rank 0 prepares the data while the other ranks wait; all train and translate together. Returns the summary to print,
    empty in other ranks than 0. Raises MtError with its exit code.

    Args:
        config: the configuration.
        runs: the folder of run folders; on several machines it is shared.
        distributed: the ranks of this training.
        afterwards: extras for rank 0 to write once the model folder is complete; yields lines of the summary.
        listener: called in rank 0 with each event of the metrics log, as the training goes.
        start_trackers: called in rank 0 before the first event.
    """
    check_requirements(config, distributed)
    run_dir = RunDir(runs / config.name)
    refuse_pipeline(run_dir.root, "choose another name")
    with ExitStack() as stack:
        if config.training.deterministic:
            stack.enter_context(deterministic_algorithms())
        local_rank = distributed.local_rank if distributed.world_size > 1 else None
        device = choose_device(config.training.device, local_rank=local_rank)
        refuse_mixed_devices(device.type, distributed)
        # Training seeds torch's global generators, and a caller's own draws must not repeat.
        stack.enter_context(torch.random.fork_rng([device] if device.type == "cuda" else []))
        if distributed.is_main:
            stack.enter_context(lock.exclusive(run_dir.lock))
            stack.enter_context(logged_to(run_dir.log))
        prepared = prepare(config, run_dir, runs) if distributed.is_main else (Pretrained(config), {})
        pretrained, origin = distributed.broadcast(prepared)
        tokenizers = TokenizerPair.load(run_dir.tokenizer, config.tokenizer.shared)
        trainer = make_trainer(config, run_dir, tokenizers, device, pretrained, distributed, origin)
        trainer.metrics.listener = listener or trainer.metrics.listener
        trainer.metrics.start_trackers = partial(start_trackers, config, run_dir)
        with closing(trainer.metrics):
            state = trainer.run()
            finish(config, run_dir, tokenizers, trainer, state)
        if not distributed.is_main:
            return ""
        return "\n".join([summary(config, run_dir, state), *afterwards(config, run_dir)])


def prepare(config: Config, run_dir: RunDir, runs: Path) -> tuple[Pretrained, dict[str, Any]]:
    """Run the stages before training: checked inputs, clean text, tokenizers, token ids, word alignments.

    Returns the models to start and learn from, and the origin that checkpoints record.
    """
    data = (run_dir.text.parent, run_dir.encoded("train").parent)
    for folder in (run_dir.root, *data, run_dir.checkpoints, run_dir.exports, run_dir.scores):
        atomic.remove_partials(folder)
    pretrained = Pretrained.find(config, runs, recorded_inputs(run_dir))
    texts = input_digests(config.data)
    warn_of_shared_text(config.data)
    digests = texts | pretrained.identities()
    refuse_changes(run_dir, config, digests)
    if not run_dir.checkpoint_steps():
        pretrained.check()
        if not run_dir.has_damaged_checkpoints():
            for record in (run_dir.length, run_dir.precision):  # of an earlier training
                record.unlink(missing_ok=True)
    atomic.write_text(run_dir.config, dump_config(config))

    text_key = clean_text(config, run_dir, texts)
    tokenizers, files = make_tokenizers(config, run_dir, text_key, pretrained)
    encode(config, run_dir, tokenizers, files, text_key)
    report_cleaning(config, run_dir)
    align(config, run_dir, tokenizers)
    return pretrained, {"inputs": digests, "tokenizer": files, "config": dump_config(config)}
