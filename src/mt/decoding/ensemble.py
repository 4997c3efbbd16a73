"""Several models that translate as one: at each step the mean of their distributions decides.

B sentences   W hypotheses a sentence   V target vocabulary
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mt.model.build import TranslationModel
from mt.model.decoder_state import DecoderState


class EnsembleState:
    """What each model carries along."""

    def __init__(self, states: Sequence[DecoderState]) -> None:
        self.states = states

    @property
    def position(self) -> int:
        return self.states[0].position

    def select(self, rows: Tensor | None, origins: Tensor) -> None:
        """As `DecoderState.select`."""
        for state in self.states:
            state.select(rows, origins)


class Ensemble(nn.Module):
    """Looks like one Transformer to a search.

    Args:
        models: with the same vocabularies, on one device; their shapes may differ.
    """

    def __init__(self, models: Sequence[TranslationModel]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)
        self._models = list(models)
        ends = [model.max_positions for model in models if model.max_positions is not None]
        self.max_positions = min(ends, default=None)

    @property
    def first(self) -> TranslationModel:
        """The model that was named first."""
        return self._models[0]

    @property
    def device(self) -> torch.device:
        return self._models[0].device

    def start(self, src_tokens: Tensor) -> EnsembleState:
        """Encodes source tokens (B, S) with every model."""
        return EnsembleState([model.start(src_tokens) for model in self._models])

    def step(self, tokens: Tensor, state: EnsembleState) -> Tensor:
        """Tokens (B, W) to the logarithm of the mean probability of what comes next (B * W, V)."""
        each = [
            model.step(tokens, own).float().log_softmax(dim=-1)
            for model, own in zip(self._models, state.states, strict=True)
        ]
        return torch.stack(each).logsumexp(dim=0) - math.log(len(each))
