"""Subword regularisation: random segmentations of the same text by the papers' rules, a function of seed and epoch."""

import io
import math
import random
import shutil
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sentencepiece import SentencePieceTrainer
from tokenizers import Tokenizer
from tokenizers.models import BPE

from command import mt
from data_helpers import encode_text, sentence_ids
from mt.bundle.pretrained import Pretrained
from mt.config import parse_config
from mt.data import subword_sampling
from mt.data.sentencepiece_tokenizer import SentencePieceTokenizer
from mt.data.subword_sampling import MAX_DRAWS, BpeDropout, SampledCorpus, UnigramLattice
from mt.data.token_store import EncodedCorpus
from mt.data.tokenizer import BYTES, SPACE, SPECIALS, BpeTokenizer, normalized
from mt.data.tokenizer_kinds import TokenizerPair
from mt.pipeline import training
from mt.storage.run_dir import RunDir
from resume_helpers import resumes, run_of, train, weights
from training_helpers import Parts, kill_training, prepare_run, project_copy

FRAGMENTS = [*"</s> <0x41> ▁ \ue000 \ue000b casa perché 12 ... ?! ☃ e\u0301 中文".split(" "), " "]


def lines(seed: int = 1, number: int = 300) -> list[str]:
    rng = random.Random(seed)
    syllables = "ca ra mè no ti lù sto gna per più che".split()
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(150)]
    return [
        " ".join(rng.choices(words, k=rng.randint(1, 9))) + rng.choice([".", "?!", " 12", "..."]) for _ in range(number)
    ]


ODD = ["", "▁", "a▁b ▁", "1990-1995, <0x41></s>", "☃ la casa☃casa", "\ue000b", "a  b", "...", "中文 testo", "e\u0301"]


@cache
def usual() -> BpeTokenizer:
    return BpeTokenizer.train([*lines(), "a▁b - ( ) «»"], 600)


def words_of(tokenizer: BpeTokenizer | SentencePieceTokenizer, text: str) -> list[list[int]]:
    """Return the token ids of each word of a text; a word begins with a space."""
    words: list[list[int]] = []
    for i, piece in zip(ids := tokenizer.encode(text), tokenizer.tokens(ids), strict=True):
        if piece.startswith(SPACE) or not words:
            words.append([])
        words[-1].append(i)
    return words


TEXT = st.one_of(
    st.text(), st.lists(st.sampled_from([*FRAGMENTS, "ca", "ra", "a"])).map("".join), st.sampled_from(lines(2, 50))
)


@cache
def sentencepiece_bpe() -> SentencePieceTokenizer:
    return SentencePieceTokenizer.train([*lines(), "a▁b - ( ) «»"], 500, (), "bpe")


BPE_KINDS = pytest.mark.parametrize("kind", [usual, sentencepiece_bpe])
BpeKind = Callable[[], BpeTokenizer | SentencePieceTokenizer]


@BPE_KINDS
@given(text=TEXT)
@example(text="")
@example(text="▁▁ca▁ra")
@example(text="12.5perché☃ca")
def test_without_dropout_the_encoding_is_unchanged(kind: BpeKind, text: str) -> None:
    merges, rng = BpeDropout(kind(), 0.0), random.Random(0)
    for word in words_of(kind(), text):
        assert merges.segment(word, rng) == word


@BPE_KINDS
@given(text=TEXT, p=st.floats(0.01, 0.99), seed=st.integers(0, 99))
@settings(max_examples=60)
def test_every_segmentation_is_of_the_same_text(kind: BpeKind, text: str, p: float, seed: int) -> None:
    merges, rng = BpeDropout(kind(), p), random.Random(seed)
    ids = [i for word in words_of(kind(), text) for i in merges.segment(word, rng)]
    assert kind().decode(ids) == normalized(text)
    pieces = kind().tokens(ids)
    assert "".join(pieces) == "".join(kind().tokens(kind().encode(text)))


