"""Blocks of lines that are out of step: planted in clean text, found, and left out by cleaning."""

import json
import random
import re
import tracemalloc
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from shutil import copyfile
from zipfile import ZipFile

import numpy as np
import pytest

from bench.misalignment import plant
from command import mt
from data_helpers import make_config, pairs_in, write_lines, write_pairs, write_project
from mt.data.paired_texts import LineText
from mt.data.phrasebook import sentence_pairs
from mt.errors import InputError
from mt.extras.doctor import align_files, misalignment
from mt.extras.doctor.alignment import Link
from mt.extras.doctor.bitexts import RawPair, bitexts_of, read_bitext, realigned
from mt.extras.doctor.block_checks import with_blocks
from mt.extras.doctor.check import check_corpus
from mt.extras.doctor.findings import Findings
from mt.extras.doctor.misalignment import Block, conflicts, misaligned_blocks, segment_pairs, unpaired_lines
from mt.extras.doctor.statistics import collect_statistics


@pytest.fixture(scope="module")
def pairs() -> list[tuple[str, str]]:
    return list(sentence_pairs("train"))[:3000]


def matches(block: Block, other: Block) -> bool:
    return abs(block.start - other.start) <= 3 and abs(block.end - other.end) <= 3 and block.shift == other.shift


def test_clean_text_raises_no_alarm(pairs: list[tuple[str, str]]) -> None:
    assert not list(misaligned_blocks(pairs))


def test_planted_blocks_are_found_with_their_ends(pairs: list[tuple[str, str]]) -> None:
    seed = random.randrange(10**6)  # another one each time
    sources, targets = zip(*pairs, strict=True)
    planted, changed = plant(list(targets), random.Random(seed))
    found = list(misaligned_blocks(zip(sources, changed, strict=True)))
    missed = [block for block in planted if not any(matches(block, other) for other in found)]
    assert len(planted) >= 8, seed
    assert len(missed) <= 0.1 * len(planted), (seed, missed, found)
    assert len(found) <= len(planted), (seed, found)


def test_text_without_spaces_is_compared_by_pairs_of_letters() -> None:
    rng = random.Random(3)
    signs = [chr(0x4E00 + i) for i in range(300)]
    words = [f"{rng.choice(signs)}{rng.choice(signs)}" for _ in range(300)]
    rows = [[rng.randrange(300) for _ in range(rng.randint(4, 9))] for _ in range(1200)]
    targets = ["".join(words[i] for i in row) for row in rows]
    targets[500:600] = targets[498:598]
    [block] = misaligned_blocks(zip((" ".join(f"w{i}" for i in row) for row in rows), targets, strict=True))
    assert matches(block, Block(500, 600, 2))


def test_blocks_are_named_after_where_they_belong(pairs: list[tuple[str, str]]) -> None:
    sources, targets = (list(side) for side in zip(*pairs, strict=True))
    changed = list(targets)
    changed[200:260], changed[2000:2060] = targets[2000:2060], targets[200:260]  # swapped
    changed[600:650] = targets[1500:1550]  # overwritten
    changed[2500:] = [*targets[100:110], *targets[2500:-10]]  # a tail that is late
    swap, copy, other, tail = misaligned_blocks(zip(sources, changed, strict=True))
    assert matches(swap, Block(200, 260, 1800))
    assert matches(other, Block(2000, 2060, -1800))
    assert swap.swapped
    assert other.swapped
    first, last = (f"lines {b.start + 1:,} to {b.end:,}" for b in (swap, replace(swap, start=2000, end=2060)))
    assert swap.described("a.en", "a.it").startswith("a.it: lines 2,00")
    assert swap.described("a.en", "a.it").endswith(f"belong to {first} of a.en, and the other way round")
    assert last[:10] in swap.described("a.en", "a.it")
    assert matches(copy, Block(600, 650, None))
    assert copy.copied == (1, copy.start + 900)
    assert f"repeat lines {copy.start + 901:,} to" in copy.described("a.en", "a.it")
    assert matches(tail, Block(2500, 3000, 10))
    assert tail.described("a.en", "a.it").endswith("are 10 lines late: 10 lines too many before them")


