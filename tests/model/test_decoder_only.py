"""The decoder-only model: equal to a plain GPT, and trained, resumed and used like the encoder-decoder."""

import json
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from command import mt
from config_helpers import SMALLEST, refusal
from conftest import into, made_once
from model_helpers import DECODER_ONLY, close, model_config, paper_positions, small_model, sources, targets
from mt.bundle.load_translator import open_model
from mt.data.tokenizer import PAD_ID
from mt.decoding.attention_weights import read_attention
from mt.decoding.engine import EngineChoice
from mt.model.build import build
from mt.model.decoder_only import DecoderOnly, join
from mt.model.packing import Packing
from mt.storage.run_dir import RunDir
from resume_helpers import train, weights
from training_helpers import kill_training, project_copy

SHAPES = [
    {**shape, "norm": norm, "activation": activation, "positions": positions}
    for shape in DECODER_ONLY
    for norm, activation, positions in (
        ("post", "relu", "sinusoidal"),
        ("pre", "swiglu", "learned"),
        ("pre", "relu", "rotary"),
    )
]
DECODER = (
    "model={architecture: decoder_only, d_model: 32, n_heads: 2, d_ff: 64, decoder_layers: 2, norm: pre, dropout: 0}"
)


def turned(heads: Tensor) -> Tensor:
    """Turn the complex numbers that halves of each vector (H, L, K) are, as Su et al. 2021 do in section 3.2."""
    half = heads.shape[2] // 2
    angles = torch.arange(heads.shape[1])[:, None] * 10000.0 ** (-torch.arange(half).double() / half)
    turns = torch.polar(torch.ones_like(angles), angles).to(torch.complex64)  # as the model's table
    numbers = torch.complex(heads[..., :half], heads[..., half:]) * turns
    return torch.cat([numbers.real, numbers.imag], dim=-1)


