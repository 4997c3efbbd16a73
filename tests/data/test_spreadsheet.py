"""Excel workbooks as tables."""

import datetime
import errno
import io
import os
import re
import zipfile
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from openpyxl.worksheet._read_only import ReadOnlyWorksheet

from data_helpers import pairs_of, refusal


def workbook(path: Path, *rows: list[Any], title: str = "pairs", others: tuple[str, ...] = ()) -> Path:
    book = openpyxl.Workbook()
    book.active.title = title
    for row in rows:
        book.active.append(row)
    for name in others:
        book.create_sheet(name).append(["en", "it"])
        book[name].append([name, "altro"])
    book.save(path)
    return path


def with_part(path: Path, name: str, content: bytes) -> None:
    """Replace a part of a workbook."""
    with zipfile.ZipFile(path) as archive:
        parts = {each: archive.read(each) for each in archive.namelist()} | {name: content}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for each, part in parts.items():
            archive.writestr(each, part)


def test_cells_are_read_as_shown(tmp_path: Path) -> None:
    """Numbers become text, empty rows are left out, and a date matters in a column that is read only."""
    when = datetime.datetime(2020, 1, 2)
    rows = [["en", "it", "when"], ["two\nlines", " NA "], [None, None, None], [7, 2.5, when], ["=1+1", True], ["only"]]
    workbook(tmp_path / "a.xlsx", *rows)
    expected = [("two lines", "NA"), ("7", "2.5"), ("", "True"), ("only", "")]
    assert pairs_of(tmp_path, {"file": "a.xlsx"}) == expected
    assert refusal(tmp_path / "a.xlsx", target_column="when") == ": row 4: column 'when' is not text but " + repr(when)


def test_escaped_control_characters_are_read(tmp_path: Path) -> None:
    """Programs that write CR LF in a cell escape the CR, and an underscore where it would begin an escape."""
    workbook(tmp_path / "a.xlsx", ["en", "it"], ["Hello_x000D_\nthere", "a _x005F_x000D_ b_x1024_"])
    assert pairs_of(tmp_path, {"file": "a.xlsx"}) == [("Hello there", "a _x000D_ b_x1024_")]


def test_rows_end_with_the_last_column_of_the_header(tmp_path: Path) -> None:
    """Programs write empty cells that only have a format, and leave out the size of the sheet."""
    path = workbook(tmp_path / "a.xlsx", ["en", "it"], ["a", "b"], ["c"])
    with zipfile.ZipFile(path) as archive:
        sheet = archive.read("xl/worksheets/sheet1.xml").decode()
    sheet = re.sub("<dimension[^>]*>", "", sheet).replace("</sheetData>", '<row r="4"><c r="D4"/></row></sheetData>')
    with_part(path, "xl/worksheets/sheet1.xml", re.sub('(<row r="2".*?)</row>', r'\1<c r="F2"/></row>', sheet).encode())
    assert pairs_of(tmp_path, {"file": "a.xlsx"}) == [("a", "b"), ("c", "")]


def test_sheets_and_headers(tmp_path: Path) -> None:
    workbook(tmp_path / "a.xlsx", ["en", "it"], ["a", "b"], others=("more",))
    assert pairs_of(tmp_path, {"file": "a.xlsx", "sheet": "more"}) == [("more", "altro")]
    assert pairs_of(tmp_path, {"file": "a.xlsx", "header": False}) == [("en", "it"), ("a", "b")]
    assert refusal(tmp_path / "a.xlsx", sheet="none") == ": no sheet 'none', only pairs, more"
    workbook(tmp_path / "one.xlsx", ["en"], ["a"])
    assert refusal(tmp_path / "one.xlsx") == ": row 2: no column 'it', only en"


def test_a_workbook_from_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    assert refusal(path) == ": no such file"
    for content, message in (
        (b"", ": damaged, or not an .xlsx file"),
        (b"en\tit\n", ": damaged, or not an .xlsx file"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", ": protected by a password, or an old .xls"),
        (workbook(tmp_path / "b.xlsx", ["en", "it"]).read_bytes()[:-30], ": damaged, or not an .xlsx file"),
    ):
        path.write_bytes(content)
        assert refusal(path).startswith(message)
    types = '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>'
    for name, content in (("word/document.xml", "<x/>"), ("[Content_Types].xml", types)):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(name, content)
        assert refusal(path).startswith(": damaged, or not an .xlsx file")


def test_a_failing_disk_is_no_damaged_workbook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = workbook(tmp_path / "a.xlsx", ["en", "it"], ["a", "b"])

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(ReadOnlyWorksheet, "iter_rows", fail)
    with pytest.raises(OSError, match="Input/output error"):
        pairs_of(tmp_path, {"file": path.name})


def test_an_unsafe_workbook(tmp_path: Path) -> None:
    path = workbook(tmp_path / "a.xlsx", ["en", "it"], ["a", "b"])
    sheet = "xl/worksheets/sheet1.xml"
    with_part(path, sheet, b'<!DOCTYPE x [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><worksheet>&b;</worksheet>')
    assert refusal(path) == ": declares entities of its own"
    workbook(path, ["en", "it"])
    with_part(path, sheet, bytes(60_000_000))
    assert refusal(path) == ": unpacks to more than 200 times its size, which no text does"
    content = io.BytesIO(workbook(path, ["en", "it"]).read_bytes()).getbuffer()
    first = bytes(content).index(b"PK\x01\x02")
    content[first + 8] |= 1  # the flag of an encrypted file
    path.write_bytes(content)
    assert refusal(path) == ": protected by a password"
