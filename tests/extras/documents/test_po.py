"""Catalogues of gettext: entries without a translation get one, and every other line stays."""

from pathlib import Path

import mkdocs
import polib
import pytest

from document_helpers import same, shout, translated, translator
from mt.errors import InputError
from mt.extras.documents.translating import translate_document

MKDOCS = Path(mkdocs.__file__).parent
PO = """\
# A translator's comment
msgid ""
msgstr ""
"Language: de\\n"
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\\n"

#. For the menu
#: a.py:1
#, python-format
msgctxt "menu"
msgid "Open %s now"
msgstr ""

msgid "Done"
msgstr "Fertig"

msgid "%d file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""

#, fuzzy
msgid "A guess"
msgstr ""

msgid ""
"first line\\n"
"%s at \\"it\\"\\n"
msgstr ""

#~ msgid "Old"
#~ msgstr "Alt"
"""


def test_a_catalogue_keeps_translations_and_marks_new_ones(tmp_path: Path) -> None:
    (tmp_path / "a.po").write_text(PO)
    found = polib.pofile(translated(tmp_path / "a.po", shout).decode())
    menu, done, files, guess, _, old = list(found)
    assert guess.msgstr == ""
    assert (menu.msgstr, menu.msgctxt, menu.comment) == ("OPEN %s NOW", "menu", "For the menu")
    assert set(menu.flags) == {"python-format", "fuzzy"}
    assert (done.msgstr, done.flags, old.obsolete) == ("Fertig", [], True)
    assert files.msgstr_plural == {0: "%d FILE", 1: "%d FILES"}
    assert found.header == "A translator's comment"


def test_a_real_catalogue(tmp_path: Path) -> None:
    """Of a package's binary catalogue, as text: translated entries keep their bytes, emptied ones get a translation."""
    catalogue = polib.mofile(str(next(MKDOCS.glob("themes/readthedocs/locales/de/**/*.mo"))))
    path = tmp_path / "de.po"
    path.write_text(f"{polib.pofile(str(catalogue))}\n")
    before = path.read_bytes()
    assert len(polib.pofile(before.decode())) > 5
    assert translated(path, shout).strip() == before.strip()
    emptied = polib.pofile(before.decode())
    for entry in emptied:
        entry.msgstr = ""
    path.write_text(f"{emptied}")
    new = polib.pofile(translated(path, shout).decode())
    assert all(entry.fuzzy and entry.msgstr for entry in new)
    assert [entry.msgid for entry in new] == [entry.msgid for entry in emptied]


def test_all_other_lines_stay(tmp_path: Path) -> None:
    (tmp_path / "a.po").write_text(PO.replace("\n", "\r\n"), newline="")
    expected = (
        PO.replace('python-format\nmsgctxt "menu"\nmsgid "Open %s now"\nmsgstr ""',
                   'fuzzy, python-format\nmsgctxt "menu"\nmsgid "Open %s now"\nmsgstr "OPEN %s NOW"')
        .replace('msgid "%d file"', '#, fuzzy\nmsgid "%d file"')
        .replace('msgstr[0] ""', 'msgstr[0] "%d FILE"')
        .replace('msgstr[1] ""', 'msgstr[1] "%d FILES"')
        .replace('msgid ""\n"first', '#, fuzzy\nmsgid ""\n"first')
        .replace('it\\"\\n"\nmsgstr ""', 'it\\"\\n"\nmsgstr ""\n"FIRST LINE\\n"\n"%s AT \\"IT\\"\\n"')
    )  # fmt: skip
    assert translated(tmp_path / "a.po", shout).decode() == expected.replace("\n", "\r\n")


def test_doubled_carriage_returns_do_not_move_translations(tmp_path: Path) -> None:
    (tmp_path / "a.po").write_text(PO.replace("\n", "\r\r\n"), newline="")
    new = polib.pofile(translated(tmp_path / "a.po", shout).decode())
    (tmp_path / "a.po").write_text(PO)
    assert list(new) == list(polib.pofile(translated(tmp_path / "a.po", shout).decode()))


@pytest.mark.parametrize("mark", ["\u2028", "\x85", "\x0c"])
def test_a_separator_within_a_line_does_not_end_it(tmp_path: Path, mark: str) -> None:
    text = PO.replace("translator's", f"translator{mark}s").replace("#. For", f"{mark}\n#. For")
    (tmp_path / "a.po").write_text(text.replace('"Open %s', f'"Open{mark}%s'))
    new = translated(tmp_path / "a.po", shout).decode()
    assert f"# A translator{mark}s comment\n" in new
    assert f'#, fuzzy, python-format\nmsgctxt "menu"\nmsgid "Open{mark}%s now"\nmsgstr ""\n"OPEN' in new
    assert 'msgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] "%d FILE"\n' in new


