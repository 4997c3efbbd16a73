"""Greedy and beam search over a step-by-step decoder.

    B sentences still searched   W hypotheses kept a sentence   V target vocabulary   T target tokens so far

Every returned hypothesis ends with EOS: one that reaches its length bound is made to end there. So its log-probability
is exactly what forced scoring of the same tokens gives, and search always ends.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mt.data.tokenizer import EOS_ID, PAD_ID, SOS_ID, UNK_ID
from mt.model.transformer import Transformer

NEVER = [PAD_ID, UNK_ID, SOS_ID]  # tokens that are in no translation


@dataclass(frozen=True)
class SearchOptions:
    """How to search.

    Attributes:
        beam_size: hypotheses kept a sentence; 1 is greedy search.
        n_best: how many of them to return, at most beam_size.
        length_penalty: the exponent of `length_penalty`; 0 compares plain log-probabilities.
        min_length, max_length: bounds on a translation's tokens, EOS not counted.
        max_length_ratio: a second upper bound: this times the source's tokens, plus ten.
    """

    beam_size: int = 5
    n_best: int = 1
    length_penalty: float = 1.0
    min_length: int = 0
    max_length: int = 256
    max_length_ratio: float = 3.0


@dataclass(frozen=True)
class Hypothesis:
    """One translation.

    Attributes:
        ids: its tokens, EOS not included.
        log_prob: the natural logarithm of its probability, EOS included.
        score: log_prob over the length penalty; what hypotheses are ranked by.
    """

    ids: list[int]
    log_prob: float
    score: float


def length_penalty(length: int, alpha: float) -> float:
    """((5 + length) / 6) ** alpha of GNMT (Wu et al. 2016, arXiv:1609.08144); EOS counts in the length."""
    return float(((5 + length) / 6) ** alpha)


def search(model: Transformer, src_tokens: Tensor, options: SearchOptions) -> list[list[Hypothesis]]:
    """Translates a padded batch `<s> tokens </s>` (B, S).

    Returns:
        for each sentence its n_best hypotheses, best first (fewer where fewer exist).
    """
    if options.beam_size == 1:
        return greedy_search(model, src_tokens, options)
    return beam_search(model, src_tokens, options)


def _bounds(model: Transformer, src_tokens: Tensor, options: SearchOptions) -> list[int]:
    """The most tokens each translation may have; the model's positions, one of them SOS's, are the last word."""
    positions = model.max_positions or sys.maxsize
    lengths = (src_tokens != PAD_ID).sum(dim=1).tolist()
    bounds = (min(options.max_length, math.ceil(options.max_length_ratio * n) + 10) for n in lengths)
    return [min(max(1, options.min_length, bound), positions - 1) for bound in bounds]


def _log_probs(logits: Tensor, ending: Tensor, may_end: bool) -> Tensor:
    """Log-probabilities (B, W, V) with what must not come next at minus infinity.

    Args:
        logits: (B, W, V).
        ending: (B,), True where only EOS may come.
        may_end: False while the shortest length is not reached.
    """
    log_probs = logits.float().log_softmax(dim=-1)
    log_probs[:, :, NEVER] = -math.inf
    if not may_end:
        log_probs[:, :, EOS_ID] = -math.inf
    end_only = log_probs[:, :, EOS_ID].clone()
    log_probs.masked_fill_(ending[:, None, None], -math.inf)
    log_probs[:, :, EOS_ID] = end_only
    return log_probs


@torch.inference_mode()
def greedy_search(model: Transformer, src_tokens: Tensor, options: SearchOptions) -> list[list[Hypothesis]]:
    """Takes the likeliest token at every step; finished sentences leave the batch."""
    limits = _bounds(model, src_tokens, options)
    bounds = torch.tensor(limits, device=src_tokens.device)
    state = model.start(src_tokens)
    alive = torch.arange(len(src_tokens), device=src_tokens.device)
    tokens = torch.full_like(alive, SOS_ID)
    totals = torch.zeros(len(alive), device=src_tokens.device)
    ids: list[list[int]] = [[] for _ in range(len(alive))]
    log_probs = [0.0] * len(alive)
    while len(alive):
        position = state.position
        logits = model.step(tokens, state)[:, None]
        best, tokens = _log_probs(logits, bounds[alive] <= position, position >= options.min_length)[:, 0].max(dim=-1)
        totals += best
        for sentence, token, total in zip(alive.tolist(), tokens.tolist(), totals.tolist(), strict=True):
            if token == EOS_ID:
                log_probs[sentence] = total
            elif position < limits[sentence]:
                ids[sentence].append(token)
        # Where the numbers fail (NaN), EOS may never come, not even at the bound.
        going_on = ((tokens != EOS_ID) & (bounds[alive] > position)).nonzero()[:, 0]
        if len(going_on) < len(alive):
            alive, tokens, totals = alive[going_on], tokens[going_on], totals[going_on]
            state.select(going_on, going_on)
    return [[_hypothesis(i, total, options)] for i, total in zip(ids, log_probs, strict=True)]


def _hypothesis(ids: list[int], log_prob: float, options: SearchOptions) -> Hypothesis:
    return Hypothesis(ids, log_prob, log_prob / length_penalty(len(ids) + 1, options.length_penalty))


class _Finished:
    """The finished hypotheses of one sentence, and whether its search is over."""

    def __init__(self, options: SearchOptions, bound: int) -> None:
        self._options = options
        self._bound = bound
        self.hypotheses: list[Hypothesis] = []

    def add(self, ids: list[int], log_prob: float) -> None:
        self.hypotheses.append(_hypothesis(ids, log_prob, self._options))
        self.hypotheses.sort(key=lambda h: -h.score)

    def best(self) -> list[Hypothesis]:
        """The n best; an empty translation where the model's numbers failed and none ended."""
        return self.hypotheses[: self._options.n_best] or [Hypothesis([], -math.inf, -math.inf)]

    def is_over(self, best_alive: float, length: int) -> bool:
        """True once nothing that is alive can change the n best.

        A live hypothesis only loses log-probability, so it can at best keep what it has and be divided by the largest
        penalty that its remaining lengths offer. Stopping on this bound is exact: it changes no result. The search is
        also over when as many hypotheses have ended as the beam is wide, as in fairseq and CTranslate2.

        Args:
            best_alive: the largest log-probability of a live hypothesis.
            length: the tokens it has.
        """
        options = self._options
        if len(self.hypotheses) >= options.beam_size or length > self._bound or not math.isfinite(best_alive):
            return True
        if len(self.hypotheses) < options.n_best:
            return False
        alpha = options.length_penalty
        reachable = best_alive / max(length_penalty(n, alpha) for n in (length + 1, self._bound + 1))
        return self.hypotheses[options.n_best - 1].score >= reachable


