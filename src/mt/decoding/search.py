"""Greedy and beam search over a step-by-step decoder, and drawing by chance.

    B sentences still searched   W hypotheses kept a sentence   V target vocabulary   T target tokens so far

Every returned hypothesis ends with EOS: one that reaches its length bound is made to end there. So its log-probability
is exactly what forced scoring of the same tokens gives, and search always ends.

All of it stays on the device; once a step the host asks which sentences are done. Those leave when they are a quarter
of the batch: leaving at once would copy the caches of all others again and again.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mt.data.tokenizer import EOS_ID, PAD_ID, SOS_ID
from mt.decoding.beam import Beam, Finished, top
from mt.decoding.engine import Hypothesis, SearchOptions
from mt.decoding.ensemble import Ensemble
from mt.decoding.sampling import Draws
from mt.model.build import TranslationModel
from mt.system.devices import widest_float

Model = TranslationModel | Ensemble

_NEVER = slice(0, EOS_ID)  # padding, unknown and SOS are in no translation


def search(model: Model, src_tokens: Tensor, options: SearchOptions) -> list[list[Hypothesis]]:
    """Translates a padded batch `<s> tokens </s>` (B, S).

    Returns:
        for each sentence its n_best hypotheses, best first (fewer where fewer exist).
    """
    if options.beam_size == 1:
        return [[hypothesis] for hypothesis in greedy_search(model, src_tokens, options)]
    return beam_search(model, src_tokens, options)


def sample(
    model: Model, src_tokens: Tensor, options: SearchOptions, sentences: Sequence[Sequence[int]], numbers: Sequence[int]
) -> list[Hypothesis]:
    """Draws one translation of each sentence of a padded batch (B, S) as `options.sampling` says.

    Args:
        model: gives the distributions.
        src_tokens: the batch.
        options: how to draw, and the bounds on the length.
        sentences: the same without specials and padding.
        numbers: which draw of its sentence each is; two with the same number are the same.
    """
    assert options.sampling is not None
    longest = max(_bounds(model, src_tokens, options)) + 1
    draws = Draws(options.sampling, sentences, numbers, longest, src_tokens.device)
    return greedy_search(model, src_tokens, options, draws)


def log_probs_of(logits: Tensor) -> Tensor:
    """The distribution (..., V) over what may come next: padding, the unknown token and SOS never do.

    The logits may be overwritten.
    """
    logits = logits.float()
    logits[..., _NEVER] = -math.inf
    return logits.log_softmax(dim=-1)


def _bounds(model: Model, src_tokens: Tensor, options: SearchOptions) -> list[int]:
    """The most tokens each translation may have."""
    return [options.longest(n, model.max_positions) for n in (src_tokens != PAD_ID).sum(dim=1).tolist()]


def _next(logits: Tensor, options: SearchOptions, length: int, bounds: Tensor, first_bound: int) -> Tensor:
    """Log-probabilities (B, W, V) of the next token, at minus infinity where the bounds on the length forbid it.

    Args:
        logits: (B * W, V).
        options: names the shortest length.
        length: T.
        bounds: (B,), the most tokens of each sentence.
        first_bound: the smallest of them.
    """
    if length < options.min_length:
        logits[:, EOS_ID] = -math.inf
    log_probs = log_probs_of(logits).view(len(bounds), -1, logits.shape[-1])
    if length >= first_bound:
        end = log_probs[:, :, EOS_ID].clone()
        log_probs.masked_fill_((bounds <= length)[:, None, None], -math.inf)
        log_probs[:, :, EOS_ID] = end
    return log_probs


class _Leaving:
    """Which sentences of a batch are done, and when they leave it.

    Attributes:
        sentences: (B,), which sentence of the whole batch each row is.
        done: (B,), True at rows whose search is over; what happens to them does not matter.
    """

    def __init__(self, size: int, device: torch.device) -> None:
        self.sentences = torch.arange(size, device=device)
        self.done = torch.zeros(size, dtype=torch.bool, device=device)

    def leave(self) -> tuple[int, Tensor | None]:
        """How many sentences are still searched, and the rows to keep (None: all of them)."""
        going_on = len(self.done) - int(self.done.sum())
        if 4 * going_on > 3 * len(self.done):
            return going_on, None
        rows = (~self.done).nonzero()[:, 0]
        self.sentences, self.done = self.sentences[rows], self.done[rows]
        return going_on, rows


@torch.inference_mode()
def greedy_search(
    model: Model, src_tokens: Tensor, options: SearchOptions, draws: Draws | None = None
) -> list[Hypothesis]:
    """Takes the likeliest token at every step, or the one drawn."""
    limits = _bounds(model, src_tokens, options)
    bounds = torch.tensor(limits, device=src_tokens.device)
    ids = torch.full((len(limits), max(limits) + 1), EOS_ID, device=src_tokens.device)
    totals = torch.zeros(len(limits), device=src_tokens.device)
    state: Any = model.start(src_tokens)
    leaving = _Leaving(len(limits), src_tokens.device)
    tokens = torch.full_like(leaving.sentences, SOS_ID)
    going_on = len(limits)
    while going_on:
        length = state.position
        log_probs = _next(model.step(tokens[:, None], state), options, length, bounds, min(limits))[:, 0]
        if draws is None:
            best, tokens = (part[:, 0] for part in top(log_probs, 1))
        else:
            tokens = draws.choose(log_probs, leaving.sentences, length)
            best = log_probs.gather(1, tokens[:, None])[:, 0]
        # Where the numbers fail (NaN), EOS may never come, not even at the bound.
        leaving_now = (tokens == EOS_ID) | (bounds <= length) | ~best.isfinite()
        tokens = tokens.masked_fill(leaving.done | leaving_now, EOS_ID)
        ids[leaving.sentences, length] = tokens
        totals[leaving.sentences] += best.masked_fill(leaving.done, 0.0)
        leaving.done |= leaving_now
        going_on, rows = leaving.leave()
        if rows is not None and going_on:
            tokens, bounds = tokens[rows], bounds[rows]
            state.select(rows, torch.zeros_like(tokens)[:, None])
    return [
        Hypothesis.of(row[: row.index(EOS_ID)], total, options.length_penalty)
        for row, total in zip(ids.tolist(), totals.tolist(), strict=True)
    ]


@torch.inference_mode()
def beam_search(model: Model, src_tokens: Tensor, options: SearchOptions) -> list[list[Hypothesis]]:
    """Keeps the beam_size likeliest beginnings of every sentence until as many have ended, as fairseq and CTranslate2
    do, or until none that is alive can change the n best."""
    limits = _bounds(model, src_tokens, options)
    bounds = torch.tensor(limits, device=src_tokens.device)
    finished = Finished(len(limits), options, src_tokens.device)
    leaving = _Leaving(len(limits), src_tokens.device)
    beam = Beam(len(limits), src_tokens.device)
    results: list[list[Hypothesis]] = [[] for _ in limits]
    state: Any = model.start(src_tokens)
    going_on = len(limits)
    while going_on:
        logits = model.step(beam.tokens[:, :, -1], state)
        beam.extend(_next(logits, options, beam.length, bounds, min(limits)), options.beam_size)
        finished.add(beam.ends & ~leaving.done[:, None], beam.ending_log_probs, beam.ending_tokens)
        leaving.done |= _is_over(finished, beam.best_alive, beam.length + 1, bounds, options)
        before, done = leaving.sentences, leaving.done
        going_on, rows = leaving.leave()
        if rows is not None:
            gone = done.nonzero()[:, 0]
            for sentence, hypotheses in zip(before[gone].tolist(), finished.best(gone, options), strict=True):
                results[sentence] = hypotheses
            bounds = bounds[rows]
            finished.select(rows)
        state.select(rows, beam.advance(rows))
    return results


def _is_over(finished: Finished, best_alive: Tensor, length: int, bounds: Tensor, options: SearchOptions) -> Tensor:
    """True (B,) where nothing that is alive can change the n best.

    A live hypothesis only loses log-probability, so it can at best keep what it has and be divided by the largest
    penalty that its remaining lengths offer. Stopping on this bound is exact: it changes no result.

    Args:
        finished: the hypotheses that have ended.
        best_alive: (B,), the largest log-probability of a live hypothesis.
        length: the tokens it has.
        bounds: (B,), the most it may have.
        options: names the beam size, n_best and the length penalty.
    """
    alpha = options.length_penalty
    precise = widest_float(bounds.device)
    penalties = ((bounds + 1).to(precise) ** alpha).clamp(min=float((length + 1) ** alpha))
    beaten = finished.scores[:, options.n_best - 1].to(precise) >= best_alive.to(precise) / penalties
    enough = finished.count >= options.beam_size
    return enough | (bounds < length) | ~best_alive.isfinite() | (beaten & (finished.count >= options.n_best))


@torch.inference_mode()
def forced_score(model: TranslationModel, src_tokens: Tensor, ids: Sequence[Sequence[int]]) -> list[float]:
    """Log-probabilities of given translations (without EOS, which is counted) of a padded batch (B, S)."""
    longest = max(len(i) for i in ids) + 1
    tgt_in = torch.full((len(ids), longest), PAD_ID, device=src_tokens.device)
    tgt_out = tgt_in.clone()
    for row, tokens in enumerate(ids):
        tgt_in[row, : len(tokens) + 1] = torch.tensor([SOS_ID, *tokens])
        tgt_out[row, : len(tokens) + 1] = torch.tensor([*tokens, EOS_ID])
    log_probs = log_probs_of(model(src_tokens, tgt_in))
    chosen = log_probs.gather(-1, tgt_out[:, :, None])[:, :, 0].masked_fill(tgt_out == PAD_ID, 0.0)
    scores: list[float] = chosen.sum(dim=1).tolist()
    return scores
