"""Model folders with anything wrong in them: refused at once, in one message, and nothing in them is run."""

import json
import pickle
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bundle_helpers import reseal
from command import mt
from fuzz_helpers import Server, damaged, some_bytes
from mt.storage.run_dir import ModelDir

ODD_JSON = (
    None,
    True,
    -1,
    0,
    1,
    2**31,
    2**63,
    10**40,
    1e400,
    -0.5,
    float("nan"),
    "",
    "x",
    "\x00",
    "/etc/passwd",
    [],
    {},
    [[]],
)


class Trap:
    """Touches a file where somebody unpickles it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self.path,)


class Mutations:
    """Things that can be wrong with a folder.

    Args:
        rng: chooses among them.
        outside: a folder for what lies beside the model; if anything runs, the file `sprung` appears in it.
    """

    def __init__(self, rng: random.Random, outside: Path) -> None:
        self.rng, self.outside = rng, outside
        self.kinds = [
            *(self.damage, self.damage, self.replace, self.manifest, self.tensors, self.tensors),
            *(
                self.configuration,
                self.tokenizer,
                self.settings,
                self.converted,
                self.resized,
                self.vocabulary,
                self.link,
            ),
        ]

    def apply(self, folder: ModelDir) -> str:
        """Does one of them, and makes the manifest agree with it or not. Returns what was done."""
        kind = self.rng.choice(self.kinds)
        what = f"{kind.__name__}: {kind(folder)}"
        if kind != self.manifest and self.rng.random() < 0.85:
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
        """A file becomes a pickle, a folder, nothing, or something else."""
        path = self.any_file(folder)
        kind = self.rng.randrange(6)
        path.unlink()
        if kind == 0:
            path.write_bytes(pickle.dumps(Trap(self.outside / "sprung")))
        elif kind == 1:
            torch.save({"weights": Trap(self.outside / "sprung")}, path)
        elif kind == 2:
            path.mkdir()
        elif kind == 3:
            path.write_bytes(b"")
        elif kind == 4:
            path.write_bytes(some_bytes(self.rng, self.rng.randint(1, 3000)))
        return f"{path.name} by {('pickle', 'torch.save', 'folder', 'nothing in it', 'noise', 'nothing')[kind]}"

    def link(self, folder: ModelDir) -> str:
        """A link that leads out of the folder, in circles, or to a device."""
        path = self.any_file(folder)
        target = self.rng.choice(
            [self.outside / path.name, Path("/dev/zero"), self.outside / "stranger", path, Path("/nowhere")]
        )
        if target.parent == self.outside:
            shutil.copy(path, target)
        path.unlink()
        path.symlink_to(target)
        return f"{path.name} to {target}"

    def manifest(self, folder: ModelDir) -> str:
        content = json.loads(folder.manifest.read_bytes())
        name = self.rng.choice(sorted(content["files"]))
        kind = self.rng.randrange(5)
        if kind == 0:
            odd = [
                "../" * 9 + "etc/passwd",
                "/etc/passwd",
                "a\x00b",
                ".",
                "",
                "..",
                "x" * 5000,
                f"../{folder.root.name}/{name}",
            ]
            content["files"][self.rng.choice(odd)] = content["files"].pop(name)
        elif kind == 1:
            content["files"][name][self.rng.choice(["bytes", "sha256"])] = self.rng.choice(ODD_JSON)
        elif kind == 2:
            content[self.rng.choice(["files", "key", "formats", "steps"])] = self.rng.choice(ODD_JSON)
        elif kind == 3:
            folder.manifest.write_text("[" * 100_000)
            return "deep"
        else:
            del content["files"][name]
        folder.manifest.write_text(json.dumps(content))
        return str(kind)

    def tensors(self, folder: ModelDir) -> str:
        """The header of the weights."""
        content = folder.weights.read_bytes()
        (size,) = struct.unpack("<Q", content[:8])
        header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
        name = self.rng.choice(sorted(header))
        kind = self.rng.randrange(8)
        if kind == 0:
            header[name]["shape"] = [2**62, 2**62]
        elif kind == 1:
            header[name]["shape"] = self.rng.choice(
                [header[name]["shape"][::-1], [1, *header[name]["shape"]], [-1], "x", None]
            )
        elif kind == 2:
            header[name]["dtype"] = self.rng.choice(["F16", "I64", "F64", "BOGUS", 5, None])
        elif kind == 3:
            header[name]["data_offsets"] = self.rng.choice([[0, 2**63], [5, 1], [0, 4], [2**64, 2**64 + 8], "x", [0]])
        elif kind == 4:
            header[self.rng.choice(["x", "__metadata__", "a\x00", "é" * 9999])] = header.pop(name)
        elif kind == 5:
            folder.weights.write_bytes(
                struct.pack("<Q", self.rng.choice([0, 1, 2**31, 2**63, 2**64 - 1])) + content[8:]
            )
            return "length of the header"
        elif kind == 6:
            text = b'{"a":' * 50_000
            folder.weights.write_bytes(struct.pack("<Q", len(text)) + text + data)
            return "deep header"
        else:
            header["__metadata__"] = {"x": "y" * 1_000_000}
        text = json.dumps(header).encode()
        folder.weights.write_bytes(struct.pack("<Q", len(text)) + text + data)
        return f"{kind} {name}"

    def configuration(self, folder: ModelDir) -> str:
        lines = folder.config.read_text().split("\n")
        place = self.rng.randrange(len(lines))
        key, _, _ = lines[place].partition(":")
        values = [
            "1000000",
            "65536",
            "0",
            "-1",
            "1e400",
            ".nan",
            "x",
            "[1]",
            "{a: b}",
            "null",
            "!!python/object:os.system x",
            "*a",
        ]
        lines[place] = f"{key}: {self.rng.choice(values)}"
        folder.config.write_text("\n".join(lines))
        return lines[place]

    def tokenizer(self, folder: ModelDir) -> str:
        path = self.rng.choice(sorted(folder.tokenizer.iterdir()))
        state = json.loads(path.read_bytes())
        vocab, kind = state["model"]["vocab"], self.rng.randrange(9)
        piece = self.rng.choice(sorted(vocab))
        if kind == 0:
            del vocab[piece]
        elif kind == 1:
            vocab[piece] = self.rng.choice([0, 10**9, 2**32, -1, "x", None])
        elif kind == 2:
            vocab["extra"] = len(vocab)
        elif kind == 3:
            state["added_tokens"] = [
                {
                    "id": 5,
                    "content": "a",
                    "single_word": False,
                    "lstrip": True,
                    "rstrip": True,
                    "normalized": True,
                    "special": True,
                }
            ]
        elif kind == 4:
            state["model"]["merges"] = self.rng.choice([[["a", "missing"]], [["x"]], "x", [5], [["a", "a"]] * 5000])
        elif kind == 5:
            state[self.rng.choice(["normalizer", "pre_tokenizer", "decoder", "model", "post_processor"])] = (
                self.rng.choice(
                    [
                        None,
                        5,
                        {"type": "Bogus"},
                        {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "b" * 9999},
                    ]
                )
            )
        elif kind == 6:
            path.write_text('{"a":' * 100_000)
            return "deep"
        elif kind == 7:
            state["truncation"] = {"max_length": 0, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
        else:
            swapped = self.rng.sample(sorted(vocab), 2)
            vocab[swapped[0]], vocab[swapped[1]] = vocab[swapped[1]], vocab[swapped[0]]
        path.write_text(json.dumps(state))
        return f"{kind} {piece}"

    def settings(self, folder: ModelDir) -> str:
        content = json.loads(folder.settings.read_bytes())
        owner: dict[str, Any] = self.rng.choice([content, content, content["search"]])
        key = self.rng.choice([*sorted(owner), "unknown"])
        owner[key] = self.rng.choice(ODD_JSON)
        folder.settings.write_text(json.dumps(content))
        return f"{key}: {owner[key]}"

    def converted(self, folder: ModelDir) -> str:
        """Numbers in the file that a C++ library reads."""
        path = folder.converted(self.rng.choice(["float32", "int8"])) / "model.bin"
        content = bytearray(path.read_bytes())
        places = _fields(bytes(content))
        name, place, size = self.rng.choice(places)
        old = int.from_bytes(content[place : place + size], "little")
        new = self.rng.choice([0, 1, old + 1, old * 2, 2 ** (8 * size) - 1, self.rng.randrange(2 ** (8 * size))])
        content[place : place + size] = (new % 2 ** (8 * size)).to_bytes(size, "little")
        if name == "dimensions" and self.rng.random() < 0.7:  # the same number of numbers, in another shape
            other = next((p for n, p, _ in places if n == "dimensions" and p == place + 4), None)
            if other is not None:
                first, second = bytes(content[place : place + 4]), bytes(content[other : other + 4])
                content[place : place + 4], content[other : other + 4] = old.to_bytes(4, "little"), second
                content[place : place + 4], content[other : other + 4] = second, old.to_bytes(4, "little")
                name = "dimensions swapped"
                del first
        path.write_bytes(bytes(content))
        return f"{path.parent.name} {name} {old} {new}"

    def resized(self, folder: ModelDir) -> str:
        """A tensor of that file with more or fewer rows, all sizes in agreement with it."""
        path = folder.converted(self.rng.choice(["float32", "int8"])) / "model.bin"
        content = path.read_bytes()
        places = _fields(content)
        first = self.rng.choice(
            [n for n, (name, *_) in enumerate(places) if (name, places[n - 1][0]) == ("dimensions", "rank")]
        )
        size_at = next(place for name, place, _ in places[first:] if name == "size")
        rows_at = places[first][1]
        (rows,), (size,) = struct.unpack_from("I", content, rows_at), struct.unpack_from("I", content, size_at)
        new = self.rng.choice([0, 1, rows // 2, rows - 1, rows + 1, 2 * rows])
        begin, end = size_at + 4, size_at + 4 + size
        data = (content[begin:end] * 2)[: size // rows * new]
        head = bytearray(content[:begin])
        struct.pack_into("I", head, rows_at, new)
        struct.pack_into("I", head, size_at, len(data))
        path.write_bytes(bytes(head) + data + content[end:])
        return f"{path.parent.name} rows {rows} {new}"

    def vocabulary(self, folder: ModelDir) -> str:
        """The small files beside it."""
        small = [p for p in folder.ctranslate2.rglob("*") if p.is_file() and p.suffix in (".json", ".txt")]
        path = self.rng.choice(sorted(small))
        content = path.read_text()
        if path.suffix == ".json" and self.rng.random() < 0.7:
            tree = json.loads(content)
            if isinstance(tree, list):
                tree = self.rng.choice([tree[:-1], [*tree, "extra"], tree[::-1], [], [5], {}, [*tree[:-1], None]])
            else:
                tree[self.rng.choice([*sorted(tree), "x"])] = self.rng.choice(ODD_JSON)
            path.write_text(json.dumps(tree))
        else:
            path.write_bytes(damaged(self.rng, content.encode()))
        return str(path.relative_to(folder.root))


def _fields(content: bytes) -> list[tuple[str, int, int]]:
    """The numbers of a CTranslate2 model file: what each is, where, and its bytes."""
    found = [("version", 0, 4)]
    (length,) = struct.unpack_from("H", content, 4)
    found.append(("name length", 4, 2))
    place = 6 + length
    found += [("revision", place, 4), ("variables", place + 4, 4)]
    (variables,) = struct.unpack_from("I", content, place + 4)
    place += 8
    for _ in range(variables):
        (length,) = struct.unpack_from("H", content, place)
        found.append(("name", place + 2, 1))
        place += 2 + length
        rank = content[place]
        found.append(("rank", place, 1))
        found += [("dimensions", place + 1 + 4 * n, 4) for n in range(rank)]
        place += 1 + 4 * rank
        (size,) = struct.unpack_from("I", content, place + 1)
        found += [("type", place, 1), ("size", place + 1, 4)]
        place += 5 + size
    found.append(("aliases", place, 4))
    return found


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished model with a shortlist."""
    from conftest import make_project

    folder = make_project(tmp_path_factory.mktemp("shipped"))
    mt("train", "--config", "tiny.yaml", "--set", "decoding.shortlist=20", "--set", "training.max_steps=2", cwd=folder)
    return folder / "runs" / "tiny" / "model"


