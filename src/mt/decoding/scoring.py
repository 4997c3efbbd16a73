"""Forced decoding: log-probabilities that a model assigns to given translations."""

import math
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor

from mt.data.sentence_format import Tags
from mt.data.tokenizer import EOS_ID, PAD_ID, SOS_ID
from mt.data.tokenizer_kinds import TokenizerPair
from mt.decoding.engine import batch_by_length
from mt.decoding.search import log_probs_of, pad_sources, padded
from mt.decoding.settings import TranslationSettings
from mt.model.build import TranslationModel
from mt.model.packing import Packing
from mt.system.devices import TORCH_THREADS, map_in_threads

_MAX_LOGITS = 2**26  # of a batch, whatever its size in tokens: 256 MiB
CPU_TOKENS = 1024  # of a batch on a CPU, where each thread has batches of its own: larger ones leave the caches


class Scored(NamedTuple):
    """The score of a pair."""

    log_prob: float  # natural log-probability of the translation and EOS, given the source
    tokens: int  # of the translation, EOS counted


def score_pairs(
    model: TranslationModel,
    tokenizers: TokenizerPair,
    tags: Tags,
    settings: TranslationSettings,
    pairs: Sequence[tuple[str, str]],
) -> list[Scored | None]:
    """Score pairs of a source and a translation with one model; `tags` are those of their direction.

    None where the source is empty, the target has unknown tokens, or a side is longer than the model's limit.
    """
    max_source, max_target = settings.max_source_tokens, settings.max_positions
    encoded = tokenizers.source.encode_batch([source for source, _ in pairs], max_source)
    targets = tokenizers.target.encode_batch([target for _, target in pairs], max_target)
    sources = [tags.source(source) if source else [] for source in encoded]
    tagged, n_free = list(map(tags.target, targets)), len(tags.target([]))
    lengths = []
    for source, target in zip(sources, tagged, strict=True):
        fits = source and len(source) + 2 <= max_source and len(target) < max_target
        lengths.append(max(len(source) + 2, len(target) + 1) if fits else 0)
    on_cpu = model.device.type == "cpu"
    max_tokens = min(CPU_TOKENS if on_cpu else settings.batch_tokens, _MAX_LOGITS // tokenizers.target.vocab_size)
    batches = list(batch_by_length(lengths, max_tokens))

    def log_probs(batch: Sequence[int]) -> list[float]:
        src_tokens = pad_sources([sources[i] for i in batch], model.device, model.source_format)
        return forced_score(model, src_tokens, [tagged[i] for i in batch], n_free)

    results: list[Scored | None] = [None] * len(pairs)
    with TORCH_THREADS:
        scores = map_in_threads(log_probs, batches, torch.get_num_threads() if on_cpu else 1)
    for i, log_prob in zip(chain(*batches), chain(*scores), strict=True):
        if math.isfinite(log_prob):  # the unknown token has no probability
            results[i] = Scored(log_prob, len(targets[i]) + 1)
    return results


@torch.inference_mode()
def forced_score(
    model: TranslationModel, src_tokens: Tensor, ids: Sequence[Sequence[int]], n_free: int = 0
) -> list[float]:
    """Return the log-probability, EOS included, of one translation (without EOS) per sentence of a batch (B, S).

    The first `n_free` tokens, which are tags, are not counted.
    """
    rows = [[SOS_ID, *tokens] for tokens in ids] + [[*tokens, EOS_ID] for tokens in ids]
    tgt_in, tgt_out = padded(rows, src_tokens.device).chunk(2)  # one copy to a GPU
    tgt = Packing.of(tgt_in)
    states = model.states(src_tokens, tgt_in, Packing.of(src_tokens), tgt)  # (N, D)
    log_probs = log_probs_of(model.output(states))  # (N, V)
    chosen = tgt.unpack(log_probs.gather(-1, tgt.pack(tgt_out)[:, None]))[:, :, 0]  # (B, T)
    chosen = chosen.masked_fill(tgt_out == PAD_ID, 0.0)
    scores: list[float] = chosen[:, n_free:].sum(dim=1).tolist()
    return scores
