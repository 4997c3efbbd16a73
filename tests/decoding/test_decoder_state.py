"""Long step-by-step decoding: reclaimed cache slots, growing buffers and leaving sentences change no logits."""

from itertools import pairwise

import pytest
import torch

from model_helpers import DECODER_ONLY, close, small_model, sources
from mt.data.tokenizer import SOS_ID
from mt.model.transformer import Transformer

SHAPES = [
    {},
    {"norm": "pre", "positions": "learned"},
    {"tie_embeddings": False, "activation": "swiglu", "n_heads": 1},
    *DECODER_ONLY,
]
STEPS = 150


class Follower:
    """A decoder fed with random tokens and random reorderings, and the prefix of each hypothesis."""

    def __init__(self, model: Transformer, lengths: list[int], seed: int) -> None:
        self.model, self.src_tokens = model, sources(lengths, seed=seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.sentences = torch.arange(len(lengths))
        self.prefixes = torch.full((len(lengths), 1), SOS_ID)
        self.state = model.start(self.src_tokens)
        self.capacities: list[int] = []
        self.used: list[int] = []

    @property
    def width(self) -> int:
        return len(self.prefixes) // len(self.sentences)

    def step(self) -> torch.Tensor:
        """Return logits of the next token (B * W, V), which full decoding confirms at every tenth position."""
        logits = self.model.step(self.prefixes[:, -1].view(-1, self.width), self.state)
        self.capacities.append(self.state.caches[0].capacity)
        self.used.append(self.state.used)
        position = self.state.position - 1
        if position < 10 or position % 10 == 0:
            close(logits, self.expected(), 1e-4)
        return logits

    @property
    def reclaimed(self) -> int:
        """The number of times that slots were reclaimed."""
        return sum(later < earlier for earlier, later in pairwise(self.used))

    def expected(self) -> torch.Tensor:
        """Return the same logits from full decoding of each prefix."""
        src_tokens = self.src_tokens[self.sentences].repeat_interleave(self.width, dim=0)
        return self.model(src_tokens, self.prefixes)[:, -1]

    def advance(self, origins: torch.Tensor, kept: torch.Tensor | None = None) -> None:
        """Reorder hypotheses by origins (B', W') within the kept sentences (B'), and append random tokens."""
        self.state.select(kept, origins)
        rows = torch.arange(len(self.sentences)) if kept is None else kept
        moves = (origins + rows[:, None] * self.width).flatten()
        new = torch.randint(4, 12, (len(moves), 1), generator=self.generator)
        self.sentences, self.prefixes = self.sentences[rows], torch.cat([self.prefixes[moves], new], dim=1)

    def random_origins(self, batch: int, width: int) -> torch.Tensor:
        return torch.randint(self.width, (batch, width), generator=self.generator)


@pytest.mark.parametrize("width", [4, 16])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@torch.no_grad()
def test_reclaiming_growing_and_leaving_change_nothing(shape: dict, width: int) -> None:
    follower = Follower(small_model(max_length=STEPS + 1, **shape), [6, 2, 4, 1, 9], seed=3)
    for position in range(STEPS):
        follower.step()
        assert follower.state.position == position + 1
        kept = None
        if position in (5, 70, 110):  # the first, one within, the last
            gone = {5: 0, 70: 1, 110: len(follower.sentences) - 1}[position]
            kept = torch.tensor([row for row in range(len(follower.sentences)) if row != gone])
        batch = len(follower.sentences) if kept is None else len(kept)
        follower.advance(follower.random_origins(batch, width), kept)
    close(follower.step(), follower.expected(), 1e-4)
    assert follower.sentences.tolist() == [1, 3]
    assert len(set(follower.capacities)) >= 3, "no buffer grew"
    if width == 16:
        assert follower.reclaimed >= 2
        assert max(follower.used) < 9 * STEPS, "most slots were dead"


@torch.no_grad()
def test_right_after_every_reclaiming() -> None:
    """Test the step that reclaims, the step after it, and a sentence that leaves at that moment."""
    follower = Follower(small_model(max_length=STEPS + 1), [6, 2, 4, 3, 5], seed=5)
    reclaimed, just_now = 0, False
    for _ in range(STEPS):
        logits, before = follower.step(), just_now
        just_now = follower.reclaimed > reclaimed
        reclaimed = follower.reclaimed
        if just_now or before:
            close(logits, follower.expected(), 1e-4)
        leaves = just_now and len(follower.sentences) > 2
        kept = torch.arange(1, len(follower.sentences)) if leaves else None
        batch = len(follower.sentences) if kept is None else len(kept)
        follower.advance(follower.random_origins(batch, 16), kept)
    assert reclaimed >= 2
    assert len(follower.sentences) == max(2, 5 - reclaimed)


@torch.no_grad()
def test_sentences_attend_to_different_numbers_of_slots() -> None:
    """All hypotheses of one sentence survive, while most slots of the others are dead; none may lose its cache."""
    follower = Follower(small_model(max_length=100), [6, 2, 4], seed=6)
    follower.step()
    follower.advance(torch.zeros(3, 8, dtype=torch.long))
    for position in range(1, 90):
        follower.step()
        origins = follower.random_origins(3, 8)
        if position < 8:
            origins[1] = torch.arange(8)
        follower.advance(origins)
    assert follower.reclaimed


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@torch.no_grad()
def test_buffers_grow_where_all_hypotheses_live_on(shape: dict) -> None:
    """Each hypothesis continues itself, so nothing can be reclaimed."""
    follower = Follower(small_model(max_length=64, **shape), [5, 3, 1], seed=7)
    for position in range(60):
        follower.step()
        follower.advance((torch.arange(4) if position else torch.zeros(4, dtype=torch.long)).expand(3, 4))
    prompt = follower.src_tokens.shape[1] if "architecture" in shape else 0
    assert follower.state.used == prompt + 1 + 4 * 59
    assert len(set(follower.capacities)) >= 3
    assert follower.reclaimed == 0


@torch.no_grad()
def test_the_width_may_change() -> None:
    """It does at the first step, and where the vocabulary is smaller than the beam."""
    follower = Follower(small_model(max_length=64), [5, 3, 1], seed=8)
    for width in [2, 5, 3, 1, 4, 4, 1, 1, 6, 2] * 3:
        close(follower.step(), follower.expected(), 1e-4)
        follower.advance(follower.random_origins(3, width))


@torch.no_grad()
def test_greedy_search_needs_no_mask() -> None:
    follower = Follower(small_model(max_length=90), [5, 3, 1, 7], seed=9)
    for position in range(80):
        follower.step()
        kept = torch.tensor([0, 2, 3]) if position == 33 else None
        follower.advance(torch.zeros(3 if position >= 33 else 4, 1, dtype=torch.long), kept)
        assert follower.state.visible is None
        assert follower.state.used == position + 1
    assert follower.sentences.tolist() == [0, 2, 3]
    assert max(follower.capacities) > 64
