"""Large corpora come in windows: every sentence once an epoch, and the same order for the same seed."""

from pathlib import Path

import numpy as np
import pytest

from data_helpers import write_lines
from mt.data import batching
from mt.data.batching import BatchStream
from mt.data.encoded import EncodedCorpus
from mt.data.encoding import encode_corpus
from mt.data.tokenizer import TokenizerPair
from mt.data.windows import Windows


@pytest.mark.parametrize("sentences", [1, 63, 64, 65, 640, 1000, 1023])
def test_every_sentence_is_in_one_window(sentences: int) -> None:
    windows = Windows(sentences, seed=3, epoch=1, window=64, block=8)
    each = [windows.indices(n) for n in range(len(windows))]
    assert np.array_equal(np.sort(np.concatenate(each)), np.arange(sentences))
    assert all(0 < len(indices) <= 64 for indices in each)
    assert all(np.all(np.diff(indices) > 0) for indices in each)


def test_a_small_corpus_is_one_window_in_its_own_order() -> None:
    windows = Windows(1000, seed=3, epoch=1)
    assert len(windows) == 1
    assert np.array_equal(windows.indices(0), np.arange(1000))


def test_seed_and_epoch_decide_what_comes_together() -> None:
    def first(seed: int, epoch: int) -> list[int]:
        return Windows(1000, seed, epoch, window=64, block=8).indices(0).tolist()

    assert first(1, 0) == first(1, 0)
    assert first(1, 0) != first(1, 1)
    assert first(1, 0) != first(2, 0)


def test_a_window_comes_from_all_of_the_corpus() -> None:
    """Corpora that were joined are mixed: no window is of one of them."""
    windows = Windows(100_000, seed=1, epoch=0, window=10_000, block=10)
    for n in range(len(windows)):
        assert 0.4 < (windows.indices(n) < 50_000).mean() < 0.6


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EncodedCorpus:
    """500 sentences, each with its own number of words, in windows of 128."""
    monkeypatch.setattr(batching, "Windows", lambda *a: Windows(*a, window=128, block=16))
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


def test_memory_of_a_read_corpus_can_be_given_back(corpus: EncodedCorpus) -> None:
    before = corpus.gather("target", np.arange(20))[0].tolist()
    corpus.release()
    assert corpus.gather("target", np.arange(20))[0].tolist() == before
