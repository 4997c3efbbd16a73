"""Ensemble decoding: each step averages the distributions of several models.

B sentences   W hypotheses per sentence   V target vocabulary
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mt.model.build import TranslationModel
from mt.model.decoder_state import DecoderState


@dataclass(frozen=True)
class EnsembleState:
    """The decoder state of each model."""

    states: Sequence[DecoderState]

    def select(self, rows: Tensor | None, origins: Tensor) -> None:
        """Reorder all states as `DecoderState.select` does."""
        for state in self.states:
            state.select(rows, origins)


class Ensemble(nn.Module):
    """Several models with the decoding interface of one.

    Args:
        models: with the same vocabularies and on one device; their shapes may differ.
    """

    def __init__(self, models: Sequence[TranslationModel]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)
        self._models = list(models)
        limits = [model.max_positions for model in models if model.max_positions is not None]
        self.max_positions = min(limits, default=None)
        self.source_format = models[0].source_format

    @property
    def first(self) -> TranslationModel:
        return self._models[0]

    @property
    def device(self) -> torch.device:
        return self.first.device

    def start(self, src_tokens: Tensor) -> EnsembleState:
        """Encode source tokens (B, S) with every model."""
        return EnsembleState([model.start(src_tokens) for model in self._models])

    def step(self, tokens: Tensor, state: EnsembleState) -> Tensor:
        """Return the logarithm of the mean probability (B * W, V) of the token after `tokens` (B, W)."""
        log_probs = [
            model.step(tokens, model_state).float().log_softmax(dim=-1)
            for model, model_state in zip(self._models, state.states, strict=True)
        ]
        return torch.stack(log_probs).logsumexp(dim=0) - math.log(len(log_probs))