def test_columns_of_a_message_stay(tmp_path: Path) -> None:
    message = "  -h, --help      show this help\\n\\tName:\\t\\tvalue. Or two   one\\n"
    (tmp_path / "a.po").write_text(f'msgid ""\nmsgstr ""\n\nmsgid "{message}"\nmsgstr ""\n')
    [entry] = polib.pofile(translated(tmp_path / "a.po", lambda texts: [f"{text}!" for text in texts]).decode())
    assert entry.msgstr == "  -h, --help!      show this help!\n\tName:!\t\tvalue.! Or two!   one!\n"


@pytest.mark.parametrize(
    ("escape", "is_kept"),
    [("\\033[0m", True), ("\\x1b", True), ("\\\\\\a", True), ("\\\\033", False), ('\\t\\"', False)],
)
def test_an_entry_with_other_escapes_stays_and_is_reported(tmp_path: Path, escape: str, is_kept: bool) -> None:
    source = f'# \\a\nmsgid "one"\nmsgstr ""\n\nmsgid ""\n"two{escape}"\nmsgstr ""\n'
    (tmp_path / "a.po").write_text(source)
    done = translate_document(tmp_path / "a.po", tmp_path / "b.po", translator(shout))
    new = (tmp_path / "b.po").read_text()
    assert 'msgid "one"\nmsgstr "ONE"' in new
    assert (f'msgid ""\n"two{escape}"\nmsgstr ""\n' in new) is is_kept
    assert [place for place, _ in done.kept] == ["line 5"] * is_kept
    assert done.segments == 2


def test_a_template_gets_a_character_set(tmp_path: Path) -> None:
    (tmp_path / "a.pot").write_text(PO.replace("charset=UTF-8", "charset=CHARSET"))
    new = translated(tmp_path / "a.pot", shout, format_="po").decode()
    assert '"Content-Type: text/plain; charset=UTF-8\\n"' in new
    assert "CHARSET" not in new


@pytest.mark.parametrize(("forms", "expected"), [(1, ["%d FILES"]), (3, ["%d FILE", "%d FILES", "%d FILES"])])
def test_plural_forms_of_the_target_language(tmp_path: Path, forms: int, expected: list[str]) -> None:
    (tmp_path / "a.po").write_text(PO.replace("nplurals=2", f"nplurals={forms}"))
    entry = polib.pofile(translated(tmp_path / "a.po", shout).decode()).find("%d file")
    assert entry.msgstr_plural == dict(enumerate(expected))


def test_a_character_set_that_lacks_letters_becomes_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "a.po"
    path.write_text(PO.replace("UTF-8", "ISO-8859-1").replace("translator", "tränslator"), encoding="latin-1")
    assert "tränslator" in translated(path, shout).decode("latin-1")
    new = translated(path, lambda texts: ["Öffne „%s“" if "%s" in text else text for text in texts]).decode()
    assert "charset=UTF-8" in new
    assert polib.pofile(new).find("Open %s now").msgstr == "Öffne „%s“"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'no "catalogue"\n', "not a gettext catalogue"),
        (b'msgid "a"\nmsgid "b\nmsgstr ""\n', "a.po:2: an unterminated string"),
        (b'msgid ""\nmsgstr "charset=nope"\n', "not in its character set, nope"),
        (b'msgid ""\nmsgstr "charset=undefined"\n', "not in its character set, undefined"),
        (b'msgid ""\nmsgstr "charset=UTF-7"\nmsgid "+2AA-"\nmsgstr ""\n', "not in its character set, UTF-7"),
        (b'msgid "a"\nmsgstr ""\n\nmsgid "b"', "an entry without msgstr"),
        (b'msgid "a"\nmsgid_plural "b"\n# c\nmsgid "d"\nmsgstr ""\n', "an entry without msgstr"),
        (b'msgid "caf\xe9"\nmsgstr ""\n', "not in its character set, UTF-8"),
    ],
)
def test_bad_catalogues(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.po").write_bytes(content)
    with pytest.raises(InputError, match=message):
        translated(tmp_path / "a.po", same)


def test_a_byte_order_mark_may_come_first(tmp_path: Path) -> None:
    (tmp_path / "a.po").write_bytes(b'\xef\xbb\xbfmsgid ""\nmsgstr ""\n\nmsgid "a"\nmsgstr ""\n')
    assert b'msgid "a"\nmsgstr "A"' in translated(tmp_path / "a.po", shout)