def test_a_sentencepiece_model_leaves_out_the_share_of_merges() -> None:
    """With one merge that applies, its share is that of the words that it left alone."""
    merges, rng = BpeDropout(sentencepiece_bpe(), 0.3), random.Random(3)
    word = next([i] for i, piece in enumerate(sentencepiece_bpe().tokens(range(300))) if len(piece) == 2)
    parts = list(map(len, merges.draw(word, 10_000, rng)))
    assert {*parts} == {1, 2}
    assert parts.count(2) == pytest.approx(3000, abs=200)


def with_merges(*merges: tuple[str, str]) -> BpeTokenizer:
    pieces = [*SPECIALS, *BYTES, *"abc", *dict.fromkeys(left + right for left, right in merges)]
    model = BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=list(merges), byte_fallback=True)
    return BpeTokenizer(Tokenizer(model))


P, Q = 0.3, 0.7
OUTCOMES = [
    # Two merges, one after the other.
    ("abc", [("b", "c"), ("a", "bc")], {"a b c": P, "a bc": Q * P, "abc": Q * Q}),
    # Two candidates: the second only where the first is skipped.
    (
        "abc",
        [("a", "b"), ("b", "c"), ("ab", "c"), ("a", "bc")],
        {"a b c": P**2, "ab c": Q * P, "a bc": P * Q * P, "abc": Q * Q + P * Q * Q},
    ),
    # Each occurrence is skipped independently, and again a candidate after every merge.
    ("abab", [("a", "b")], {"a b a b": P**2, "ab a b": Q * P, "a b ab": P * Q * P, "ab ab": Q * Q + P * Q * Q}),
]


@pytest.mark.parametrize(("word", "merges", "shares"), OUTCOMES, ids=["chain", "choice", "occurrences"])
def test_merges_are_skipped_by_the_papers_rule(
    word: str, merges: list[tuple[str, str]], shares: dict[str, float]
) -> None:
    tokenizer, rng, draws = with_merges(*merges), random.Random(5), 20_000
    segmentations = BpeDropout(tokenizer, P).draw(tokenizer.encode(word), draws, rng)
    assert sum(shares.values()) == pytest.approx(1)
    found = Counter(" ".join(tokenizer.tokens(ids)) for ids in segmentations)
    assert set(found) == set(shares)
    for outcome, share in shares.items():
        assert abs(found[outcome] - draws * share) < 4 * (draws * share * (1 - share)) ** 0.5, outcome


def test_tags_stay_whole() -> None:
    """No merge builds them, even if the vocabulary has all their characters."""
    tokenizer = BpeTokenizer.train(["to it <2it> 2 < > i t"] * 20, 330, ["it"])
    tag, rng = tokenizer.tags["it"], random.Random(1)
    assert {*"<2it>"} <= {*tokenizer.pieces}
    for p in (0.1, 0.9):
        assert BpeDropout(tokenizer, p).segment([tag], rng) == [tag]


def test_the_configuration_sets_the_seed_and_the_length_limit(tiny: Path) -> None:
    found = []
    for name, seed, max_length in (("a", 1, 40), ("b", 1, 40), ("c", 2, 40), ("d", 1, 9)):
        changes = [f"seed={seed}", f"data.max_length={max_length}", "tokenizer.bpe_dropout=0.5", f"data.root={tiny}"]
        config, run = parse_config((tiny / "tiny.yaml").read_text(), "tiny.yaml", changes), RunDir(tiny / "runs" / name)
        run.root.mkdir(parents=True)
        tokenizers = prepare_run(config, run)
        dropout = training._training_corpus(config, run, tokenizers)
        assert isinstance(dropout, SampledCorpus)
        corpus = dropout.in_epoch(0)
        found.append([corpus.sides[side][0][: corpus.sides[side][1][-1]].tolist() for side in ("source", "target")])
        lengths = [np.diff(corpus.sides[side][1]) + special for side, special in (("source", 2), ("target", 1))]
        assert max(map(max, lengths)) <= max_length
    assert found[0] == found[1] != found[2]


