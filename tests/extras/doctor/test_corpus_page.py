"""The verdict on a corpus, its actions, and the map of its texts."""

import json
import re
import shlex
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from command import mt
from data_helpers import YAML, lines_in, make_config, pairs_of, write_lines, write_pairs
from html_helpers import checked
from mt.data import phrasebook
from mt.data.corpus import Pair
from mt.extras.doctor.actions import judge, ranked
from mt.extras.doctor.block_checks import BINS, MAX_COLUMNS, PositionMap
from mt.extras.doctor.check import CorpusReport, check_corpus
from mt.extras.doctor.html_report import _ink, html_report, score_distribution
from mt.extras.doctor.misalignment import Block
from mt.extras.doctor.pair_scores import PairScores, Values
from mt.extras.doctor.rules import PAIR_RULES

LOST = ("The word caf\ufffd is broken in this sentence.", "Ecco una frase senza difetti.")


def text(split: str, size: int) -> list[Pair]:
    return list(islice(dict.fromkeys(phrasebook.sentence_pairs(split)), size))


def set_up(folder: Path, train: list[Pair], valid: list[Pair]) -> Path:
    write_pairs(folder, "train", train)
    write_pairs(folder, "valid", valid)
    (folder / "my config.yaml").write_text(YAML)
    return folder


def faulty(shifted: bool = True) -> list[Pair]:
    """Return training text of which 100 pairs are out of step, 30 have an entity, 20 are copies and 5 are broken."""
    pairs = text("train", 3000)
    if shifted:
        pairs[1500:1600] = [(pairs[i][0], pairs[i - 1][1]) for i in range(1500, 1600)]
    pairs[200:230] = [(f"{src} &amp; {i}.", f"{tgt} e {i}.") for i, (src, tgt) in enumerate(pairs[200:230])]
    pairs[300:320] = [(f"Questa frase numero {i} non fu mai tradotta.",) * 2 for i in range(20)]
    pairs[400:405] = [(f"{i} {LOST[0]}", f"{i} {LOST[1]}") for i in range(5)]
    return pairs


def report_on(folder: Path, train: list[Pair], **data: Any) -> CorpusReport:
    sources = {"train": write_pairs(folder, "train", train), "valid": write_pairs(folder, "valid", text("valid", 30))}
    return check_corpus(make_config(folder, **{**sources, "test": None, **data}), folder, 3)


def check(project: Path, *words: str, code: int = 0) -> dict[str, Any]:
    done = mt("data", "check", "my config.yaml", "--json", *words, cwd=project, code=code)
    report: dict[str, Any] = json.loads(done.stdout)
    assert f"next: {report['actions'][0]['command']}" in done.stderr
    return report


def numbers(gain: str, verb: str) -> dict[str, int]:
    [listed] = re.findall(rf"{verb} [^(]*\(([^)]*)\)", gain)
    return {name: int(number.replace(",", "")) for name, number in re.findall(r"(\S+) ([\d,]*\d)", listed)}


def test_clean_text_needs_nothing(tmp_path: Path) -> None:
    project = set_up(tmp_path, text("train", 400), text("valid", 30))
    report = check(project, "--html", "page.html")
    assert report["verdict"].startswith("training would take this corpus, and nothing needs to be done. 0 of 400 ")
    [action] = report["actions"]
    assert action["command"] == "mt train --config 'my config.yaml'"
    page = checked((project / "page.html").read_text())
    assert action["command"] in page.text
    assert 'class="headline good"' in (project / "page.html").read_text()


@pytest.mark.slow
def test_the_actions_predict_what_their_commands_do(tmp_path: Path) -> None:
    project = set_up(tmp_path, faulty(), text("valid", 30))
    override = ("--set", "data.max_length=90")
    report = check(project, *override)
    assert re.search(r"but it should be cleaned first. 15\d of 3,000 training pairs \(5\.\d\d %\)", report["verdict"])
    first = report["actions"][0]
    assert first["command"] == "mt data clean 'my config.yaml' --set data.max_length=90 --output cleaned --repair"
    mt(*shlex.split(first["command"])[1:], cwd=project)
    repaired, dropped = (
        {path.stem: len(lines_in(path)) - 1 for path in (project / "cleaned" / folder).iterdir()}
        for folder in ("repaired", "dropped")
    )
    assert numbers(first["gain"], "repairs")["markup"] == repaired["markup"] == 30
    assert abs(numbers(first["gain"], "repairs")["misaligned"] - repaired["alignment"]) <= 3
    predicted = numbers(first["gain"], "drops")
    assert predicted["identical"] == dropped["identical"] == 20
    assert predicted["replacement"] == dropped["replacement"] == 5
    assert abs(predicted.get("misaligned", 0) - dropped.get("misaligned", 0)) <= 3
    assert first["command"] in mt("data", "check", "my config.yaml", *override, cwd=project).stdout.split("\n\n")[0]


