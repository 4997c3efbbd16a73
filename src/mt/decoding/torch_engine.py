"""The torch engine: batches of token ids in, hypotheses out."""

import contextlib
from collections.abc import Iterator, Sequence

import torch

from mt.data.tokenizer import EOS_ID, PAD_ID, SOS_ID
from mt.decoding.search import Hypothesis, SearchOptions, search
from mt.model.transformer import Transformer


class TorchEngine:
    """Translates any number of sentences with a model, in batches of similar lengths.

    Args:
        model: its device is where the work is done.
        batch_tokens: source tokens of a batch, padding counted; the beam multiplies them.
    """

    def __init__(self, model: Transformer, batch_tokens: int) -> None:
        self._model = model
        self._batch_tokens = batch_tokens

    def translate(self, sentences: Sequence[Sequence[int]], options: SearchOptions) -> list[list[Hypothesis]]:
        """Token ids without specials to the n best hypotheses of each, in the order given."""
        results: list[list[Hypothesis]] = [[] for _ in sentences]
        with _evaluating(self._model):
            for indices in self._batches(sentences):
                batch = self._padded([sentences[i] for i in indices])
                for index, hypotheses in zip(indices, search(self._model, batch, options), strict=True):
                    results[index] = hypotheses
        return results

    def _batches(self, sentences: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """Longest first, so that a batch too large for the memory fails at once and not after an hour."""
        batch: list[int] = []
        for index in sorted(range(len(sentences)), key=lambda i: -len(sentences[i])):
            if batch and (len(batch) + 1) * (len(sentences[batch[0]]) + 2) > self._batch_tokens:
                yield batch
                batch = []
            batch.append(index)
        if batch:
            yield batch

    def _padded(self, sentences: Sequence[Sequence[int]]) -> torch.Tensor:
        longest = max(map(len, sentences)) + 2
        rows = [[SOS_ID, *ids, EOS_ID] + [PAD_ID] * (longest - len(ids) - 2) for ids in sentences]
        return torch.tensor(rows, device=self._model.output.weight.device)


@contextlib.contextmanager
def _evaluating(model: Transformer) -> Iterator[None]:
    """Dropout off for a while; training goes on afterwards as before."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
