"""Attention for packed sentences: the same numbers as with padding and masks, and no rows moved around it."""

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from flash_helpers import FlashCalls, attend_sentences, flash_attention_on_cpu
from model_helpers import DECODER_ONLY, close, small_model, sources, targets
from mt.model import attention, packing
from mt.model.attention import attend, attend_packed, has_packed_kernel, split_heads
from mt.model.build import TranslationModel
from mt.model.decoder_only import join
from mt.model.decoder_state import KeyValues
from mt.model.packing import Packing, send
from mt.system.devices import has_flash_attention

CPU = torch.device("cpu")
LENGTHS = [pytest.param([5, 3, 7], [2, 6, 4], id="padded"), pytest.param([4, 4], [5, 5], id="equal")]


@pytest.fixture
def flash() -> Iterator[FlashCalls]:
    with flash_attention_on_cpu() as calls:
        yield calls


def draw(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()


@pytest.mark.parametrize(("src_lengths", "tgt_lengths"), LENGTHS)
@pytest.mark.parametrize("kind", ["self", "causal", "cross"])
def test_packed_sentences_attend_as_padded_ones(
    flash: FlashCalls, kind: str, src_lengths: list[int], tgt_lengths: list[int]
) -> None:
    """Values and gradients; the twin stands for the operator, whose arguments it checks."""
    src = Packing.of(sources(src_lengths))
    tgt = Packing.of(targets(tgt_lengths)) if kind == "cross" else src
    assert src.starts.tolist() == [sum(src_lengths[:i]) + 2 * i for i in range(len(src_lengths) + 1)]
    heads, width = 2, 8
    queries, keys, values = (draw(p.starts[-1], heads, width, seed=i) for i, p in enumerate((tgt, src, src)))
    packed = attend_packed(queries, keys, values, tgt, src, kind == "causal", 0.0)

    def padded(x: Tensor, packing: Packing) -> Tensor:
        return split_heads(packing.unpack(x.flatten(1)), heads)

    mask = None if kind == "causal" else attention.attention_mask(src.pad)
    key_values = KeyValues(padded(keys, src), padded(values, src))
    expected = tgt.pack(attend(padded(queries, tgt), key_values, mask, kind == "causal", 0.0))
    close(packed, expected, 1e-12)
    factors = draw(*packed.shape, seed=3).detach()
    for actual, wanted in zip(
        *(torch.autograd.grad((x * factors).sum(), (queries, keys, values)) for x in (packed, expected)), strict=True
    ):
        close(actual, wanted, 1e-12)
    [call] = flash
    assert call["causal"] == (kind == "causal")


class Moves(TorchDispatchMode):
    """Counts the operators that move rows."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.number += any(name in str(function) for name in ("index", "gather", "scatter", "masked", "nonzero"))
        return function(*args, **(kwargs or {}))


def losses(model: TranslationModel, src_tokens: Tensor, tgt_in: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    states = model.states(src_tokens, tgt_in, Packing.of(src_tokens), Packing.of(tgt_in))
    factors = draw(*states.shape, seed=1).detach()
    parameters = [p for name, p in model.named_parameters() if not name.startswith("output")]
    return states, torch.autograd.grad((states * factors).sum(), parameters)


@pytest.mark.parametrize(("src_lengths", "tgt_lengths"), LENGTHS)
@pytest.mark.parametrize("change", [{}, DECODER_ONLY[0]], ids=["encoder-decoder", "decoder-only"])
def test_models_are_the_same_with_and_without_the_kernel(
    change: dict[str, object], src_lengths: list[int], tgt_lengths: list[int]
) -> None:
    model = small_model(tie_embeddings=False, **change).double()
    batch = sources(src_lengths), targets(tgt_lengths)
    expected, gradients = losses(model, *batch)
    with flash_attention_on_cpu() as calls:
        states, own = losses(model, *batch)
    attentions = 2 if change else 6
    assert len(calls) == attentions
    assert [call["causal"] for call in calls] == ([True] * 2 if change else [False, False, True, False, True, False])
    close(states, expected, 1e-10)
    for actual, wanted in zip(own, gradients, strict=True):
        close(actual, wanted, 1e-10)


def test_no_rows_are_moved_around_the_kernel(flash: FlashCalls) -> None:
    model = small_model(activation="gelu")
    tokens = sources([5, 3]), targets([2, 6])
    src, tgt = map(Packing.of, tokens)
    memory = torch.randn(src.starts[-1], 16, requires_grad=True)
    x = torch.randn(tgt.starts[-1], 16, requires_grad=True)
    with Moves() as moves:
        model.decoder[0](x, tgt, model.encoder[0](memory, src), src).sum().backward()
    assert len(flash) == 3
    assert moves.number == 0


def test_masks_and_caches_go_the_padded_way(flash: FlashCalls) -> None:
    """The source of a decoder-only model read in both directions, and every decoding step; not the encoder's pass."""
    for change, calls in ((DECODER_ONLY[0], 0), (DECODER_ONLY[1], 0), ({}, 2)):
        model, tokens = small_model(**change), (sources([5, 3]), targets([2, 6]))
        flash.clear()
        state = model.start(tokens[0])
        model.step(torch.full((2, 1), 2), state)
        assert len(flash) == calls
    model = small_model(**DECODER_ONLY[1])
    flash.clear()
    losses(model.double(), *tokens)
    assert not flash


def test_dropout_reaches_the_kernel_in_training_only(flash: FlashCalls) -> None:
    model, batch = small_model(attention_dropout=0.25), (sources([5, 3]), targets([2, 6]))
    model.double().train()
    losses(model, *batch)
    assert [call["dropout"] for call in flash] == [0.25] * 6
    flash.clear()
    losses(model.eval(), *batch)
    assert [call["dropout"] for call in flash] == [0.0] * 6


def test_the_kernel_has_its_number_formats_and_widths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "has_flash_attention", lambda device: True)
    packed = Packing.of(sources([5, 3]))
    for dtype, width, expected in (
        (torch.bfloat16, 64, True),
        (torch.float16, 192, True),
        (torch.float32, 64, False),
        (torch.bfloat16, 20, False),
        (torch.bfloat16, 256, False),
    ):
        assert has_packed_kernel(packed, dtype, width) == expected


