"""Alignment of texts whose lines do not correspond: lines left out, merged and split, and put together again."""

import random
from pathlib import Path

import pytest
import yaml

from command import mt
from data_helpers import lines_in, write_lines
from mt.data.paired_texts import LineText
from mt.data.phrasebook import sentence_pairs
from mt.extras.doctor.align_files import align_files, lines_in_step
from mt.extras.doctor.alignment import Link, align, with_gaps

Lines = tuple[tuple[int, int], tuple[int, int]]


def disturbed(seed: int) -> tuple[list[str], list[str], set[Lines]]:
    """Return two texts, and the lines that translate each other."""
    rng = random.Random(seed)
    pairs = iter(list(sentence_pairs("train"))[:1500])
    sources, targets, truth = list[str](), list[str](), set[Lines]()
    for source, target in pairs:
        chance = rng.random()
        if chance < 0.03:
            sources.append(source)
            continue
        if chance < 0.06:
            targets.append(target)
            continue
        second = next(pairs, None) if chance < 0.1 else None
        n_src, n_tgt = len(sources), len(targets)
        if second is None:
            sources, targets = [*sources, source], [*targets, target]
        elif chance < 0.08:
            sources, targets = [*sources, source, second[0]], [*targets, f"{target} {second[1]}"]
        else:
            sources, targets = [*sources, f"{source} {second[0]}"], [*targets, target, second[1]]
        truth.add(((n_src, len(sources)), (n_tgt, len(targets))))
    return sources, targets, truth


def test_sentences_find_their_partners() -> None:
    sources, targets, truth = disturbed(seed := random.randrange(10**6))
    found = {(link.source, link.target) for link in align(sources, targets)}
    assert len(found & truth) >= 0.93 * len(truth), seed
    assert len(found & truth) >= 0.93 * len(found), seed


def test_a_gap_wider_than_the_band_is_crossed() -> None:
    pairs = enumerate(list(sentence_pairs("train"))[:1200])
    sources, targets = zip(*((f"{source} {n}", f"{target} {n}") for n, (source, target) in pairs), strict=True)
    links = align(sources[:300] + sources[500:], targets)
    found = {(link.source[0], link.target[0]) for link in links}
    assert len(found & {(line, line if line < 300 else line + 200) for line in range(1000)}) > 970
    complete = list(with_gaps(links, 1000, 1200))
    assert [line for link in complete for line in range(*link.source)] == list(range(1000))
    assert [line for link in complete for line in range(*link.target)] == list(range(1200))


@pytest.mark.parametrize("is_source", [True, False])
def test_a_text_finds_its_place_in_a_much_longer_one(is_source: bool) -> None:
    sources, targets = zip(*list(sentence_pairs("train"))[:600], strict=True)
    shift = 200 if is_source else -200
    links = align(sources[200:400], targets) if is_source else align(sources, targets[200:400])
    right = [link for link in links if link.is_single and link.target[0] - link.source[0] == shift]
    assert len(right) > 160
    assert len(right) > 0.98 * sum(link.is_single for link in links)


@pytest.mark.parametrize("gone", [*(pytest.param(line, marks=pytest.mark.slow) for line in (200, 1100)), 1499])
def test_two_texts_diverge_where_a_line_is_missing(gone: int, tmp_path: Path) -> None:
    sources, targets = zip(*list(sentence_pairs("train"))[:1500], strict=True)
    write_lines(tmp_path / "a", sources)
    write_lines(tmp_path / "b", targets[:gone] + targets[gone + 1 :])
    assert abs(lines_in_step(LineText(tmp_path / "a"), LineText(tmp_path / "b")) - gone) <= 2


@pytest.mark.parametrize(("sources", "targets"), [([], ["a"]), (["a"], []), ([], [])])
def test_nothing_to_align(sources: list[str], targets: list[str]) -> None:
    assert align(sources, targets) == []


def test_the_smallest_texts() -> None:
    assert [(link.source, link.target) for link in align(["a b c"], ["x y z"])] == [((0, 1), (0, 1))]
    assert isinstance(align(["Rome 1999", "b"], ["Roma 1999"])[0], Link)


def test_the_command_writes_a_table_that_can_be_trained_on(tmp_path: Path) -> None:
    sources, targets, truth = disturbed(2)
    (tmp_path / "a.en").write_text("\r\n".join(sources) + "\r\n\r\n", encoding="utf-8", newline="")
    (tmp_path / "a.it").write_text("\n".join(targets) + "\n", encoding="utf-8")
    done = mt("data", "align", "a.en", "a.it", "--output", "a, b.tsv", cwd=tmp_path)
    header, *rows = (tmp_path / "a, b.tsv").read_text(encoding="utf-8").splitlines()
    assert header.split("\t") == ["source", "target", "score"]
    wanted = {(" ".join(sources[slice(*s)]), " ".join(targets[slice(*t)])) for s, t in truth}
    assert len(wanted & {tuple(row.split("\t")[:2]) for row in rows}) > 0.9 * len(wanted)
    assert "1 to 1" in done.stdout
    source = done.stderr.split("data.train: ")[1].strip()
    assert yaml.safe_load(source) == {"file": "a, b.tsv", "source_column": "source", "target_column": "target"}
    (tmp_path / "a.yaml").write_text(
        f"name: a\ndata:\n  source_lang: en\n  target_lang: it\n  train: {source}\n"
        "  valid: {from_train: 50}\n  test: {from_train: 50}\n"
    )
    mt("data", "check", "a.yaml", cwd=tmp_path)


def test_a_table_keeps_the_spaces_of_its_sentences(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    french = "«\u00a0Prix\u202f:\u00a012\u3000€\u00a0»"
    write_lines(tmp_path / "a", ["« Price:\t12 € »"])
    write_lines(tmp_path / "b", [f"\t{french} "])
    align_files(tmp_path / "a", tmp_path / "b", tmp_path / "ab.tsv", None)
    assert "the alignment may be wrong" in caplog.text
    [_, row] = lines_in(tmp_path / "ab.tsv")
    assert row.split("\t")[:2] == ["« Price: 12 € »", french]


@pytest.mark.parametrize(
    ("content", "words", "message"),
    [
        (None, ["--output", "o.tsv"], "no such file"),
        (b"\n \n", ["--output", "o.tsv"], "no sentence in it"),
        (b"caff\xe8\n", ["--output", "o.tsv"], "not valid UTF-8"),
        (b"a\n", ["--output", "o.txt"], "let it end in .tsv"),
        (b"a\n", ["--output", "b.tsv"], "--force"),
    ],
)
def test_refusals(tmp_path: Path, content: bytes | None, words: list[str], message: str) -> None:
    if content is not None:
        (tmp_path / "a").write_bytes(content)
    (tmp_path / "b").write_text("x\n")
    (tmp_path / "b.tsv").write_text("there\n")
    done = mt("data", "align", "a", "b", *words, cwd=tmp_path, code=2)
    assert message in done.stderr
    assert not (tmp_path / "o.tsv").exists()


def test_texts_of_very_different_length_are_refused_before_memory_is_taken(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n" * 60_000)
    (tmp_path / "b").write_text("uno\n")
    done = mt("data", "align", "a", "b", "--output", "o.tsv", cwd=tmp_path, code=2)
    assert "a has 60,000 sentences and b 1, too different to be aligned" in done.stderr
    assert not (tmp_path / "o.tsv").exists()
