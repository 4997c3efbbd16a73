"""XLIFF and TMX: the languages that they declare, and what a target keeps of its unit."""

import re
from pathlib import Path

import pytest

from document_helpers import same, shout, translated, translator
from mt.errors import InputError
from mt.extras.documents.translating import translate_document

XLIFF = """<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file {}><body>
<trans-unit id="1">{}</trans-unit></body></file></xliff>"""
TMX = """<tmx version="1.4"><header srclang="{}"/><body>
<tu><tuv xml:lang="fr"><seg>un</seg></tuv><tuv xml:lang="en-US"><seg>one</seg></tuv></tu>
<tu><tuv xml:lang="fr"><seg>deux</seg></tuv></tu></body></tmx>"""


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.xlf", XLIFF.format('source-language="fr"', "<source>a</source>"), "source language is fr, but .* is en"),
        ("a.xlf", XLIFF.format('target-language="fr-CA"', "<source>a</source>"), "target language is fr-CA, but .* de"),
        ("a.xlf", '<xliff version="2.0" srcLang="fr"/>', "source language is fr"),
        ("a.xlf", '<xliff version="2.0" srcLang="en" trgLang="fr"/>', "target language is fr"),
        ("a.tmx", TMX.format("fr"), "source language is fr"),
    ],
)
def test_a_file_of_other_languages_is_refused(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        translated(tmp_path / name, same, languages=("en", "de"))


@pytest.mark.parametrize("languages", [("en", "de"), ("en_US", "deu_Latn"), ("xx", "yy"), ("und", "de")])
def test_regions_scripts_and_unknown_codes_are_no_other_language(tmp_path: Path, languages: tuple[str, str]) -> None:
    declared = 'source-language="en-GB" target-language="de-AT"'
    (tmp_path / "a.xlf").write_text(XLIFF.format(declared, "<source>a</source>"))
    assert ">A</target>" in translated(tmp_path / "a.xlf", shout, languages=languages).decode()


def test_a_guess_of_the_source_language_refuses_no_document(tmp_path: Path) -> None:
    (tmp_path / "a.xlf").write_text(XLIFF.format('source-language="fr"', "<source>a</source>"))
    done = translate_document(
        tmp_path / "a.xlf", tmp_path / "b.xlf", translator(same), languages=("en", "de"), check_source=False
    )
    assert done.segments == 1


def test_a_memory_of_any_language_is_translated_from_that_of_the_model(tmp_path: Path) -> None:
    (tmp_path / "a.tmx").write_text(TMX.format("*all*"))
    new = translated(tmp_path / "a.tmx", shout, languages=("en", "de")).decode()
    assert re.findall("<seg>(.*?)</seg>", new) == ["un", "one", "ONE", "deux"]
    new = translated(tmp_path / "a.tmx", shout, languages=("und", "de")).decode()
    assert re.findall("<seg>(.*?)</seg>", new) == ["un", "one", "UN", "deux", "DEUX"]


@pytest.mark.parametrize(("declared", "written"), [("es", "es"), ("es-MX", "es-MX"), ("fr", "es")])
def test_an_empty_target_keeps_its_attributes(tmp_path: Path, declared: str, written: str) -> None:
    unit = f'<source xml:lang="en">a</source><target phase-name="p1" state="new" xml:lang="{declared}"/>'
    (tmp_path / "a.xlf").write_text(XLIFF.format("", unit))
    new = translated(tmp_path / "a.xlf", shout, languages=("en", "es")).decode()
    [target] = re.findall("<target(.*?)>A</target>", new)
    assert sorted(target.split()) == ['phase-name="p1"', 'state="needs-review-translation"', f'xml:lang="{written}"']


def test_a_segmented_unit_keeps_its_segments(tmp_path: Path) -> None:
    marks = '<mrk mtype="seg" mid="1">One <g id="1">thing</g>.</mrk> <g id="2"><mrk mtype="seg" mid="2">Bad</mrk></g>'
    unit = f"<source>One <g id='1'>thing</g>. Bad</source><seg-source>{marks}</seg-source>"
    (tmp_path / "a.xlf").write_text(XLIFF.format("", unit))
    new = translated(tmp_path / "a.xlf", shout, languages=("en", "de")).decode()
    loud = marks.replace("One ", "ONE ").replace("thing", "THING").replace("Bad", "BAD")
    assert f'<seg-source>{marks}</seg-source><target state="needs-review-translation">{loud}</target>' in new
    new = translated(tmp_path / "a.xlf", lambda texts: ["" for _ in texts], languages=("en", "de")).decode()
    assert "<target" not in new


def test_text_behind_a_comment_is_translated(tmp_path: Path) -> None:
    (tmp_path / "a.xlf").write_text(XLIFF.format("", "<source><!-- x -->one <?x y?>two <x id='1'/> three</source>"))
    new = translated(tmp_path / "a.xlf", shout, languages=("en", "de")).decode()
    assert '<!-- x -->ONE <?x y?>TWO <x id="1"/> THREE</target>' in new


def test_line_ends_stay(tmp_path: Path) -> None:
    """Also those of a file with a default namespace."""
    memory = TMX.replace("<tmx", '<tmx xmlns="http://www.lisa.org/tmx14"').format("en") + "\n"
    for end in ("\n", "\r\n"):
        (tmp_path / "a.tmx").write_bytes(memory.replace("\n", end).encode())
        lines = translated(tmp_path / "a.tmx", shout, languages=("en", "de")).decode().split("\n")
        assert ["<seg>ONE</seg>" in line for line in lines] == [False, False, True, False, False]
        assert {line[-1:] == "\r" for line in lines[:-1]} == {end == "\r\n"}
