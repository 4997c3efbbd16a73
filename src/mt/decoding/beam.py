"""Live and finished hypotheses of beam search, as tensors.

B sentences being searched   W hypotheses per sentence   V target vocabulary   T target tokens so far
"""

import copy
import math

import torch
from torch import Tensor

from mt.data.tokenizer import EOS_ID, SOS_ID
from mt.decoding.engine import Hypothesis, SearchOptions

_BLOCK = 64


def block_topk(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest values (R, k) of each row (R, V), sorted, and their indices; equals `topk`, but faster.

    They lie in the k blocks with the largest maxima, and finding those takes one pass over the row.
    """
    rows, columns = x.shape
    blocks = columns // _BLOCK
    if 4 * k > blocks:
        return x.topk(k, dim=-1)
    tail = x[:, blocks * _BLOCK :]
    in_blocks = x[:, : blocks * _BLOCK].view(rows, blocks, _BLOCK)
    best = in_blocks.amax(dim=-1).topk(k, dim=-1).indices  # (R, k)
    values = in_blocks.gather(1, best[:, :, None].expand(-1, -1, _BLOCK)).flatten(1)
    indices = (best[:, :, None] * _BLOCK + torch.arange(_BLOCK, device=x.device)).flatten(1)
    indices = torch.cat([indices, torch.arange(blocks * _BLOCK, columns, device=x.device).expand(rows, -1)], dim=1)
    chosen = torch.cat([values, tail], dim=1).topk(k, dim=-1)
    return chosen.values, indices.gather(1, chosen.indices)


class Beam:
    """The live hypotheses of all sentences being searched.

    Attributes:
        tokens: (B, W, 1 + T), beginning with SOS.
        scores: log-probabilities (B, W).
        ends: (B, W), True where one of the W best continuations is EOS.
        ending_log_probs, ending_tokens: of those continuations, (B, W) and (B, W, T), without SOS and EOS.
        best_live: (B,), the largest log-probability of a continuation other than EOS.
    """

    def __init__(self, batch_size: int, device: torch.device) -> None:
        self.tokens = torch.full((batch_size, 1, 1), SOS_ID, device=device)
        self.scores = torch.zeros(batch_size, 1, device=device)

    @property
    def length(self) -> int:
        return self.tokens.shape[2] - 1

    def extend(self, log_probs: Tensor, beam_size: int, prefix_ended: Tensor | None = None) -> None:
        """Find the best continuations of each sentence, given log-probabilities of the next token (B, W, V).

        Of the 2 * beam_size best continuations at most half end with EOS, so enough live ones remain. As in
        CTranslate2, a translation ends directly behind its prefix (`prefix_ended` (B,) is True) only if nothing is
        likelier, and otherwise that place of the beam stays empty.
        """
        width, vocab = log_probs.shape[1:]
        candidates = log_probs.add_(self.scores[:, :, None]).flatten(1)  # (B, W * V)
        k = min(2 * beam_size, candidates.shape[1])
        scores, flat = block_topk(candidates, k)  # (B, k)
        origins, next_tokens = flat // vocab, flat % vocab
        ends = next_tokens == EOS_ID
        if prefix_ended is not None:
            empty = ends & prefix_ended[:, None]
            empty[:, 0] = False
            scores, ends = scores.masked_fill(empty, -math.inf), ends & ~empty
        self.ending_log_probs = scores[:, :beam_size]
        self.ends = ends[:, :beam_size] & self.ending_log_probs.isfinite()
        self.ending_tokens = self._gather_tokens(origins[:, :beam_size])[:, :, 1:]
        # A stable sort moves those that end behind the live ones, both in order of score.
        live = ends.to(torch.int8).argsort(dim=1, stable=True)[:, : min(beam_size, k - width)]
        self._live = [x.gather(1, live) for x in (origins, next_tokens, scores)]
        self.best_live = self._live[2][:, 0]

    def advance(self, rows: Tensor | None) -> Tensor:
        """Append the next tokens to the live hypotheses of the selected sentences (None: all).

        Returns:
            for each new hypothesis the index of the one it continues (B, W), which reorders the decoder's state.
        """
        if rows is not None:
            self.tokens, *self._live = (x[rows] for x in (self.tokens, *self._live))
        origins, next_tokens, self.scores = self._live
        self.tokens = torch.cat([self._gather_tokens(origins), next_tokens[:, :, None]], dim=2)
        return origins

    def _gather_tokens(self, origins: Tensor) -> Tensor:
        return self.tokens.gather(1, origins[:, :, None].expand(-1, -1, self.tokens.shape[2]))


class Finished:
    """The best finished hypotheses of each sentence, at most beam_size.

    Attributes:
        scores, log_probs: (B, W), best first; minus infinity where there are fewer.
        tokens, lengths: (B, W, T) and (B, W).
        count: (B,), the number of hypotheses that have ended so far.
    """

    def __init__(self, batch_size: int, options: SearchOptions, device: torch.device) -> None:
        shape = (batch_size, options.beam_size)
        self._alpha = options.length_penalty
        self.scores = torch.full(shape, -math.inf, device=device)
        self.log_probs = self.scores
        self.tokens = torch.empty((*shape, 0), dtype=torch.long, device=device)
        self.lengths = torch.zeros(shape, dtype=torch.long, device=device)
        self.count = torch.zeros(batch_size, dtype=torch.long, device=device)

    def add(self, ends: Tensor, log_probs: Tensor, tokens: Tensor) -> None:
        """Add hypotheses of T tokens (B, W', T) with log-probabilities (B, W'), where `ends` (B, W') is True."""
        length = tokens.shape[2]
        log_probs = log_probs.masked_fill(~ends, -math.inf)
        scores = log_probs / (length + 1) ** self._alpha
        padding = tokens.new_zeros(*self.tokens.shape[:2], length - self.tokens.shape[2])
        all_tokens = torch.cat([torch.cat([self.tokens, padding], dim=2), tokens], dim=1)
        all_lengths = torch.cat([self.lengths, torch.full_like(ends, length, dtype=torch.long)], dim=1)
        self.scores, best = torch.cat([self.scores, scores], dim=1).topk(self.scores.shape[1], dim=1)
        self.log_probs = torch.cat([self.log_probs, log_probs], dim=1).gather(1, best)
        self.lengths = all_lengths.gather(1, best)
        self.tokens = all_tokens.gather(1, best[:, :, None].expand(-1, -1, length))
        self.count = self.count + ends.sum(dim=1)

    def select(self, rows: Tensor) -> "Finished":
        """Return the hypotheses of the selected sentences."""
        selected = copy.copy(self)
        selected.scores, selected.log_probs = self.scores[rows], self.log_probs[rows]
        selected.tokens, selected.lengths, selected.count = self.tokens[rows], self.lengths[rows], self.count[rows]
        return selected

    def n_best(self, options: SearchOptions) -> list[list[Hypothesis]]:
        """Return the n best of each sentence; an empty translation where none ended, since logits were NaN."""
        results = []
        fields = (x[:, : options.n_best].tolist() for x in (self.log_probs, self.lengths, self.tokens))
        for log_probs, lengths, tokens in zip(*fields, strict=True):
            hypotheses = [
                Hypothesis.of(ids[:length], log_prob, options.length_penalty)
                for log_prob, length, ids in zip(log_probs, lengths, tokens, strict=True)
                if math.isfinite(log_prob)
            ]
            hypotheses.sort(key=lambda h: -h.score)
            results.append(hypotheses or [Hypothesis([], -math.inf, -math.inf)])
        return results
