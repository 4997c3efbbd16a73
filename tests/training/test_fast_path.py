"""Nothing that makes training fast changes its mathematics: the real trainer against torch's plain pieces.

The reference keeps padding in (B, L, D), writes attention out, and has whole logits and torch's own loss and Adam.
"""

import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mt.data.batching import Batch, BatchStream
from mt.model import linear
from mt.model.layers import Dropout
from mt.training.step import seed_dropout
from training_helpers import Parts, take_steps

STEPS, RATE, WARMUP, HEADS, LAYERS, SEED = 200, 1e-3, 20, 4, 1, 42
CHANGES = [
    f"seed={SEED}",
    "model.d_model=32",
    "model.d_ff=64",
    f"model.n_heads={HEADS}",
    f"model.encoder_layers={LAYERS}",
    f"model.decoder_layers={LAYERS}",
    "training.optimizer=adam",
    "training.betas=[0.9,0.98]",
    "training.eps=1e-9",
    "training.schedule=inverse_sqrt",
    f"training.learning_rate={RATE}",
    f"training.warmup_steps={WARMUP}",
    "training.label_smoothing=0.1",
    "training.clip_norm=1.0",
    "training.accumulate=1",
    "training.precision=fp32",
]


class Reference:
    """The same Transformer and its training, in the words of the paper and with nothing saved."""

    def __init__(self, weights: dict[str, Tensor], norm: str, activation: str, dropout: float) -> None:
        self.weights = {name: tensor.detach().clone().requires_grad_() for name, tensor in weights.items()}
        self.pre_norm = norm == "pre"
        self.activation = {"relu": F.relu, "gelu": F.gelu}[activation]
        self.dropout = Dropout(dropout)
        self.adam = torch.optim.Adam(
            self.weights.values(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=False, foreach=False
        )

    def step(self, batch: Batch, number: int) -> float:
        """One update, counted from 1; returns its loss a target token."""
        src_tokens, tgt_in, tgt_out = map(torch.from_numpy, (batch.src_tokens, batch.tgt_in, batch.tgt_out))
        # The model's own masks, which it draws for the real tokens only, in the order of its layers.
        seed_dropout(SEED, number - 1, 0, 0)
        logits = self.logits(src_tokens, tgt_in)
        total = F.cross_entropy(
            logits.flatten(0, 1), tgt_out.flatten(), label_smoothing=0.1, ignore_index=0, reduction="sum"
        )
        loss = total / (tgt_out != 0).sum()
        self.adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.weights.values(), 1.0, foreach=False)
        self.adam.param_groups[0]["lr"] = RATE * min(number / WARMUP, math.sqrt(WARMUP / number))
        self.adam.step()
        return loss.item()

    def logits(self, src_tokens: Tensor, tgt_in: Tensor) -> Tensor:
        """(B, T, V)"""
        src_real, tgt_real = src_tokens != 0, tgt_in != 0
        sees_src = src_real[:, None, None, :]  # (B, H, queries, keys)
        sees_past = tgt_real[:, None, None, :] & torch.ones(2 * tgt_in.shape[1:]).tril().bool()
        memory = self.embed(src_tokens, src_real)
        for number in range(LAYERS):
            layer = f"encoder.{number}"
            memory = self.residual(f"{layer}.residuals.0", memory, src_real, self.attention(layer, sees_src))
            memory = self.residual(f"{layer}.residuals.1", memory, src_real, self.feed_forward(layer))
        memory = self.norm("encoder_norm", memory) if self.pre_norm else memory
        x = self.embed(tgt_in, tgt_real)
        for number in range(LAYERS):
            layer = f"decoder.{number}"
            x = self.residual(f"{layer}.residuals.0", x, tgt_real, self.attention(layer, sees_past))
            x = self.residual(f"{layer}.residuals.1", x, tgt_real, self.attention(layer, sees_src, memory))
            x = self.residual(f"{layer}.residuals.2", x, tgt_real, self.feed_forward(layer))
        x = self.norm("decoder_norm", x) if self.pre_norm else x
        return F.linear(x, self.weights["source_embedding.tokens.weight"])

    def embed(self, tokens: Tensor, real: Tensor) -> Tensor:
        weight = self.weights["source_embedding.tokens.weight"]
        d_model = weight.shape[1]
        angles = torch.arange(tokens.shape[1])[:, None] / 10000 ** (torch.arange(0, d_model, 2) / d_model)
        positions = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
        return self.drop(F.embedding(tokens, weight, padding_idx=0) * math.sqrt(d_model) + positions, real)

    def residual(self, name: str, x: Tensor, real: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        if self.pre_norm:
            return x + self.drop(function(self.norm(f"{name}.norm", x)), real)
        return self.norm(f"{name}.norm", x + self.drop(function(x), real))

    def drop(self, x: Tensor, real: Tensor) -> Tensor:
        return x.index_put((real,), self.dropout(x[real]))

    def norm(self, name: str, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def feed_forward(self, layer: str) -> Callable[[Tensor], Tensor]:
        name = f"{layer}.feed_forward"
        return lambda x: self.linear(f"{name}.down", self.activation(self.linear(f"{name}.up", x)))

    def attention(self, layer: str, visible: Tensor, memory: Tensor | None = None) -> Callable[[Tensor], Tensor]:
        """Of positions to their own sentence, or to the memory."""

        def attend(x: Tensor) -> Tensor:
            if memory is None:
                name = f"{layer}.self_attention"
                queries, keys, values = self.linear(f"{name}.in_proj", x).chunk(3, dim=-1)
            else:
                name = f"{layer}.cross_attention"
                queries = self.linear(f"{name}.q_proj", x)
                keys, values = self.linear(f"{name}.kv_proj", memory).chunk(2, dim=-1)
            queries, keys, values = (
                part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (queries, keys, values)
            )
            scores = queries @ keys.transpose(2, 3) / math.sqrt(queries.shape[-1])
            heads = scores.masked_fill(~visible, -math.inf).softmax(dim=-1) @ values
            return self.linear(f"{name}.out_proj", heads.transpose(1, 2).flatten(2))

        return attend

    def linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])