def test_no_line_is_given_to_two(pairs: list[tuple[str, str]]) -> None:
    sources, targets = (list(side) for side in zip(*pairs, strict=True))
    late = [*targets[:1000], targets[999], *targets[1000:1199], *targets[1200:]]  # the translation of one line is lost
    [block] = misaligned_blocks(zip(sources, late, strict=True))
    assert {1000, 1199} & set(block.unsure)
    used = [n + (1 if block.start <= n < block.end else 0) for n in range(3000) if n not in block.unsure]
    assert len(used) == len(set(used))
    assert sum(late[n + (1 if block.start <= n < block.end else 0)] == targets[n] for n in set(range(1000, 1200))) > 190


@pytest.mark.parametrize("n_lines", [4, 6])
def test_beside_a_short_block_few_lines_are_unsure(pairs: list[tuple[str, str]], n_lines: int) -> None:
    sources, targets = (list(side) for side in zip(*pairs[:1500], strict=True))
    end = 1001 + n_lines
    targets[1000:end] = [*targets[1001:end], "Questa riga è di troppo."]
    [block] = misaligned_blocks(zip(sources, targets, strict=True))
    assert matches(block, Block(1000, end, -1))
    assert len(block.unsure) <= 4


@pytest.mark.filterwarnings("error")
def test_a_block_at_the_start_may_have_lost_its_first_translations(pairs: list[tuple[str, str]]) -> None:
    sources, targets = (list(side) for side in zip(*pairs[:1500], strict=True))
    targets[:40] = [*targets[5:40], *["Niente."] * 5]
    [block] = misaligned_blocks(zip(sources, targets, strict=True))
    assert matches(block, Block(0, 40, -5))
    assert not block.swapped


def test_lines_without_a_translation_count_once() -> None:
    blocks = [Block(5, 8, None, unsure=(4, 5, 7)), Block(9, 12, 1, unsure=(8, 9))]
    assert unpaired_lines(blocks) == {4, 5, 6, 7, 8, 9}


@pytest.mark.parametrize(("evidence", "lost"), [(0.5, [False, False, True, False]), (2.0, [False, True, True, False])])
def test_of_two_lines_with_one_translation_the_better_one_keeps_it(evidence: float, lost: list[bool]) -> None:
    support = np.array([3.0, 4.0, evidence, 3.0])
    assert conflicts(np.array([0, 1, 0, 0]), support, np.zeros(4, np.bool_)).tolist() == lost


def test_too_few_lines_teach_nothing_and_empty_ones_do_no_harm(pairs: list[tuple[str, str]]) -> None:
    assert not list(misaligned_blocks([("a", "b")] * 299))
    assert not list(misaligned_blocks([("", "")] * 400))
    assert not list(misaligned_blocks([("a", "b")] * 400))
    holes = [("", pair[1]) if number % 7 == 0 else pair for number, pair in enumerate(pairs)]
    assert not list(misaligned_blocks(holes))


@pytest.mark.parametrize("shift", [1, -3, 60])
def test_a_text_that_is_late_from_its_first_line_is_repaired(
    shift: int, pairs: list[tuple[str, str]], tmp_path: Path
) -> None:
    sources, targets = (list(side) for side in zip(*pairs, strict=True))
    late = ["Di troppo."] * shift + targets[: 3000 - shift] if shift > 0 else targets[-shift:] + ["In fondo."] * -shift
    [block] = misaligned_blocks(zip(sources, late, strict=True))
    assert (block.start, block.end, block.shift, len(block.unsure)) == (0, 3000, shift, abs(shift))
    write_project(tmp_path, list(zip(sources, late, strict=True)))
    mt("data", "clean", "a.yaml", "--output", "clean", "--repair", cwd=tmp_path)
    kept = pairs_in(tmp_path / "clean")
    assert len(kept) > 2500
    assert set(kept) <= {(source.strip(), target.strip()) for source, target in pairs}


def test_texts_that_do_not_belong_together_are_named(pairs: list[tuple[str, str]], tmp_path: Path) -> None:
    sources, targets = (list(side) for side in zip(*pairs, strict=True))
    others = random.Random(1).sample(targets, len(targets))
    write_project(tmp_path, list(zip(sources, others, strict=True)))
    said = mt("data", "check", "a.yaml", cwd=tmp_path).stdout
    assert "but it should be corrected first. 3,000 of 3,000 training pairs" in said
    assert "cleaning would leave no pair, so name other texts in data.train" in said
    assert "a.it: lines 1 to 3,000 do not translate those of a.en" in said
    noisy = [others[number] if number % 10 < 7 else target for number, target in enumerate(targets)]
    assert all(block.end - block.start < 3000 for block in misaligned_blocks(zip(sources, noisy, strict=True)))


