"""Greedy search, beam search and sampling over a step-by-step decoder.

    B sentences being searched   W hypotheses per sentence   V target vocabulary   T target tokens so far

Every hypothesis ends with EOS, which is forced at the length bound. So its log-probability equals that of forced
decoding, and search always ends.

Everything stays on the device; once per step the host asks which sentences are done. They leave when they are a
quarter of the batch, because removing each at once would copy the caches of all others again and again.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mt.data.sentence_format import SOURCE_FORMATS, framed
from mt.data.tokenizer import EOS_ID, PAD_ID, SOS_ID
from mt.decoding.beam import Beam, Finished, block_topk
from mt.decoding.cuda_graphs import GraphedDecoder
from mt.decoding.engine import Hypothesis, SearchOptions, Sentences
from mt.decoding.ensemble import Ensemble
from mt.decoding.sampling import Draw, draw_tokens, uniform_numbers
from mt.model.build import TranslationModel
from mt.system.devices import widest_float

Model = TranslationModel | Ensemble | GraphedDecoder

_FORBIDDEN = slice(0, EOS_ID)  # padding, unknown and SOS


def pad_sources(
    sentences: Sequence[Sequence[int]], device: torch.device, source_format: str = SOURCE_FORMATS[0]
) -> Tensor:
    """Return sentences as a padded batch (B, S) with the special tokens of their format, by default SOS and EOS."""
    return padded([framed(ids, source_format) for ids in sentences], device)


def padded(rows: Sentences, device: torch.device, padding: int = PAD_ID) -> Tensor:
    """Return token ids as a batch (B, L) with padding behind them."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[padding] * (longest - len(row))] for row in rows], device=device)


def search(
    model: Model, src_tokens: Tensor, options: SearchOptions, prefixes: Sentences = (), draws: Sequence[Draw] = ()
) -> list[list[Hypothesis]]:
    """Translate a padded batch (B, S) to the n best hypotheses of each sentence, best first; there may be fewer.

    With prefixes, one for each sentence, translations begin with them. With `sampling`, one translation of each
    sentence is drawn, with the random numbers of its draw.
    """
    if options.beam_size == 1 or options.sampling is not None:
        return [[hypothesis] for hypothesis in greedy_search(model, src_tokens, options, prefixes, draws)]
    return beam_search(model, src_tokens, options, prefixes)


def log_probs_of(logits: Tensor) -> Tensor:
    """Return log-probabilities (..., V) without padding, unknown and SOS; overwrites the logits."""
    logits = logits.float()
    logits[..., _FORBIDDEN] = -math.inf
    return logits.log_softmax(dim=-1)


def _length_bounds(model: Model, src_tokens: Tensor, options: SearchOptions) -> list[int]:
    # Every source counts as between SOS and EOS, so that a model's format does not change its bounds.
    uncounted = 2 - len(framed([], model.source_format))
    lengths = (src_tokens != PAD_ID).sum(dim=1).tolist()
    return [options.longest(n + uncounted, model.max_positions) for n in lengths]


def _ban_repetitions(logits: Tensor, tokens: Tensor, size: int) -> None:
    """Set logits (B * W, V) to minus infinity where a token would complete an n-gram that is in `tokens` (B, W, T)."""
    ngrams = tokens.flatten(0, 1).unfold(1, size, 1)  # (B * W, T - n + 1, n)
    current = tokens.flatten(0, 1)[:, tokens.shape[2] - size + 1 :]  # (B * W, n - 1)
    rows, places = (ngrams[:, :, :-1] == current[:, None]).all(dim=2).nonzero(as_tuple=True)
    logits[rows, ngrams[rows, places, -1]] = -math.inf


