"""Preparation of the text: cleaning of training text only, held-out sets, and an atomic folder."""

import json
import random
import time
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from command import mt
from conftest import CONFIG, TWO_LANGUAGES, write_corpus
from data_helpers import lines_in, make_config, make_data_config, write_lines, write_pairs
from mt.config import load_config, parse_config
from mt.data import split as split_module
from mt.data.cleaning import cleaning_table
from mt.data.corpus import Pair
from mt.data.prepare import HELD_OUT, drop_missing_sources, input_digests, prepare_text, warn_of_shared_text
from mt.errors import InputError
from mt.extras.doctor.bitexts import bitexts_of
from mt.storage.manifest import sha256, verify

GOOD = [("one", "uno"), ("two", "due"), ("three", "tre")]
EXTRA = [("valid", "valido")]


@pytest.fixture
def held(tmp_path: Path) -> dict[str, Any]:
    """Validation and test sets of one pair, for tests of the training text."""
    source = write_pairs(tmp_path, "extra", EXTRA)
    return {"valid": source, "test": source}


def prepare(root: Path, train: Any, seed: int = 1, name: str = "text", **data: Any) -> Path:
    """Prepare a text given as pairs, a source, or a list of sources, and return its folder."""
    is_pairs = isinstance(train, list) and isinstance(train[0], tuple) if train else True
    source = write_pairs(root, "train", train) if is_pairs else train
    prepare_text(make_config(root, source, seed=seed, **data), root / name, "key")
    return root / name


def split(folder: Path, name: str) -> list[Pair]:
    return list(zip(lines_in(folder / f"{name}.source"), lines_in(folder / f"{name}.target"), strict=True))


def splits(folder: Path) -> dict[str, list[Pair]]:
    return {name: split(folder, name) for name in ("train", "valid", "test")}


def report(folder: Path) -> dict[str, dict[str, int]]:
    return json.loads((folder / "counts.json").read_bytes())


def test_cleaning_drops_and_counts_by_reason(tmp_path: Path, held: dict[str, Any]) -> None:
    empty, unequal = [("", "vuoto"), ("empty", " \t")], [("a", "b" * 90), ("b" * 90, "a")]
    duplicates = [("one", "uno"), ("  one", "uno ")]
    pairs = [("one", "uno"), *empty, *duplicates, ("one", "un"), ("one uno", "x"), *unequal]
    folder = prepare(tmp_path, pairs, **held)
    assert split(folder, "train") == [("one", "uno"), ("one", "un"), ("one uno", "x")]
    expected = {"kept": 3, "empty": 2, "duplicate": 2, "badly proportioned": 2}
    parts = {
        split: [{"pairs": pairs, "target_lang": "it", "source_lang": ""}]
        for split, pairs in (("train", 3), ("valid", 1), ("test", 1))
    }
    assert report(folder) == {"pairs": {"train": 3, "valid": 1, "test": 1}, "train": expected, "parts": parts}


def test_the_ratio_forgives_ten_characters_and_counts_no_bytes(tmp_path: Path, held: dict[str, Any]) -> None:
    # (20 + 10) / (5 + 10) is the limit itself; in bytes the second pair would be far beyond it.
    pairs = [("a" * 5, "b" * 20), ("a" * 5, "日" * 20), ("c" * 20, "d" * 5), ("a" * 5, "b" * 21), ("c" * 21, "d" * 5)]
    folder = prepare(tmp_path, pairs, max_ratio=2.0, **held)
    assert split(folder, "train") == pairs[:3]
    assert report(folder)["train"] == {"kept": 3, "badly proportioned": 2}
    folder = prepare(tmp_path, pairs, max_ratio=None, **held)
    assert split(folder, "train") == pairs


def test_duplicates_are_dropped_across_sources_if_both_sides_are_equal(tmp_path: Path, held: dict[str, Any]) -> None:
    distinct = [("a b", "c"), ("a", "b c"), ("ab", "c"), ("a", "bc"), ("a", "b"), ("b", "a"), ("A", "b")]
    sources = [write_pairs(tmp_path, "a", distinct), write_pairs(tmp_path, "b", [("new", "nuovo"), *distinct])]
    assert split(prepare(tmp_path, sources, **held), "train") == [*distinct, ("new", "nuovo")]
    kept = split(prepare(tmp_path, sources, drop_duplicates=False, **held), "train")
    assert kept == [*distinct, ("new", "nuovo"), *distinct]


