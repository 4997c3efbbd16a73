"""Tokenizers: lossless for any text, no text becomes a special token, and training is deterministic."""

import json
import os
import random
import subprocess
import sys
import time
import unicodedata
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from data_helpers import plain_text
from mt.data.tokenizer import BYTES, EOS_ID, PAD_ID, SOS_ID, SPECIALS, UNK_ID, BpeTokenizer, normalized
from mt.data.tokenizer_kinds import TokenizerPair, read_tokenizer
from mt.errors import InputError

# Strings with a meaning inside the tokenizer: specials, bytes, the space marker and its escape.
FRAGMENTS = "</s> <s> <pad> <unk> <0x41> <0xE2> <0x96> ▁ \ue000 \ue000a \ue000b ## Ġ".split(" ")


def text_full_of_fragments() -> list[str]:
    rng = random.Random(2)
    return [joint.join(rng.choices([*FRAGMENTS, "a", "b"], k=6)) for joint in (" ", "") for _ in range(300)]


def text_without_spaces() -> list[str]:
    rng = random.Random(3)
    return ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=400)) for _ in range(5)]


TEXTS = {
    "plain": (plain_text, 500),
    "full of fragments": (text_full_of_fragments, 420),
    "without spaces": (text_without_spaces, 300),
    "one word": (lambda: ["word"], 300),
}


@cache
def tokenizer_of(name: str) -> BpeTokenizer:
    lines, size = TEXTS[name]
    return BpeTokenizer.train(lines(), size)


def is_lossless(tokenizer: BpeTokenizer, text: str) -> bool:
    assert normalized(text) == unicodedata.normalize("NFC", text.strip())
    ids = tokenizer.encode(text)
    # Text must never become a special token.
    return tokenizer.decode(ids) == unicodedata.normalize("NFC", text.strip()) and all(i > EOS_ID for i in ids)


any_text = st.text() | st.lists(
    st.sampled_from([*FRAGMENTS, " ", "  ", "\t", "\n", "e\u0301", "5", "٣"]) | st.text(max_size=3)
).map("".join)


@pytest.mark.parametrize("name", TEXTS)
@given(text=any_text)
@example(text="")
@example(text=" \u2003 ")
@example(text="".join(FRAGMENTS))
@example(text="</s></s>\ue000▁\ue000a▁b")
@example(text="a\u2028b\x85c\rd\x00e\ufefff\U0010ffff")
@example(text="e\u0301 \u1100\u1161\u11a8 ﬁ Å")
@example(text="▁\u0301 \u0301")
def test_decoding_gives_the_text_back(name: str, text: str) -> None:
    assert is_lossless(tokenizer_of(name), text)


def test_every_character_of_unicode_comes_back() -> None:
    tokenizer = tokenizer_of("plain")
    characters = [c for c in map(chr, range(0xF0000)) if unicodedata.category(c) not in ("Cs", "Cn")]
    # A letter between them keeps combining characters from reordering one another.
    texts = ["x" + "x".join(characters[start : start + 64]) + "x" for start in range(0, len(characters), 64)]
    decoded = tokenizer.decode_batch(tokenizer.encode_batch(texts))
    wrong = [text for text, back in zip(texts, decoded, strict=True) if back != unicodedata.normalize("NFC", text)]
    assert wrong == []


def test_a_frequent_word_is_one_token_a_digit_too_and_a_literal_special_several() -> None:
    tokenizer = BpeTokenizer.train(["the cat </s> the <pad> in 2024 2024 2024"] * 50, 330)
    assert tokenizer.tokens(tokenizer.encode("the cat")) == ["▁the", "▁cat"]
    assert tokenizer.tokens(tokenizer.encode("2024")) == ["▁", "2", "0", "2", "4"]
    assert len(tokenizer.encode("</s>")) > 1
    assert len(tokenizer.encode("<0x41>")) > 1


def test_the_first_pieces_are_the_specials_and_the_bytes() -> None:
    tokenizer = tokenizer_of("plain")
    assert (PAD_ID, UNK_ID, SOS_ID, EOS_ID) == (0, 1, 2, 3)
    assert tokenizer.tokens(range(4)) == list(SPECIALS) == ["<pad>", "<unk>", "<s>", "</s>"]
    assert tokenizer.tokens(range(4, 260)) == list(BYTES)
    assert tokenizer.vocab_size == 500
    assert tokenizer.tokens(tokenizer.encode("ca日"))[-3:] == ["<0xE6>", "<0x97>", "<0xA5>"], "unseen characters"


