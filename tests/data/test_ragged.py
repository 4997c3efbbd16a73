"""Operations on arrays of rows and of groups, compared with plain Python."""

import numpy as np
import pytest

from mt.data.ragged import Array, distinct, indexed, top_of_each


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_values_of_several_blocks_are_numbered_in_their_order(dtype: type) -> None:
    rng = np.random.default_rng(1)
    blocks = [rng.integers(0, 60, size).astype(dtype) + np.iinfo(dtype).max // 2 for size in (50, 0, 70)]
    values, numbered = indexed((block, block[::-1]) for block in blocks)
    assert values.tolist() == sorted({value for block in blocks for value in block.tolist()})
    for block, (numbers, other) in zip(blocks, numbered, strict=True):
        assert values[numbers].tolist() == block.tolist()
        assert other.tolist() == block[::-1].tolist()
    assert distinct(blocks[1]).tolist() == []


@pytest.mark.parametrize("size", [0, 200])
def test_the_highest_scores_of_each_group(size: int) -> None:
    rng = np.random.default_rng(size)
    groups, scores = rng.integers(0, 30, size), rng.permutation(size)
    expected: list[Array] = []
    for group in sorted(set(groups.tolist())):
        members = np.flatnonzero(groups == group)
        expected += sorted(members, key=lambda member: -scores[member])[:3]
    assert top_of_each(groups, scores, 3).tolist() == expected
