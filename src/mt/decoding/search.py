"""Greedy and beam search over a step-by-step decoder.

    B sentences still searched   W hypotheses kept a sentence   V target vocabulary   T target tokens so far

Every returned hypothesis ends with EOS: one that reaches its length bound is made to end there. So its log-probability
is exactly what forced scoring of the same tokens gives, and search always ends.

All of it stays on the device; once a step the host asks which sentences are done. Those leave when they are a quarter
of the batch: leaving at once would copy the caches of all others again and again.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from mt.data.tokenizer import EOS_ID, PAD_ID, SOS_ID
from mt.decoding.engine import Hypothesis, SearchOptions
from mt.model.transformer import Transformer

_NEVER = slice(0, EOS_ID)  # padding, unknown and SOS are in no translation
_BLOCK = 64


def search(model: Transformer, src_tokens: Tensor, options: SearchOptions) -> list[list[Hypothesis]]:
    """Translates a padded batch `<s> tokens </s>` (B, S).

    Returns:
        for each sentence its n_best hypotheses, best first (fewer where fewer exist).
    """
    if options.beam_size == 1:
        return greedy_search(model, src_tokens, options)
    return beam_search(model, src_tokens, options)


def log_probs_of(logits: Tensor) -> Tensor:
    """The distribution (..., V) over what may come next: padding, the unknown token and SOS never do."""
    logits = logits.float()
    logits[..., _NEVER] = -math.inf
    return logits.log_softmax(dim=-1)


def _bounds(model: Transformer, src_tokens: Tensor, options: SearchOptions) -> list[int]:
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
    log_probs = log_probs_of(logits).view(len(bounds), -1, logits.shape[-1])
    if length < options.min_length:
        log_probs[:, :, EOS_ID] = -math.inf
    if length >= first_bound:
        end = log_probs[:, :, EOS_ID].clone()
        log_probs.masked_fill_((bounds <= length)[:, None, None], -math.inf)
        log_probs[:, :, EOS_ID] = end
    return log_probs


def top(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest numbers (R, k) of each row (R, V), in order, and where they are.

    They lie in the k blocks with the largest maxima; finding those costs one pass, much less than sorting rows.
    """
    rows, columns = x.shape
    blocks = columns // _BLOCK
    if 4 * k > blocks:
        return x.topk(k, dim=-1)
    tail = x[:, blocks * _BLOCK :]
    in_blocks = x[:, : blocks * _BLOCK].view(rows, blocks, _BLOCK)
    best = in_blocks.amax(dim=-1).topk(k, dim=-1).indices  # (R, k)
    values = in_blocks.gather(1, best[:, :, None].expand(-1, -1, _BLOCK)).flatten(1)
    places = (best[:, :, None] * _BLOCK + torch.arange(_BLOCK, device=x.device)).flatten(1)
    places = torch.cat([places, torch.arange(blocks * _BLOCK, columns, device=x.device).expand(rows, -1)], dim=1)
    chosen = torch.cat([values, tail], dim=1).topk(k, dim=-1)
    return chosen.values, places.gather(1, chosen.indices)


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
def greedy_search(model: Transformer, src_tokens: Tensor, options: SearchOptions) -> list[list[Hypothesis]]:
    """Takes the likeliest token at every step."""
    limits = _bounds(model, src_tokens, options)
    bounds = torch.tensor(limits, device=src_tokens.device)
    ids = torch.full((len(limits), max(limits) + 1), EOS_ID, device=src_tokens.device)
    totals = torch.zeros(len(limits), device=src_tokens.device)
    state = model.start(src_tokens)
    leaving = _Leaving(len(limits), src_tokens.device)
    tokens = torch.full_like(leaving.sentences, SOS_ID)
    going_on = len(limits)
    while going_on:
        length = state.position
        log_probs = _next(model.step(tokens[:, None], state), options, length, bounds, min(limits))
        best, tokens = (part[:, 0] for part in top(log_probs[:, 0], 1))
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
        [Hypothesis.of(row[: row.index(EOS_ID)], total, options.length_penalty)]
        for row, total in zip(ids.tolist(), totals.tolist(), strict=True)
    ]


class _Finished:
    """The best finished hypotheses of each sentence, at most as many as the beam is wide.

    Attributes:
        scores, log_probs: (B, W), best first; minus infinity where there are fewer.
        tokens: (B, W, T).
        lengths: (B, W).
        count: (B,), how many have ended, those that were not good enough included.
    """

    def __init__(self, size: int, options: SearchOptions, device: torch.device) -> None:
        self._alpha = options.length_penalty
        self.scores = torch.full((size, options.beam_size), -math.inf, device=device)
        self.log_probs = self.scores
        self.tokens = torch.empty((size, options.beam_size, 0), dtype=torch.long, device=device)
        self.lengths = torch.zeros((size, options.beam_size), dtype=torch.long, device=device)
        self.count = torch.zeros(size, dtype=torch.long, device=device)

    def add(self, ends: Tensor, log_probs: Tensor, tokens: Tensor) -> None:
        """Takes in hypotheses of T tokens that end now.

        Args:
            ends: (B, W'), True at those that do.
            log_probs: (B, W'), EOS included.
            tokens: (B, W', T).
        """
        length = tokens.shape[2]
        log_probs = log_probs.masked_fill(~ends, -math.inf)
        scores = log_probs / (length + 1) ** self._alpha
        padding = tokens.new_zeros(*self.tokens.shape[:2], length - self.tokens.shape[2])
        all_tokens = torch.cat([torch.cat([self.tokens, padding], dim=2), tokens], dim=1)
        all_lengths = torch.cat([self.lengths, torch.full_like(ends, length, dtype=torch.long)], dim=1)
        all_scores = torch.cat([self.scores, scores], dim=1)
        self.scores, best = all_scores.topk(self.scores.shape[1], dim=1)
        self.log_probs = torch.cat([self.log_probs, log_probs], dim=1).gather(1, best)
        self.lengths = all_lengths.gather(1, best)
        self.tokens = all_tokens.gather(1, best[:, :, None].expand(-1, -1, length))
        self.count = self.count + ends.sum(dim=1)

    def select(self, rows: Tensor) -> None:
        self.scores, self.log_probs, self.tokens = self.scores[rows], self.log_probs[rows], self.tokens[rows]
        self.lengths, self.count = self.lengths[rows], self.count[rows]

    def best(self, rows: Tensor, options: SearchOptions) -> list[list[Hypothesis]]:
        """The n best of some rows; an empty translation where the model's numbers failed and none ended."""
        found = []
        n = options.n_best
        fields = (self.log_probs[rows, :n], self.lengths[rows, :n], self.tokens[rows, :n])
        for log_probs, lengths, tokens in zip(*(field.tolist() for field in fields), strict=True):
            hypotheses = [
                Hypothesis.of(ids[:length], log_prob, options.length_penalty)
                for log_prob, length, ids in zip(log_probs, lengths, tokens, strict=True)
                if math.isfinite(log_prob)
            ]
            hypotheses.sort(key=lambda h: -h.score)
            found.append(hypotheses or [Hypothesis([], -math.inf, -math.inf)])
        return found