def test_nothing_is_dropped_from_validation_and_test(tmp_path: Path) -> None:
    same = ("same", "same")
    awkward = [("", ""), ("", "x"), ("a", "b" * 900), same, same, ("one", "uno"), ("z\rz", "\u2028 y")]
    source = write_pairs(tmp_path, "awkward", awkward)
    folder = prepare(tmp_path, GOOD, valid=source, test=[source, source])
    kept = [(src.strip(), tgt.strip()) for src, tgt in awkward]
    assert split(folder, "valid") == kept
    assert split(folder, "test") == kept + kept
    assert report(folder)["pairs"] == {"train": 3, "valid": 7, "test": 14}
    assert report(folder)["train"] == {"kept": 3}


def test_the_table_of_counts_has_every_reason_and_its_share() -> None:
    table = cleaning_table({"kept": 2994, "empty": 6})
    assert [line.split() for line in table.splitlines()] == [
        ["training", "pairs", "count", "share"],
        ["kept", "2,994", "99.8", "%"],
        ["empty", "6", "0.2", "%"],
    ]


def corpus(size: int, repeat: int = 1) -> list[Pair]:
    """Return `size` source sentences with `repeat` translations each, shuffled."""
    pairs = [(f"sentence {i}", f"frase {i} {r}") for i in range(size) for r in range(repeat)]
    random.Random(0).shuffle(pairs)
    return pairs


HOLD_OUT = {"valid": {"from_train": 20}, "test": {"from_train": 30}}


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([("a b", "c d")] * 3, "no sentence pair in it when those for validation and test are split off"),
        ([("", "x"), ("a b", "")], "no sentence pair in it\n  check the files, and what cleaning"),
    ],
)
def test_the_reason_for_an_empty_training_text_is_reported(tmp_path: Path, pairs: list[Pair], message: str) -> None:
    with pytest.raises(InputError, match=rf"data\.train: {message}"):
        prepare(tmp_path, pairs, **HOLD_OUT)


def test_held_out_sets_have_the_requested_size_and_nothing_is_lost(tmp_path: Path) -> None:
    pairs = corpus(500)
    folder = prepare(tmp_path, pairs, **HOLD_OUT)
    sets = splits(folder)
    assert {name: len(rows) for name, rows in sets.items()} == {"train": 450, "valid": 20, "test": 30}
    assert sorted(row for rows in sets.values() for row in rows) == sorted(pairs)
    assert report(folder)["train"] == {"kept": 450, HELD_OUT: 50}
    for rows in sets.values():
        indices = list(map(pairs.index, rows))
        assert indices == sorted(indices)
        assert indices[0] < 100 < 400 < indices[-1], "it is a sample, not the beginning"


def test_no_source_sentence_is_in_two_splits(tmp_path: Path) -> None:
    pairs = [*corpus(300, repeat=3), *((f"  {src} ", tgt) for src, tgt in corpus(300))]
    folder = prepare(tmp_path, pairs, drop_duplicates=False, **HOLD_OUT)
    sources = {name: [source for source, _ in rows] for name, rows in splits(folder).items()}
    assert {name: len(set(rows)) for name, rows in sources.items()} == {"train": 250, "valid": 20, "test": 30}
    assert len(set.union(*map(set, sources.values()))) == 300
    # The held-out sets have every sentence once, the training text keeps every pair of its own.
    assert {name: len(rows) for name, rows in sources.items()} == {"train": 1000, "valid": 20, "test": 30}
    assert report(folder)["train"] == {"kept": 1000, HELD_OUT: 200}


def test_the_choice_of_held_out_pairs_is_a_function_of_seed_and_sentences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = corpus(500)
    first = prepare(tmp_path, pairs, **HOLD_OUT)
    monkeypatch.setattr(split_module, "_AT_ONCE", 50)
    again = prepare(tmp_path, pairs, name="again", **HOLD_OUT)
    assert all((first / name).read_bytes() == (again / name).read_bytes() for name in verify(first)["files"])
    shuffled = prepare(tmp_path, pairs[::-1], name="shuffled", **HOLD_OUT)
    other_seed = prepare(tmp_path, pairs, seed=2, name="other", **HOLD_OUT)
    for name in ("valid", "test"):
        assert sorted(split(first, name)) == sorted(split(shuffled, name))
        assert len(set(split(first, name)) & set(split(other_seed, name))) < 10


