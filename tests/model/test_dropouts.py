"""The kinds of dropout: position, probability, in training only, and off by default."""

import math
from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model_helpers import DECODER_ONLY, lively_model, model_config, scramble, small_model, sources, targets
from mt.model.attention import CrossAttention, SelfAttention
from mt.model.build import TranslationModel
from mt.model.embedding import Embedding
from mt.model.layers import Dropout, FeedForward
from mt.model.packing import Packing

ALL = {"activation_dropout": 0.5, "embedding_dropout": 0.5, "word_dropout": 0.5, "dropout": 0.5}


def feed_forward(**changes: object) -> FeedForward:
    """Build a block whose second layer is the identity plus one, to expose the tensor between the layers."""
    block = FeedForward(model_config(d_model=32, d_ff=32, **changes))
    scramble(block)
    with torch.no_grad():
        block.down.weight.copy_(torch.eye(32))
        block.down.bias.fill_(1.0)
    return block


def plain_dropout(x: Tensor, p: float) -> Tensor:
    """`byte_dropout` with booleans and a division."""
    threshold = round(p * 256)
    words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
    keep = words.view(torch.uint8)[: x.numel()].view_as(x) >= threshold
    return torch.where(keep, x, 0) / (1 - threshold / 256)


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5])
@pytest.mark.parametrize("shape", [(5, 7), (1, 1), (8, 8), (3, 0)], ids=str)
def test_byte_dropout_equals_its_plain_twin(shape: tuple[int, int], p: float) -> None:
    x = torch.randn(*reversed(shape), dtype=torch.float64).T.requires_grad_()  # not contiguous
    results = []
    for function in (Dropout(p), lambda x: plain_dropout(x, p)):
        torch.manual_seed(5)
        y = function(x)
        results.append((y.detach(), *torch.autograd.grad((y * 3).sum(), x)))
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5])
def test_dropout_zeroes_its_share_and_keeps_the_mean(p: float) -> None:
    torch.manual_seed(1)
    y = Dropout(p)(torch.ones(50_000, 8))
    zeros = y == 0
    assert zeros.float().mean().item() == pytest.approx(p, abs=0.005)
    assert y.mean().item() == pytest.approx(1, abs=0.01)
    # Eight elements share one random word: each must have its own share, independent of its neighbours.
    assert zeros.float().mean(dim=0).sub(p).abs().max() < 0.01
    correlations = torch.corrcoef(zeros.T.float()) - torch.eye(8)
    assert correlations.abs().max() < 0.02


def test_dropout_is_off_in_evaluation_and_at_zero() -> None:
    x = torch.randn(3, 5)
    assert Dropout(0.5).eval()(x).equal(x)
    assert Dropout(0.0)(x).equal(x)
    block, x = feed_forward(dropout=0.5), torch.randn(20, 32)  # which is not activation_dropout
    assert torch.equal(block.train()(x), block.eval()(x))


@pytest.mark.parametrize("p", [0.001, 0.998, 0.9999])
def test_dropout_accepts_every_probability_of_a_configuration(p: float) -> None:
    y = Dropout(p)(torch.ones(1000))
    assert y.isfinite().all()
    assert (y == 0).float().mean().item() == pytest.approx(p, abs=0.02)


@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu"])
def test_activation_dropout_follows_the_activation(activation: str) -> None:
    torch.manual_seed(0)
    block, x = feed_forward(activation=activation, activation_dropout=0.25), torch.randn(400, 32)
    between = block.eval()(x) - 1
    dropped = block.train()(x) - 1
    alive = between.abs() > 1e-3
    zero = dropped.abs() < 1e-6
    share = (zero & alive).sum() / alive.sum()
    assert 0.23 < share < 0.27
    torch.testing.assert_close(dropped[~zero], between[~zero] / 0.75, rtol=1e-4, atol=1e-5)
    assert not zero.all(0).any(), "units are dropped from all tokens"
    assert not zero.all(1).any(), "tokens are dropped completely"


def embedding(seed: int = 0, **changes: object) -> Embedding:
    made = Embedding(nn.Embedding(50, 16), model_config(**changes), 20)
    scramble(made, seed)
    return made


def forward(made: Embedding, n: int = 4000) -> Tensor:
    torch.manual_seed(1)
    return made(torch.arange(n) % 50, torch.arange(n) % 20, 20).detach()


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_word_dropout_drops_the_token_and_keeps_the_position(positions: str) -> None:
    made = embedding(positions=positions, word_dropout=0.3)
    whole = forward(made.eval())
    dropped = forward(made.train())
    places = made.positions(torch.arange(4000) % 20, 20).detach()
    gone = (dropped != whole).any(1)
    assert torch.equal(dropped[gone], places[gone])
    assert torch.equal(dropped[~gone], whole[~gone])  # and not scaled
    assert 0.27 < gone.float().mean() < 0.33
    # By occurrence: a token is kept at one position and dropped at another.
    assert all(0 < gone[torch.arange(4000) % 50 == token].sum() < 80 for token in range(50))


def test_a_dropped_words_embedding_gets_no_gradient() -> None:
    made = embedding(word_dropout=0.5).train()
    torch.manual_seed(0)
    out = made(torch.arange(50), torch.zeros(50, dtype=torch.int64), 1)
    out.sum().backward()
    gone = (out.detach() == made.positions(torch.zeros(1, dtype=torch.int64), 1)).all(1)
    assert 10 < gone.sum() < 40
    assert (made.tokens.weight.grad[gone] == 0).all()
    torch.testing.assert_close(made.tokens.weight.grad[~gone], torch.full((int((~gone).sum()), 16), math.sqrt(16)))


