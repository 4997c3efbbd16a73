"""The first stage: cleaning of the training text alone, held-out sets, and a folder that is whole or absent."""

import json
import random
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from data_helpers import lines_in, make_config, make_data_config, write_lines, write_pairs
from mt.data.cleaning import cleaning_table
from mt.data.corpus import Pair
from mt.data.prepare import HELD_OUT, input_digests, prepare_text, warn_of_shared_text
from mt.errors import InputError
from mt.storage.manifest import sha256, verify

GOOD = [("one", "uno"), ("two", "due"), ("three", "tre")]
EXTRA = [("valid", "valido")]


@pytest.fixture
def held(tmp_path: Path) -> dict[str, Any]:
    """Validation and test sets of one pair, for tests that look at the training text."""
    source = write_pairs(tmp_path, "extra", EXTRA)
    return {"valid": source, "test": source}


def prepare(root: Path, train: list[Pair] | dict[str, str], seed: int = 1, name: str = "text", **data: Any) -> Path:
    """Prepares a text; returns the folder it lies in."""
    source = train if isinstance(train, dict) else write_pairs(root, "train", train)
    prepare_text(make_config(root, source, seed=seed, **data), root / name, "key")
    return root / name


def split(folder: Path, name: str) -> list[Pair]:
    return list(zip(lines_in(folder / f"{name}.source"), lines_in(folder / f"{name}.target"), strict=True))


def report(folder: Path) -> dict[str, dict[str, int]]:
    return json.loads((folder / "counts.json").read_bytes())


