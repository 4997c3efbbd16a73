"""The Transformer: equal to torch's own, to the paper's formulas and to its published sizes."""

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model_helpers import close, model_config, paper_positions, small_model, sources, targets
from mt.config import ModelConfig
from mt.data.tokenizer import PAD_ID
from mt.model.embedding import Embedding
from mt.model.layers import DecoderLayer, EncoderLayer
from mt.model.packing import Packing
from mt.model.positions import LearnedPositions, SinusoidalPositions, rotary_positions, rotated
from mt.model.transformer import Transformer

RENAMED = [
    ("self_attention.in_proj.", "self_attn.in_proj_"),
    ("self_attention.", "self_attn."),
    ("cross_attention.out_proj.", "multihead_attn.out_proj."),
    ("feed_forward.up.", "linear1."),
    ("feed_forward.down.", "linear2."),
    ("residuals.0.norm.", "norm1."),
    ("residuals.1.norm.", "norm2."),
    ("residuals.2.norm.", "norm3."),
]
SHAPES = [
    {"norm": norm, "activation": activation, "bias": bias}
    for norm in ("post", "pre")
    for activation in ("relu", "gelu")
    for bias in (True, False)
]


def torch_names(ours: EncoderLayer | DecoderLayer, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert a layer's weights or gradients to the names and the joined matrices of torch's layer."""
    tensors = dict(tensors)
    if isinstance(ours, DecoderLayer):
        for part in ("weight", "bias") if "cross_attention.q_proj.bias" in tensors else ("weight",):
            joined = [tensors.pop(f"cross_attention.{name}.{part}") for name in ("q_proj", "kv_proj")]
            tensors[f"multihead_attn.in_proj_{part}"] = torch.cat(joined)
    renamed = {}
    for name, tensor in tensors.items():
        ending = name
        for old, new in RENAMED:
            ending = ending.replace(old, new)
        renamed[ending] = tensor
    return renamed


def twin(ours: EncoderLayer | DecoderLayer, config: ModelConfig) -> nn.Module:
    """Build torch's layer with our weights, in training mode: torch's fast path zeroes padded positions."""
    kind = nn.TransformerDecoderLayer if isinstance(ours, DecoderLayer) else nn.TransformerEncoderLayer
    theirs = kind(
        config.d_model,
        config.n_heads,
        config.d_ff,
        dropout=0.0,
        activation=config.activation,
        batch_first=True,
        norm_first=config.norm == "pre",
        bias=config.bias,
    )
    theirs.load_state_dict(torch_names(ours, ours.state_dict()))
    return theirs.to(next(ours.parameters()).dtype)


LENGTHS = [pytest.param((7, 4, 1), (2, 5, 3), id="padded"), pytest.param((7, 7, 7), (5, 5, 5), id="full")]


class TorchTwin:
    """Torch's Transformer between copies of our model's embeddings, final norms and output layer."""

    def __init__(self, model: Transformer, config: ModelConfig) -> None:
        self.around = copy.deepcopy(model)
        sides = [[twin(layer, config) for layer in side] for side in (model.encoder, model.decoder)]
        norms = (self.around.encoder_norm, self.around.decoder_norm) if config.norm == "pre" else (None, None)
        self.stacks = nn.Transformer(
            config.d_model,
            config.n_heads,
            custom_encoder=nn.TransformerEncoder(sides[0][0], 2, norms[0], enable_nested_tensor=False),
            custom_decoder=nn.TransformerDecoder(sides[1][0], 2, norms[1]),
            batch_first=True,
        )
        self.stacks.encoder.layers, self.stacks.decoder.layers = map(nn.ModuleList, sides)
        # torch draws new weights for the layers it is given, so ours are loaded last.
        self.around.load_state_dict(model.state_dict())

    def states(self, src_tokens: Tensor, tgt_in: Tensor) -> Tensor:
        """Return the decoder's last states (B, T, D)."""
        pad = src_tokens == PAD_ID
        return self.stacks(
            embed(self.around.source_embedding, src_tokens),
            embed(self.around.target_embedding, tgt_in),
            tgt_mask=torch.ones(2 * tgt_in.shape[1:]).triu(1).bool(),  # True where a query may not look
            src_key_padding_mask=pad,
            memory_key_padding_mask=pad,
        )

    def gradients(self, model: Transformer) -> Iterator[tuple[str, Tensor, Tensor]]:
        """Yield name, our gradient and torch's gradient of every parameter."""
        for side in ("encoder", "decoder"):
            stack = getattr(self.stacks, side)
            for number, (ours, theirs) in enumerate(zip(getattr(model, side), stack.layers, strict=True)):
                named = torch_names(ours, {name: p.grad for name, p in ours.named_parameters()})
                expected = {name: p.grad for name, p in theirs.named_parameters()}
                assert named.keys() == expected.keys()
                yield from ((f"{side}.{number}.{name}", named[name], expected[name]) for name in named)
        others = dict(self.around.named_parameters())
        for name, parameter in model.named_parameters():
            if not name.startswith(("encoder.", "decoder.")):
                yield name, parameter.grad, others[name].grad


def embed(embedding: Embedding, tokens: Tensor) -> Tensor:
    """Embed every position, padding too: (B, L) to (B, L, D)."""
    vectors = F.embedding(tokens, embedding.tokens.weight, padding_idx=PAD_ID) * 4.0  # sqrt(16)
    return vectors + embedding.positions.table[: tokens.shape[1]]


@pytest.mark.parametrize("shape", [*SHAPES, {"positions": "learned", "tie_embeddings": False}], ids=str)
@pytest.mark.parametrize(("src_lengths", "tgt_lengths"), LENGTHS)
def test_logits_and_gradients_equal_torchs(
    shape: dict, src_lengths: tuple[int, ...], tgt_lengths: tuple[int, ...]
) -> None:
    """In double precision, so that only the formulas can differ."""
    config, model = model_config(**shape), small_model(**shape).double()
    src_tokens, tgt_in, tgt_out = sources(src_lengths), targets(tgt_lengths), targets(tgt_lengths, seed=2)
    other = TorchTwin(model, config)
    theirs = other.states(src_tokens, tgt_in) @ other.around.output.weight.T
    ours, is_real = model(src_tokens, tgt_in), tgt_in != PAD_ID
    assert isinstance(model.decoder_norm, nn.LayerNorm) == (config.norm == "pre")
    close(ours[is_real], theirs[is_real], 1e-9)
    for logits in (theirs, ours):
        F.cross_entropy(logits.flatten(0, 1), tgt_out.flatten(), ignore_index=PAD_ID, reduction="sum").backward()
    compared = 0
    for name, actual, expected in other.gradients(model):
        assert expected.abs().max() > 0, name
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9 * expected.abs().max().item())
        compared += actual.numel()
    assert compared == count(model)


