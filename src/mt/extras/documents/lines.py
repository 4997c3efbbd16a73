"""Documents of lines: subtitles and Markdown."""

import re
import textwrap
from collections.abc import Iterator, Sequence
from functools import partial

from mt.extras.documents.segments import has_words
from mt.extras.documents.splicing import Span, Spliced
from mt.text.words import URL

_SUBTITLE_LINE_END = r"\r?\r?\n|\r"  # some programs write CR CR LF for one line end
_LINE_END = r"\r\n?|\n"  # as markdown-it counts lines
_TIME = re.compile(r"\s*\d+(:\d+)+([.,]\d*)?\s*-+>")  # as lenient as players are
_CUE_TAG = re.compile(r"<[^>\n]*>|\{\\[^}\n]*\}")
_SPEAKER = re.compile(r"\s*(?:<[^<>\n]*>)*[-–—]")
# Up to {} characters of a text without spaces, then the rest of a Latin word, punctuation and combining marks
_UNSPACED_LINE = r".{{1,{}}}(?:(?<=[!-~])[!-~]+)?[^\w\s「『（《〈【“‘]*"
# Lines with a meaning in extensions of Markdown, such as `!!! note`, `=== "Tab"` or `:::tip`
_EXTENSION = re.compile(r'(?:!!!|\?\?\?\+?) +[a-z][a-z -]*+(?:"[^"]*"\s*)?$|===[!+]? +"[^"]*"\s*$|:{3}')
_DEFINITION = re.compile(r": +")
# A byte order mark, and YAML or TOML
_FRONT_MATTER = re.compile(r"\A\ufeff?(?:(---|\+\+\+)\r?\n.*?\n\1[ \t]*\r?\n)?", re.DOTALL)
# Code, images, links' targets, references, HTML, line ends, escapes and emphasis of Markdown, which may wrap. URLs are
# matched, too, though they stay in the text: nothing in them is emphasis.
_INLINE = re.compile(
    r"""<(code|kbd|samp|tt|var)\b[^<>]*>.{0,1000}?</\1>
    |<(\w+)\b(?=[^<>]*\stranslate=["']?no\b)[^<>]*>.{0,1000}?</\2>
    |\{\{[^{}]*\}\}|\{%[^{}]*%\}|(?<!`)`(?!`)[^`]+`(?!`)|(?<!`)``(?!`).+?(?<!`)``(?!`)
    |!?\[(?=[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*){0,5}\](?:\(|\[[^\[\]]))
    |\]\((?:[^()"]|\([^()]*\)|"[^"]*")*\)|\]\[[^\[\]]+\]|\[[^\[\]]*\](?:\[\]|(?![(\[]))
    |<!--.*?-->|</?[A-Za-z][^<>]*>|(?:(?<!\ )\ {2,}|\\)(?:\Z|(?=\n))|\n|\\[^\w\s]|\*+|~~
    |(?<!\w)_++(?=[^\W_])|(?<=[^\W_])_++(?![^\W_])
    """
    rf"|(?P<url>{URL}(?<![*_~]))",
    re.DOTALL | re.VERBOSE,
)


def scan_subtitles(source: str, is_vtt: bool, has_spaces: bool = True) -> Spliced:
    """Find the texts of an .srt or .vtt file: a cue is one text, but each line of a dialogue is a text of its own.

    In an .srt file, text after an empty line belongs to the same cue; in a .vtt file, it may be a comment or a style
    sheet. Only in a .vtt file, `&` and `<` are markup. `has_spaces`: the target language writes spaces between words.
    """
    document = Spliced(source, partial(_cue_text, is_vtt=is_vtt, has_spaces=has_spaces))
    cue: list[tuple[int, int]] = []
    in_cue, is_new = False, False
    for number, (start, end) in enumerate(_lines(source, _SUBTITLE_LINE_END), 1):
        line = source[start:end]
        if _TIME.match(line):
            # Digits before the time, or the only line between an empty one and the time, are this cue's number.
            is_numbered = bool(cue) and ((is_new and len(cue) == 1) or source[slice(*cue[-1])].strip().isdigit())
            _add_cue(document, cue[:-1] if is_numbered else cue, number - is_numbered)
            in_cue, is_new, cue = True, False, []
        elif not line.strip():
            _add_cue(document, cue, number)
            in_cue, is_new, cue = in_cue and not is_vtt, True, []
        elif in_cue:
            cue.append((start, end))
    return document


def _add_cue(document: Spliced, lines: list[tuple[int, int]], number: int) -> None:
    is_dialogue = any(_SPEAKER.match(document.source, start, end) for start, end in lines)
    texts = lines if is_dialogue or not lines else [(lines[0][0], lines[-1][1])]
    for start, end in texts:
        pieces = [[span] for span in _spans_between(_CUE_TAG, document.source, start, end)]
        document.add(pieces, f"line {number - len(lines)}")


