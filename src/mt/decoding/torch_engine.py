"""The torch engine: batches of token ids in, hypotheses out."""

import contextlib
from collections.abc import Iterator, Sequence

import torch

from mt.data.tokenizer import EOS_ID, PAD_ID, SOS_ID
from mt.decoding.engine import NOTHING, Hypothesis, SearchOptions, batches_of
from mt.decoding.search import search
from mt.model.transformer import Transformer

# Hypotheses in a batch on a CPU: with more, a step's logits leave the caches (docs/performance.md).
_CPU_ROWS = 480


def number_type(wanted: str, device: torch.device) -> torch.dtype:
    """The format to compute in; `auto` is bfloat16 on a GPU that has it, else float32."""
    if wanted == "auto":
        has_bfloat16 = device.type == "cuda" and torch.cuda.is_bf16_supported()
        return torch.bfloat16 if has_bfloat16 else torch.float32
    return {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}[wanted]


class TorchEngine:
    """Translates any number of sentences with a model, in batches of similar lengths.

    Args:
        model: its device is where the work is done.
        batch_tokens: source tokens of a batch, padding counted; the beam multiplies them.
    """

    def __init__(self, model: Transformer, batch_tokens: int) -> None:
        self._model = model
        self._batch_tokens = batch_tokens
        self._most_rows = _CPU_ROWS if model.output.weight.device.type == "cpu" else None

    def translate(self, sentences: Sequence[Sequence[int]], options: SearchOptions) -> list[list[Hypothesis]]:
        """Token ids without specials to the n best hypotheses of each, in the order given."""
        results = [[NOTHING] for _ in sentences]
        with _evaluating(self._model):
            most = len(sentences) if self._most_rows is None else max(1, self._most_rows // options.beam_size)
            for indices in batches_of(sentences, self._batch_tokens, most):
                batch = self._padded([sentences[i] for i in indices])
                for index, hypotheses in zip(indices, search(self._model, batch, options), strict=True):
                    results[index] = hypotheses
        return results

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
