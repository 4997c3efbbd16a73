"""Fuzzing of model folders: damage is refused at once, in one message, and no code in a folder is run."""

import json
import pickle
import random
import shutil
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from bundle_helpers import Trap, reseal
from command import mt
from conftest import made_once, make_project
from fuzz_helpers import Server, damaged, some_bytes
from mt.storage.run_dir import ModelDir

ODD_JSON: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**31, 2**63, 10**40, 1e400, -0.5, float("nan"), [2**62, 2**62], [2**64, 2**64 + 8]),
    *("", "x", "\x00", "/etc/passwd", "y" * 1_000_000, [], {}, [[]], ["a", "missing"], "F16", {"type": "Bogus"}),
    {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "b" * 9999},
    {"max_length": 0, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
)
ODD_NAMES = ("../" * 9 + "etc/passwd", "/etc/passwd", "a\x00b", ".", "", "..", "x" * 5000, "__metadata__", "é" * 9999)
ODD_YAML = (
    *("1000000", "65536", "0", "-1", "1e400", ".nan", "x", "[1]", "{a: b}", "null"),
    *("!!python/object:os.system x", "*a"),
)


def changed_json(rng: random.Random, content: bytes) -> tuple[bytes, str]:
    """Remove, rename, swap or replace a node of a JSON tree, or nest it deeply; return a description too."""
    if rng.random() < 0.05:
        return rng.choice([b"[", b'{"a":']) * 100_000, "nested"
    tree = json.loads(content)
    node = child = tree
    path: list[object] = []
    while isinstance(child, dict | list) and child and rng.random() < 0.85:
        node = child
        keys: Sequence[Any] = sorted(node) if isinstance(node, dict) else range(len(node))
        path.append(key := rng.choice(keys))
        child = node[key]
    kind = rng.choice(["removed", "renamed", "swapped", *3 * ["replaced"]]) if path else "kept"
    if kind == "removed":
        del node[key]
    elif kind == "renamed" and isinstance(node, dict):
        node[rng.choice(ODD_NAMES)] = node.pop(key)
    elif kind == "swapped":
        other = rng.choice(keys)
        node[key], node[other] = node[other], node[key]
    elif kind == "replaced":
        node[key] = rng.choice(ODD_JSON)
    return json.dumps(tree).encode(), f"{kind} {str(path)[:100]}"


