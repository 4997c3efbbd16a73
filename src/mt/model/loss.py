"""Cross-entropy losses fused with the output layer.

    N target tokens   R rows of a block   D d_model   V vocabulary

The logits of a batch (N, V) are by far its largest tensor. Here they exist a few hundred rows at a time: a block's loss
and gradients are computed while it is in the processor's cache, and the smoothed targets are never built.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mt.model.linear import linear_without_grad
from mt.model.loss_rows import add_product, plain_rows, rows_function

_BLOCK_BYTES = 2**29  # of a block of logits in fp32, on a GPU
Teachers = Sequence[tuple[Tensor, Tensor]]  # each one's states (N, E) of the same tokens, and output matrix (V, E)
# A loss, the negative log-likelihood, and the loss's gradients by states and weight, where they are wanted.
Losses = tuple[Tensor, Tensor, tuple[Tensor, Tensor] | None]


def with_bias(states: Tensor, output: nn.Linear) -> tuple[Tensor, Tensor]:
    """Return states (N, D) and the output layer's matrix (V, D); a bias is one more column, of ones in the states.

    Seven columns of zeros follow, because GPUs multiply matrices of aligned width faster.
    """
    if output.bias is None:
        return states, output.weight
    weight = torch.cat([output.weight, output.bias[:, None]], dim=1)
    return F.pad(F.pad(states, (0, 1), value=1.0), (0, 7)), F.pad(weight, (0, 7))


def fused_cross_entropy(states: Tensor, weight: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Apply the output layer and return the label-smoothed cross-entropy, as `torch.nn.functional.cross_entropy` does.

    Args:
        states: the decoder's last states (N, D), packed.
        weight: the output layer's matrix (V, D).
        labels: the correct tokens (N,).
        smoothing: probability spread evenly over the vocabulary (Szegedy et al. 2016, arXiv:1512.00567).

    Returns:
        the loss, and the negative log-likelihood without smoothing or gradient; both summed over tokens, in nats.
    """
    # Inside the autograd function gradients are always off.
    wants_gradient = torch.is_grad_enabled() and (states.requires_grad or weight.requires_grad)
    compute = _cuda_cross_entropy if states.is_cuda else _cross_entropy
    return fused(compute, states, weight, labels, smoothing, wants_gradient)


def fused(compute: Callable[..., Losses], *arguments: Any) -> tuple[Tensor, Tensor]:
    """Return a loss and the negative log-likelihood, both summed over tokens, in nats; only the loss has a gradient.

    Args:
        compute: computes them and the gradients by its first two arguments, states and weight.
        arguments: of `compute`.
    """
    loss, nll = _FusedLoss.apply(compute, *arguments)  # type: ignore[no-untyped-call]
    return loss, nll


class _FusedLoss(torch.autograd.Function):
    """A loss that is computed together with its gradients by the first two arguments, states and weight."""

    @staticmethod
    def forward(ctx: Any, compute: Callable[..., Losses], *arguments: Any) -> tuple[Tensor, Tensor]:
        loss, nll, ctx.gradients = compute(*arguments)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad_states, grad_weight = ctx.gradients
        del ctx.gradients  # scaled in place, so used once
        others = [None] * (len(ctx.needs_input_grad) - 3)
        return None, grad_states.mul_(grads[0].to(grad_states.dtype)), grad_weight.mul_(grads[0]), *others


def _cross_entropy(states: Tensor, weight: Tensor, labels: Tensor, smoothing: float, wants_gradient: bool) -> Losses:
    """Sum over tokens of (1 - e) * -log p(label) + e / V * sum_v -log p(v).

    With z the logits, that is logsumexp(z) - (1 - e) * z_label - e / V * sum(z), and its gradient by z is
    softmax(z) - (1 - e) * onehot(label) - e / V.

    Few of these terms need a pass over the logits. The mean of z is a product with the weight's mean row; the
    gradient's e / V is constant, so its products are vectors; and the softmax's denominator scales the D numbers of a
    row after the product instead of V before it.
    """
    inputs, matrix = _in_product_dtype(states, weight)
    mean_row = weight.mean(dim=0)
    loss, nll = (states.new_zeros((), dtype=torch.float32) for _ in range(2))
    gradients = None
    if wants_gradient:
        gradients = grad_states, grad_weight = torch.empty_like(inputs), torch.zeros_like(weight)
    for rows in _blocks(inputs, 1, len(weight)):
        block, label = inputs[rows], labels[rows, None]  # (R, D), (R, 1)
        logits = linear_without_grad(block, matrix).float()  # (R, V)
        label_logit = logits.gather(-1, label)
        highest = logits.amax(dim=-1, keepdim=True)
        exponentials = logits.sub_(highest).exp_()
        total = exponentials.sum(dim=-1, keepdim=True)
        log_total = total.log() + highest
        mean_logit = (block.float() @ mean_row.float())[:, None]
        nll += (log_total - label_logit).sum()
        loss += (log_total - (1 - smoothing) * label_logit - smoothing * mean_logit).sum()
        if wants_gradient:
            # Times `total` and without e / V, the gradient by the logits equals the exponentials, except at the label.
            gradient = exponentials.scatter_add_(-1, label, (smoothing - 1) * total).to(inputs.dtype)
            grad_states[rows] = linear_without_grad(gradient, matrix.t()).div_(total)
            scaled = block / total.to(inputs.dtype)
            if inputs.dtype == weight.dtype:
                grad_weight.addmm_(gradient.t(), scaled)
            else:
                grad_weight.add_(gradient.t() @ scaled)
    if wants_gradient:
        grad_states.sub_((smoothing * mean_row).to(inputs.dtype))
        grad_weight.sub_(inputs.sum(dim=0) * (smoothing / len(weight)))
    return loss, nll, gradients