def test_what_only_a_person_can_judge_is_an_action_of_its_own(tmp_path: Path) -> None:
    pairs = text("train", 400)
    pairs[7:27] = [(f"The icon \ue0b0 is small, {i}.", f"Quella icona sembra piccola, {i}.") for i in range(20)]
    valid = [*text("valid", 30), ("Salt &amp; pepper.", "Sale e pepe.")]
    first, second = check(set_up(tmp_path, pairs, valid))["actions"]
    assert first["command"] == "mt data clean 'my config.yaml' --output cleaned --drop private-use"
    assert first["gain"].startswith("drops about 20 more pairs (private-use 20)")
    assert second["command"] == "mt data check 'my config.yaml' --examples 100"
    assert "1 fault (markup 1)" in second["gain"]


@pytest.mark.slow
def test_errors_come_with_their_correction(tmp_path: Path) -> None:
    project = set_up(tmp_path, faulty(), text("valid", 30))
    write_lines(project / "valid.it", [tgt for _, tgt in text("valid", 30)][:-1])
    actions = check(project, code=2)["actions"]
    [align] = [action for action in actions if action["command"].startswith("mt data align")]
    assert "valid.en has 30 lines but valid.it has 29" in align["gain"]
    mt(*shlex.split(align["command"])[1:], cwd=project)
    advised = yaml.safe_load(align["gain"].split("data.valid: ")[1])
    assert pairs_of(project, advised)
    assert any(action["command"].startswith("mt data clean") for action in actions)
    write_lines(project / "train.it", [tgt for _, tgt in text("train", 299)])
    actions = check(project, code=2)["actions"]
    assert not [action for action in actions if "data clean" in action["command"]], "it would be refused"
    (project / "train.en").write_text("")
    (project / "train.it").write_text("")
    actions = check(project, code=2)["actions"]
    assert any("data.train: no pair that training would take" in action["gain"] for action in actions)


@pytest.mark.parametrize("examples", [0, 3])
def test_a_correction_names_its_line_however_many_examples_are_wanted(tmp_path: Path, examples: int) -> None:
    sources = {split: write_pairs(tmp_path, split, text(split, 5)) for split in ("train", "valid")}
    with (tmp_path / "valid.en").open("ab") as broken:
        broken.write(b"caff\xe8\n")
    with (tmp_path / "valid.it").open("ab") as intact:
        intact.write(b"bar\n")
    report = check_corpus(make_config(tmp_path, **sources, test=None), tmp_path, examples)
    assert any("not valid UTF-8" in action.gain for action in judge(report).actions)
    assert all(bool(finding.examples) == bool(examples) for finding in report.findings)


