"""CSV and TSV: one column is filled, and rows that do not change keep their bytes."""

from pathlib import Path

import pytest

from document_helpers import same, shout, translated
from mt.errors import InputError


@pytest.mark.parametrize(
    ("name", "columns", "before", "after"),
    [
        ("a.csv", "en:de", 'id;en;de\r\n1;"A; b";\r\n2;c;old\r\n', 'id;en;de\r\n1;"A; b";"A; B"\r\n2;c;old\r\n'),
        ("a.csv", "en:fr", "\ufeffen,de\nhi,x\n", "\ufeffen,de,fr\nhi,x,HI\n"),
        ("a.csv", "1:German", "English,Other\nhi,x\n", "English,Other,German\nhi,x,HI\n"),
        ("a.csv", "en", '"en","de"\n"hi","x"\n"12","3"', '"en","de"\n"HI","x"\n"12","3"'),
        ("a.csv", "2", "a, hi ,x\nb,\n", "a, HI ,x\nb,\n"),
        ("a.csv", "1:2", '"two\nlines",\n', '"two\nlines","TWO\nLINES"\n'),
        ("a.csv", "1:2", "two\tcells   here,\n", "two\tcells   here,TWO\tCELLS   HERE\n"),
        ("a.csv", "en", '"id, or, key";en\n1;hi\n', '"id, or, key";en\n1;HI\n'),
        ("a.csv", "en", "\ufeffsep=|\r\nid;x|en\r\n1|hi\r\n", "\ufeffsep=|\r\nid;x|en\r\n1|HI\r\n"),
        ("a.tsv", "1:2", "hi\n\nyou\tdu", "hi\tHI\n\nyou\tdu"),
        ("a.tsv", "1:2", '"Hi" he said\n5" long\n', '"Hi" he said\t"HI" HE SAID\n5" long\t5" LONG\n'),
        ("a.tsv", "1:2", '5" long\n', '5" long\t5" LONG\n'),
        ("a.tsv", "1:2", 'a 5"\t\t"b"\n', 'a 5"\t"A 5"""\t"b"\n'),
        ("a.csv", "2:4", '5",a,"b, ""c""\n"\n', '5",a,"b, ""c""\n",A\n'),
        ("a.tsv", "1:2", '"a ""b"" c"\n', '"a ""b"" c"\t"A ""B"" C"\n'),
    ],
)
def test_columns(tmp_path: Path, name: str, columns: str, before: str, after: str) -> None:
    path = tmp_path / name
    path.write_bytes(before.encode())
    assert translated(path, shout, columns=columns).decode() == after
    if ":" not in columns:
        assert translated(path, same, columns=columns).decode() == before


@pytest.mark.parametrize("kind", ["csv", "tsv"])
def test_a_long_cell(tmp_path: Path, kind: str) -> None:
    (tmp_path / f"a.{kind}").write_text(f"en\n{'word ' * 30_000}\n")
    assert translated(tmp_path / f"a.{kind}", shout, columns="en").decode() == f"en\n{'WORD ' * 30_000}\n"


@pytest.mark.parametrize(
    ("content", "columns", "message"),
    [
        (b"id,en\n1,a\n", None, "which of its 2 columns"),
        (b"id,en\n1,a\n", "fr:de", "has no column 'fr'"),
        (b"id,en\n1,a\n", "9", "no column '9'"),
        (b'en\n"open\n', "en", "unexpected end of data"),
        (b"en\na\x00b\n", "en", "NUL bytes"),
        (b"a,b\nc,d\n", "²:b", "has no column '²'"),
        (b"text\nHello, world\nbye\n", None, "row 2 has more cells than the first one"),
        (b"text\nbye\nHello, world\n", "text", "row 3 has more cells than the first one"),
    ],
)
def test_bad_tables(tmp_path: Path, content: bytes, columns: str | None, message: str) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(InputError, match=message):
        translated(tmp_path / "a.csv", same, columns=columns)
