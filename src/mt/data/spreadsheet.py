"""Rows of Excel workbooks, one at a time."""

import importlib.util
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mt.errors import InputError, is_out_of_memory
from mt.text.archives import refuse_unsafe_zip
from mt.text.lines import explain_read_errors

_MAX_BYTES = 2_000_000_000  # of all parts, unpacked
_MAX_TEXTS = 200_000_000  # bytes of the shared texts, which openpyxl keeps in memory
_MAX_ROWS = 2**20  # of Excel itself
_OLD = b"\xd0\xcf\x11\xe0"  # the container of .xls and of encrypted workbooks


def sheet_cells(path: Path, sheet: str | None = None) -> Iterator[tuple[int, list[Any]]]:
    """Yield the number and the cells of each row that is not empty; `sheet` names a sheet, None takes the first.

    Numbers are read as text and formulas as their results. Dates stay what they are, and are no text. Rows end with
    the last column of the first. Raises InputError if the .xlsx is missing, damaged, encrypted or unsafe, or has no
    such sheet.
    """
    if importlib.util.find_spec("openpyxl") is None:
        raise InputError(f"{path}: reading .xlsx files needs openpyxl", "pip install '.[data]' in mt's own folder")
    with explain_read_errors(path):
        _refuse_unsafe(path)
        workbook = _open(path)
    try:
        names = [each.title for each in workbook.worksheets]
        if not names or sheet not in (None, *names):
            raise InputError(f"{path}: no sheet {sheet!r}, only {', '.join(names)}", "name one of these as `sheet`")
        rows = workbook[sheet or names[0]].iter_rows(values_only=True)
        width = 0
        for number, values in enumerate(rows, 1):
            if number > _MAX_ROWS:
                raise InputError(f"{path}: more than {_MAX_ROWS:,} rows, which Excel does not have", "save it again")
            cells = list(map(_text, values))
            while len(cells) > width and cells[-1] == "":
                cells.pop()
            width = width or len(cells)
            if any(cells):
                yield number, cells + [""] * (width - len(cells))
    except (zipfile.BadZipFile, SyntaxError, ValueError, KeyError, TypeError, IndexError, EOFError) as error:
        raise _damaged(path, error) from None
    finally:
        workbook.close()


def _open(path: Path) -> Any:
    import openpyxl

    try:
        return openpyxl.load_workbook(path, read_only=True, data_only=True, keep_links=False)
    except Exception as error:  # the library raises whatever its parts do
        if is_out_of_memory(error):
            raise
        raise _damaged(path, error) from None


def _refuse_unsafe(path: Path) -> None:
    with path.open("rb") as file:
        if file.read(4) == _OLD:
            message = f"{path}: protected by a password, or an old .xls under another name"
            raise InputError(message, "save it as .xlsx without a password")
        try:
            with zipfile.ZipFile(file) as archive:
                refuse_unsafe_zip(archive, str(path), _MAX_BYTES)
                for info in archive.infolist():
                    if info.filename.endswith("sharedStrings.xml") and info.file_size > _MAX_TEXTS:
                        raise InputError(f"{path}: more than {_MAX_TEXTS // 10**6} MB of text", "save it as .tsv")
                    with archive.open(info) as part:
                        if re.search(rb"<!(DOCTYPE|ENTITY)", part.read(2**16).replace(b"\0", b"")):
                            raise InputError(f"{path}: declares entities of its own", "save it again in Excel")
        except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
            raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> InputError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
    return InputError(f"{path}: damaged, or no .xlsx file ({reason})", "save it again in its program")


def _text(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "" if value is None else str(value) if isinstance(value, int | float) else value
