"""Batches: every sentence once, within the budget, in an order that seed and epoch alone decide."""

import os
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_helpers import as_lists, encode_text, random_lengths
from mt.data.batching import Batch, BatchStream, assemble, plan_epoch
from mt.data.ragged import Lengths
from mt.data.sentence_format import sentence_tokens
from mt.data.token_store import EncodedCorpus
from mt.data.tokenizer import EOS_ID, PAD_ID, SOS_ID
from mt.data.tokenizer_kinds import TokenizerPair
from mt.text.lines import read_lines

MULTI30K = Path(os.environ.get("MT_TEST_MULTI30K", Path(__file__).parents[3] / "shared" / "data" / "multi30k"))

lengths = st.lists(st.tuples(st.integers(2, 60), st.integers(1, 60)), min_size=1, max_size=80)


def arrays(pairs: list[tuple[int, int]]) -> tuple[Lengths, Lengths]:
    table = np.array(pairs, dtype=np.int64)
    return table[:, 0], table[:, 1]


@given(pairs=lengths, max_tokens=st.integers(1, 300), seed=st.integers(0, 2**31 - 1), epoch=st.integers(0, 1000))
def test_a_plan_has_every_sentence_once_within_the_budget(
    pairs: list[tuple[int, int]], max_tokens: int, seed: int, epoch: int
) -> None:
    plan = as_lists(plan_epoch(*arrays(pairs), max_tokens, seed, epoch))
    assert sorted(index for batch in plan for index in batch) == list(range(len(pairs)))
    for batch in plan:
        assert len(batch) == 1 or 0 < len(batch) * max(max(pairs[index]) for index in batch) <= max_tokens
    assert as_lists(plan_epoch(*arrays(pairs), max_tokens, seed, epoch)) == plan


def test_a_sentence_longer_than_the_budget_is_a_batch_by_itself() -> None:
    plan = as_lists(plan_epoch(*arrays([(5, 5), (5, 500), (500, 5), (5, 5), (101, 2)]), 100, 1, 0))
    assert sorted(map(sorted, plan)) == [[0, 3], [1], [2], [4]]


def test_a_batch_has_no_more_sentences_than_flash_attention_takes() -> None:
    sizes = [len(batch) for batch in plan_epoch(*arrays([(2, 2)] * 70_000), 10**6, 1, 0)]
    assert sum(sizes) == 70_000
    assert 2 * max(sizes) < 2**16


def test_batches_are_as_large_as_the_budget_allows() -> None:
    assert [len(batch) for batch in plan_epoch(*arrays([(25, 20)] * 8), 100, 1, 0)] == [4, 4]
    source, target = random_lengths(20_000)
    plan = plan_epoch(source, target, 4096, 1, 0)
    sizes = [len(batch) * max(source[batch].max(), target[batch].max()) for batch in plan]
    assert np.mean(sizes) > 0.95 * 4096


def test_the_order_is_a_function_of_lengths_seed_and_epoch() -> None:
    source, target = random_lengths(3000)

    def plan(seed: int, epoch: int) -> list[list[int]]:
        return as_lists(plan_epoch(source.copy(), target.astype(np.int32).astype(np.int64), 512, seed, epoch))

    first = plan(1, 0)
    np.random.seed(5)
    random.seed(5)
    assert plan(1, 0) == first
    for seed, epoch in ((1, 1), (2, 0), (0, 1)):
        # Not only the order of the batches changes, but also their sentences.
        common = {frozenset(batch) for batch in plan(seed, epoch)} & {frozenset(batch) for batch in first}
        assert len(common) < len(first) / 2
    # Neither the sum nor the order of seed and epoch decides.
    plans = [plan(seed, epoch) for seed, epoch in ((1, 2), (2, 1), (3, 0), (0, 3))]
    assert all(one != other for i, one in enumerate(plans) for other in plans[:i])


def test_long_and_short_batches_are_mixed() -> None:
    source, target = random_lengths(5000)
    means = [float(target[batch].mean()) for batch in plan_epoch(source, target, 512, 1, 0)]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.2


@pytest.mark.skipif(not (MULTI30K / "train.en").is_file(), reason="needs the Multi30k text (MT_TEST_MULTI30K)")
def test_padding_on_multi30k_is_at_most_six_percent() -> None:
    text = [list(read_lines(MULTI30K / f"train.{language}")) for language in ("en", "de")]
    tokenizer = TokenizerPair.train(*text, 10_000, shared=True).source
    source, target = sentence_tokens(*(np.array(list(map(len, tokenizer.encode_batch(side)))) for side in text))
    assert len(source) == 29_000
    for seed, epoch in ((1, 0), (2, 7)):
        plan = plan_epoch(source, target, 4096, seed, epoch)
        padded = sum(len(batch) * (source[batch].max() + target[batch].max()) for batch in plan)
        assert 1 - (source.sum() + target.sum()) / padded <= 0.06
        assert max(len(batch) * max(source[batch].max(), target[batch].max()) for batch in plan) <= 4096