def _cue_text(old: str, new: str, is_vtt: bool, has_spaces: bool) -> str:
    """Break the text of a cue into as many lines as it had, of similar length."""
    new, line_ends = new.replace("-->", "→"), re.findall(_SUBTITLE_LINE_END, old.strip("\r\n"))
    if line_ends:
        n_lines = len(line_ends) + 1
        width = max(1, -(-len(new) // n_lines))
        if has_spaces:
            while len(wrapped := textwrap.wrap(new, width, break_long_words=False, break_on_hyphens=False)) > n_lines:
                width += 1
        else:
            wrapped = [line.strip() for line in re.findall(_UNSPACED_LINE.format(width), new)]
        new = old.replace(old.strip(), line_ends[0].join(wrapped), 1)
    return re.sub(r"&(?!#?\w+;)", "&amp;", new).replace("<", "&lt;") if is_vtt else new


def scan_markdown(source: str) -> Spliced:
    """Find the paragraphs, headings, items and table cells of Markdown (CommonMark and tables)."""
    from markdown_it import MarkdownIt

    document = Spliced(source, _escaped)
    lines = list(_lines(source, _LINE_END))
    positions = [start for start, _ in lines]  # where to search next on each line
    body = _FRONT_MATTER.sub("", source, count=1)
    skipped_lines = re.findall(_LINE_END, source[: len(source) - len(body)])
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    for token in parser.parse("\n" * len(skipped_lines) + body):
        if token.type != "inline" or token.map is None or not token.content:
            continue
        spans = _located(source, lines, positions, token.map[0], token.content.split("\n"))
        if not spans and has_words(token.content):
            document.kept.append((f"line {token.map[0] + 1}", f"not found as it stands: {token.content:.60}"))
        for text in _texts(source, spans):
            document.add(_pieces(source, text), f"line {token.map[0] + 1}")
    return document


def _texts(source: str, spans: Sequence[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Yield the texts of a paragraph as spans of lines, between extensions and formulas; a definition begins one."""
    text, in_formula = list[tuple[int, int]](), False
    for start, end in spans:
        line = source[start:end]
        is_formula, definition = in_formula or line.startswith("$$"), _DEFINITION.match(line)
        if is_formula or definition or _EXTENSION.match(line):
            yield text
            text = [(start + definition.end(), end)] if definition and not is_formula else []
            in_formula ^= is_formula and line.count("$$") % 2 == 1
        else:
            text.append((start, end))
    yield text


def _escaped(old: str, new: str) -> str:
    """Escape what would begin a list, a quote, a heading or a cell, and marks that the source does not have."""
    new = re.sub(r"[*_`\[\]<|]", lambda mark: mark[0] if mark[0] in old else f"\\{mark[0]}", new)
    return re.sub(r"^(\d+(?=[.)]\s)|(?=(?:[#>+-]+|=+)(?:\s|$)))", r"\1\\", new)


def _located(
    source: str, lines: list[tuple[int, int]], positions: list[int], first: int, contents: list[str]
) -> list[tuple[int, int]]:
    """Find the spans of a paragraph's lines, without the marks of lists and quotes; empty if a line is not found."""
    spans = []
    for number, content in enumerate(contents, first):
        # The parser turns tabs before the text into spaces, and unescapes bars in table cells.
        pattern = re.compile(re.escape(content.lstrip(" \t")).replace(r"\|", r"\\?\|"))
        match = pattern.search(source, positions[number], lines[number][1]) if number < len(lines) else None
        if match is None:
            return []
        spans.append(match.span())
        positions[number] = match.end()
    return spans


def _pieces(source: str, lines: Sequence[tuple[int, int]]) -> list[list[Span]]:
    """Return the texts between the marks of a paragraph; one goes on behind a line end, but not a hard line break."""
    pieces: list[list[Span]] = []
    starts = {start for start, _ in lines}
    for span in _inline_spans(source, lines):
        gap = source[pieces[-1][-1].end : span.start] if pieces else ""
        if pieces and span.start in starts and re.fullmatch(rf" ?(?:{_LINE_END})[ \t>]*", gap):
            pieces[-1].append(Span(pieces[-1][-1].end, span.end, f" {span.text}"))
        else:
            pieces.append([span])
    return pieces


def _inline_spans(source: str, lines: Sequence[tuple[int, int]]) -> Iterator[Span]:
    """Yield the texts between the marks and line ends of a paragraph, whose marks may wrap."""
    text = "\n".join(source[start:end] for start, end in lines)
    positions = [n for start, end in lines for n in range(start, end + 1)]  # in the source, of each character
    for span in _spans_between(_INLINE, text, 0, len(text)):
        yield Span(positions[span.start], positions[span.end], span.text)


def _lines(source: str, line_end: str) -> Iterator[tuple[int, int]]:
    """Return start and end of each line without its line break; the last line is empty."""
    return (line.span(1) for line in re.finditer(rf"([^\r\n]*)(?:{line_end}|\Z)", source))


def _spans_between(mark: re.Pattern[str], source: str, start: int, end: int) -> Iterator[Span]:
    """Yield the texts between marks."""
    for match in mark.finditer(source, start, end):
        if match.lastgroup == "url":
            continue
        if start < match.start():
            yield Span(start, match.start(), source[start : match.start()])
        start = match.end()
    if start < end:
        yield Span(start, end, source[start:end])