def test_the_check_names_the_lines_and_cleaning_drops_them(pairs: list[tuple[str, str]], tmp_path: Path) -> None:
    sources, targets = (list(side) for side in zip(*pairs, strict=True))
    late = [*targets[:1000], "Questa riga è di troppo.", *targets[1000:1199], *targets[1200:]]
    write_project(tmp_path, list(zip(sources, late, strict=True)))
    report = json.loads(mt("data", "check", "a.yaml", "--json", cwd=tmp_path).stdout)
    [finding] = [each for each in report["findings"] if each["name"] == "misaligned"]
    assert 195 <= finding["counts"]["train"] <= 205
    note = finding["examples"][0]["note"]
    assert note.startswith("a.it: lines 1,00")
    assert note.endswith("are 1 line late: 1 line too many before them")
    again = sources[1100].strip(), late[1100].strip()  # no duplicate of what the block loses
    write_pairs(tmp_path, "a", [*zip(sources, late, strict=True), again])
    mt("data", "clean", "a.yaml", "--output", "clean", cwd=tmp_path)
    kept = pairs_in(tmp_path / "clean")
    right = {(source.strip(), target.strip()) for source, target in pairs}
    assert len(kept) > 2500
    assert kept.pop() == again
    assert sum(pair not in right for pair in kept) <= 3


