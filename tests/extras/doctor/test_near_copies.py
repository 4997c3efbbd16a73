"""Near duplicates, near copies of held-out pairs, and templates."""

import random
from pathlib import Path

import numpy as np
import pytest

from command import mt
from data_helpers import lines_in, make_config, write_pairs
from mt.config import Config
from mt.data import duplicates
from mt.data.cleaning import pair_hash
from mt.data.corpus import Pair
from mt.errors import InputError
from mt.extras.doctor import block_checks, check
from mt.extras.doctor.check import CorpusReport, check_corpus
from mt.extras.doctor.findings import bits
from mt.extras.doctor.pair_scores import PairScores, Values
from mt.extras.doctor.word_hashes import common_frame, frame_hashes, frequent_words, hash_words

WORDS = [
    first + last for first in "ba de fi go hu ka le mi no pu ra se ti vo".split() for last in "lon mar nis".split()
]


def sentence(rng: random.Random, words: int = 12) -> Pair:
    """Return a random sentence of distinct words, and its translation word by word."""
    drawn = rng.sample(WORDS, words)
    return " ".join(drawn), " ".join(f"{word}o" for word in drawn)


def edited(pair: Pair, position: int, edit: str, language: int = 2) -> Pair:
    """Return a pair with a word changed, added or left out on the first `language` sides."""
    sides = []
    for number, side in enumerate(pair):
        words = side.split()
        replacement = {"changed": ["other"], "added": [words[position], "other"], "left out": list[str]()}[edit]
        sides.append(" ".join([*words[:position], *replacement, *words[position + 1 :]]) if number < language else side)
    return sides[0], sides[1]


def corpus(folder: Path, train: list[Pair], test: list[Pair] = []) -> Config:  # noqa: B006
    valid = write_pairs(folder, "valid", [("something else", "qualcosa")])
    held_out = write_pairs(folder, "test", test or [("anything", "altro")])
    return make_config(folder, write_pairs(folder, "train", train), valid=valid, test=held_out)


def marked(report: CorpusReport, rule: str) -> list[int]:
    return np.flatnonzero(report.masks & bits(rule)).tolist()


def marked_in(folder: Path, rule: str, train: list[Pair], test: list[Pair] = [], **options: object) -> list[int]:  # noqa: B006
    return marked(check_corpus(corpus(folder, train, test), folder / "runs", 3, **options), rule)  # type: ignore[arg-type]


def judged(pairs: list[Pair], values: Values, directions: list[str] | None = None) -> PairScores:
    """Return scores of training pairs, of which none is low; without directions all are into Italian."""
    digests = (pair_hash(*pair, code) for pair, code in zip(pairs, directions or ["it"] * len(pairs), strict=True))
    hashes = np.frombuffer(b"".join(digests), np.uint64)
    return PairScores(values, hashes, np.zeros(len(pairs), np.bool_), None, (), "scores.tsv")


@pytest.mark.parametrize("edit", ["changed", "added", "left out"])
def test_a_test_pair_with_one_word_edited_is_a_near_leak(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edit: str
) -> None:
    monkeypatch.setattr(check, "_CHUNK_PAIRS", 11)
    rng = random.Random(7)
    test = [sentence(rng) for _ in range(40)]
    train = [sentence(rng) for _ in range(100)]
    copies = [edited(pair, number % 12, edit) for number, pair in enumerate(test)]
    one_side = [(" ".join(pair[0].split()[4:]) + " some quite other words", pair[1]) for pair in test[:10]]
    three = [edited(edited(edited(pair, 1, "changed"), 4, "left out"), 6, "changed") for pair in test]
    report = check_corpus(corpus(tmp_path, [*train, *copies, *one_side, *three], test), tmp_path / "runs", 200)
    assert marked(report, "near-leak") == list(range(100, 140))
    [finding] = [finding for finding in report.findings if finding.rule.name == "near-leak"]
    assert [example.note for example in finding.examples] == [
        f"almost as in {tmp_path}/test.en:{line}" for line in range(1, 41)
    ]


def test_long_sentences_may_differ_in_several_words(tmp_path: Path) -> None:
    pair = sentence(random.Random(3), 36)
    near = edited(edited(edited(pair, 5, "changed"), 17, "changed"), 30, "added")
    far = edited(edited(edited(near, 9, "changed"), 21, "changed"), 34, "changed")
    assert marked_in(tmp_path, "near-leak", [sentence(random.Random(4)), near, far], [pair]) == [1]


