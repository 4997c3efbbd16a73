"""Packing: values and gradients of plain indexing."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from mt.model.packing import Packing

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


def test_full_is_the_packing_of_equal_lengths() -> None:
    full, found = Packing.full(3, 4, torch.device("cpu")), Packing.of(tokens_of([4, 4, 4]))
    assert full.shape == found.shape == (3, 4)
    assert full.positions.tolist() == found.positions.tolist() == [0, 1, 2, 3] * 3
    assert full.padding is found.padding is None
    x = vectors(3, 4, 2)
    assert full.pack(x).equal(x.flatten(0, 1))
    assert full.unpack(full.pack(x)).equal(x)


@EXAMPLES
def test_a_moved_packing_is_the_same(lengths: list[int]) -> None:
    packing = Packing.of(tokens_of(lengths))
    same, shapes = packing.to(torch.device("cpu")), packing.to(torch.device("meta"))
    assert same.shape == shapes.shape == packing.shape
    assert same.positions.equal(packing.positions)
    assert shapes.positions.is_meta
    if packing.padding is None:
        assert same.padding is shapes.padding is None
    else:
        assert all(a.equal(b) for a, b in zip(same.padding, packing.padding, strict=True))
        assert all(a.is_meta and a.shape == b.shape for a, b in zip(shapes.padding, packing.padding, strict=True))
    x = vectors(sum(lengths), 2)
    assert same.unpack(x).equal(packing.unpack(x))