def test_a_fast_part_with_another_vocabulary_is_not_used(shipped: Path, tmp_path: Path) -> None:
    """Same size, same pieces, another order: only the comparison with the tokenizer can see it."""
    model = ModelDir(tmp_path / "model")
    shutil.copytree(shipped, model.root)
    for path in model.ctranslate2.rglob("shared_vocabulary.json"):
        pieces = json.loads(path.read_bytes())
        path.write_text(json.dumps([*pieces[:260], *pieces[:259:-1]]))
    reseal(model)
    message = mt("translate", "--model", "model", "--engine", "ctranslate2", "a b", cwd=tmp_path, code=2).stderr
    assert "not the vocabulary of the model's tokenizer" in message
    done = mt("translate", "--model", "model", "a b", cwd=tmp_path)
    assert "translating with torch" in done.stderr
    assert done.stdout == mt("translate", "--model", shipped, "--engine", "torch", "a b", cwd=tmp_path).stdout


@pytest.mark.parametrize("content", [b"", b"\n", b"no tab\n", b"a b\tc\n", b"a\tb\tc\n", b"\xff\n" * 3])
def test_a_vocabulary_map_that_is_none_is_refused(shipped: Path, tmp_path: Path, content: bytes) -> None:
    model = ModelDir(tmp_path / "model")
    shutil.copytree(shipped, model.root)
    for path in model.ctranslate2.rglob("vmap.txt"):
        path.write_bytes(content)
    reseal(model)
    message = mt("translate", "--model", "model", "--engine", "ctranslate2", "a b", cwd=tmp_path, code=2).stderr
    assert "vmap.txt: not a vocabulary map" in message