def test_sentences_in_chinese_and_japanese_are_compared_by_characters(tmp_path: Path) -> None:
    test = [("我们明天早上坐火车去北京参观故宫博物院", "私達は明日の朝、電車で北京へ行って博物館を見学します")]
    train = [
        ("我们明天早上坐汽车去北京参观故宫博物院", "私達は明日の朝、自動車で北京へ行って博物館を見学します"),
        ("他们昨天晚上在上海的一家饭店吃了晚饭", "彼らは昨日の夜、上海のレストランで夕食を食べました"),
    ]
    assert marked_in(tmp_path, "near-leak", train, test) == [0]
    assert marked_in(tmp_path, "near-duplicate", [train[1], *test, (train[0][0], f"{test[0][1]}よ")]) == [2]


def test_words_ignore_case_digits_and_punctuation() -> None:
    texts = ["Der 2. Hund\u00e9 bellt!", "", "der HUNDE\u0301 bellt", "x" * 10**6, "1 2 3 …", "日本語", "هٰذا كتاب"]
    words = hash_words(texts)
    assert words.counts.tolist() == [3, 0, 3, 1, 0, 3, 2]
    assert (words.hashes[:3] == words.hashes[3:6]).all()
    assert len(set(words.hashes.tolist())) == 9
    assert not set(words.hashes.tolist()) & set(hash_words(texts, "other").hashes.tolist())
    assert hash_words(["ab"]).hashes != hash_words(["ba"]).hashes
    alone = np.concatenate([hash_words([text]).hashes for text in texts])
    assert (alone == words.hashes).all()
    assert [len(each) for each in hash_words([])] == [0, 0]


def test_of_near_duplicates_the_first_or_the_best_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(5)
    pairs = [sentence(rng) for _ in range(30)]
    copies = [edited(pair, number % 12, "changed") for number, pair in enumerate(pairs)]
    respelt = [(f"{src.upper()} 12!", f"«{tgt}»") for src, tgt in pairs[:10]]
    other_source = [(sentence(rng)[0], tgt) for _, tgt in pairs[:5]]
    # Near copies of copies are none of the pairs that stay.
    remote = [edited(pair, 11, "left out") for pair in copies[:3]]
    train = [*pairs, *copies, *respelt, *other_source, *remote, ("", ""), ("x" * 99_999, "y" * 99_999)]
    assert marked_in(tmp_path, "near-duplicate", train) == list(range(30, 70))
    scores = np.arange(len(train), dtype=np.float32)
    scores[30:60] = np.nan
    best = [*range(10), *range(30, 65)]  # with scores, another source does not matter, and NaN is the lowest
    assert marked_in(tmp_path, "near-duplicate", train, scores=judged(train, scores)) == best
    monkeypatch.setattr(block_checks, "_SINGLE_PROCESS", 0)
    monkeypatch.setattr(check, "_CHUNK_PAIRS", 11)
    monkeypatch.setattr(duplicates, "_AT_ONCE", 50)
    assert marked_in(tmp_path, "near-duplicate", train) == list(range(30, 70))
    assert marked_in(tmp_path, "near-duplicate", train, scores=judged(train, scores)) == best


def test_pairs_of_two_directions_are_no_near_duplicates(tmp_path: Path) -> None:
    rng = random.Random(5)
    pairs = [sentence(rng) for _ in range(20)]
    others = [(sentence(rng)[0], edited(pair, 1, "changed")[1] if n % 2 else pair[1]) for n, pair in enumerate(pairs)]
    train = [
        {**write_pairs(tmp_path, name, each), "source_lang": name} for name, each in (("en", pairs), ("fr", others))
    ]
    valid = {**write_pairs(tmp_path, "valid", [("something else", "qualcosa")]), "source_lang": "en"}
    config = make_config(tmp_path, train, valid=valid, test=None, source_lang=["en", "fr"])
    scores = judged([*pairs, *others], np.arange(40, dtype=np.float32), ["en-it"] * 20 + ["fr-it"] * 20)
    assert marked(check_corpus(config, tmp_path / "runs", 3, scores=scores), "near-duplicate") == []


def test_many_pairs_take_less_than_256_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(duplicates, "_AT_ONCE", 50)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        assert marked_in(tmp_path, "template", templates(random.Random(8)) * 4)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_of_many_sources_the_best_stay(tmp_path: Path) -> None:
    rng = random.Random(6)
    target = sentence(rng)[1]
    train = [(sentence(rng)[0], target) for _ in range(6)] + [(sentence(rng)[0], "un altro") for _ in range(4)]
    assert marked_in(tmp_path, "many-sources", train) == list(range(10))
    scores = np.array([1, 3, np.nan, 3, -1, 0, np.nan, np.nan, np.nan, np.nan], np.float32)
    assert marked_in(tmp_path, "many-sources", train, scores=judged(train, scores)) == [0, 2, 4, 5, 6, 7, 8, 9]
    with pytest.raises(InputError, match=r"train.en:4 is not the pair that was scored"):
        marked_in(tmp_path, "many-sources", train, scores=judged(train[:3], scores[:3]))