def test_a_long_text_is_searched_in_parts(
    pairs: list[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources, targets = (list(side) for side in zip(*pairs, strict=True))
    targets[2100:2200] = targets[2099:2199]
    source = write_pairs(tmp_path, "a", list(zip(sources, targets, strict=True)))
    monkeypatch.setattr(misalignment, "SEGMENT", 1000)
    monkeypatch.setattr(misalignment, "_MIN_SEGMENT", 1000)
    report = check_corpus(make_config(tmp_path, source), tmp_path / "runs", 3)
    [finding] = [finding for finding in report.findings if finding.rule.name == "misaligned"]
    first, last = re.findall(r"[0-9],[0-9]+", finding.examples[0].note)
    assert abs(int(first.replace(",", "")) - 2101) <= 3
    assert abs(int(last.replace(",", "")) - 2200) <= 3
    assert 95 <= finding.counts["train"] <= 105
    [positions] = report.maps
    assert positions.counts["evidence"].sum() == len(pairs)
    assert positions.counts["evidence"].sum(axis=0).min() > 0


@pytest.mark.parametrize(("characters", "size"), [(140, 200_000), (300, 200_000), (3_600, 16_666), (10**5, 2_000)])
def test_a_segment_has_fewer_pairs_of_long_lines(characters: int, size: int) -> None:
    assert segment_pairs(10**6, characters * 10**6) == size


def test_a_text_of_long_lines_has_short_segments(tmp_path: Path) -> None:
    source = write_pairs(tmp_path, "a", [("a dog " * 333 + "b", "un cane " * 249 + "un gatto")] * 10)
    data = make_config(tmp_path, source, valid={"from_train": 1}, test=None).data
    [plain], [repaired] = bitexts_of(data), bitexts_of(data, repair=True)
    assert collect_statistics(plain, Findings(0), 100).bitext.segment == 15_003
    assert with_blocks(repaired).segment == 15_003
    block = Block(1, 3, 1)
    moved = (RawPair(number, str(number - 1), str(number - 1), "") for number in range(1, 5))
    assert [raw.target for raw in realigned(moved, [block], 2)] == ["0", "1", "2", "3"]  # beyond the segment


def test_a_repair_pairs_shifted_lines_with_their_translations(pairs: list[tuple[str, str]], tmp_path: Path) -> None:
    sources, targets = (list(side) for side in zip(*pairs, strict=True))
    planted, changed = plant(targets, random.Random(random.randrange(10**6)))
    write_project(tmp_path, list(zip(sources, changed, strict=True)))
    done = mt("data", "clean", "a.yaml", "--output", "clean", "--repair", cwd=tmp_path)
    kept = pairs_in(tmp_path / "clean")
    assert not list(misaligned_blocks(kept))  # a second repair would find nothing
    right = {(source.strip(), target.strip()) for source, target in pairs}
    good = sum(pair in right for pair in kept)
    shifted = sum(block.end - block.start for block in planted if block.shift)  # swapped ones, too
    unrelated = sum(block.end - block.start for block in planted if block.shift is None)
    assert good >= 0.98 * len(kept)
    assert len(kept) > 0.97 * (len(pairs) - unrelated)
    if shifted:
        rows = (tmp_path / "clean" / "repaired" / "alignment.tsv").read_text(encoding="utf-8").count("\n") - 1
        assert rows >= 0.9 * shifted, done.stdout


@pytest.mark.parametrize(
    ("block", "targets"), [(Block(3, 6, 2, unsure=(4, 5)), "012545"), (Block(0, 3, -2, unsure=(0, 1)), "010345")]
)
def test_a_translation_beyond_the_text_is_not_looked_for(block: Block, targets: str) -> None:
    pairs = (RawPair(number, str(number - 1), str(number - 1), "") for number in range(1, 7))
    assert "".join(raw.target for raw in realigned(pairs, [block])) == targets


@pytest.mark.slow
@pytest.mark.parametrize(
    "source", ["{source: a.en, target: a.it}", "{folder: texts}", "{file: a.zip}"], ids=["files", "folder", "archive"]
)
def test_texts_of_different_length_are_aligned_by_a_repair(
    pairs: list[tuple[str, str]], tmp_path: Path, source: str
) -> None:
    write_project(tmp_path, pairs[:1200], source)
    shorter = [line for n, (_, line) in enumerate(pairs[:1200]) if n != 500 and not 800 <= n < 850]
    write_lines(tmp_path / "a.it", shorter)
    with ZipFile(tmp_path / "a.zip", "w") as archive:
        (tmp_path / "texts").mkdir()
        for name in ("a.en", "a.it"):
            archive.write(tmp_path / name, name)
            copyfile(tmp_path / name, tmp_path / "texts" / name)
    refused = mt("data", "clean", "a.yaml", "--output", "clean", cwd=tmp_path, code=2).stderr
    found = re.search(r"a.en has 1200 lines but \S*a.it has 1149; they are out of step from line (\d+) on", refused)
    assert found, refused
    assert 498 <= int(found[1]) <= 504
    assert "--repair" in refused
    mt("data", "clean", "a.yaml", "--output", "clean", "--repair", cwd=tmp_path)
    kept = pairs_in(tmp_path / "clean")
    right = {(source.strip(), target.strip()) for source, target in pairs}
    good = sum(pair in right for pair in kept)
    assert good >= 0.98 * len(kept)
    assert good >= 0.93 * len(shorter)
    rows = (tmp_path / "clean" / "repaired" / "alignment.tsv").read_text(encoding="utf-8").splitlines()[1:]
    assert 600 <= len(rows) <= 650  # nearly every line behind the first one that is missing
    assert {"502", "506", "901", "1001"} & {row.split("\t")[1] for row in rows}


@pytest.mark.slow
def test_lines_in_step_before_the_place_where_texts_part_stay(pairs: list[tuple[str, str]], tmp_path: Path) -> None:
    for side, gone in ((0, ()), (1, (500, 700))):
        write_lines(tmp_path / "ab"[side], (pair[side] for n, pair in enumerate(pairs[:1000]) if n not in gone))
    first, *others = align_files.line_links(LineText(tmp_path / "a"), LineText(tmp_path / "b"))
    assert first.source[0] == first.target[0]
    assert 470 <= first.source[0] <= 500
    assert (others[-1].source[1], others[-1].target[1]) == (1000, 998)


def test_lines_in_step_are_not_held_in_memory(tmp_path: Path) -> None:
    lines = [f"{number} {'a' * 1000}" for number in range(10_000)]
    source = write_pairs(tmp_path, "a", [(line, line) for line in lines])
    with (tmp_path / "a.en").open("a") as file:
        file.write("one more\n")
    links = (Link((9_998, 9_999), (9_998, 9_999), 0.0), Link((9_999, 10_000), (9_999, 10_000), 0.0))
    links += (Link((10_000, 10_001), (10_000, 10_000), 0.0),)
    [bitext] = bitexts_of(make_config(tmp_path, source, valid={"from_train": 1}, test=None).data)
    tracemalloc.start()
    for raw, line in zip_longest(read_bitext(replace(bitext, links=links)), lines):
        assert (raw.source, raw.target, raw.repairs) == ((line, line, ()) if line else ("one more", "", ()))
    assert raw.line == 10_001
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * 2**20


def test_files_too_long_to_be_aligned_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one 1\n" * 400)
    (tmp_path / "b").write_text("uno 1\n" * 399)
    monkeypatch.setattr(align_files, "_MAX_LINES", 300)
    with pytest.raises(InputError, match=r"400 lines and .* 399, too many to be aligned"):
        align_files.line_links(LineText(tmp_path / "a"), LineText(tmp_path / "b"))