def test_cleaning_drops_and_counts_by_reason(tmp_path: Path, held: dict[str, Any]) -> None:
    pairs = [
        ("one", "uno"),
        ("", "vuoto"),
        ("empty", " \t"),
        ("one", "uno"),
        ("  one", "uno "),
        ("one", "un"),
        ("one uno", "x"),
        ("a", "b" * 90),
        ("b" * 90, "a"),
    ]
    folder = prepare(tmp_path, pairs, **held)
    assert split(folder, "train") == [("one", "uno"), ("one", "un"), ("one uno", "x")]
    expected = {"kept": 3, "empty": 2, "duplicate": 2, "badly proportioned": 2}
    parts = {
        split: [{"pairs": pairs, "target_lang": "it"}] for split, pairs in (("train", 3), ("valid", 1), ("test", 1))
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


def test_duplicates_may_stay(tmp_path: Path, held: dict[str, Any]) -> None:
    pairs = [*GOOD, *GOOD]
    assert split(prepare(tmp_path, pairs, drop_duplicates=False, **held), "train") == pairs


def test_duplicates_across_sources_are_dropped(tmp_path: Path, held: dict[str, Any]) -> None:
    first, second = write_pairs(tmp_path, "a", GOOD), write_pairs(tmp_path, "b", [("new", "nuovo"), *GOOD])
    prepare_text(make_config(tmp_path, [first, second], **held), tmp_path / "text", "key")
    assert split(tmp_path / "text", "train") == [*GOOD, ("new", "nuovo")]


def test_pairs_are_duplicates_only_with_both_sides_alike(tmp_path: Path, held: dict[str, Any]) -> None:
    pairs = [("a b", "c"), ("a", "b c"), ("ab", "c"), ("a", "bc"), ("a", "b"), ("b", "a"), ("A", "b")]
    assert split(prepare(tmp_path, pairs, **held), "train") == pairs


def test_nothing_is_dropped_from_validation_and_test(tmp_path: Path) -> None:
    awkward = [
        ("", ""),
        ("", "x"),
        ("a", "b" * 900),
        ("same", "same"),
        ("same", "same"),
        ("one", "uno"),
        ("z\rz", "\u2028 y"),
    ]
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
    """`size` source sentences with `repeat` translations each, mixed."""
    pairs = [(f"sentence {i}", f"frase {i} {r}") for i in range(size) for r in range(repeat)]
    random.Random(0).shuffle(pairs)
    return pairs


HOLD_OUT = {"valid": {"from_train": 20}, "test": {"from_train": 30}}


def test_a_text_that_is_held_out_whole_is_told_apart_from_one_that_cleaning_empties(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no sentence pair in it when those for validation and test are split off"):
        prepare(tmp_path, [("a b", "c d")] * 3, **HOLD_OUT)
    with pytest.raises(InputError, match="no sentence pair in it\n  check the files, and what cleaning"):
        prepare(tmp_path, [("a b", "")] * 3)


def test_held_out_sets_have_the_size_asked_for_and_nothing_is_lost(tmp_path: Path) -> None:
    pairs = corpus(500)
    folder = prepare(tmp_path, pairs, **HOLD_OUT)
    sets = {name: split(folder, name) for name in ("train", "valid", "test")}
    assert {name: len(rows) for name, rows in sets.items()} == {"train": 450, "valid": 20, "test": 30}
    assert sorted(row for rows in sets.values() for row in rows) == sorted(pairs)
    assert report(folder)["train"] == {"kept": 450, HELD_OUT: 50}
    places = {pair: place for place, pair in enumerate(pairs)}
    for rows in sets.values():
        assert [places[row] for row in rows] == sorted(places[row] for row in rows)


def test_no_source_sentence_is_on_two_sides(tmp_path: Path) -> None:
    pairs = [*corpus(300, repeat=3), *((f"  {src} ", tgt) for src, tgt in corpus(300))]
    folder = prepare(tmp_path, pairs, drop_duplicates=False, **HOLD_OUT)
    sources = {name: [source for source, _ in split(folder, name)] for name in ("train", "valid", "test")}
    assert {name: len(set(rows)) for name, rows in sources.items()} == {"train": 250, "valid": 20, "test": 30}
    assert len(set.union(*map(set, sources.values()))) == 300
    # The held-out sets have every sentence once, the training text keeps every pair of its own.
    assert {name: len(rows) for name, rows in sources.items()} == {"train": 1000, "valid": 20, "test": 30}
    assert report(folder)["train"] == {"kept": 1000, HELD_OUT: 200}


def test_the_choice_of_held_out_pairs_is_a_function_of_seed_and_sentences(tmp_path: Path) -> None:
    pairs = corpus(500)
    first = prepare(tmp_path, pairs, **HOLD_OUT)
    again = prepare(tmp_path, pairs, name="again", **HOLD_OUT)
    assert all((first / name).read_bytes() == (again / name).read_bytes() for name in verify(first)["files"])
    shuffled = prepare(tmp_path, pairs[::-1], name="shuffled", **HOLD_OUT)
    other_seed = prepare(tmp_path, pairs, seed=2, name="other", **HOLD_OUT)
    for name in ("valid", "test"):
        assert sorted(split(first, name)) == sorted(split(shuffled, name))
        assert len(set(split(first, name)) & set(split(other_seed, name))) < 10


def test_held_out_sets_are_a_sample_not_the_beginning(tmp_path: Path) -> None:
    pairs = corpus(1000)
    places = {pair: place for place, pair in enumerate(pairs)}
    held = [places[row] for row in split(prepare(tmp_path, pairs, **HOLD_OUT), "test")]
    assert min(held) < 200
    assert max(held) > 800


def test_a_held_out_set_is_lowered_to_a_tenth_with_a_notice(tmp_path: Path, notices: list[str]) -> None:
    folder = prepare(tmp_path, corpus(300), valid={"from_train": 20}, test={"from_train": 200})
    assert [len(split(folder, name)) for name in ("train", "valid", "test")] == [250, 20, 30]
    assert [line for line in notices if "from_train" in line] == [
        "data.test: from_train lowered from 200 to 30, a tenth of the text"
    ]


@pytest.mark.parametrize("seed", range(6))
def test_a_frequent_sentence_does_not_crowd_a_held_out_set(tmp_path: Path, seed: int) -> None:
    pairs = [*corpus(40), *((f"frequent {i % 8}", f"x {i}") for i in range(160))]
    folder = prepare(tmp_path, pairs, seed=seed, valid={"from_train": 5}, test={"from_train": 5})
    assert [len(split(folder, name)) for name in ("valid", "test")] == [4, 4]


def test_empty_pairs_are_not_held_out(tmp_path: Path) -> None:
    pairs = corpus(100)
    empty = [*((source, "") for source, _ in pairs), *((f"alone {i}", "") for i in range(100)), ("", "x")]
    folder = prepare(tmp_path, [*empty, *pairs], **HOLD_OUT)
    sets = [split(folder, name) for name in ("train", "valid", "test")]
    assert [len(rows) for rows in sets] == [80, 10, 10]
    assert sorted(row for rows in sets for row in rows) == sorted(pairs)
    assert report(folder)["train"]["empty"] == 201


def test_a_tiny_text_still_gives_all_three(tmp_path: Path) -> None:
    folder = prepare(tmp_path, GOOD)
    assert [len(split(folder, name)) for name in ("train", "valid", "test")] == [1, 1, 1]


def test_a_run_without_a_test_set(tmp_path: Path) -> None:
    folder = prepare(tmp_path, corpus(100), valid={"from_train": 5}, test=None)
    assert [len(split(folder, name)) for name in ("train", "valid", "test")] == [95, 5, 0]


@pytest.mark.parametrize("name", ["train", "valid", "test"])
def test_an_empty_set_is_refused_by_key(tmp_path: Path, name: str) -> None:
    sets = {key: write_pairs(tmp_path, key, [] if key == name else GOOD) for key in ("train", "valid", "test")}
    with pytest.raises(InputError) as caught:
        prepare(tmp_path, sets.pop("train"), **sets)
    assert caught.value.message == f"data.{name}: no sentence pair in it"
    assert not (tmp_path / "text").exists()


def test_a_text_that_cleaning_empties_is_refused(tmp_path: Path, held: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"data\.train: no sentence pair"):
        prepare(tmp_path, [("", "x"), ("x", ""), ("a", "b" * 900)], **held)


def test_a_failure_half_way_leaves_nothing(tmp_path: Path, held: dict[str, Any]) -> None:
    train = write_pairs(tmp_path, "train", corpus(3000))
    (tmp_path / "extra.it").write_bytes(b"caf\xe8\n")
    home = tmp_path / "run" / "data"
    with pytest.raises(InputError, match=r"extra\.it:1: not valid UTF-8"):
        prepare(tmp_path, train, name="run/data/text", **held)
    assert list(home.iterdir()) == []


def test_a_failure_half_way_leaves_the_earlier_text(tmp_path: Path, held: dict[str, Any]) -> None:
    folder = prepare(tmp_path, GOOD, **held)
    before = verify(folder)
    write_lines(tmp_path / "train.en", ["a", "b", "c", "d"])
    with pytest.raises(InputError, match="has 4 lines but"):
        prepare(tmp_path, {"source": "train.en", "target": "train.it"}, **held)
    assert verify(folder) == before
    assert split(folder, "train") == GOOD


def test_the_key_is_recorded(tmp_path: Path, held: dict[str, Any]) -> None:
    assert verify(prepare(tmp_path, GOOD, **held))["key"] == "key"


def test_what_is_wrong_with_validation_text_is_said_before_the_long_work(tmp_path: Path) -> None:
    source = write_pairs(tmp_path, "train", GOOD)
    (tmp_path / "bad.en").write_bytes(b"\xff\n")
    (tmp_path / "train.it").write_bytes(b"\xff\n")  # as bad, and read later
    with pytest.raises(InputError, match=r"bad\.en:1: not valid UTF-8"):
        prepare(tmp_path, source, valid={"source": "bad.en", "target": "train.en"}, test=None)


def test_pairs_that_keep_the_weight_of_an_earlier_source_are_told(tmp_path: Path, notices: list[str]) -> None:
    pairs = [(f"s {i}", f"t {i}") for i in range(20)]
    write_pairs(tmp_path, "train", pairs)
    web = {**write_pairs(tmp_path, "web", [*pairs[:12], ("x", "y")]), "weight": 0.5}
    own = write_pairs(tmp_path, "own", pairs)
    held = {"valid": own, "test": None}
    prepare_text(make_config(tmp_path, [web, own], **held), tmp_path / "a", "key")
    (told,) = [line for line in notices if "weight" in line]
    assert told.startswith("data.train: own.en and own.it: 12 of its 20 pairs are duplicates")
    prepare_text(make_config(tmp_path, [own, web], **held), tmp_path / "b", "key")
    assert "data.train: web.en and web.it: 12 of its 13 pairs" in notices[-1]
    del notices[:]
    prepare_text(make_config(tmp_path, [own, own], **held), tmp_path / "c", "key")
    assert not [line for line in notices if "weight" in line], "all have the same"


def decomposed(pairs: list[Pair]) -> list[Pair]:
    return [(unicodedata.normalize("NFD", src), unicodedata.normalize("NFD", tgt)) for src, tgt in pairs]


def test_text_in_two_normal_forms_is_one_text(tmp_path: Path) -> None:
    """Tokenizers see normal form C: what differs in the form alone would be training text that is tested on."""
    pairs = [(f"caf\u00e9 {number} \uac00", f"perch\u00e9 {number}") for number in range(400)]
    folder = prepare(tmp_path, pairs + decomposed(pairs), valid={"from_train": 20}, test={"from_train": 20})
    sources = {
        name: {unicodedata.normalize("NFC", src) for src, _ in split(folder, name)} for name in report(folder)["pairs"]
    }
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
def test_scores_on_the_training_text_are_warned_of(
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


def test_parts_of_a_hub_or_builtin_set_are_told_apart(tmp_path: Path, notices: list[str]) -> None:
    sets = {"valid": {"hub": "a/b", "split": "validation"}, "test": {"hub": "a/b"}}
    data = make_data_config(tmp_path, {"hub": "a/b"}, **sets)
    warn_of_shared_text(data)
    (told,) = notices
    assert told.startswith("data.test: has the same text")


def test_input_digests_name_every_source(tmp_path: Path) -> None:
    pairs = write_pairs(tmp_path, "train", GOOD)
    write_lines(tmp_path / "t.tsv", ["en\tit", "a\tb"])
    hub = {"hub": "owner/name", "config": "en-it", "revision": "abc"}
    train = [pairs, {"file": "t.tsv"}, hub, {"builtin": "phrasebook"}]
    digests = input_digests(make_data_config(tmp_path, train, valid={"file": "t.tsv"}, test={"from_train": 5}))
    assert set(digests) == {
        "data.train.0.source",
        "data.train.0.target",
        "data.train.1.file",
        "data.train.2",
        "data.train.3",
        "data.valid.file",
        "data.test",
    }
    assert digests["data.train.1.file"] == digests["data.valid.file"] == sha256(tmp_path / "t.tsv")
    assert digests["data.train.2"]["revision"] == "abc"
    assert json.loads(json.dumps(digests)) == digests


def test_input_digests_follow_the_content_not_the_place(tmp_path: Path) -> None:
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


def test_nothing_synthetic_is_held_out_nor_learned_beside_what_is(tmp_path: Path) -> None:
    human = corpus(300)
    back = [(f"<BT> {src} again", tgt) for src, tgt in human]
    distilled = [(src, f"{tgt} easier") for src, tgt in human]
    found_again = [(f"<BT> {src}", f"{tgt} otherwise") for src, tgt in human]  # the model says what people wrote
    apart = [(f"<BT> other {i}", f"altra {i}") for i in range(50)]
    sources = [
        {**write_pairs(tmp_path, "back", back + found_again + apart), "synthetic": True},
        write_pairs(tmp_path, "human", human),
        {**write_pairs(tmp_path, "distilled", distilled), "synthetic": True},
    ]
    prepare_text(make_config(tmp_path, sources, **HOLD_OUT), tmp_path / "text", "key")
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


def test_back_translations_are_not_held_out_unnoticed(tmp_path: Path) -> None:
    back = write_pairs(tmp_path, "back", [(f"<BT> {src}", tgt) for src, tgt in corpus(300)])
    sources = [write_pairs(tmp_path, "human", corpus(10)), back]
    with pytest.raises(
        InputError,
        match=r"data\.train: back\.en and back\.it: back-translated text \(<BT>\) could be split off",
    ) as caught:
        prepare_text(make_config(tmp_path, sources, **HOLD_OUT), tmp_path / "text", "key")
    assert "add `synthetic: true` to this source" in caught.value.hint
    # Nor is it chance whether one of them would be chosen.
    one = write_pairs(tmp_path, "one", [*corpus(300), ("<BT> a word", "una parola")])
    with pytest.raises(InputError, match=r"back-translated text \(<BT>\) could be split off"):
        prepare_text(make_config(tmp_path, one, **HOLD_OUT), tmp_path / "text", "key")
    # With sets of their own nothing is held out, and nothing is asked.
    own = write_pairs(tmp_path, "own", GOOD)
    prepare_text(make_config(tmp_path, sources, valid=own, test=own), tmp_path / "text", "key")


def test_a_text_that_is_all_synthetic_has_nothing_to_hold_out(tmp_path: Path) -> None:
    source = {**write_pairs(tmp_path, "back", corpus(100)), "synthetic": True}
    with pytest.raises(InputError, match="cannot be split off the training text, all of which is synthetic"):
        make_config(tmp_path, source, valid={"from_train": 5}, test=None)
