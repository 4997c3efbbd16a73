"""Documents that are zip archives of XML parts: Word, PowerPoint, OpenDocument and EPUB."""

import io
import re
import zipfile
import zlib

from mt.errors import InputError
from mt.extras.documents.formats import decode_utf8
from mt.extras.documents.markup import DOCX, HTML, ODF, PPTX, Markup, parse_xml, scan
from mt.extras.documents.splicing import Spliced
from mt.text.archives import refuse_unsafe_zip

_MAX_BYTES = 500_000_000  # of all parts, unpacked

# The parts with text, and their markup.
_PARTS: dict[str, tuple[str, Markup]] = {
    "docx": (r"word/(document|header|footer|footnotes|endnotes|comments)\d*\.xml", DOCX),
    "pptx": (r"ppt/(slides|notesSlides)/[^/]+\.xml", PPTX),
    "odt": (r"content\.xml|styles\.xml", ODF),
    "epub": (r".+\.x?html?", HTML),
}


class Package:
    """An archive, and those of its parts that hold text."""

    def __init__(self, content: bytes, kind: str, place: str) -> None:
        """Read an archive.

        Raises:
            InputError: it is damaged, encrypted, too large, or not of this kind.
        """
        pattern, markup = _PARTS[kind]
        self._content = content
        self._parts: dict[str, Spliced] = {}
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                refuse_unsafe_zip(archive, place, _MAX_BYTES)
                manifests = [info for info in archive.infolist() if info.filename == "META-INF/manifest.xml"]
                if any(b"encryption-data" in _unpacked(archive, info) for info in manifests):  # of OpenDocument
                    raise InputError(f"{place}: protected by a password", "save it without one")
                for info in archive.infolist():
                    name, part = info.filename, _unpacked(archive, info)  # all parts, to find damage early
                    if re.fullmatch(pattern, name):
                        parse_xml(part, f"{place}: {name}")
                        self._parts[name] = scan(decode_utf8(part, f"{place}: {name}"), markup, name)
        except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError, ValueError, zlib.error) as error:
            raise InputError(f"{place}: damaged, or no .{kind} file ({error})", "save it again") from None
        if not self._parts:
            raise InputError(f"{place}: this archive holds no text of a .{kind} file", "check its kind")
        self.segments = [segment for part in self._parts.values() for segment in part.segments]

    def written(self, translations: list[tuple[str, ...] | None]) -> bytes:
        """Return the archive with translated parts; all others are copied."""
        remaining = iter(translations)
        new = {name: part.written([next(remaining) for _ in part.segments]) for name, part in self._parts.items()}
        # The text of joined runs may begin or end with a space, which Word drops without this attribute
        changed = {name for name, part in self._parts.items() if new[name] != part.source}
        new |= {name: re.sub(r"<w:t>(?=\s|[^<]*\s<)", '<w:t xml:space="preserve">', new[name]) for name in changed}
        output = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(self._content)) as old, zipfile.ZipFile(output, "w") as archive:
            for info in old.infolist():
                content = new[info.filename].encode() if info.filename in new else _unpacked(old, info)
                archive.writestr(info, content, info.compress_type)
        return output.getvalue()


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Unpack a part up to its declared size, which `ZipFile.read` may exceed by far, and verify its checksum."""
    with archive.open(info) as part:
        return part.read(info.file_size) + part.read(1)  # at its end, which makes zipfile verify an empty part, too
