"""How likely a model takes given translations to be: forced decoding."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from mt.data.tokenizer import EOS_ID, PAD_ID, SOS_ID, TokenizerPair
from mt.decoding.search import forced_score
from mt.decoding.settings import TranslationSettings
from mt.model.build import TranslationModel

_MOST_NUMBERS = 2**26  # of a batch's log-probabilities, whatever its size in tokens: 256 MiB


class Scored(NamedTuple):
    """What a model makes of a pair.

    Attributes:
        log_prob: of the translation and its end, given the source; the natural logarithm.
        tokens: of the translation, the end counted.
    """

    log_prob: float
    tokens: int


class PairScorer:
    """Scores pairs of lines with one model.

    Args:
        model: on its device.
        tokenizers: its own.
        tag: what its source sentences begin with.
        settings: say how long sentences and translations may be, and the size of a batch.
    """

    def __init__(
        self, model: TranslationModel, tokenizers: TokenizerPair, tag: Sequence[int], settings: TranslationSettings
    ) -> None:
        self._model = model
        self._tokenizers = tokenizers
        self._tag = list(tag)
        self._settings = settings
        self._batch_tokens = min(settings.batch_tokens, _MOST_NUMBERS // tokenizers.target.vocab_size)

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[Scored | None]:
        """One a pair; None where the source is empty, or a side is longer than what the model was made for."""
        sources = self._tokenizers.source.encode_batch(
            [source for source, _ in pairs], self._settings.max_source_tokens
        )
        targets = self._tokenizers.target.encode_batch([target for _, target in pairs], self._settings.max_positions)
        given = [[SOS_ID, *self._tag, *source, EOS_ID] for source in sources]
        found: list[Scored | None] = [None] * len(pairs)
        lengths = [max(len(source), len(target) + 1) for source, target in zip(given, targets, strict=True)]
        fitting = [i for i in range(len(pairs)) if sources[i] and self._fits(given[i], targets[i])]
        for batch in self._batches(sorted(fitting, key=lambda i: -lengths[i]), lengths):
            longest = max(len(given[i]) for i in batch)
            tokens = np.full((len(batch), longest), PAD_ID)
            for row, i in enumerate(batch):
                tokens[row, : len(given[i])] = given[i]
            source_tokens = torch.from_numpy(tokens).to(self._model.device)
            log_probs = forced_score(self._model, source_tokens, [targets[i] for i in batch])
            for i, log_prob in zip(batch, log_probs, strict=True):
                found[i] = Scored(log_prob, len(targets[i]) + 1)
        return found

    def _fits(self, source: Sequence[int], target: Sequence[int]) -> bool:
        return len(source) <= self._settings.max_source_tokens and len(target) < self._settings.max_positions

    def _batches(self, order: Sequence[int], lengths: Sequence[int]) -> Iterator[list[int]]:
        """Cuts an order of falling lengths into batches, the first of each the longest."""
        batch: list[int] = []
        for i in order:
            if batch and (len(batch) + 1) * lengths[batch[0]] > self._batch_tokens:
                yield batch
                batch = []
            batch.append(i)
        if batch:
            yield batch
