"""Folders and archives of paired texts."""

import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from command import mt
from data_helpers import make_data_config, pairs_of, refusal
from mt.config import load_config
from mt.data.corpus import read_pairs
from mt.data.paired_texts import text_pairs
from mt.data.prepare import input_digests
from mt.errors import InputError
from mt.storage.manifest import sha256

TEXTS = {
    "README": "about en\n",
    "LICENSE": "CC0\n",
    "Books.en-it.en": "one\ntwo\n",
    "Books.en-it.it": "uno\ndue\n",
    "Books.en-it.xml": "<x/>",
}


def packed(path: Path, texts: dict[str, str], method: int = zipfile.ZIP_DEFLATED) -> Path:
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", method) as archive:
            for name, text in texts.items():
                archive.writestr(name, text)
        return path
    with tarfile.open(path, "w:gz") as archive:
        for name, text in texts.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["train.en", "train.it", "train.de", "en.py"], {"train": [("train.en", "train.it")]}),
        (["en/a.txt", "it/a.txt", "it/b.txt"], {"a.txt": [("en/a.txt", "it/a.txt")]}),
        (["text-EN.txt.gz", "text-it.txt.gz"], {"text.txt.gz": [("text-EN.txt.gz", "text-it.txt.gz")]}),
        (["a.en", "a.it", "__MACOSX/._a.en", "__MACOSX/._a.it", "._a.en", "._a.it"], {"a": [("a.en", "a.it")]}),
        (["a_en", "a_it", "open.it", "opit.en"], {"a": [("a_en", "a_it")]}),
        (["a.en", "a.IT", "en/b", "IT/b"], {"a": [("a.en", "a.IT")], "b": [("en/b", "IT/b")]}),
        (["a.en", "a.EN", "a.IT", "a.it"], {"a": [("a.en", "a.it")]}),
        (
            ["en/a", "it/a", "a.en", "a.it", "c.en", "c.it"],
            {"a": [("a.en", "a.it"), ("en/a", "it/a")], "c": [("c.en", "c.it")]},
        ),
    ],
)
def test_texts_are_paired_by_their_names(names: list[str], found: dict[str, list[tuple[str, str]]]) -> None:
    assert text_pairs(names, ("en", "it")) == found
    assert list(text_pairs(names, ("en", "it"))) == list(found)


def test_texts_with_one_stem_are_all_read(tmp_path: Path) -> None:
    texts = {name: f"{name}\n" for name in ("en/a", "it/a", "a.en", "a.it", "b.en", "b.it")}
    packed(tmp_path / "a.zip", texts)
    for name, text in texts.items():
        (tmp_path / "folder" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "folder" / name).write_text(text)
    for source in ({"file": "a.zip"}, {"folder": "folder"}):
        assert pairs_of(tmp_path, source) == [("a.en", "a.it"), ("en/a", "it/a"), ("b.en", "b.it")]
        assert pairs_of(tmp_path, source | {"stem": "a"}) == [("a.en", "a.it"), ("en/a", "it/a")]


def test_a_folder_is_read_at_any_depth(tmp_path: Path) -> None:
    for name in ("en/x/y/a", "it/x/y/a"):
        (tmp_path / "texts" / name).parent.mkdir(parents=True)
        (tmp_path / "texts" / name).write_text(f"{name}\n")
    (tmp_path / "links").mkdir()
    for code in ("en", "it"):
        (tmp_path / "links" / code).symlink_to(tmp_path / "texts" / code / "x" / "y")
    assert pairs_of(tmp_path, {"folder": "texts"}) == [("en/x/y/a", "it/x/y/a")]
    assert pairs_of(tmp_path, {"folder": "links"}) == [("en/x/y/a", "it/x/y/a")]


def test_a_folder_of_too_many_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mt.text.archives._MAX_FILES", 2)
    for name in ("a.en", "a.it", "notes"):
        (tmp_path / name).write_text("a\n")
    assert refusal(tmp_path, "folder") == ": holds more than 2 files"


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("en\tit\na\tb\n")
    assert refusal(tmp_path / "a.tsv", "folder") == ": neither a folder nor an archive of texts"
    with pytest.raises(InputError) as caught:
        pairs_of(tmp_path, {"folder": "."})
    assert caught.value.hint == "it holds a.tsv"  # source_column is a key of archives only


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz", "a.TGZ"])
def test_an_archive_of_opus_in_both_directions(tmp_path: Path, name: str) -> None:
    packed(tmp_path / name, TEXTS)
    assert pairs_of(tmp_path, {"file": name}) == [("one", "uno"), ("two", "due")]
    assert pairs_of(tmp_path, {"file": name}, source_lang="it", target_lang="en") == [("uno", "one"), ("due", "two")]
    other = {"file": name, "source_column": "en", "target_column": "xml"}
    assert "has 2 lines but" in refusal(tmp_path / name, **other)


