"""Label-smoothed cross-entropy, fused with the output layer.

    N target tokens   R rows of a block   D d_model   V vocabulary

The logits of a batch (N, V) are its largest tensor by far. Here they exist a few hundred rows at a time: each block's
loss and gradient are computed while it is in the processor's cache, and the smoothed targets are never built.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mt.model.linear import product

_CPU_ROWS, _GPU_ROWS = 512, 8192  # rows of logits at a time: on a CPU they fit its cache, a GPU wants large products


def _gradients(ctx: Any, factor: Tensor) -> tuple[Tensor, Tensor]:
    """What a forward pass has kept, times the factor from above; it is scaled in place, so once."""
    grad_states, grad_weight = ctx.gradients
    del ctx.gradients
    return grad_states.mul_(factor.to(grad_states.dtype)), grad_weight.mul_(factor)


class _FusedLoss(torch.autograd.Function):
    """Sum over tokens of (1 - e) * -log p(label) + e / V * sum_v -log p(v).

    With z the logits, that is logsumexp(z) - (1 - e) * z_label - e / V * sum(z), and its gradient by z is
    softmax(z) - (1 - e) * onehot(label) - e / V. The weighting is that of `torch.nn.functional.cross_entropy`.

    Few of these terms need a pass over the logits. The mean of z is a product with the weight's mean row; the
    gradient's e / V is the same everywhere, so that its products are vectors; and the softmax's denominator scales a
    row, which is done on D numbers beside the products instead of on V in between.
    """

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, labels: Tensor, smoothing: float, wants_gradient: bool
    ) -> tuple[Tensor, Tensor]:
        device = states.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
        inputs, matrix = states.to(dtype), weight.to(dtype)
        mean_row = weight.mean(dim=0)
        loss, nll = (states.new_zeros((), dtype=torch.float32) for _ in range(2))
        grad_states = torch.empty_like(inputs) if wants_gradient else None
        grad_weight = torch.zeros_like(weight) if wants_gradient else None
        n_rows = _CPU_ROWS if device == "cpu" else _GPU_ROWS
        for start in range(0, len(inputs), n_rows):
            block, label = inputs[start : start + n_rows], labels[start : start + n_rows, None]
            logits = product(block, matrix).float()
            label_logit = logits.gather(-1, label)
            highest = logits.amax(dim=-1, keepdim=True)
            exponentials = logits.sub_(highest).exp_()
            total = exponentials.sum(dim=-1, keepdim=True)
            log_total = total.log() + highest
            mean_logit = (block.float() @ mean_row.float())[:, None]
            nll += (log_total - label_logit).sum()
            loss += (log_total - (1 - smoothing) * label_logit - smoothing * mean_logit).sum()
            if grad_states is not None and grad_weight is not None:
                # Without its smoothing and times `total`, the gradient by the logits differs from the exponentials
                # in one place a row.
                gradient = exponentials.scatter_add_(-1, label, (smoothing - 1) * total).to(dtype)
                grad_states[start : start + n_rows] = product(gradient, matrix.t()).div_(total)
                scaled = block / total.to(dtype)
                if dtype == weight.dtype:
                    grad_weight.addmm_(gradient.t(), scaled)
                else:
                    grad_weight.add_(gradient.t() @ scaled)
        if grad_states is not None and grad_weight is not None:
            grad_states.sub_((smoothing * mean_row).to(dtype))
            grad_weight.sub_(inputs.sum(dim=0) * (smoothing / len(weight)))
            ctx.gradients = grad_states, grad_weight
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        return *_gradients(ctx, grads[0]), None, None, None


def fused_cross_entropy(states: Tensor, weight: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Output layer and loss in one.

    Args:
        states: the decoder's last states (N, D), padding taken out.
        weight: the output layer's matrix (V, D).
        labels: the right tokens (N,).
        smoothing: the share of probability spread evenly over the vocabulary (Szegedy et al. 2016).

    Returns:
        the smoothed loss and the plain negative log-likelihood (which carries no gradient), both summed over tokens,
        in nats.
    """
    # Inside of the function gradients are off in any case; whether they are wanted is known only here.
    wants_gradient = torch.is_grad_enabled() and (states.requires_grad or weight.requires_grad)
    loss, nll = _FusedLoss.apply(states, weight, labels, smoothing, wants_gradient)  # type: ignore[no-untyped-call]
    return loss, nll