@pytest.mark.parametrize(
    ("changes", "share"), [({}, 0.5), ({"embedding_dropout": 0.125}, 0.125), ({"embedding_dropout": 0.0}, 0.0)], ids=str
)
def test_embedding_dropout_has_its_own_share_or_that_of_dropout(changes: dict[str, float], share: float) -> None:
    made = embedding(dropout=0.5, **changes)
    whole, dropped = forward(made.eval()), forward(made.train())
    zero = dropped == 0
    assert abs(zero.float().mean() - share) < 0.01
    torch.testing.assert_close(dropped[~zero], whole[~zero] / (1 - share))
    assert not zero.all(1).any()


def test_embedding_dropout_changes_no_other_dropout() -> None:
    model = small_model(dropout=0.25, embedding_dropout=0.5)
    shares = {name: module.p for name, module in model.named_modules() if isinstance(module, Dropout)}
    for name, share in shares.items():
        assert share == (0.25 if "residuals" in name else 0.5 if "embedding" in name else 0.0), name
    assert sum("residuals" in name for name in shares) == 2 * 2 + 2 * 3


CHANGES = [{f"{kind}_dropout": 0.4} for kind in ("activation", "attention", "embedding", "word")]


def varies(model: TranslationModel, lengths: Sequence[int] = (5, 3, 7), dtype: torch.dtype = torch.float32) -> bool:
    """Return True if logits depend on the random seed, but on nothing else random."""
    found = []
    for seed in (1, 2, 1):
        torch.manual_seed(seed)
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            found.append(model(sources(lengths), targets(lengths)).detach())
    assert torch.equal(found[0], found[2])
    return not torch.allclose(found[0], found[1])


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_a_model_drops_in_training_only_and_on_both_sides(change: dict[str, float]) -> None:
    plain, batch = small_model(), (sources([5, 3, 7]), targets([4, 6, 2]))
    expected = plain(*batch)
    assert torch.equal(small_model(**change)(*batch), expected)
    assert torch.equal(plain.train()(*batch), expected)
    assert varies(small_model(**change).train())
    for side, embedding in (("encoder", "source_embedding"), ("decoder", "target_embedding")):
        half = small_model(**change)  # the other one alone in training
        getattr(half, side).train()
        getattr(half, embedding).train()
        assert varies(half), side
        if next(iter(change)) in ("embedding_dropout", "word_dropout"):
            half = lively_model(**DECODER_ONLY[0], **change)
            getattr(half, embedding).train()
            assert varies(half), f"decoder-only {side}"


@pytest.mark.parametrize("lengths", [(5, 3, 7), (5, 5, 5)], ids=["padded", "full"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_attention_dropout_with_and_without_padding_in_every_number_format(
    dtype: torch.dtype, lengths: tuple[int, ...]
) -> None:
    for side, kind in (("encoder", SelfAttention), ("decoder", SelfAttention), ("decoder", CrossAttention)):
        model = small_model(attention_dropout=0.4)
        chosen = [module for module in getattr(model, side).modules() if isinstance(module, kind)]
        assert len(chosen) == 2
        for attention in chosen:
            attention.train()
        assert varies(model, lengths, dtype), (side, kind)


@pytest.mark.parametrize("change", [*CHANGES, ALL], ids=lambda change: "-".join(change))
def test_step_by_step_decoding_drops_nothing(change: dict[str, float]) -> None:
    src_tokens, outputs = sources([5, 3]), []
    for model in (small_model(), small_model(**change)):
        state = model.start(src_tokens)
        outputs.append(torch.stack([model.step(torch.full((2, 1), token), state).detach() for token in (2, 5, 7)]))
    assert torch.equal(*outputs)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_papers_dropout_follows_embeddings_and_sublayers_only(norm: str) -> None:
    """One layer of each, written out; no other random number is drawn."""
    model = small_model(dropout=0.25, encoder_layers=1, decoder_layers=1, norm=norm).train()
    src_tokens, tgt_in = sources([4, 4]), targets([3, 3])
    torch.manual_seed(0)
    logits = model(src_tokens, tgt_in)
    random_state = torch.get_rng_state()
    drop = Dropout(0.25)

    def embed(made: Embedding, tokens: Tensor) -> Tensor:
        x = F.embedding(tokens.flatten(), made.tokens.weight) * 4.0
        return drop(x + made.positions.sinusoids(tokens.shape[1]).repeat(len(tokens), 1))

    def sublayer(layer: nn.Module, number: int, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        normalise = layer.residuals[number].norm
        return x + drop(function(normalise(x))) if norm == "pre" else normalise(x + drop(function(x)))

    def feed_forward(layer: nn.Module) -> Callable[[Tensor], Tensor]:
        up, down = layer.feed_forward.up, layer.feed_forward.down
        return lambda x: F.linear(F.linear(x, up.weight, up.bias).relu(), down.weight, down.bias)

    src, tgt = Packing.of(src_tokens), Packing.of(tgt_in)
    encoder, decoder = model.encoder[0], model.decoder[0]
    torch.manual_seed(0)
    x = embed(model.source_embedding, src_tokens)
    x = sublayer(encoder, 0, x, lambda x: encoder.self_attention(x, src, causal=False))
    x = sublayer(encoder, 1, x, feed_forward(encoder))
    memory = model.encoder_norm(x)
    y = embed(model.target_embedding, tgt_in)
    y = sublayer(decoder, 0, y, lambda y: decoder.self_attention(y, tgt, causal=True))
    y = sublayer(decoder, 1, y, lambda y: decoder.cross_attention(y, tgt, memory, src))
    y = sublayer(decoder, 2, y, feed_forward(decoder))
    torch.testing.assert_close(logits.flatten(0, 1), model.decoder_norm(y) @ model.output.weight.T)
    assert torch.get_rng_state().equal(random_state)
