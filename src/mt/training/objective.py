"""The training objective: cross-entropy, with R-Drop, word-level distillation or guided alignment where configured."""

from collections.abc import Callable, Sequence
from functools import cache, partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mt.config import TrainingConfig
from mt.model.attention import Links
from mt.model.build import TranslationModel
from mt.model.loss import distillation_cross_entropy, fused, fused_cross_entropy, r_drop_cross_entropy, with_bias
from mt.model.packing import Packing
from mt.model.transformer import Transformer
from mt.training.compilation import compile_layers, train_with


class Objective(nn.Module):
    """A model with its loss, as one module, since DDP and FSDP act around a module's call.

    Args:
        model: the model to train.
        config: chooses the loss.
        load_teachers: loads the models to distil from, at the first step; a finished training does not need them.
        precision: the number format of matrix products, which the caller sets by autocast.
    """

    def __init__(
        self,
        model: TranslationModel,
        config: TrainingConfig,
        load_teachers: Callable[[], Sequence[TranslationModel]] = tuple,
        precision: str = "fp32",
    ) -> None:
        super().__init__()
        self.model = model
        # A function, which hides the teachers' parameters from the optimiser and from DDP.
        self._teachers = cache(load_teachers)
        self._smoothing, self._r_drop = config.label_smoothing, config.r_drop
        self._distill_weight = config.distill_weight
        compile_layers(model, config.compile, precision)
        # Each layer keeps only its input for the backward pass, which computes the rest again, with the same dropout
        # (Chen et al. 2016, arXiv:1604.06174).
        for layer in model.blocks if config.recompute else ():
            train_with(layer, partial(checkpoint, layer.forward, use_reentrant=False))

    def forward(
        self, src_tokens: Tensor, tgt_in: Tensor, labels: Tensor, src: Packing, tgt: Packing, *links: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the loss, the negative log-likelihood, and the loss of attention against word alignments, each a sum.

        Tokens are (B, S) and (B, T), labels (N,); `links` are the fields of `Links`, without which the last loss is 0.
        """
        inputs = src_tokens, tgt_in, src, tgt
        if links:
            assert isinstance(self.model, Transformer)
            states, alignment = self.model.guided_states(*inputs, Links(*links))  # (N, D)
        else:
            states = self.model.states(*inputs)  # (N, D)
            alignment = states.new_zeros((), dtype=torch.float32)
        return *self._translation_loss(states, labels, inputs), alignment

    def _translation_loss(
        self, states: Tensor, labels: Tensor, inputs: tuple[Tensor, Tensor, Packing, Packing]
    ) -> tuple[Tensor, Tensor]:
        states, weight = with_bias(states, self.model.output)  # (N, D), (V, D)
        if self._r_drop > 0:
            return fused(r_drop_cross_entropy, states, weight, labels, self._smoothing, self._r_drop)
        if teachers := self._teachers():
            with torch.no_grad():
                teacher_states = [with_bias(teacher.states(*inputs), teacher.output) for teacher in teachers]
            arguments = states, weight, labels, self._smoothing, teacher_states, self._distill_weight
            return fused(distillation_cross_entropy, *arguments)
        return fused_cross_entropy(states, weight, labels, self._smoothing)
