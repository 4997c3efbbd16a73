"""Shuffled windows of large corpora: every sentence once an epoch, in an order that the seed decides."""

from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from data_helpers import encode_text, sentence_ids
from mt.data import batching, ragged
from mt.data.batching import BatchStream
from mt.data.mixture import Share, training_shares
from mt.data.shuffle import ShuffledWindows
from mt.data.token_store import EncodedCorpus
from mt.data.tokenizer import EOS_ID
from mt.data.tokenizer_kinds import TokenizerPair


def windows_of(windows: ShuffledWindows) -> list[np.ndarray]:
    return [windows.indices(n) for n in range(len(windows))]


@pytest.mark.parametrize("sentences", [1, 63, 64, 65, 640, 1000, 1023])
def test_every_sentence_is_in_one_window(sentences: int) -> None:
    windows = windows_of(ShuffledWindows((Share(sentences),), seed=3, epoch=1, window=64, block=8))
    assert np.array_equal(np.sort(np.concatenate(windows)), np.arange(sentences))
    assert all(0 < len(indices) <= 64 for indices in windows)
    assert all(np.all(np.diff(indices) > 0) for indices in windows)


def test_a_small_corpus_is_one_window_in_its_own_order() -> None:
    (indices,) = windows_of(ShuffledWindows((Share(1000),), seed=3, epoch=1))
    assert np.array_equal(indices, np.arange(1000))


def test_seed_and_epoch_decide_the_windows() -> None:
    def first(seed: int, epoch: int) -> list[int]:
        return ShuffledWindows((Share(1000),), seed, epoch, window=64, block=8).indices(0).tolist()

    assert first(1, 0) == first(1, 0)
    assert first(1, 0) not in (first(1, 1), first(2, 0))


def test_a_window_samples_the_whole_corpus() -> None:
    for indices in windows_of(ShuffledWindows((Share(100_000),), seed=1, epoch=0, window=10_000, block=10)):
        assert 0.4 < (indices < 50_000).mean() < 0.6


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EncodedCorpus:
    """500 distinct sentences, in windows of 128."""
    monkeypatch.setattr(batching, "ShuffledWindows", lambda *a: ShuffledWindows(*a, window=128, block=16))
    lines = [f"n{i} " + "x " * (i % 7) for i in range(500)]
    return encode_text(tmp_path, lines, lines, TokenizerPair.train(lines, lines, 300, shared=False))


def batches(stream: BatchStream, number: int) -> list[list[list[int]]]:
    return [stream.next().tgt_out.tolist() for _ in range(number)]


def test_an_epoch_of_windows_has_every_sentence_once(corpus: EncodedCorpus) -> None:
    stream = BatchStream(corpus, 100, seed=1)
    rows = []
    while stream.epochs_done == 0:
        rows += [[t for t in row if t] for row in stream.next().tgt_out.tolist()]
    assert (stream.epoch, stream.window) == (0, 3)
    assert sorted(rows) == sorted([*ids, EOS_ID] for ids in sentence_ids(corpus, "target"))
    stream.next()
    assert (stream.epoch, stream.window, stream.cursor) == (1, 0, 1)


@pytest.mark.parametrize("shares", [None, (Share(100, 3.0), Share(400, 0.3))])
@pytest.mark.parametrize("before", [1, 40, 77, 90, 120, 300])
def test_a_stream_resumes_within_a_window(corpus: EncodedCorpus, before: int, shares: tuple[Share, ...] | None) -> None:
    stream = BatchStream(corpus, 100, seed=1, shares=shares)
    batches(stream, before)
    resumed = BatchStream(corpus, 100, 1, stream.epoch, stream.window, stream.cursor, shares=shares)
    assert batches(resumed, 60) == batches(stream, 60)


@pytest.mark.parametrize("rows_at_once", [1, 300])
def test_selected_sentences_are_in_the_given_order(
    corpus: EncodedCorpus, rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ragged, "_ROWS_AT_ONCE", rows_at_once)
    for indices in ([0], [499], [7, 8, 9, 3, 3, 498, 499, 0, 1, 1], list(range(500)), list(range(499, -1, -1))):
        selected = corpus.select(np.array(indices))
        assert len(selected) == len(indices)
        for side in ("source", "target"):
            assert sentence_ids(selected, side) == sentence_ids(corpus, side, np.array(indices))


def repeats(windows: ShuffledWindows) -> list[int]:
    """Count how often each of 30 sentences is in an epoch."""
    return np.bincount(np.array(list(chain.from_iterable(windows_of(windows)))), minlength=30).tolist()


@pytest.mark.parametrize("window", [8, 1000])
def test_an_epoch_repeats_each_share(window: int) -> None:
    shares = (Share(10, 2.0), Share(8), Share(0, 5.0), Share(12, 0.5))
    epochs = [repeats(ShuffledWindows(shares, 1, epoch, window, block=1)) for epoch in range(40)]
    for counts in epochs:
        assert counts[:18] == [2] * 10 + [1] * 8
        assert sorted(counts[18:]) == [0] * 6 + [1] * 6
    assert len({tuple(counts) for counts in epochs}) > 30, "the half of a share is drawn again in each epoch"
    assert all(sum(counts[i] for counts in epochs) > 8 for i in range(18, 30))


def test_blocks_end_with_their_share() -> None:
    windows = ShuffledWindows((Share(10, 3.0), Share(13), Share(7, 1.5)), 1, 0, window=8, block=4)
    counts = repeats(windows)
    assert counts[:23] == [3] * 10 + [1] * 13
    assert sum(counts[23:]) - 7 in (3, 4)  # one of its two blocks came twice
    assert all(map(len, windows_of(windows)))


def test_the_number_of_windows_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training asks for it at each step, and each source is drawn for."""
    draws, random = [], ShuffledWindows._random
    monkeypatch.setattr(ShuffledWindows, "_random", lambda *a: draws.append(a) or random(*a))
    windows = ShuffledWindows(tuple(Share(100, 0.5) for _ in range(20)), 1, 0, window=64, block=8)
    assert {len(windows) for _ in range(50)} == {17}
    assert len(draws) == 20
    assert windows == ShuffledWindows(windows.shares, 1, 0, window=64, block=8)


@pytest.mark.parametrize("repeated", [0.1, 0.5, 1.5])
def test_a_share_smaller_than_a_block_is_read_as_often_as_it_should_be(repeated: float) -> None:
    shares = (Share(25), Share(5, repeated))
    epochs = [repeats(ShuffledWindows(shares, 1, epoch, window=8, block=8)) for epoch in range(400)]
    counts = [counts[25] for counts in epochs]
    assert set(counts) == {int(repeated), int(repeated) + 1}
    assert sum(counts) / 400 == pytest.approx(repeated, abs=0.08)


def test_the_smallest_share_has_at_least_one_sentence() -> None:
    assert sum(repeats(ShuffledWindows((Share(20, 0.001),), 1, 0))) == 1


def test_a_temperature_evens_out_sizes() -> None:
    """Shares are proportional to n^(1/T); the largest source is read once."""
    sizes = (10_000, 100, 1)
    assert training_shares(sizes, [1, 1, 1], 1) == tuple(Share(n, 1.0) for n in sizes)
    read = [share.sentences * share.repeats for share in training_shares(sizes, [1, 1, 1], 5)]
    assert read[0] == 10_000
    assert [r / read[0] for r in read] == pytest.approx([(n / 10_000) ** 0.2 for n in sizes])
    assert [share.repeats for share in training_shares(sizes, [2, 1, 0.5], 1)] == [2, 1, 0.5]
