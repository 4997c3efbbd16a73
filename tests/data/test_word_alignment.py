"""Word alignment: what the models learn, how both directions are joined, and the pieces that words consist of."""

import random
import tracemalloc
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pytest

from command import mt
from data_helpers import encode_text, lines_in, write_lines
from mt.data import guided_alignment
from mt.data.batching import BatchStream, assemble
from mt.data.guided_alignment import Alignments, PieceWords, write_alignments
from mt.data.ragged import Ragged
from mt.data.subword_sampling import BpeDropout, SampledCorpus
from mt.data.token_store import EncodedCorpus
from mt.data.tokenizer_kinds import TokenizerPair, train_tokenizer
from mt.data.word_alignment import Links, align_words, grow_diag_final_and
from mt.extras.doctor import align_files
from mt.text.words import WORD

VOCABULARY = [f"{a}{b}" for a in "bcdfg" for b in "aeiou"]


def permuted_text(size: int = 400) -> tuple[list[str], list[str], list[set[tuple[int, int]]]]:
    """Sentences whose translation is in capitals, with some neighbours swapped and a particle that has no source."""
    rng = random.Random(3)
    sources, targets, links = [], [], []
    for _ in range(size):
        words = rng.sample(VOCABULARY, rng.randint(3, 7))
        order = list(range(len(words)))
        swap = rng.randrange(len(words) - 1)
        order[swap], order[swap + 1] = order[swap + 1], order[swap]
        particle = rng.randrange(len(words))
        target = [words[i].upper() for i in order]
        places = [place + (place >= particle) for place in range(len(words))]
        target.insert(particle, "PU")
        sources.append(" ".join(words))
        targets.append(" ".join(target))
        links.append({(i, place) for i, place in zip(order, places, strict=True)})
    return sources, targets, links


def as_words(lines: list[str]) -> Ragged:
    vocab: dict[str, int] = {}
    ids = [[vocab.setdefault(word, len(vocab)) for word in line.split()] for line in lines]
    return Ragged(np.array(list(chain.from_iterable(ids))), np.cumsum([0, *map(len, ids)]))


def test_words_are_aligned_to_their_translations() -> None:
    sources, targets, links = permuted_text()
    found = list(align_words(as_words(sources), as_words(targets)))
    wrong = sum(len(set(pair) ^ truth) for pair, truth in zip(found, links, strict=True))
    assert wrong < 0.03 * sum(map(len, links))


def test_empty_and_single_sentences_are_aligned() -> None:
    texts = as_words(["a b", "", "c", "a b"]), as_words(["x y", "z", "", "x y"])
    assert list(align_words(*texts)) == [[(0, 0), (1, 1)], [], [], [(0, 0), (1, 1)]]
    nothing = Ragged(np.zeros(0, np.int64), np.zeros(1, np.int64))
    assert list(align_words(nothing, nothing)) == []


def test_a_pair_with_a_very_long_sentence_has_no_links(caplog: pytest.LogCaptureFixture) -> None:
    long = "a " * 1001
    assert list(align_words(as_words([long, "a b", "a"]), as_words(["x", "x y", long]))) == [[], [(0, 0), (1, 1)], []]
    assert "2 of 3 pairs have more than 1,000 words on one side and get no links; the first is pair 1" in caplog.text
    assert list(align_words(as_words([long]), as_words([long]))) == [[]]


@pytest.mark.parametrize(
    ("forward", "backward", "expected"),
    [
        ({(0, 0), (1, 1)}, {(0, 0), (1, 1)}, [(0, 0), (1, 1)]),
        ({(0, 0), (1, 1)}, {(0, 0), (0, 1)}, [(0, 0), (0, 1), (1, 1)]),  # neighbours grow
        ({(0, 0), (3, 3)}, {(0, 0), (2, 4)}, [(0, 0), (2, 4), (3, 3)]),  # words without a link are joined at the end
        ({(0, 0), (0, 3)}, {(0, 0)}, [(0, 0)]),  # one of both words has a link
        (set(), {(1, 2)}, [(1, 2)]),
        ({(0, 0), (1, 0), (2, 0)}, {(0, 0)}, [(0, 0), (1, 0), (2, 0)]),
    ],
)
def test_both_directions_are_joined_as_in_moses(forward: set, backward: set, expected: list) -> None:
    assert grow_diag_final_and(forward, backward) == expected


TEXTS = ["The dog-house (old) costs 1,250 euros!", "日本語 and 한국어: 42%", "a  b", "don't stop", "naïve café, x"]


