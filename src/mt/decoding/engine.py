"""The engine protocol: search options in, hypotheses out. Importing it loads no library."""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mt.system.distributed import Distributed

ENGINES = ("auto", "ctranslate2", "torch")
DEVICES = ("auto", "cpu", "cuda", "mps")
FLOAT_TYPES = ("float32", "float16", "bfloat16")
COMPUTE_TYPES = (*FLOAT_TYPES, "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16")


class UnusableError(Exception):
    """An engine cannot run this model here; the message says why."""


@dataclass(frozen=True)
class Sampling:
    """Settings for drawing translations at random.

    Attributes:
        temperature: divides the log-probabilities; below 1 favours likely tokens.
        top_k: only this many of the likeliest tokens may be drawn; 0: all.
        top_p: only the smallest set of likeliest tokens with this total probability may be drawn; 1: all.
        seed: of the random numbers.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 1


@dataclass(frozen=True)
class SearchOptions:
    """Settings for search.

    Attributes:
        beam_size: hypotheses kept per sentence; 1 is greedy search.
        n_best: hypotheses to return, at most beam_size; with `sampling` the number of samples.
        length_penalty: the exponent of `normalized`; 0 compares plain log-probabilities.
        min_length, max_length: bounds on a translation's tokens, EOS not counted.
        max_length_ratio: a second upper bound: this times the source's tokens, plus ten.
        scores: whether scores are needed; without them greedy search may skip the softmax and return NaN.
        sampling: draw translations instead of searching for the likeliest.
        attention: return hypotheses with their attention.
    """

    beam_size: int = 5
    n_best: int = 1
    length_penalty: float = 1.0
    min_length: int = 0
    max_length: int = 256
    max_length_ratio: float = 3.0
    scores: bool = True
    sampling: Sampling | None = None
    attention: bool = False

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
    """The engine to run; the attributes are named after the command line's options.

    Attributes:
        engine, device: one of ENGINES and DEVICES.
        compute_type: auto, or one of COMPUTE_TYPES.
        shortlist: restrict target tokens to a shortlist; None: as the model's configuration says.
        one_by_one: sentences will come one at a time.
        sampling: translations will be sampled.
    """

    engine: str = "auto"
    device: str = "auto"
    compute_type: str = "auto"
    shortlist: bool | None = None
    one_by_one: bool = False
    sampling: bool = False


@dataclass(frozen=True)
class Hypothesis:
    """One translation.

    Attributes:
        ids: its tokens, without EOS.
        log_prob: natural log-probability, EOS included, of a model in which padding, the unknown token and SOS have
            no probability, nor has EOS before the minimum length.
        score: `normalized` log_prob, by which hypotheses are ranked.
        attention: weights (T, S) without special source tokens, if asked for; EOS may have a row, too.
    """

    ids: list[int]
    log_prob: float
    score: float
    attention: list[list[float]] | None = None

    @classmethod
    def of(cls, ids: list[int], log_prob: float, length_penalty: float) -> "Hypothesis":
        return cls(ids, log_prob, normalized(log_prob, len(ids) + 1, length_penalty))


EMPTY_HYPOTHESIS = Hypothesis([], 0.0, 0.0)


def normalized(log_prob: float, length: int, length_penalty: float) -> float:
    """Return log_prob / length^length_penalty, as in fairseq and CTranslate2; the length includes EOS."""
    return float(log_prob / length**length_penalty)


class Engine(Protocol):
    """Translates token ids (without SOS and EOS) to the n best hypotheses of each sentence, best first.

    The one translation of a sentence without tokens is `EMPTY_HYPOTHESIS`. Calls are thread-safe.
    """

    def translate(self, sentences: Sequence[Sequence[int]], options: SearchOptions) -> list[list[Hypothesis]]: ...


class DistributedEngine:
    """An engine that shards sentences over the ranks and gathers all hypotheses in every rank, in order.

    Args:
        engine: this rank's own.
        distributed: the ranks; all of them must make the same calls.
    """

    def __init__(self, engine: Engine, distributed: "Distributed") -> None:
        self._engine = engine
        self._distributed = distributed

    def translate(self, sentences: Sequence[Sequence[int]], options: SearchOptions) -> list[list[Hypothesis]]:
        return self._distributed.all_gather(self._engine.translate(self._distributed.shard(sentences), options))


def batch_by_length(lengths: Sequence[int], max_tokens: int, max_sentences: int = sys.maxsize) -> Iterator[list[int]]:
    """Yield the indices of sentences of similar length, longest first; sentences of length 0 are in no batch.

    The largest batch comes first so that running out of memory is noticed at once.

    Args:
        lengths: tokens of each sentence, specials counted.
        max_tokens: of a batch, padding counted; a single longer sentence is a batch of its own.
        max_sentences: of a batch.
    """
    batch: list[int] = []
    for index in sorted((i for i, length in enumerate(lengths) if length), key=lambda i: -lengths[i]):
        if batch and (len(batch) == max_sentences or (len(batch) + 1) * lengths[batch[0]] > max_tokens):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
