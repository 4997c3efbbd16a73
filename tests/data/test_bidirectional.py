"""Bidirectional training: half of the pairs are reversed in the first epochs, decided by seed and epoch alone."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from command import mt
from data_helpers import encode_text, sentence_ids, write_lines
from mt.bundle.pretrained import Pretrained
from mt.config import parse_config
from mt.data import batching
from mt.data.batching import BatchStream
from mt.data.bidirectional import BidirectionalCorpus, reversed_pairs
from mt.data.mixture import Share
from mt.data.shuffle import ShuffledWindows
from mt.data.subword_sampling import BpeDropout, SampledCorpus
from mt.data.token_store import EncodedCorpus
from mt.data.tokenizer import EOS_ID, SOS_ID, BpeTokenizer
from mt.data.tokenizer_kinds import TokenizerPair
from mt.errors import InputError
from mt.pipeline.training import _training_corpus
from mt.storage.run_dir import RunDir
from resume_helpers import LONG, events, overrides, resumes, train, weights
from training_helpers import Parts, kill_training, prepare_run, project_copy

NUMBER = 400
SOURCE = [f"der Hund {i} " + "und " * (i % 5) for i in range(NUMBER)]
TARGET = [f"a dog {i} " + "or not " * (i % 7) for i in range(NUMBER)]
Pair = tuple[tuple[int, ...], tuple[int, ...]]


@pytest.fixture(scope="module")
def tokenizers() -> TokenizerPair:
    return TokenizerPair.train(SOURCE, TARGET, 320, shared=True)


@pytest.fixture
def corpus(tmp_path: Path, tokenizers: TokenizerPair) -> EncodedCorpus:
    return encode_text(tmp_path, SOURCE, TARGET, tokenizers)


def pairs(sentences: batching.Sentences, indices: np.ndarray | None = None) -> list[Pair]:
    """Return the ids of both sides of each sentence."""
    chosen = sentences.select(np.arange(len(sentences)) if indices is None else indices)
    sides = [list(map(tuple, sentence_ids(chosen, side))) for side in ("source", "target")]
    for side, specials, lengths in zip(sides, (2, 1), chosen.lengths(), strict=True):
        assert lengths.tolist() == [len(ids) + specials for ids in side]
    return list(zip(*sides, strict=True))


def are_reversed(plain: list[Pair], now: list[Pair]) -> list[bool]:
    """Return which pairs are reversed; all others must be unchanged."""
    assert all(b in (a, a[::-1]) for a, b in zip(plain, now, strict=True))
    return [a != b for a, b in zip(plain, now, strict=True)]


def test_other_halves_are_reversed_in_each_epoch_and_none_later(corpus: EncodedCorpus) -> None:
    plain, both = pairs(corpus), BidirectionalCorpus(corpus, epochs=3, seed=1, max_length=100)
    found = [are_reversed(plain, pairs(both.in_epoch(epoch))) for epoch in range(3)]
    for first, second in ((0, 1), (1, 2), (0, 2)):
        assert 0.4 < np.mean(found[first]) < 0.6
        assert 0.4 < np.mean(np.array(found[first]) != found[second]) < 0.6
        assert 0.4 < np.mean([a != b for a, b in zip(found[first][:-1], found[first][1:], strict=True)]) < 0.6
    assert both.in_epoch(3) is corpus
    again = BidirectionalCorpus(corpus, epochs=3, seed=1, max_length=100)
    assert [are_reversed(plain, pairs(again.in_epoch(epoch))) for epoch in (2, 0)] == [found[2], found[0]]
    other = BidirectionalCorpus(corpus, epochs=3, seed=2, max_length=100)
    assert are_reversed(plain, pairs(other.in_epoch(0))) not in found


def test_selected_pairs_are_those_of_the_whole_corpus(corpus: EncodedCorpus) -> None:
    whole = BidirectionalCorpus(corpus, 1, seed=1, max_length=100).in_epoch(0)
    part = np.array([5, 6, 7, 300, 2, 2, 399])
    selected = whole.select(part)
    assert len(selected) == len(part)
    assert pairs(selected) == pairs(whole, part)
    assert pairs(selected.select(np.array([3, 1]))) == pairs(whole, part[[3, 1]])


def test_each_pair_is_in_one_batch_in_large_corpora_too(corpus: EncodedCorpus, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = sorted(pairs(BidirectionalCorpus(corpus, 1, seed=1, max_length=100).in_epoch(0)))
    found = []
    for windows in (ShuffledWindows, lambda *a: ShuffledWindows(*a, window=128, block=16)):
        monkeypatch.setattr(batching, "ShuffledWindows", windows)
        stream = BatchStream(
            BidirectionalCorpus(corpus, 1, seed=1, max_length=100), 300, seed=1, shares=(Share(NUMBER),)
        )
        epoch: list[Pair] = []
        while not stream.epochs_done:
            batch = stream.next()
            assert max(batch.src_tokens.shape[1], batch.tgt_out.shape[1]) * len(batch.src_tokens) <= 300
            for source, target in zip(batch.src_tokens.tolist(), batch.tgt_out.tolist(), strict=True):
                assert source[0] == SOS_ID
                epoch.append((tuple(source[1 : source.index(EOS_ID)]), tuple(target[: target.index(EOS_ID)])))
        found.append(sorted(epoch))
    assert found == [expected, expected]


def test_a_target_too_long_for_a_source_is_never_reversed(corpus: EncodedCorpus) -> None:
    """A source has two special tokens, a target one."""
    plain = pairs(corpus)
    limit = sorted(len(target) for _, target in plain)[NUMBER // 2]
    now = pairs(BidirectionalCorpus(corpus, 1, seed=1, max_length=limit + 2).in_epoch(0))
    by_length = [(len(target), flag) for flag, (_, target) in zip(are_reversed(plain, now), plain, strict=True)]
    too_long = [flag for length, flag in by_length if length > limit]
    assert len(too_long) > NUMBER / 4
    assert not any(too_long)
    assert any(flag for length, flag in by_length if length == limit)


def test_a_source_may_have_as_many_specials_as_a_target(corpus: EncodedCorpus) -> None:
    plain = pairs(corpus)
    limit = sorted(len(target) for _, target in plain)[NUMBER // 2]
    both = BidirectionalCorpus(replace(corpus, source_format="text </s>"), 1, seed=1, max_length=limit + 1).in_epoch(0)
    indices = np.arange(NUMBER)
    for side, lengths in zip(("source", "target"), both.select(indices).lengths(), strict=True):
        assert lengths.tolist() == [len(ids) + 1 for ids in sentence_ids(both.select(indices), side)]
    turned = [len(plain[i][1]) for i in indices[reversed_pairs(both, indices)]]
    assert max(turned) == limit


def test_the_same_pairs_are_reversed_with_bpe_dropout(
    corpus: EncodedCorpus, tokenizers: TokenizerPair, tmp_path: Path
) -> None:
    dropout = SampledCorpus(corpus, tokenizers, [BpeDropout(t, 0.3) for t in tokenizers], 1, 10_000, tmp_path)
    found = are_reversed(pairs(dropout.in_epoch(0)), pairs(BidirectionalCorpus(dropout, 1, 1, 10_000).in_epoch(0)))
    assert found == are_reversed(pairs(corpus), pairs(BidirectionalCorpus(corpus, 1, 1, 10_000).in_epoch(0)))


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_tagged_back_translations_are_never_reversed(tiny: Path, dropout: float) -> None:
    lines = [(tiny / name).read_text().splitlines() for name in ("train.en", "train.xx")]
    write_lines(tiny / "bt.en", [f"<BT> {line}" for line in lines[0]])
    train = "[{source: train.en, target: train.xx}, {source: bt.en, target: train.xx, synthetic: true}]"
    changes = (f"data.root={tiny}", f"data.train={train}", f"tokenizer.bpe_dropout={dropout}")
    config = parse_config((tiny / "tiny.yaml").read_text(), "x.yaml", [*changes, "training.bidirectional_epochs=1"])
    run = RunDir(tiny / "runs" / "tiny")
    run.root.mkdir(parents=True)
    tokenizers = prepare_run(config, run)
    epoch = _training_corpus(config, run, tokenizers).in_epoch(0)
    found = reversed_pairs(epoch, np.arange(len(epoch)))
    chosen = epoch.select(np.arange(len(epoch)))
    source, target = (tokenizers.source.decode_batch(sentence_ids(chosen, side)) for side in ("source", "target"))
    assert not any("<BT>" in line for line in target)
    tagged = np.array([line.startswith("<BT> ") for line in source])
    assert tagged.sum() > 200
    assert np.mean(found[~tagged]) > 0.4


@pytest.mark.slow
def test_the_model_also_learns_the_reverse_direction(tiny: Path) -> None:
    losses = {}
    for epochs in (0, 1000):
        parts = Parts(
            project_copy(tiny, str(epochs)), "training.max_steps=250", "training.validate_every=1000", "model.dropout=0"
        )
        swapped = EncodedCorpus({"source": parts.corpus.sides["target"], "target": parts.corpus.sides["source"]})
        if epochs:
            parts.corpus = BidirectionalCorpus(parts.corpus, epochs, seed=1, max_length=parts.config.data.max_length)
        trainer = parts.trainer()
        trainer.run()
        sums = trainer.train_step.accumulate_gradients([BatchStream(swapped, 2000, seed=1).next()], 0)
        losses[epochs] = float(sums.sums[0]) / sums.n_tokens
    assert losses[1000] < 0.9 * losses[0]


BIDIRECTIONAL = ("training.bidirectional_epochs=8", *LONG)


@pytest.mark.slow
def test_a_run_killed_in_either_phase_ends_with_the_same_weights(tiny: Path) -> None:
    expected, plain = project_copy(tiny, "uninterrupted"), project_copy(tiny, "plain")
    train(expected, *BIDIRECTIONAL)
    train(plain, *BIDIRECTIONAL[1:])
    assert weights(plain) != weights(expected)
    for step in (25, 150):
        kill_training(tiny, step, *BIDIRECTIONAL)
    train(tiny, *BIDIRECTIONAL)
    assert resumes(tiny) == 2
    resumed = [event["step"] for event in events(tiny) if event["event"] == "resume"]
    epochs = {event["step"]: event["epoch"] for event in events(tiny) if event["event"] == "train"}
    assert [epochs[step] < 8 for step in resumed] == [True, False], epochs
    assert weights(tiny) == weights(expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("tokenizer.shared=false", "so both languages need one vocabulary (tokenizer.shared: true)"),
        ("training.distill_from=[given]", "set bidirectional_epochs: 0, or distill_from: []"),
    ],
)
def test_incompatible_settings_are_refused(tiny: Path, change: str, message: str) -> None:
    words = ("--set", "training.bidirectional_epochs=2", "--set", change)
    assert message in mt("train", "--config", "tiny.yaml", *words, cwd=tiny, code=2).stderr


def test_a_tokenizer_with_a_tag_for_the_target_is_refused_at_once(tiny: Path) -> None:
    tagged = BpeTokenizer.train([*SOURCE, *TARGET], 320, ("xx",))
    (tiny / "tagged.json").write_text(tagged.to_json())
    words = ["training.bidirectional_epochs=2", "tokenizer.file=tagged.json"]
    done = mt("train", "--config", "tiny.yaml", "--dry-run", *overrides(words), cwd=tiny, code=2)
    assert "tokenizer.file: it has a tag for xx, which reversed pairs would teach as text" in done.stderr
    config = parse_config((tiny / "tiny.yaml").read_text(), "x.yaml", [words[0], f"tokenizer.file={tiny}/tagged.json"])
    with pytest.raises(InputError, match="has a tag for xx"):
        Pretrained(config).check()
    model = config.model.model_copy(update={"target_tag": "none"})
    Pretrained(config.model_copy(update={"model": model})).check()


def test_several_target_languages_are_refused(two_languages: Path) -> None:
    done = mt("train", "--config", "two.yaml", "--set", "training.bidirectional_epochs=2", cwd=two_languages, code=2)
    assert "is for one target language" in done.stderr
