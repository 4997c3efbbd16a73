"""One optimiser update: from micro-batches to gradients to new weights."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mt.config import Config
from mt.console import log
from mt.data.batching import Batch
from mt.errors import InputError, MachineError, is_out_of_memory
from mt.model.attention import Links
from mt.model.build import TranslationModel
from mt.model.packing import PAD_ID, Packing, send
from mt.system.distributed import SINGLE_PROCESS, Distributed
from mt.training.compilation import refuse_uncompilable
from mt.training.cuda_graphs import GraphedPasses, fill_up
from mt.training.objective import Objective
from mt.training.optimizers import learning_rate, make_optimizer
from mt.training.precision import LossScale, autocast
from mt.training.sharding import full_tensor, gradient_sync, wrap

MAX_PIECES = 64  # of a micro-batch; if these do not fit into memory, smaller ones will not either


@dataclass(frozen=True)
class StepLoss:
    """The losses of a step's forward passes.

    Attributes:
        sums: (3,), on the device: the smoothed loss and the plain negative log-likelihood of all target tokens, and
            the loss of guided alignment, in nats, over all ranks.
        n_target, n_tokens: target tokens, and source and target tokens, padding not counted.
        pieces: the number of pieces that each micro-batch was split into; 1 unless memory ran out.
    """

    sums: Tensor
    n_target: int
    n_tokens: int
    pieces: int


class TrainStep:
    """Updates a model from micro-batches.

    Args:
        config: the run's configuration.
        model: the model to train; with `training.sharding: fsdp` its parameters become shards.
        distributed: the ranks that share each step.
        load_teachers: loads the models to distil from.
        precision: the number format of matrix products: fp32, bf16 or fp16.

    Attributes:
        optimizer: holds the moments, for checkpoints.
        loss_scale: with fp16, the factor on the loss.
        pieces: the number of pieces that each micro-batch is split into; it doubles when memory runs out.
        settings: the `training` section; its `max_steps` may change.
        reads_late: the loss is read from the device only after the next step was launched.
    """

    def __init__(
        self,
        config: Config,
        model: TranslationModel,
        distributed: Distributed = SINGLE_PROCESS,
        load_teachers: Callable[[], Sequence[TranslationModel]] = tuple,
        precision: str = "fp32",
    ) -> None:
        self._config = config
        self.settings = config.training
        self._precision = precision
        self._model = model
        self._distributed = distributed
        self._device = model.device
        # First, since FSDP replaces the parameters that the optimiser will hold.
        objective = Objective(model, config.training, load_teachers, precision)
        is_alone, sharding = distributed.world_size == 1, config.training.sharding
        self._objective = objective if is_alone else wrap(objective, sharding, distributed.world_size, precision)
        self.optimizer = make_optimizer(model, config.training)
        self.loss_scale = LossScale(self._device) if precision == "fp16" else None
        self.pieces = 1
        use_graphs = config.training.cuda_graphs and self._device.type == "cuda" and is_alone
        self._graphs = GraphedPasses(self._run_pass, model) if use_graphs else None
        # A CPU's work is done when a call returns. On a GPU, reading a result at once would stall the queue.
        self.reads_late = self._device.type == "cuda"

    def __call__(self, micro_batches: Sequence[Batch], step: int) -> tuple[StepLoss, Tensor]:
        """Make one update: gradients, clipping, optimiser.

        Args:
            micro_batches: this rank's shards of the step's batches.
            step: the number of updates done so far.

        Returns:
            the losses, and the norm of the gradient before clipping, a scalar on the device.

        Raises:
            MachineError: out of memory even in the smallest pieces.
        """
        settings = self.settings
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(step + 1, settings, self._config.model.d_model)
        loss = self.accumulate_gradients(micro_batches, step)
        if self.loss_scale is not None:
            self.loss_scale.unscale(self._model)
        max_norm = settings.clip_norm or math.inf
        norm = full_tensor(torch.nn.utils.clip_grad_norm_(self._model.parameters(), max_norm))
        self._update_if_finite(loss.sums[0] + norm)
        self.zero_gradients()
        return loss, norm

    def zero_gradients(self) -> None:
        """Free the gradients, or zero them in place where CUDA graphs add to them."""
        self.optimizer.zero_grad(set_to_none=self._graphs is None)

    def _update_if_finite(self, total: Tensor) -> None:
        is_finite = total.isfinite().float()
        if self.loss_scale is not None:
            self.loss_scale.update(is_finite)
        if self.reads_late:
            self.optimizer.found_inf = 1.0 - is_finite  # type: ignore[union-attr]  # which `step` reads on the device
            self.optimizer.step()
        elif is_finite:
            self.optimizer.step()

    def accumulate_gradients(self, micro_batches: Sequence[Batch], step: int) -> StepLoss:
        """Add up the gradients of the mean loss over all target tokens of the step; they must be zero before.

        When memory runs out, the step starts again with each micro-batch in twice as many pieces, because an
        interrupted backward pass may leave half a gradient behind. Later steps are split from the start.

        Raises:
            InputError: `training.deterministic` is set, and an operator has no deterministic implementation.
            MachineError: out of memory even in the smallest pieces, or torch.compile failed.
        """
        n_target = sum(batch.n_tgt for batch in micro_batches)
        n_tokens = n_target + sum(batch.n_src for batch in micro_batches)
        while True:
            try:
                sums = self._forward_backward(micro_batches, step, n_target)
                return StepLoss(self._distributed.all_reduce(sums), n_target, n_tokens, self.pieces)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    refuse_uncompilable(error)
                    _refuse_nondeterminism(error)
                    raise
                if self._distributed.world_size > 1:  # the other ranks wait for this one's gradients
                    raise MachineError(
                        f"out of memory at step {step + 1} in process {self._distributed.rank} of "
                        f"{self._distributed.world_size}",
                        "resume with more processes; or lower training.max_tokens and use another name",
                    ) from None
            # Outside of the `except`, whose traceback would keep the tensors alive.
            self._graphs = None  # pieces have other shapes
            self._model.zero_grad(set_to_none=True)
            if self._device.type == "cuda":
                torch.cuda.empty_cache()
            if 2 * self.pieces > MAX_PIECES:
                raise MachineError(
                    f"out of memory at step {step + 1}, even with every batch in {MAX_PIECES} pieces",
                    "lower training.max_tokens or data.max_length, or choose a smaller model",
                )
            self.pieces *= 2
            log.warning("step %d: out of memory; from here on each batch is split into %d", step + 1, self.pieces)

    def _forward_backward(self, micro_batches: Sequence[Batch], step: int, n_target: int) -> Tensor:
        sums, pieces = torch.zeros(3, device=self._device), self.pieces
        passes = [(i, j) for i, batch in enumerate(micro_batches) for j in range(self._n_passes(batch))]
        for index, piece in passes:
            seed_dropout(self._config.seed, step, index, self._distributed.rank + self._distributed.world_size * piece)
            with gradient_sync(self._objective, enabled=(index, piece) == passes[-1]):
                sums += self._backward(_piece(micro_batches[index], piece, pieces), n_target)
        return sums

    def _n_passes(self, batch: Batch) -> int:
        # In every pass FSDP gathers the layers from all ranks, so all need the same number of passes.
        is_sharded = self._distributed.world_size > 1 and self._config.training.sharding == "fsdp"
        return self.pieces if is_sharded else min(self.pieces, len(batch.src_tokens))

    def _backward(self, batch: Batch, n_target: int) -> Tensor:
        """Run one forward and backward pass; return the sums of `StepLoss` (3,)."""
        settings, graphs = self._config.training, self._graphs if self.pieces == 1 else None
        if graphs is not None:
            batch = fill_up(batch, settings.max_tokens, self._model.max_positions)
        src_tokens, tgt_in, tgt_out = map(torch.from_numpy, (batch.src_tokens, batch.tgt_in, batch.tgt_out))
        labels, aligned = tgt_out[tgt_in != PAD_ID], batch.aligned
        if settings.r_drop > 0:  # two passes that differ in their dropout, as one batch
            src_tokens, tgt_in = src_tokens.repeat(2, 1), tgt_in.repeat(2, 1)
            aligned = None if aligned is None else np.concatenate([aligned] * 2)
        # Packed on the CPU: counting tokens on a GPU would wait for all its queued work.
        src, tgt = Packing.of(src_tokens, self._device), Packing.of(tgt_in, self._device)
        # torch averages the gradients of the ranks; times their number, the mean is the sum.
        factor = torch.tensor(batch.weight * self._distributed.world_size / n_target)
        links = () if aligned is None else _links(aligned, 2 if settings.r_drop > 0 else 1)
        tokens, packings = send((src_tokens, tgt_in, labels, *links, factor), (src, tgt), self._device)
        sums = (self._run_pass if graphs is None else graphs)(tokens, packings)
        return sums * batch.weight

    def _run_pass(self, tokens: Sequence[Tensor], packings: Sequence[Packing]) -> Tensor:
        """Add the gradients of the loss times a factor, the last of `tokens`; return the sums of `StepLoss` (3,)."""
        src_tokens, tgt_in, labels, *links, factor = tokens
        with autocast(self._device, self._precision):
            loss, nll, alignment = self._objective(src_tokens, tgt_in, labels, *packings, *links)
        scaled = (loss + self.settings.guided_alignment * alignment if links else loss) * factor
        torch.autograd.backward(scaled if self.loss_scale is None else scaled * self.loss_scale.scale)
        return torch.stack([loss.detach(), nll, alignment.detach()])


def seed_dropout(seed: int, *position: int) -> None:
    """Seed torch's generator from a position in training, so that a resumed step draws the same dropout."""
    torch.manual_seed(int(np.random.SeedSequence([seed, *position]).generate_state(1, np.uint64)[0]) >> 1)


