"""Random sampling of tokens.

    R rows, one translation each   V target vocabulary   T target tokens

The random numbers of a row are a function of the seed, the source and the index of the draw, so that batching, order
and threads change no sample, except where rounding in bf16 decides a close choice.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from mt.decoding.engine import Sampling
from mt.system.devices import widest_float

Draw = tuple[Sequence[int], int]  # the source ids of a sentence, without specials, and a number among its draws


def uniform_numbers(sampling: Sampling, draws: Sequence[Draw], longest: int, device: torch.device) -> Tensor:
    """Return random numbers (R, T) in [0, 1) for the tokens of translations of at most T = `longest`, EOS counted."""
    rows = [
        np.random.Generator(np.random.PCG64([sampling.seed, number, *ids])).random(longest) for ids, number in draws
    ]
    return torch.from_numpy(np.stack(rows)).to(widest_float(device)).to(device)


def draw_tokens(log_probs: Tensor, sampling: Sampling, uniform: Tensor) -> Tensor:
    """Draw from distributions (R, V) by inverting their cumulative distributions at uniform numbers (R,).

    First the temperature divides the log-probabilities, then `top_k` (Fan et al. 2018, arXiv:1805.04833) and `top_p`
    (Holtzman et al. 2020, arXiv:1904.09751) truncate the distribution.
    """
    probs = (log_probs / sampling.temperature).softmax(dim=-1, dtype=uniform.dtype)
    tokens = None
    if sampling.top_k > 0 or sampling.top_p < 1:
        probs, tokens = probs.topk(min(sampling.top_k or probs.shape[-1], probs.shape[-1]), dim=-1)
    total = probs.cumsum(dim=-1)
    if sampling.top_p < 1:
        # The last token kept is the first with which the sum reaches top_p of the probability that top_k left.
        before = total - probs
        probs = probs.masked_fill(before >= sampling.top_p * total[:, -1:], 0.0)
        total = probs.cumsum(dim=-1)
    chosen = torch.searchsorted(total, uniform[:, None] * total[:, -1:], right=True)
    chosen = chosen.clamp(max=probs.shape[-1] - 1)
    return (chosen if tokens is None else tokens.gather(-1, chosen))[:, 0]
