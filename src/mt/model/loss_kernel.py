"""The cross-entropy of rows of logits and its gradient, as one Triton kernel.

Import it only where Triton is installed. Against double precision, measured in Triton's interpreter with rows of 37 to
9,001 logits (tests/gpu/check_loss_kernel.py): losses differ by at most 7e-8 of the largest; gradients by 4e-7 in fp32,
by one rounding of each element in fp16, and by two in bf16, of which the interpreter cuts off the last bits.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_MAX_COLUMNS = 8192  # of a row that are read at a time


@torch.library.custom_op("mt::cross_entropy_rows", mutates_args=("logits", "losses"))
def cross_entropy_rows(logits: Tensor, labels: Tensor, losses: Tensor, smoothing: float, scale: float) -> None:
    """Compute label-smoothed cross-entropies and overwrite the logits with their gradients, as `plain_rows` does.

    A row is read twice: for its largest logit and sums (Milakov and Gimelshein 2018, arXiv:1805.02867), then for its
    gradient. Sums are in fp32.

    Args:
        logits: (R, V) in any number format; elements between V and a row's stride are overwritten, too.
        labels: the correct tokens (R,), int64; `IGNORED` where a row has neither loss nor gradient.
        losses: takes the losses and the negative log-likelihoods without smoothing, (2, R) in fp32.
        smoothing: probability spread evenly over the vocabulary.
        scale: factor of the gradient; at 0 there is none and the logits stay.
    """
    rows, vocab = logits.shape
    columns = min(triton.next_power_of_2(vocab), _MAX_COLUMNS)
    arguments = logits, labels, losses[0], losses[1], logits.stride(0), vocab, smoothing, scale
    with torch.cuda.device_of(logits):  # type: ignore[no-untyped-call]  # Triton takes the current device
        _kernel[(rows,)](*arguments, WANTS_GRADIENT=scale != 0, COLUMNS=columns, num_warps=max(1, columns // 1024))


@cross_entropy_rows.register_fake
def _(logits: Tensor, labels: Tensor, losses: Tensor, smoothing: float, scale: float) -> None:
    pass


@triton.jit  # type: ignore[untyped-decorator]
def _kernel(  # type: ignore[no-untyped-def]
    logits,
    labels,
    losses,
    nlls,
    stride,
    vocab,
    smoothing,
    scale,
    WANTS_GRADIENT: tl.constexpr,  # noqa: N803
    COLUMNS: tl.constexpr,  # noqa: N803
):
    row = tl.program_id(0).to(tl.int64)  # row * stride may exceed 2^31
    logits += row * stride
    label = tl.load(labels + row)
    counts = label >= 0
    label_logit = tl.load(logits + label, mask=counts, other=0.0).to(tl.float32)
    highest = float("-inf")
    total = 0.0
    logit_sum = 0.0
    for start in range(0, vocab, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        # Loads are wide where the mask's bound is a multiple of 16, as the stride is and the vocabulary may not be.
        z = tl.load(logits + column, mask=column < stride, other=0.0).to(tl.float32)
        logit_sum += tl.sum(tl.where(column < vocab, z, 0.0))
        z = tl.where(column < vocab, z, float("-inf"))
        new_highest = tl.maximum(highest, tl.max(z))
        total = total * tl.exp(highest - new_highest) + tl.sum(tl.exp(z - new_highest))
        highest = new_highest
    log_total = tl.log(total) + highest
    loss = log_total - (1 - smoothing) * label_logit - smoothing * (logit_sum / vocab)
    tl.store(losses + row, tl.where(counts, loss, 0.0))
    tl.store(nlls + row, tl.where(counts, log_total - label_logit, 0.0))
    if WANTS_GRADIENT:
        scale = tl.where(counts, scale, 0.0)
        tl.debug_barrier()  # every thread has read the label's logit before one overwrites it
        for start in range(0, vocab, COLUMNS):
            column = start + tl.arange(0, COLUMNS)
            z = tl.load(logits + column, mask=column < stride, other=0.0).to(tl.float32)
            z = tl.where(column < vocab, z, float("-inf"))
            gradient = tl.exp(z - highest) / total - smoothing / vocab - tl.where(column == label, 1 - smoothing, 0.0)
            tl.store(logits + column, (gradient * scale).to(logits.dtype.element_ty), mask=column < stride)