def templates(rng: random.Random) -> list[Pair]:
    """Return 15 pairs of a template, 9 of another, and 60 other pairs, shuffled."""
    names = ["".join(rng.choices("abcdefghijk", k=8)) for _ in range(24)]
    pairs = [
        (f"The files of {name} {n} are in here.", f"Qui sono i file di {name} {n}.")
        for n, name in enumerate(names[:15])
    ]
    pairs += [
        (f"Install {name} with the help of it.", f"Si installi {name} con l'aiuto di esso.") for name in names[15:]
    ]
    common = "the files of are in here with help it install".split(), "qui sono i file di si con l aiuto esso".split()
    pairs += [(" ".join(rng.sample(common[0], 8)), " ".join(rng.sample(common[1], 8))) for _ in range(60)]
    rng.shuffle(pairs)
    return pairs


def test_templates_are_found_and_thinned(tmp_path: Path) -> None:
    pairs = templates(random.Random(8))
    family = [index for index, (src, _) in enumerate(pairs) if src.startswith("The files of ")]
    report = check_corpus(corpus(tmp_path, [*pairs, pairs[family[0]]]), tmp_path / "runs", 3)
    assert marked(report, "template") == family  # the repeated pair is a duplicate
    [finding] = [finding for finding in report.findings if finding.rule.name == "template"]
    assert [example.note for example in finding.examples] == [
        "15 pairs: The files of ⟨…⟩ are in here. / Qui sono i file di ⟨…⟩."
    ]
    assert len(finding.examples[0].locations) == 4
    scores = np.zeros(len(pairs), np.float32)
    scores[family[-2:]] = 1
    config = corpus(tmp_path, pairs)
    report = check_corpus(config, tmp_path / "runs", 0, scores=judged(pairs, scores), max_per_template=3)
    assert marked(report, "template") == family[1:-2]


def test_clean_keeps_some_pairs_of_each_template(tmp_path: Path) -> None:
    pairs = templates(random.Random(9))
    corpus(tmp_path, pairs)
    lines = ["name: mine", "data:", "  source_lang: en", "  target_lang: it"]
    lines += [f"  {split}: {{source: {split}.en, target: {split}.it}}" for split in ("train", "valid", "test")]
    (tmp_path / "mine.yaml").write_text("\n".join(lines) + "\n")
    clean = ["data", "clean", "mine.yaml", "--keep", "duplicate"]
    mt(*clean, "--output", "thinned", "--max-per-template", "4", cwd=tmp_path)
    kept = lines_in(tmp_path / "thinned" / "train.en")
    assert sum(line.startswith("The files of ") for line in kept) == 4
    assert len(kept) == len(pairs) - 11
    assert len(lines_in(tmp_path / "thinned" / "dropped" / "template.tsv")) == 12
    mt(*clean, "--output", "none", "--drop", "template", cwd=tmp_path)
    assert len(lines_in(tmp_path / "none" / "train.en")) == len(pairs) - 15
    assert (
        "contradict"
        in mt(*clean, "--output", "x", "--max-per-template", "4", "--keep", "template", cwd=tmp_path, code=2).stderr
    )
    assert "range" in mt(*clean, "--output", "x", "--max-per-template", "0", cwd=tmp_path, code=2).stderr


def test_frames_are_those_of_frequent_words_in_their_order() -> None:
    frequent = frequent_words(["the files of a b"] * 10 + ["rare words"] * 9)
    assert len(frequent) == 5

    def frames(*texts: str) -> list[int]:
        words = hash_words(texts)
        return frame_hashes((words, words), (frequent, frequent)).tolist()

    one, other, longer, first, swapped, *none = frames(
        "the files of X",
        "The files of Y Z!",
        "the files of a X",
        "X the files of",
        "files the of X",
        "the files of",
        "the files X",
        "the files of X the Y U V W O P",
        "",
        "1",
    )
    assert one == other > 0
    assert len({one, longer, first, swapped}) == 4
    assert set(none[:2] + none[3:]) == {0}
    assert frames("") == [0]


@pytest.mark.parametrize(
    ("texts", "frame"),
    [
        (["Files for A.", "Files for B c."], "Files for ⟨…⟩."),
        (["Kurds speak (ku) it", "Poles speak (pl) it", "Danes speak it"], "⟨…⟩ speak ⟨…⟩ it"),
        (["安装火狐浏览器的文件", "安装谷歌浏览器的文件"], "安装 ⟨…⟩浏览器的文件"),
        (["same", "same"], "same"),
        (["", ""], ""),
    ],
)
def test_the_common_frame_has_slots_for_differences(texts: list[str], frame: str) -> None:
    assert common_frame(texts) == frame