@pytest.fixture(scope="module")
def pair() -> TokenizerPair:
    words = "uno due tre quattro cinque sei sette otto nove dieci".split()
    return TokenizerPair.train(words * 20, [word[::-1] for word in words] * 20, 330, shared=False)


@pytest.fixture(scope="module")
def text() -> tuple[list[str], list[str]]:
    rng = random.Random(4)
    lines = [" ".join(rng.choices("uno due tre quattro cinque è 7".split(), k=rng.randint(0, 12))) for _ in range(400)]
    return lines, [f"{line} {line[:5]}"[::-1].strip() for line in lines]


@pytest.fixture(scope="module")
def corpus(
    tmp_path_factory: pytest.TempPathFactory, pair: TokenizerPair, text: tuple[list[str], list[str]]
) -> EncodedCorpus:
    return encode_text(tmp_path_factory.mktemp("corpus"), *text, pair)


def padded(rows: list[list[int]]) -> list[list[int]]:
    longest = max(map(len, rows))
    return [row + [PAD_ID] * (longest - len(row)) for row in rows]


def test_batches_are_the_sentences_with_their_specials_and_padding(
    corpus: EncodedCorpus, pair: TokenizerPair, text: tuple[list[str], list[str]]
) -> None:
    source, target = pair.source.encode_batch(text[0]), pair.target.encode_batch(text[1])
    empty = np.array([index for index, line in enumerate(text[0]) if not line][:2])
    for indices in [*plan_epoch(*corpus.lengths(), 200, 1, 0), empty]:
        batch = assemble(corpus, indices)
        assert batch.src_tokens.tolist() == padded([[SOS_ID, *source[i], EOS_ID] for i in indices])
        assert batch.tgt_in.tolist() == padded([[SOS_ID, *target[i]] for i in indices])
        assert batch.tgt_out.tolist() == padded([[*target[i], EOS_ID] for i in indices])
        assert batch.n_src == sum(len(source[i]) + 2 for i in indices) == (batch.src_tokens != PAD_ID).sum()
        assert batch.n_tgt == sum(len(target[i]) + 1 for i in indices) == (batch.tgt_out != PAD_ID).sum()
        assert {array.dtype for array in (batch.src_tokens, batch.tgt_in, batch.tgt_out)} == {np.dtype(np.int64)}
        assert batch.src_tokens.size <= 200
        assert batch.tgt_in.shape == batch.tgt_out.shape
    assert batch.src_tokens.tolist() == [[SOS_ID, EOS_ID]] * 2, "the last batch is of empty sentences"


def test_sides_are_truncated_to_the_maximum_length(corpus: EncodedCorpus) -> None:
    longest = np.argsort(corpus.lengths()[1])[-3:]
    whole, truncated = assemble(corpus, longest), assemble(corpus, longest, max_length=8)
    assert truncated.src_tokens.shape == truncated.tgt_in.shape == truncated.tgt_out.shape == (3, 8)
    assert truncated.src_tokens[:, :7].tolist() == whole.src_tokens[:, :7].tolist()
    assert truncated.src_tokens[:, 7].tolist() == truncated.tgt_out[:, 7].tolist() == [EOS_ID] * 3
    assert truncated.tgt_in.tolist() == whole.tgt_in[:, :8].tolist()
    assert (truncated.n_src, truncated.n_tgt) == (24, 24)
    assert same(assemble(corpus, longest, max_length=10_000), whole)


def same(one: Batch, other: Batch) -> bool:
    names = ("src_tokens", "tgt_in", "tgt_out")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


def test_a_stream_follows_the_plans_of_its_epochs(corpus: EncodedCorpus) -> None:
    stream = BatchStream(corpus, max_tokens=300, seed=3)
    for epoch in range(3):
        plan = plan_epoch(*corpus.lengths(), 300, 3, epoch)
        for cursor, indices in enumerate(plan, 1):
            assert same(stream.next(), assemble(corpus, indices))
            assert (stream.epoch, stream.cursor) == (epoch, cursor)
        assert stream.epochs_done == epoch + 1


def test_a_stream_resumed_anywhere_gives_the_same_batches(corpus: EncodedCorpus) -> None:
    stream = BatchStream(corpus, max_tokens=300, seed=3)
    per_epoch = len(plan_epoch(*corpus.lengths(), 300, 3, 0))
    positions, batches = [], []
    for _ in range(2 * per_epoch + 3):
        positions.append((stream.epoch, stream.cursor))
        batches.append(stream.next())
    for consumed in [*range(0, len(batches), 3), per_epoch]:
        epoch, cursor = positions[consumed]
        resumed = BatchStream(corpus, max_tokens=300, seed=3, epoch=epoch, cursor=cursor)
        assert all(same(resumed.next(), batch) for batch in batches[consumed : consumed + 4])
    assert positions[per_epoch] == (0, per_epoch), "the end of an epoch is a position within it"
    resumed = BatchStream(corpus, max_tokens=300, seed=3, epoch=0, cursor=per_epoch)
    resumed.next()
    assert (resumed.epoch, resumed.cursor) == (1, 1)
