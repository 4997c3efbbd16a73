"""SentencePiece tokenizers: lossless where trained here, faithful to given models, and with ids of our own."""

import io
import json
import os
import pickle
import random
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from mt.data.phrasebook import sentence_pairs
from mt.data.sentencepiece_tokenizer import SentencePieceTokenizer
from mt.data.tokenizer import BYTES, EOS_ID, SPECIALS, UNK_ID, normalized
from mt.data.tokenizer_kinds import TokenizerPair, read_tokenizer
from mt.errors import InputError

PAIRS = list(islice(sentence_pairs("train"), 1500))
ENGLISH, ITALIAN = [source for source, _ in PAIRS], [target for _, target in PAIRS]
KINDS = ["unigram", "bpe"]
FRAGMENTS = "</s> <s> <pad> <unk> <2it> <0x41> <0xE2> <0x96> ▁ ▅ ⁇ \ue000 \ue000a \ue000b".split(" ")


@cache
def trained(kind: str = "unigram") -> SentencePieceTokenizer:
    return SentencePieceTokenizer.train(ENGLISH + ITALIAN, 600, ["it"], kind)


@cache
def model(lines: Sequence[str] = tuple(ENGLISH + ITALIAN), **options: Any) -> bytes:
    """Train a model as other people do, with the library's own defaults."""
    content = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=content,
        minloglevel=2,
        **{"vocab_size": 500, "hard_vocab_limit": False, **options},
    )
    return content.getvalue()


@pytest.fixture
def given_model(tmp_path: Path) -> Callable[..., Path]:
    def write(name: str = "spm.model", **options: Any) -> Path:
        path = tmp_path / name
        path.write_bytes(model(**options))
        return path

    return write


any_text = st.text() | st.lists(
    st.sampled_from([*FRAGMENTS, " ", "  ", "\t", "\n", "e\u0301", "5", "٣", "casa"]) | st.text(max_size=3)
).map("".join)


@pytest.mark.parametrize("kind", KINDS)
@given(text=any_text)
@example(text="")
@example(text=" \u2003 ")
@example(text="".join(FRAGMENTS))
@example(text=" ".join(FRAGMENTS))
@example(text="a\u2028b\x85c\rd\x00e\ufefff\U0010ffff")
@example(text="e\u0301 \u1100\u1161\u11a8 ﬁ Å  x")
def test_decoding_gives_the_text_back(kind: str, text: str) -> None:
    tokenizer = trained(kind)
    [ids] = tokenizer.encode_batch([text])
    assert tokenizer.decode(ids) == normalized(text)
    # Text never becomes a special token or a tag.
    assert all(i > EOS_ID for i in ids)
    assert tokenizer.tags["it"] not in ids


@pytest.mark.parametrize("kind", KINDS)
def test_every_character_of_unicode_comes_back(kind: str) -> None:
    characters = [c for c in map(chr, range(0xF0000)) if unicodedata.category(c) not in ("Cs", "Cn")]
    texts = ["x" + "x".join(characters[start : start + 64]) + "x" for start in range(0, len(characters), 64)]
    decoded = trained(kind).decode_batch(trained(kind).encode_batch(texts))
    assert [text for text, back in zip(texts, decoded, strict=True) if back != unicodedata.normalize("NFC", text)] == []


@pytest.mark.parametrize("kind", KINDS)
def test_our_ids_are_those_of_the_model_trained_here(kind: str) -> None:
    """Other software can use the model without a table of ids, and it is lossless there, too."""
    tokenizer, theirs = trained(kind), SentencePieceProcessor(model_proto=trained(kind).models[0])
    assert tokenizer.tokens(range(4)) == list(SPECIALS)
    assert tokenizer.tokens(range(600)) == theirs.id_to_piece(list(range(600)))
    assert tokenizer.vocab_size == theirs.get_piece_size() == 600
    assert tokenizer.tokens(tokenizer.byte_ids) == list(BYTES)
    assert tokenizer.tags == {"it": theirs.piece_to_id("<2it>")}
    texts = [*ENGLISH[:200], *ITALIAN[:200], "a ▁ b  12 ☃"]
    assert tokenizer.encode_batch(texts) == theirs.encode(texts)
    assert theirs.decode(theirs.encode(texts)) == texts


def test_a_frequent_word_is_one_token_and_a_digit_too() -> None:
    tokenizer = SentencePieceTokenizer.train([*ENGLISH, *["in 2024 and 1990"] * 99], 400)
    assert tokenizer.tokens(tokenizer.encode("the")) == ["▁the"]
    assert tokenizer.tokens(tokenizer.encode("2024"))[-3:] == ["0", "2", "4"]