@pytest.mark.parametrize("missing", [{"folder": "nowhere"}, {"file": "damaged.zip"}])
def test_a_correction_is_beside_its_text_and_for_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: dict[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (root := Path("k")).mkdir()
    (root / "damaged.zip").write_bytes(b"PK")
    options = {"source_lang": "en", "target_lang": "it", "weight": 2.0, "synthetic": True}
    train = [missing, {**write_pairs(root, "b", text("train", 40)), **options}]
    write_lines(root / "b.it", [tgt for _, tgt in text("train", 39)])
    valid = write_pairs(root, "valid", text("valid", 5))
    verdict = judge(check_corpus(make_config(root, train, valid=valid), root, 3))
    [align] = [action for action in verdict.actions if action.command.startswith("mt data align")]
    mt(*shlex.split(align.command)[1:], cwd=tmp_path)
    advised = yaml.safe_load(align.gain.split("data.train: ")[1])
    assert advised.items() >= options.items()
    assert pairs_of(root, advised, valid=valid, test=None)


def test_findings_are_ranked_by_their_harm(tmp_path: Path) -> None:
    report = report_on(tmp_path, faulty(shifted=False))
    assert [finding.rule.name for finding in ranked(report)][:4] == ["identical", "language", "markup", "replacement"]
    [duplicate] = [rule for rule in PAIR_RULES if rule.name == "duplicate"]
    doubled = report_on(tmp_path, text("train", 300) * 2)
    assert duplicate in [finding.rule for finding in doubled.findings]
    assert judge(doubled).kind == "good", "training drops them by itself"


def test_a_leak_weighs_by_its_share_of_the_held_out_text(tmp_path: Path) -> None:
    held = [
        (f"The red apple number {i} lies on the old table.", f"La mela rossa {i} sta sul tavolo.") for i in range(10)
    ]
    report = report_on(tmp_path, [*text("train", 3000), *held[:2]], valid=write_pairs(tmp_path, "held", held))
    verdict = judge(report)
    assert "should be cleaned first" in verdict.words
    assert "pairs of the validation or test text (2)" in verdict.reason


def test_the_map_shows_a_shifted_block_where_it_is(tmp_path: Path) -> None:
    report = report_on(tmp_path, faulty())
    [positions] = report.maps
    counts = positions.counts["evidence"]
    assert counts.shape == (BINS, MAX_COLUMNS)
    assert counts.sum() == positions.counts["length ratio"].sum() == 3000
    mean = np.arange(BINS) @ counts / counts.sum(axis=0)
    inside = np.zeros(MAX_COLUMNS, bool)
    inside[1500 * MAX_COLUMNS // 3000 + 1 : 1600 * MAX_COLUMNS // 3000 - 1] = True
    assert mean[inside].mean() < BINS / 2 < mean[~inside].mean() - 3
    [block] = positions.blocks
    content = html_report(report)
    assert checked(content).text.count(block.described(*report.statistics[-1].bitext.files)) == 4, "3 marks, 1 list"
    [mark] = set(re.findall(r'<rect x="([\d.]+)" width="([\d.]+)"', content))
    assert float(mark[0]) == pytest.approx(block.start * MAX_COLUMNS / 3000, abs=0.1)
    assert float(mark[1]) == pytest.approx((block.end - block.start) * MAX_COLUMNS / 3000, abs=0.1)
    assert '<a href="#identical">' in content
    assert not report_on(tmp_path, text("train", 299)).maps[0].counts, "too few pairs"


def test_a_map_is_the_same_however_it_is_read() -> None:
    rng = np.random.default_rng()
    evidence, ratio = rng.normal(0, 9, 10_007), rng.normal(0, 2, 10_007)
    whole, pieces = PositionMap(10_007), PositionMap(10_007)
    whole.add(0, evidence, ratio)
    for start, end in ((0, 1), (1, 4000), (4000, 10_007)):
        pieces.add(start, evidence[start:end], ratio[start:end])
    for name, counts in whole.counts.items():
        assert np.array_equal(counts, pieces.counts[name])
        assert counts.sum() == 10_007, "outliers count for the ends"
    assert set(whole.counts["evidence"].sum(axis=0).tolist()) == {20, 21}
    with_gaps = whole.density(0, np.where(evidence > 0, np.nan, evidence), -1, 1)
    assert with_gaps.sum() == (evidence <= 0).sum()


def test_a_single_finding_is_visible_in_its_column() -> None:
    for place in range(1003):
        ink = _ink(np.arange(1003) == place, MAX_COLUMNS)
        assert np.flatnonzero(ink).tolist() == np.flatnonzero(ink > 0.3).tolist() == [place * MAX_COLUMNS // 1003]
    assert _ink(np.ones(700, bool), MAX_COLUMNS).tolist() == [1.0] * MAX_COLUMNS


def scores_of(values: Values, sources: tuple[tuple[str, int], ...], threshold: float | None = None) -> PairScores:
    none = np.zeros(len(values), np.bool_)
    return PairScores(values, none.astype(np.uint64), none, threshold, sources, "scores.tsv")


def test_millions_of_pairs_make_no_large_page(tmp_path: Path) -> None:
    report = report_on(tmp_path, faulty())
    pairs, rng = 2_000_000, np.random.default_rng(1)
    report.statistics[-1].pairs = pairs
    positions = PositionMap(pairs, [Block(start, start + 30, 1) for start in range(0, pairs, 500)])
    for start in range(0, pairs, 200_000):
        positions.add(start, rng.normal(6, 3, 200_000), rng.normal(0, 0.3, 200_000))
    masks = rng.integers(0, 2**30, pairs).astype(np.uint64) & rng.integers(0, 2**30, pairs).astype(np.uint64)
    scores = rng.normal(-3, 1, pairs).astype(np.float32)
    for finding in report.findings:
        finding.examples[:] = finding.examples * 5000
    judged = scores_of(scores, (("train.en", pairs),))
    content = html_report(replace(report, maps=[positions], masks=masks, scores=judged))
    assert len(content) < 1_500_000
    assert "score by position" in content
    assert "Scores of the training pairs" in checked(content).text


def test_the_distribution_of_scores_is_by_source() -> None:
    scores = np.array([np.nan] * 10 + [-1.0] * 30 + [-3.0] * 60 + [0.5] * 8 + [-0.5] * 2, np.float32)
    sources = (("a", 40), ("caf\udce9", 60), ("c", 8), ("d", 2))
    content = score_distribution(scores_of(scores, sources, 0.0))
    assert "92.0 % are below 0" in content
    for name in ("a", "caf⟨U+DCE9⟩", "2 others"):
        assert f"<!-- {name} -->" in content or f">{name}<" in content
    assert "below" not in score_distribution(scores_of(scores, (("a", 110),)))
    assert score_distribution(scores_of(np.full(5, np.nan, np.float32), (("a", 5),))) == ""
