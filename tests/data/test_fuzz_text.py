"""Arbitrary text: pairing never shifts, and N lines in give N lines out."""

import random
import re
import shutil
from pathlib import Path

import pytest

from command import mt
from data_helpers import lines_in, write_lines
from fuzz_helpers import Server, some_bytes
from mt.config import parse_config
from mt.data.prepare import prepare_text
from mt.errors import InputError

ODD = (
    *"\u2028 \u2029 \u0085 \x0b \x0c \x1c \x1d \x1e \r \x00 \ufeff \u00a0 \u200b".split(" "),
    *"\U0001f600 e\u0301 \u202e \ue000 ▁ </s> <pad> <0x0A> <2de> \t \ud7ff \uffff".split(" "),
    *(" ", ""),
)
CONFIG = """\
name: fuzz
data:
  source_lang: en
  target_lang: xx
  root: {root}
  train: {{source: a, target: b}}
  valid: {{source: a, target: b}}
  test: null
  drop_duplicates: false
  max_ratio: null
"""


def odd_line(rng: random.Random, tag: str, longest: int = 8) -> bytes:
    """Return a line with a tag among odd characters."""
    words = [rng.choice(ODD) + rng.choice(["word", "x", ""]) for _ in range(rng.randint(0, longest))]
    words.insert(rng.randint(0, len(words)), tag)
    return rng.choice(["", " "]).join(words).encode()


def odd_file(rng: random.Random, name: str, lines: int) -> tuple[bytes, bool]:
    """Return a file of numbered lines, and True if it is valid UTF-8."""
    rows = [odd_line(rng, f"{name}#{n}.") for n in range(lines)]
    if rng.random() < 0.05:  # a line of a megabyte
        rows[rng.randrange(lines)] += b" y" * 500_000
    valid = rng.random() > 0.15
    if not valid:
        rows[rng.randrange(lines)] += rng.choice(
            [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\xaf", some_bytes(rng, 9) + b"\x80"]
        )
    content = rng.choice([b"\n", b"\n", b"\r\n"]).join(rows) + rng.choice([b"\n", b"\n", b"", b"\r\n"])
    return rng.choice([b"", b"", b"\xef\xbb\xbf"]) + content, valid


def number_of(line: str, name: str) -> int:
    return int(re.findall(rf"{name}#(\d+)\.", line)[0])


def check_pairs(folder: Path, files: int, seed: int) -> None:
    rng = random.Random(seed)
    config = parse_config(CONFIG.format(root=folder), "x.yaml")
    refused = 0
    for case in range(files // 2):
        lines = rng.randint(1, 60)
        (source, good_source), (target, good_target) = odd_file(rng, "s", lines), odd_file(rng, "t", lines)
        short = rng.random() < 0.1
        if short:
            target = b"\n".join(target.split(b"\n")[: rng.randint(0, lines - 1)])
        (folder / "a").write_bytes(source)
        (folder / "b").write_bytes(target)
        if short or not good_source or not good_target:
            with pytest.raises(InputError, match=f"{folder}/[ab]"):
                prepare_text(config, folder / "text", "key")
            assert not (folder / "text").exists()
            refused += 1
            continue
        prepare_text(config, folder / "text", "key")
        for side in ("source", "target"):
            numbers = [number_of(line, side[0]) for line in lines_in(folder / "text" / f"valid.{side}")]
            assert numbers == list(range(lines)), f"case {case}"
        shutil.rmtree(folder / "text")
    assert files // 20 < refused < files // 3


def test_pairing_never_shifts_for_any_bytes(tmp_path: Path) -> None:
    check_pairs(tmp_path, 200, seed=1)


def check_translation(trained: Path, folder: Path, number: int, seed: int) -> None:
    """Translate odd lines; the translation of every tenth one is known, which reveals a shift."""
    rng = random.Random(seed)
    known = ["a b c", "d e", "f g h i"]
    answers = mt("translate", "--model", trained / "runs" / "tiny", *known, cwd=folder).stdout.split("\n")[:-1]
    lines = [odd_line(rng, "z", 12).replace(b"\r", b"") for _ in range(number)]
    for place in range(0, number, 1000):
        lines[place] = b"a b " * 10_000
    for place in range(5, number, 10):
        lines[place] = known[place % 3].encode()
    for place in range(7, number, 50):
        lines[place] = b" \t"
    (folder / "odd").write_bytes(b"".join(line + b"\n" for line in lines))
    with Server(["mt.cli", "mt.bundle.load_translator", "ctranslate2"], seconds=600) as server:
        model = str(trained / "runs" / "tiny")
        found = server.run("translate", "--model", model, "--input", "odd", "--output", "out", cwd=folder)
    assert found.code == 0, found
    out = (folder / "out").read_bytes().decode().split("\n")
    assert out.pop() == ""
    assert len(out) == number
    assert all(out[place] == answers[place % 3] for place in range(5, number, 10))
    assert not any(out[place] for place in range(7, number, 50))
    assert not any("\r" in line for line in out)
    print(f"{number} lines: {found.seconds:.1f} s of CPU, {found.megabytes:.0f} MB")
    assert found.megabytes < 700


def test_odd_lines_are_translated_line_by_line(trained: Path, tmp_path: Path) -> None:
    check_translation(trained, tmp_path, 200, seed=1)


@pytest.mark.slow
def test_ten_thousand_odd_lines(trained: Path, tmp_path: Path) -> None:
    check_translation(trained, tmp_path, 10_000, seed=2)


def test_translations_do_not_depend_on_the_order_of_lines(trained: Path, tmp_path: Path) -> None:
    rng = random.Random(3)
    lines = [odd_line(rng, "z").decode().replace("\r", "") for _ in range(60)]
    order = rng.sample(range(60), 60)
    for name, rows in (("one", lines), ("other", [lines[n] for n in order])):
        write_lines(tmp_path / name, rows)
        mt("translate", "--model", trained / "runs" / "tiny", "--input", name, "--output", f"{name}.out", cwd=tmp_path)
    one, other = ((tmp_path / f"{name}.out").read_bytes().decode().split("\n") for name in ("one", "other"))
    assert other[:-1] == [one[n] for n in order]