class Mutations:
    """Random damage to a model folder.

    Args:
        rng: chooses it.
        outside: a folder beside the model; if any code in the model runs, the file `sprung` appears in it.
    """

    def __init__(self, rng: random.Random, outside: Path) -> None:
        self.rng, self.outside = rng, outside
        self.kinds = [
            *(self.damage, self.damage, self.replace, self.tensors, self.tensors, self.configuration, self.link),
            *(self.json, self.json, self.json, self.json, self.converted, self.converted),
        ]

    def apply(self, folder: ModelDir) -> str:
        """Apply one of them, reseal the folder or not, and return a description."""
        kind = self.rng.choice(self.kinds)
        what = f"{kind.__name__}: {kind(folder)}"
        if folder.manifest.name not in what and self.rng.random() < 0.85:
            reseal(folder)
            what += ", resealed"
        return what

    def any_file(self, folder: ModelDir) -> Path:
        return self.rng.choice(sorted(path for path in folder.root.rglob("*") if path.is_file()))

    def damage(self, folder: ModelDir) -> str:
        path = self.any_file(folder)
        path.write_bytes(damaged(self.rng, path.read_bytes()))
        return path.name

    def replace(self, folder: ModelDir) -> str:
        path = self.any_file(folder)
        path.unlink()
        trap = Trap(self.outside / "sprung")
        replacements: dict[str, Callable[[], object]] = {
            "pickle": lambda: path.write_bytes(pickle.dumps(trap)),
            "torch.save": lambda: torch.save({"weights": trap}, path),
            "folder": path.mkdir,
            "empty file": path.touch,
            "noise": lambda: path.write_bytes(some_bytes(self.rng, self.rng.randint(1, 3000))),
            "nothing": lambda: None,
        }
        kind = self.rng.choice([*replacements])
        replacements[kind]()
        return f"{path.name} by {kind}"

    def link(self, folder: ModelDir) -> str:
        """Replace a file by a link to the outside, to itself, or to a device."""
        path = self.any_file(folder)
        copied, stranger = self.outside / path.name, self.outside / "stranger"
        target = self.rng.choice([copied, Path("/dev/zero"), stranger, path, Path("/nowhere")])
        if target.parent == self.outside:
            shutil.copy(path, target)
        path.unlink()
        path.symlink_to(target)
        return f"{path.name} to {target}"

    def json(self, folder: ModelDir) -> str:
        """Change the manifest, a tokenizer, the settings or a small file of the CTranslate2 part."""
        path = self.rng.choice(sorted(folder.root.rglob("*.json")))
        content, what = changed_json(self.rng, path.read_bytes())
        path.write_bytes(content)
        return f"{path.relative_to(folder.root)} {what}"

    def tensors(self, folder: ModelDir) -> str:
        """Change the header of the weights, and sometimes its length."""
        content = folder.weights.read_bytes()
        (size,) = struct.unpack("<Q", content[:8])
        header, what = changed_json(self.rng, content[8 : 8 + size])
        length = self.rng.choice([*6 * [len(header)], 0, 1, 2**31, 2**63, 2**64 - 1])
        folder.weights.write_bytes(struct.pack("<Q", length) + header + content[8 + size :])
        return f"{what} {length}"

    def configuration(self, folder: ModelDir) -> str:
        lines = folder.config.read_text().split("\n")
        number = self.rng.randrange(len(lines))
        key, _, _ = lines[number].partition(":")
        lines[number] = f"{key}: {self.rng.choice(ODD_YAML)}"
        folder.config.write_text("\n".join(lines))
        return lines[number]

    def converted(self, folder: ModelDir) -> str:
        """Change a number in a CTranslate2 file, or swap two dimensions."""
        path = self.rng.choice(sorted(folder.ctranslate2.rglob("model.bin")))
        content = bytearray(path.read_bytes())
        fields = _fields(bytes(content))
        name, offset, size = self.rng.choice(fields)
        next_offset = offset + size
        if name == "dimensions" and ("dimensions", next_offset, 4) in fields and self.rng.random() < 0.7:
            content[offset : next_offset + 4] = content[next_offset : next_offset + 4] + content[offset:next_offset]
        else:
            old = int.from_bytes(content[offset:next_offset], "little")
            new = self.rng.choice([0, 1, old + 1, old * 2, 2 ** (8 * size) - 1, self.rng.randrange(2 ** (8 * size))])
            content[offset:next_offset] = (new % 2 ** (8 * size)).to_bytes(size, "little")
        path.write_bytes(content)
        return f"{path.parent.name} {name} at {offset}"


