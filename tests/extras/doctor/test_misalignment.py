"""Blocks of lines that are out of step: planted in clean text, found, and left out by cleaning."""

import json
import random
from pathlib import Path

import pytest

from bench.misalignment import plant
from command import mt
from mt.data.phrasebook import sentence_pairs
from mt.extras.doctor.misalignment import Block, misaligned_blocks


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


def test_too_few_lines_teach_nothing_and_empty_ones_do_no_harm(pairs: list[tuple[str, str]]) -> None:
    assert not list(misaligned_blocks([("a", "b")] * 299))
    assert not list(misaligned_blocks([("", "")] * 400))
    assert not list(misaligned_blocks([("a", "b")] * 400))
    holes = [("", pair[1]) if number % 7 == 0 else pair for number, pair in enumerate(pairs)]
    assert not list(misaligned_blocks(holes))


def test_the_check_names_the_lines_and_cleaning_drops_them(pairs: list[tuple[str, str]], tmp_path: Path) -> None:
    sources, targets = (list(side) for side in zip(*pairs, strict=True))
    late = [*targets[:1000], "Questa riga è di troppo.", *targets[1000:1199], *targets[1200:]]
    (tmp_path / "a.en").write_text("".join(f"{line}\n" for line in sources), encoding="utf-8")
    (tmp_path / "a.it").write_text("".join(f"{line}\n" for line in late), encoding="utf-8")
    (tmp_path / "a.yaml").write_text(
        "name: a\ndata:\n  source_lang: en\n  target_lang: it\n  train: {source: a.en, target: a.it}\n"
        "  valid: {from_train: 50}\n  test: {from_train: 50}\n"
    )
    report = json.loads(mt("data", "check", "a.yaml", "--json", cwd=tmp_path).stdout)
    [finding] = [each for each in report["findings"] if each["name"] == "misaligned"]
    assert 195 <= finding["counts"]["train"] <= 205
    note = finding["examples"][0]["note"]
    assert note.startswith("a.it: lines 1,00")
    assert note.endswith("are 1 line late: 1 line too many before them")
    mt("data", "clean", "a.yaml", "--output", "clean", cwd=tmp_path)
    kept = list(
        zip(*((tmp_path / "clean" / f"train.{code}").read_text().splitlines() for code in ("en", "it")), strict=True)
    )
    right = {(source.strip(), target.strip()) for source, target in pairs}
    assert len(kept) > 2500
    assert sum(pair not in right for pair in kept) <= 3


def test_a_repair_pairs_shifted_lines_with_their_translations(pairs: list[tuple[str, str]], tmp_path: Path) -> None:
    sources, targets = (list(side) for side in zip(*pairs, strict=True))
    planted, changed = plant(targets, random.Random(random.randrange(10**6)))
    (tmp_path / "a.en").write_text("".join(f"{line}\n" for line in sources), encoding="utf-8")
    (tmp_path / "a.it").write_text("".join(f"{line}\n" for line in changed), encoding="utf-8")
    (tmp_path / "a.yaml").write_text(
        "name: a\ndata:\n  source_lang: en\n  target_lang: it\n  train: {source: a.en, target: a.it}\n"
        "  valid: {from_train: 50}\n  test: {from_train: 50}\n"
    )
    done = mt("data", "clean", "a.yaml", "--output", "clean", "--repair", cwd=tmp_path)
    kept = [(tmp_path / "clean" / f"train.{code}").read_text().splitlines() for code in ("en", "it")]
    right = {(source.strip(), target.strip()) for source, target in pairs}
    good = sum(pair in right for pair in zip(*kept, strict=True))
    shifted = sum(block.end - block.start for block in planted if block.shift)
    unrelated = sum(block.end - block.start for block in planted if block.shift is None)
    assert good >= 0.98 * len(kept[0])
    assert len(kept[0]) > 0.97 * (len(pairs) - unrelated)
    if shifted:
        rows = (tmp_path / "clean" / "repaired" / "alignment.tsv").read_text(encoding="utf-8").count("\n") - 1
        assert rows >= 0.9 * shifted, done.stdout