def test_batches_encode_and_decode_as_sentences_do() -> None:
    tokenizer, texts = tokenizer_of("plain"), [*plain_text(20), "", "日本 </s>"]
    ids = tokenizer.encode_batch(texts)
    assert ids == [tokenizer.encode(text) for text in texts]
    assert tokenizer.decode_batch(ids) == texts


def test_specials_are_left_out_of_decoded_text() -> None:
    tokenizer = tokenizer_of("plain")
    ids = tokenizer.encode("più che mai")
    assert tokenizer.decode([SOS_ID, *ids[:2], UNK_ID, *ids[2:], EOS_ID, PAD_ID, PAD_ID]) == "più che mai"


@given(ids=st.lists(st.integers(0, 499), max_size=30))
def test_any_ids_decode_to_text_that_can_be_printed(ids: list[int]) -> None:
    tokenizer_of("plain").decode(ids).encode()


RARE_CHARACTERS = [chr(0x4E00 + 25 * line + place) for line in range(40) for place in range(25)]
TIES = ["".join(RARE_CHARACTERS[start : start + 25]) + " the cat" for start in range(0, 1000, 25)]


@pytest.mark.parametrize("lines", [plain_text(), text_full_of_fragments(), TIES], ids=["plain", "fragments", "ties"])
def test_training_twice_gives_the_same_bytes(lines: list[str]) -> None:
    assert len({BpeTokenizer.train(lines, 400).to_json() for _ in range(4)}) == 1


TRAIN_DIGEST = """
import hashlib
from data_helpers import plain_text
from mt.data.tokenizer import BpeTokenizer
print(hashlib.sha256(BpeTokenizer.train(plain_text(), 500).to_json().encode()).hexdigest())
"""


def test_training_in_another_process_gives_the_same_bytes() -> None:
    digests = set()
    for hash_seed, parallel in [("1", "true"), ("2", "false")]:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "TOKENIZERS_PARALLELISM": parallel}
        done = subprocess.run(
            [sys.executable, "-c", TRAIN_DIGEST],
            env=environment,
            cwd=Path(__file__).parent.parent,
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(done.stdout)
    assert len(digests) == 1


def test_a_saved_tokenizer_is_the_one_that_was_trained(tmp_path: Path) -> None:
    trained = tokenizer_of("full of fragments")
    path = tmp_path / "tokenizer.json"
    path.write_text(trained.to_json(), encoding="utf-8")
    loaded = read_tokenizer(path)
    assert loaded.to_json() == trained.to_json()
    texts = [*text_full_of_fragments(), "日本\x00"]
    assert loaded.encode_batch(texts) == trained.encode_batch(texts)
    assert all(is_lossless(loaded, text) for text in texts)


@pytest.mark.parametrize("shared", [True, False])
def test_vocabularies_are_shared_or_learned_from_a_text_each(tmp_path: Path, shared: bool) -> None:
    pair = TokenizerPair.train(["hello"] * 50, ["ciao"] * 50, 400, shared=shared)
    assert pair.shared == shared
    assert set(pair.files()) == ({"tokenizer.json"} if shared else {"source.json", "target.json"})
    assert len(pair.source.encode("hello")) == len(pair.target.encode("ciao")) == 1
    assert (len(pair.source.encode("ciao")) == 1) == (len(pair.target.encode("hello")) == 1) == shared
    assert {path.name for path in pair.write(tmp_path)} == set(pair.files())
    loaded = TokenizerPair.load(tmp_path, shared=shared)
    assert loaded.shared == shared
    assert loaded.files() == pair.files()


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_small_text_gives_a_smaller_vocabulary_and_a_warning(notices: list[str], kind: str) -> None:
    pair = TokenizerPair.train(["hello"] * 9, ["ciao"] * 9, 5000, True, (), kind)
    size = pair.source.vocab_size
    assert 260 < size < 300
    assert notices == [f"tokenizer.vocab_size: the training text gives only {size} of the 5000 pieces requested"]
    assert pair.target.decode(pair.source.encode("hello ciao ü")) == "hello ciao ü"


def test_each_small_text_gives_its_own_warning(notices: list[str]) -> None:
    TokenizerPair.train(["hello"], plain_text(), 400, shared=False)
    TokenizerPair.train(plain_text(), ["ciao"], 400, shared=False)
    TokenizerPair.train(plain_text(), plain_text(), 400, shared=False)
    assert [line.partition(" text gives ")[0] for line in notices] == [
        "tokenizer.vocab_size: the source",
        "tokenizer.vocab_size: the target",
    ]


def load_refusal(path: Path, content: str | bytes | None = None) -> str:
    """Return the message that refuses a tokenizer file, which is first written if a content is given."""
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(InputError) as caught:
        read_tokenizer(path)
    assert caught.value.exit_code == 2
    assert "\n" not in caught.value.message
    return caught.value.message


def test_a_missing_tokenizer_file_and_a_folder(tmp_path: Path) -> None:
    assert load_refusal(tmp_path / "none.json") == f"{tmp_path / 'none.json'}: no such file"
    assert load_refusal(tmp_path) == f"{tmp_path}: this is a folder, not a file"


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[1]", b"no json", b"\xff\xfe", b"null", b'{"model": {"type": "BPE"}}']
)
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tokenizer.json"
    assert load_refusal(path, content).startswith(f"{path}: ")