@torch.inference_mode()
def beam_search(model: Transformer, src_tokens: Tensor, options: SearchOptions) -> list[list[Hypothesis]]:
    """Keeps the beam_size likeliest beginnings of every sentence; finished sentences leave the batch."""
    bounds = _bounds(model, src_tokens, options)
    finished = [_Finished(options, bound) for bound in bounds]
    beam = _Beam(src_tokens, bounds)
    state = model.start(src_tokens)
    while len(beam.sentences):
        logits = model.step(beam.tokens[:, -1], state)
        logits = logits.view(len(beam.sentences), -1, logits.shape[-1])
        beam.extend(_log_probs(logits, beam.bounds <= beam.length, beam.length >= options.min_length), options)
        beam.collect_finished(finished)
        best_alive = beam.best_alive()
        sentences = beam.sentences.tolist()
        open_rows = [
            row
            for row, sentence in enumerate(sentences)
            if not finished[sentence].is_over(best_alive[row], beam.length + 1)
        ]
        rows, hypotheses = beam.advance(open_rows)
        state.select(rows, hypotheses)
    return [f.best() for f in finished]


class _Beam:
    """The live hypotheses of all sentences still searched.

    Attributes:
        sentences: which sentence each row is (B,).
        bounds: the most tokens of each (B,).
        tokens: SOS and what follows it, (B * W, 1 + T).
        scores: log-probabilities (B, W).
        length: T.
    """

    def __init__(self, src_tokens: Tensor, bounds: Sequence[int]) -> None:
        device = src_tokens.device
        self.sentences = torch.arange(len(src_tokens), device=device)
        self.bounds = torch.tensor(bounds, device=device)
        self.tokens = torch.full((len(src_tokens), 1), SOS_ID, device=device)
        self.scores = torch.zeros(len(src_tokens), 1, device=device)
        self.length = 0

    def extend(self, log_probs: Tensor, options: SearchOptions) -> None:
        """Finds the best continuations of every sentence among all of its hypotheses' (B, W, V).

        Twice as many as the beam is wide are taken, since up to half of them may end the translation.
        """
        n_sentences, width, vocab = log_probs.shape
        candidates = (self.scores[:, :, None] + log_probs).flatten(1)
        wanted = min(2 * options.beam_size, candidates.shape[1])
        self._candidate_scores, flat = candidates.topk(wanted)  # (B, 2W), sorted
        self._origins = flat // vocab + torch.arange(n_sentences, device=flat.device)[:, None] * width
        self._next_tokens = flat % vocab
        self._ends = self._next_tokens == EOS_ID
        self._beam_size = options.beam_size
        # Live candidates in order of score: a stable sort puts those that end behind those that go on.
        self._live = self._ends.to(torch.int8).argsort(dim=1, stable=True)[:, : min(options.beam_size, wanted - width)]

    def collect_finished(self, finished: list[_Finished]) -> None:
        """Hands over the hypotheses that end within the first beam_size candidates."""
        ends = self._ends[:, : self._beam_size] & self._candidate_scores[:, : self._beam_size].isfinite()
        rows, ranks = ends.nonzero(as_tuple=True)
        if len(rows) == 0:
            return
        ids = self.tokens[self._origins[rows, ranks], 1:].tolist()
        scores = self._candidate_scores[rows, ranks].tolist()
        for sentence, tokens, score in zip(self.sentences[rows].tolist(), ids, scores, strict=True):
            finished[sentence].add(tokens, score)

    def best_alive(self) -> list[float]:
        """The largest log-probability of a candidate that goes on, a sentence."""
        best: list[float] = self._candidate_scores.gather(1, self._live[:, :1])[:, 0].tolist()
        return best

    def advance(self, open_rows: list[int]) -> tuple[Tensor, Tensor]:
        """Moves on by one token, with the sentences in `open_rows` only.

        Returns:
            the rows kept and, of each new hypothesis, the old one it continues: what the decoder's state must select.
        """
        rows = torch.tensor(open_rows, dtype=torch.long, device=self.tokens.device)
        live = self._live[rows]
        origins = self._origins[rows].gather(1, live).flatten()
        next_tokens = self._next_tokens[rows].gather(1, live).flatten()
        self.tokens = torch.cat([self.tokens[origins], next_tokens[:, None]], dim=1)
        self.scores = self._candidate_scores[rows].gather(1, live)
        self.sentences, self.bounds = self.sentences[rows], self.bounds[rows]
        self.length += 1
        return rows, origins


@torch.inference_mode()
def forced_score(model: Transformer, src_tokens: Tensor, ids: Sequence[Sequence[int]]) -> list[float]:
    """Log-probabilities of given translations (without EOS, which is counted) of a padded batch (B, S)."""
    longest = max(len(i) for i in ids) + 1
    tgt_in = torch.full((len(ids), longest), PAD_ID, device=src_tokens.device)
    tgt_out = tgt_in.clone()
    for row, tokens in enumerate(ids):
        tgt_in[row, : len(tokens) + 1] = torch.tensor([SOS_ID, *tokens])
        tgt_out[row, : len(tokens) + 1] = torch.tensor([*tokens, EOS_ID])
    log_probs = model(src_tokens, tgt_in).float().log_softmax(dim=-1)
    chosen = log_probs.gather(-1, tgt_out[:, :, None])[:, :, 0].masked_fill(tgt_out == PAD_ID, 0.0)
    scores: list[float] = chosen.sum(dim=1).tolist()
    return scores