def test_stems_choose_among_texts(tmp_path: Path) -> None:
    texts = {f"{stem}.{code}": f"{stem} {code}\n" for stem in ("a", "b") for code in ("en", "it")}
    packed(tmp_path / "a.zip", texts)
    (tmp_path / "folder").mkdir()
    for name, text in texts.items():
        (tmp_path / "folder" / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    for source, b in (({"file": "a.zip"}, "b"), ({"folder": "folder"}, "b.gz")):
        assert pairs_of(tmp_path, source) == [("a en", "a it"), ("b en", "b it")]
        assert pairs_of(tmp_path, source | {"stem": b}) == [("b en", "b it")]
    assert refusal(tmp_path / "a.zip", stem="c") == ": no texts with the stem 'c', only a, b"
    nothing = ": no two texts whose names differ in en and it"
    assert refusal(packed(tmp_path / "b.zip", {"a.en": "a"})) == nothing
    (tmp_path / "empty").mkdir()
    assert refusal(tmp_path / "empty", "folder") == nothing
    assert refusal(tmp_path / "none", "folder") == ": no such file"


@pytest.mark.parametrize(("name", "most"), [("a.zip", 2), ("a.tar.gz", 500)])
def test_an_archive_of_many_texts_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, most: int
) -> None:
    opened, init, members = [], zipfile.ZipFile.__init__, tarfile.TarFile.next

    def texts(word: str) -> dict[str, str]:
        return {f"{n:02}.{code}": f"{word} {n}\n{code}\n" for n in range(40) for code in ("en", "it")}

    for word in ("first", "other"):  # the same size
        packed(tmp_path / word / name, texts(word)).replace(tmp_path / name)
        with monkeypatch.context() as patch:
            patch.setattr(zipfile.ZipFile, "__init__", lambda *a: opened.append(a) or init(*a))
            patch.setattr(tarfile.TarFile, "next", lambda *a: opened.append(a) or members(*a))
            assert pairs_of(tmp_path, {"file": name}) == [
                pair for n in range(40) for pair in ((f"{word} {n}", f"{word} {n}"), ("en", "it"))
            ]
    assert len(opened) <= most, "opened archives, or members of tar archives; 160 texts were read"


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz"])
def test_texts_of_a_larger_archive_are_unpacked_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("mt.text.archives._SMALL", 9)
    packed(tmp_path / name, TEXTS | {"a": "".join(map(chr, range(32, 2000)))})
    assert pairs_of(tmp_path, {"file": name}) == [("one", "uno"), ("two", "due")]


@pytest.mark.parametrize(
    ("names", "languages", "is_found"),
    [
        (("a.en", "a.de"), ("en-GB", "de"), True),
        (("a.en", "a.de"), ("eng_Latn", "deu_Latn"), True),
        (("a.en", "a.pt-BR"), ("en-GB", "pt-BR"), True),
        (("a.zh", "a.zh-Hant"), ("zh-Hans", "zh-Hant"), False),
    ],
)
def test_names_may_lack_regions_and_scripts(
    tmp_path: Path, names: tuple[str, str], languages: tuple[str, str], is_found: bool
) -> None:
    (tmp_path / "folder").mkdir()
    for name in names:
        (tmp_path / "folder" / name).write_text(f"{name}\n")
    packed(tmp_path / "a.zip", {name: f"{name}\n" for name in names})
    codes = dict(zip(("source_lang", "target_lang"), languages, strict=True))
    for key, name in (("folder", "folder"), ("file", "a.zip")):
        if is_found:
            assert pairs_of(tmp_path, {key: name}, **codes) == [names]
        else:
            with pytest.raises(InputError, match="no two texts whose names differ in zh-Hans and zh-Hant"):
                pairs_of(tmp_path, {key: name}, **codes)


def test_a_folder_for_each_language(tmp_path: Path) -> None:
    for code in ("en", "it"):
        (tmp_path / "texts" / code).mkdir(parents=True)
        (tmp_path / "texts" / code / "a.txt").write_text(f"one {code}\n")
    assert pairs_of(tmp_path, {"folder": "texts"}) == [("one en", "one it")]


