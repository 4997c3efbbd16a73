"""Token ids on disk: every sentence as the tokenizer gives it, in the smallest type that holds the vocabulary."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_helpers import write_lines
from mt.data.encode import Counts, encode_corpus, read_counts
from mt.data.token_store import EncodedCorpus
from mt.data.tokenizer import BpeTokenizer, TokenizerPair
from mt.errors import InputError
from mt.storage.manifest import verify


def sentences(size: int, longest: int = 9) -> list[str]:
    rng = random.Random(size)
    return [
        " ".join(rng.choices("uno due tre quattro cinque è".split(), k=rng.randint(0, longest))) for _ in range(size)
    ]


def pair_of(source: list[str], target: list[str]) -> TokenizerPair:
    return TokenizerPair.train(source, target, 300, shared=False)


def encode(
    root: Path, source: list[str], target: list[str], pair: TokenizerPair, max_length: int | None = None
) -> tuple[EncodedCorpus, Counts]:
    text = (write_lines(root / "a.en", source), write_lines(root / "a.it", target))
    counts = encode_corpus(text, pair, root / "encoded", "key", max_length)
    return EncodedCorpus.open(root / "encoded"), counts


def ids_of(corpus: EncodedCorpus, side: str) -> list[list[int]]:
    """Every sentence of a corpus, fetched in an order of its own."""
    order = np.random.default_rng(0).permutation(len(corpus))
    ids, lengths = corpus.gather(side, order)
    rows = {int(index): row[:length].tolist() for index, row, length in zip(order, ids, lengths, strict=True)}
    return [rows[index] for index in range(len(corpus))]


def test_a_corpus_is_what_the_tokenizers_give(tmp_path: Path) -> None:
    source, target = sentences(300), sentences(301)[:300]
    pair = pair_of(source, target)
    corpus, counts = encode(tmp_path, source, target, pair)
    assert counts == Counts([300], 0)
    assert len(corpus) == 300
    assert ids_of(corpus, "source") == pair.source.encode_batch(source)
    assert ids_of(corpus, "target") == pair.target.encode_batch(target)
    assert corpus.lengths()[0].tolist() == [len(ids) + 2 for ids in pair.source.encode_batch(source)]
    assert corpus.lengths()[1].tolist() == [len(ids) + 1 for ids in pair.target.encode_batch(target)]


def test_more_sentences_than_are_encoded_at_a_time(tmp_path: Path) -> None:
    source = [f"uno {i}" for i in range(20_003)]
    pair = pair_of(source[:100], source[:100])
    corpus, _ = encode(tmp_path, source, source[::-1], pair)
    assert len(corpus) == 20_003
    for index in (0, 9_999, 10_000, 19_999, 20_000, 20_002):
        for side, lines in (("source", source), ("target", source[::-1])):
            ids, lengths = corpus.gather(side, np.array([index]))
            assert pair.source.decode(ids[0, : lengths[0]].tolist()) == lines[index]


def test_empty_sentences_stay_in_their_place(tmp_path: Path) -> None:
    source, target = ["", "uno", "", ""], ["due", "", "", "tre"]
    pair = pair_of(sentences(50), sentences(50))
    corpus, _ = encode(tmp_path, source, target, pair)
    assert ids_of(corpus, "source") == [[], pair.source.encode("uno"), [], []]
    assert ids_of(corpus, "target") == [pair.target.encode("due"), [], [], pair.target.encode("tre")]
    assert corpus.lengths()[0].min() == 2
    assert corpus.lengths()[1].min() == 1


def test_a_corpus_of_empty_sentences(tmp_path: Path) -> None:
    corpus, _ = encode(tmp_path, ["", ""], ["", ""], pair_of(sentences(50), sentences(50)))
    assert ids_of(corpus, "source") == [[], []]


def test_pairs_with_a_side_that_is_too_long_are_left_out_and_counted(tmp_path: Path) -> None:
    # Here a letter is a token. With two specials 7 letters are 9 tokens, with one special 8 letters are.
    pair = pair_of(list("abcdefgh"), list("abcdefgh"))
    source, target = ["abcdefg", "abcdefgh", "a", "a"], ["a", "a", "abcdefgh", "abcdefgha"]
    corpus, counts = encode(tmp_path, source, target, pair, max_length=9)
    assert counts == Counts([2], 2)
    assert corpus.lengths()[0].tolist() == [9, 3]
    assert corpus.lengths()[1].tolist() == [2, 9]
    assert ids_of(corpus, "target") == pair.target.encode_batch(["a", "abcdefgh"])
    assert read_counts(tmp_path / "encoded" / "counts.json") == counts


def tokenizer_state(pieces: int, character: str) -> dict[str, Any]:
    """The file of a tokenizer with as many pieces as asked for, the last of which is one character."""
    state = json.loads(BpeTokenizer.train(["uno due"], 300).to_json())
    vocabulary = state["model"]["vocab"]
    for number in range(len(vocabulary), pieces - 1):
        vocabulary[f"never in text {number}"] = number
    vocabulary[character] = pieces - 1
    return state


def test_the_type_of_ids_follows_the_vocabulary(tmp_path: Path) -> None:
    for pieces, name in ((2**16, "uint16"), (2**16 + 1, "uint32"), (70_000, "uint32")):
        folder = tmp_path / str(pieces)
        folder.mkdir()
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer_state(pieces, "龍")), encoding="utf-8")
        tokenizer = BpeTokenizer.load(folder / "tokenizer.json")
        assert tokenizer.vocab_size == pieces
        small = BpeTokenizer.train(["uno due"], 300)
        corpus, _ = encode(folder, ["龍 uno"], ["due"], TokenizerPair(tokenizer, small))
        names = {path.name for path in (folder / "encoded").iterdir()}
        assert {f"source_tokens.{name}", "target_tokens.uint16"} <= names
        assert pieces - 1 in ids_of(corpus, "source")[0]
        assert ids_of(corpus, "source") == [tokenizer.encode("龍 uno")]


def test_the_folder_is_whole_and_carries_its_key(tmp_path: Path) -> None:
    source = sentences(20)
    encode(tmp_path, source, source, pair_of(source, source))
    manifest = verify(tmp_path / "encoded")
    assert manifest["key"] == "key"
    assert len(manifest["files"]) == 5


def test_a_failure_half_way_leaves_nothing(tmp_path: Path) -> None:
    pair = pair_of(sentences(20), sentences(20))
    text = (write_lines(tmp_path / "a.en", ["uno"] * 12_000), tmp_path / "a.it")
    text[1].write_bytes(b"due\n" * 11_999 + b"\xff\n")
    with pytest.raises(InputError, match=r"a\.it:12000: not valid UTF-8"):
        encode_corpus(text, pair, tmp_path / "encoded", "key", None)
    assert {path.name for path in tmp_path.iterdir()} == {"a.en", "a.it"}


def test_a_corpus_can_be_read_by_many_and_written_by_none(tmp_path: Path) -> None:
    source = sentences(20)
    corpus, _ = encode(tmp_path, source, source, pair_of(source, source))
    before = verify(tmp_path / "encoded")
    ids, _ = corpus.gather("source", np.arange(20))
    ids[:] = 0
    for lengths in corpus.lengths():
        lengths[:] = 0
    assert verify(tmp_path / "encoded") == before
    assert ids_of(corpus, "source") == ids_of(EncodedCorpus.open(tmp_path / "encoded"), "source")