@given(ids=st.lists(st.integers(0, 599), max_size=30))
def test_any_ids_decode_to_text_that_can_be_printed(ids: list[int]) -> None:
    trained().decode(ids).encode()


def test_unigram_and_bpe_are_different_models() -> None:
    assert trained("bpe").log_probs == {}
    log_probs = trained().log_probs
    assert max(log_probs.values()) < 0
    assert "▁the" in log_probs
    assert not {"<2it>", "<0x41>", "<unk>"} & log_probs.keys()


TRAIN_DIGEST = """
import hashlib
from mt.data.sentencepiece_tokenizer import SentencePieceTokenizer
from mt.data.phrasebook import sentence_pairs
lines = [text for _, pair in zip(range(600), sentence_pairs("train")) for text in pair]
print(hashlib.sha256(SentencePieceTokenizer.train(lines, 500).models[0]).hexdigest())
"""


def test_training_in_another_process_gives_the_same_bytes() -> None:
    digests = set()
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", TRAIN_DIGEST]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stderr == "", "the library is silent"
        digests.add(done.stdout)
    assert len(digests) == 1


def test_a_vocabulary_too_small_for_the_characters_is_refused() -> None:
    characters = ["".join(map(chr, range(0x4E00, 0x4F00)))] * 9
    with pytest.raises(InputError, match=r"cannot learn 300 pieces .* 300 vs 5\d\d") as caught:
        SentencePieceTokenizer.train(characters, 300)
    assert "tokenizer.vocab_size" in caught.value.hint


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("kind", ["unigram", "sentencepiece_bpe"])
def test_a_saved_pair_is_the_one_that_was_trained(tmp_path: Path, shared: bool, kind: str) -> None:
    pair = TokenizerPair.train(ENGLISH, ITALIAN, 500, shared, ["it"], kind)
    assert pair.shared == shared
    for name, content in pair.files().items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    for copy in (TokenizerPair.load(tmp_path, shared), pickle.loads(pickle.dumps(pair))):
        assert copy.shared == shared
        assert copy.files() == pair.files()
        assert copy.source.tags == pair.source.tags != {}
        for ours, theirs in zip(copy, pair, strict=True):
            assert ours.encode_batch([*ENGLISH, "☃"]) == theirs.encode_batch([*ENGLISH, "☃"])


def test_an_overlong_text_may_be_truncated_but_stays_overlong() -> None:
    tokenizer = trained()
    for unit in (" ", "the ", "e\u0301", "▁", "😀"):
        text = f"x{unit * 15_000}x"
        whole, (cut,) = tokenizer.encode(text), tokenizer.encode_batch([text], 20)
        assert 20 < len(cut) <= len(whole)
        assert tokenizer.encode_batch([text], len(whole)) == [whole]


def test_a_text_of_spaces_that_the_model_removes_is_not_truncated(given_model: Callable[..., Path]) -> None:
    tokenizer = read_tokenizer(given_model())
    text = "the" + " " * 20_000 + "house"
    assert tokenizer.encode_batch([text], 20) == [tokenizer.encode("the house")]


# Models from elsewhere.


def test_a_given_model_normalises_as_it_does_elsewhere(given_model: Callable[..., Path]) -> None:
    path = given_model()
    tokenizer, theirs = read_tokenizer(path), SentencePieceProcessor(str(path))
    assert tokenizer.decode(tokenizer.encode("a ﬁne\u3000  day")) == "a fine day"
    texts = ENGLISH[:300]
    assert [tokenizer.tokens(ids) for ids in tokenizer.encode_batch(texts)] == [
        theirs.id_to_piece(ids) for ids in theirs.encode(texts)
    ]
    assert tokenizer.byte_ids == range(0)


def test_without_bytes_a_new_character_is_unknown(given_model: Callable[..., Path]) -> None:
    tokenizer = read_tokenizer(given_model())
    assert tokenizer.encode("the ☃")[-1] == UNK_ID
    assert tokenizer.decode(tokenizer.encode("the ☃")).strip() == "the"


