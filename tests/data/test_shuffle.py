"""Large corpora come in windows: every sentence once an epoch, and the same order for the same seed."""

from pathlib import Path

import numpy as np
import pytest

from data_helpers import write_lines
from mt.data import batching, token_store
from mt.data.batching import BatchStream
from mt.data.encode import encode_corpus
from mt.data.mixture import Share, training_shares
from mt.data.shuffle import ShuffledWindows
from mt.data.token_store import EncodedCorpus
from mt.data.tokenizer import TokenizerPair


@pytest.mark.parametrize("sentences", [1, 63, 64, 65, 640, 1000, 1023])
def test_every_sentence_is_in_one_window(sentences: int) -> None:
    windows = ShuffledWindows((Share(sentences),), seed=3, epoch=1, window=64, block=8)
    each = [windows.indices(n) for n in range(len(windows))]
    assert np.array_equal(np.sort(np.concatenate(each)), np.arange(sentences))
    assert all(0 < len(indices) <= 64 for indices in each)
    assert all(np.all(np.diff(indices) > 0) for indices in each)


def test_a_small_corpus_is_one_window_in_its_own_order() -> None:
    windows = ShuffledWindows((Share(1000),), seed=3, epoch=1)
    assert len(windows) == 1
    assert np.array_equal(windows.indices(0), np.arange(1000))


def test_seed_and_epoch_decide_what_comes_together() -> None:
    def first(seed: int, epoch: int) -> list[int]:
        return ShuffledWindows((Share(1000),), seed, epoch, window=64, block=8).indices(0).tolist()

    assert first(1, 0) == first(1, 0)
    assert first(1, 0) != first(1, 1)
    assert first(1, 0) != first(2, 0)


def test_a_window_comes_from_all_of_the_corpus() -> None:
    """Corpora that were joined are mixed: no window is of one of them."""
    windows = ShuffledWindows((Share(100_000),), seed=1, epoch=0, window=10_000, block=10)
    for n in range(len(windows)):
        assert 0.4 < (windows.indices(n) < 50_000).mean() < 0.6


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EncodedCorpus:
    """500 sentences, each with its own number of words, in windows of 128."""
    monkeypatch.setattr(batching, "ShuffledWindows", lambda *a: ShuffledWindows(*a, window=128, block=16))
    lines = [f"n{i} " + "x " * (i % 7) for i in range(500)]
    text = (write_lines(tmp_path / "a", lines), write_lines(tmp_path / "b", lines))
    encode_corpus(text, TokenizerPair.train(lines, lines, 300, shared=False), tmp_path / "encoded", "key", None)
    return EncodedCorpus.open(tmp_path / "encoded")


def batches(stream: BatchStream, number: int) -> list[list[list[int]]]:
    return [stream.next().tgt_out.tolist() for _ in range(number)]


def test_an_epoch_of_windows_has_every_sentence_once(corpus: EncodedCorpus) -> None:
    stream = BatchStream(corpus, 100, seed=1)
    rows = []
    while stream.epochs_done == 0:
        rows += [tuple(t for t in row if t) for row in stream.next().tgt_out.tolist()]
    assert (stream.epoch, stream.window) == (0, 3)
    ids = [(*corpus.gather("target", np.array([i]))[0][0].tolist(), 3) for i in range(500)]
    assert sorted(rows) == sorted(ids)
    stream.next()
    assert (stream.epoch, stream.window, stream.cursor) == (1, 0, 1)


@pytest.mark.parametrize("before", [1, 40, 77, 120, 300])
def test_a_stream_goes_on_in_the_middle_of_a_window(corpus: EncodedCorpus, before: int) -> None:
    stream = BatchStream(corpus, 100, seed=1)
    batches(stream, before)
    again = BatchStream(corpus, 100, 1, stream.epoch, stream.window, stream.cursor)
    assert batches(again, 60) == batches(stream, 60)


@pytest.mark.parametrize("step", [1, 300])  # sentences copied at a time: some or all
def test_sentences_are_copied_in_the_order_given(
    corpus: EncodedCorpus, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_store, "_RUNS_AT_ONCE", step)
    for indices in ([0], [499], [7, 8, 9, 3, 3, 498, 499, 0, 1, 1], list(range(500)), list(range(499, -1, -1))):
        rows = np.array(indices)
        copy = corpus.select(rows)
        assert len(copy) == len(rows)
        for side in ("source", "target"):
            assert sentences(copy, side, np.arange(len(rows))) == sentences(corpus, side, rows)


def sentences(corpus: EncodedCorpus, side: str, rows: np.ndarray) -> list[list[int]]:
    return [ids[:n].tolist() for ids, n in zip(*corpus.gather(side, rows), strict=True)]


def epoch_of(windows: ShuffledWindows) -> list[int]:
    return np.bincount(np.concatenate([windows.indices(n) for n in range(len(windows))]), minlength=30).tolist()


@pytest.mark.parametrize("window", [8, 1000])
def test_an_epoch_has_each_share_as_often_as_it_says(window: int) -> None:
    shares = (Share(10, 2.0), Share(8), Share(0, 5.0), Share(12, 0.5))
    each = [epoch_of(ShuffledWindows(shares, 1, epoch, window, block=1)) for epoch in range(40)]
    for counts in each:
        assert counts[:10] == [2] * 10
        assert counts[10:18] == [1] * 8
        assert sorted(counts[18:]) == [0] * 6 + [1] * 6
    assert len({tuple(counts) for counts in each}) > 30  # another half each time
    assert all(sum(counts[i] for counts in each) > 8 for i in range(18, 30))


def test_blocks_end_where_their_share_does() -> None:
    shares = (Share(10, 3.0), Share(13), Share(7, 1.5))
    windows = ShuffledWindows(shares, 1, 0, window=8, block=4)
    counts = epoch_of(windows)
    assert counts[:10] == [3] * 10
    assert counts[10:23] == [1] * 13
    assert sum(counts[23:]) - 7 in (3, 4)  # one of its two blocks came twice
    assert all(len(windows.indices(n)) > 0 for n in range(len(windows)))


def test_the_smallest_share_of_all_still_has_a_sentence() -> None:
    assert sum(epoch_of(ShuffledWindows((Share(20, 0.001),), 1, 0))) == 1


def test_temperature_evens_out_sizes() -> None:
    """Shares are proportional to n^(1/T); the largest source is read once."""
    sizes = (10_000, 100, 1)
    assert training_shares(sizes, [1, 1, 1], 1) == tuple(Share(n, 1.0) for n in sizes)
    read = [share.sentences * share.repeats for share in training_shares(sizes, [1, 1, 1], 5)]
    assert read[0] == 10_000
    assert [r / read[0] for r in read] == pytest.approx([(n / 10_000) ** 0.2 for n in sizes])
    assert [s.repeats for s in training_shares(sizes, [2, 1, 0.5], 1)] == [2, 1, 0.5]


def test_a_stream_of_shares_goes_on_where_it_was(corpus: EncodedCorpus) -> None:
    shares = (Share(100, 3.0), Share(400, 0.3))
    stream = BatchStream(corpus, 100, seed=1, shares=shares)
    batches(stream, 90)
    again = BatchStream(corpus, 100, 1, stream.epoch, stream.window, stream.cursor, shares=shares)
    assert batches(again, 60) == batches(stream, 60)