def _cuda_cross_entropy(
    states: Tensor, weight: Tensor, labels: Tensor, smoothing: float, wants_gradient: bool
) -> Losses:
    """Compute the same with large matrix products and one kernel per block; gradients and sums are in fp32.

    The gradient by the logits is in the products' number format. In fp16 it is computed 1,024 times as large, so that
    probabilities down to 6e-11 count instead of 6e-8; the products divide by it in fp32. For a confident model (32,000
    tokens, smoothing 0.1) that takes the median error of an unseen token's row of the weight's gradient from 0.8 % to
    0.04 %. Backward scales gradients by the states in fp32, so a loss scale does not overflow.
    """
    inputs, matrix = _in_product_dtype(states, weight)
    compute_rows = plain_rows if inputs.dtype == torch.float64 else rows_function(states.device, inputs.dtype)
    scale = 1024.0 if inputs.dtype == torch.float16 else 1.0
    losses = states.new_empty((2, len(labels)), dtype=torch.float32)
    gradients = None
    if wants_gradient:
        dtype = torch.promote_types(inputs.dtype, torch.float32)
        grad_states, grad_weight = (torch.zeros_like(x, dtype=dtype) for x in (states, weight))
        gradients = grad_states, grad_weight
    stride = -(-len(weight) // 64) * 64  # matrix products and the kernel want aligned rows
    for rows in _blocks(inputs, 1, len(weight)):
        block = inputs[rows]  # (R, D)
        logits = torch.mm(block, matrix.t(), out=block.new_empty(len(block), stride)[:, : len(weight)])  # (R, V)
        compute_rows(logits, labels[rows], losses[:, rows], smoothing, scale if wants_gradient else 0.0)
        if wants_gradient:
            add_product(grad_states[rows], logits, matrix, 1 / scale)
            add_product(grad_weight, logits.t(), block, 1 / scale)
    return losses[0].sum(), losses[1].sum(), gradients


def r_drop_cross_entropy(states: Tensor, weight: Tensor, labels: Tensor, smoothing: float, alpha: float) -> Losses:
    """Compute the loss of R-Drop (Liang et al. 2021, arXiv:2106.14448, equation 4), halved to compare with others.

    It is the mean of two passes' cross-entropies plus alpha / 4 times the sum of their two Kullback-Leibler
    divergences. The states (2 N, D) are those of one batch in two passes that differ in their dropout, one pass after
    the other; the other arguments are as of `fused_cross_entropy`.

    With p, q the passes' distributions, d the difference of their logits, and A, B the means of d under p and q, the
    divergences KL(p, q) and KL(q, p) sum to A - B: the softmax's denominators cancel out. Their sum's gradient is
    p (d - A + 1) - q by the first pass's logits and q (B - d + 1) - p by the second's.

    As in `_cross_entropy`, few terms need a pass over the logits: the softmax does, its denominator comes from the
    largest logit and its probability, and smoothing is a product with the weight's mean row.
    """
    inputs, matrix = _in_product_dtype(states, weight)
    passes = inputs.view(2, len(labels), states.shape[1])
    mean_row = weight.mean(dim=0)
    loss, nll = (states.new_zeros((), dtype=torch.float32) for _ in range(2))
    grad_passes, grad_weight = _states_gradient(states, inputs).view_as(passes), torch.zeros_like(weight)
    share = alpha / 4
    for rows in _blocks(labels, 4, len(weight)):  # two passes, and more tensors of each
        block = passes[:, rows]  # (2, R, D)
        label = labels[rows].expand(2, -1)[:, :, None]
        logits = linear_without_grad(block.flatten(0, 1), matrix).float().view(2, block.shape[1], len(weight))
        probs = logits.softmax(dim=-1)
        log_total = logits.amax(dim=-1, keepdim=True) - probs.amax(dim=-1, keepdim=True).log()
        label_logit = logits.gather(-1, label)
        mean_logit = _times_row(block, mean_row)[:, :, None]
        difference = logits[0] - logits[1]
        means = (probs * difference).sum(dim=-1, keepdim=True)  # A and B (2, R, 1)
        nll += (log_total - label_logit).sum() / 2
        loss += (log_total - (1 - smoothing) * label_logit - smoothing * mean_logit).sum() / 2
        loss += share * (means[0] - means[1]).sum()
        # By the logits, the gradient of half of each cross-entropy, without its smoothing, and of the divergences.
        gradient = torch.empty_like(logits, dtype=inputs.dtype)
        for i, sign in enumerate((1, -1)):
            pass_gradient = (difference * (sign * share)).add_(0.5 + share - sign * share * means[i])
            pass_gradient.mul_(probs[i]).sub_(probs[1 - i], alpha=share)
            gradient[i] = pass_gradient.scatter_add_(-1, label[i], torch.full_like(label_logit[i], (smoothing - 1) / 2))
        grad_passes[:, rows] = linear_without_grad(gradient.flatten(0, 1), matrix.t()).view_as(block)
        grad_weight.add_(gradient.flatten(0, 1).t() @ block.flatten(0, 1))
    grad_passes.sub_((smoothing / 2 * mean_row).to(grad_passes.dtype))
    grad_weight.sub_(passes.sum(dim=(0, 1)) * (smoothing / (2 * len(weight))))
    return loss, nll, (grad_passes.view_as(states), grad_weight)


def distillation_cross_entropy(
    states: Tensor, weight: Tensor, labels: Tensor, smoothing: float, teachers: Teachers, share: float
) -> Losses:
    """Compute the loss of word-level knowledge distillation (Kim and Rush 2016, arXiv:1606.07947, section 3.1).

    It is the cross-entropy -sum(t log p) with a mixture t of the smoothed labels and, as a share of it, the mean of the
    teachers' distributions; its gradient by the logits is p - t. No divergence, it does not fall to zero. The other
    arguments are the student's, as of `fused_cross_entropy`.
    """
    inputs, matrix = _in_product_dtype(states, weight)
    loss, nll = (states.new_zeros((), dtype=torch.float32) for _ in range(2))
    grad_states, grad_weight = _states_gradient(states, inputs), torch.zeros_like(weight)
    teachers = [(their_states.to(inputs.dtype), output.to(inputs.dtype)) for their_states, output in teachers]
    for rows in _blocks(inputs, 2, len(weight)):
        label = labels[rows, None]
        log_probs = linear_without_grad(inputs[rows], matrix).float().log_softmax(dim=-1)  # (R, V)
        nll -= log_probs.gather(-1, label).sum()
        target = log_probs.new_full(log_probs.shape, (1 - share) * smoothing / len(weight))
        target.scatter_add_(-1, label, target.new_full((), (1 - share) * (1 - smoothing)).expand(label.shape))
        for their_states, output in teachers:
            probs = linear_without_grad(their_states[rows], output).float().softmax(dim=-1)
            target.add_(probs, alpha=share / len(teachers))
        loss -= (target * log_probs).sum()
        gradient = log_probs.exp_().sub_(target).to(inputs.dtype)
        grad_states[rows] = linear_without_grad(gradient, matrix.t())
        grad_weight += (gradient.t() @ inputs[rows]).to(weight.dtype)
    return loss, nll, (grad_states, grad_weight)


def _in_product_dtype(states: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Convert to the number format of matrix products: autocast's, if it is on."""
    device = states.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
    return states.to(dtype), weight.to(dtype)


def _states_gradient(states: Tensor, inputs: Tensor) -> Tensor:
    """Allocate the gradient by the states; on a GPU in their format, so that `backward` scales it without rounding."""
    return torch.empty_like(states if states.is_cuda else inputs)


def _times_row(x: Tensor, row: Tensor) -> Tensor:
    """Return x (..., D) times row (D,); on a GPU not as a product, which autocast would round."""
    return (x.float() * row.float()).sum(dim=-1) if x.is_cuda else x.float() @ row.float()


def _blocks(rows: Tensor, divisor: int, vocab: int) -> Iterator[slice]:
    """Yield blocks of rows whose logits fit a CPU's cache; on a GPU larger ones, within a limit of memory."""
    size = 512 if rows.device.type == "cpu" else max(128, _BLOCK_BYTES // (4 * vocab) // 128 * 128)
    size //= divisor
    return (slice(start, start + size) for start in range(0, len(rows), size))