def _fields(content: bytes) -> list[tuple[str, int, int]]:
    """List the numbers of a CTranslate2 file: name, offset and size in bytes."""
    (length,) = struct.unpack_from("H", content, 4)
    offset = 6 + length
    fields = [("version", 0, 4), ("name length", 4, 2), ("revision", offset, 4), ("variables", offset + 4, 4)]
    (variables,) = struct.unpack_from("I", content, offset + 4)
    offset += 8
    for _ in range(variables):
        (length,) = struct.unpack_from("H", content, offset)
        fields.append(("name", offset + 2, 1))
        offset += 2 + length
        rank = content[offset]
        fields.append(("rank", offset, 1))
        fields += [("dimensions", offset + 1 + 4 * n, 4) for n in range(rank)]
        offset += 1 + 4 * rank
        (size,) = struct.unpack_from("I", content, offset + 1)
        fields += [("type", offset, 1), ("size", offset + 1, 4)]
        offset += 5 + size
    return [*fields, ("aliases", offset, 4)]


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished model with a shortlist."""

    def make(folder: Path) -> None:
        changes = ("--set", "decoding.shortlist=20", "--set", "training.max_steps=2")
        mt("train", "--config", "tiny.yaml", *changes, cwd=make_project(folder))

    return made_once(tmp_path_factory, "shipped", make) / "runs" / "tiny" / "model"


def ctranslate2_refusal(shipped: Path, folder: Path, name: str, change: Callable[[bytes], bytes]) -> str:
    """Change files of the CTranslate2 part in a copy, and return what translating with it reports."""
    model = ModelDir(folder / "model")
    shutil.copytree(shipped, model.root)
    for path in model.ctranslate2.rglob(name):
        path.write_bytes(change(path.read_bytes()))
    reseal(model)
    return mt("translate", "--model", "model", "--engine", "ctranslate2", "a b", cwd=folder, code=2).stderr


def reorder(vocabulary: bytes) -> bytes:
    """Keep size and pieces: only the comparison with the tokenizer can notice."""
    pieces = json.loads(vocabulary)
    return json.dumps([*pieces[:260], *pieces[:259:-1]]).encode()


def test_a_converted_model_with_another_vocabulary_is_not_used(shipped: Path, tmp_path: Path) -> None:
    message = ctranslate2_refusal(shipped, tmp_path, "shared_vocabulary.json", reorder)
    assert "not the vocabulary of the model's tokenizer" in message
    done = mt("translate", "--model", "model", "a b", cwd=tmp_path)
    assert "translating with torch" in done.stderr
    assert done.stdout == mt("translate", "--model", shipped, "--engine", "torch", "a b", cwd=tmp_path).stdout


@pytest.mark.parametrize("content", [b"", b"\n", b"no tab\n", b"a b\tc\n", b"a\tb\tc\n", b"\xff\n" * 3])
def test_an_invalid_vocabulary_map_is_refused(shipped: Path, tmp_path: Path, content: bytes) -> None:
    assert "vmap.txt: not a vocabulary map" in ctranslate2_refusal(shipped, tmp_path, "vmap.txt", lambda _: content)


def check(shipped: Path, folder: Path, number: int, seed: int) -> None:
    rng = random.Random(seed)
    outside = folder / "outside"
    outside.mkdir()
    (outside / "stranger").write_text("not part of any model")
    mutations = Mutations(rng, outside)
    refused = 0
    modules = ["mt.cli", "mt.bundle.load_translator", "ctranslate2"]
    modules += ["mt.bundle.model_folder", "mt.decoding.torch_engine", "mt.config"]
    with Server(modules, seconds=10) as server:
        for case in range(number):
            model = ModelDir(folder / "model")
            shutil.copytree(shipped, model.root)
            what = mutations.apply(model)
            # An engine verifies what it reads; only torch reads the weights and the configuration.
            read_by_torch = what.startswith(("tensors", "configuration"))
            engine = "torch" if read_by_torch else rng.choice(["auto", "auto", "torch", "ctranslate2"])
            extra = rng.choice([[], [], ["--compute-type", "float32"], ["--shortlist"]])
            found = server.run(
                "translate", "--model", "model", "--engine", engine, *extra, "--", "a b", "", "c", cwd=folder
            )
            shown = f"case {case}, {what}, {engine} {extra}\n{found}"
            assert found.code in (0, 2), shown
            assert "Traceback" not in found.stderr, shown
            assert found.seconds < 2, shown
            assert found.megabytes < 500, shown
            assert not (outside / "sprung").exists(), shown
            if found.code == 2:
                refused += 1
                assert "mt: " in found.stderr, shown
                assert found.stdout == "", shown
            else:
                assert found.stdout.count("\n") == 3, shown
            shutil.rmtree(model.root)
    print(f"{number} folders, {refused} refused, worst: {server.worst}")
    assert number // 3 < refused < number


@pytest.mark.slow
def test_mutated_folders_are_refused(shipped: Path, tmp_path: Path) -> None:
    check(shipped, tmp_path, 30, seed=1)


@pytest.mark.slow
def test_two_thousand_mutated_folders(shipped: Path, tmp_path: Path) -> None:
    check(shipped, tmp_path, 2000, seed=2)