@pytest.mark.parametrize(
    "options", [{}, {"pad_id": 3}, {"unk_id": 3, "bos_id": 0, "eos_id": 1, "pad_id": 2}, {"bos_id": -1}], ids=str
)
def test_the_specials_come_first_wherever_the_model_has_them(
    given_model: Callable[..., Path], options: dict[str, int]
) -> None:
    tokenizer = read_tokenizer(given_model(unk_piece="<what>", eos_piece="[END]", **options))
    pieces = tokenizer.pieces
    assert pieces[:4] == list(SPECIALS)
    assert len(set(pieces)) == len(pieces)
    assert not {"<what>", "[END]"} & set(pieces)
    assert tokenizer.encode("☃")[-1] == UNK_ID
    assert tokenizer.decode(tokenizer.encode(ITALIAN[0])) == ITALIAN[0]


def test_symbols_of_a_model_stay_whole_but_never_become_tags(given_model: Callable[..., Path]) -> None:
    path = given_model(user_defined_symbols="<url>,<2it>,<pad>", byte_fallback=True)
    tokenizer = read_tokenizer(path, ["it", "de"])
    ids = tokenizer.encode("the <url> <2it> <pad>")
    assert "<url>" in tokenizer.tokens(ids)
    assert tokenizer.decode(ids).startswith("the <url>")
    assert ids.count(UNK_ID) == 2
    assert {"it", "de"} == tokenizer.tags.keys()
    assert not {*tokenizer.tags.values(), 0} & set(ids)


def test_tags_are_added_to_a_given_model_and_saved_with_it(given_model: Callable[..., Path], tmp_path: Path) -> None:
    plain, tagged = read_tokenizer(given_model()), read_tokenizer(given_model(), ["it", "de"])
    assert plain.tags == {}
    assert tagged.tags == {"it": plain.vocab_size, "de": plain.vocab_size + 1}
    assert tagged.encode_batch(ENGLISH) == plain.encode_batch(ENGLISH)
    (tmp_path / "tokenizer.json").write_text(tagged.to_json(), encoding="utf-8")
    assert read_tokenizer(tmp_path / "tokenizer.json").tags == tagged.tags


@pytest.fixture
def marian(tmp_path: Path) -> tuple[Path, Path, dict[str, int]]:
    """Two models and a vocabulary as OPUS-MT has them: without some pieces, with a character that no model knows."""
    paths = tmp_path / "source.spm", tmp_path / "target.spm"
    for path, lines in zip(paths, (ENGLISH, ITALIAN), strict=True):
        path.write_bytes(model(lines=tuple(lines), vocab_size=400))
    pieces: dict[str, None] = {}
    for path in paths:
        pieces |= dict.fromkeys(SentencePieceProcessor(str(path)).id_to_piece(list(range(3, 390))))
    names = ["</s>", "<unk>", *pieces, "☃", ">>it<<", "<pad>"]
    return *paths, {name: i for i, name in enumerate(names)}


