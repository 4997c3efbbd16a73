"""The commands `mt data score`, and `mt data clean` by scores."""

import errno
import json
import math
import random
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from command import Command, mt
from conftest import LETTERS, TWO_LANGUAGES, into, made_once
from data_helpers import lines_in, make_config, write_lines, write_pairs
from mt.api.corpora import score_corpus, sources_by_languages
from mt.config import load_config, parse_config
from mt.data.corpus import Pair
from mt.data.prepare import prepare_text
from mt.errors import InputError, MachineError
from mt.extras.doctor import pair_scores, scoring
from mt.extras.doctor.bitexts import bitexts_of
from mt.extras.doctor.pair_scores import RAW, load_scores, require_scores_folder, write_scores
from mt.storage import atomic

CONFIG = """\
name: judged
data:
  source_lang: en
  target_lang: xx
  train: {source: train.en, target: train.xx}
  valid: {from_train: 1}
  test: null
tokenizer: {vocab_size: 300}
"""


@pytest.fixture(scope="module")
def judges(two_languages: Path, tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    """Options that name a model into two languages, and one back from the first."""

    def make(folder: Path) -> None:
        (folder / "back.yaml").write_text(yaml.safe_dump({**config, "name": "back"}))
        mt("train", "--config", "back.yaml", cwd=folder)

    config = yaml.safe_load(TWO_LANGUAGES)
    texts = {split: [str(two_languages / f"{split}.{code}") for code in ("xx", "en")] for split in ("train", "valid")}
    data = {split: dict(zip(("source", "target"), sides, strict=True)) for split, sides in texts.items()}
    config["data"] = {"source_lang": "xx", "target_lang": "en", "test": None, **data}
    folder = made_once(tmp_path_factory, "judges", make)
    return ["--forward", two_languages / "runs" / "two", "--backward", folder / "runs" / "back"]


def corpus(folder: Path, pairs: int, wrong: int, shortest: int = 1) -> set[int]:
    """Write a training text of which some pairs are wrong, and return their indices."""
    rng = random.Random(3)
    sources = [" ".join(rng.choice(LETTERS) for _ in range(rng.randint(shortest, 6))) for _ in range(pairs)]
    targets = [into("xx", source) for source in sources]
    chosen = rng.sample(range(pairs), wrong)
    for index, other in zip(chosen, [*chosen[1:], *chosen[:1]], strict=True):
        targets[index] = into("xx", sources[other])
    write_lines(folder / "train.en", sources)
    write_lines(folder / "train.xx", targets)
    (folder / "judged.yaml").write_text(CONFIG)
    return {index for index in chosen if targets[index] != into("xx", sources[index])}


def table(folder: Path) -> list[dict[str, str]]:
    header, *rows = (line.split("\t") for line in lines_in(folder / "scores" / "scores.tsv"))
    return [dict(zip(header, row, strict=True)) for row in rows]


def score(folder: Path, *words: object, code: int = 0) -> str:
    return mt("data", "score", "judged.yaml", "--output", "scores", *words, cwd=folder, code=code).stderr


def test_wrong_pairs_have_low_scores_whatever_their_length(judges: list[object], tmp_path: Path) -> None:
    wrong = corpus(tmp_path, 400, 100)
    score(tmp_path, *judges)
    rows, summary = table(tmp_path), json.loads((tmp_path / "scores" / "scores.json").read_text())
    low = {index for index, row in enumerate(rows) if float(row["score"]) < summary["min_score"]}
    assert len(low & wrong) >= 0.9 * len(wrong)
    assert len(low - wrong) <= 0.05 * (len(rows) - len(wrong))
    short = {index for index, line in enumerate(lines_in(tmp_path / "train.en")) if len(line) == 1} - wrong
    assert len(low & short) <= 0.1 * len(short)
    assert [row["line"] for row in rows] == [str(number) for number in range(1, 401)]
    right = [row for index, row in enumerate(rows) if index not in wrong]
    assert sum(float(row["lexicon"]) > 0.5 for row in right) > 0.9 * len(right)
    for row in rows:
        assert 0 < float(row["dual"]) <= 1
        assert float(row["ratio"]) == pytest.approx(1, abs=12)


@pytest.mark.slow
def test_an_interrupted_scoring_resumes_to_the_same_bytes(judges: list[object], tmp_path: Path) -> None:
    folders = [tmp_path / "whole", tmp_path / "killed"]
    for folder in folders:
        folder.mkdir()
        corpus(folder, 5000, 100)
    score(folders[0], *judges)
    unfinished = folders[1] / "scores" / ".features.tsv.unfinished.json"
    command = Command("data", "score", "judged.yaml", "--output", "scores", *judges, cwd=folders[1])
    while not unfinished.exists():
        time.sleep(0.02)
    command.signal(signal.SIGKILL)
    command.wait()
    assert not (folders[1] / "scores" / "scores.tsv").exists()
    assert "resuming" in score(folders[1], *judges)
    files = [{path.name: path.read_bytes() for path in (folder / "scores").iterdir()} for folder in folders]
    assert files[0]["scores.tsv"] == files[1]["scores.tsv"]
    assert set(files[0]) == set(files[1])
    before = (folders[1] / "scores" / "scores.tsv").stat().st_mtime_ns
    score(folders[1], *judges)
    assert (folders[1] / "scores" / "scores.tsv").stat().st_mtime_ns == before


def scored_here(judges: list[object]) -> dict[str, Any]:
    """Score the text in the current folder, in this process."""
    return score_corpus("judged.yaml", "scores", forward=[judges[1]], backward=[judges[3]], device="cpu")  # type: ignore[list-item]


def test_features_outlive_a_table_that_could_not_be_written(
    judges: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(action: str, path: Path) -> None:
        if action == "rename" and path.name == "scores.tsv":
            raise OSError(errno.ENOSPC, "full")

    monkeypatch.chdir(tmp_path)
    corpus(tmp_path, 40, 0)
    features = set()
    with monkeypatch.context() as full:
        full.setattr(atomic, "failpoint", fail)
        for _ in range(2):
            with pytest.raises(MachineError, match="free some space and run the same command"):
                scored_here(judges)
            features.add((tmp_path / "scores" / "features.tsv").stat().st_mtime_ns)
    assert len(features) == 1, "no pair is scored again"
    lines = lines_in(tmp_path / "train.en")
    write_lines(tmp_path / "train.en", ["a b", *lines[1:]])
    (tmp_path / "train.xx").write_text("".join(f"{into('xx', line)}\n" for line in ["a b", *lines[1:]]))
    scored_here(judges)
    assert float(table(tmp_path)[0]["ratio"]) == pytest.approx(len(into("xx", "a b")) / len("a b"), abs=0.01)
    assert {path.name for path in (tmp_path / "scores").iterdir()} == {".mt-data-score", "scores.tsv", "scores.json"}


@pytest.mark.parametrize("pairs", [0, 40, 59, 61])
def test_a_text_that_changes_while_it_is_scored_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pairs: int
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(scoring, "_BLOCK", 20)
    corpus(tmp_path, 60, 0)
    texts = {name: lines_in(tmp_path / name) for name in ("train.en", "train.xx")}
    bitexts = [bitext for bitext in bitexts_of(load_config(Path("judged.yaml")).data) if bitext.split == "train"]
    facts, features = scoring.survey(bitexts), tmp_path / "features.tsv"

    def scorer(pairs: Sequence[Pair]) -> list[tuple[float, int]]:
        return [(-1.0, 1)] * len(pairs)

    def score_now() -> None:
        scoring.score_pairs(bitexts, facts, {"xx": (scorer, scorer)}, features, "key")

    for name, lines in texts.items():
        write_lines(tmp_path / name, [*lines, "a"][:pairs])
    with pytest.raises(InputError, match="the text changed while it was read"):
        score_now()
    assert not features.exists()
    for name, lines in texts.items():
        write_lines(tmp_path / name, lines)
    score_now()
    lines_scored = [int(row.split("\t")[1]) for row in lines_in(features)]
    assert [line for line in lines_scored if line != scoring.RANDOM_LINE] == list(range(1, 61))


def test_a_text_divided_otherwise_is_scored_again(
    judges: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[Path] = []

    def interrupt(action: str, path: Path) -> None:
        notes.extend([path] if action == "rename" and path.name.endswith(".unfinished.json") else [])
        if len(notes) == 3:
            raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(scoring, "_BLOCK", 50)
    corpus(tmp_path, 200, 0)
    with monkeypatch.context() as killing:
        killing.setattr(atomic, "failpoint", interrupt)
        with pytest.raises(KeyboardInterrupt):
            scored_here(judges)
    for code in ("en", "xx"):
        lines = lines_in(tmp_path / f"train.{code}")
        for number, own in enumerate((lines[:70], lines[70:]), 1):
            write_lines(tmp_path / f"part{number}.{code}", own)
    sources = ", ".join(f"{{source: part{number}.en, target: part{number}.xx}}" for number in (1, 2))
    whole = "{source: train.en, target: train.xx}"
    (tmp_path / "judged.yaml").write_text(CONFIG.replace(whole, f"[{sources}]"))
    assert [source["scored"] for source in scored_here(judges)["sources"]] == [70, 130]
    assert [int(row["line"]) for row in table(tmp_path)] == [*range(1, 71), *range(1, 131)]
    (tmp_path / "judged.yaml").write_text(CONFIG)
    assert [source["scored"] for source in scored_here(judges)["sources"]] == [200]


def test_a_table_that_was_changed_is_written_again(
    judges: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    corpus(tmp_path, 40, 0)
    summary = scored_here(judges)
    scores = tmp_path / "scores" / "scores.tsv"
    written = scores.read_bytes()
    for content in (written[:-200], written.replace(b"\t1\t", b"\t9\t")):
        assert content != written
        scores.write_bytes(content)
        assert scored_here(judges) == summary
        assert scores.read_bytes() == written


def test_models_of_other_languages_are_refused(judges: list[object], tmp_path: Path) -> None:
    corpus(tmp_path, 20, 0)
    swapped = ["--forward", judges[3], "--backward", judges[1]]
    message = score(tmp_path, *swapped, code=2)
    assert "--forward" in message
    assert "(xx to en): not a model from en to xx" in message
    assert not (tmp_path / "scores").exists()
    assert "--backward is missing" in score(tmp_path, *judges[:2], code=2)
    assert "--train and --forward" in score(tmp_path, "--train", *judges[:2], code=2)


def test_a_folder_of_others_is_refused(judges: list[object], tmp_path: Path) -> None:
    corpus(tmp_path, 20, 0)
    (tmp_path / "scores").mkdir()
    (tmp_path / "scores" / "thesis.txt").write_text("mine")
    assert "was not made by `mt data score`" in score(tmp_path, *judges, code=2)
    assert (tmp_path / "scores" / "thesis.txt").read_text() == "mine"
    for name, content in (("scores.json", '{"format": 1}'), ("features.tsv", "word\tcount\n"), ("text/a.txt", "")):
        folder = tmp_path / name.replace("/", "-")
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(content)
        (folder / "scores.tsv").write_text("mine")
        assert "was not made by `mt data score`" in score(tmp_path, "--output", folder, *judges, code=2)
        assert (folder / "scores.tsv").read_text() == "mine"


def test_a_folder_whose_first_text_was_killed_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(action: str, path: Path) -> None:
        if path.parent.name == ".text.partial":
            shutil.copytree("scores", "killed")  # as SIGKILL leaves it; an exception would clear it
            raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    corpus(tmp_path, 40, 0)
    monkeypatch.setattr(atomic, "failpoint", kill)
    with pytest.raises(KeyboardInterrupt):
        score_corpus("judged.yaml", "scores")
    require_scores_folder(Path("killed"), load_config(Path("judged.yaml")).data)
    assert {path.name for path in Path("killed").iterdir()} == {".mt-data-score", ".text.partial"}


def test_the_scores_are_not_replaced_by_a_page(scored: Path) -> None:
    for name in ("scores.tsv", "scores.json"):
        before = (scored / "scores" / name).read_bytes()
        words = ("judged.yaml", "--scores", "scores", "--html", f"scores/{name}")
        assert "this is an input" in mt("data", "check", *words, cwd=scored, code=2).stderr
        assert (scored / "scores" / name).read_bytes() == before


def test_unusable_pairs_have_no_score(judges: list[object], tmp_path: Path) -> None:
    corpus(tmp_path, 40, 0)
    lines = lines_in(tmp_path / "train.en")
    (tmp_path / "train.en").write_text("\n".join(["", " ".join("a" * 60), *lines[2:], ""]))
    score(tmp_path, *judges)
    rows = table(tmp_path)
    assert [row["score"] for row in rows[:2]] == ["nan", "nan"]
    assert "nan" not in {row["score"] for row in rows[2:]}


def test_the_next_command_has_the_same_overrides(judges: list[object], tmp_path: Path) -> None:
    corpus(tmp_path, 40, 0)
    words = ("--output", "my scores", "--set", "data.max_ratio=40")
    messages = mt("data", "score", "judged.yaml", *words, *judges, cwd=tmp_path).stderr
    assert "next: mt data clean judged.yaml --set data.max_ratio=40 --scores 'my scores' --output cleaned" in messages


@pytest.mark.parametrize("frequent", [["Okay."] * 300, ["Okay.", ""] * 300])
def test_the_partner_of_a_sentence_is_another_one(frequent: list[str]) -> None:
    sentences = [*frequent, *(f"Go {n}" for n in range(10, 40))]
    random.Random(1).shuffle(sentences)
    others = [sentences[i] for i in scoring._partners(sentences)]
    assert all(other not in ("", sentence) for sentence, other in zip(sentences, others, strict=True))


@pytest.mark.parametrize("sentences", [["a"], ["", "a"], ["a", "a"]])
def test_a_sentence_without_another_has_no_contrast(sentences: list[str]) -> None:
    pairs = [(sentence, "b") for sentence in sentences]
    found = scoring._cross_entropies(lambda pairs: [(-1.0, 1)] * len(pairs), pairs, 0)
    assert found[-1] == (1.0, pytest.approx(math.nan, nan_ok=True))


@pytest.mark.parametrize("pairs", [["a b c"], ["a b c"] * 9])
def test_pairs_that_are_too_few_or_too_alike_are_refused(
    judges: list[object], tmp_path: Path, pairs: list[str]
) -> None:
    corpus(tmp_path, 20, 0)
    for code in ("en", "xx"):
        write_lines(tmp_path / f"train.{code}", pairs)
    assert "too few pairs to score, or too alike" in score(tmp_path, *judges, code=2)
    assert [path.name for path in (tmp_path / "scores").iterdir()] == [".mt-data-score"]


def test_pairs_that_are_no_better_than_random_suggest_no_threshold() -> None:
    random = np.arange(20.0, dtype=np.float32)
    assert pair_scores._threshold(random, random / 2) is None
    assert pair_scores._threshold(random, np.array([3, 40, 60], np.float32)) == 25


def test_embeddings_need_their_package(tmp_path: Path) -> None:
    corpus(tmp_path, 20, 0)
    with pytest.raises(InputError, match=r"sentence-transformers|no such folder"):
        score_corpus(tmp_path / "judged.yaml", tmp_path / "scores", embeddings=tmp_path / "none")


def test_small_models_take_back_translations_and_no_test_set(tmp_path: Path) -> None:
    people = write_pairs(tmp_path, "people", [(f"one {n}", f"uno {n}") for n in range(40)])
    model = write_pairs(tmp_path, "model", [(f"<BT> two {n}", f"due {n}") for n in range(40)])
    train = [people, {**model, "synthetic": True}]
    [(languages, sources)] = sources_by_languages(make_config(tmp_path, train).data, train).items()
    small = scoring.small_model("small", languages, str(tmp_path), sources, 1000, "cpu")
    prepare_text(parse_config(json.dumps(small), "small.yaml"), tmp_path / "text", "key")
    sizes = [len(lines_in(tmp_path / "text" / f"{split}.source")) for split in ("train", "valid", "test")]
    assert sizes == [76, 4, 0]


def test_small_models_are_not_trained_on_back_translations_only(tmp_path: Path) -> None:
    data: dict[str, object] = {"source_lang": "en", "target_lang": "xx", "test": None}
    data["valid"] = {"source": "valid.en", "target": "valid.xx"}
    data["train"] = {"source": "train.en", "target": "train.xx", "synthetic": True}
    with pytest.raises(InputError, match=r"all text in en and xx is synthetic.*\n.*--forward"):
        score_corpus({"name": "judged", "data": data}, tmp_path / "scores")
    assert not (tmp_path / "scores").exists()


@pytest.mark.slow
def test_one_command_trains_both_models(tmp_path: Path) -> None:
    # Of lines with one letter, training has the right pair once, as it drops duplicates, and most wrong ones, too.
    wrong = corpus(tmp_path, 3000, 600, shortest=2)
    # Random letters are taken for Welsh where English is expected, and the training leaves out such blocks.
    (tmp_path / "judged.yaml").write_text(CONFIG.replace("source_lang: en", "source_lang: yy"))
    # Two trainings of 500 steps take ten minutes of one core.
    done = Command("data", "score", "judged.yaml", "--output", "scores", "--train", cwd=tmp_path).wait(timeout=2400)
    assert done.code == 0, done.stderr
    summary = json.loads((tmp_path / "scores" / "scores.json").read_text())
    low = {index for index, row in enumerate(table(tmp_path)) if float(row["score"]) < summary["min_score"]}
    assert len(low & wrong) >= 0.9 * len(wrong)
    assert {path.name for path in (tmp_path / "scores").iterdir()} >= {"yy-xx", "xx-yy", "text"}


@pytest.mark.slow
@pytest.mark.parametrize("languages", [("yy", "xx"), ("yy", "yy")])
def test_each_direction_is_trained_once(
    tmp_path: Path, languages: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    smaller = {
        "model": {"d_model": 16, "n_heads": 2, "d_ff": 16},
        "tokenizer": {"vocab_size": 300},
        "training": {"max_steps": 3, "warmup_steps": 1, "device": "cpu", "report": False},
        "evaluation": {"methods": ["greedy"], "metrics": ["bleu"]},
    }
    small_model = scoring.small_model
    monkeypatch.setattr(scoring, "small_model", lambda *each: {**small_model(*each), **smaller})
    monkeypatch.setattr(scoring, "_HELD_OUT", 10)
    corpus(tmp_path, 300, 0, shortest=3)
    own, other = languages
    train: list[dict[str, object]] = [{"source": "train.en", "target": "train.xx"}]
    data = {"source_lang": own, "target_lang": other, "train": train, "root": str(tmp_path), "valid": {"from_train": 1}}
    if own != other:
        data |= {"source_lang": [own, other], "target_lang": [other, own]}
        for suffix in ("en", "xx"):
            shutil.copy(tmp_path / f"train.{suffix}", tmp_path / f"more.{suffix}")
        train[0] |= {"source_lang": own, "target_lang": other, "both_ways": True}
        train.append({"source": "more.xx", "target": "more.en", "source_lang": other, "target_lang": own})
    config = {"name": "judged", "data": data}
    summary = score_corpus(config, tmp_path / "scores", device="cpu")
    assert [source["scored"] for source in summary["sources"]] == [300] * (3 if own != other else 1)
    runs = sorted(path.name for path in (tmp_path / "scores").iterdir() if (path / "config.yaml").exists())
    assert runs == (["xx-yy", "yy-xx"] if own != other else ["yy-yy", "yy-yy-back"])
    assert score_corpus(config, tmp_path / "scores", device="cpu") == summary
    lines = lines_in(tmp_path / "train.en")
    write_lines(tmp_path / "train.en", [*lines[:-1], "a b c d"])
    with pytest.raises(InputError, match=r"(?s)cannot resume.*name a new --output"):
        score_corpus(config, tmp_path / "scores", device="cpu")


def cleaned(folder: Path, *words: object, code: int = 0) -> str:
    return mt("data", "clean", "judged.yaml", "--output", "cleaned", *words, cwd=folder, code=code).stderr


@pytest.fixture(scope="module")
def scored_once(judges: list[object], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scored")
    corpus(folder, 200, 40)
    for code in ("en", "xx"):
        lines = lines_in(folder / f"train.{code}")
        for number, own in enumerate((lines[:50], lines[50:]), 1):
            write_lines(folder / f"part{number}.{code}", own)
    sources = "[{source: part1.en, target: part1.xx}, {source: part2.en, target: part2.xx}]"
    (folder / "judged.yaml").write_text(CONFIG.replace("{source: train.en, target: train.xx}", sources))
    printed = mt("data", "score", "judged.yaml", "--output", "scores", *judges, cwd=folder).stdout.split("\n")
    assert [line.split()[:3] for line in printed[1:3]] == [["1.", "part1.en", "50"], ["2.", "part2.en", "150"]]
    return folder


def write_table(folder: Path, rows: dict[int, list[float]], random_rows: list[list[float]], file: str) -> None:
    """Write scores from the features of each line, and from those of random pairs."""
    numbered = [*rows.items(), *((scoring.RANDOM_LINE, row) for row in random_rows)]
    lines = ((1, line, f"{line:016x}", *features) for line, features in numbered)
    write_lines(folder / RAW, ("\t".join(map(str, line)) for line in lines))
    write_scores(folder, {"key": "", "sources": [{"file": file, "pairs": len(rows)}]})


@pytest.mark.parametrize("file", ["train.en", "a\tb.en"])
def test_as_many_pairs_are_low_as_the_summary_says(tmp_path: Path, file: str) -> None:
    rows = {1: [1.00012] * 9} | {line: [2.00028] * 9 for line in range(2, 9)}  # the threshold is 1.00014
    write_table(tmp_path, rows, [[-1.0] * 9, [1.0] * 9], file)
    [source] = json.loads((tmp_path / "scores.json").read_text())["sources"]
    assert source["file"] == file
    assert source["below"] == load_scores(tmp_path).low.sum() == 0


def test_a_new_table_never_has_an_old_threshold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(mean: float) -> None:
        rng = random.Random(1)
        rows = {line: [rng.gauss(mean, 1) for _ in range(9)] for line in range(1, 21)}
        write_table(tmp_path, rows, [[rng.gauss(0, 1) for _ in range(9)] for _ in range(20)], "train.en")

    def fail(action: str, path: Path) -> None:
        if action == "rename" and path.name == "scores.json":
            raise OSError(errno.ENOSPC, "full")

    write(mean=3)
    threshold = load_scores(tmp_path).threshold
    with monkeypatch.context() as full:
        full.setattr(atomic, "failpoint", fail)
        with pytest.raises(MachineError):
            write(mean=6)
    with pytest.raises(InputError, match="no finished scores in it"):
        load_scores(tmp_path)
    write(mean=6)
    assert load_scores(tmp_path).threshold != threshold


@pytest.fixture
def scored(scored_once: Path, tmp_path: Path) -> Path:
    """Return a folder with a corpus of two sources, and its scores."""
    return Path(shutil.copytree(scored_once, tmp_path / "project"))


def test_cleaning_drops_pairs_with_low_scores(scored: Path) -> None:
    kept = ("duplicate", "misaligned", "wrong-language")  # letters are no language
    keep = [word for rule in kept for word in ("--keep", rule)]
    summary = json.loads((scored / "scores" / "scores.json").read_text())
    low = [row for row in table(scored) if float(row["score"]) < summary["min_score"]]
    cleaned(scored, "--scores", "scores", *keep)
    dropped = [row.split("\t")[:2] for row in lines_in(scored / "cleaned" / "dropped" / "low-score.tsv")[1:]]
    assert [(Path(file).name, line) for file, line in dropped] == [(row["file"], row["line"]) for row in low]
    cleaned(scored, "--scores", "scores", "--min-score", "-100", *keep)
    assert not (scored / "cleaned" / "dropped" / "low-score.tsv").exists()
    cleaned(scored, "--scores", "scores", "--keep-share", "0.9", "--keep-share", "2:0.5", "--by", "contrast", *keep)
    sizes = [len(lines_in(scored / "cleaned" / f"train-{number}.en")) for number in (1, 2)]
    assert sizes == [45, 75]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--min-score", "1"], "add --scores"),
        (["--scores", "scores", "--min-score", "nan"], "nan is not a number"),
        (["--by", "dual"], "--by and --drop low-score select by scores"),
        (["--scores", "nowhere"], "nowhere: no finished scores in it"),
        (["--scores", "scores", "--keep-share", "3:0.5"], "data.train has no source 3"),
        (["--scores", "scores", "--keep-share", "1.5"], "at most 1"),
        (["--scores", "scores", "--keep-share", "half"], "give a share such as 0.8"),
        (["--scores", "scores", "--keep-share", "0.5", "--min-score", "1"], "contradict each other"),
        (["--scores", "scores", "--by", "similarity"], "no pair has a value in the column similarity"),
        (["--scores", "scores", "--by", "dual"], "--by dual: scores suggest no threshold for it"),
        (["--scores", "scores", "--by", "beauty"], "--by beauty: scores have no such column"),
    ],
)
def test_unusable_options_are_refused(scored: Path, words: list[str], message: str) -> None:
    assert message in cleaned(scored, *words, code=2)
    assert not (scored / "cleaned").exists()


def test_scores_of_another_text_are_refused(scored: Path) -> None:
    lines = lines_in(scored / "part2.xx")
    write_lines(scored / "part2.xx", [*lines[:6], "z z", *lines[7:]])
    assert "part2.en:7 is not the pair that was scored" in cleaned(scored, "--scores", "scores", code=2)
    write_lines(scored / "part2.xx", lines[:-1])
    write_lines(scored / "part2.en", lines_in(scored / "part2.en")[:-1])
    assert "200 scores of 199 training pairs" in cleaned(scored, "--scores", "scores", code=2)
    assert not (scored / "cleaned").exists()


def test_text_that_cannot_be_read_to_its_end_is_refused(judges: list[object], tmp_path: Path) -> None:
    corpus(tmp_path, 40, 0)
    write_lines(tmp_path / "train.xx", lines_in(tmp_path / "train.xx")[:-1])
    assert "the training text cannot be scored" in score(tmp_path, *judges, code=2)
    (tmp_path / "train.xx").unlink()
    assert "train.xx" in score(tmp_path, *judges, code=2)
    assert not list(tmp_path.glob("scores/*.tsv"))