VARIANTS = [
    {},
    {"norm": "pre"},
    {"positions": "learned", "activation": "swiglu", "bias": False},
    {"positions": "rotary", "norm": "pre"},
]


@pytest.mark.parametrize("shape", VARIANTS, ids=str)
def test_added_padding_changes_no_logit(shape: dict) -> None:
    model = small_model(**shape)
    src_tokens, tgt_in = sources([7, 2, 5]), targets([3, 6, 1])
    logits, is_real = model(src_tokens, tgt_in), tgt_in != PAD_ID
    padded = model(F.pad(src_tokens, (0, 5)), F.pad(tgt_in, (0, 4)))
    close(padded[:, : tgt_in.shape[1]][is_real], logits[is_real])
    for row, (src_length, tgt_length) in enumerate([(9, 4), (4, 7), (7, 2)]):
        alone = model(src_tokens[row : row + 1, :src_length], tgt_in[row : row + 1, :tgt_length])
        close(logits[row, :tgt_length], alone[0])


@pytest.mark.parametrize("shape", VARIANTS, ids=str)
def test_vectors_at_padding_are_irrelevant(shape: dict) -> None:
    batch, outcomes = (sources([6, 2, 4]), targets([2, 4, 1])), []
    for seed in range(3):
        model = small_model(**shape)
        with torch.no_grad():
            for embedding in (model.source_embedding, model.target_embedding):
                embedding.tokens.weight[PAD_ID] = float(seed)
        src, tgt = (filled(Packing.of(tokens), seed) for tokens in batch)
        states = model.states(*batch, src, tgt)
        (states**2 / 2).sum().backward()
        outcomes.append([states, *(parameter.grad for parameter in model.parameters() if parameter.grad is not None)])
    for others in outcomes[1:]:
        for first, other in zip(outcomes[0], others, strict=True):
            close(other, first)


def filled(packing: Packing, seed: int) -> Packing:
    """Return the same packing, but with other tokens' vectors at padding, each at most once."""
    padding, generator = packing.padding, torch.Generator().manual_seed(seed)
    packed = padding.packed.clone()
    packed[padding.empty] = torch.randperm(len(padding.real), generator=generator)[: len(padding.empty)]
    return replace(packing, padding=padding._replace(packed=packed))


def test_sinusoids_are_the_papers_also_beyond_max_length() -> None:
    positions, expected = SinusoidalPositions(8, max_length=10), paper_positions(1000, 8)
    for start, end in ((0, 10), (3, 7), (0, 11), (990, 1000), (0, 1000)):
        close(positions(torch.arange(start, end), end), expected[start:end], 1e-6)
    close(positions(torch.tensor([4, 0, 999, 4]), 1000), expected[[4, 0, 999, 4]], 1e-6)
    assert "table" not in positions.state_dict()