def test_a_marian_vocabulary_is_encoded_as_transformers_does(
    marian: tuple[Path, Path, dict[str, int]], tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    source_path, target_path, vocabulary = marian
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    theirs = transformers.MarianTokenizer(str(source_path), str(target_path), str(tmp_path / "vocab.json"))
    ours = SentencePieceTokenizer.from_files(source_path, vocabulary, target_path=target_path, tags={"it": ">>it<<"})
    pair = TokenizerPair(ours, ours.counterpart)
    assert pair.shared
    for name, content in pair.files().items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    loaded = TokenizerPair.load(tmp_path, True)
    assert loaded.shared
    assert loaded.target is not loaded.source
    texts = [*ENGLISH[:300], *ITALIAN[:300], "A ☃ and ☂ here"]
    for side, found in (("source", loaded.source), ("target", loaded.target)):
        expected = theirs(**{"text" if side == "source" else "text_target": texts})["input_ids"]
        assert [[vocabulary[ours.origins[i]] for i in (*ids, EOS_ID)] for ids in found.encode_batch(texts)] == expected
    unknown = sum(UNK_ID in ids for ids in loaded.source.encode_batch(texts))
    assert 0 < unknown < 600
    assert vocabulary["☃"] in [vocabulary[ours.origins[i]] for i in ours.encode("A ☃")]
    rng = random.Random(1)
    rows = [rng.choices(range(4, ours.vocab_size), k=6) for _ in range(200)]
    rows = [[i for i in row if i not in ours.tags.values()] for row in rows]
    expected = [theirs.decode([vocabulary[ours.origins[i]] for i in row]) for row in rows]
    assert [text.strip() for text in loaded.target.decode_batch(rows)] == [text.strip() for text in expected]


def test_rows_of_another_vocabulary_are_permuted_to_ours(marian: tuple[Path, Path, dict[str, int]]) -> None:
    path, _, vocabulary = marian
    ours = SentencePieceTokenizer.from_files(path, vocabulary, tags={"it": ">>it<<"})
    names = ours.origins
    assert names[:4] == ["<pad>", "<unk>", "<pad>", "</s>"], "Marian begins a translation with padding"
    assert names[ours.tags["it"]] == ">>it<<"
    assert ours.tokens([ours.tags["it"]]) == ["<2it>"]
    assert {*names} == vocabulary.keys()
    assert len(names) == len(vocabulary) + 1
    chosen = SentencePieceTokenizer.from_files(path, vocabulary, start="</s>")
    assert chosen.origins[2] == "</s>"


def test_an_m2m100_vocabulary_is_encoded_as_transformers_does(given_model: Callable[..., Path], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    path = given_model()
    pieces = SentencePieceProcessor(str(path)).id_to_piece(list(range(3, 480)))
    names = ["<s>", "<pad>", "</s>", "<unk>", *pieces]
    (tmp_path / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}), encoding="utf-8")
    theirs = transformers.M2M100Tokenizer(str(tmp_path / "vocab.json"), str(path), src_lang="en", tgt_lang="it")
    tags = {code: theirs.get_lang_token(code) for code in ("en", "it")}
    codes = sorted(theirs.lang_token_to_id, key=theirs.lang_token_to_id.__getitem__)
    vocabulary = {name: i for i, name in enumerate([*names, *codes])}
    ours = SentencePieceTokenizer.from_files(path, vocabulary, tags=tags, start="</s>")
    texts = [*ENGLISH[:300], "A ☃"]
    ids = [[ours.tags["en"], *ids, EOS_ID] for ids in ours.encode_batch(texts)]
    assert [[vocabulary[ours.origins[i]] for i in row] for row in ids] == theirs(texts)["input_ids"]
    known = [row for row, number in enumerate(ids) if UNK_ID not in number]
    assert 50 < len(known) < 301
    assert ours.decode_batch([ids[row] for row in known]) == [texts[row] for row in known]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v | {"the": len(v) + 1}, "are not 0 to"),
        (lambda v: v | {"more": 7}, "are not 0 to"),
        (lambda v: {("<end>" if name == "</s>" else name): i for name, i in v.items()}, "lacks </s>"),
        (lambda v: {(">>de<<" if name == ">>it<<" else name): i for name, i in v.items()}, "lacks >>it<<"),
    ],
    ids=["hole", "twice", "special", "tag"],
)
def test_a_vocabulary_that_cannot_be_is_refused(
    marian: tuple[Path, Path, dict[str, int]], change: Callable[[dict[str, int]], dict[str, int]], message: str
) -> None:
    path, _, vocabulary = marian
    with pytest.raises(InputError, match=message) as caught:
        SentencePieceTokenizer.from_files(path, change(vocabulary), tags={"it": ">>it<<"})
    assert caught.value.message.startswith(f"{path}: ")


def refused(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_tokenizer(path)
    assert "\n" not in caught.value.message
    assert caught.value.message.startswith(f"{path}: ")
    return caught.value.message


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    path, content = tmp_path / "spm.model", model()
    for wrong in (b"", b"text\n", content[:-9], content[: len(content) // 2], b"\x00" * 99):
        assert re.search("not a SentencePiece model: .+", refused(path, wrong))
    with pytest.raises(InputError, match="no such file"):
        read_tokenizer(tmp_path / "none.model")
    with pytest.raises(InputError):
        read_tokenizer(tmp_path)


def test_damaged_tokenizer_files_are_refused(tmp_path: Path) -> None:
    path, content = tmp_path / "tokenizer.json", read_tokenizer_json()
    state = json.loads(content)
    for length in range(30, len(content), 997):
        refused(path, content[:length].encode())
    pieces = state["pieces"]
    for change in (
        {"pieces": pieces[1:]},
        {"pieces": [*pieces, "the", "the"]},
        {"pieces": [*pieces, 1]},
        {"pieces": "text"},
        {"pieces": 5},
        {"models": []},
        {"models": ["AAAA"]},
        {"models": ["?"]},
        {"models": 1},
    ):
        refused(path, json.dumps(state | change).encode())


def read_tokenizer_json() -> str:
    tokenizer = trained()
    return SentencePieceTokenizer(tokenizer.models, tokenizer.pieces).to_json()
