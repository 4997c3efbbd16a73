"""Token ids on disk: as the tokenizers give them, in the smallest type that fits the vocabulary."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

from data_helpers import encode_text, sentence_ids, write_lines
from mt.data.encode import Counts, encode_corpus, read_counts
from mt.data.token_store import EncodedCorpus
from mt.data.tokenizer import BpeTokenizer
from mt.data.tokenizer_kinds import TokenizerPair, read_tokenizer
from mt.errors import InputError
from mt.storage.manifest import verify


def sentences(size: int) -> list[str]:
    rng = random.Random(size)
    return [" ".join(rng.choices("uno due tre quattro cinque è".split(), k=rng.randint(0, 9))) for _ in range(size)]


def pair_of(source: list[str], target: list[str]) -> TokenizerPair:
    return TokenizerPair.train(source, target, 300, shared=False)


TEXT = sentences(300), sentences(301)[:300]


@pytest.mark.parametrize("text", [TEXT, (["", "uno", "", ""], ["due", "", "", "tre"]), (["", ""], ["", ""])])
def test_a_corpus_has_the_tokenizers_ids(tmp_path: Path, text: tuple[list[str], list[str]]) -> None:
    pair = pair_of(*TEXT)
    expected = pair.source.encode_batch(text[0]), pair.target.encode_batch(text[1])
    corpus = encode_text(tmp_path, *text, pair)
    assert read_counts(tmp_path / "encoded" / "counts.json") == Counts([len(text[0])], 0)
    order = np.random.default_rng(0).permutation(len(text[0]))
    for side, ids, lengths, specials in zip(("source", "target"), expected, corpus.lengths(), (2, 1), strict=True):
        assert sentence_ids(corpus, side) == ids
        assert sentence_ids(corpus, side, order) == [ids[index] for index in order]
        assert lengths.tolist() == [len(sentence) + specials for sentence in ids]


def test_pairs_with_a_side_that_is_too_long_are_dropped_and_counted(tmp_path: Path) -> None:
    # Here a letter is a token. With two specials 7 letters are 9 tokens, with one special 8 letters are.
    pair = pair_of(list("abcdefgh"), list("abcdefgh"))
    source, target = ["abcdefg", "abcdefgh", "a", "a"], ["a", "a", "abcdefgh", "abcdefgha"]
    corpus = encode_text(tmp_path, source, target, pair, max_length=9)
    assert read_counts(tmp_path / "encoded" / "counts.json") == Counts([2], 2)
    assert [lengths.tolist() for lengths in corpus.lengths()] == [[9, 3], [2, 9]]
    assert sentence_ids(corpus, "target") == pair.target.encode_batch(["a", "abcdefgh"])


@pytest.mark.parametrize(("pieces", "dtype"), [(2**16, "uint16"), (2**16 + 1, "uint32"), (70_000, "uint32")])
def test_the_vocabulary_decides_the_type_of_ids(tmp_path: Path, pieces: int, dtype: str) -> None:
    small = BpeTokenizer.train(["uno due"], 300)
    state = json.loads(small.to_json())
    vocabulary = state["model"]["vocab"]
    vocabulary |= {f"never in text {number}": number for number in range(len(vocabulary), pieces - 1)}
    vocabulary["龍"] = pieces - 1
    (tmp_path / "tokenizer.json").write_text(json.dumps(state), encoding="utf-8")
    tokenizer = read_tokenizer(tmp_path / "tokenizer.json")
    assert tokenizer.vocab_size == pieces
    corpus = encode_text(tmp_path, ["龍 uno"], ["due"], TokenizerPair(tokenizer, small))
    names = {path.name for path in (tmp_path / "encoded").iterdir()}
    assert {f"source_tokens.{dtype}", "target_tokens.uint16"} <= names
    assert pieces - 1 in sentence_ids(corpus, "source")[0]
    assert sentence_ids(corpus, "source") == [tokenizer.encode("龍 uno")]


def test_a_failure_leaves_no_file(tmp_path: Path) -> None:
    text = (write_lines(tmp_path / "a.en", ["uno"] * 12_000), tmp_path / "a.it")
    text[1].write_bytes(b"due\n" * 11_999 + b"\xff\n")
    with pytest.raises(InputError, match=r"a\.it:12000: not valid UTF-8"):
        encode_corpus(text, pair_of(*TEXT), tmp_path / "encoded", "key", None)
    assert {path.name for path in tmp_path.iterdir()} == {"a.en", "a.it"}


def test_changes_to_gathered_ids_do_not_reach_the_files(tmp_path: Path) -> None:
    corpus = encode_text(tmp_path, *TEXT, pair_of(*TEXT))
    before = verify(tmp_path / "encoded")
    assert (before["key"], len(before["files"])) == ("key", 5)
    corpus.gather("source", np.arange(20))[0][:] = 0
    for lengths in corpus.lengths():
        lengths[:] = 0
    assert verify(tmp_path / "encoded") == before
    assert sentence_ids(corpus, "source") == sentence_ids(EncodedCorpus.open(tmp_path / "encoded"), "source")