class _Rows:
    """The rows of a batch that are still computed.

    Attributes:
        sentences: (B,), each row's index in the original batch.
        done: (B,), True where search is over, though the row may still be computed.
        bounds: (B,), maximum lengths of the translations.
        forced: (B, P), tokens that translations begin with; -1 beyond the end of a prefix.
        n_forced: (B,), the number of these; -1 for a sentence without prefix.
    """

    def __init__(self, limits: Sequence[int], prefixes: Sentences, device: torch.device) -> None:
        self.sentences = torch.arange(len(limits), device=device)
        self.done = torch.zeros(len(limits), dtype=torch.bool, device=device)
        self.bounds = torch.tensor(limits, device=device)
        self._min_bound = min(limits)  # known to the host so that their mask is computed only where it matters
        if prefixes:
            self.forced = padded(prefixes, device, -1)
            self.n_forced = torch.tensor([len(row) or -1 for row in prefixes], device=device)
        else:  # made on the device, since a copy would wait for it
            self.forced = torch.full((len(limits), 0), -1, device=device)
            self.n_forced = torch.full((len(limits),), -1, device=device)

    def next_log_probs(self, logits: Tensor, tokens: Tensor, options: SearchOptions) -> Tensor:
        """Return log-probabilities (B, W, V) from logits (B * W, V), minus infinity where a rule forbids a token.

        The logits are those of the token behind the hypotheses' `tokens` (B, W, T), without SOS. A forced token has
        log-probability 0.
        """
        length = tokens.shape[2]
        if 0 < options.no_repeat_ngram_size <= length:
            _ban_repetitions(logits, tokens, options.no_repeat_ngram_size)
        if length < options.min_length:
            logits[:, EOS_ID] = -math.inf
        log_probs = log_probs_of(logits).view(len(self.bounds), -1, logits.shape[-1])
        if length >= self._min_bound:
            end = log_probs[:, :, EOS_ID].clone()
            log_probs.masked_fill_((self.bounds <= length)[:, None, None], -math.inf)
            log_probs[:, :, EOS_ID] = end
        if length < self.forced.shape[1]:
            rows = (self.forced[:, length] >= 0).nonzero()[:, 0]
            log_probs[rows] = -math.inf
            log_probs[rows, :, self.forced[rows, length]] = 0.0
        return log_probs

    def drop_done(self) -> tuple[int, Tensor | None]:
        """Return the number of sentences not done, and the rows to keep (None: all)."""
        active = len(self.done) - int(self.done.sum())
        if 4 * active > 3 * len(self.done):
            return active, None
        rows = torch.nonzero_static(~self.done, size=active)[:, 0]  # of a known size, so nothing waits for a GPU
        tensors = self.sentences, self.done, self.bounds, self.forced, self.n_forced
        self.sentences, self.done, self.bounds, self.forced, self.n_forced = (x[rows] for x in tensors)
        return active, rows


@torch.inference_mode()
def greedy_search(
    model: Model, src_tokens: Tensor, options: SearchOptions, prefixes: Sentences = (), draws: Sequence[Draw] = ()
) -> list[Hypothesis]:
    """Append the likeliest token to each translation until EOS; with `sampling`, a random one."""
    limits = _length_bounds(model, src_tokens, options)
    rows = _Rows(limits, prefixes, src_tokens.device)
    ids = torch.full((len(limits), max(limits) + 1), EOS_ID, device=src_tokens.device)
    totals = torch.zeros(len(limits), device=src_tokens.device)
    uniform = None
    if options.sampling is not None:
        uniform = uniform_numbers(options.sampling, draws, max(limits) + 1, src_tokens.device)  # (B, T)
    state: Any = model.start(src_tokens)
    tokens = torch.full_like(rows.sentences, SOS_ID)  # (B,)
    for length in range(max(limits) + 1):
        logits = model.step(tokens[:, None], state)  # (B, V)
        so_far = ids[rows.sentences, None, :length]  # (B, 1, T)
        log_probs = rows.next_log_probs(logits, so_far, options)[:, 0]  # (B, V)
        if uniform is None or options.sampling is None:
            best, tokens = (x[:, 0] for x in block_topk(log_probs, 1))
        else:
            tokens = draw_tokens(log_probs, options.sampling, uniform[rows.sentences, length])
            best = log_probs.gather(1, tokens[:, None])[:, 0]
        # Where logits are NaN, EOS may never be chosen, not even at the bound.
        ended = (tokens == EOS_ID) | (rows.bounds <= length) | ~best.isfinite()
        tokens = tokens.masked_fill(rows.done | ended, EOS_ID)
        ids[rows.sentences, length] = tokens
        totals[rows.sentences] += best.masked_fill(rows.done, 0.0)
        rows.done |= ended
        active, kept = rows.drop_done()
        if not active:
            break
        if kept is not None:
            tokens = tokens[kept]
            state.select(kept, torch.zeros_like(tokens)[:, None])
    return [
        Hypothesis.of(row[: row.index(EOS_ID)], total, options.length_penalty)
        for row, total in zip(ids.tolist(), totals.tolist(), strict=True)
    ]