def test_a_cpu_has_no_kernel() -> None:
    assert not has_flash_attention(CPU)
    src, tgt = Packing.of(sources([5, 3])), Packing.of(torch.ones(2, 3))
    assert src.starts is tgt.starts is join(src, tgt).packing.starts is None


@pytest.mark.parametrize("equal", [True, False])
def test_a_packing_made_for_another_device_has_what_that_needs(monkeypatch: pytest.MonkeyPatch, equal: bool) -> None:
    monkeypatch.setattr(packing, "has_flash_attention", lambda device: device.type == "meta")
    tokens = sources([4, 4] if equal else [5, 3])
    assert Packing.of(tokens).starts is None
    assert Packing.of(tokens, torch.device("meta")).starts.tolist() == [0, *((6, 12) if equal else (7, 12))]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["self", "causal", "cross"])
def test_the_kernel_equals_its_twin(kind: str, dtype: torch.dtype) -> None:
    device = torch.device("cuda")
    if not has_flash_attention(device):
        pytest.skip("this card has no FlashAttention")
    packings = [Packing.of(tokens, device) for tokens in (sources([70, 1, 130]), targets([3, 90, 40]))]
    _, (src, tgt) = send([], packings, device)
    tgt = tgt if kind == "cross" else src
    lengths = [int(packing.starts[-1]) for packing in (tgt, src, src)]
    exact = [draw(n, 4, 64, seed=i).detach().to(dtype).double().requires_grad_() for i, n in enumerate(lengths)]
    rounded = [x.detach().to(device, dtype).requires_grad_() for x in exact]
    packed = attend_packed(*rounded, tgt, src, kind == "causal", 0.0)
    starts = tgt.starts.cpu(), src.starts.cpu()
    expected = attend_sentences(*exact, *starts, kind == "causal").flatten(1)
    factors = draw(*expected.shape, seed=3).detach()
    gradients = torch.autograd.grad((packed * factors.to(device, dtype)).sum(), rounded)
    wanted = torch.autograd.grad((expected * factors).sum(), exact)
    for actual, exactly in zip((packed, *gradients), (expected, *wanted), strict=True):
        torch.testing.assert_close(actual.cpu().double(), exactly, rtol=0.02, atol=0.02)


@pytest.mark.gpu
def test_the_kernels_dropout_has_the_mean_and_variance_of_its_probability() -> None:
    device = torch.device("cuda")
    if not has_flash_attention(device):
        pytest.skip("this card has no FlashAttention")
    packing = Packing.of(torch.ones(4000, 5, device=device))
    torch.manual_seed(0)
    one = [torch.randn(5, 1, 8, device=device, dtype=torch.bfloat16) for _ in range(3)]
    copies = [x.repeat(4000, 1, 1) for x in one]
    drawn = attend_packed(*copies, packing, packing, False, 0.25).view(4000, 5, 8).float()
    expected = attend_packed(*copies, packing, packing, False, 0.0)[:5].float()
    torch.testing.assert_close(drawn.mean(dim=0), expected, rtol=0.0, atol=0.05)
    queries, keys, values = (x[:, 0].float() for x in one)
    weights = (queries @ keys.T / math.sqrt(8)).softmax(dim=-1)
    variance = 0.25 / 0.75 * weights.square() @ values.square()
    torch.testing.assert_close(drawn.var(dim=0), variance, rtol=0.2, atol=0.02)