@pytest.mark.parametrize("kind", ["bpe", "sentencepiece_unigram"])
@pytest.mark.parametrize("size", [460, 520])
def test_the_words_of_pieces_are_those_of_the_text(kind: str, size: int) -> None:
    tokenizer = train_tokenizer(TEXTS * 20, size, ("de",), kind)
    words, tag = PieceWords(tokenizer), tokenizer.tags["de"]
    for text in TEXTS:
        ids = np.array([[2, tag, *tokenizer.encode(text), 3, 0, 0]])
        [numbers], [n_words] = words.numbers(ids)
        assert (numbers[[0, 1, -3, -2, -1]] == -1).all()
        assert numbers.max() + 1 == n_words == len(WORD.findall(text))
        assert (np.diff(numbers[2:-3]) >= 0).all()
    keys, sizes = words.keys(np.array([tokenizer.encode("x dog x dogs")]))
    assert sizes.tolist() == [4]
    assert len(set(keys.tolist())) == 3


@pytest.mark.parametrize("kind", ["bpe", "sentencepiece_bpe"])
def test_every_segmentation_has_the_same_words(kind: str) -> None:
    lines = [f'"{word} {word}{end}' for word in ("the dog", "a cat", "it sees") for end in ('."', "...", "?!", ".")]
    tokenizer = train_tokenizer(lines * 9, 330, (), kind)
    segmenter, words, rng = BpeDropout(tokenizer, 0.5), PieceWords(tokenizer), random.Random(1)
    assert "..." in tokenizer.tokens(tokenizer.encode(lines[1]))
    for line in lines:
        whole = tokenizer.encode(line)
        cuts = [i for i, piece in enumerate(tokenizer.tokens(whole)) if piece.startswith("▁")]
        for _ in range(5):
            drawn = [p for a, b in pairwise([*cuts, len(whole)]) for d in segmenter.draw(whole[a:b], 1, rng) for p in d]
            for ids in (whole, drawn):
                assert words.keys(np.array([ids]))[1] == words.numbers(np.array([ids]))[1] == len(WORD.findall(line))


def written(folder: Path, sources: list[str], targets: list[str]) -> tuple[TokenizerPair, EncodedCorpus, Alignments]:
    """Encode and align a text."""
    pair = TokenizerPair.train(sources, targets, 300, shared=False)
    corpus = encode_text(folder, sources, targets, pair)
    write_alignments(corpus, pair, folder / "alignments", "key")
    return pair, corpus, Alignments.open(folder / "alignments", pair)


