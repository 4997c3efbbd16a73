"""The gradients of one step: of the mean loss over all its target tokens, however the work is split."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mt.config import Config
from mt.console import log
from mt.data.batching import Batch
from mt.errors import MachineError, is_out_of_memory
from mt.model.build import TranslationModel
from mt.model.packing import Packing, send
from mt.system.distributed import SINGLE_PROCESS, Distributed, explain_lost_process
from mt.training.optimization import autocast, seed_dropout
from mt.training.sharding import Objective, distributed, gradient_sync

MAX_PIECES = 64  # a batch that does not fit in so many pieces never will


@dataclass(frozen=True)
class StepLoss:
    """What the forward passes of a step gave.

    Attributes:
        sums: (2,), on the device: the smoothed loss and the plain negative log-likelihood of all target tokens, in
            nats, of all processes.
        n_target, n_tokens: target tokens, and source and target tokens, padding not counted.
        pieces: into how many each micro-batch had to be split for lack of memory; usually 1.
    """

    sums: Tensor
    n_target: int
    n_tokens: int
    pieces: int


class Gradients:
    """Adds a step's gradients up in the model's parameters.

    Args:
        config: the run's configuration.
        model: what learns; with `training.sharding: fsdp` its parameters become shards.
        distributed: the processes that work on each step together.
        teachers: models whose word probabilities it learns, too.
    """

    def __init__(
        self,
        config: Config,
        model: TranslationModel,
        distributed: Distributed = SINGLE_PROCESS,
        teachers: Sequence[TranslationModel] = (),
    ) -> None:
        self._config = config
        self._model = model
        self._distributed = distributed
        self._device = model.device
        self._objective = distributed(Objective(model, config.training, teachers), config.training, distributed)

    def add(self, micro_batches: Sequence[Batch], step: int) -> StepLoss:
        """Computes the gradients of some micro-batches; they must be zero before.

        Where memory runs out, the step starts again with every micro-batch in twice as many pieces: an interrupted
        backward pass may have left half a gradient behind.

        Args:
            micro_batches: what the step learns from, or this process's share of it.
            step: updates done so far; with the seed it decides the dropout.

        Raises:
            MachineError: even the smallest pieces do not fit.
        """
        n_target = sum(batch.n_tgt for batch in micro_batches)
        n_tokens = n_target + sum(batch.n_src for batch in micro_batches)
        pieces = 1
        while True:
            try:
                sums = self._sums(micro_batches, step, n_target, pieces)
                return StepLoss(self._distributed.all_reduce(sums), n_target, n_tokens, pieces)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                if self._distributed.world_size > 1:  # the others wait for gradients that it was about to send
                    raise MachineError(
                        f"out of memory at step {step + 1} in process {self._distributed.rank} of {self._distributed.world_size}",
                        "start more processes to go on; or lower training.max_tokens, under another name",
                    ) from None
            # Outside of the `except`: the exception's traceback would keep the tensors alive.
            self._model.zero_grad(set_to_none=True)
            if self._device.type == "cuda":
                torch.cuda.empty_cache()
            pieces *= 2
            if pieces > MAX_PIECES:
                raise MachineError(
                    f"out of memory at step {step + 1}, even with every batch in {MAX_PIECES} pieces",
                    "lower training.max_tokens or data.max_length, or take a smaller model",
                )
            log.warning("step %d: out of memory; again with every batch in %d pieces", step + 1, pieces)

    def _sums(self, micro_batches: Sequence[Batch], step: int, n_target: int, pieces: int) -> Tensor:
        sums = torch.zeros(2, device=self._device)
        work = [(i, j) for i, batch in enumerate(micro_batches) for j in range(min(pieces, len(batch.src_tokens)))]
        for index, piece in work:
            seed_dropout(self._config.seed, step, index, self._distributed.rank + self._distributed.world_size * piece)
            with gradient_sync(self._objective, wanted=(index, piece) == work[-1]):
                sums += self._backward(_every(micro_batches[index], piece, pieces), n_target)
        return sums

    def _backward(self, batch: Batch, n_target: int) -> Tensor:
        """One forward and backward pass; returns the sums of loss and likelihood (2,)."""
        training = self._config.training
        src_tokens, tgt_in, tgt_out = map(torch.from_numpy, (batch.src_tokens, batch.tgt_in, batch.tgt_out))
        # Before they go to a GPU, where counting would wait for all work given to it so far.
        src, tgt = Packing.of(src_tokens), Packing.of(tgt_in)
        labels = tgt.pack(tgt_out)
        if training.r_drop > 0:  # two passes that differ in their dropout, as one batch
            src_tokens, tgt_in = src_tokens.repeat(2, 1), tgt_in.repeat(2, 1)
            src, tgt = Packing.of(src_tokens), Packing.of(tgt_in)
        src_tokens, tgt_in, labels = (send(x, self._device) for x in (src_tokens, tgt_in, labels))
        src, tgt = src.to(self._device), tgt.to(self._device)
        with autocast(self._device, training.precision), explain_lost_process():
            loss, nll = self._objective(src_tokens, tgt_in, labels, src, tgt)
            # Torch takes the mean of the processes' gradients, where their sum is wanted.
            torch.autograd.backward(loss * batch.weight * self._distributed.world_size / n_target)
        return torch.stack([loss.detach(), nll]) * batch.weight


def _every(batch: Batch, start: int, stride: int) -> Batch:
    """Every `stride`-th sentence of a batch."""
    if stride == 1:
        return batch
    rows = slice(start, None, stride)
    return replace(batch, src_tokens=batch.src_tokens[rows], tgt_in=batch.tgt_in[rows], tgt_out=batch.tgt_out[rows])
