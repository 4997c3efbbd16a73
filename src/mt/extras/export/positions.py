"""The vectors of positions, as a table."""

from torch import Tensor

from mt.model.embedding import Embedding, LearnedPositions


def position_table(embedding: Embedding, length: int) -> Tensor:
    """The vectors of positions, (length, D), on the CPU; learned ones are as many as there are."""
    kind = embedding.positions
    return kind.table.detach().cpu() if isinstance(kind, LearnedPositions) else kind.sinusoids(length)
