"""Small models with random or hand-set weights, and batches for them."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from mt.config import ModelConfig
from mt.data.tokenizer import EOS_ID, PAD_ID, SOS_ID, SPECIALS
from mt.model.build import TranslationModel, build
from mt.model.transformer import Transformer

SMALL = {"d_model": 16, "n_heads": 2, "d_ff": 32, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}


DECODER_ONLY = [
    {"architecture": "decoder_only", "encoder_layers": 0, "norm": "pre"},
    {"architecture": "decoder_only", "encoder_layers": 0, "positions": "learned", "bidirectional_source": True},
]


def model_config(**changes: object) -> ModelConfig:
    return ModelConfig(**{**SMALL, **changes})


def small_model(
    seed: int = 0,
    vocab: int = 12,
    max_length: int = 24,
    shared: bool = True,
    source_vocab: int | None = None,
    **changes: object,
) -> TranslationModel:
    """Build a model in evaluation mode with every parameter random."""
    model = build(model_config(**changes), source_vocab or vocab, vocab, max_length, shared)
    scramble(model, seed)
    return model.eval()


def scramble(module: nn.Module, seed: int = 0, std: float = 0.3) -> None:
    """Draw all parameters, biases and norms too, so that no test passes because a term is zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            mean = 1.0 if name.endswith("norm.weight") else 0.0
            parameter.normal_(mean, std, generator=generator)


def lively_model(seed: int = 0, **changes: object) -> TranslationModel:
    """Build a random model whose translations vary in tokens and lengths: strong positions, weak biases."""
    shape = {"norm": "pre", "activation": "swiglu", "positions": "learned", "tie_embeddings": False, **changes}
    model = small_model(seed, **shape)
    scramble(model, seed, std=0.5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.mul_(0.2)
            elif name.endswith("norm.weight"):
                parameter.fill_(1.0)
            elif name == "target_embedding.positions.table":
                parameter.mul_(6.0)
    return model


def sources(lengths: Sequence[int], vocab: int = 12, seed: int = 0) -> Tensor:
    """Draw sentences `<s> tokens </s>` of these lengths (specials not counted), padded to one another."""
    generator = torch.Generator().manual_seed(seed)
    batch = torch.full((len(lengths), max(lengths) + 2), PAD_ID)
    for row, length in enumerate(lengths):
        batch[row, 0] = SOS_ID
        batch[row, 1 : length + 1] = torch.randint(len(SPECIALS), vocab, (length,), generator=generator)
        batch[row, length + 1] = EOS_ID
    return batch


def targets(lengths: Sequence[int], vocab: int = 12, seed: int = 1) -> Tensor:
    """Draw decoder inputs `<s> tokens` of these lengths, padded to one another."""
    batch = sources(lengths, vocab, seed)
    return batch.masked_fill(batch == EOS_ID, PAD_ID)[:, :-1]


def push(model: Transformer, token: int, strength: float) -> None:
    """Raise (or, negative, lower) a token's probability at every step; for post-norm models with untied output."""
    direction = torch.zeros(model.output.in_features)
    direction[0] = 1.0
    with torch.no_grad():
        model.decoder[-1].residuals[-1].norm.bias.add_(5 * direction)
        model.output.weight[:, 0] = 0.0
        model.output.weight[token] += strength * direction


def reciting_model(ids: Sequence[int], vocab: int, d_model: int = 32) -> Transformer:
    """Build a model that translates everything to the same tokens, fewer than d_model of them."""
    shape = {"d_model": d_model, "positions": "learned", "tie_embeddings": False}
    config = model_config(encoder_layers=1, decoder_layers=1, **shape)
    model = Transformer(config, vocab, vocab, 200, shared_vocab=False)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if name.endswith("norm.weight") else 0.0)
        for position, token in enumerate([*ids, EOS_ID]):
            model.target_embedding.positions.table[position, position] = 1.0
            model.output.weight[token, position] = 10.0
    return model.eval()


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def near(actual: Tensor, wanted: Tensor, tolerance: float = 1e-4) -> None:
    """Assert equality up to a fraction of the largest element."""
    assert actual.shape == wanted.shape
    if not actual.numel():
        return
    difference = (actual.detach().double() - wanted.double()).abs().max().item()
    assert difference <= tolerance * wanted.abs().max().item() + 1e-12


def paper_positions(length: int, d_model: int) -> Tensor:
    """Return sin(p / 10000^(2i / D)) at dimensions 2i and the cosines at 2i + 1, as (L, D)."""
    angles = [[p / 10000 ** (i // 2 * 2 / d_model) for i in range(d_model)] for p in range(length)]
    return torch.tensor([[math.cos(x) if i % 2 else math.sin(x) for i, x in enumerate(row)] for row in angles])


def plain_r_drop(states: Tensor, weight: Tensor, labels: Tensor, smoothing: float, alpha: float) -> Tensor:
    """Return R-Drop's equation 4, halved: the passes' mean cross-entropy and alpha / 4 times both divergences."""
    logits = states @ weight.T
    entropy = F.cross_entropy(logits, labels.repeat(2), label_smoothing=smoothing, reduction="sum") / 2
    p, q = logits.log_softmax(-1).chunk(2)
    divergences = [F.kl_div(a, b, log_target=True, reduction="sum") for a, b in ((p, q), (q, p))]
    return entropy + alpha / 4 * sum(divergences)


class Watch(TorchDispatchMode):
    """Record of the largest tensor made, the matrix products done, and those done by oneDNN."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0
        self.products = self.onednn = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = function(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.largest = max(self.largest, result.numel())
        self.onednn += "_linear_pointwise" in str(function)
        self.products += str(function).split(".")[1].rstrip("_") in ("mm", "addmm", "matmul")
        return result
