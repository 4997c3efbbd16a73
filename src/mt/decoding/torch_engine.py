"""The torch engine: search in batches of similar length."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from mt.console import log
from mt.data.tokenizer import SOS_ID
from mt.decoding.attention_weights import aligning_weights, attention_weights
from mt.decoding.cuda_graphs import GraphedDecoder
from mt.decoding.engine import EMPTY_HYPOTHESIS, Hypothesis, SearchOptions, Sentences, batch_by_length, log_prob_batches
from mt.decoding.ensemble import Ensemble
from mt.decoding.search import Model, log_probs_of, pad_sources, padded, search
from mt.errors import is_out_of_memory, memory_explained
from mt.model.build import TranslationModel
from mt.system.devices import TORCH_THREADS, map_in_threads

# Hypotheses in a batch on a CPU: with more, a step's logits leave the caches (docs/lab/decoding_speed.md).
_CPU_ROWS = 480
_LESS_MEMORY = "lower the beam, or close other programs"


def torch_dtype(compute_type: str) -> torch.dtype:
    """Return the number format to compute in; `auto` is float32, which models are validated with."""
    return {"float16": torch.float16, "bfloat16": torch.bfloat16}.get(compute_type, torch.float32)


@dataclass(eq=False)
class TorchEngine:
    """Translates any number of sentences with a model, in batches of similar lengths.

    Attributes:
        model: one model or an ensemble, on the device to compute on.
        batch_tokens: source tokens per batch, padding counted; the beam multiplies them.
        graphs: replay decoding steps as CUDA graphs; for a single model on a GPU.
    """

    model: TranslationModel | Ensemble
    batch_tokens: int
    graphs: bool = False

    def __post_init__(self) -> None:
        self._first = self.model.first if isinstance(self.model, Ensemble) else self.model
        self._graphed = GraphedDecoder(self.model) if self.graphs and not isinstance(self.model, Ensemble) else None

    @memory_explained(_LESS_MEMORY)
    def translate(
        self, sentences: Sentences, options: SearchOptions, prefixes: Sentences = ()
    ) -> list[list[Hypothesis]]:
        with TORCH_THREADS:
            return self._translate(sentences, options, prefixes)

    def next_log_probs(self, sentences: Sentences, targets: Sentences) -> Iterator[NDArray[np.float32]]:
        for sources, batch in log_prob_batches(self._first.output.out_features, sentences, targets):
            log_probs = self._next_log_probs(sources, batch)  # (T, B, V)
            yield from (log_probs[: len(target) + 1, row] for row, target in enumerate(batch))

    @memory_explained(_LESS_MEMORY)
    @torch.inference_mode()
    def _next_log_probs(self, sentences: Sentences, targets: Sentences) -> NDArray[np.float32]:
        device = self.model.device
        with TORCH_THREADS, _evaluating(self.model):
            state: Any = self.model.start(pad_sources(sentences, device, self.model.source_format))
            steps = padded([[SOS_ID, *target] for target in targets], device).unbind(1)
            log_probs = torch.stack([log_probs_of(self.model.step(step[:, None], state)) for step in steps])
            array: NDArray[np.float32] = log_probs.cpu().numpy()
            return array

    def _translate(self, sentences: Sentences, options: SearchOptions, prefixes: Sentences) -> list[list[Hypothesis]]:
        copies = 1 if options.sampling is None else options.n_best
        width = options.beam_size if options.sampling is None else 1
        rows = [ids for ids in sentences for _ in range(copies)]
        workers, max_rows = 1, len(rows)
        if self.model.device.type == "cpu":  # several batches at once
            workers = torch.get_num_threads()
            max_rows = max(1, min(_CPU_ROWS // width, -(-len(rows) // workers)))
        decoder: Model = self._graphed or self.model
        lengths = [len(ids) + 2 if ids else 0 for ids in rows]
        batches = list(batch_by_length(lengths, self.batch_tokens, max_rows))

        def translate_batch(batch: list[int]) -> list[list[Hypothesis]]:
            forced = [prefixes[row // copies] for row in batch if prefixes]
            try:
                src_tokens = pad_sources([rows[row] for row in batch], self.model.device, self.model.source_format)
                return search(decoder, src_tokens, options, forced, [(rows[row], row % copies) for row in batch])
            except (RuntimeError, MemoryError) as error:
                if len(batch) == 1 or not is_out_of_memory(error):
                    raise
            # Outside of the `except`, whose traceback would keep the tensors alive.
            log.warning("out of memory: %d sentences are translated in two batches", len(batch))
            if self.model.device.type == "cuda":
                torch.cuda.empty_cache()
            half = len(batch) // 2
            return translate_batch(batch[:half]) + translate_batch(batch[half:])

        results = [[EMPTY_HYPOTHESIS] for _ in rows]
        with _evaluating(self.model):
            translated = map_in_threads(translate_batch, batches, workers)
        for row, hypotheses in zip(chain(*batches), chain(*translated), strict=True):
            results[row] = hypotheses
        if options.attention:
            results = [[self._with_attention(ids, h) for h in row] for ids, row in zip(rows, results, strict=True)]
        return [[h for row in results[i : i + copies] for h in row] for i in range(0, len(results), copies)]

    def _with_attention(self, source: Sequence[int], hypothesis: Hypothesis) -> Hypothesis:
        """Add the attention of the model, or of the first of an ensemble."""
        if not source:
            return hypothesis
        model = self._first
        weights = aligning_weights(attention_weights(model, source, hypothesis.ids), model.is_guided)
        n_start = int(model.source_format.startswith("<s>"))
        return replace(hypothesis, attention=weights[:, n_start : n_start + len(source)].tolist())


@contextlib.contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Turn dropout off, and restore the model's mode afterwards."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
