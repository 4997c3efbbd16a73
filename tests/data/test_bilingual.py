"""Translation memories and catalogues, by language, as a stream."""

import gzip
import tracemalloc
from pathlib import Path

import pytest

from data_helpers import make_data_config, pairs_of, refusal
from mt.data.corpus import Pair, read_pairs
from mt.errors import InputError

TMX = """<?xml version="1.0" encoding="{encoding}"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en-US"/><body>
<tu><tuv xml:lang="en-US"><seg>Press <bpt i="1">&lt;b></bpt>Süd &amp; <hi>West</hi><ept i="1">&lt;/b></ept></seg></tuv>
<tuv xml:lang="en-GB"><seg>second</seg></tuv><tuv xml:lang="IT"><note>a note</note><seg>Premi
Sud</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>untranslated</seg></tuv><tuv xml:lang="de"><seg>deutsch</seg></tuv></tu>
<tu><tuv lang="it"><seg>due</seg></tuv><tuv lang="en_GB"><seg>two</seg></tuv></tu>
</body></tmx>"""
XLIFF = """<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<file source-language="en" target-language="it" original="a" datatype="html"><body>
<trans-unit id="1"><source>one <g id="1">big<x id="2"/></g><ph id="3">&lt;br></ph></source>
<target>un <g id="1">grande</g></target><alt-trans><source>no</source><target>nessuno</target></alt-trans></trans-unit>
<trans-unit id="2"><source>untranslated</source><target/>
<alt-trans><source>like</source><target>come</target></alt-trans></trans-unit>
</body></file></xliff>"""
XLIFF2 = """<x:xliff version="2.0" srcLang="en" trgLang="it" xmlns:x="urn:oasis">
<x:file id="f"><x:unit id="u"><x:segment><x:source>two</x:source><x:target>due</x:target></x:segment>
<x:segment><x:source>untranslated</x:source></x:segment>
<x:ignorable><x:source>- </x:source><x:target>- </x:target></x:ignorable>
<x:segment><x:source>three</x:source><x:target>tre</x:target></x:segment></x:unit></x:file></x:xliff>"""
PO = """msgid ""
msgstr ""
"Language: it\\n"
"Content-Type: text/plain; charset=ISO-8859-1\\n"

msgid "one"
msgstr "un però"

#, fuzzy
msgid "guess"
msgstr "ipotesi"

msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d documento"
msgstr[1] "%d documenti"

msgid "empty"
msgstr ""
"""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1"])
def test_a_translation_memory_is_read_by_language(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.tmx").write_bytes(TMX.format(encoding=encoding).encode(encoding))
    expected = [("Press Süd & West", "Premi Sud"), ("two", "due")]
    assert pairs_of(tmp_path, {"file": "a.tmx"}) == expected
    (tmp_path / "b.tmx.gz").write_bytes(gzip.compress((tmp_path / "a.tmx").read_bytes()))
    assert pairs_of(tmp_path, {"file": "b.tmx.gz"}) == expected
    british = {"file": "a.tmx", "source_column": "en-GB"}
    assert pairs_of(tmp_path, british) == [("second", "Premi Sud"), ("two", "due")]


def test_a_translation_memory_without_the_languages_names_its_own(tmp_path: Path) -> None:
    (tmp_path / "a.tmx").write_text(TMX.format(encoding="utf-8").replace("it", "fr").replace("IT", "fr"))
    assert refusal(tmp_path / "a.tmx") == ": no unit in en and it, only en-US, en-GB, fr, en, de, en_GB"


@pytest.mark.parametrize(
    ("content", "expected"), [(XLIFF, [("one big", "un grande")]), (XLIFF2, [("two", "due"), ("three", "tre")])]
)
def test_xliff_in_both_directions(tmp_path: Path, content: str, expected: list[Pair]) -> None:
    for name in ("a.xlf", "a.xliff"):
        (tmp_path / name).write_text(content)
        assert pairs_of(tmp_path, {"file": name}) == expected
        backwards = pairs_of(tmp_path, {"file": name}, source_lang="it", target_lang="en")
        assert backwards == [(target, source) for source, target in expected]


def test_a_catalogue_in_both_directions(tmp_path: Path) -> None:
    (tmp_path / "a.po").write_bytes(PO.replace("\n", "\r\n").encode("latin-1"))
    expected = [("one", "un però"), ("%d file", "%d documento"), ("%d files", "%d documenti")]
    assert pairs_of(tmp_path, {"file": "a.po"}) == expected
    backwards = pairs_of(tmp_path, {"file": "a.po"}, source_lang="it", target_lang="en")
    assert backwards == [(target, source) for source, target in expected]


def test_a_catalogue_without_its_language_is_not_guessed_both_ways(tmp_path: Path) -> None:
    (tmp_path / "a.po").write_text('msgid "one"\nmsgstr "uno"\n')
    assert pairs_of(tmp_path, {"file": "a.po"}) == [("one", "uno")]
    both_ways = {"file": "a.po", "source_lang": "en", "target_lang": "it", "both_ways": True}
    both = {"source_lang": ["en", "it"], "target_lang": ["it", "en"]}
    with pytest.raises(InputError, match=r"no unit in en and it, only source, target\n.*source_column"):
        pairs_of(tmp_path, both_ways, **both)
    columns = {"source_column": "source", "target_column": "target"}
    assert pairs_of(tmp_path, both_ways | columns, **both) == [("one", "uno"), ("uno", "one")]


@pytest.mark.parametrize("split", ["valid", "test"])
def test_a_held_out_catalogue_without_its_language_is_not_guessed_both_ways(tmp_path: Path, split: str) -> None:
    (tmp_path / "a.po").write_text('msgid "one"\nmsgstr "uno"\n')
    ways = {"source_lang": "en", "target_lang": "it", "both_ways": True}
    both = {"source_lang": ["en", "it"], "target_lang": ["it", "en"], split: {"file": "a.po"} | ways}
    data = make_data_config(tmp_path, {"source": "a.en", "target": "a.it"} | ways, **both)
    for source in getattr(data, split):
        with pytest.raises(InputError, match="only source, target"):
            list(read_pairs(source, data))


LAUGHS = '<!DOCTYPE tmx [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><tmx><body><tu>&b;</tu></body></tmx>'
EXTERNAL = '<!DOCTYPE tmx [<!ENTITY a SYSTEM "file:///etc/passwd">]><tmx><body><tu>&a;</tu></body></tmx>'
UNDECLARED = '<!DOCTYPE tmx SYSTEM "x.dtd"><tmx><body><tu><tuv lang="en"><seg>a&b;</seg></tuv></tu></body></tmx>'


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        *((f"a{kind}", None, ": no such file") for kind in (".tmx", ".xliff", ".po")),
        ("a.tmx", b"", ":1: not well-formed XML (no element found)"),
        ("a.tmx", b"PK\x03\x04", ":1: not well-formed XML"),
        ("a.tmx", b"<tmx><body>", ":1: not well-formed XML"),
        ("a.tmx", XLIFF.encode(), ": not TMX: the root element is <xliff>"),
        ("a.tmx", b"<?xml version='1.0' encoding='gb2312'?><tmx/>", ": an encoding that cannot be read"),
        ("a.xliff", b"<?xml version='1.0' encoding='none'?><xliff/>", ": an encoding that cannot be read"),
        ("a.xliff", b"<tmx/>", ": not XLIFF: the root element is <tmx>"),
        ("a.tmx", LAUGHS.encode(), ": declares entities of its own"),
        ("a.tmx", EXTERNAL.encode(), ": declares entities of its own"),
        ("a.tmx", UNDECLARED.encode(), ": declares entities of its own"),
        ("a.xliff", LAUGHS.replace("tmx", "xliff").encode(), ": declares entities of its own"),
        ("a.tmx.gz", gzip.compress(b"<tmx/>", mtime=0)[:-4], ": damaged or truncated gzip"),
        ("a.po", b"", ": no unit in en and it, and no other translation"),
        ("a.po", b"\x00" * 100, ": not a gettext catalogue, or too large for one"),
        ("a.po", b'msgid "a\nmsgstr "b"\n', ":1: an unterminated string"),
        ("a.po", b"no catalogue\n", ": not a gettext catalogue"),
    ],
)
def test_a_bad_document_is_refused_in_one_sentence(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert refusal(tmp_path / name).startswith(message)


@pytest.mark.parametrize(
    ("start", "filler"),
    [
        pytest.param("<seg>", b"a" * 2**20, marks=pytest.mark.slow),
        ("<seg x='", b"a" * 2**20),
        ("<seg>", None),
    ],
)
def test_memory_stays_bounded(tmp_path: Path, start: str, filler: bytes | None) -> None:
    """Of a text or an attribute that never ends, and of many units."""
    unit = b'<tuv lang="en"><seg>a</seg></tuv><tuv lang="it"><seg>b</seg></tuv></tu><tu>'
    blocks = [b"<tmx><body><tu>", *([unit] * 15_000 if filler is None else [start.encode(), *[filler] * 24])]
    (tmp_path / "a.tmx.gz").write_bytes(gzip.compress(b"".join(blocks), 1))
    tracemalloc.start()
    message = refusal(tmp_path / "a.tmx.gz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert message.startswith(": an element of more than 16 MB" if filler else ":1: not well-formed XML")
    assert peak < (60e6 if filler else 5e6)
