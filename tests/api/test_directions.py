"""Detection of the source language: of lines and documents, with the terms of their directions."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from engine_helpers import ENGLISH, GERMAN, whole_folder
from mt.api.directions import AUTO, Directions
from mt.api.translation import Translator
from mt.bundle.load_translator import open_model
from mt.data.glossary import Glossary
from mt.data.tokenizer import BpeTokenizer
from mt.data.tokenizer_kinds import TokenizerPair
from mt.decoding.engine import EngineChoice
from mt.errors import InputError
from mt.text.languages import TERM_TAGS

pytest.importorskip("py3langid")

FRENCH = "Les enfants jouent dans la rue avec le chien noir de leur voisin."
TBX = """<martif><text><body><termEntry>
<langSet xml:lang="en"><tig><term>dog</term></tig></langSet>
<langSet xml:lang="de"><tig><term>Hund</term></tig></langSet>
</termEntry></body></text></martif>
"""


@pytest.fixture
def model(tmp_path: Path) -> Translator:
    """A model from French and English to German, trained for inline terms, with terms in English and German only."""
    both = BpeTokenizer.train([*ENGLISH, *GERMAN], 300, TERM_TAGS)
    changes = ("decoding.max_length=30", "augmentation.terms=0.3")
    folder = whole_folder(tmp_path / "model", *changes, pair=TokenizerPair(both, both))
    (tmp_path / "terms.tbx").write_text(TBX)
    opened = open_model(folder, EngineChoice("torch"))
    settings = replace(opened.settings, source_lang="fr,en")
    translator = replace(opened.translator, settings=settings, glossary=Glossary(tmp_path / "terms.tbx"))
    return Translator(replace(opened, translator=translator, settings=settings), folder.root)


def test_detected_languages_may_have_no_terms(model: Translator, notices: list[str]) -> None:
    lines = [ENGLISH[0], FRENCH]
    assert "Hund" in model.translate(lines[0], source_lang="auto").split()
    assert not any("no term" in notice for notice in notices)
    assert "Hund" in model.translate(lines, source_lang="auto")[0].split()
    assert sum("no term in fr and de" in notice for notice in notices) == 1
    with pytest.raises(InputError, match="no term in fr and de"):
        model.translate(FRENCH, source_lang="fr")


def test_terms_without_languages_are_not_for_detected_ones(model: Translator, tmp_path: Path) -> None:
    (tmp_path / "terms.tsv").write_text("dog\tHund\n")
    for path, keep, is_refused in ((tmp_path / "terms.tsv", (), True), (None, ["dog"], False)):
        directions = Directions(replace(model._opened.translator, glossary=Glossary(path, keep)))
        assert directions.into("de", "en").chosen == "de"
        with pytest.raises(InputError, match="does not name its languages") if is_refused else nullcontext():
            directions.into("de", AUTO)


def test_a_prefix_of_a_line_in_the_target_language_is_refused_before_any_translation(
    model: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mt.api.translation.BLOCK_LINES", 1)
    lines = [ENGLISH[0], GERMAN[2], GERMAN[2]]
    with pytest.raises(InputError, match="line 3 is in de already, and has a prefix"):
        next(model.results(lines, source_lang=AUTO, prefix=["", "", "Das"]))


def test_each_line_has_one_prefix(model: Translator) -> None:
    two, extra = ENGLISH[:2], "there is a prefix for line {}, but no such line"
    for lines, prefixes, message in (
        (two, ["Ein"], "line 2 has no prefix"),
        (two, ["Ein"] * 3, extra.format(3)),
        (two[0], ["Ein"] * 2, extra.format(2)),
        (iter(()), iter(["Ein"]), extra.format(1)),
    ):
        with pytest.raises(InputError, match=message):
            next(model.results(lines, source_lang="en", prefix=prefixes))


def test_attention_is_without_inline_terms(model: Translator) -> None:
    for source_lang in ("en", "auto"):
        [found] = model.translate([ENGLISH[0]], source_lang=source_lang, details=True, attention=True)
        assert not {f"<2{tag}>" for tag in TERM_TAGS} & {*found.source_tokens}


def test_the_language_of_a_document_is_detected_once(model: Translator, tmp_path: Path) -> None:
    """Not again of its sentences with tags, which are translated apart."""
    german = "Eine dog schläft nachts auf der Wiese, <b>und die dog bellt sehr laut.</b>"
    text = f"<p>{' '.join(ENGLISH[1:] * 5)}</p><p>{german}</p>"
    (tmp_path / "a.html").write_text(text)
    model.translate_document(tmp_path / "a.html", tmp_path / "b.html", source_lang="auto")
    assert "Hund" in (tmp_path / "b.html").read_text()
    (tmp_path / "a.html").write_text(f"<p>Die  Wiese&nbsp;ist sch&ouml;n.\n {german}</p>")
    model.translate_document(tmp_path / "a.html", tmp_path / "b.html", source_lang="auto")
    assert (tmp_path / "b.html").read_bytes() == (tmp_path / "a.html").read_bytes()