def test_what_is_hidden_in_a_folder_is_not_read(tmp_path: Path) -> None:
    for stem in ("a", ".b", ".cleaned.partial/train", "c/.ipynb_checkpoints/d"):
        (tmp_path / "texts" / stem).parent.mkdir(parents=True, exist_ok=True)
        for code in ("en", "it"):
            (tmp_path / "texts" / f"{stem}.{code}").write_text(f"{stem} {code}\n")
    assert pairs_of(tmp_path, {"folder": "texts"}) == [("a en", "a it")]


def test_init_finds_a_folder_for_each_language(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tiny)
    for code, other in (("en", "en"), ("de", "xx")):
        (tiny / "texts" / code).mkdir(parents=True)
        (tiny / "texts" / code / "a.txt").write_bytes((tiny / f"train.{other}").read_bytes())
    mt("init", "--train", "texts", "--source-lang", "en", cwd=tiny)
    data = load_config(tiny / "en-de.yaml").data
    assert data.train[0].folder == "texts"
    assert (len(list(read_pairs(data.train[0], data))), data.target_lang) == (300, ("de",))


def test_a_folder_is_identified_by_its_texts(tmp_path: Path) -> None:
    for name in ("a.en", "a.it", "notes"):
        (tmp_path / name).write_text(name)
    data = make_data_config(tmp_path, {"folder": "."})
    before = input_digests(data)
    (tmp_path / "notes").write_text("changed")
    assert input_digests(data) == before
    (tmp_path / "a.it").write_text("changed")
    assert input_digests(data) != before


def test_an_archive_is_hashed_once_for_all_its_sources(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.zip", {f"{stem}.{code}": "a\n" for stem in "abc" for code in ("en", "it")})
    data = make_data_config(tmp_path, [{"folder": "a.zip", "stem": stem} for stem in "abc"])
    read: list[Path] = []
    digests = input_digests(data, lambda path: read.append(path) or sha256(path))
    assert read == [path]
    assert [digests[f"data.train.{number}"] for number in range(3)] == [[sha256(path)]] * 3


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz"])
def test_a_damaged_archive_or_another_kind(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert refusal(path) == ": no such file"
    whole = packed(path, TEXTS | {"more": str(list(range(1000)))}).read_bytes()
    for content in (b"", b"en\tit\n", whole[:-12], whole[: len(whole) // 2]):
        path.write_bytes(content)
        assert refusal(path).startswith(": damaged, or of another kind")
    packed(path, {"a.en": "a\nb\n", "a.it": "a\n"})
    assert refusal(path) == f"/a.en has 2 lines but {path}/a.it has 1"


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_damage_inside_a_zip_is_found(tmp_path: Path, method: int) -> None:
    path = packed(tmp_path / "a.zip", TEXTS | {"a.en": "x" * 9999, "a.it": "y"}, method)
    content = bytearray(path.read_bytes())
    content[content.index(b"a.en") + 14] ^= 0xFF
    path.write_bytes(content)
    assert refusal(path, stem="a").startswith(": damaged")


def test_a_name_in_a_zip_that_is_no_text(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.zip", TEXTS | {"é.en": "a\n", "é.it": "b\n"})
    path.write_bytes(path.read_bytes().replace("é".encode(), b"\xff\xff"))
    assert refusal(path).startswith(": damaged")


def test_texts_compressed_within_an_archive_are_refused(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.zip", {"a.en.gz": "a\n", "a.it.gz": "b\n"})
    assert refusal(path) == "/a.en.gz: compressed within an archive"


def test_bombs_and_passwords(tmp_path: Path) -> None:
    bomb = ": unpacks to more than 200 times its size, which no text does"
    assert refusal(packed(tmp_path / "a.zip", TEXTS | {"x": "\0" * 60_000_000})) == bomb
    assert refusal(packed(tmp_path / "a.tar.gz", {"x": "\0" * 60_000_000} | TEXTS)) == bomb
    header = tarfile.TarInfo("header")
    header.type, header.size = tarfile.XHDTYPE, 2**32  # read into memory by the library as a whole
    (tmp_path / "b.tgz").write_bytes(gzip.compress(header.tobuf()))
    assert refusal(tmp_path / "b.tgz") == bomb
    endless = {"a.en": "a" * 17_000_000, "a.it": "b\n"}
    assert refusal(packed(tmp_path / "c.zip", endless)) == "/a.en:1: a line of more than 16 MB"
    content = bytearray(packed(tmp_path / "d.zip", TEXTS).read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1  # the flag of an encrypted file
    (tmp_path / "d.zip").write_bytes(content)
    assert refusal(tmp_path / "d.zip") == ": protected by a password"