MakeCorpus = Callable[..., SampledCorpus]
SOURCE, TARGET = [*lines(3), *ODD], [*ODD[::-1], *lines(4)]


@pytest.fixture
def make_corpus(tmp_path: Path) -> MakeCorpus:
    pair = TokenizerPair(usual(), usual())
    encoded = encode_text(tmp_path, SOURCE, TARGET, pair)

    def make(p: float = 0.2, seed: int = 1, max_length: int = 10_000) -> SampledCorpus:
        return SampledCorpus(encoded, pair, [BpeDropout(t, p) for t in pair], seed, max_length, tmp_path)

    return make


def both(corpus: EncodedCorpus) -> list[list[int]]:
    return sentence_ids(corpus, "source") + sentence_ids(corpus, "target")


@pytest.mark.parametrize("at_once", [100_000, 7])
def test_an_epoch_has_the_same_sentences_in_different_pieces(
    make_corpus: MakeCorpus, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(subword_sampling, "_SENTENCES_AT_ONCE", at_once)
    plain = [usual().encode_batch(SOURCE), usual().encode_batch(TARGET)]
    assert both(make_corpus(p=0.0).in_epoch(3)) == plain[0] + plain[1]
    epoch = make_corpus().in_epoch(3)
    for side, text, before in zip(("source", "target"), (SOURCE, TARGET), plain, strict=True):
        found = sentence_ids(epoch, side)
        assert usual().decode_batch(found) == [normalized(line) for line in text]
        assert sum(map(len, found)) > 1.02 * sum(map(len, before))
        assert epoch.sides[side][0].dtype == np.uint16
    assert epoch.lengths()[0].tolist() == [len(ids) + 2 for ids in sentence_ids(epoch, "source")]
    assert epoch.lengths()[1].tolist() == [len(ids) + 1 for ids in sentence_ids(epoch, "target")]


def test_an_epoch_depends_on_its_number_and_seed_only(make_corpus: MakeCorpus) -> None:
    corpus = make_corpus(seed=4)
    epochs = [both(corpus.in_epoch(n)) for n in (0, 1, 2)]
    random.random(), np.random.random(), torch.rand(1)
    assert [both(make_corpus(seed=4).in_epoch(n)) for n in (2, 0)] == [epochs[2], epochs[0]]
    others = [both(make_corpus(seed=5).in_epoch(n)) for n in (0, 1)]
    for first, second in pairwise([*epochs, *others, epochs[0]]):
        assert sum(a != b for a, b in zip(first, second, strict=True)) > len(first) / 4
    assert epochs[1] != others[0], "seed 4, epoch 1 is seed 5, epoch 0"


def test_the_sides_are_segmented_independently(tmp_path: Path) -> None:
    other = BpeTokenizer.train(lines(9), 400)
    found = []
    for name, target in (("same", usual()), ("other", other)):
        pair = TokenizerPair(usual(), target)
        (tmp_path / name).mkdir()
        encoded = encode_text(tmp_path / name, SOURCE, SOURCE, pair)
        found.append(SampledCorpus(encoded, pair, [BpeDropout(t, 0.3) for t in pair], 1, 10_000, tmp_path).in_epoch(0))
    source, target = (sentence_ids(found[0], side) for side in ("source", "target"))
    assert sum(a != b for a, b in zip(source, target, strict=True)) > len(SOURCE) / 2
    assert sentence_ids(found[1], "source") == source
    assert other.decode_batch(sentence_ids(found[1], "target")) == [normalized(line) for line in SOURCE]


def test_more_dropout_gives_more_tokens(make_corpus: MakeCorpus) -> None:
    totals = [sum(map(len, both(make_corpus(p=p).in_epoch(0)))) for p in (0.0, 0.1, 0.3, 0.6, 0.95)]
    assert all(less < 0.97 * more for less, more in pairwise(totals))
    # With p near 1 every occurrence is split into its characters.
    merges, rng = BpeDropout(usual(), 0.9999), random.Random(1)
    words = [word for line in SOURCE + TARGET for word in words_of(usual(), line)]
    characters = sum(len(merges.segment(word, rng)) for word in words)
    assert sum(map(len, both(make_corpus(p=0.9999).in_epoch(0)))) > 0.99 * characters


@pytest.mark.parametrize("max_length", [12, 30])
def test_overlong_sentences_keep_the_usual_pieces(make_corpus: MakeCorpus, max_length: int) -> None:
    free, limited = (make_corpus(p=0.4, max_length=length).in_epoch(0) for length in (10_000, max_length))
    for side, text, specials in (("source", SOURCE, 2), ("target", TARGET, 1)):
        kept, varied = 0, 0
        for plain, wild, now in zip(
            usual().encode_batch(text), sentence_ids(free, side), sentence_ids(limited, side), strict=True
        ):
            too_long = len(wild) + specials > max_length
            assert now == (plain if too_long else wild)
            kept += too_long and wild != plain
            varied += now != plain
            assert len(now) + specials <= max(max_length, len(plain) + specials)
        assert kept > 10
        assert varied > 10


def test_a_frequent_word_has_several_segmentations_in_an_epoch(tmp_path: Path) -> None:
    pair = TokenizerPair(usual(), usual())
    encoded = encode_text(tmp_path, ["perché"] * 500, ["perché"] * 500, pair)
    corpus = SampledCorpus(encoded, pair, [BpeDropout(t, 0.5) for t in pair], 1, 100, tmp_path)
    found = Counter(tuple(ids) for ids in sentence_ids(corpus.in_epoch(0), "source"))
    assert 3 <= len(found) <= MAX_DRAWS
    assert set(found) != {tuple(ids) for ids in sentence_ids(corpus.in_epoch(1), "source")}
    assert max(found.values()) < 450


def test_beyond_many_types_long_words_are_sampled_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without spaces each sentence would be a type of its own, and all would be held in memory."""
    rng, syllables = random.Random(1), "ca ra mè no ti lù sto gna per più che".split()
    text = ["".join(rng.choices(syllables, k=30)) for _ in range(300)]
    pair = TokenizerPair(usual(), usual())
    encoded = encode_text(tmp_path, text, text, pair)
    monkeypatch.setattr(subword_sampling, "_SENTENCES_AT_ONCE", 7)
    types = []
    for most in (1000, 100):
        monkeypatch.setattr(subword_sampling, "_MAX_TYPES", most)
        corpus = SampledCorpus(encoded, pair, [BpeDropout(t, 0.3) for t in pair], 1, 10_000, tmp_path)
        words = corpus._words[0]
        types.append(len(words.types))
        assert isinstance(words.words, np.memmap)
        assert words.counts.tolist() == np.bincount(words.words).tolist()
        found = sentence_ids(corpus.in_epoch(0), "source")
        assert usual().decode_batch(found) == text
        assert sum(map(len, found)) > sum(map(len, usual().encode_batch(text)))
    assert types[0] == 300
    assert 100 < types[1] < 100 + usual().vocab_size


def test_the_corpus_leaves_no_files(make_corpus: MakeCorpus, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    corpus = make_corpus()
    epochs = [corpus.in_epoch(n) for n in range(3)]
    assert sorted(tmp_path.iterdir()) == before
    # An epoch's tokens remain valid when the next epoch is drawn.
    assert [both(epoch) for epoch in epochs] == [both(make_corpus().in_epoch(n)) for n in range(3)]


def test_dropout_changes_training_and_not_validation(tiny: Path) -> None:
    found = {}
    for p in (0.0, 0.5):
        changes = [f"data.root={tiny}", f"tokenizer.bpe_dropout={p}", f"name=p{p}"]
        config = parse_config((tiny / "tiny.yaml").read_text(), "tiny.yaml", changes)
        run = RunDir(tiny / "runs" / config.name)
        tokenizers = prepare_run(config, run)
        trainer = training.make_trainer(config, run, tokenizers, torch.device("cpu"), Pretrained(config))
        epochs = [both(trainer.batches.corpus.in_epoch(n)) for n in (0, 1)]
        found[p] = (trainer._validate(trainer.model), tokenizers.files(), epochs)
        assert (epochs[0] == epochs[1]) == (p == 0)
    assert found[0.0][:2] == found[0.5][:2]
    assert found[0.0][2][0] not in found[0.5][2]


def test_a_resume_in_a_later_epoch_is_exact(tiny: Path) -> None:
    parts = Parts(tiny)
    pair = TokenizerPair.train(
        *((tiny / name).read_text().splitlines() for name in ("train.en", "train.xx")), 320, True
    )
    plain_corpus, ends = parts.corpus, []
    for stops in ((), (14, 25)):
        shutil.rmtree(parts.run.root)
        torch.manual_seed(2)
        with torch.no_grad():
            for parameter in parts.model.parameters():
                parameter.normal_(std=0.1)
        for end in (*stops, 30):
            parts.corpus = SampledCorpus(
                plain_corpus, pair, [BpeDropout(t, 0.3) for t in pair], parts.config.seed, 40, tiny
            )
            trainer = parts.trainer()
            while trainer.state.step < end:
                trainer.step()
            trainer.save()
        assert trainer.state.epoch >= 1
        ends.append([p.detach().clone() for p in parts.model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*ends, strict=True))


@pytest.mark.parametrize(
    "sampling",
    [
        ("tokenizer.bpe_dropout=0.3", "training.r_drop=1.0", "model.word_dropout=0.1"),
        pytest.param(("tokenizer.type=unigram", "tokenizer.sampling_alpha=0.2"), marks=pytest.mark.slow),
    ],
    ids=lambda sampling: sampling[0],
)
def test_a_killed_and_resumed_run_ends_with_the_same_weights(tiny: Path, sampling: tuple[str, ...]) -> None:
    lengths = ("training.max_steps=40", "training.save_every=5", "training.validate_every=20", "training.log_every=5")
    changes = (*lengths, *sampling, "data.test=null")
    whole = project_copy(tiny, "whole")
    train(whole, *changes)
    kill_training(tiny, 25, *changes)
    train(tiny, *changes)
    assert resumes(tiny) == 1, "the kill missed the training"
    assert weights(tiny) == weights(whole)
    ends = [run_of(folder).checkpoint(40) / "model.safetensors" for folder in (tiny, whole)]
    assert ends[0].read_bytes() == ends[1].read_bytes()


# Sampling from a unigram model.


@cache
def unigram() -> SentencePieceTokenizer:
    return SentencePieceTokenizer.train([*lines(), "a▁b - ( ) «»"], 400)


def all_segmentations(word: str, log_probs: dict[str, float]) -> dict[tuple[str, ...], float]:
    """Return every segmentation of a word with its log-probability."""
    if not word:
        return {(): 0.0}
    found = {}
    for end in range(1, len(word) + 1):
        if word[:end] in log_probs:
            rest = all_segmentations(word[end:], log_probs)
            found |= {(word[:end], *pieces): log_probs[word[:end]] + value for pieces, value in rest.items()}
    return found


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_segmentations_are_drawn_with_their_probability_to_the_power_alpha(alpha: float) -> None:
    word, draws = "▁cheperno", 20_000
    ways = all_segmentations(word, unigram().log_probs)
    weights = {pieces: math.exp(alpha * value) for pieces, value in ways.items()}
    lattice = UnigramLattice(unigram(), alpha)
    ids = unigram().encode("cheperno")
    found = Counter(tuple(unigram().tokens(drawn)) for drawn in lattice.draw(ids, draws, random.Random(1)))
    assert len(ways) >= 10
    assert set(found) <= set(ways)
    for pieces, weight in weights.items():
        share = weight / sum(weights.values())
        assert abs(found[pieces] - draws * share) < 5 * (draws * share * (1 - share)) ** 0.5 + 1, pieces


@given(TEXT, st.floats(0, 9), st.integers(0, 99))
@example("☃casa 中文▁a", 0.1, 1)
@settings(max_examples=60)
def test_every_sampled_segmentation_is_of_the_same_text(text: str, alpha: float, seed: int) -> None:
    rng, lattice = random.Random(seed), UnigramLattice(unigram(), alpha)
    own = unigram().encode(text)
    [ids] = lattice.draw(own, 1, rng)
    assert unigram().decode(ids) == normalized(text)
    assert "".join(unigram().tokens(ids)) == "".join(unigram().tokens(own))
    in_bytes = [i for i in own if i in unigram().byte_ids]
    assert [i for i in ids if i in unigram().byte_ids] == in_bytes, "bytes stay as they are"


def test_a_large_alpha_draws_the_likeliest_segmentation() -> None:
    lattice = UnigramLattice(unigram(), 100.0)
    for text in lines(5, 40):
        [drawn] = lattice.draw(unigram().encode(text), 1, random.Random(1))
        scores = [sum(unigram().log_probs[p] for p in unigram().tokens(ids)) for ids in (drawn, unigram().encode(text))]
        assert scores[0] == pytest.approx(scores[1], abs=1e-3)


@pytest.mark.parametrize(("kind", "segmenter"), [("unigram", UnigramLattice), ("bpe", BpeDropout)])
def test_symbols_stay_whole(kind: str, segmenter: Callable[..., BpeDropout | UnigramLattice]) -> None:
    content = io.BytesIO()
    names = {"model_type": kind, "user_defined_symbols": "perù,ca"}
    SentencePieceTrainer.train(sentence_iterator=iter(lines()), model_writer=content, vocab_size=120, **names)
    tokenizer = SentencePieceTokenizer([content.getvalue()])
    ids = tokenizer.encode("carameperùcara")
    for drawn in segmenter(tokenizer, 0.0).draw(ids, 1, random.Random(1)):
        assert kind == "unigram" or drawn == ids
    for drawn in segmenter(tokenizer, 0.5).draw(ids, 50, random.Random(1)):
        assert tokenizer.tokens(drawn).count("ca") == 2
        assert tokenizer.tokens(drawn).count("perù") == 1
        assert tokenizer.decode(drawn) == tokenizer.decode(ids)


def test_an_epoch_of_a_unigram_model_depends_on_its_number_and_seed_only(tmp_path: Path) -> None:
    pair = TokenizerPair(unigram(), unigram())
    encoded = encode_text(tmp_path, SOURCE, TARGET, pair)

    def epoch(seed: int, number: int) -> list[list[int]]:
        corpus = SampledCorpus(encoded, pair, [UnigramLattice(t, 0.2) for t in pair], seed, 10_000, tmp_path)
        corpus.in_epoch(7)
        return both(corpus.in_epoch(number))

    first = epoch(1, 0)
    assert first == epoch(1, 0)
    for other in (epoch(1, 1), epoch(2, 0)):
        assert sum(a != b for a, b in zip(first, other, strict=True)) > len(first) / 4
    assert unigram().decode_batch(first) == [normalized(line) for line in SOURCE + TARGET]


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("unigram", {"bpe_dropout": 0.1}, "bpe_dropout: the tokenizer is a unigram model"),
        ("bpe", {"sampling_alpha": 0.1}, "sampling_alpha: the tokenizer is not a unigram model"),
    ],
)
def test_a_given_model_of_another_kind_is_refused_before_any_text_is_read(
    tiny: Path, kind: str, changes: dict[str, float], message: str
) -> None:
    (tiny / "spm.model").write_bytes(SentencePieceTokenizer.train(lines(), 330, (), kind).models[0])
    sets = [f"tokenizer.{key}={value}" for key, value in {"file": "spm.model", **changes}.items()]
    done = mt("train", "--config", "tiny.yaml", *(w for c in sets for w in ("--set", c)), cwd=tiny, code=2)
    assert message in done.stderr
    assert not (tiny / "runs" / "tiny" / "data").exists()