def _refuse_nondeterminism(error: Exception) -> None:
    """Raise an `InputError` if torch reports an operator that is not deterministic."""
    operator, phrase, _ = str(error).partition(" does not have a deterministic implementation")
    if phrase:
        raise InputError(
            f"training.deterministic: {operator} has no deterministic implementation on this device",
            "set it to false; a resume then differs in the last bits",
        ) from error


def _piece(batch: Batch, index: int, pieces: int) -> Batch:
    """Return one of several pieces of a batch; one without sentences has a placeholder of weight 0."""
    if pieces == 1:
        return batch
    rows = slice(index, None, pieces)
    if index >= len(batch.src_tokens):
        rows, batch = slice(1), replace(batch, weight=0.0)
    return replace(
        batch,
        src_tokens=batch.src_tokens[rows],
        tgt_in=batch.tgt_in[rows],
        tgt_out=batch.tgt_out[rows],
        aligned=None if batch.aligned is None else batch.aligned[rows],
    )


def _links(aligned: NDArray[np.bool_], n_passes: int) -> Links:
    """Convert alignments (B, T, S), True at aligned pairs; a target position's links share a weight of 1 / n_passes."""
    positions = np.flatnonzero(aligned)
    weights = 1 / (n_passes * np.maximum(aligned.sum(axis=2), 1)).ravel()[positions // aligned.shape[2]]
    return Links(torch.from_numpy(positions), torch.from_numpy(weights.astype(np.float32)))