def test_a_held_out_set_is_lowered_to_a_tenth_with_a_warning(tmp_path: Path, notices: list[str]) -> None:
    folder = prepare(tmp_path, corpus(300), valid={"from_train": 20}, test={"from_train": 200})
    assert list(map(len, splits(folder).values())) == [250, 20, 30]
    assert [line for line in notices if "from_train" in line] == [
        "data.test: from_train lowered from 200 to 30, a tenth of the text"
    ]


@pytest.mark.parametrize("seed", range(6))
def test_frequent_sentences_do_not_fill_a_held_out_set(tmp_path: Path, seed: int) -> None:
    pairs = [*corpus(40), *((f"frequent {i % 8}", f"x {i}") for i in range(160))]
    folder = prepare(tmp_path, pairs, seed=seed, valid={"from_train": 5}, test={"from_train": 5})
    assert [len(split(folder, name)) for name in ("valid", "test")] == [4, 4]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_reverse_of_a_test_pair_is_no_validation_pair(tmp_path: Path, seed: int) -> None:
    write_pairs(tmp_path, "train", corpus(200))
    source = {"source": "train.en", "target": "train.it", "source_lang": "en", "target_lang": "it", "both_ways": True}
    languages = {"source_lang": ["en", "it"], "target_lang": ["en", "it"]}
    folder = prepare(tmp_path, source, seed, **languages, **HOLD_OUT)
    valid, test = split(folder, "valid"), split(folder, "test")
    assert (len(valid), len(test)) == (20, 30)
    assert not set(valid) & {(tgt, src) for src, tgt in test}
    held_out = {text for pair in valid + test for text in pair}
    assert not held_out & {text for pair in split(folder, "train") for text in pair}


def test_large_sets_of_several_source_languages_are_split_off_in_linear_time(tmp_path: Path) -> None:
    write_pairs(tmp_path, "train", corpus(60_000))
    source = {"source": "train.en", "target": "train.it", "source_lang": "en", "target_lang": "it", "both_ways": True}
    sizes = {"valid": {"from_train": 6000}, "test": {"from_train": 6000}}
    data = make_data_config(tmp_path, source, source_lang=["en", "it"], target_lang=["en", "it"], **sizes)
    started = time.process_time()
    assert split_module.Split(data, 1)
    assert time.process_time() - started < 8


def test_empty_pairs_are_not_held_out(tmp_path: Path) -> None:
    pairs = corpus(100)
    empty = [*((source, "") for source, _ in pairs), *((f"alone {i}", "") for i in range(100)), ("", "x")]
    folder = prepare(tmp_path, [*empty, *pairs], **HOLD_OUT)
    sets = splits(folder).values()
    assert list(map(len, sets)) == [80, 10, 10]
    assert sorted(row for rows in sets for row in rows) == sorted(pairs)
    assert report(folder)["train"]["empty"] == 201


def test_a_tiny_text_and_a_run_without_a_test_set(tmp_path: Path) -> None:
    assert list(map(len, splits(prepare(tmp_path, GOOD)).values())) == [1, 1, 1]
    folder = prepare(tmp_path, corpus(100), valid={"from_train": 5}, test=None)
    assert list(map(len, splits(folder).values())) == [95, 5, 0]


@pytest.mark.parametrize("name", ["train", "valid", "test"])
def test_an_empty_set_is_refused_by_key(tmp_path: Path, name: str) -> None:
    sets = {key: write_pairs(tmp_path, key, [] if key == name else GOOD) for key in ("train", "valid", "test")}
    with pytest.raises(InputError) as caught:
        prepare(tmp_path, sets.pop("train"), **sets)
    assert caught.value.message == f"data.{name}: no sentence pair in it"
    assert not (tmp_path / "text").exists()


def test_a_failure_leaves_the_earlier_text_or_nothing(tmp_path: Path, held: dict[str, Any]) -> None:
    folder = prepare(tmp_path, GOOD, **held)
    before = verify(folder)
    assert before["key"] == "key"
    write_lines(tmp_path / "train.en", ["a", "b", "c", "d"])
    with pytest.raises(InputError, match="has 4 lines but"):
        prepare(tmp_path, {"source": "train.en", "target": "train.it"}, **held)
    assert verify(folder) == before
    assert split(folder, "train") == GOOD
    # Errors of the validation text are reported first, before the training text is read.
    (tmp_path / "extra.it").write_bytes(b"caf\xe8\n")
    with pytest.raises(InputError, match=r"extra\.it:1: not valid UTF-8"):
        prepare(tmp_path, {"source": "train.en", "target": "train.it"}, name="run/data/text", **held)
    assert list((tmp_path / "run" / "data").iterdir()) == []


