"""Parts of the loss on a GPU: the cross-entropy of rows of logits, and matrix products summed in fp32."""

import warnings
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

IGNORED = -1  # the label of a row without a loss


def plain_rows(logits: Tensor, labels: Tensor, losses: Tensor, smoothing: float, scale: float) -> None:
    """Do the same as `loss_kernel.cross_entropy_rows` in plain torch."""
    counts = labels >= 0
    label = labels.clamp(min=0)[:, None]
    log_probs = logits.log_softmax(dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    label_log_prob = log_probs.gather(-1, label)[:, 0]
    losses[0] = (-(1 - smoothing) * label_log_prob - smoothing * log_probs.mean(dim=-1)) * counts
    losses[1] = -label_log_prob * counts
    if scale:
        gradient = log_probs.exp_().sub_(smoothing / logits.shape[1])
        gradient.scatter_add_(-1, label, gradient.new_full((), smoothing - 1).expand(label.shape))
        logits.copy_(gradient.mul_(scale * counts[:, None]))


@cache
def rows_function(device: torch.device, dtype: torch.dtype) -> Callable[[Tensor, Tensor, Tensor, float, float], None]:
    """Return the Triton kernel if it runs on a device with logits of a number format, else `plain_rows`."""
    if find_spec("triton") is None:
        return plain_rows
    try:  # a missing C compiler or Python.h shows only at the first launch
        from mt.model.loss_kernel import cross_entropy_rows

        labels = torch.zeros(1, dtype=torch.int64, device=device)
        logits, losses = torch.zeros(1, 1, dtype=dtype, device=device), torch.zeros(2, 1, device=device)
        cross_entropy_rows(logits, labels, losses, 0.1, 1.0)
    except Exception as error:
        warnings.warn(f"the loss's Triton kernel does not run, plain torch does: {error}", stacklevel=2)
        return plain_rows
    return cross_entropy_rows


def add_product(total: Tensor, a: Tensor, b: Tensor, factor: float) -> None:
    """Add factor * a @ b to `total`, in the number format of `total`."""
    if a.dtype == total.dtype:
        total.addmm_(a, b, alpha=factor)
    elif a.is_cuda and torch.cuda.get_device_capability(a.device) >= (8, 0):
        torch.addmm(total, a, b, out_dtype=total.dtype, alpha=factor, out=total)
    else:  # older cards cannot add to another number format
        total.add_(torch.addmm(a.new_empty(1), a, b, beta=0, alpha=factor))