@torch.inference_mode()
def beam_search(
    model: Model, src_tokens: Tensor, options: SearchOptions, prefixes: Sentences = ()
) -> list[list[Hypothesis]]:
    """Keep the beam_size likeliest prefixes of each sentence until as many hypotheses have ended.

    fairseq and CTranslate2 do the same. A sentence is done earlier where no live prefix can change its n best.
    """
    limits = _length_bounds(model, src_tokens, options)
    rows = _Rows(limits, prefixes, src_tokens.device)
    finished = Finished(len(limits), options, src_tokens.device)
    beam = Beam(len(limits), src_tokens.device)
    removed: list[tuple[Tensor, Finished]] = []  # read at the end, since reading waits for a GPU
    state: Any = model.start(src_tokens)
    active = len(limits)
    while active:
        # 1. Score all continuations of all live hypotheses, and take the best.
        logits = model.step(beam.tokens[:, :, -1], state)  # (B * W, V)
        so_far = beam.tokens[:, :, 1:]  # (B, W, T)
        log_probs = rows.next_log_probs(logits, so_far, options)  # (B, W, V)
        prefix_ended = rows.n_forced == beam.length if beam.length <= rows.forced.shape[1] else None
        beam.extend(log_probs, options.beam_size, prefix_ended)
        # 2. Those with EOS are finished.
        finished.add(beam.ends & ~rows.done[:, None], beam.ending_log_probs, beam.ending_tokens)
        rows.done |= _is_over(finished, beam.best_live, beam.length + 1, rows.bounds, options)
        # 3. Sentences that are done leave the batch.
        sentences, done = rows.sentences, rows.done
        active, kept = rows.drop_done()
        if kept is not None:
            leaving = torch.nonzero_static(done, size=len(done) - active)[:, 0]
            removed.append((sentences[leaving], finished.select(leaving)))
            finished = finished.select(kept)
        # 4. The others become the live hypotheses; each takes the cache of the one that it continues.
        state.select(kept, beam.advance(kept))
    results: list[list[Hypothesis]] = [[] for _ in limits]
    for sentences, ended in removed:
        for sentence, n_best in zip(sentences.tolist(), ended.n_best(options), strict=True):
            results[sentence] = n_best
    return results


def _is_over(finished: Finished, best_live: Tensor, length: int, bounds: Tensor, options: SearchOptions) -> Tensor:
    """Return True (B,) where no live hypothesis can change the n best.

    Continuing only lowers a log-probability, so the best possible score of a live hypothesis is its present
    log-probability (`best_live`, (B,)) over the largest penalty that its remaining lengths allow. This bound is exact:
    stopping on it changes no result.
    """
    alpha = options.length_penalty
    precise = widest_float(bounds.device)
    penalties = ((bounds + 1).to(precise) ** alpha).clamp(min=float((length + 1) ** alpha))
    beaten = finished.scores[:, options.n_best - 1].to(precise) >= best_live.to(precise) / penalties
    enough = finished.count >= options.beam_size
    return enough | (bounds < length) | ~best_live.isfinite() | (beaten & (finished.count >= options.n_best))