def test_long_sentences_are_read_in_smaller_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources, targets, _ = permuted_text(40)
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    whole = written(tmp_path / "whole", sources, targets)[2]
    gathered, gather = [], EncodedCorpus.gather

    def counted(corpus: EncodedCorpus, side: str, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ids, lengths = gather(corpus, side, indices)
        gathered.append(ids.size)
        return ids, lengths

    monkeypatch.setattr(EncodedCorpus, "gather", counted)
    monkeypatch.setattr(guided_alignment, "_PIECES", 100)
    parts = written(tmp_path / "parts", sources, targets)[2]
    assert (parts.links == whole.links).all()
    assert max(gathered) <= 100


def test_a_large_corpus_is_numbered_block_by_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = TokenizerPair.train(VOCABULARY, VOCABULARY, 300, shared=False)
    pieces = [i for i, piece in enumerate(pair.source.tokens(range(300))) if piece[:1] == "▁" != piece]
    ids = np.random.default_rng(1).choice(pieces, (5000, 12))
    side = Ragged(ids.astype(np.uint16).ravel(), np.arange(0, ids.size + 1, 12))
    corpus = EncodedCorpus(dict.fromkeys(("source", "target"), side))
    keys, _ = PieceWords(pair.source).keys(ids)
    expected = np.searchsorted(np.unique(keys), keys)
    monkeypatch.setattr(guided_alignment, "_AT_ONCE", 100)
    tracemalloc.start()
    words = guided_alignment._corpus_words(corpus, "source", pair.source)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.array_equal(words.values, expected)
    assert np.array_equal(words.starts, side.starts)
    assert peak < 30 * ids.size, "bytes a word; 15 of them for a large text"


def test_links_hold_for_every_segmentation(tmp_path: Path) -> None:
    lines = [f"{word} {word}{end}" for word in ("a dog", "a cat", "it is") for end in ("...", "?!")] * 9
    pair, corpus, alignments = written(tmp_path, lines, lines)
    assert "..." in pair.source.tokens(pair.source.encode(lines[0]))
    sampled = SampledCorpus(corpus, pair, [BpeDropout(t, 0.9) for t in pair], 1, 100, tmp_path).in_epoch(0)
    for row in range(len(lines)):
        batch = assemble(sampled, np.array([row]))
        assert alignments.of_batch(np.array([row]), batch.src_tokens, batch.tgt_in).any(), lines[row]


def test_batches_have_the_alignments_of_their_sentences(tmp_path: Path) -> None:
    sources, targets, links = permuted_text(150)
    pair, corpus, alignments = written(tmp_path, sources, targets)
    stream, seen = BatchStream(corpus, 100, seed=1, alignments=alignments), 0
    side = [PieceWords(tokenizer) for tokenizer in pair]
    while stream.epoch == 0:
        batch = stream.next()
        assert batch.aligned is not None
        for row in range(len(batch.src_tokens)):
            text = pair.source.decode(batch.src_tokens[row]), pair.target.decode(batch.tgt_in[row])
            truth = links[list(zip(sources, targets, strict=True)).index(text)]
            numbers = (
                side[0].numbers(batch.src_tokens[row : row + 1])[0][0],
                side[1].numbers(batch.tgt_in[row : row + 1])[0][0],
            )
            found = {
                (int(numbers[0][s]), int(numbers[1][t])) for t, s in zip(*np.nonzero(batch.aligned[row]), strict=True)
            }
            assert -1 not in {word for link in found for word in link}
            seen += len(found ^ truth)
    assert seen < 0.05 * sum(map(len, links))


def test_sentences_whose_words_an_augmentation_changed_are_not_aligned(tmp_path: Path) -> None:
    sources, targets, _ = permuted_text(150)
    pair, _, alignments = written(tmp_path, sources, targets)
    one, two = (np.array([[2, *pair.source.encode(text), 3]]) for text in (sources[0], f"{sources[0]} ba"))
    target = np.array([[*pair.target.encode(targets[0]), 3]])
    assert alignments.of_batch(np.array([0]), one, target).any()
    assert not alignments.of_batch(np.array([0]), two, target).any()


def test_two_files_are_aligned_without_their_lines_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, held = [tmp_path / "a.en", tmp_path / "a.xx"], []
    sources, targets, _ = permuted_text()
    write_lines(files[0], [*(f"{line} ({line})" for line in sources), "", "- ba (ce)"])
    write_lines(files[1], [*(f"{line} ({line})" for line in targets), "x", "- BA (CE)"])

    def measured(*words: Ragged) -> Iterator[Links]:
        held.append(tracemalloc.get_traced_memory())
        return align_words(*words)

    monkeypatch.setattr(align_files, "align_words", measured)
    tracemalloc.start()
    summary = align_files.write_word_links(*files, tmp_path / "links")
    tracemalloc.stop()
    assert summary == "402 pairs of lines, 83% of the target words linked"
    assert lines_in(tmp_path / "links")[-2:] == ["", "0-0 1-1 2-2"]
    assert max(held[0]) < 8 * sum(path.stat().st_size for path in files)


def test_two_files_are_aligned_on_the_command_line(tmp_path: Path) -> None:
    sources, targets, links = permuted_text()
    write_lines(tmp_path / "a.en", [*(f"{line} dog." for line in sources), "", "- ba"])
    write_lines(tmp_path / "a.xx", [*(f"{line} hund!" for line in targets), "x", "- BA"])
    mt("data", "align-words", "a.en", "a.xx", "--output", "a.links", cwd=tmp_path)
    found = [{tuple(map(int, link.split("-"))) for link in line.split()} for line in lines_in(tmp_path / "a.links")]
    assert found[-2:] == [set(), {(0, 0), (1, 1)}]
    ends = [(len(source.split()), len(target.split())) for source, target in zip(sources, targets, strict=True)]
    wrong = [pair ^ truth ^ {end} for pair, truth, end in zip(found[:-2], links, ends, strict=True)]
    assert sum(map(len, wrong)) < 0.03 * sum(map(len, links))

    write_lines(tmp_path / "short.xx", targets)
    assert (
        "--output -: this goes to a file"
        in mt("data", "align-words", "a.en", "a.xx", "--output", "-", cwd=tmp_path, code=2).stderr
    )
    done = mt("data", "align-words", "a.en", "short.xx", "--output", "b.links", cwd=tmp_path, code=2)
    assert "a.en has 402 lines but short.xx has 400" in done.stderr
    write_lines(tmp_path / "empty", [])
    done = mt("data", "align-words", "empty", "empty", "--output", "b.links", cwd=tmp_path, code=2)
    assert "no words to align" in done.stderr
    assert not (tmp_path / "b.links").exists()