class _FusedConsistentLoss(torch.autograd.Function):
    """R-Drop: the mean of two passes' cross-entropies plus a/4 times the sum of their two Kullback-Leibler divergences.

    With p, q the passes' distributions, d the difference of their logits, and A, B the means of d under p and q, the
    divergences KL(p, q) and KL(q, p) sum to A - B: the softmax's denominators cancel out. Their sum's gradient is
    p (d - A + 1) - q by the first pass's logits and q (B - d + 1) - p by the second's.

    As above, few terms need a pass over the logits: the softmax is one, its denominator comes from the largest logit
    and that one's probability, and smoothing is the weight's mean row.
    """

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, labels: Tensor, smoothing: float, strength: float
    ) -> tuple[Tensor, Tensor]:
        device = states.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
        passes = states.to(dtype).view(2, len(labels), states.shape[1])
        matrix = weight.to(dtype)
        mean_row = weight.mean(dim=0)
        loss, nll = (states.new_zeros((), dtype=torch.float32) for _ in range(2))
        grad_states, grad_weight = torch.empty_like(passes), torch.zeros_like(weight)
        n_rows = (_CPU_ROWS if device == "cpu" else _GPU_ROWS) // 4  # of two passes, and more tensors of each
        share = strength / 4
        for start in range(0, len(labels), n_rows):
            block = passes[:, start : start + n_rows]  # (2, R, D)
            label = labels[start : start + n_rows].expand(2, -1)[:, :, None]
            logits = product(block.flatten(0, 1), matrix).float().view(2, block.shape[1], len(weight))
            probs = logits.softmax(dim=-1)
            log_total = logits.amax(dim=-1, keepdim=True) - probs.amax(dim=-1, keepdim=True).log()
            label_logit = logits.gather(-1, label)
            mean_logit = (block.float() @ mean_row.float())[:, :, None]
            difference = logits[0] - logits[1]
            means = (probs * difference).sum(dim=-1, keepdim=True)  # A and B (2, R, 1)
            nll += (log_total - label_logit).sum() / 2
            loss += (log_total - (1 - smoothing) * label_logit - smoothing * mean_logit).sum() / 2
            loss += share * (means[0] - means[1]).sum()
            # By the logits: half of each pass's cross-entropy, but for its smoothing, and the divergences.
            gradient = torch.empty_like(logits, dtype=dtype)
            for i, sign in enumerate((1, -1)):
                ours = (difference * (sign * share)).add_(0.5 + share - sign * share * means[i])
                ours.mul_(probs[i]).sub_(probs[1 - i], alpha=share)
                gradient[i] = ours.scatter_add_(-1, label[i], torch.full_like(label_logit[i], (smoothing - 1) / 2))
            flat = gradient.flatten(0, 1)
            grad_states[:, start : start + n_rows] = product(flat, matrix.t()).view_as(block)
            grad_weight.add_(flat.t() @ block.flatten(0, 1))
        grad_states.sub_((smoothing / 2 * mean_row).to(dtype))
        grad_weight.sub_(passes.sum(dim=(0, 1)) * (smoothing / (2 * len(weight))))
        ctx.gradients = grad_states.view_as(states), grad_weight
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        return *_gradients(ctx, grads[0]), None, None, None


def fused_consistent_cross_entropy(
    states: Tensor, weight: Tensor, labels: Tensor, smoothing: float, strength: float
) -> tuple[Tensor, Tensor]:
    """The loss of R-Drop (Liang et al. 2021, arXiv:2106.14448, equation 4), halved to compare with the plain one.

    Args:
        states: (2 N, D), those of one batch in two passes that differ in their dropout, one pass after the other.
        weight: the output layer's matrix (V, D).
        labels: the right tokens (N,).
        smoothing: as in `fused_cross_entropy`.
        strength: the paper's alpha.

    Returns:
        the loss, and the plain negative log-likelihood (which carries no gradient), the mean of both passes; both
        summed over tokens, in nats.
    """
    loss, nll = _FusedConsistentLoss.apply(  # type: ignore[no-untyped-call]
        states, weight, labels, smoothing, strength
    )
    return loss, nll


class _FusedDistilledLoss(torch.autograd.Function):
    """Cross-entropy with a mixture of the smoothed labels and the mean of some teachers' distributions.

    With t that mixture, a distribution over the vocabulary, the loss is -sum(t log p) and its gradient by the logits
    p - t.
    """

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        labels: Tensor,
        smoothing: float,
        teachers: Sequence[tuple[Tensor, Tensor]],
        share: float,
    ) -> tuple[Tensor, Tensor]:
        device = states.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
        inputs, matrix = states.to(dtype), weight.to(dtype)
        taught = [(theirs.to(dtype), output.to(dtype)) for theirs, output in teachers]
        loss, nll = (states.new_zeros((), dtype=torch.float32) for _ in range(2))
        grad_states, grad_weight = torch.empty_like(inputs), torch.zeros_like(weight)
        n_rows = (_CPU_ROWS if device == "cpu" else _GPU_ROWS) // 2
        for start in range(0, len(inputs), n_rows):
            rows = slice(start, start + n_rows)
            label = labels[rows, None]
            log_probs = product(inputs[rows], matrix).float().log_softmax(dim=-1)
            nll -= log_probs.gather(-1, label).sum()
            target = log_probs.new_full(log_probs.shape, (1 - share) * smoothing / len(weight))
            target.scatter_add_(-1, label, target.new_full((), (1 - share) * (1 - smoothing)).expand(label.shape))
            for theirs, output in taught:
                probs = product(theirs[rows], output).float().softmax(dim=-1)
                target.add_(probs, alpha=share / len(taught))
            loss -= (target * log_probs).sum()
            gradient = log_probs.exp_().sub_(target).to(dtype)
            grad_states[rows] = product(gradient, matrix.t())
            grad_weight += (gradient.t() @ inputs[rows]).to(weight.dtype)
        ctx.gradients = grad_states, grad_weight
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None, None]:
        return *_gradients(ctx, grads[0]), None, None, None, None


def fused_distilled_cross_entropy(
    states: Tensor,
    weight: Tensor,
    labels: Tensor,
    smoothing: float,
    teachers: Sequence[tuple[Tensor, Tensor]],
    share: float,
) -> tuple[Tensor, Tensor]:
    """Word-level knowledge distillation (Kim and Rush 2016, arXiv:1606.07947, section 3.1) beside the labels.

    Args:
        states: the student's last states (N, D), padding taken out.
        weight: its output layer's matrix (V, D).
        labels: the right tokens (N,).
        smoothing: as in `fused_cross_entropy`.
        teachers: the states (N, E) that each teacher has of the same tokens, and its output layer's matrix (V, E).
        share: of the teachers' mean distribution in what is learned; the rest is the smoothed labels'.

    Returns:
        the loss, which is the cross-entropy and no divergence, so that it does not fall to zero; and the plain negative
        log-likelihood of the labels (which carries no gradient); both summed over tokens, in nats.
    """
    loss, nll = _FusedDistilledLoss.apply(  # type: ignore[no-untyped-call]
        states, weight, labels, smoothing, teachers, share
    )
    return loss, nll