def test_products_of_rotated_queries_and_keys_depend_on_their_distance() -> None:
    rotary = rotary_positions(model_config(positions="rotary", d_model=16, n_heads=2), max_length=4)
    vectors = torch.randn(1, 48, dtype=torch.float64).repeat(20, 1)  # the same at each position
    queries, keys, values = rotated(vectors, rotary(torch.arange(20), 20).double(), 2).view(20, 3, 2, 8).unbind(1)
    close(values.flatten(1), vectors[:, 32:], 0)
    for head in range(2):
        products = queries[:, head] @ keys[:, head].T
        for distance in range(-19, 20):
            diagonal = products.diagonal(distance)
            close(diagonal, diagonal[:1].expand_as(diagonal), 1e-6)
        assert products[0].unique().numel() == 20


def test_learned_positions_are_one_vector_each() -> None:
    model = small_model(positions="learned", max_length=9)
    positions = model.source_embedding.positions
    assert isinstance(positions, LearnedPositions)
    assert positions is not model.target_embedding.positions
    close(positions(torch.tensor([2, 3, 4, 2]), 5), positions.table[[2, 3, 4, 2]], 0)
    tokens = sources([3, 1])
    src = Packing.of(tokens)
    model.source_embedding(src.pack(tokens), src.positions, 5).sum().backward()
    assert (positions.table.grad[:3] == 2).all()
    assert (positions.table.grad[3:5] == 1).all()
    assert (positions.table.grad[5:] == 0).all()
    with pytest.raises(IndexError):
        positions(torch.arange(10), 10)


@pytest.mark.parametrize(
    ("shared", "tie", "extra"), [(True, True, 0), (True, False, 12 + 12), (False, True, 15), (False, False, 15 + 12)]
)
def test_tied_matrices(shared: bool, tie: bool, extra: int) -> None:
    """All three are one, or the target's and the output's, or none; each other one adds its rows."""
    model = small_model(vocab=12, source_vocab=12 if shared else 15, shared=shared, tie_embeddings=tie)
    source, target = model.source_embedding.tokens.weight, model.target_embedding.tokens.weight
    assert (source is target) == (shared and tie)
    assert (model.output.weight is target) == tie
    assert len(source) == (12 if shared else 15)
    assert count(model) == count(small_model(vocab=12)) + 16 * extra


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


# 37,000 shared tokens make 63.1 million; the paper's 65 million is the size with its exact vocabulary.
@pytest.mark.parametrize(
    ("d_model", "d_ff", "n_heads", "published", "rounding"),
    [(512, 2048, 8, 65e6, 0.03), (1024, 4096, 16, 213e6, 0.01)],
    ids=["base", "big"],
)
def test_the_papers_models_have_the_papers_size(
    d_model: int, d_ff: int, n_heads: int, published: float, rounding: float
) -> None:
    config = ModelConfig(d_model=d_model, d_ff=d_ff, n_heads=n_heads)
    with torch.device("meta"):
        model = Transformer(config, 37_000, 37_000, 256, shared_vocab=True)
    attention = 4 * (d_model * d_model + d_model)
    feed_forward = d_model * d_ff + d_ff + d_ff * d_model + d_model
    norm = 2 * d_model
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    assert count(model) == 37_000 * d_model + 6 * (encoder_layer + decoder_layer)
    assert count(model) == pytest.approx(published, rel=rounding)


@pytest.mark.parametrize("init", ["xavier", "normal"])
def test_the_first_weights(init: str) -> None:
    torch.manual_seed(0)
    config = model_config(d_model=64, d_ff=128, init=init, positions="learned", tie_embeddings=False)
    model = Transformer(config, 500, 500, 200, shared_vocab=False)
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            joined = {"in_proj": 3, "kv_proj": 2}.get(name.rsplit(".")[-1], 1)
            for part in module.weight.chunk(joined):
                bound = (1 if joined == 1 else 2**-0.5) * math.sqrt(6 / sum(part.shape))
                std = bound / math.sqrt(3) if init == "xavier" else 0.02
                assert part.std().item() == pytest.approx(std, rel=0.06), name
                assert abs(part.mean().item()) < 0.05 * std, name
                assert init == "normal" or 0.97 * bound < part.abs().max() <= bound, name
            assert module.bias is None or (module.bias == 0).all()
        if isinstance(module, nn.LayerNorm):
            assert (module.weight == 1).all()
            assert (module.bias == 0).all()
    std = 1 / 8 if init == "xavier" else 0.02
    for embedding in (model.source_embedding, model.target_embedding):
        assert embedding.tokens.weight[1:].std().item() == pytest.approx(std, rel=0.03)
        assert (embedding.tokens.weight[PAD_ID] == 0).all()
        if init == "normal":
            assert embedding.positions.table.std().item() == pytest.approx(std, rel=0.06)


@pytest.mark.parametrize("shape", [{}, {"norm": "pre", "activation": "swiglu"}], ids=str)
def test_without_bias_there_is_none(shape: dict) -> None:
    with_bias = {name for name, _ in small_model(**shape).named_parameters() if name.endswith("bias")}
    assert with_bias
    assert not [name for name, _ in small_model(bias=False, **shape).named_parameters() if name.endswith("bias")]