def plain_gpt(model: DecoderOnly, shape: dict, source: list[int], target: list[int]) -> Tensor:
    """Return the logits (T, V) of one sentence, without packing, batching or fused kernels."""
    w = dict(model.named_parameters(remove_duplicate=False))
    config = model_config(**shape)
    length, d_model, heads = len(source) + len(target), config.d_model, config.n_heads
    if config.positions == "learned":
        positions = w["source_embedding.positions.table"][:length]
    else:
        positions = paper_positions(length, d_model) * (config.positions == "sinusoidal")
    tokens = [w["source_embedding.tokens.weight"][i] for i in source]
    tokens += [w["target_embedding.tokens.weight"][i] for i in target]
    x = torch.stack(tokens) * math.sqrt(d_model) + positions
    mask = torch.ones(length, length).tril().bool()
    if config.bidirectional_source:
        mask[:, : len(source)] = True

    def norm(name: str, y: Tensor) -> Tensor:
        return F.layer_norm(y, (d_model,), w[f"{name}.weight"], w[f"{name}.bias"])

    def linear(name: str, y: Tensor) -> Tensor:
        return y @ w[f"{name}.weight"].t() + w[f"{name}.bias"]

    def attention(name: str, y: Tensor) -> Tensor:
        parts = linear(f"{name}.in_proj", y).split(d_model, dim=-1)
        q, k, v = (part.view(length, heads, -1).transpose(0, 1) for part in parts)
        if config.positions == "rotary":
            q, k = turned(q), turned(k)
        scores = (q @ k.transpose(1, 2) / math.sqrt(d_model // heads)).masked_fill(~mask, -math.inf)
        return linear(f"{name}.out_proj", (scores.softmax(-1) @ v).transpose(0, 1).reshape(length, d_model))

    def feed_forward(name: str, y: Tensor) -> Tensor:
        hidden = linear(f"{name}.up", y)
        if config.activation == "swiglu":
            gate, value = hidden.chunk(2, dim=-1)
            return linear(f"{name}.down", gate * torch.sigmoid(gate) * value)
        return linear(f"{name}.down", hidden.clamp(min=0))

    for layer in range(config.decoder_layers):
        for block, (function, inner) in enumerate(((attention, "self_attention"), (feed_forward, "feed_forward"))):
            name, around = f"layers.{layer}.{inner}", f"layers.{layer}.residuals.{block}.norm"
            pre = config.norm == "pre"
            x = x + function(name, norm(around, x)) if pre else norm(around, x + function(name, x))
    if config.norm == "pre":
        x = norm("norm", x)
    return x[len(source) :] @ w["output.weight"].t()


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape['norm']}-{'bidirectional_source' in shape}")
def test_a_padded_batch_equals_a_plain_gpt_sentence_by_sentence(shape: dict, tied: bool) -> None:
    """Logits and gradients, in double precision."""
    shape = {**shape, "tie_embeddings": tied}
    source_vocab = 12 if tied else 9
    model = small_model(3, source_vocab=source_vocab, shared=tied, **shape).double()
    src_tokens, tgt_in = sources([5, 2, 7, 2], source_vocab), targets([3, 6, 1, 6])
    logits = model(src_tokens, tgt_in)
    factors = torch.randn(logits.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    sums = torch.zeros(2, dtype=torch.float64)
    for row in range(4):
        source, target = ([i for i in side[row].tolist() if i != PAD_ID] for side in (src_tokens, tgt_in))
        actual, expected = logits[row, : len(target)], plain_gpt(model, shape, source, target)
        close(actual, expected, 1e-9)
        sums = sums + torch.stack([(y * factors[row, : len(target)]).sum() for y in (actual, expected)])
    ours, theirs = (torch.autograd.grad(total, list(model.parameters()), retain_graph=True) for total in sums)
    for actual, expected in zip(ours, theirs, strict=True):
        close(actual, expected, 1e-9)


def test_sentences_without_padding_are_joined_without() -> None:
    joined = join(Packing.of(torch.ones(2, 3)), Packing.of(torch.ones(2, 2)))
    assert joined.packing.pad is None
    assert joined.packing.positions.tolist() == [0, 1, 2, 3, 4] * 2
    assert joined.target.tolist() == [3, 4, 8, 9]


def test_positions_continue_from_source_to_target() -> None:
    model = build(model_config(**DECODER_ONLY[1]), 12, 12, 24, shared_vocab=True)
    assert model.source_embedding.positions is model.target_embedding.positions
    assert len(dict(model.named_parameters())["source_embedding.positions.table"]) == 48
    assert model.max_positions == 24


@pytest.fixture(scope="session")
def decoder_only(two_languages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> None:
        for path in two_languages.glob("*.*"):
            (folder / path.name).write_bytes(path.read_bytes())
        mt("train", "--config", "two.yaml", "--set", DECODER, "--set", "training.max_steps=600", cwd=folder)

    return made_once(tmp_path_factory, "decoder-only", make)


@pytest.mark.slow
def test_it_learns_translates_and_scores(decoder_only: Path) -> None:
    lines = ["", *(decoder_only / "valid.en").read_text().splitlines()]
    for language in ("xx", "yy"):
        done = mt("translate", "--to", language, stdin="\n".join(lines).encode(), cwd=decoder_only)
        found = done.stdout.split("\n")[:-1]
        assert found[0] == ""
        right = [ours == into(language, line) for ours, line in zip(found, lines, strict=True)]
        assert sum(right) > 0.6 * len(lines)  # which of them are wrong depends on the processor
    scores = json.loads(mt("eval", "--json", cwd=decoder_only).stdout)
    assert "ctranslate2" not in [path.name for path in (decoder_only / "runs/two/model").iterdir()]
    assert all(result["bleu"] > 50 for result in scores["results"])


@pytest.mark.slow
def test_it_samples_from_the_top_k_and_reports_attention(decoder_only: Path) -> None:
    drawn = mt("translate", "--to", "xx", "--sample", "--top-k", "1", "a b c", cwd=decoder_only)
    assert drawn.stdout == mt("translate", "--to", "xx", "--greedy", "a b c", cwd=decoder_only).stdout
    opened = open_model(RunDir(decoder_only / "runs" / "two").model, EngineChoice("torch"))
    [[candidate]] = opened.translator.to("xx").translate(["a b c d"], opened.settings.search)
    [attention] = read_attention(opened.model, opened.tokenizers, candidate)
    assert attention.weights.shape == (2, 2, len(attention.target), len(attention.source))
    sums = attention.weights.sum(dim=-1)
    # A position also attends to the target, so less than 1 is left for the source.
    assert sums.max() <= 1 + 1e-5
    assert 0 < sums.min() < 0.999
    refused = mt("translate", "--to", "xx", "--engine", "ctranslate2", "a", cwd=decoder_only, code=2)
    assert "it has no CTranslate2 part" in refused.stderr
    assert mt("translate", "--to", "xx", "a", cwd=decoder_only).stderr == ""


@pytest.mark.slow
def test_killed_and_resumed_it_ends_in_the_same_weights(tiny: Path) -> None:
    changes, whole = (DECODER, "training.max_steps=200"), project_copy(tiny, "whole")
    train(whole, *changes)
    for step in (30, 90):
        kill_training(tiny, step, *changes)
    train(tiny, *changes)
    assert weights(tiny) == weights(whole)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model: {architecture: decoder_only, encoder_layers: 2}", "a decoder-only model has no encoder"),
        ("model: {encoder_layers: 0}", "an encoder needs at least one layer"),
        ("model: {bidirectional_source: true}", "this is for architecture: decoder_only"),
        ("model: {architecture: decoder_only}\ndecoding: {shortlist: 50}", "a decoder-only model runs with torch"),
        ("model: {architecture: decoder_only}\ndecoding: {compute_type: int8}", "a decoder-only model runs with torch"),
    ],
)
def test_contradictions_are_refused(text: str, message: str) -> None:
    assert message in refusal(SMALLEST + text)
