"""Documents of lines: subtitles and Markdown."""

import re
import textwrap
from collections.abc import Iterator

from mt.extras.documents.splicing import Span, Spliced

_TIME = re.compile(r"\s*\d+(:\d+)+([.,]\d*)?\s*-+>")  # as players read it, not only as it should be
_CUE_TAG = re.compile(r"<[^>\n]*>|\{\\[^}\n]*\}")
_SPEAKER = re.compile(r"\s*(?:<[^<>\n]*>)*[-–—]")
# Code, images, links' targets, references, HTML, hard line breaks, escapes and emphasis of Markdown.
_INLINE = re.compile(
    r"""\{\{[^{}]*\}\}|\{%[^{}]*%\}|(?<!`)`(?!`)[^`]+`(?!`)|(?<!`)``(?!`).+?(?<!`)``(?!`)
    |!?\[(?=[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*){0,5}\](?:\(|\[[^\[\]]))
    |\]\((?:[^()"]|\([^()]*\)|"[^"]*")*\)|\]\[[^\[\]]+\]|\[[^\[\]]*\](?:\[\]|(?![(\[]))
    |<!--.*?-->|</?[A-Za-z][^<>]*>|(?:\ {2,}|\\)\Z|\\[^\w\s]|\*+|~~|(?<![^\W_])_+(?=[^\W_])|(?<=[^\W_])_+(?![^\W_])
    """,
    re.DOTALL | re.VERBOSE,
)


def scan_subtitles(source: str, is_vtt: bool) -> Spliced:
    """Find the text of the cues of an .srt or .vtt file; lines of one cue are one text, those of speakers are not.

    In an .srt file text behind an empty line is the same cue's, in a .vtt file it may be a comment or a style sheet.
    """
    found = Spliced(source, _wrapped)
    cue: list[tuple[int, int]] = []
    in_cue, is_new = False, False
    for number, start, end in _lines(source):
        line = source[start:end]
        if _TIME.match(line):
            # Without an empty line between two cues, the number of this one ends the other's lines.
            is_numbered = bool(cue) and ((is_new and len(cue) == 1) or source[slice(*cue[-1])].strip().isdigit())
            _add_cue(found, cue[:-1] if is_numbered else cue, number - is_numbered)
            in_cue, is_new, cue = True, False, []
        elif not line.strip():
            _add_cue(found, cue, number)
            in_cue, is_new, cue = in_cue and not is_vtt, True, []
        elif in_cue:
            cue.append((start, end))
    _add_cue(found, cue, source.count("\n") + 1)
    return found


def _add_cue(found: Spliced, lines: list[tuple[int, int]], number: int) -> None:
    spoken = any(_SPEAKER.match(found.source, start, end) for start, end in lines)
    for start, end in lines if spoken else [(first, lines[-1][1]) for first, _ in lines[:1]]:
        found.add(list(_pieces(found.source, start, end, _CUE_TAG)), f"line {number - len(lines)}")


def _wrapped(old: str, new: str) -> str:
    """Break the text of a cue into as many lines as it had, of similar length."""
    lines, new = old.strip("\r\n").count("\n") + 1, new.replace("-->", "→")
    width = max(1, -(-len(new) // lines))
    while len(wrapped := textwrap.wrap(new, width, break_long_words=False, break_on_hyphens=False)) > lines:
        width += 1
    outside = re.fullmatch(r"(\s*).*?(\s*)", old, re.DOTALL)
    assert outside is not None
    return new if lines == 1 else outside[1] + ("\r\n" if "\r\n" in old else "\n").join(wrapped) + outside[2]


def scan_markdown(source: str) -> Spliced:
    """Find the paragraphs, headings, items and table cells of Markdown (CommonMark and tables)."""
    from markdown_it import MarkdownIt

    found = Spliced(source, _escaped)
    lines = list(_lines(source))
    positions = [start for _, start, _ in lines]  # where to search on each line
    first = _front_matter(source)
    for token in (
        MarkdownIt("commonmark")
        .enable(["table", "strikethrough"])
        .parse("\n" * source.count("\n", 0, first) + source[first:])
    ):
        if token.type != "inline" or token.map is None or not token.content:
            continue
        spans = _located(source, lines, positions, token.map[0], token.content.split("\n"))
        if spans:
            pieces = [piece for start, end in spans for piece in _pieces(source, start, end, _INLINE)]
            found.add(_joined(source, pieces, spans), f"line {token.map[0] + 1}")
    return found


def _escaped(old: str, new: str) -> str:
    """Escape what would begin a list, a quote, a heading or a cell, and marks that the source does not have."""
    new = re.sub(r"[*_`\[\]<|]", lambda found: found[0] if found[0] in old else f"\\{found[0]}", new)
    return re.sub(r"^(\d+(?=[.)]\s)|(?=(?:[#>+-]+|=+)(?:\s|$)))", r"\1\\", new)


def _located(
    source: str, lines: list[tuple[int, int, int]], positions: list[int], first: int, contents: list[str]
) -> list[tuple[int, int]]:
    """Find where the lines of a paragraph stand, behind the marks of lists and quotes; none if they cannot be found."""
    spans = []
    for number, content in enumerate(contents, first):
        pattern = re.compile(re.escape(content).replace(r"\|", r"\\?\|"))  # in a cell of a table bars are escaped
        match = pattern.search(source, positions[number], lines[number][2]) if number < len(lines) else None
        if match is None:
            return []
        spans.append(match.span())
        positions[number] = match.end()
    return spans


def _joined(source: str, pieces: list[list[Span]], spans: list[tuple[int, int]]) -> list[list[Span]]:
    """Make one text of those that only the end of a line parts; a hard line break parts them still."""
    joined: list[list[Span]] = []
    starts = {start for start, _ in spans}
    for piece in pieces:
        [span] = piece
        gap = source[joined[-1][-1].end : span.start] if joined else ""
        if joined and span.start in starts and re.fullmatch(r" ?\r?\n[ \t>]*", gap):
            joined[-1].append(Span(joined[-1][-1].end, span.end, f" {span.text}"))
        else:
            joined.append(piece)
    return joined


def _front_matter(source: str) -> int:
    """Return the end of a byte order mark and of YAML or TOML front matter, 0 without them."""
    found = re.match(r"\ufeff?(?:(---|\+\+\+)\r?\n.*?\n\1[ \t]*\r?\n)?", source, re.DOTALL)
    assert found is not None
    return found.end()


def _lines(source: str) -> Iterator[tuple[int, int, int]]:
    """Yield the number of each line, from 1, with its start and its end without the line break."""
    start = 0
    for number, line in enumerate(source.split("\n"), 1):
        yield number, start, start + len(line.rstrip("\r"))
        start += len(line) + 1


def _pieces(source: str, start: int, end: int, mark: re.Pattern[str]) -> Iterator[list[Span]]:
    """Yield the texts between marks."""
    for found in mark.finditer(source, start, end):
        if start < found.start():
            yield [Span(start, found.start(), source[start : found.start()])]
        start = found.end()
    if start < end:
        yield [Span(start, end, source[start:end])]