def check(shipped: Path, folder: Path, number: int, seed: int) -> None:
    rng = random.Random(seed)
    outside = folder / "outside"
    outside.mkdir()
    (outside / "stranger").write_text("not a part of any model")
    mutations = Mutations(rng, outside)
    refused, accepted = 0, []
    modules = [
        "mt.cli",
        "mt.bundle.load_translator",
        "ctranslate2",
        "mt.bundle.model_folder",
        "mt.decoding.torch_engine",
        "mt.config",
    ]
    with Server(modules, seconds=10) as server:
        for case in range(number):
            model = ModelDir(folder / "model")
            shutil.copytree(shipped, model.root)
            what = mutations.apply(model)
            # Only what an engine reads does it check: the weights and the configuration are torch's.
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
                accepted.append(f"{what}, {engine} {extra}: {found.stderr[:200]}")
            shutil.rmtree(model.root)
    print("\n".join(accepted))
    print(f"{number} folders, {refused} refused, worst: {server.worst}")
    assert number // 3 < refused < number


def test_mutated_folders_are_refused(shipped: Path, tmp_path: Path) -> None:
    check(shipped, tmp_path, 60, seed=1)


@pytest.mark.slow
def test_two_thousand_mutated_folders(shipped: Path, tmp_path: Path) -> None:
    check(shipped, tmp_path, 2000, seed=2)
