"""Attention: torch's kernel equals equation 1, in every number format, and its weights are dropped in training."""

import math

import pytest
import torch
from torch import Tensor

from model_helpers import close, model_config
from mt.model.attention import CrossAttention, SelfAttention, attend, scaled_dot_product_weights
from mt.model.decoder_state import KeyValues
from mt.model.packing import Packing


def equation_1(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """softmax(Q K^T / sqrt(d_k)) V head by head, concatenated (B, T, D)."""
    heads = []
    for q, k, v in zip(queries.unbind(1), keys.unbind(1), values.unbind(1), strict=True):
        scores = (q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])).masked_fill(~mask, -math.inf)
        heads.append(scores.softmax(dim=-1) @ v)
    return torch.cat(heads, dim=-1)


@pytest.mark.parametrize("kind", ["full", "padded", "causal"])
def test_attention_equals_equation_1(kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    queries, keys, values = (torch.randn(2, 4, 5, 8, generator=generator, dtype=torch.float64) for _ in range(3))
    mask = torch.ones(2, 5, 5, dtype=torch.bool)
    if kind == "padded":
        mask[1, :, 3:] = False
    elif kind == "causal":
        mask = mask.tril()
    expected = equation_1(queries, keys, values, mask)
    given = mask[:, None] if kind == "padded" else None
    close(attend(queries, KeyValues(keys, values), given, kind == "causal", 0.0), expected, 1e-12)
    weights = scaled_dot_product_weights(queries, keys, mask[:, None])
    close((weights @ values).transpose(1, 2).flatten(2), expected, 1e-12)


@pytest.mark.parametrize("causal", [True, False])
def test_attention_in_bf16_is_computed_in_fp32_on_a_cpu(causal: bool) -> None:
    """Input, output and gradients differ from single precision by rounding only."""
    torch.manual_seed(0)
    tensors = [torch.randn(2, 4, 9, 32, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    singles = [x.detach().float().requires_grad_() for x in tensors]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        heads = attend(tensors[0], KeyValues(*tensors[1:]), None, causal, 0.0)
    expected = attend(singles[0], KeyValues(*singles[1:]), None, causal, 0.0)
    assert heads.dtype == torch.bfloat16
    assert heads.equal(expected.bfloat16())
    heads.sum().backward()
    expected.sum().backward()
    for x, single in zip(tensors, singles, strict=True):
        assert x.grad.equal(single.grad.bfloat16())


@pytest.mark.parametrize("kind", [SelfAttention, CrossAttention])
def test_attention_dropout_has_the_mean_and_variance_of_its_probability(
    kind: type[SelfAttention | CrossAttention],
) -> None:
    """A weight dropped with probability p, else divided by 1 - p, has p / (1 - p) times its square as variance."""
    tgt, src = (Packing.of(torch.ones(1, length)) for length in (5, 4))
    variances = []
    for p in (0.5, 0.2):
        torch.manual_seed(0)
        attention = kind(model_config(d_model=8, attention_dropout=p, bias=False))
        x = torch.randn(5, 8)
        arguments = (tgt, False) if kind is SelfAttention else (tgt, torch.randn(4, 8), src)
        drawn = torch.stack([attention(x, *arguments) for _ in range(1500)])
        assert drawn.std(dim=0).min() > 0.005
        torch.testing.assert_close(drawn.mean(dim=0), attention.eval()(x, *arguments), atol=0.03, rtol=0.0)
        variances.append(drawn.var(dim=0).mean().item())
    assert variances[0] / variances[1] == pytest.approx(1.0 / 0.25, rel=0.1)