def write_corpus(folder: Path) -> None:
    """Letters and their mirror images, as in the tiny project, but of such lengths that batches need padding."""
    rng = random.Random(3)
    sources = [[rng.choice("abcdefghij") for _ in range(rng.randint(1, 15))] for _ in range(300)]
    # Every fourth target is cut, for lengths that differ within a batch on the source side too.
    targets = [[chr(ord(letter) + 15) for letter in s[: 2 if i % 4 == 0 else None]] for i, s in enumerate(sources)]
    for name, sentences in (("train.en", sources), ("train.xx", targets)):
        (folder / name).write_text("".join(" ".join(sentence) + "\n" for sentence in sentences))


class Comparison(Parts):
    """A real trainer, and its first batches and weights for the reference."""

    def __init__(self, folder: Path, dtype: torch.dtype, *changes: str) -> None:
        write_corpus(folder)
        super().__init__(folder, *CHANGES, *changes)
        stream = BatchStream(self.corpus, self.config.training.max_tokens, SEED)
        self.first_batches = [stream.next() for _ in range(STEPS)]
        self.model.to(dtype).train()
        self.first_weights = {name: parameter.detach().clone() for name, parameter in self.model.named_parameters()}

    def train(self) -> list[float]:
        """The trainer's loss a target token of every step."""
        trainer, losses = self.trainer(), []
        add = trainer.train_step.accumulate_gradients

        def record(*arguments: object) -> object:
            result = add(*arguments)
            losses.append(result.sums[0].item() / result.n_target)
            return result

        trainer.train_step.accumulate_gradients = record
        take_steps(trainer, STEPS)
        return losses


@pytest.mark.parametrize(
    ("norm", "activation", "dropout", "dtype", "onednn"),
    [
        pytest.param("post", "gelu", 0.0, torch.float32, False, id="post-norm", marks=pytest.mark.slow),
        pytest.param("pre", "gelu", 0.0, torch.float32, True, id="pre-norm, oneDNN", marks=pytest.mark.slow),
        pytest.param("post", "gelu", 0.2, torch.float32, False, id="dropout"),
        # relu has a kink, beside which the last bit of a sum decides about a gradient: in single precision even two
        # plain references drift apart.
        pytest.param("pre", "relu", 0.2, torch.float64, False, id="relu, double precision", marks=pytest.mark.slow),
    ],
)
def test_training_is_that_of_the_plain_pieces(
    norm: str,
    activation: str,
    dropout: float,
    dtype: torch.dtype,
    onednn: bool,
    tiny: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    onednn = onednn and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    monkeypatch.setattr(linear, "_prefers_onednn", lambda: onednn)
    monkeypatch.setattr(linear, "_MIN_FEATURES", 1)
    parts = Comparison(tiny, dtype, f"model.norm={norm}", f"model.activation={activation}", f"model.dropout={dropout}")
    tokens = [tokens for batch in parts.first_batches for tokens in (batch.src_tokens, batch.tgt_in)]
    assert sum((array == 0).any() for array in tokens) > len(tokens) / 2, "hardly a batch has padding"
    assert any((array != 0).all() for array in tokens), "no batch is without padding"
    reference = Reference(parts.first_weights, norm, activation, dropout)
    expected = torch.tensor([reference.step(batch, number) for number, batch in enumerate(parts.first_batches, 1)])
    assert expected[-10:].mean() < expected[:10].mean() - 3, "learned too little for the comparison to mean much"
    actual = torch.tensor(parts.train())
    torch.testing.assert_close(actual, expected, rtol=0.0, atol=2e-5)
