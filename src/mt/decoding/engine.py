"""What every engine is asked for and what it answers; importing it costs nothing."""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Sampling:
    """How to draw translations by chance.

    Attributes:
        temperature: divides the log-probabilities: below 1 likely tokens come more often, above 1 less often.
        top_k: only so many likeliest tokens may come; 0: all.
        top_p: only the likeliest tokens that have this probability together may come; 1: all.
        seed: start of the random numbers.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 1


@dataclass(frozen=True)
class SearchOptions:
    """How to search.

    Attributes:
        beam_size: hypotheses kept a sentence; 1 is greedy search.
        n_best: how many of them to return, at most beam_size; with `sampling` how many to draw.
        length_penalty: the exponent of `normalized`; 0 compares plain log-probabilities.
        min_length, max_length: bounds on a translation's tokens, EOS not counted.
        max_length_ratio: a second upper bound: this times the source's tokens, plus ten.
        scores: whether anyone looks at scores; without, greedy search may save the softmax and give NaN.
        sampling: how to draw translations instead of searching the likeliest; None searches.
        attention: whether hypotheses are to come with their attention.
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
        """The most tokens a translation may have.

        Args:
            source_tokens: those of the source, SOS and EOS counted.
            max_positions: the target positions the model has, one of them SOS's; None where they do not end.
        """
        bound = min(self.max_length, math.ceil(self.max_length_ratio * source_tokens) + 10)
        return min(max(1, self.min_length, bound), (max_positions or sys.maxsize) - 1)


@dataclass(frozen=True)
class Hypothesis:
    """One translation.

    Attributes:
        ids: its tokens, EOS not included.
        log_prob: the natural logarithm of its probability, EOS included, where padding, the unknown token and SOS
            are never possible, nor EOS before the shortest length.
        score: log_prob over the length penalty; what hypotheses are ranked by.
        attention: how much each token looked at each of the source's, specials not counted (T, S), where it was asked
            for; the end may have a row, too.
    """

    ids: list[int]
    log_prob: float
    score: float
    attention: list[list[float]] | None = None

    @classmethod
    def of(cls, ids: list[int], log_prob: float, length_penalty: float) -> "Hypothesis":
        return cls(ids, log_prob, normalized(log_prob, len(ids) + 1, length_penalty))


NOTHING = Hypothesis([], 0.0, 0.0)


def normalized(log_prob: float, length: int, length_penalty: float) -> float:
    """log_prob / length^length_penalty, as in fairseq and CTranslate2; EOS counts in the length."""
    return float(log_prob / length**length_penalty)


class UnusableError(Exception):
    """An engine cannot run this model here; the message says why."""


@dataclass(frozen=True)
class EngineChoice:
    """Which engine to run, and how; the names are those of the command line's options.

    Attributes:
        engine: auto, ctranslate2 or torch.
        device: auto, cpu, cuda or mps.
        compute_type: auto, or one of COMPUTE_TYPES.
        shortlist: whether to choose target tokens from a shortlist; None: as the model's configuration says.
        one_by_one: sentences are to come one at a time.
        sampling: translations are to be drawn by chance.
    """

    engine: str = "auto"
    device: str = "auto"
    compute_type: str = "auto"
    shortlist: bool | None = None
    one_by_one: bool = False
    sampling: bool = False


ENGINES = ("auto", "ctranslate2", "torch")
DEVICES = ("auto", "cpu", "cuda", "mps")
FLOAT_TYPES = ("float32", "float16", "bfloat16")
COMPUTE_TYPES = (*FLOAT_TYPES, "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16")


def batches_of(sentences: Sequence[Sequence[int]], max_tokens: int, max_sentences: int) -> Iterator[list[int]]:
    """Indices of sentences of similar length, longest first: then a batch too large for the memory fails at once and
    not after an hour, and workers end together. Sentences without tokens are in no batch.

    Args:
        sentences: token ids without specials.
        max_tokens: a batch's sentences times its longest, specials counted; a single longer sentence is a batch.
        max_sentences: in a batch.
    """
    batch: list[int] = []
    for index in sorted((i for i, ids in enumerate(sentences) if ids), key=lambda i: -len(sentences[i])):
        longest = len(sentences[batch[0]]) + 2 if batch else 0
        if batch and (len(batch) == max_sentences or (len(batch) + 1) * longest > max_tokens):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


class Engine(Protocol):
    """Whatever turns token ids (without specials) into the n best hypotheses of each sentence, best first.

    A sentence without tokens has one translation, `NOTHING`. Several threads may call at once.
    """

    def translate(self, sentences: Sequence[Sequence[int]], options: SearchOptions) -> list[list[Hypothesis]]: ...