def test_a_truncated_tokenizer_file_is_refused(tmp_path: Path) -> None:
    content, path = tokenizer_of("one word").to_json().rstrip(), tmp_path / "tokenizer.json"
    for length in range(1, len(content), 97):
        assert load_refusal(path, content[:length]).startswith(f"{path}: not a tokenizer file")


def test_a_tokenizer_with_other_specials_is_refused(tmp_path: Path) -> None:
    state = json.loads(tokenizer_of("one word").to_json())
    vocabulary = state["model"]["vocab"]
    vocabulary["<pad>"], vocabulary["</s>"] = vocabulary["</s>"], vocabulary["<pad>"]
    path = tmp_path / "tokenizer.json"
    assert load_refusal(path, json.dumps(state)) == f"{path}: ids 0 to 3 must be <pad>, <unk>, <s>, </s>"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model.continuing_subword_prefix", "ééé"),  # the library would panic when it encodes
        ("model.end_of_word_suffix", "</w>"),
        ("model.type", "Unigram"),
        ("model.dropout", 0.5),
        ("model.byte_fallback", False),
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
        ("normalizer", None),
        ("normalizer.normalizers", []),
        ("pre_tokenizer", {"type": "FixedLength", "length": 0}),
        ("pre_tokenizer.pretokenizers.1.pattern", {"Regex": "(a+)+$"}),
        ("post_processor", {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}),
        ("decoder.decoders.0.content", "x"),
        ("decoder", None),
    ],
)
def test_a_tokenizer_with_other_settings_is_refused(tmp_path: Path, key: str, value: Any) -> None:
    state = json.loads(tokenizer_of("one word").to_json())
    *parents, last = key.split(".")
    node = state
    for parent in parents:
        node = node[int(parent)] if isinstance(node, list) else node[parent]
    node[last] = value
    assert "text processing differs" in load_refusal(tmp_path / "tokenizer.json", json.dumps(state))


def test_settings_that_are_off_may_be_absent_or_unknown(tmp_path: Path) -> None:
    """Other versions of the library have more or fewer of them."""
    tokenizer = tokenizer_of("one word")
    state = json.loads(tokenizer.to_json())
    del state["model"]["ignore_merges"], state["post_processor"], state["truncation"]
    state["model"]["something_new"] = None
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(state), encoding="utf-8")
    assert read_tokenizer(file).encode("one word") == tokenizer.encode("one word")


def test_a_very_long_line_does_not_delay_training() -> None:
    """One word of a million letters: learning from it would take minutes."""
    lines = ["the red house", "the old mouse is in the house"] * 20
    long_word = "".join(random.Random(1).choices("abcdefghij", k=1_000_000))
    letters = [" ".join("abcdefghij")]
    started = time.process_time()
    trained = BpeTokenizer.train([*lines, *letters, long_word], 300)
    assert time.process_time() - started < 20
    assert trained.decode(trained.encode(long_word[:2000])) == long_word[:2000]
    assert len(trained.encode("the house")) < len("the house")


@pytest.mark.parametrize("unit", [" ", "a dog ", "e\u0301", "\u1111\u1171\u11b6", "▁", "😀"])
def test_an_overlong_text_may_be_truncated_but_stays_overlong(unit: str) -> None:
    tokenizer = BpeTokenizer.train(["a dog and a cat, a dog"] * 9, 300)
    text = f"x{unit * 15_000}x"
    whole, (cut,) = tokenizer.encode(text), tokenizer.encode_batch([text], 20)
    assert 20 < len(cut) <= len(whole)
    assert tokenizer.encode_batch([text], len(whole)) == [whole]
    assert tokenizer.encode_batch([f" {unit * 9}", "y" + " " * 20_000], 20) == tokenizer.encode_batch([unit * 9, "y"])
