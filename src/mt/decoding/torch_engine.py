"""The torch engine: batches of token ids in, hypotheses out."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import torch

from mt.data.tokenizer import EOS_ID, PAD_ID, SOS_ID
from mt.decoding.attention_weights import attention_weights, telling
from mt.decoding.engine import NOTHING, Hypothesis, SearchOptions, batches_of
from mt.decoding.ensemble import Ensemble
from mt.decoding.search import Model, sample, search

# Hypotheses in a batch on a CPU: with more, a step's logits leave the caches (docs/performance.md).
_CPU_ROWS = 480


def number_type(wanted: str) -> torch.dtype:
    """The format to compute in; `auto` is float32, with which models are validated."""
    return {"float16": torch.float16, "bfloat16": torch.bfloat16}.get(wanted, torch.float32)


class TorchEngine:
    """Translates any number of sentences with a model, in batches of similar lengths.

    Args:
        model: one, or several as one; its device is where the work is done.
        batch_tokens: source tokens of a batch, padding counted; the beam multiplies them.
    """

    # A call takes all threads that torch has and sets their number for the process: it waits for other engines, too.
    _turn = threading.Lock()

    def __init__(self, model: Model, batch_tokens: int) -> None:
        self._model = model
        self._batch_tokens = batch_tokens
        self._on_cpu = model.device.type == "cpu"

    def translate(self, sentences: Sequence[Sequence[int]], options: SearchOptions) -> list[list[Hypothesis]]:
        """Token ids without specials to the n best hypotheses of each, in the order given; or to n samples."""
        with self._turn:
            return self._translate(sentences, options)

    def _translate(self, sentences: Sequence[Sequence[int]], options: SearchOptions) -> list[list[Hypothesis]]:
        copies = 1 if options.sampling is None else options.n_best
        rows = [ids for ids in sentences for _ in range(copies)]

        def translated(batch: list[int]) -> list[list[Hypothesis]]:
            chosen = [rows[row] for row in batch]
            if options.sampling is None:
                return search(self._model, self._padded(chosen), options)
            numbers = [row % copies for row in batch]
            return [[drawn] for drawn in sample(self._model, self._padded(chosen), options, chosen, numbers)]

        width = 1 if options.sampling is not None else options.beam_size
        found = self._in_batches(rows, width, translated)
        if options.attention:
            found = [[self._with_attention(ids, h) for h in each] for ids, each in zip(rows, found, strict=True)]
        return [[h for each in found[i : i + copies] for h in each] for i in range(0, len(found), copies)]

    def _with_attention(self, source: Sequence[int], hypothesis: Hypothesis) -> Hypothesis:
        """Of several models that translate together it is the first one's."""
        if not source:
            return hypothesis
        model = self._model.first if isinstance(self._model, Ensemble) else self._model
        weights = telling(attention_weights(model, source, hypothesis.ids))
        return replace(hypothesis, attention=weights[:, 1:-1].tolist())

    def _in_batches(
        self, sentences: Sequence[Sequence[int]], width: int, translated: Callable[[list[int]], list[list[Hypothesis]]]
    ) -> list[list[Hypothesis]]:
        """Calls a function for batches of sentences, given by their places, several at once on a CPU.

        Args:
            sentences: token ids.
            width: hypotheses that the work on a sentence holds.
            translated: a batch to what is found.
        """
        results = [[NOTHING] for _ in sentences]
        workers = torch.get_num_threads() if self._on_cpu else 1
        most = max(1, min(_CPU_ROWS // width, -(-len(sentences) // workers)))
        batches = list(batches_of(sentences, self._batch_tokens, most if self._on_cpu else len(sentences)))
        with _evaluating(self._model), _workers(min(workers, len(batches))) as pool:
            answers = pool.map(translated, batches) if pool else map(translated, batches)
            for rows, found in zip(batches, answers, strict=True):
                for row, hypotheses in zip(rows, found, strict=True):
                    results[row] = hypotheses
        return results

    def _padded(self, sentences: Sequence[Sequence[int]]) -> torch.Tensor:
        longest = max(map(len, sentences)) + 2
        rows = [[SOS_ID, *ids, EOS_ID] + [PAD_ID] * (longest - len(ids) - 2) for ids in sentences]
        return torch.tensor(rows, device=self._model.device)


@contextlib.contextmanager
def _evaluating(model: Model) -> Iterator[None]:
    """Dropout off for a while; training goes on afterwards as before."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


@contextlib.contextmanager
def _workers(count: int) -> Iterator[ThreadPoolExecutor | None]:
    """Threads that translate a batch each, with one thread of torch's own; None where one batch is to have them all.

    Batches side by side do not wait for one another at every product, as the threads of one batch do.
    """
    if count <= 1:
        yield None
        return
    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield pool
    finally:
        torch.set_num_threads(threads)  # the matrix library's number is everyone's
