"""OPUS and sacreBLEU's test sets, from a server on this machine."""

import hashlib
import io
import json
import logging
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sacrebleu.dataset import DATASETS

from data_helpers import make_data_config, pairs_of
from mt.data.corpus import read_pairs
from mt.data.named_corpora import opus_archive
from mt.data.prepare import input_digests
from mt.errors import InputError, MachineError
from web_helpers import Web, serving, zipped

BOOKS = {"README": "x", "LICENSE": "\nPublic domain\n", "Books.en-it.en": "one\ntwo\n", "Books.en-it.it": "uno\ndue\n"}
PAIRS = [("one", "uno"), ("two", "due")]


@pytest.fixture
def opus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    for name in ("MT_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    with serving(Web()) as web:
        web.add_corpus(zipped(BOOKS))
        monkeypatch.setenv("MT_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("MT_OPUS_API", f"{web.address}/opusapi/")
        yield web


def test_a_corpus_of_opus_is_cached(
    opus: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logging.getLogger("mt"), "propagate", True)
    with caplog.at_level(logging.INFO):
        assert pairs_of(tmp_path, {"opus": "Books"}) == PAIRS
    assert "OPUS Books v1, en-it: 2 pairs; licence: Public domain; cite" in caplog.text
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert pairs_of(tmp_path, {"opus": "Books", "version": "v1"}) == PAIRS
    backwards = pairs_of(tmp_path, {"opus": "Books"}, source_lang="it", target_lang="en")
    assert backwards == [(target, source) for source, target in PAIRS]
    assert [path for path, _ in opus.asked] == ["/opusapi/", "/OPUS-Books/v1/moses/en-it.txt.zip"]
    with pytest.raises(InputError, match="HF_HUB_OFFLINE switches the network off"):
        pairs_of(tmp_path, {"opus": "Books", "version": "v2"})


def test_latest_stays_the_version_that_was_downloaded(opus: Web, tmp_path: Path) -> None:
    data = make_data_config(tmp_path, {"opus": "Books"})
    before = input_digests(data)
    opus.corpora[0]["latest"] = "False"
    opus.add_corpus(zipped(BOOKS | {"Books.en-it.it": "un\ndeux\n"}), "v2", license="CC0")
    assert input_digests(data) == before
    assert pairs_of(tmp_path, {"opus": "Books", "version": "v2"}) == [("one", "un"), ("two", "deux")]
    assert json.loads((tmp_path / "cache/opus/Books_v2_en-it.json").read_text())["license"] == "CC0"
    newer = make_data_config(tmp_path, {"opus": "Books", "version": "v2"})
    assert input_digests(newer)["data.train"] != before["data.train"]


def test_a_damaged_answer_in_the_cache_is_asked_for_again(opus: Web, tmp_path: Path) -> None:
    assert pairs_of(tmp_path, {"opus": "Books"}) == PAIRS
    answer = tmp_path / "cache/opus/Books_latest_en-it.json"
    whole = answer.read_bytes()
    for content in (whole[:-9], b"", b"[]"):
        answer.write_bytes(content)
        assert pairs_of(tmp_path, {"opus": "Books"}) == PAIRS
        assert answer.read_bytes() == whole
    assert [path for path, _ in opus.asked].count("/opusapi/") == 4


def test_a_language_of_opus_may_have_a_region(opus: Web) -> None:
    opus.add_corpus(zipped(BOOKS), "v2", source="en-GB", target="fr")
    assert opus_archive("Books", "latest", ("fr", "en-GB"))[1] == "v2"


def test_what_opus_does_not_have(opus: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="OPUS has no corpus books in en and it, version latest"):
        pairs_of(tmp_path, {"opus": "books"})
    with pytest.raises(InputError, match="letters, digits"):
        pairs_of(tmp_path, {"opus": "../Books"})
    opus.corpora[0]["version"] = "../../v1"
    with pytest.raises(InputError, match="OPUS has no corpus"):
        pairs_of(tmp_path, {"opus": "Books"})
    opus.corpora[0]["version"] = "v1"
    opus.files[opus.corpora[0]["url"]] = b"<html>maintenance</html>"
    for _ in range(2):
        with pytest.raises(InputError, match=r"en-it\.txt\.zip: not a zip archive"):
            pairs_of(tmp_path, {"opus": "Books"})
    opus.files["/page"] = b"<html>"
    monkeypatch.setenv("MT_OPUS_API", f"{opus.address}/page")
    with pytest.raises(MachineError, match="not an answer of OPUS"):
        pairs_of(tmp_path, {"opus": "Books"})
    monkeypatch.setenv("MT_OPUS_API", "http://127.0.0.1:1/")
    with pytest.raises(MachineError, match="no connection"):
        pairs_of(tmp_path, {"opus": "Books"})


@pytest.fixture
def test_set(opus: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Web:
    """Serve a small set under the name of wmt14/full."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for side, text in (("src.en", "one  day"), ("ref.fr", "un jour")):
            sgm = f'<doc docid="1" origlang="en">\n<seg id="1">{text}</seg>\n</doc>\n'.encode()
            info = tarfile.TarInfo(f"test-full/newstest2014-fren-{side}.sgm")
            info.size = len(sgm)
            tar.addfile(info, io.BytesIO(sgm))
    opus.files["/test-full.tgz"] = archive.getvalue()
    dataset = DATASETS["wmt14/full"]
    monkeypatch.setattr(dataset, "data", [f"{opus.address}/test-full.tgz"])
    monkeypatch.setattr(dataset, "md5", [hashlib.md5(archive.getvalue()).hexdigest()])
    monkeypatch.setattr(dataset, "_outdir", str(tmp_path / "sets"))
    monkeypatch.setattr(dataset, "_rawdir", str(tmp_path / "sets/raw"))
    return opus


def test_a_test_set_of_sacrebleu_is_cached(test_set: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        data = make_data_config(
            tmp_path, {"source": "a", "target": "b"}, target_lang="fr", test={"sacrebleu": "wmt14/full"}
        )
        assert list(read_pairs(data.test[0], data)) == [("one day", "un jour")]
        monkeypatch.setenv("MT_OFFLINE", "1")
    assert len(test_set.asked) == 1


def test_a_preparation_that_was_interrupted_is_repeated(test_set: Web, tmp_path: Path) -> None:
    folder = tmp_path / "sets"
    partly = folder / "raw/test-full/newstest2014-fren-src.en.sgm"
    partly.parent.mkdir(parents=True)
    partly.write_text("<seg id")
    (folder / "raw/wmt14_full.test-full.tgz").write_bytes(test_set.files["/test-full.tgz"])
    for field in ("src", "ref", "docid", "genre", "origlang"):
        (folder / f"wmt14_full.en-fr.{field}").touch()
    for _ in range(2):
        assert pairs_of(tmp_path, {"sacrebleu": "wmt14/full"}, target_lang="fr") == [("one day", "un jour")]
    assert test_set.asked == []


def test_sets_that_sacrebleu_does_not_have(test_set: Web, tmp_path: Path) -> None:
    for name, message in (("wmt14/ful", "no test set 'wmt14/ful'"), ("wmt14/full", "wmt14/full is not in en-it")):
        with pytest.raises(InputError, match=message) as caught:
            pairs_of(tmp_path, {"sacrebleu": name})
        assert "wmt14/full" in str(caught.value) or "en-fr" in str(caught.value)
    test_set.files["/test-full.tgz"] += b"damage"
    with pytest.raises(InputError, match=r"test-full\.tgz: not the expected content"):
        pairs_of(tmp_path, {"sacrebleu": "wmt14/full"}, target_lang="fr")


def test_a_damaged_cache_of_sacrebleu_is_named(test_set: Web, tmp_path: Path) -> None:
    raw = tmp_path / "sets/raw"
    raw.mkdir(parents=True)
    (raw / "wmt14_full.test-full.tgz").write_bytes(b"damage")
    with pytest.raises(MachineError, match="cannot be prepared"):
        pairs_of(tmp_path, {"sacrebleu": "wmt14/full"}, target_lang="fr")
