"""Fuzzing of model folders: damage is refused at once, in one message, and no code in a folder is run."""

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
    *(None, True, -1, 0, 1, 2**31, 2**63, 10**40, 1e400, -0.5, float("nan")),
    *("", "x", "\x00", "/etc/passwd", [], {}, [[]]),
)
ODD_YAML = (
    *("1000000", "65536", "0", "-1", "1e400", ".nan", "x", "[1]", "{a: b}", "null"),
    *("!!python/object:os.system x", "*a"),
)
ODD_PARTS = (None, 5, {"type": "Bogus"}, {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "b" * 9999})
ODD_TOKEN = {"id": 5, "content": "a", "single_word": False}
ODD_TOKEN |= dict.fromkeys(("lstrip", "rstrip", "normalized", "special"), True)


class Trap:
    """An object that touches a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self.path,)


class Mutations:
    """Random damage to a model folder.

    Args:
        rng: chooses it.
        outside: a folder beside the model; if any code in the model runs, the file `sprung` appears in it.
    """

    def __init__(self, rng: random.Random, outside: Path) -> None:
        self.rng, self.outside = rng, outside
        self.kinds = [
            *(self.damage, self.damage, self.replace, self.manifest, self.tensors, self.tensors, self.configuration),
            *(self.tokenizer, self.settings, self.converted, self.resized, self.vocabulary, self.link),
        ]

    def apply(self, folder: ModelDir) -> str:
        """Apply one of them, reseal the folder or not, and return a description."""
        kind = self.rng.choice(self.kinds)
        what = f"{kind.__name__}: {kind(folder)}"
        if kind != self.manifest and self.rng.random() < 0.85:
            reseal(folder)
            what += ", resealed"
        return what

    def any_file(self, folder: ModelDir) -> Path:
        return self.rng.choice(sorted(path for path in folder.root.rglob("*") if path.is_file()))

    def any_converted(self, folder: ModelDir) -> Path:
        return folder.converted(self.rng.choice(["float32", "int8"])) / "model.bin"

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

    def manifest(self, folder: ModelDir) -> str:
        content = json.loads(folder.manifest.read_bytes())
        name = self.rng.choice(sorted(content["files"]))
        kind = self.rng.randrange(5)
        if kind == 0:
            inside_out = f"../{folder.root.name}/{name}"
            odd = ["../" * 9 + "etc/passwd", "/etc/passwd", "a\x00b", ".", "", "..", "x" * 5000, inside_out]
            content["files"][self.rng.choice(odd)] = content["files"].pop(name)
        elif kind == 1:
            content["files"][name][self.rng.choice(["bytes", "sha256"])] = self.rng.choice(ODD_JSON)
        elif kind == 2:
            content[self.rng.choice(["files", "key", "formats", "steps"])] = self.rng.choice(ODD_JSON)
        elif kind == 3:
            del content["files"][name]
        folder.manifest.write_text("[" * 100_000 if kind == 4 else json.dumps(content))
        return str(kind)

    def tensors(self, folder: ModelDir) -> str:
        """Change the header of the weights."""
        content = folder.weights.read_bytes()
        (size,) = struct.unpack("<Q", content[:8])
        header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
        name, text, size_written = self.rng.choice(sorted(header)), b"", None
        shape, kind = header[name].get("shape", []), self.rng.randrange(8)
        if kind == 0:
            header[name]["shape"] = [2**62, 2**62]
        elif kind == 1:
            header[name]["shape"] = self.rng.choice([shape[::-1], [1, *shape], [-1], "x", None])
        elif kind == 2:
            header[name]["dtype"] = self.rng.choice(["F16", "I64", "F64", "BOGUS", 5, None])
        elif kind == 3:
            header[name]["data_offsets"] = self.rng.choice([[0, 2**63], [5, 1], [0, 4], [2**64, 2**64 + 8], "x", [0]])
        elif kind == 4:
            header[self.rng.choice(["x", "__metadata__", "a\x00", "é" * 9999])] = header.pop(name)
        elif kind == 5:
            size_written = self.rng.choice([0, 1, 2**31, 2**63, 2**64 - 1])
        elif kind == 6:
            text = b'{"a":' * 50_000
        else:
            header["__metadata__"] = {"x": "y" * 1_000_000}
        text = text or json.dumps(header).encode()
        size_written = len(text) if size_written is None else size_written
        folder.weights.write_bytes(struct.pack("<Q", size_written) + text + data)
        return f"{kind} {name}"

    def configuration(self, folder: ModelDir) -> str:
        lines = folder.config.read_text().split("\n")
        number = self.rng.randrange(len(lines))
        key, _, _ = lines[number].partition(":")
        lines[number] = f"{key}: {self.rng.choice(ODD_YAML)}"
        folder.config.write_text("\n".join(lines))
        return lines[number]

    def tokenizer(self, folder: ModelDir) -> str:
        path = self.rng.choice(sorted(folder.tokenizer.iterdir()))
        state = json.loads(path.read_bytes())
        vocab, kind = state["model"]["vocab"], self.rng.randrange(9)
        piece, other = self.rng.sample(sorted(vocab), 2)
        if kind == 0:
            del vocab[piece]
        elif kind == 1:
            vocab[piece] = self.rng.choice([0, 10**9, 2**32, -1, "x", None])
        elif kind == 2:
            vocab["extra"] = len(vocab)
        elif kind == 3:
            state["added_tokens"] = [ODD_TOKEN]
        elif kind == 4:
            state["model"]["merges"] = self.rng.choice([[["a", "missing"]], [["x"]], "x", [5], [["a", "a"]] * 5000])
        elif kind == 5:
            parts = ["normalizer", "pre_tokenizer", "decoder", "model", "post_processor"]
            state[self.rng.choice(parts)] = self.rng.choice(ODD_PARTS)
        elif kind == 6:
            state["truncation"] = {"max_length": 0, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
        elif kind == 7:
            vocab[piece], vocab[other] = vocab[other], vocab[piece]
        path.write_text('{"a":' * 100_000 if kind == 8 else json.dumps(state))
        return f"{kind} {piece}"

    def settings(self, folder: ModelDir) -> str:
        content = json.loads(folder.settings.read_bytes())
        owner: dict[str, Any] = self.rng.choice([content, content, content["search"]])
        key = self.rng.choice([*sorted(owner), "unknown"])
        owner[key] = self.rng.choice(ODD_JSON)
        folder.settings.write_text(json.dumps(content))
        return f"{key}: {owner[key]}"

    def converted(self, folder: ModelDir) -> str:
        """Change a number in a CTranslate2 file, or swap two dimensions."""
        path = self.any_converted(folder)
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

    def resized(self, folder: ModelDir) -> str:
        """Give a tensor of such a file more or fewer rows, with consistent sizes."""
        path = self.any_converted(folder)
        content = path.read_bytes()
        fields = _fields(content)
        first_dimensions = [
            n for n, (name, *_) in enumerate(fields) if (name, fields[n - 1][0]) == ("dimensions", "rank")
        ]
        first = self.rng.choice(first_dimensions)
        rows_at, size_at = fields[first][1], next(offset for name, offset, _ in fields[first:] if name == "size")
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
        """Change one of the small files of the CTranslate2 part."""
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
    from conftest import make_project

    folder = make_project(tmp_path_factory.mktemp("shipped"))
    mt("train", "--config", "tiny.yaml", "--set", "decoding.shortlist=20", "--set", "training.max_steps=2", cwd=folder)
    return folder / "runs" / "tiny" / "model"


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
    refused, accepted = 0, []
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