def test_duplicates_with_the_weight_of_an_earlier_source_are_reported(tmp_path: Path, notices: list[str]) -> None:
    pairs = [(f"s {i}", f"t {i}") for i in range(20)]
    write_pairs(tmp_path, "train", pairs)
    web = {**write_pairs(tmp_path, "web", [*pairs[:12], ("x", "y")]), "weight": 0.5}
    own = write_pairs(tmp_path, "own", pairs)
    held = {"valid": own, "test": None}
    prepare(tmp_path, [web, own], **held)
    (warning,) = [line for line in notices if "weight" in line]
    assert warning.startswith("data.train: own.en and own.it: 12 of its 20 pairs are duplicates")
    prepare(tmp_path, [own, web], **held)
    assert "data.train: web.en and web.it: 12 of its 13 pairs" in notices[-1]
    del notices[:]
    prepare(tmp_path, [own, own], **held)
    assert not [line for line in notices if "weight" in line], "all have the same weight"


def decomposed(pairs: list[Pair]) -> list[Pair]:
    return [(unicodedata.normalize("NFD", src), unicodedata.normalize("NFD", tgt)) for src, tgt in pairs]


def test_text_in_two_normal_forms_is_one_text(tmp_path: Path) -> None:
    """Tokenizers normalise to form C: text that differs in its form alone would be in training and test."""
    pairs = [(f"caf\u00e9 {number} \uac00", f"perch\u00e9 {number}") for number in range(400)]
    folder = prepare(tmp_path, pairs + decomposed(pairs), valid={"from_train": 20}, test={"from_train": 20})
    sources = {name: {unicodedata.normalize("NFC", src) for src, _ in rows} for name, rows in splits(folder).items()}
    assert not sources["train"] & (sources["valid"] | sources["test"])
    assert report(folder)["pairs"] == {"train": 360, "valid": 20, "test": 20}
    assert report(folder)["train"] == {"kept": 360, HELD_OUT: 80, "duplicate": 360}


@pytest.mark.parametrize(
    ("valid", "shared"),
    [
        ({"source": "copy.en", "target": "copy.it"}, True),
        ({"source": "copy.it", "target": "copy.en"}, False),
        ({"source": "other.en", "target": "other.it"}, False),
        ({"source": "longer.en", "target": "longer.it"}, False),
        ({"source": "decomposed.en", "target": "decomposed.it"}, True),
        ({"file": "table.tsv", "source_column": "en", "target_column": "it"}, True),
        ({"from_train": 1}, False),
    ],
)
def test_scoring_on_the_training_text_gives_a_warning(
    tmp_path: Path, notices: list[str], valid: dict[str, Any], shared: bool
) -> None:
    text = [*GOOD, ("four, \u00e9", "quattro, \u00e8")]
    train = [write_pairs(tmp_path, "more", EXTRA), write_pairs(tmp_path, "train", text)]
    write_pairs(tmp_path, "copy", text)
    write_pairs(tmp_path, "other", text[:3])
    write_pairs(tmp_path, "longer", [*text, ("five", "cinque")])
    write_pairs(tmp_path, "decomposed", decomposed(text))
    write_lines(tmp_path / "table.tsv", ["en\tit", *("\t".join(pair) for pair in text)])
    data = make_data_config(tmp_path, train, valid=valid, test=None)
    warn_of_shared_text(data)
    assert notices == (
        ["data.valid: has the same text as data.train; its scores mean nothing for new sentences"] * shared
    )


def test_splits_of_a_hub_data_set_are_different_text(tmp_path: Path, notices: list[str]) -> None:
    sets = {"valid": {"hub": "a/b", "split": "validation"}, "test": {"hub": "a/b"}}
    data = make_data_config(tmp_path, {"hub": "a/b"}, **sets)
    warn_of_shared_text(data)
    (warning,) = notices
    assert warning.startswith("data.test: has the same text")


def test_input_digests_name_every_source(tmp_path: Path) -> None:
    pairs = write_pairs(tmp_path, "train", GOOD)
    write_lines(tmp_path / "t.tsv", ["en\tit", "a\tb"])
    hub = {"hub": "owner/name", "config": "en-it", "revision": "abc"}
    train = [pairs, {"file": "t.tsv"}, hub, {"builtin": "phrasebook"}]
    digests = input_digests(make_data_config(tmp_path, train, valid={"file": "t.tsv"}, test={"from_train": 5}))
    keys = "train.0.source train.0.target train.1.file train.2 train.3 valid.file test"
    assert set(digests) == {f"data.{key}" for key in keys.split()}
    assert digests["data.train.1.file"] == digests["data.valid.file"] == sha256(tmp_path / "t.tsv")
    assert digests["data.train.2"]["revision"] == "abc"
    assert json.loads(json.dumps(digests)) == digests


