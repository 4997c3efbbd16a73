"""Packing: values and gradients of plain indexing."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.overrides import TorchFunctionMode

from mt.model.packing import Packing, send

EQUAL = st.tuples(st.integers(1, 9), st.integers(1, 6)).map(lambda pair: [pair[0]] * pair[1])
LENGTHS = st.one_of(st.lists(st.integers(1, 9), min_size=1, max_size=6), EQUAL)
EXAMPLES = pytest.mark.parametrize("lengths", [[1], [5], [3, 3], [1, 1, 1], [4, 1, 2], [1, 6], [6, 6, 1]], ids=str)


def tokens_of(lengths: list[int], extra: int = 0) -> Tensor:
    """Return sentences 1, 2, 3, ... 8, 1, 2, ... (B, L) of these lengths, with extra columns of padding."""
    places = torch.arange(max(lengths) + extra).expand(len(lengths), -1)
    return torch.where(places < torch.tensor(lengths)[:, None], places % 8 + 1, 0)


def vectors(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()


@given(LENGTHS, st.integers(0, 3))
def test_pack_and_its_gradient_are_those_of_indexing(lengths: list[int], extra: int) -> None:
    tokens = tokens_of(lengths, extra)
    packing, real = Packing.of(tokens), tokens != 0
    assert packing.shape == tokens.shape
    assert packing.positions.tolist() == [place for length in lengths for place in range(length)]
    assert packing.pack(tokens).tolist() == tokens[real].tolist()
    x, factors = vectors(*tokens.shape, 3), vectors(sum(lengths), 3, seed=1).detach()
    packed = packing.pack(x)
    assert packed.equal(x[real])
    [expected] = torch.autograd.grad((x[real] * factors).sum(), x)
    [actual] = torch.autograd.grad((packed * factors).sum(), x)
    assert actual.equal(expected)
    assert (actual[~real] == 0).all()
    if real.all():
        assert packing.padding is packing.pad is None
    else:
        assert packing.pad.equal(~real)
        assert packing.padding.real.tolist() == real.flatten().nonzero()[:, 0].tolist()
        assert packing.padding.empty.tolist() == (~real).flatten().nonzero()[:, 0].tolist()


@given(LENGTHS, st.integers(0, 3))
def test_unpack_and_its_gradient_are_those_of_indexing(lengths: list[int], extra: int) -> None:
    tokens = tokens_of(lengths, extra)
    packing, real = Packing.of(tokens), tokens != 0
    x, factors = vectors(sum(lengths), 3), vectors(*tokens.shape, 3, seed=1).detach()
    padded = packing.unpack(x)
    assert padded.shape == (*tokens.shape, 3)
    assert padded[real].equal(x)
    assert packing.pack(padded).equal(x)
    assert padded.isfinite().all()
    plain = torch.zeros(*tokens.shape, 3, dtype=torch.float64).index_put((real,), x)
    [expected] = torch.autograd.grad((plain * factors).sum(), x)
    # The gradients of what stands at padding belong to no token.
    [actual] = torch.autograd.grad((padded * factors).sum(), x)
    assert actual.equal(expected)


@EXAMPLES
def test_pack_accepts_non_contiguous_tensors(lengths: list[int]) -> None:
    # As the joined heads of attention are.
    tokens = tokens_of(lengths)
    rows, length = tokens.shape
    x, weights = vectors(rows, 4, length), vectors(sum(lengths), 4, seed=1).detach()
    turned = x.transpose(1, 2)
    packed = Packing.of(tokens).pack(turned)
    assert packed.equal(turned[tokens != 0])
    expected = torch.autograd.grad((turned[tokens != 0] * weights).sum(), x)
    assert torch.autograd.grad((packed * weights).sum(), x)[0].equal(expected[0])


@EXAMPLES
def test_sent_tokens_and_packings_are_the_same(lengths: list[int]) -> None:
    tokens, packing = tokens_of(lengths), Packing.of(tokens_of(lengths))
    [here], [same] = send([tokens], [packing], torch.device("cpu"))
    assert here is tokens
    assert all(a is b for a, b in zip(same.tensors, packing.tensors, strict=True))
    [there], [shapes] = send([tokens], [packing], torch.device("meta"))
    assert there.is_meta
    assert same.shape == shapes.shape == packing.shape
    assert (same.padding is None) == (shapes.padding is None) == (packing.padding is None)
    assert all(a.is_meta and a.shape == b.shape for a, b in zip(shapes.tensors, packing.tensors, strict=True))
    x = vectors(sum(lengths), 2)
    assert same.unpack(x).equal(packing.unpack(x))


class CopiesToGpu(TorchFunctionMode):
    """Lets copies to a GPU end on the CPU, and counts them."""

    number = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        kwargs = dict(kwargs or {})
        if function is Tensor.to and args[1] == torch.device("cuda"):
            assert kwargs == {"non_blocking": True}
            self.number += 1
            return args[0].clone()
        if kwargs.pop("pin_memory", False):
            assert function is torch.empty
        return function(*args, **kwargs)


@EXAMPLES
@pytest.mark.parametrize("kernel", [True, False])
def test_a_gpu_gets_a_batch_in_one_copy(monkeypatch: pytest.MonkeyPatch, lengths: list[int], kernel: bool) -> None:
    """Of three number formats: 64 bits, 32, and truth values."""
    gpu = torch.device("cuda")
    monkeypatch.setattr("mt.model.packing.has_flash_attention", lambda device: kernel and device == gpu)
    tokens, others = tokens_of(lengths), tokens_of([3, 1])[:, :0]
    packings = [Packing.of(tokens, gpu), Packing.of(tokens_of(lengths, 1), gpu)]
    with CopiesToGpu() as copies:
        sent, there = send([tokens, others], packings, gpu)
    assert copies.number == 1
    assert (there[0].starts is not None) == kernel
    assert all(a.equal(b) for a, b in zip(sent, [tokens, others], strict=True))
    for a, b in zip(there, packings, strict=True):
        assert a.shape == b.shape
        assert [x.dtype for x in a.tensors] == [x.dtype for x in b.tensors]
        assert all(x.equal(y) for x, y in zip(a.tensors, b.tensors, strict=True))
        assert all(x.storage_offset() * x.element_size() % 16 == 0 for x in a.tensors)