@torch.inference_mode()
def beam_search(model: Transformer, src_tokens: Tensor, options: SearchOptions) -> list[list[Hypothesis]]:
    """Keeps the beam_size likeliest beginnings of every sentence until as many have ended, as fairseq and CTranslate2
    do, or until none that is alive can change the n best."""
    limits = _bounds(model, src_tokens, options)
    bounds = torch.tensor(limits, device=src_tokens.device)
    finished = _Finished(len(limits), options, src_tokens.device)
    leaving = _Leaving(len(limits), src_tokens.device)
    beam = _Beam(len(limits), src_tokens.device)
    results: list[list[Hypothesis]] = [[] for _ in limits]
    state = model.start(src_tokens)
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


def _is_over(finished: _Finished, best_alive: Tensor, length: int, bounds: Tensor, options: SearchOptions) -> Tensor:
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
    penalties = ((bounds + 1).double() ** alpha).clamp(min=float((length + 1) ** alpha))
    beaten = finished.scores[:, options.n_best - 1].double() >= best_alive.double() / penalties
    enough = finished.count >= options.beam_size
    return enough | (bounds < length) | ~best_alive.isfinite() | (beaten & (finished.count >= options.n_best))


class _Beam:
    """The live hypotheses of all sentences still searched.

    Attributes:
        tokens: SOS and what follows it, (B, W, 1 + T).
        scores: log-probabilities (B, W).
        ends: (B, W), True where one of the W best continuations ends the translation.
        ending_log_probs, ending_tokens: those continuations' (B, W) and (B, W, T), SOS and EOS left out.
        best_alive: (B,), the largest log-probability of a continuation that goes on.
    """

    def __init__(self, size: int, device: torch.device) -> None:
        self.tokens = torch.full((size, 1, 1), SOS_ID, device=device)
        self.scores = torch.zeros(size, 1, device=device)

    @property
    def length(self) -> int:
        return self.tokens.shape[2] - 1

    def extend(self, log_probs: Tensor, beam_size: int) -> None:
        """Finds the best continuations of every sentence among all of its hypotheses' (B, W, V).

        Twice as many as the beam is wide are taken, since up to half of them may end the translation.
        """
        width, vocab = log_probs.shape[1:]
        candidates = log_probs.add_(self.scores[:, :, None]).flatten(1)
        wanted = min(2 * beam_size, candidates.shape[1])
        self._candidate_scores, flat = top(candidates, wanted)
        self._origins, self._next_tokens = flat // vocab, flat % vocab
        ends = self._next_tokens == EOS_ID
        # Live candidates in order of score: a stable sort puts those that end behind those that go on.
        self._live = ends.to(torch.int8).argsort(dim=1, stable=True)[:, : min(beam_size, wanted - width)]
        self.ending_log_probs = self._candidate_scores[:, :beam_size]
        self.ends = ends[:, :beam_size] & self.ending_log_probs.isfinite()
        self.ending_tokens = self._continued(self._origins[:, :beam_size])[:, :, 1:]
        self.best_alive = self._candidate_scores.gather(1, self._live[:, :1])[:, 0]

    def advance(self, rows: Tensor | None) -> Tensor:
        """Moves on by one token, with some rows only (None: all).

        Returns:
            which hypothesis of its sentence each new one continues: what the decoder's state must select.
        """
        if rows is not None:
            self.tokens, self._candidate_scores = self.tokens[rows], self._candidate_scores[rows]
            self._live, self._origins, self._next_tokens = (
                part[rows] for part in (self._live, self._origins, self._next_tokens)
            )
        origins = self._origins.gather(1, self._live)
        next_tokens = self._next_tokens.gather(1, self._live)
        self.tokens = torch.cat([self._continued(origins), next_tokens[:, :, None]], dim=2)
        self.scores = self._candidate_scores.gather(1, self._live)
        return origins

    def _continued(self, origins: Tensor) -> Tensor:
        return self.tokens.gather(1, origins[:, :, None].expand(-1, -1, self.tokens.shape[2]))


@torch.inference_mode()
def forced_score(model: Transformer, src_tokens: Tensor, ids: Sequence[Sequence[int]]) -> list[float]:
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
