"""Label-smoothed cross-entropy, fused with the output layer.

    N target positions   D d_model   V vocabulary

The logits of a batch (N, V) are its largest tensor by far. Here they exist a few hundred rows at a time: each block's
loss and gradient are computed while it is in the processor's cache, and the smoothed targets are never built.
"""

from typing import Any

import torch
from torch import Tensor

PAD_ID = 0
_ROWS = {"cpu": 512}  # rows of logits at a time; a GPU wants large blocks, a CPU ones that fit its cache
_GPU_ROWS = 8192


class _FusedLoss(torch.autograd.Function):
    """Sum over positions of (1 - e) * -log p(target) + e / V * sum_v -log p(v).

    With z the logits, that is logsumexp(z) - (1 - e) * z_target - e / V * sum(z), and its gradient by z is
    softmax(z) - (1 - e) * onehot(target) - e / V. The weighting is that of `torch.nn.functional.cross_entropy`.
    """

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, targets: Tensor, smoothing: float, wants_gradient: bool
    ) -> tuple[Tensor, Tensor]:
        dtype = torch.get_autocast_dtype(states.device.type) if torch.is_autocast_enabled(states.device.type) else None
        inputs, matrix = (states.to(dtype), weight.to(dtype)) if dtype else (states, weight)
        vocab = len(weight)
        loss = torch.zeros((), device=states.device)
        nll = torch.zeros((), device=states.device)
        grad_states = torch.empty_like(inputs) if wants_gradient else None
        grad_weight = torch.zeros_like(weight) if wants_gradient else None
        rows = _ROWS.get(states.device.type, _GPU_ROWS)
        for start in range(0, len(inputs), rows):
            block, target = inputs[start : start + rows], targets[start : start + rows, None]
            real = target.ne(PAD_ID).to(torch.float32)
            logits = (block @ matrix.t()).float()
            log_total = logits.logsumexp(dim=-1, keepdim=True)
            target_nll = (log_total - logits.gather(-1, target)) * real
            nll += target_nll.sum()
            loss += (1 - smoothing) * target_nll.sum()
            if smoothing:
                loss += smoothing * ((log_total - logits.mean(dim=-1, keepdim=True)) * real).sum()
            if grad_states is not None and grad_weight is not None:
                gradient = logits.sub_(log_total).exp_()
                gradient.sub_(smoothing / vocab)
                gradient.scatter_add_(-1, target, torch.full_like(log_total, smoothing - 1))
                gradient = gradient.mul_(real).to(inputs.dtype)
                torch.matmul(gradient, matrix, out=grad_states[start : start + rows])
                grad_weight.addmm_(gradient.t(), block) if dtype is None else grad_weight.add_(gradient.t() @ block)
        if grad_states is not None:
            ctx.save_for_backward(grad_states, grad_weight)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        grad_states, grad_weight = ctx.saved_tensors
        return grad_states * grads[0].to(grad_states.dtype), grad_weight * grads[0], None, None, None


def fused_cross_entropy(states: Tensor, weight: Tensor, tgt_out: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Output layer and loss in one.

    Args:
        states: the decoder's last states (B, T, D).
        weight: the output layer's matrix (V, D).
        tgt_out: labels (B, T); padding counts nothing.
        smoothing: the share of probability spread evenly over the vocabulary (Szegedy et al. 2016).

    Returns:
        the smoothed loss and the plain negative log-likelihood (which carries no gradient), both summed over tokens,
        in nats.
    """
    # Inside of the function gradients are off in any case; whether they are wanted is known only here.
    wants_gradient = torch.is_grad_enabled() and (states.requires_grad or weight.requires_grad)
    rows = (states.flatten(0, 1), weight, tgt_out.flatten())
    loss, nll = _FusedLoss.apply(*rows, smoothing, wants_gradient)  # type: ignore[no-untyped-call]
    return loss, nll
