"""The hypotheses of beam search: those alive and those that have ended, all of them tensors.

B sentences still searched   W hypotheses kept a sentence   V target vocabulary   T target tokens so far
"""

import math

import torch
from torch import Tensor

from mt.data.tokenizer import EOS_ID, SOS_ID
from mt.decoding.engine import Hypothesis, SearchOptions

_BLOCK = 64


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


class Beam:
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


class Finished:
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
