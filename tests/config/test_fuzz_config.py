"""Mutated configurations: one readable message that names a key or a line, at once."""

import random
import re
from pathlib import Path

import pytest

from fuzz_helpers import Server, damaged

CONFIGS = sorted((Path(__file__).parent.parent.parent / "configs").glob("*.yaml"))
ODD_VALUES = (
    *("NaN", ".nan", ".inf", "-.inf", "1e400", "-1e400", "1e-400", "0", "-1", "1.5", "9" * 400, "0x1F", "1_000", "''"),
    *("null", "~", "true", "yes", "off", "[]", "{}", "[1, 2", "{a: 1", "a: b: c", "!!python/object:os.system x"),
    *("!!int '5'", "!tag x", "&anchor 5", "*anchor", "*missing", "<<: *anchor", "|", ">", "'unclosed", '"\\x"', "\t5"),
    *("[[[[[1]]]]]", "2024-01-01", "12:30:45", "\u2028", "\u0000", "\ufeff", "é" * 5000, "../../etc/passwd"),
    *("%", "@a", "`"),
)


def mutated(rng: random.Random) -> bytes:
    """One of the shipped configurations with one to three things wrong."""
    lines = rng.choice(CONFIGS).read_text(encoding="utf-8").splitlines()
    for _ in range(rng.randint(1, 3)):
        index = rng.randrange(len(lines))
        line, kind = lines[index], rng.randrange(12)
        if kind == 0 and len(line) > 2:  # a typo
            column = rng.randrange(len(line))
            lines[index] = line[:column] + rng.choice("abcxyz_:-#{}[] \t\"'") + line[column + rng.randint(0, 1) :]
        elif kind == 1:
            del lines[index]
        elif kind == 2:  # a key twice
            lines.insert(rng.randrange(len(lines)), line)
        elif kind in (3, 4, 5):
            key, colon, _ = line.partition(":")
            lines[index] = f"{key}{colon} {rng.choice(ODD_VALUES)}" if colon else rng.choice(ODD_VALUES)
        elif kind == 6:  # another indentation
            lines[index] = " " * rng.randint(0, 6) + line.strip()
        elif kind == 7:  # aliases that multiply
            lines[index:index] = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"] + [
                f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)
            ]
        elif kind == 8:
            depth = rng.choice([20, 200, 2000])
            lines[index] = rng.choice(["name: " + "[" * depth, "name: " + "{a: " * depth, "- " * depth + "x"])
        elif kind == 9 and rng.random() < 0.1:
            lines[index] = f"name: {'x' * 10_000_000}"
        elif kind == 10:
            return damaged(rng, "\n".join(lines).encode())
        else:
            lines[index] = line.replace(":", rng.choice(["", "::", ": -", ":\n  - "]), 1)
        if not lines:
            break
    return "\n".join(lines).encode()


def check(folder: Path, number: int, seed: int) -> None:
    rng = random.Random(seed)
    refused = 0
    with Server(["mt.cli", "mt.config"]) as server:
        for case in range(number):
            content = mutated(rng)
            (folder / "x.yaml").write_bytes(content)
            found = server.run("train", "--config", "x.yaml", cwd=folder)
            shown = f"case {case}: {content[:3000]!r}\n{found}"
            assert found.code in (0, 2), shown
            assert found.seconds < 1, shown
            assert found.megabytes < 300, shown
            if found.code == 2:
                refused += 1
                assert found.stderr.startswith("mt: "), shown
                assert "Traceback" not in found.stderr, shown
                assert re.search(r"x\.yaml(:\d+|: )|x\.yaml:?\n", found.stderr), shown
                assert len(found.stderr) < 20_000, shown
                assert found.stderr.replace("\n", "").isprintable(), shown
            else:
                assert found.stdout == "valid\n", shown
    print(f"{number} configurations, {refused} refused, worst: {server.worst}")
    assert refused > number // 2, "the mutations are too mild"


def test_mutated_configurations_are_refused_in_plain_words(tmp_path: Path) -> None:
    check(tmp_path, 10, seed=1)


@pytest.mark.slow
def test_a_thousand_mutated_configurations(tmp_path: Path) -> None:
    check(tmp_path, 1000, seed=2)
