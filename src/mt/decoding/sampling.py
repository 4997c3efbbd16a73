"""Drawing translations by chance.

    R rows, one translation each   V target vocabulary   T target tokens

Each row has its own random numbers, a function of the seed, the source and which draw it is: what else is translated
beside it, in which order and on how many threads changes nothing, but where rounding in bf16 tips a close choice.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from mt.decoding.engine import Sampling
from mt.system.devices import widest_float


class Draws:
    """The random numbers of a batch, and how they choose tokens.

    Args:
        sampling: how to draw.
        sentences: source ids of each row, without specials.
        numbers: which of its sentence's draws each row is.
        longest: the most tokens of a translation, EOS counted.
        device: where to compute.
    """

    def __init__(
        self,
        sampling: Sampling,
        sentences: Sequence[Sequence[int]],
        numbers: Sequence[int],
        longest: int,
        device: torch.device,
    ) -> None:
        self._sampling = sampling
        seeds = (
            np.random.SeedSequence([sampling.seed, number, *ids])
            for ids, number in zip(sentences, numbers, strict=True)
        )
        uniform = np.stack([np.random.Generator(np.random.PCG64(seed)).random(longest) for seed in seeds])
        self._uniform = torch.from_numpy(uniform).to(widest_float(device)).to(device)  # (R, T)

    def choose(self, log_probs: Tensor, rows: Tensor, position: int) -> Tensor:
        """Draws a token for each of some rows (R',) from log-probabilities (R', V)."""
        return draw(log_probs, self._sampling, self._uniform[rows, position])


def draw(log_probs: Tensor, sampling: Sampling, uniform: Tensor) -> Tensor:
    """Draws from distributions (R, V), one number between 0 and 1 deciding each (R,).

    The temperature divides the log-probabilities; of what results only the `top_k` likeliest tokens may come (Fan et
    al. 2018, arXiv:1805.04833), and of these the smallest number of likeliest ones that have `top_p` of the
    probability together (Holtzman et al. 2020, arXiv:1904.09751).
    """
    probs = (log_probs / sampling.temperature).softmax(dim=-1, dtype=uniform.dtype)
    places = None
    if sampling.top_k > 0 or sampling.top_p < 1:
        probs, places = probs.topk(min(sampling.top_k or probs.shape[-1], probs.shape[-1]), dim=-1)
    total = probs.cumsum(dim=-1)
    if sampling.top_p < 1:
        # The last to be kept is the first with which the sum reaches top_p of what top_k left.
        before = total - probs
        probs = probs.masked_fill(before >= sampling.top_p * total[:, -1:], 0.0)
        total = probs.cumsum(dim=-1)
    chosen = torch.searchsorted(total, uniform[:, None] * total[:, -1:], right=True)
    chosen = chosen.clamp(max=probs.shape[-1] - 1)
    return (chosen if places is None else places.gather(-1, chosen))[:, 0]