def test_input_digests_depend_on_the_content_not_the_folder(tmp_path: Path) -> None:
    source = write_pairs(tmp_path, "train", GOOD)
    before = input_digests(make_data_config(tmp_path, source))
    assert set(before) == {"data.train.source", "data.train.target", "data.valid", "data.test"}
    (tmp_path / "moved").mkdir()
    write_pairs(tmp_path / "moved", "train", GOOD)
    assert input_digests(make_data_config(tmp_path / "moved", source)) == before
    write_lines(tmp_path / "train.it", ["uno", "due", "TRE"])
    after = input_digests(make_data_config(tmp_path, source))
    assert {key for key in before if before[key] != after[key]} == {"data.train.target"}


def test_a_missing_input_names_the_file_and_the_root(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        input_digests(make_data_config(tmp_path, {"source": "none.en", "target": "none.it"}))
    assert caught.value.message == f"{tmp_path / 'none.en'}: no such file"
    assert f"data.root, which is '{tmp_path}'" in caught.value.hint
    (tmp_path / "folder.tsv").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        input_digests(make_data_config(tmp_path, {"file": "folder.tsv"}))
    with pytest.raises(InputError, match="File name too long"):
        input_digests(make_data_config(tmp_path, {"file": f"{'a' * 300}.tsv"}))


def test_a_pipe_is_refused_before_it_is_read(tmp_path: Path) -> None:
    write_pairs(tmp_path, "train", GOOD)
    (tmp_path / "pipe.it").symlink_to("/dev/null")  # as a pipe no regular file, but reading it ends
    data = make_data_config(tmp_path, {"source": "train.en", "target": "pipe.it"})
    for reader in (input_digests, bitexts_of):
        with pytest.raises(InputError, match="a pipe, not a file"):
            reader(data)


def test_synthetic_pairs_are_never_held_out_and_dropped_beside_held_out_ones(tmp_path: Path) -> None:
    human = corpus(300)
    back = [(f"<BT> {src} again", tgt) for src, tgt in human]
    distilled = [(src, f"{tgt} easier") for src, tgt in human]
    found_again = [(f"<BT> {src}", f"{tgt} otherwise") for src, tgt in human]  # back-translation restores the source
    apart = [(f"<BT> other {i}", f"altra {i}") for i in range(50)]
    sources = [
        {**write_pairs(tmp_path, "back", back + found_again + apart), "synthetic": True},
        write_pairs(tmp_path, "human", human),
        {**write_pairs(tmp_path, "distilled", distilled), "synthetic": True},
    ]
    prepare(tmp_path, sources, **HOLD_OUT)
    held = [pair for name in ("valid", "test") for pair in split(tmp_path / "text", name)]
    assert len(held) == 50
    assert set(held) <= set(human)
    held_sources, held_targets = ({pair[side] for pair in held} for side in (0, 1))
    expected = [
        *(pair for pair in back if pair[1] not in held_targets),
        *(pair for pair in found_again if pair[0].removeprefix("<BT> ") not in held_sources),
        *apart,
        *(pair for pair in human if pair not in held),
        *(pair for pair in distilled if pair[0] not in held_sources),
    ]
    assert split(tmp_path / "text", "train") == expected
    assert report(tmp_path / "text")["train"] == {"kept": 1050, HELD_OUT: 200}


def test_tagged_back_translations_are_never_held_out(tmp_path: Path) -> None:
    back = write_pairs(tmp_path, "back", [(f"<BT> {src}", tgt) for src, tgt in corpus(300)])
    sources = [write_pairs(tmp_path, "human", corpus(10)), back]
    message = r"data\.train: back\.en and back\.it: back-translated text \(<BT>\) could be split off"
    with pytest.raises(InputError, match=message) as caught:
        prepare(tmp_path, sources, **HOLD_OUT)
    assert "add `synthetic: true` to this source" in caught.value.hint
    # A single one is refused even if it would not be chosen.
    one = write_pairs(tmp_path, "one", [*corpus(300), ("<BT> a word", "una parola")])
    with pytest.raises(InputError, match=r"back-translated text \(<BT>\) could be split off"):
        prepare(tmp_path, one, **HOLD_OUT)
    # With separate validation and test files nothing is held out.
    own = write_pairs(tmp_path, "own", GOOD)
    prepare(tmp_path, sources, valid=own, test=own)


def test_a_text_that_is_all_synthetic_has_nothing_to_hold_out(tmp_path: Path) -> None:
    source = {**write_pairs(tmp_path, "back", corpus(100)), "synthetic": True}
    with pytest.raises(InputError, match="cannot be split off the training text, all of which is synthetic"):
        make_config(tmp_path, source, valid={"from_train": 5}, test=None)


TINY_TRAIN = "train: {source: train.en, target: train.xx}"
MORE = CONFIG.replace(
    TINY_TRAIN, "train: [{source: train.en, target: train.xx}, {source: train.en, target: more.xx, optional: true}]"
)


@pytest.mark.slow
def test_a_missing_optional_source_is_left_out_and_reported(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    (tmp_path / "tiny.yaml").write_text(MORE)
    train = ("train", "--config", "tiny.yaml", "--set", "training.max_steps=4")
    warnings = mt("train", "--config", "tiny.yaml", "--dry-run", cwd=tmp_path).stderr
    assert "data.train: an optional source is left out: more.xx does not exist" in warnings
    mt(*train, cwd=tmp_path)
    alone = load_config(tmp_path / "runs" / "tiny" / "config.yaml").data.train
    assert [(source.target, source.optional) for source in alone] == [("train.xx", False)]  # type: ignore[union-attr]
    assert (
        "data.train: an optional source is left out: more.xx" in mt("data", "check", "tiny.yaml", cwd=tmp_path).stderr
    )

    # Once it exists, it is an input like any other, and the run has different data.
    (tmp_path / "more.xx").write_text((tmp_path / "train.xx").read_text().replace("K", "k"))
    changed = mt(*train, cwd=tmp_path, code=2).stderr
    assert "left out" not in changed
    assert "data.train" in changed
    mt(*train, "--set", "name=both", cwd=tmp_path)
    assert len(load_config(tmp_path / "runs" / "both" / "config.yaml").data.train) == 2


def test_optional_sources_are_named_by_their_files(tmp_path: Path, notices: list[str]) -> None:
    write_pairs(tmp_path, "there", GOOD)
    languages = {"source_lang": ["en", "it"], "target_lang": ["en", "it"]}
    both_ways = {"source_lang": "en", "target_lang": "it", "both_ways": True}
    train = [{"source": f"{stem}.en", "target": f"{stem}.it", **both_ways} for stem in ("there", "gone")]
    config = make_config(tmp_path, [train[0], train[1] | {"optional": True}], **languages, test=None)
    assert len(drop_missing_sources(config).data.train) == 2
    assert notices == [
        f"data.train: an optional source is left out: {tmp_path}/gone.en and {tmp_path}/gone.it does not exist"
    ]


SYNTHETIC = "[{source: a.en, target: a.xx, optional: true}, {source: b.en, target: b.xx, synthetic: true}]"


@pytest.mark.parametrize(
    ("text", "changes", "message"),
    [
        (CONFIG.replace("train.xx}", "train.xx, optional: true}"), [], r"data\.train: no source in xx exists"),
        (TWO_LANGUAGES, ["data.train.1.optional=true"], "no source in yy exists"),
        (
            CONFIG.replace(TINY_TRAIN, f"train: {SYNTHETIC}"),
            ["data.valid={from_train: 5}"],
            r"data\.valid: cannot be split off .* only its synthetic sources exist",
        ),
    ],
)
def test_the_remaining_sources_must_suffice(tmp_path: Path, text: str, changes: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        drop_missing_sources(parse_config(text, "x.yaml", [f"data.root={tmp_path}", *changes]))


def test_a_language_needs_a_source_on_its_own_side(tmp_path: Path) -> None:
    train = [
        {**write_pairs(tmp_path, "there", GOOD), "source_lang": "en", "target_lang": "it"},
        {"source": "gone.it", "target": "gone.en", "source_lang": "it", "target_lang": "en", "optional": True},
    ]
    own = train[0]
    both = {"source_lang": ["en", "it"], "target_lang": ["it", "en"]}
    config = make_config(tmp_path, train, **both, valid=own, test=None)
    with pytest.raises(InputError, match=r"data\.train: no source in en exists"):
        drop_missing_sources(config)


def test_only_training_text_is_optional() -> None:
    with pytest.raises(InputError, match=r"data\.valid: is optional, which is for training text only"):
        parse_config(CONFIG.replace("valid.xx}", "valid.xx, optional: true}"), "x.yaml")
