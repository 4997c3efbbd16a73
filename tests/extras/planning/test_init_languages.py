"""Languages of `mt init`: text is read in the languages that are typed in or that a model knows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from config_helpers import SMALLEST
from data_helpers import pairs_of, write_lines
from mt.cli.init import _find_texts
from mt.errors import InputError
from mt.storage.run_dir import RunDir

TEXT = {"en": "a dog", "de": "ein Hund"}


def settled(train: Sequence[str], answers: Sequence[str] = (), **given: Any) -> dict[str, Any]:
    """Find texts as `mt init` does, on a terminal if there are answers, and return the data section."""
    options = {"train": [train] if train else [], "opus": [], "start": given.pop("start", None), "name": None}
    unknown = dict.fromkeys(("source_lang", "target_lang", "delimiter", "quoting", "header", "columns"))
    with CliRunner().isolation("".join(f"{answer}\n" for answer in answers)):
        _find_texts(options, unknown | given, asks=bool(answers))
    return {key: options[key] for key in ("source_lang", "target_lang", "train")}


def checkpoint(root: Path, source_lang: str, target_lang: str) -> Path:
    """Write as much of a checkpoint as is read for its languages."""
    run = RunDir(root / "start")
    run.checkpoint(1).mkdir(parents=True)
    languages = f"source_lang: {source_lang}\n  target_lang: {target_lang}"
    run.config.write_text(SMALLEST.replace("source_lang: en\n  target_lang: de", languages))
    return run.checkpoint(1)


@pytest.fixture(autouse=True)
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same text as files, in a folder and as tables, whose order is not alphabetical."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for code, line in TEXT.items():
        write_lines(tmp_path / f"a.{code}", [line])
        write_lines(tmp_path / "folder" / f"train.{code}", [line])
    write_lines(tmp_path / "names.csv", ["English,German", ",".join(TEXT.values())])
    write_lines(tmp_path / "codes.tsv", ["en\tde", "\t".join(TEXT.values())])


def read(found: dict[str, Any]) -> list[tuple[str, str]]:
    return pairs_of(Path(), found.pop("train"), **found)


@pytest.mark.parametrize("source", ["en", "de", "en-GB"])
@pytest.mark.parametrize("name", ["names.csv", "codes.tsv", "folder"])
def test_typed_languages_choose_the_source_text(name: str, source: str) -> None:
    target = {"en": "de", "de": "en"}[source[:2]]
    found = settled([], [name, source, target, ""])
    assert (found["source_lang"], found["target_lang"]) == (source, target)
    assert read(found) == [(TEXT[source[:2]], TEXT[target])]


def test_another_language_than_a_name_says_may_be_typed() -> None:
    found = settled([], ["a.en", "a.de", "en", "gsw", ""])
    assert found["target_lang"] == "gsw"
    assert read(found) == [(TEXT["en"], TEXT["de"])]


def test_typed_languages_contradict_the_names_of_files() -> None:
    assert read(settled([], ["a.en", "a.de", "en", "de", ""])) == [(TEXT["en"], TEXT["de"])]
    with pytest.raises(InputError, match="from en into de, but the model translates from de into en"):
        settled([], ["a.en", "a.de", "de", "en", ""])


@pytest.mark.parametrize("codes", [("en", "de"), ("eng_Latn", "deu_Latn"), ("en_GB", "de")])
@pytest.mark.parametrize("name", ["names.csv", "codes.tsv", "folder"])
def test_a_model_reads_text_named_after_its_languages(tmp_path: Path, name: str, codes: tuple[str, str]) -> None:
    """Also where its codes are spelled in another way, and a folder has no order."""
    found = settled([name], start=checkpoint(tmp_path, *codes))
    assert (found["source_lang"], found["target_lang"]) == codes
    assert read(found) == [(TEXT["en"], TEXT["de"])]


@pytest.mark.parametrize(
    ("train", "given"),
    [
        (("a.de", "a.en"), {}),
        (("folder",), {"source_lang": "de"}),
        (("names.csv",), {"columns": "German:English"}),
    ],
)
def test_a_model_refuses_text_in_the_other_order(tmp_path: Path, train: Sequence[str], given: dict[str, str]) -> None:
    with pytest.raises(InputError, match=r"de.* translates from en"):
        settled(train, start=checkpoint(tmp_path, "en", "de"), **given)


def test_a_model_refuses_text_in_another_language(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--target-lang: de, but .* translates into fr"):
        settled(["names.csv"], start=checkpoint(tmp_path, "en", "fr"))
