"""The engine protocol: search options in, hypotheses out. Importing it loads no library."""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mt.system.distributed import Distributed

ENGINES = ("auto", "ctranslate2", "torch", "torch-graphs")  # the last: steps are CUDA graphs
DEVICES = ("auto", "cpu", "cuda", "mps")
FLOAT_TYPES = ("float32", "float16", "bfloat16")
_MAX_SENTENCES, _MAX_LOG_PROBS = 16, 2**27  # of a batch of `next_log_probs`
COMPUTE_TYPES = (*FLOAT_TYPES, "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16")


class UnusableError(Exception):
    """An engine cannot run this model here; the message says why."""


@dataclass(frozen=True)
class Sampling:
    """Settings for drawing translations at random."""

    temperature: float = 1.0  # divides the log-probabilities; below 1 favours likely tokens
    top_k: int = 0  # only this many of the likeliest tokens may be drawn; 0: all
    top_p: float = 1.0  # only the smallest set of likeliest tokens with this total probability may be drawn; 1: all
    seed: int = 1


@dataclass(frozen=True)
class SearchOptions:
    """Settings for search."""

    beam_size: int = 5  # hypotheses kept per sentence; 1 is greedy search
    n_best: int = 1  # hypotheses to return, at most beam_size; with `sampling` the number of samples
    length_penalty: float = 1.0  # exponent of a hypothesis's length in its score; 0 compares plain log-probabilities
    min_length: int = 0  # bounds on a translation's tokens, EOS not counted
    max_length: int = 256
    max_length_ratio: float = 3.0  # a second upper bound: this times the source's tokens, plus ten
    no_repeat_ngram_size: int = 0  # no n-gram of this many tokens occurs twice in a translation; 0: no limit
    retry_loops: bool = False  # whether a runaway translation is searched again; see mt.decoding.runaway
    keep_spans: bool = False  # whether text that is the same in all languages is kept; see mt.data.terms
    scores: bool = True  # whether scores are needed; without them greedy search may skip the softmax and return NaN
    sampling: Sampling | None = None  # draw translations instead of searching for the likeliest
    attention: bool = False  # return hypotheses with their attention

    @property
    def has_scores(self) -> bool:
        """Return True if hypotheses get scores, as those of beam search always do."""
        return self.scores or self.beam_size > 1

    def longest(self, source_tokens: int, max_positions: int | None) -> int:
        """Return the maximum number of tokens of a translation, EOS not counted.

        Args:
            source_tokens: of the source, SOS and EOS counted.
            max_positions: target positions of the model, one of them for SOS; None where unlimited.
        """
        bound = min(self.max_length, math.ceil(self.max_length_ratio * source_tokens) + 10)
        return min(max(1, self.min_length, bound), (max_positions or sys.maxsize) - 1)


@dataclass(frozen=True)
class EngineChoice:
    """The engine to run; the attributes are named after the command line's options."""

    engine: str = "auto"  # of ENGINES
    device: str = "auto"  # of DEVICES
    compute_type: str = "auto"  # or one of COMPUTE_TYPES
    shortlist: bool | None = None  # restrict target tokens to a shortlist; None: as the model's configuration says
    one_by_one: bool = False  # sentences will come one at a time
    sampling: bool = False  # translations will be sampled


@dataclass(frozen=True)
class Hypothesis:
    """One translation.

    Attributes:
        ids: its tokens, without EOS.
        log_prob: natural log-probability, EOS included, with the model's probabilities normalised without padding,
            the unknown token and SOS, and without EOS before the minimum length.
        score: log_prob / length^length_penalty, EOS counted, as in fairseq and CTranslate2; it ranks hypotheses.
        attention: weights (T, S) without special source tokens, if asked for; EOS may have a row, too.
    """

    ids: list[int]
    log_prob: float
    score: float
    attention: list[list[float]] | None = None

    @classmethod
    def of(cls, ids: list[int], log_prob: float, length_penalty: float) -> "Hypothesis":
        return cls(ids, log_prob, float(log_prob / (len(ids) + 1) ** length_penalty))


EMPTY_HYPOTHESIS = Hypothesis([], 0.0, 0.0)

Sentences = Sequence[Sequence[int]]  # as token ids


def log_prob_batches(vocab: int, sentences: Sentences, targets: Sentences) -> Iterator[tuple[Sentences, Sentences]]:
    """Yield sentences and targets that `next_log_probs` takes together: their log-probabilities are in memory."""
    longest = max(map(len, targets), default=0)
    size = max(1, min(_MAX_SENTENCES, _MAX_LOG_PROBS // (vocab * (longest + 1))))
    for first in range(0, len(sentences), size):
        yield sentences[first : first + size], targets[first : first + size]


class Engine(Protocol):
    """Translates token ids (without SOS and EOS). Calls are thread-safe."""

    def translate(
        self, sentences: Sentences, options: SearchOptions, prefixes: Sentences = ()
    ) -> list[list[Hypothesis]]:
        """Return the n best hypotheses of each sentence, best first.

        The one translation of a sentence without tokens is `EMPTY_HYPOTHESIS`. Prefixes are one for each sentence,
        within its length bound; all its hypotheses begin with it, and it counts as certain in their log-probability.
        """
        ...

    def next_log_probs(self, sentences: Sentences, targets: Sentences) -> "Iterator[NDArray[np.float32]]":
        """Yield log-probabilities (T + 1, V) of the next token behind 0 to T tokens of each sentence's translation."""
        ...


@dataclass(frozen=True)
class DistributedEngine:
    """An engine that shards sentences over the ranks, which all make the same calls and get all hypotheses."""

    engine: Engine
    distributed: "Distributed"

    def translate(
        self, sentences: Sentences, options: SearchOptions, prefixes: Sentences = ()
    ) -> list[list[Hypothesis]]:
        own_sentences, own_prefixes = self.distributed.shard(sentences), self.distributed.shard(prefixes)
        return self.distributed.all_gather(self.engine.translate(own_sentences, options, own_prefixes))

    def next_log_probs(self, sentences: Sentences, targets: Sentences) -> "Iterator[NDArray[np.float32]]":
        return self.engine.next_log_probs(sentences, targets)


def batch_by_length(lengths: Sequence[int], max_tokens: int, max_sentences: int = sys.maxsize) -> Iterator[list[int]]:
    """Yield the indices of sentences of similar length, longest first; sentences of length 0 are in no batch.

    A batch has at most max_tokens, padding counted; a single longer sentence is a batch of its own. The largest batch
    comes first so that running out of memory is noticed at once.
    """
    batch: list[int] = []
    for index in sorted((i for i, length in enumerate(lengths) if length), key=lambda i: -lengths[i]):
        if batch and (len(batch) == max_sentences or (len(batch) + 1) * lengths[batch[0]] > max_tokens):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
